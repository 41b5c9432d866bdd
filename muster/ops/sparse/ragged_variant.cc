// Ragged tensors as values of variant tensors, whole or row by row: RaggedTensorToVariant,
// RaggedTensorFromVariant, RaggedTensorToVariantGradient.
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/op.h"
#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 26;

struct RaggedValue {
  std::vector<Tensor> splits;  // outermost first
  Tensor values;
};

std::optional<VariantParts> Encode(const Variant& value) {
  const auto* const ragged = value.get<RaggedValue>();
  if (ragged == nullptr) return std::nullopt;
  VariantParts parts;
  parts.tensors = ragged->splits;
  parts.tensors.push_back(ragged->values);
  return parts;
}

absl::StatusOr<Variant> Decode(VariantParts parts) {
  if (parts.tensors.empty()) return InvalidArgument("A RaggedTensorVariant without values");
  auto ragged = std::make_shared<RaggedValue>();
  ragged->values = std::move(parts.tensors.back());
  parts.tensors.pop_back();
  ragged->splits = std::move(parts.tensors);
  return Variant(std::shared_ptr<const RaggedValue>(std::move(ragged)));
}

[[maybe_unused]] const bool registered =
    RegisterVariantCodec({"RaggedTensorVariant", &Encode, &Decode});

Variant Hold(RaggedValue value) {
  return Variant(std::make_shared<const RaggedValue>(std::move(value)));
}

absl::StatusOr<Tensor> MakeSplits(DType dtype, const Dims& numbers) {
  ASSIGN_OR_RETURN(Tensor tensor,
                   Tensor::Make(dtype, Shape({static_cast<int64_t>(numbers.size())})));
  if (dtype == DType::kInt64) {
    std::copy(numbers.begin(), numbers.end(), tensor.data<int64_t>());
  } else {
    for (size_t i = 0; i < numbers.size(); ++i) {
      tensor.data<int32_t>()[i] = static_cast<int32_t>(numbers[i]);
    }
  }
  return tensor;
}

// Rows [begin, end) with memory of their own.
absl::StatusOr<Tensor> CopyRows(const Tensor& tensor, int64_t begin, int64_t end) {
  Dims dims = tensor.shape().dims();
  dims[0] = end - begin;
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor rows, Tensor::Make(tensor.dtype(), shape));
  const int64_t width = tensor.shape().ElementsIn(1, tensor.rank());
  const auto bytes = width * static_cast<int64_t>(DTypeSize(tensor.dtype()));
  if (rows.num_elements() > 0) {
    CopyElements(tensor.dtype(), tensor.raw() + begin * bytes, rows.raw(), rows.num_elements());
  }
  return rows;
}

absl::Status CheckSplits(const std::vector<Dims>& splits, int64_t num_values) {
  for (size_t level = 0; level < splits.size(); ++level) {
    const Dims& ends = splits[level];
    if (ends.empty() || ends[0] != 0) return InvalidArgument("Ragged splits must begin with 0");
    for (size_t i = 1; i < ends.size(); ++i) {
      if (ends[i] < ends[i - 1]) return InvalidArgument("Ragged splits must be sorted");
    }
    const int64_t size =
        level + 1 < splits.size() ? static_cast<int64_t>(splits[level + 1].size()) - 1 : num_values;
    if (ends.back() > size) return InvalidArgument("Ragged splits must not point past values");
  }
  return absl::OkStatus();
}

absl::StatusOr<RaggedValue> RowOf(const std::vector<Dims>& splits, DType split_type,
                                  const Tensor& values, int64_t row) {
  RaggedValue value;
  int64_t begin = row;
  int64_t end = row + 1;
  for (size_t level = 0; level < splits.size(); ++level) {
    if (level > 0) {
      Dims own;
      for (int64_t i = begin; i <= end; ++i) own.push_back(splits[level][i] - splits[level][begin]);
      ASSIGN_OR_RETURN(Tensor tensor, MakeSplits(split_type, own));
      value.splits.push_back(std::move(tensor));
    }
    const int64_t first = splits[level][begin];
    end = splits[level][end];
    begin = first;
  }
  ASSIGN_OR_RETURN(value.values, CopyRows(values, begin, end));
  if (splits.empty()) {  // a row of a dense tensor
    Shape shape = values.shape();
    shape.Remove(0);
    value.values = value.values.Reshaped(shape);
  }
  return value;
}

