// Crossed features: SparseCross, SparseCrossV2 and RaggedCross. Every row gets one value for
// each way to choose one feature from every column; the last column changes fastest.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/ops/sparse/sparse_input.h"
#include "muster/ops/strings/hash.h"

namespace muster {
namespace {

// Two fingerprints as one.
uint64_t Combine(uint64_t a, uint64_t b) {
  constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  const auto mix = [](uint64_t value) { return value ^ (value >> 47); };
  uint64_t result = a ^ kMultiplier;
  result ^= mix(b * kMultiplier) * kMultiplier;
  result *= kMultiplier;
  result = mix(result) * kMultiplier;
  return mix(result);
}

// One input: where the features of each row begin in `values`.
struct Column {
  const Tensor* values = nullptr;
  std::vector<int64_t> begin;

  int64_t count(int64_t row) const { return begin[row + 1] - begin[row]; }
  std::string Text(int64_t row, int64_t i) const {
    const int64_t at = begin[row] + i;
    if (values->dtype() == DType::kString) return values->values<std::string>()[at];
    return absl::StrCat(values->values<int64_t>()[at]);
  }
};

struct Columns {
  int64_t rows = 0;
  std::vector<Column> columns;
};

absl::StatusOr<Column> SparseColumn(const Tensor& indices, const Tensor& values,
                                    const Tensor& shape, int64_t i) {
  if (indices.rank() != 2) {
    return InvalidArgument("Input indices should be a matrix but received shape ",
                           indices.shape().ToString(), " at position ", i);
  }
  if (indices.dim(1) != 2) {
    return InvalidArgument("Expected D2 of index to be 2 got ", indices.dim(1), " at position ", i);
  }
  if (values.rank() != 1) {
    return InvalidArgument("Input values should be a vector but received shape ",
                           values.shape().ToString(), " at position ", i);
  }
  if (shape.rank() != 1) {
    return InvalidArgument("Input shapes should be a vector but received shape ",
                           shape.shape().ToString(), " at position ", i);
  }
  if (shape.num_elements() != 2)
    return InvalidArgument("shape should imply a 2D tensor, but got ", shape.num_elements());
  if (indices.dim(0) != values.num_elements()) {
    return InvalidArgument("Expected size of values to be ", indices.dim(0), " got ",
                           values.num_elements(), " at position ", i);
  }
  const int64_t rows = shape.values<int64_t>()[0];
  if (rows < 0) return InvalidArgument("Batch size must not be negative: ", rows);
  RETURN_IF_ERROR(Tensor::Make(DType::kInt64, Shape({rows})).status());  // there is memory
  Column column{&values, std::vector<int64_t>(static_cast<size_t>(rows) + 1, 0)};
  int64_t previous = 0;
  for (int64_t k = 0; k < indices.dim(0); ++k) {
    const int64_t row = indices.values<int64_t>()[k * 2];
    if (row < 0 || row >= rows) {
      return InvalidArgument("Got invalid value ", row, " for batch index; expected 0 <= index < ",
                             rows);
    }
    if (row < previous) return InvalidArgument("The indices of input ", i, " are not sorted");
    previous = row;
    ++column.begin[row + 1];
  }
  for (int64_t row = 0; row < rows; ++row) column.begin[row + 1] += column.begin[row];
  return column;
}

absl::StatusOr<Columns> ReadColumns(const KernelContext& c) {
  ASSIGN_OR_RETURN(const int64_t count, c.node().Attr<int64_t>("N"));
  ASSIGN_OR_RETURN(const std::vector<DType> dense,
                   c.node().Attr<std::vector<DType>>("dense_types"));
  ASSIGN_OR_RETURN(const std::vector<DType> sparse,
                   c.node().Attr<std::vector<DType>>("sparse_types"));
  if (static_cast<int64_t>(sparse.size()) != count)
    return InvalidArgument("Expected ", count, " sparse_types, got ", sparse.size());
  Columns result;
  result.rows = -1;
  const auto agree = [&](int64_t rows, int64_t i) -> absl::Status {
    if (result.rows < 0) result.rows = rows;
    if (rows == result.rows) return absl::OkStatus();
    return InvalidArgument("Expected batch size ", result.rows, " got ", rows, " at position ", i);
  };
  for (int i = 0; i < count; ++i) {
    const Tensor& shape = c.input(static_cast<int>(2 * count) + i);
    ASSIGN_OR_RETURN(Column column,
                     SparseColumn(c.input(i), c.input(static_cast<int>(count) + i), shape, i));
    RETURN_IF_ERROR(agree(shape.values<int64_t>()[0], i));
    result.columns.push_back(std::move(column));
  }
  for (int i = 0; i < static_cast<int>(dense.size()); ++i) {
    const Tensor& values = c.input(static_cast<int>(3 * count) + i);
    if (values.rank() != 2) {
      return InvalidArgument("Dense inputs should be a matrix but received shape ",
                             values.shape().ToString(), " at position ", i);
    }
    RETURN_IF_ERROR(agree(values.dim(0), i));
    Column column{&values, {}};
    for (int64_t row = 0; row <= values.dim(0); ++row) column.begin.push_back(row * values.dim(1));
    result.columns.push_back(std::move(column));
  }
  if (result.columns.empty()) return InvalidArgument("There is nothing to cross");
  return result;
}

// make(row, chosen features) gives the value of one crossing.
template <typename T, typename Make>
absl::Status Cross(KernelContext& c, const Columns& input, Make make) {
  int64_t total = 0, longest = 0;
  for (int64_t row = 0; row < input.rows; ++row) {
    int64_t product = 1;
    for (const Column& column : input.columns) {
      const std::optional<int64_t> more = MultiplyWithoutOverflow(product, column.count(row));
      if (!more) return InvalidArgument("Row ", row, " has too many crossings");
      product = *more;
    }
    longest = std::max(longest, product);
    if (product > std::numeric_limits<int64_t>::max() - total)
      return InvalidArgument("There are too many crossings");
    total += product;
  }
  ASSIGN_OR_RETURN(const Shape index_shape, Shape::Make({total, 2}));
  ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(0, index_shape));
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, Shape({total})));
  c.SetOutput(2, Tensor::Vector<int64_t>({input.rows, longest}));
  int64_t at = 0;
  for (int64_t row = 0; row < input.rows; ++row) {
    const bool crosses = std::all_of(input.columns.begin(), input.columns.end(),
                                     [row](const Column& column) { return column.count(row) > 0; });
    if (!crosses) continue;
    std::vector<int64_t> chosen(input.columns.size(), 0);
    for (int64_t k = 0;; ++k, ++at) {
      indices->data<int64_t>()[2 * at] = row;
      indices->data<int64_t>()[2 * at + 1] = k;
      values->data<T>()[at] = make(row, chosen);
      auto column = static_cast<int64_t>(chosen.size()) - 1;
      while (column >= 0 && ++chosen[column] == input.columns[column].count(row))
        chosen[column--] = 0;
      if (column < 0) {
        ++at;
        break;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CrossTexts(KernelContext& c, const Columns& input, absl::string_view separator) {
  return Cross<std::string>(c, input, [&](int64_t row, const std::vector<int64_t>& chosen) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < chosen.size(); ++i)
      parts.push_back(input.columns[i].Text(row, chosen[i]));
    return absl::StrJoin(parts, separator);
  });
}

uint64_t PlainFingerprint(const Column& column, int64_t row, int64_t i) {
  const int64_t at = column.begin[row] + i;
  if (column.values->dtype() == DType::kString)
    return Fingerprint64(column.values->values<std::string>()[at]);
  return static_cast<uint64_t>(column.values->values<int64_t>()[at]);
}

absl::Status CrossHashes(KernelContext& c, const Columns& input, uint64_t key, int64_t buckets) {
  const uint64_t range =
      buckets > 0 ? static_cast<uint64_t>(buckets) : uint64_t{std::numeric_limits<int64_t>::max()};
  return Cross<int64_t>(c, input, [&](int64_t row, const std::vector<int64_t>& chosen) {
    uint64_t hash = key;
    for (size_t i = 0; i < chosen.size(); ++i)
      hash = Combine(hash, PlainFingerprint(input.columns[i], row, chosen[i]));
    return static_cast<int64_t>(hash % range);
  });
}

class CrossKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(buckets_, setup.Attr<int64_t>("num_buckets"));
    ASSIGN_OR_RETURN(key_, setup.Attr<int64_t>("hash_key"));
    ASSIGN_OR_RETURN(internal_type_, setup.Attr<DType>("internal_type"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Columns input, ReadColumns(c));
    for (const Column& column : input.columns) {
      if (internal_type_ != DType::kString || column.values->dtype() == DType::kString) continue;
      return InvalidArgument("Input values should be of internal type ",
                             static_cast<int>(internal_type_), " but received ",
                             static_cast<int>(column.values->dtype()));
    }
    if (c.output_type(1) == DType::kInt64)
      return CrossHashes(c, input, static_cast<uint64_t>(key_), buckets_);
    return CrossTexts(c, input, "_X_");
  }

 private:
  int64_t buckets_ = 0;
  int64_t key_ = 0;
  DType internal_type_ = DType::kInt64;
};

