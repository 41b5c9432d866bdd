#include "muster/ops/input/feature_columns.h"

#include <algorithm>

namespace muster {
namespace {

const char* TypeWord(DType dtype) {
  return dtype == DType::kString ? "bytes" : dtype == DType::kFloat ? "float" : "int64";
}

int64_t LongestOf(absl::Span<const FoundFeature> column) {
  int64_t longest = 0;
  for (const FoundFeature& found : column) longest = std::max(longest, found.count);
  return longest;
}

int64_t TotalOf(absl::Span<const FoundFeature> column) {
  int64_t total = 0;
  for (const FoundFeature& found : column) total += found.count;
  return total;
}

void CopyAll(absl::Span<const FoundFeature> column, Tensor& values) {
  ForValueType(values.dtype(), [&]<typename T>(T) {
    T* to = values.data<T>();
    for (const FoundFeature& found : column) {
      if (found.count > 0) CopyValues(found.feature, to);
      to += found.count;
    }
  });
}

// One value per missing element: the fallback's elements, or its only one over and over.
template <typename T>
void CopyFallback(const Tensor& fallback, T* to, int64_t count) {
  if (fallback.num_elements() == count) {
    std::copy_n(fallback.data<T>(), count, to);
  } else {
    std::fill_n(to, count, fallback.num_elements() == 1 ? fallback.scalar<T>() : T());
  }
}

absl::Status CheckType(absl::Span<const DenseColumn> dense, const Tensor& fallback, int d) {
  if (fallback.dtype() == dense[d].type) return absl::OkStatus();
  return InvalidArgument("dense_defaults[", d, "].dtype() == ", DTypeName(fallback.dtype()),
                         " != dense_types_[", d, "] == ", DTypeName(dense[d].type));
}

}  // namespace

absl::StatusOr<std::vector<DenseColumn>> MakeDenseColumns(absl::Span<const DType> types,
                                                          absl::Span<const PartialShape> shapes) {
  if (types.size() != shapes.size()) return InvalidArgument("len(dense_keys) != len(dense_shapes)");
  std::vector<DenseColumn> columns(types.size());
  for (size_t d = 0; d < types.size(); ++d) {
    const PartialShape& shape = shapes[d];
    if (!shape.known_rank()) {
      return InvalidArgument("dense_shapes[", d,
                             "] has unknown rank or unknown inner dimensions: ", shape.ToString());
    }
    columns[d].type = types[d];
    columns[d].shape = shape;
    columns[d].varies = shape.rank() > 0 && shape.dim(0) < 0;
    std::optional<int64_t> stride = 1;
    for (int i = columns[d].varies ? 1 : 0; i < shape.rank(); ++i) {
      if (shape.dim(i) < 0) {
        return InvalidArgument(
            "dense_shapes[", d,
            "] has unknown rank or unknown inner dimensions: ", shape.ToString());
      }
      stride = MultiplyWithoutOverflow(*stride, shape.dim(i));
      if (!stride) return InvalidArgument("dense_shapes[", d, "] is too large: ", shape.ToString());
    }
    if (columns[d].varies && *stride == 0) {
      return InvalidArgument("dense_shapes[", d,
                             "] has steps without elements: ", shape.ToString());
    }
    columns[d].stride = *stride;
  }
  return columns;
}

absl::StatusOr<std::vector<ListColumn>> MakeListColumns(absl::Span<const DType> types) {
  std::vector<ListColumn> columns(types.size());
  for (size_t i = 0; i < types.size(); ++i) columns[i].type = types[i];
  return columns;
}

absl::Status SetFallback(std::vector<DenseColumn>& columns, int d, const Tensor& fallback) {
  DenseColumn& column = columns[d];
  if (column.varies) {
    if (fallback.num_elements() != 1) {
      return InvalidArgument("dense_shape[", d,
                             "] is a variable length shape: ", column.shape.ToString(),
                             ", therefore def_value[", d,
                             "] must contain a single element (the padding element).  But its "
                             "shape is: ",
                             fallback.shape().ToString());
    }
  } else if (fallback.num_elements() > 0 && !column.shape.CompatibleWith(fallback.shape())) {
    return InvalidArgument("def_value[", d, "].shape() == ", fallback.shape().ToString(),
                           " is not compatible with dense_shapes_[", d,
                           "] == ", column.shape.ToString());
  }
  RETURN_IF_ERROR(CheckType(columns, fallback, d));
  column.fallback = fallback;
  return absl::OkStatus();
}

absl::Status FeatureBatch::Find(KernelContext& c, absl::Span<const std::string> serialized,
                                absl::Span<const std::string> names, ReadMessage read) {
  num_examples_ = static_cast<int64_t>(serialized.size());
  const std::optional<int64_t> cells = MultiplyWithoutOverflow(num_examples_, columns_.size());
  if (!cells) return InvalidArgument("too many examples: ", num_examples_);
  found_.assign(*cells, FoundFeature());
  int next = 0;
  for (const DenseColumn& column : columns_.dense) by_key_[column.key].push_back(next++);
  for (const ListColumn& column : columns_.sparse) by_key_[column.key].push_back(next++);
  for (const ListColumn& column : columns_.ragged) by_key_[column.key].push_back(next++);

  Mutex mutex;
  int64_t failed_at = num_examples_;
  absl::Status failure;
  c.ParallelFor(num_examples_, 500.0 * (1 + columns_.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::string name = names.empty() ? "<unknown>" : names[i];
      absl::Status status = FindIn(serialized[i], name, i, read);
      if (status.ok()) continue;
      // The first bad example in the batch is reported, whichever thread fails first.
      MutexLock lock(mutex);
      if (i < failed_at) {
        failed_at = i;
        failure = std::move(status);
      }
      return;
    }
  });
  return failure;
}