absl::Status ToVariant(KernelContext& c) {
  ASSIGN_OR_RETURN(const bool batched, c.node().Attr<bool>("batched_input"));
  const int levels = c.num_inputs() - 1;
  const Tensor& values = c.input(levels);
  if (!batched) {
    RaggedValue value;
    for (int i = 0; i < levels; ++i) value.splits.push_back(c.input(i));
    value.values = values;
    c.SetOutput(0, Tensor::Scalar(Hold(std::move(value))));
    return absl::OkStatus();
  }
  if (values.rank() < 1) return InvalidArgument("Batched values must have at least one dimension");
  std::vector<Dims> splits;
  for (int i = 0; i < levels; ++i) {
    ASSIGN_OR_RETURN(Dims ends, IntegerVector(c.input(i), "rt_nested_splits"));
    splits.push_back(std::move(ends));
  }
  RETURN_IF_ERROR(CheckSplits(splits, values.dim(0)));
  const int64_t rows = levels == 0 ? values.dim(0) : static_cast<int64_t>(splits[0].size()) - 1;
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({rows})));
  const DType split_type = levels == 0 ? DType::kInt64 : c.input(0).dtype();
  for (int64_t row = 0; row < rows; ++row) {
    ASSIGN_OR_RETURN(RaggedValue value, RowOf(splits, split_type, values, row));
    output->data<Variant>()[row] = Hold(std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const RaggedValue*>> ValuesIn(const Tensor& encoded, int64_t rank,
                                                         DType values, DType splits) {
  std::vector<const RaggedValue*> found;
  for (int64_t i = 0; i < encoded.num_elements(); ++i) {
    const auto* const value = encoded.data<Variant>()[i].get<RaggedValue>();
    if (value == nullptr) {
      return InvalidArgument("Input Variant element at index ", i,
                             " doesn't hold a RaggedTensorVariant");
    }
    if (static_cast<int64_t>(value->splits.size()) != rank) {
      return InvalidArgument("Encoded input RaggedTensorVariant has ragged_rank=",
                             value->splits.size(), ".  Expected ragged_rank=", rank, ".");
    }
    if (value->values.dtype() != values) {
      return InvalidArgument("Expected values Tensor dtype: ", DTypeName(values),
                             ", found: ", DTypeName(value->values.dtype()));
    }
    if (value->values.rank() < 1 && rank > 0) {
      return InvalidArgument("Ragged values must have rank >= 1; encoded scalar element at index ",
                             i, " has values Tensor: ", value->values.SummarizeValues(3));
    }
    for (const Tensor& level : value->splits) {
      if (level.dtype() != splits || level.rank() != 1 || level.num_elements() == 0) {
        return InvalidArgument("Expected row_splits Tensor dtype: ", DTypeName(splits),
                               ", found: ", DTypeName(level.dtype()));
      }
    }
    found.push_back(value);
  }
  return found;
}

class FromVariant : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(input_rank_, setup.Attr<int64_t>("input_ragged_rank"));
    ASSIGN_OR_RETURN(output_rank_, setup.Attr<int64_t>("output_ragged_rank"));
    ASSIGN_OR_RETURN(values_, setup.Attr<DType>("Tvalues"));
    ASSIGN_OR_RETURN(splits_, setup.Attr<DType>("Tsplits"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& encoded = c.input(0);
    int64_t rank = input_rank_;
    if (rank == -1) {
      rank = output_rank_ - encoded.rank();
      if (rank < 0) {
        return InvalidArgument(
            "Inferred input_ragged_rank (output_ragged_rank - "
            "encoded_variant.dims()) must be >= 0, found "
            "output_ragged_rank: ",
            output_rank_, ", encoded_variant.dims(): ", encoded.rank(),
            ", inferred input_ragged_rank: ", rank);
      }
    }
    if (output_rank_ != encoded.rank() + rank && !(encoded.rank() == 0 && rank == output_rank_)) {
      return InvalidArgument(
          "output_ragged_rank must be equal to input_ragged_rank + "
          "encoded_ragged.dims(); output_ragged_rank: ",
          output_rank_, ", input_ragged_rank: ", rank, ", encoded_variant.dims(): ", encoded.rank(),
          ".");
    }
    ASSIGN_OR_RETURN(const std::vector<const RaggedValue*> parts,
                     ValuesIn(encoded, rank, values_, splits_));
    if (encoded.rank() == 0) {
      for (size_t i = 0; i < parts[0]->splits.size(); ++i) {
        c.SetOutput(static_cast<int>(i), parts[0]->splits[i]);
      }
      c.SetOutput(c.num_outputs() - 1, parts[0]->values);
      return absl::OkStatus();
    }
    return Stack(c, encoded.shape(), rank, parts);
  }

 private:
  absl::Status Stack(KernelContext& c, const Shape& outer, int64_t rank,
                     const std::vector<const RaggedValue*>& parts) const {
    // Rows of equal length down to the last dim of the variants.
    int64_t count = 1;
    int output = 0;
    for (int d = 0; d + 1 < outer.rank(); ++d) {
      // There may be a great many rows without values.
      if (__builtin_mul_overflow(count, outer[d], &count) || count > kMostRows) {
        return InvalidArgument("Cannot stack ragged tensors in rows of shape ", outer.ToString());
      }
      Dims ends(static_cast<size_t>(count) + 1);
      for (int64_t i = 0; i <= count; ++i) ends[i] = i * outer[d + 1];
      ASSIGN_OR_RETURN(Tensor tensor, MakeSplits(splits_, ends));
      c.SetOutput(output++, std::move(tensor));
    }
    // Then how many rows each variant has, and their own splits one after the other.
    Dims ends = {0};
    for (const RaggedValue* part : parts) {
      const int64_t rows = rank > 0                  ? part->splits[0].dim(0) - 1
                           : part->values.rank() > 0 ? part->values.dim(0)
                                                     : 1;
      ends.push_back(ends.back() + rows);
    }
    ASSIGN_OR_RETURN(Tensor first, MakeSplits(splits_, ends));
    c.SetOutput(output++, std::move(first));
    for (int64_t level = 0; level < rank; ++level) {
      Dims joined = {0};
      for (const RaggedValue* part : parts) {
        ASSIGN_OR_RETURN(const Dims own, IntegerValues(part->splits[level]));
        const int64_t base = joined.back();
        for (size_t i = 1; i < own.size(); ++i) joined.push_back(base + own[i]);
      }
      ASSIGN_OR_RETURN(Tensor tensor, MakeSplits(splits_, joined));
      c.SetOutput(output++, std::move(tensor));
    }
    return SetValues(c, parts);
  }

  absl::Status SetValues(KernelContext& c, const std::vector<const RaggedValue*>& parts) const {
    Dims dims = parts.empty() ? Dims{0} : parts[0]->values.shape().dims();
    if (dims.empty()) dims = {0};
    dims[0] = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Shape& own = parts[i]->values.shape();
      if (own.rank() == 0 && dims.size() == 1) {
        ++dims[0];
        continue;
      }
      if (own.rank() != static_cast<int>(dims.size()) ||
          !std::equal(dims.begin() + 1, dims.end(), own.dims().begin() + 1)) {
        return InvalidArgument("All flat_values must have compatible shapes.  Shape at index 0: ",
                               parts[0]->values.shape().ToString(), ".  Shape at index ", i, ": ",
                               own.ToString());
      }
      dims[0] += own[0];
    }
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(c.num_outputs() - 1, shape));
    char* to = values->raw();
    for (const RaggedValue* part : parts) {
      if (part->values.num_elements() == 0) continue;
      CopyElements(values_, part->values.raw(), to, part->values.num_elements());
      to += part->values.size_bytes();
    }
    return absl::OkStatus();
  }

  int64_t input_rank_ = -1;
  int64_t output_rank_ = 0;
  DType values_ = DType::kInvalid;
  DType splits_ = DType::kInt64;
};