absl::Status CrossV2(KernelContext& c) {
  const Tensor& separator = c.input(c.num_inputs() - 1);
  if (separator.rank() != 0) {
    return InvalidArgument("Input separator should be a scalar. Received: ",
                           separator.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Columns input, ReadColumns(c));
  return CrossTexts(c, input, separator.scalar<std::string>());
}

// --- Ragged columns ----------------------------------------------------------------------------

absl::StatusOr<Column> RaggedColumn(const Tensor& values, const Tensor& splits) {
  if (values.rank() != 1) {
    return InvalidArgument("tf.ragged.cross only supports inputs with rank=2; ragged_values had ",
                           values.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims ends, IntegerVector(splits, "ragged_row_splits"));
  if (ends.empty() || ends[0] != 0) return InvalidArgument("Invalid row_splits: must begin with 0");
  for (size_t i = 1; i < ends.size(); ++i) {
    if (ends[i] < ends[i - 1]) return InvalidArgument("Invalid row_splits: must not decrease");
  }
  if (ends.back() != values.num_elements()) {
    return InvalidArgument("Invalid row_splits: must end with the number of values, ",
                           values.num_elements(), ", not ", ends.back());
  }
  return Column{&values, std::vector<int64_t>(ends.begin(), ends.end())};
}

// The columns in the order of the attribute input_order: R(agged), S(parse), D(ense).
absl::StatusOr<Columns> ReadMixedColumns(const KernelContext& c) {
  ASSIGN_OR_RETURN(const std::string order, c.node().Attr<std::string>("input_order"));
  ASSIGN_OR_RETURN(const int64_t sparse, c.node().Attr<int64_t>("Nsparse"));
  ASSIGN_OR_RETURN(const std::vector<DType> ragged_types,
                   c.node().Attr<std::vector<DType>>("ragged_values_types"));
  ASSIGN_OR_RETURN(const std::vector<DType> dense_types,
                   c.node().Attr<std::vector<DType>>("dense_types"));
  const auto num_ragged = static_cast<int>(ragged_types.size());
  const auto num_sparse = static_cast<int>(sparse);
  const auto num_dense = static_cast<int>(dense_types.size());
  if (c.num_inputs() != 2 * num_ragged + 3 * num_sparse + num_dense)
    return InvalidArgument("The types of the columns do not fit their number");
  const int first_sparse = 2 * num_ragged;
  const int first_dense = first_sparse + 3 * num_sparse;
  Columns result;
  result.rows = -1;
  int ragged_at = 0, sparse_at = 0, dense_at = 0;
  for (const char kind : order) {
    Column column;
    if (kind == 'R' && ragged_at < num_ragged) {
      ASSIGN_OR_RETURN(column, RaggedColumn(c.input(ragged_at), c.input(num_ragged + ragged_at)));
      ++ragged_at;
    } else if (kind == 'S' && sparse_at < num_sparse) {
      const int at = first_sparse + sparse_at;
      ASSIGN_OR_RETURN(column, SparseColumn(c.input(at), c.input(at + num_sparse),
                                            c.input(at + 2 * num_sparse), sparse_at));
      ++sparse_at;
    } else if (kind == 'D' && dense_at < num_dense) {
      const Tensor& values = c.input(first_dense + dense_at++);
      if (values.rank() != 2) {
        return InvalidArgument("tf.ragged.cross only supports inputs with rank=2; dense input had ",
                               values.shape().ToString());
      }
      column.values = &values;
      for (int64_t row = 0; row <= values.dim(0); ++row)
        column.begin.push_back(row * values.dim(1));
    } else {
      return InvalidArgument("input_order '", order, "' does not fit the columns");
    }
    const int64_t rows = static_cast<int64_t>(column.begin.size()) - 1;
    if (result.rows < 0) result.rows = rows;
    if (rows != result.rows)
      return InvalidArgument("inputs must all have the same batch dimension size.");
    result.columns.push_back(std::move(column));
  }
  if (result.columns.empty()) return InvalidArgument("There is nothing to cross");
  return result;
}

class RaggedCrossKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(buckets_, setup.Attr<int64_t>("num_buckets"));
    ASSIGN_OR_RETURN(key_, setup.Attr<int64_t>("hash_key"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Columns input, ReadMixedColumns(c));
    std::vector<int64_t> ends = {0};
    for (int64_t row = 0; row < input.rows; ++row) {
      int64_t product = 1;
      for (const Column& column : input.columns) {
        if (__builtin_mul_overflow(product, column.count(row), &product))
          return InvalidArgument("Row ", row, " has too many crossings");
      }
      int64_t end = 0;
      if (__builtin_add_overflow(ends.back(), product, &end) ||
          (c.output_type(1) == DType::kInt32 && end > std::numeric_limits<int32_t>::max()))
        return InvalidArgument("There are too many crossings");
      ends.push_back(end);
    }
    ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(0, Shape({ends.back()})));
    ASSIGN_OR_RETURN(Tensor* const splits,
                     c.AllocateOutput(1, Shape({static_cast<int64_t>(ends.size())})));
    for (size_t i = 0; i < ends.size(); ++i) {
      if (splits->dtype() == DType::kInt64) {
        splits->data<int64_t>()[i] = ends[i];
      } else {
        splits->data<int32_t>()[i] = static_cast<int32_t>(ends[i]);
      }
    }
    for (int64_t row = 0; row < input.rows; ++row) {
      std::vector<int64_t> chosen(input.columns.size(), 0);
      for (int64_t at = ends[row]; at < ends[row + 1]; ++at) {
        Put(*values, at, input, row, chosen);
        auto column = static_cast<int64_t>(chosen.size()) - 1;
        while (column >= 0 && ++chosen[column] == input.columns[column].count(row))
          chosen[column--] = 0;
      }
    }
    return absl::OkStatus();
  }

 private:
  void Put(Tensor& values, int64_t at, const Columns& input, int64_t row,
           const std::vector<int64_t>& chosen) const {
    if (values.dtype() == DType::kString) {
      std::vector<std::string> parts;
      for (size_t i = 0; i < chosen.size(); ++i)
        parts.push_back(input.columns[i].Text(row, chosen[i]));
      values.data<std::string>()[at] = absl::StrJoin(parts, "_X_");
      return;
    }
    auto hash = static_cast<uint64_t>(key_);
    for (size_t i = 0; i < chosen.size(); ++i)
      hash = Combine(hash, PlainFingerprint(input.columns[i], row, chosen[i]));
    const uint64_t range = buckets_ > 0 ? static_cast<uint64_t>(buckets_)
                                        : uint64_t{std::numeric_limits<int64_t>::max()};
    values.data<int64_t>()[at] = static_cast<int64_t>(hash % range);
  }

  int64_t buckets_ = 0;
  int64_t key_ = 0;
};

