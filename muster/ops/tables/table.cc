#include "muster/ops/tables/table.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/ops/op.h"
#include "muster/params/change_log.h"

namespace muster {
namespace {

// Rows of equal width, kept without gaps.
class Rows {
 public:
  Rows(DType dtype, int64_t width) : dtype_(dtype), width_(width) {}
  bool plain() const { return dtype_ != DType::kString; }
  size_t row_bytes() const { return static_cast<size_t>(width_) * DTypeSize(dtype_); }

  void Append(const char* row) {
    if (plain()) {
      bytes_.insert(bytes_.end(), row, row + row_bytes());
    } else {
      const auto* strings = reinterpret_cast<const std::string*>(row);
      strings_.insert(strings_.end(), strings, strings + width_);
    }
  }
  void Set(int64_t i, const char* row) {
    if (plain()) {
      std::memcpy(bytes_.data() + i * row_bytes(), row, row_bytes());
    } else {
      CopyElements(dtype_, row, reinterpret_cast<char*>(strings_.data() + i * width_), width_);
    }
  }
  const char* at(int64_t i) const {
    return plain() ? bytes_.data() + i * row_bytes()
                   : reinterpret_cast<const char*>(strings_.data() + i * width_);
  }
  bool Equal(int64_t i, const char* row) const {
    if (plain()) return std::memcmp(at(i), row, row_bytes()) == 0;
    const auto* strings = reinterpret_cast<const std::string*>(row);
    return std::equal(strings, strings + width_, strings_.data() + i * width_);
  }
  // Puts the last of `size` rows in the place of row i.
  void MoveLastTo(int64_t i, int64_t size) {
    if (i != size - 1) {
      if (plain()) {
        std::memcpy(bytes_.data() + i * row_bytes(), at(size - 1), row_bytes());
      } else {
        std::move(strings_.end() - width_, strings_.end(), strings_.begin() + i * width_);
      }
    }
    if (plain()) {
      bytes_.resize(bytes_.size() - row_bytes());
    } else {
      strings_.resize(strings_.size() - static_cast<size_t>(width_));
    }
  }
  void Clear() {
    bytes_.clear();
    strings_.clear();
  }
  std::string Text(const char* row) const {
    Tensor one(dtype_, Shape());
    CopyElements(dtype_, row, one.raw(), 1);
    return one.SummarizeValues(1);
  }

 private:
  const DType dtype_;
  const int64_t width_;
  std::vector<char> bytes_;
  std::vector<std::string> strings_;
};

std::vector<Tensor> ReservedKeys(const TableOptions& options) {
  std::vector<Tensor> keys;
  if (options.empty_key.valid()) keys.push_back(options.empty_key);
  if (options.deleted_key.valid()) keys.push_back(options.deleted_key);
  return keys;
}

Shape KeyShape(const TableOptions& options) {
  return options.empty_key.valid() ? options.empty_key.shape() : Shape();
}

// Keys are elements (K is E) or vectors of them.
template <typename E, typename K = E>
class HashTable : public LookupTable {
 public:
  HashTable(std::string name, const TableOptions& options)
      : LookupTable(std::move(name), options.kind, options.key_type, KeyShape(options),
                    options.value_type, options.value_shape, ReservedKeys(options)),
        max_load_(options.max_load),
        num_buckets_(options.num_buckets),
        deleted_rows_(options.value_type, options.value_shape.num_elements()),
        rows_(options.value_type, options.value_shape.num_elements()) {
    for (const Tensor& key : reserved_keys()) reserved_.push_back(KeyAt(key, 0));
  }

  absl::Status Find(const Tensor& keys, const Tensor& fallback, Tensor& values) const override {
    MutexLock lock(mutex_);
    if (kind() == Kind::kStatic && !initialized_) return NotInitialized();
    RETURN_IF_ERROR(CheckReserved(keys));
    const int64_t width = value_shape().num_elements();
    const auto bytes = width * static_cast<int64_t>(DTypeSize(value_type()));
    const bool one_fallback = fallback.num_elements() == width;
    for (int64_t i = 0; i < NumKeys(keys); ++i) {
      const auto found = index_.find(KeyAt(keys, i));
      const char* from = found != index_.end() ? rows_.at(found->second)
                                               : fallback.raw() + (one_fallback ? 0 : i * bytes);
      CopyElements(value_type(), from, values.raw() + i * bytes, width);
    }
    return absl::OkStatus();
  }

