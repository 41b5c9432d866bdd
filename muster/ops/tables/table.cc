#include "muster/ops/tables/table.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"

#include "muster/ops/array/strided_copy.h"
#include "muster/ops/op.h"

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

Shape KeyShape(const TableOptions& options) {
  return options.empty_key.valid() ? options.empty_key.shape() : Shape();
}

// Keys are elements (K is E) or vectors of them.
template <typename E, typename K = E>
class HashTable : public LookupTable {
 public:
  HashTable(std::string name, const TableOptions& options)
      : LookupTable(std::move(name), options.kind, options.key_type, KeyShape(options),
                    options.value_type, options.value_shape),
        max_load_(options.max_load),
        num_buckets_(options.num_buckets),
        deleted_rows_(options.value_type, options.value_shape.num_elements()),
        rows_(options.value_type, options.value_shape.num_elements()) {
    for (const Tensor* key : {&options.empty_key, &options.deleted_key}) {
      if (key->valid()) reserved_.push_back(KeyAt(*key, 0));
    }
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
    GrowLocked(NumKeys(keys));
    InsertLocked(keys, values);
    return absl::OkStatus();
  }

  absl::Status Remove(const Tensor& keys) override {
    MutexLock lock(mutex_);
    if (kind() == Kind::kStatic) return Immutable("remove from");
    RETURN_IF_ERROR(CheckReserved(keys));
    for (int64_t i = 0; i < NumKeys(keys); ++i) {
      const auto found = index_.find(KeyAt(keys, i));
      if (found == index_.end()) continue;
      const int64_t hole = found->second;
      if (kind() == Kind::kDense) {
        deleted_rows_.Append(rows_.at(hole));
        ++num_deleted_;
      }
      index_.erase(found);
      rows_.MoveLastTo(hole, static_cast<int64_t>(keys_.size()));
      if (hole != static_cast<int64_t>(keys_.size()) - 1) {
        keys_[hole] = std::move(keys_.back());
        index_[keys_[hole]] = hole;
      }
      keys_.pop_back();
    }
    return absl::OkStatus();
  }

  absl::Status Import(const Tensor& keys, const Tensor& values) override {
    if (kind() == Kind::kStatic) return Initialize(keys, values);
    MutexLock lock(mutex_);
    if (kind() == Kind::kDense) return ImportBucketsLocked(keys, values);
    ClearLocked();
    InsertLocked(keys, values);
    return absl::OkStatus();
  }

  absl::StatusOr<Entries> Export() const override {
    MutexLock lock(mutex_);
    if (kind() == Kind::kStatic && !initialized_) return NotInitialized();
    const auto used = static_cast<int64_t>(keys_.size());
    // A dense table shows its buckets: entries, removed ones, and empty ones.
    const int64_t count =
        kind() == Kind::kDense ? std::max(num_buckets_, used + num_deleted_) : used;
    Dims dims = value_shape().dims();
    Dims key_dims = key_shape().dims();
    if (kind() == Kind::kDense) {
      // Its buckets are rows, of one element where keys or values are scalars.
      dims = {value_shape().num_elements()};
      key_dims = {key_width()};
    }
    dims.insert(dims.begin(), count);
    key_dims.insert(key_dims.begin(), count);
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(const Shape keys_shape, Shape::Make(key_dims));
    Entries entries;
    ASSIGN_OR_RETURN(entries.keys, Tensor::Make(key_type(), keys_shape));
    ASSIGN_OR_RETURN(entries.values, Tensor::Make(value_type(), shape));
    for (int64_t i = 0; i < used; ++i) WriteKey(keys_[i], i, entries.keys);
    const int64_t width = value_shape().num_elements();
    const auto bytes = width * static_cast<int64_t>(DTypeSize(value_type()));
    if (used > 0) CopyElements(value_type(), rows_.at(0), entries.values.raw(), used * width);
    for (int64_t i = used; i < count; ++i) {
      const bool deleted = i - used < num_deleted_;
      WriteKey(reserved_[deleted && reserved_.size() > 1 ? 1 : 0], i, entries.keys);
      char* const to = entries.values.raw() + i * bytes;
      if (deleted) {
        CopyElements(value_type(), deleted_rows_.at(i - used), to, width);
      } else {
        ZeroElements(value_type(), to, width);
      }
    }
    return entries;
  }

  int64_t size() const override {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(keys_.size());
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
    return absl::OkStatus();
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

  // What was removed leaves its bucket when the table grows.
  void GrowLocked(int64_t added) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (kind() != Kind::kDense) return;
    const auto needed = static_cast<double>(keys_.size()) + static_cast<double>(added);
    if (needed <= static_cast<double>(num_buckets_) * max_load_) return;
    while (needed > static_cast<double>(num_buckets_) * max_load_) num_buckets_ *= 2;
    deleted_rows_.Clear();
    num_deleted_ = 0;
  }

  absl::Status ImportBucketsLocked(const Tensor& keys, const Tensor& values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t buckets = NumKeys(keys);
    if (buckets < 4) return InvalidArgument("Number of buckets must be at least 4, got: ", buckets);
    if ((buckets & (buckets - 1)) != 0) {
      return InvalidArgument("Number of buckets must be a power of 2, got: ", buckets);
    }
    ClearLocked();
    deleted_rows_.Clear();
    num_deleted_ = 0;
    num_buckets_ = buckets;
    for (int64_t i = 0; i < buckets; ++i) {
      const K& key = KeyAt(keys, i);
      if (std::find(reserved_.begin(), reserved_.end(), key) != reserved_.end()) continue;
      SetLocked(key, values.raw() + static_cast<size_t>(i) * rows_.row_bytes());
    }
    return absl::OkStatus();
  }

  void Append(const K& key, const char* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    index_.emplace(key, static_cast<int64_t>(keys_.size()));
    keys_.push_back(key);
    rows_.Append(row);
  }
  void InsertLocked(const Tensor& keys, const Tensor& values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (int64_t i = 0; i < NumKeys(keys); ++i)
      SetLocked(KeyAt(keys, i), values.raw() + static_cast<size_t>(i) * rows_.row_bytes());
  }
  void SetLocked(const K& key, const char* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = index_.find(key);
    if (found == index_.end()) {
      Append(key, row);
    } else {
      rows_.Set(found->second, row);
    }
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