absl::Status FeatureBatch::FindIn(absl::string_view serialized, const std::string& name,
                                  int64_t example, ReadMessage read) {
  std::vector<NamedFeature> features;
  if (!read(serialized, features)) {
    return InvalidArgument("Could not parse example input, value: '", serialized, "'");
  }
  for (auto named = features.rbegin(); named != features.rend(); ++named) {
    const auto wanted = by_key_.find(named->name);
    if (wanted == by_key_.end() || named->feature.type == DType::kInvalid) continue;
    const std::string where =
        batched_ ? absl::StrCat("Name: ", name, ", Key: ", named->name, ", Index: ", example, ".  ")
                 : absl::StrCat("Key: ", named->name, ".  ");
    for (const int column : wanted->second) {
      FoundFeature& found = found_[column * num_examples_ + example];
      if (found.present) continue;  // the last of equal names counts
      RETURN_IF_ERROR(Accept(*named, column, where));
      const std::optional<int64_t> count = CountValues(named->feature);
      if (!count) return InvalidArgument(where, "Can't parse serialized Example.");
      if (column < static_cast<int>(columns_.dense.size()))
        RETURN_IF_ERROR(CheckCount(columns_.dense[column], *count, where));
      found = {named->feature, *count, true};
    }
  }
  for (size_t d = 0; d < columns_.dense.size(); ++d) {
    const DenseColumn& column = columns_.dense[d];
    if (found_[d * num_examples_ + example].present || column.varies) continue;
    if (column.fallback.num_elements() > 0 || column.stride == 0) continue;
    return InvalidArgument(batched_ ? absl::StrCat("Name: ", name, ", ") : "",
                           "Feature: ", column.key, " (data type: ", DTypeName(column.type),
                           ") is required but could not be found.");
  }
  return absl::OkStatus();
}

absl::Status FeatureBatch::Accept(const NamedFeature& named, int column,
                                  const std::string& where) const {
  const int num_dense = static_cast<int>(columns_.dense.size());
  const int num_sparse = static_cast<int>(columns_.sparse.size());
  const DType actual = named.feature.type;
  if (column < num_dense) {
    const DType expected = columns_.dense[column].type;
    if (actual == expected) return absl::OkStatus();
    return InvalidArgument(where, "Data types don't match. Data type: ", DTypeName(actual),
                           " but expected type: ", DTypeName(expected));
  }
  const DType expected = column < num_dense + num_sparse
                             ? columns_.sparse[column - num_dense].type
                             : columns_.ragged[column - num_dense - num_sparse].type;
  if (actual == expected) return absl::OkStatus();
  return InvalidArgument(where, "Data types don't match. Expected type: ", DTypeName(expected),
                         ", Actual type: ", DTypeName(actual));
}