  absl::Status Insert(const Tensor& keys, const Tensor& values) override {
    MutexLock lock(mutex_);
    if (kind() == Kind::kStatic) return Immutable("insert into");
    RETURN_IF_ERROR(CheckReserved(keys));
    ++epoch_;
    GrowLocked(NumKeys(keys));
    std::vector<int64_t> touched;
    for (int64_t i = 0; i < NumKeys(keys); ++i) {
      const int64_t row = SetLocked(KeyAt(keys, i), values.raw() + RowOffset(i));
      if (log_ != nullptr) touched.push_back(row);
    }
    if (log_ != nullptr) log_->NoteRows(epoch_, touched, SizeLocked());
    return absl::OkStatus();
  }

  absl::Status Remove(const Tensor& keys) override {
    MutexLock lock(mutex_);
    if (kind() == Kind::kStatic) return Immutable("remove from");
    RETURN_IF_ERROR(CheckReserved(keys));
    ++epoch_;
    std::vector<int64_t> touched;
    for (int64_t i = 0; i < NumKeys(keys); ++i) {
      const auto found = index_.find(KeyAt(keys, i));
      if (found == index_.end()) continue;
      const int64_t hole = found->second;
      if (kind() == Kind::kDense) {
        deleted_rows_.Append(rows_.at(hole));
        ++num_deleted_;
      }
      index_.erase(found);
      rows_.MoveLastTo(hole, SizeLocked());
      if (hole != SizeLocked() - 1) {
        keys_[hole] = std::move(keys_.back());
        index_[keys_[hole]] = hole;
        if (log_ != nullptr) touched.push_back(hole);
      }
      keys_.pop_back();
    }
    if (log_ == nullptr) return absl::OkStatus();
    // Deltas of rows do not have what was removed from a dense table.
    if (kind() == Kind::kDense) {
      log_->NoteWhole(epoch_);
    } else {
      log_->NoteRows(epoch_, touched, SizeLocked());
    }
    return absl::OkStatus();
  }

  int64_t size() const override {
    MutexLock lock(mutex_);
    return SizeLocked();
  }

  int64_t epoch() const override {
    MutexLock lock(mutex_);
    return epoch_;
  }
  absl::StatusOr<StateSnapshot> TakeSnapshot() const override {
    MutexLock lock(mutex_);
    StateSnapshot snapshot;
    snapshot.epoch = epoch_;
    ASSIGN_OR_RETURN(snapshot.parts, PartsLocked());
    return snapshot;
  }
  // Of equal keys the last counts; reserved keys are left out.
  absl::Status RestoreSnapshot(const StateSnapshot& snapshot) override {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(SetWholeLocked(snapshot.parts, /*strict=*/false));
    ++epoch_;
    if (log_ != nullptr) log_->NoteWhole(epoch_);
    return absl::OkStatus();
  }
  absl::Status ApplyDelta(const StateDelta& delta) override {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(CheckFollows(Named(), epoch_, delta));
    const bool empty = !delta.whole && delta.rows.empty() && delta.parts.empty();
    if (delta.whole) {
      RETURN_IF_ERROR(SetWholeLocked(delta.parts, /*strict=*/true));
    } else if (!empty) {
      RETURN_IF_ERROR(SetRowsLocked(delta));
    }
    epoch_ = delta.to;
    if (log_ == nullptr || empty) return absl::OkStatus();
    if (delta.whole) {
      log_->NoteWhole(epoch_);
    } else {
      log_->NoteRows(epoch_, delta.rows, SizeLocked());
    }
    return absl::OkStatus();
  }

