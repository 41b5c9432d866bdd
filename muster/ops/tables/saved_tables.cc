// Tables in the form in which checkpoints have them.
#include <algorithm>
#include <utility>

#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/op.h"
#include "muster/ops/tables/table.h"

namespace muster {

absl::StatusOr<LookupTable::Entries> ExportTable(const LookupTable& table) {
  ASSIGN_OR_RETURN(const StateSnapshot snapshot, table.TakeSnapshot());
  const std::vector<StatePart>& parts = snapshot.parts;
  LookupTable::Entries entries{parts[0].tensors[0], parts[1].tensors[0]};
  if (table.kind() == LookupTable::Kind::kStatic && !parts[4].tensors[0].scalar<bool>())
    return FailedPrecondition("Table not initialized.");
  if (table.kind() != LookupTable::Kind::kDense) return entries;
  const Tensor& removed = parts[2].tensors[0];
  const int64_t used = entries.keys.dim(0);
  const int64_t count = std::max(parts[3].tensors[0].scalar<int64_t>(), used + removed.dim(0));
  // Buckets are rows, of one element where keys or values are scalars.
  const int64_t key_width = table.key_shape().num_elements();
  const int64_t width = table.value_shape().num_elements();
  ASSIGN_OR_RETURN(const Shape keys_shape, Shape::Make({count, key_width}));
  ASSIGN_OR_RETURN(const Shape values_shape, Shape::Make({count, width}));
  ASSIGN_OR_RETURN(Tensor keys, Tensor::Make(table.key_type(), keys_shape));
  ASSIGN_OR_RETURN(Tensor values, Tensor::Make(table.value_type(), values_shape));
  const auto key_bytes = key_width * static_cast<int64_t>(DTypeSize(table.key_type()));
  const auto bytes = width * static_cast<int64_t>(DTypeSize(table.value_type()));
  CopyElements(table.key_type(), entries.keys.raw(), keys.raw(), used * key_width);
  CopyElements(table.value_type(), entries.values.raw(), values.raw(), used * width);
  CopyElements(table.value_type(), removed.raw(), values.raw() + used * bytes,
               removed.num_elements());
  const int64_t filled = used + removed.dim(0);
  ZeroElements(table.value_type(), values.raw() + filled * bytes, (count - filled) * width);
  for (int64_t i = used; i < count; ++i) {
    const Tensor& reserved =
        i < filled ? table.reserved_keys().back() : table.reserved_keys().front();
    CopyElements(table.key_type(), reserved.raw(), keys.raw() + i * key_bytes, key_width);
  }
  return LookupTable::Entries{std::move(keys), std::move(values)};
}

absl::Status ImportTable(LookupTable& table, const Tensor& keys, const Tensor& values) {
  if (table.kind() == LookupTable::Kind::kStatic) return table.Initialize(keys, values);
  const int64_t count = keys.num_elements() / table.key_shape().num_elements();
  int64_t buckets = 0;
  if (table.kind() == LookupTable::Kind::kDense) {
    buckets = count;
    if (buckets < 4) return InvalidArgument("Number of buckets must be at least 4, got: ", buckets);
    if ((buckets & (buckets - 1)) != 0)
      return InvalidArgument("Number of buckets must be a power of 2, got: ", buckets);
  }
  const auto rows_of = [](int64_t size, const Shape& of) {
    Dims dims = of.dims();
    dims.insert(dims.begin(), size);
    return Shape::Make(dims);
  };
  ASSIGN_OR_RETURN(const Shape keys_shape, rows_of(count, table.key_shape()));
  ASSIGN_OR_RETURN(const Shape values_shape, rows_of(count, table.value_shape()));
  ASSIGN_OR_RETURN(const Shape none, rows_of(0, table.value_shape()));
  StateSnapshot snapshot;
  snapshot.parts = {{std::string(TableParts::kKeys), {keys.Reshaped(keys_shape)}},
                    {std::string(TableParts::kValues), {values.Reshaped(values_shape)}},
                    {std::string(TableParts::kRemoved), {Tensor(table.value_type(), none)}},
                    {std::string(TableParts::kBuckets), {Tensor::Scalar<int64_t>(buckets)}},
                    {std::string(TableParts::kInitialized), {Tensor::Scalar<bool>(false)}}};
  return table.RestoreSnapshot(snapshot);
}

}  // namespace muster