absl::Status RaggedCrossShapes(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Vector(-1));
  c.SetOutput(1, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status CrossShapes(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Matrix(-1, 2));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(2));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(SparseCross) {
  op.Attr("N: int >= 0")
      .Attr("hashed_output: bool")
      .Attr("num_buckets: int >= 0")
      .Attr("hash_key: int")
      .Attr("sparse_types: list({int64, string}) >= 0")
      .Attr("dense_types: list({int64, string}) >= 0")
      .Attr("out_type: {int64, string}")
      .Attr("internal_type: {int64, string}")
      .Input("indices: N * int64")
      .Input("values: sparse_types")
      .Input("shapes: N * int64")
      .Input("dense_inputs: dense_types")
      .Output("output_indices: int64")
      .Output("output_values: out_type")
      .Output("output_shape: int64")
      .Doc("Crosses the features of several columns, joined as texts or hashed.")
      .Shape(CrossShapes)
      .NoGradient("integers and strings")
      .Cpu(New<CrossKernel>());
}

DEFINE_OP(SparseCrossV2) {
  op.Attr("N: int >= 0")
      .Attr("sparse_types: list({int64, string}) >= 0")
      .Attr("dense_types: list({int64, string}) >= 0")
      .Input("indices: N * int64")
      .Input("values: sparse_types")
      .Input("shapes: N * int64")
      .Input("dense_inputs: dense_types")
      .Input("sep: string")
      .Output("output_indices: int64")
      .Output("output_values: string")
      .Output("output_shape: int64")
      .Doc("Crosses the features of several columns, joined by a separator.")
      .Shape(CrossShapes)
      .NoGradient("strings")
      .Cpu(CrossV2);
}