absl::Status VariantGradient(KernelContext& c) {
  const Tensor& encoded = c.input(0);
  ASSIGN_OR_RETURN(const Dims splits, IntegerValues(c.input(1)));
  ASSIGN_OR_RETURN(const Dims dims, IntegerVector(c.input(2), "dense_values_shape"));
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  ZeroElements(output->dtype(), output->raw(), output->num_elements());
  const auto bytes = static_cast<int64_t>(DTypeSize(output->dtype()));
  const int64_t width = shape.rank() > 0 && shape[0] > 0 ? shape.num_elements() / shape[0] : 1;
  int64_t at = 0;
  for (int64_t i = 0; i < encoded.num_elements(); ++i) {
    const Variant& variant = encoded.data<Variant>()[i];
    const auto* const value = variant.get<RaggedValue>();
    if (value == nullptr && !variant.empty()) {
      return InvalidArgument("Input Variant element at index ", i,
                             " doesn't hold a RaggedTensorVariant");
    }
    if (encoded.rank() > 0 && i + 1 < static_cast<int64_t>(splits.size())) {
      if (__builtin_mul_overflow(splits[i], width, &at)) at = -1;
    }
    if (value == nullptr) continue;
    const Tensor& part = value->values;
    if (part.dtype() != output->dtype() || at < 0 ||
        part.num_elements() > output->num_elements() - at) {
      return InvalidArgument("Gradient of ", part.num_elements(), " values of type ",
                             DTypeName(part.dtype()), " does not fit into ", shape.ToString());
    }
    if (part.num_elements() > 0) {
      CopyElements(output->dtype(), part.raw(), output->raw() + at * bytes, part.num_elements());
    }
    at += part.num_elements();
  }
  return absl::OkStatus();
}