  absl::Status Initialize(const Tensor& keys, const Tensor& values) override {
    MutexLock lock(mutex_);
    if (initialized_) {
      if (NumKeys(keys) == static_cast<int64_t>(keys_.size())) return absl::OkStatus();
      return FailedPrecondition("Table was already initialized with different data.");
    }
    const size_t bytes = rows_.row_bytes();
    for (int64_t i = 0; i < NumKeys(keys); ++i) {
      const K& key = KeyAt(keys, i);
      const auto found = index_.find(key);
      const char* row = values.raw() + static_cast<size_t>(i) * bytes;
      if (found == index_.end()) {
        Append(key, row);
      } else if (!rows_.Equal(found->second, row)) {
        const std::string old = rows_.Text(rows_.at(found->second));
        ClearLocked();
        return FailedPrecondition("HashTable has different value for same key. Key ",
                                  keys.template data<E>()[i], " has ", old,
                                  " and trying to add value ", rows_.Text(row));
      }
    }
    initialized_ = true;
    ++epoch_;
    if (log_ != nullptr) log_->NoteWhole(epoch_);
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<StateDelta> ChangesSince(int64_t since, uint64_t watch) override {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(CheckReached(Named(), epoch_, since));
    StateDelta delta;
    delta.from = since;
    delta.to = epoch_;
    std::optional<std::vector<int64_t>> rows;
    if (log_ != nullptr) rows = log_->RowsSince(since, watch);
    delta.whole = since != epoch_ && !rows.has_value();
    if (since == epoch_) return delta;
    if (delta.whole) {
      ASSIGN_OR_RETURN(delta.parts, PartsLocked());
      return delta;
    }
    delta.rows = *std::move(rows);
    std::erase_if(delta.rows, [size = SizeLocked()](int64_t row) { return row >= size; });
    ASSIGN_OR_RETURN(delta.parts, RowPartsLocked(delta.rows));
    return delta;
  }
  void AddWatch(uint64_t watch) override {
    MutexLock lock(mutex_);
    if (log_ == nullptr) log_ = std::make_unique<ChangeLog>(epoch_);
    log_->AddWatch(watch, epoch_);
  }
  void RemoveWatch(uint64_t watch) override {
    MutexLock lock(mutex_);
    if (log_ != nullptr && !log_->RemoveWatch(watch)) log_.reset();
  }

 private:
  static constexpr bool kIsVector = !std::is_same_v<E, K>;
  int64_t key_width() const { return kIsVector ? key_shape().num_elements() : 1; }
  int64_t NumKeys(const Tensor& keys) const { return keys.num_elements() / key_width(); }
  // An element itself, not a copy of it.
  std::conditional_t<kIsVector, K, const E&> KeyAt(const Tensor& keys, int64_t i) const {
    const E* const first = keys.template data<E>() + i * key_width();
    if constexpr (kIsVector) {
      return K(first, first + key_width());
    } else {
      return *first;
    }
  }
  void WriteKey(const K& key, int64_t i, Tensor& keys) const {
    E* const first = keys.template data<E>() + i * key_width();
    if constexpr (kIsVector) {
      std::copy(key.begin(), key.end(), first);
    } else {
      *first = key;
    }
  }

  int64_t SizeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<int64_t>(keys_.size());
  }
  size_t RowOffset(int64_t i) const { return static_cast<size_t>(i) * rows_.row_bytes(); }