DEFINE_OP(RaggedCross) {
  op.Attr("Nsparse: int >= 0")
      .Attr("input_order: string")
      .Attr("hashed_output: bool")
      .Attr("num_buckets: int >= 0")
      .Attr("hash_key: int")
      .Attr("ragged_values_types: list({int64, string}) >= 0")
      .Attr("ragged_splits_types: list({int32, int64}) >= 0")
      .Attr("sparse_values_types: list({int64, string}) >= 0")
      .Attr("dense_types: list({int64, string}) >= 0")
      .Attr("out_values_type: {int64, string}")
      .Attr("out_row_splits_type: {int32, int64}")
      .Input("ragged_values: ragged_values_types")
      .Input("ragged_row_splits: ragged_splits_types")
      .Input("sparse_indices: Nsparse * int64")
      .Input("sparse_values: sparse_values_types")
      .Input("sparse_shape: Nsparse * int64")
      .Input("dense_inputs: dense_types")
      .Output("output_values: out_values_type")
      .Output("output_row_splits: out_row_splits_type")
      .Doc("Crosses the features of ragged, sparse and dense columns to the rows of a ragged one.")
      .Shape(RaggedCrossShapes)
      .NoGradient("integers and strings")
      .Cpu(New<RaggedCrossKernel>());
}

}  // namespace muster