absl::Status ToVariantShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const bool batched, c.Attr<bool>("batched_input"));
  if (!batched) {
    c.SetOutput(0, PartialShape::Scalar());
    return absl::OkStatus();
  }
  const bool dense = c.num_inputs() == 1;
  const PartialShape& outer = c.input(0);
  const int64_t rows = outer.known_rank() && outer.rank() > 0 ? outer.dim(0) : -1;
  c.SetOutput(0, PartialShape::Vector(rows < 0 || dense ? rows : rows - 1));
  return absl::OkStatus();
}

absl::Status FromVariantShape(ShapeContext& c) {
  for (int i = 0; i + 1 < c.num_outputs(); ++i) c.SetOutput(i, PartialShape::Vector(-1));
  c.SetOutput(c.num_outputs() - 1, PartialShape());
  return absl::OkStatus();
}

absl::Status VariantGradientShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(2));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(RaggedTensorToVariant) {
  op.Attr("RAGGED_RANK: int >= 0")
      .Attr("Tvalues: type")
      .Attr("Tsplits: {int32, int64} = DT_INT64")
      .Attr("batched_input: bool")
      .Input("rt_nested_splits: RAGGED_RANK * Tsplits")
      .Input("rt_dense_values: Tvalues")
      .Output("encoded_ragged: variant")
      .Doc("A ragged tensor as one value, or its rows as one each.")
      .Shape(ToVariantShape)
      .CpuDTypes("Tvalues", AllDTypes(), Stateless(ToVariant));
}

DEFINE_OP(RaggedTensorFromVariant) {
  op.Attr("input_ragged_rank: int >= -1")
      .Attr("output_ragged_rank: int >= 0")
      .Attr("Tvalues: type")
      .Attr("Tsplits: {int32, int64} = DT_INT64")
      .Input("encoded_ragged: variant")
      .Output("output_nested_splits: output_ragged_rank * Tsplits")
      .Output("output_dense_values: Tvalues")
      .Doc("The ragged tensor in a value, or several of them as the rows of one.")
      .Shape(FromVariantShape)
      .CpuDTypes("Tvalues", AllDTypes(), New<FromVariant>());
}

DEFINE_OP(RaggedTensorToVariantGradient) {
  op.Attr("Tvalues: type")
      .Attr("Tsplits: {int32, int64} = DT_INT64")
      .Input("encoded_ragged_grad: variant")
      .Input("row_splits: Tsplits")
      .Input("dense_values_shape: int32")
      .Output("dense_values_grad: Tvalues")
      .Doc("Gradients of the rows of a ragged tensor, put together.")
      .Shape(VariantGradientShape)
      .CpuDTypes("Tvalues", AllDTypes(), Stateless(VariantGradient));
}

}  // namespace muster