absl::Status FeatureBatch::CheckCount(const DenseColumn& column, int64_t count,
                                      const std::string& where) const {
  if (column.varies) {
    if (count % column.stride == 0) return absl::OkStatus();
    return InvalidArgument(where, "Number of ", TypeWord(column.type),
                           " values is not a multiple of stride length. Saw ", count,
                           " values but output shape is: ", column.shape.ToString());
  }
  if (count == column.stride) return absl::OkStatus();
  if (!batched_) {
    return InvalidArgument(where, "Can't parse serialized Example: Some ", TypeWord(column.type),
                           "_list slice was not parsed.");
  }
  return InvalidArgument(where, "Number of ", TypeWord(column.type),
                         " values != expected.  Values size: ", count,
                         " but output shape: ", column.shape.ToString());
}

absl::Status FeatureBatch::EmitDense(KernelContext& c, int d, int output) const {
  const DenseColumn& column = columns_.dense[d];
  const absl::Span<const FoundFeature> found = Column(d);
  const int64_t row = column.varies ? LongestOf(found) : column.stride;
  Dims dims = column.shape.dims();
  if (column.varies) dims[0] = row / column.stride;
  if (batched_) dims.insert(dims.begin(), num_examples_);
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(output, shape));
  ForValueType(column.type, [&]<typename T>(T) {
    T* const data = values->data<T>();
    c.ParallelFor(num_examples_, 100.0 + static_cast<double>(row), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* const to = data + i * row;
        if (found[i].present) {
          CopyValues(found[i].feature, to);
          CopyFallback(column.fallback, to + found[i].count, row - found[i].count);
        } else {
          CopyFallback(column.fallback, to, row);
        }
      }
    });
  });
  return absl::OkStatus();
}

absl::Status FeatureBatch::EmitSparse(KernelContext& c, int i, int indices, int values,
                                      int shape) const {
  const absl::Span<const FoundFeature> found = Column(sparse_column(i));
  const int64_t total = TotalOf(found);
  ASSIGN_OR_RETURN(Tensor* const index,
                   c.AllocateOutput(indices, Shape({total, batched_ ? 2 : 1})));
  ASSIGN_OR_RETURN(Tensor* const value, c.AllocateOutput(values, Shape({total})));
  int64_t* to = index->data<int64_t>();
  for (int64_t example = 0; example < num_examples_; ++example) {
    for (int64_t k = 0; k < found[example].count; ++k) {
      if (batched_) *to++ = example;
      *to++ = k;
    }
  }
  CopyAll(found, *value);
  const int64_t longest = LongestOf(found);
  c.SetOutput(shape, batched_ ? Tensor::Vector<int64_t>({num_examples_, longest})
                              : Tensor::Vector<int64_t>({longest}));
  return absl::OkStatus();
}

absl::Status FeatureBatch::EmitRagged(KernelContext& c, int i, int values, int splits) const {
  const absl::Span<const FoundFeature> found = Column(ragged_column(i));
  ASSIGN_OR_RETURN(Tensor* const value, c.AllocateOutput(values, Shape({TotalOf(found)})));
  CopyAll(found, *value);
  ASSIGN_OR_RETURN(Tensor* const split,
                   c.AllocateOutput(splits, Shape({batched_ ? num_examples_ + 1 : 0})));
  int64_t at = 0;
  for (int64_t k = 0; k < split->num_elements(); ++k) {
    if (split->dtype() == DType::kInt64) {
      split->data<int64_t>()[k] = at;
    } else {
      split->data<int32_t>()[k] = static_cast<int32_t>(at);
    }
    if (k < num_examples_) at += found[k].count;
  }
  return absl::OkStatus();
}

}  // namespace muster