  static absl::StatusOr<Shape> Counted(int64_t count, const Shape& of) {
    Dims dims = of.dims();
    dims.insert(dims.begin(), count);
    return Shape::Make(dims);
  }
  absl::StatusOr<StatePart> KeyPartLocked(absl::Span<const int64_t> rows) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto count = static_cast<int64_t>(rows.size());
    ASSIGN_OR_RETURN(const Shape shape, Counted(count, key_shape()));
    ASSIGN_OR_RETURN(Tensor keys, Tensor::Make(key_type(), shape));
    for (int64_t i = 0; i < count; ++i) WriteKey(keys_[rows[i]], i, keys);
    return StatePart{std::string(TableParts::kKeys), {std::move(keys)}};
  }
  absl::StatusOr<Tensor> CopyRows(const Rows& rows, int64_t count) const {
    ASSIGN_OR_RETURN(const Shape shape, Counted(count, value_shape()));
    ASSIGN_OR_RETURN(Tensor values, Tensor::Make(value_type(), shape));
    if (count > 0) CopyElements(value_type(), rows.at(0), values.raw(), values.num_elements());
    return values;
  }
  absl::StatusOr<std::vector<StatePart>> PartsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<int64_t> all(keys_.size());
    std::iota(all.begin(), all.end(), 0);
    ASSIGN_OR_RETURN(StatePart keys, KeyPartLocked(all));
    ASSIGN_OR_RETURN(Tensor values, CopyRows(rows_, SizeLocked()));
    ASSIGN_OR_RETURN(Tensor removed, CopyRows(deleted_rows_, num_deleted_));
    std::vector<StatePart> parts;
    parts.push_back(std::move(keys));
    parts.push_back({std::string(TableParts::kValues), {std::move(values)}});
    parts.push_back({std::string(TableParts::kRemoved), {std::move(removed)}});
    parts.push_back({std::string(TableParts::kBuckets), {Tensor::Scalar<int64_t>(num_buckets_)}});
    parts.push_back({std::string(TableParts::kInitialized), {Tensor::Scalar<bool>(initialized_)}});
    return parts;
  }
  absl::StatusOr<std::vector<StatePart>> RowPartsLocked(absl::Span<const int64_t> rows) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ASSIGN_OR_RETURN(StatePart keys, KeyPartLocked(rows));
    ASSIGN_OR_RETURN(const Shape shape, Counted(static_cast<int64_t>(rows.size()), value_shape()));
    ASSIGN_OR_RETURN(Tensor values, Tensor::Make(value_type(), shape));
    char* to = values.raw();
    for (const int64_t row : rows) {
      CopyElements(value_type(), rows_.at(row), to, value_shape().num_elements());
      to += rows_.row_bytes();
    }
    std::vector<StatePart> parts;
    parts.push_back(std::move(keys));
    parts.push_back({std::string(TableParts::kValues), {std::move(values)}});
    parts.push_back({std::string(TableParts::kSize), {Tensor::Scalar<int64_t>(SizeLocked())}});
    parts.push_back({std::string(TableParts::kBuckets), {Tensor::Scalar<int64_t>(num_buckets_)}});
    return parts;
  }

  // A tensor of values or keys, of which `part` has as many as its first dimension says.
  absl::StatusOr<Tensor> Column(const StatePart& part, DType dtype, const Shape& of) const {
    ASSIGN_OR_RETURN(Tensor column, OnlyTensor(Named(), part, dtype, of.rank() + 1));
    ASSIGN_OR_RETURN(const Shape wanted, Counted(column.dim(0), of));
    if (column.shape() == wanted) return column;
    return InvalidArgument(Named(), ": the part '", part.name, "' has shape ",
                           column.shape().ToString(), ", not ", wanted.ToString());
  }
  absl::StatusOr<int64_t> Buckets(const StatePart& part) const {
    ASSIGN_OR_RETURN(const Tensor buckets, OnlyTensor(Named(), part, DType::kInt64, 0));
    const int64_t count = buckets.scalar<int64_t>();
    const bool is_power = count > 0 && (count & (count - 1)) == 0;
    if (kind() == Kind::kDense ? is_power : count == 0) return count;
    return InvalidArgument(Named(), " cannot have ", count, " buckets");
  }
  absl::Status CheckPairs(const Tensor& keys, const Tensor& values) const {
    if (keys.dim(0) == values.dim(0)) return absl::OkStatus();
    return InvalidArgument(Named(), ": ", keys.dim(0), " keys and ", values.dim(0),
                           " values do not belong together");
  }

  absl::Status SetWholeLocked(absl::Span<const StatePart> parts, bool strict)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    RETURN_IF_ERROR(CheckParts(Named(), parts,
                               {TableParts::kKeys, TableParts::kValues, TableParts::kRemoved,
                                TableParts::kBuckets, TableParts::kInitialized}));
    ASSIGN_OR_RETURN(const Tensor keys, Column(parts[0], key_type(), key_shape()));
    ASSIGN_OR_RETURN(const Tensor values, Column(parts[1], value_type(), value_shape()));
    RETURN_IF_ERROR(CheckPairs(keys, values));
    ASSIGN_OR_RETURN(const Tensor removed, Column(parts[2], value_type(), value_shape()));
    if (removed.dim(0) > 0 && kind() != Kind::kDense)
      return InvalidArgument(Named(), " keeps no removed entries, of which there are ",
                             removed.dim(0));
    ASSIGN_OR_RETURN(const int64_t buckets, Buckets(parts[3]));
    ASSIGN_OR_RETURN(const Tensor initialized, OnlyTensor(Named(), parts[4], DType::kBool, 0));
    if (strict) {
      RETURN_IF_ERROR(CheckReserved(keys));
      absl::flat_hash_set<K> seen;
      for (int64_t i = 0; i < keys.dim(0); ++i) {
        if (!seen.insert(KeyAt(keys, i)).second)
          return InvalidArgument(Named(), ": entry ", i, " has the key of another");
      }
    }
    ClearLocked();
    for (int64_t i = 0; i < keys.dim(0); ++i) {
      const K& key = KeyAt(keys, i);
      if (std::find(reserved_.begin(), reserved_.end(), key) != reserved_.end()) continue;
      SetLocked(key, values.raw() + RowOffset(i));
    }
    deleted_rows_.Clear();
    num_deleted_ = removed.dim(0);
    for (int64_t i = 0; i < num_deleted_; ++i) deleted_rows_.Append(removed.raw() + RowOffset(i));
    num_buckets_ = buckets;
    initialized_ = initialized.scalar<bool>();
    return absl::OkStatus();
  }

  // Entries beyond the new size are gone, and every new one is among the rows.
  absl::Status SetRowsLocked(const StateDelta& delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    RETURN_IF_ERROR(CheckParts(
        Named(), delta.parts,
        {TableParts::kKeys, TableParts::kValues, TableParts::kSize, TableParts::kBuckets}));
    ASSIGN_OR_RETURN(const Tensor keys, Column(delta.parts[0], key_type(), key_shape()));
    ASSIGN_OR_RETURN(const Tensor values, Column(delta.parts[1], value_type(), value_shape()));
    RETURN_IF_ERROR(CheckPairs(keys, values));
    ASSIGN_OR_RETURN(const Tensor size, OnlyTensor(Named(), delta.parts[2], DType::kInt64, 0));
    ASSIGN_OR_RETURN(const int64_t buckets, Buckets(delta.parts[3]));
    const auto count = static_cast<int64_t>(delta.rows.size());
    const int64_t old_size = SizeLocked();
    const int64_t new_size = size.scalar<int64_t>();
    RETURN_IF_ERROR(CheckRows(Named(), delta.rows, new_size));
    const int64_t added =
        delta.rows.end() - std::lower_bound(delta.rows.begin(), delta.rows.end(), old_size);
    if (keys.dim(0) != count || new_size < 0 || new_size - old_size > added) {
      return InvalidArgument(Named(), " has ", old_size, " entries; a delta of ", count,
                             " rows and ", keys.dim(0), " keys cannot make ", new_size, " of them");
    }
    RETURN_IF_ERROR(CheckReserved(keys));
    const auto stays = [&](int64_t row) {
      return row < new_size && !std::binary_search(delta.rows.begin(), delta.rows.end(), row);
    };
    absl::flat_hash_set<K> seen;
    for (int64_t i = 0; i < count; ++i) {
      const K& key = KeyAt(keys, i);
      const auto found = index_.find(key);
      if (!seen.insert(key).second || (found != index_.end() && stays(found->second)))
        return InvalidArgument(Named(), ": row ", delta.rows[i], " has the key of another");
    }
    for (int64_t row = new_size; row < old_size; ++row) index_.erase(keys_[row]);
    for (const int64_t row : delta.rows) {
      if (row < old_size) index_.erase(keys_[row]);
    }
    for (int64_t last = old_size; last > new_size; --last) rows_.MoveLastTo(last - 1, last);
    keys_.resize(static_cast<size_t>(std::min(old_size, new_size)));
    for (int64_t i = 0; i < count; ++i) {
      const K& key = KeyAt(keys, i);
      if (delta.rows[i] == SizeLocked()) {
        Append(key, values.raw() + RowOffset(i));
        continue;
      }
      keys_[delta.rows[i]] = key;
      index_[key] = delta.rows[i];
      rows_.Set(delta.rows[i], values.raw() + RowOffset(i));
    }
    if (buckets != num_buckets_) {
      deleted_rows_.Clear();
      num_deleted_ = 0;
    }
    num_buckets_ = buckets;
    return absl::OkStatus();
  }

  static absl::Status NotInitialized() { return FailedPrecondition("Table not initialized."); }
  absl::Status Immutable(absl::string_view what) const {
    return Unimplemented("Cannot ", what, " table ", name(), ": it is filled once");
  }
  absl::Status CheckReserved(const Tensor& keys) const {
    if (reserved_.empty()) return absl::OkStatus();
    for (int64_t i = 0; i < NumKeys(keys); ++i) {
      const K& key = KeyAt(keys, i);
      if (key == reserved_[0])
        return InvalidArgument("Using the empty_key as a table key is not allowed");
      if (reserved_.size() > 1 && key == reserved_[1])
        return InvalidArgument("Using the deleted_key as a table key is not allowed");
    }
    return absl::OkStatus();
  }

  // Removed entries leave their buckets when the table grows.
  void GrowLocked(int64_t added) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (kind() != Kind::kDense) return;
    const auto needed = static_cast<double>(keys_.size()) + static_cast<double>(added);
    if (needed <= static_cast<double>(num_buckets_) * max_load_) return;
    while (needed > static_cast<double>(num_buckets_) * max_load_) num_buckets_ *= 2;
    deleted_rows_.Clear();
    num_deleted_ = 0;
  }

  void Append(const K& key, const char* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    index_.emplace(key, static_cast<int64_t>(keys_.size()));
    keys_.push_back(key);
    rows_.Append(row);
  }
  // Returns the row.
  int64_t SetLocked(const K& key, const char* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = index_.find(key);
    if (found != index_.end()) {
      rows_.Set(found->second, row);
      return found->second;
    }
    Append(key, row);
    return SizeLocked() - 1;
  }
  void ClearLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    index_.clear();
    keys_.clear();
    rows_.Clear();
  }

  std::vector<K> reserved_;
  const double max_load_;
  mutable Mutex mutex_;
  int64_t num_buckets_ ABSL_GUARDED_BY(mutex_);  // of a dense table
  int64_t num_deleted_ ABSL_GUARDED_BY(mutex_) = 0;
  Rows deleted_rows_ ABSL_GUARDED_BY(mutex_);
  bool initialized_ ABSL_GUARDED_BY(mutex_) = false;
  // Entry i is keys_[i] with row i; in the order in which they came, as far as none was removed.
  absl::flat_hash_map<K, int64_t> index_ ABSL_GUARDED_BY(mutex_);
  std::vector<K> keys_ ABSL_GUARDED_BY(mutex_);
  Rows rows_ ABSL_GUARDED_BY(mutex_);
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<ChangeLog> log_ ABSL_GUARDED_BY(mutex_);  // while there is a watch
};

}  // namespace

absl::StatusOr<RefPtr<LookupTable>> MakeTable(std::string name, const TableOptions& options) {
  const auto make = [&]<typename E>(E) -> RefPtr<LookupTable> {
    if (KeyShape(options).rank() == 0)
      return RefPtr<LookupTable>(MakeRef<HashTable<E>>(std::move(name), options));
    return RefPtr<LookupTable>(MakeRef<HashTable<E, std::vector<E>>>(std::move(name), options));
  };
  switch (options.key_type) {
    case DType::kString:
      return make(std::string());
    case DType::kInt64:
      return make(int64_t{});
    case DType::kInt32:
      return make(int32_t{});
    default:
      return Unimplemented("tables with keys of type ", DTypeName(options.key_type));
  }
}

}  // namespace muster
