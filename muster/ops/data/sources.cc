// Datasets over tensors: one element, slices of dimension 0, a range of numbers.
#include "muster/ops/data/dataset.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

Element Components(const KernelContext& c) {
  Element components;
  for (int i = 0; i < c.num_inputs(); ++i) components.push_back(KeptTensor(c.input(i)));
  return components;
}

absl::Status MakeTensors(KernelContext& c) {
  return SetDataset(
      c, [components = Components(c)](const DataContext&) -> absl::StatusOr<NextElement> {
        return [components, given = false](const DataContext&) mutable -> MaybeElement {
          if (given) return std::nullopt;
          given = true;
          return components;
        };
      });
}

absl::Status MakeSlices(KernelContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input(i).rank() == 0)
      return InvalidArgument("All components must be at least 1-dimensional");
    if (c.input(i).dim(0) != c.input(0).dim(0))
      return InvalidArgument("All components must have the same size in the 0th dimension");
  }
  const auto components = std::make_shared<const Element>(Components(c));
  return SetDataset(c, [components](const DataContext&) -> absl::StatusOr<NextElement> {
    return [components, next = int64_t{0}](const DataContext&) mutable -> MaybeElement {
      if (next >= (*components)[0].dim(0)) return std::nullopt;
      Element element;
      for (const Tensor& component : *components) {
        ASSIGN_OR_RETURN(Tensor row, CopyRow(component, next));
        element.push_back(std::move(row));
      }
      ++next;
      return element;
    };
  });
}

// Row after row of a sparse tensor, each a sparse tensor of one dimension less.
absl::Status MakeSparseSlices(KernelContext& c) {
  const Tensor indices = KeptTensor(c.input(0));
  const Tensor values = KeptTensor(c.input(1));
  const Tensor shape = KeptTensor(c.input(2));
  if (indices.rank() != 2) {
    return InvalidArgument("Input indices should be a matrix but received shape ",
                           indices.shape().ToString());
  }
  if (values.rank() != 1) {
    return InvalidArgument("Input values should be a vector but received shape ",
                           values.shape().ToString());
  }
  if (shape.rank() != 1) {
    return InvalidArgument("Input shape should be a vector but received shape ",
                           shape.shape().ToString());
  }
  if (values.dim(0) != indices.dim(0)) {
    return InvalidArgument("Number of values must match first dimension of indices. Got ",
                           values.dim(0), " values, indices shape: ", indices.shape().ToString());
  }
  if (shape.dim(0) != indices.dim(1)) {
    return InvalidArgument("Number of dimensions must match second dimension of indices. Got ",
                           shape.dim(0),
                           " dimensions, indices shape: ", indices.shape().ToString());
  }
  if (shape.num_elements() == 0) {
    return InvalidArgument("The shape argument requires at least one element.");
  }
  const int64_t rank = indices.dim(1);
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    const int64_t row = indices.data<int64_t>()[i * rank];
    const int64_t before = i == 0 ? 0 : indices.data<int64_t>()[(i - 1) * rank];
    if (row < before || row >= shape.data<int64_t>()[0]) {
      return Unimplemented(
          "The SparseTensor must be ordered in the batch dimension; handling arbitrarily ordered "
          "input is not currently supported.");
    }
  }
  ElementSpec spec;
  spec.types = {DType::kInt64, values.dtype(), DType::kInt64};
  spec.shapes = {PartialShape::Matrix(-1, rank - 1), PartialShape::Vector(-1),
                 PartialShape::Vector(rank - 1)};
  return SetDataset(c, std::move(spec), [=](const DataContext&) -> absl::StatusOr<NextElement> {
    return [=, row = int64_t{0}, first = int64_t{0}](const DataContext&) mutable -> MaybeElement {
      if (row >= shape.data<int64_t>()[0]) return std::nullopt;
      const int64_t* const at = indices.data<int64_t>();
      int64_t end = first;
      while (end < indices.dim(0) && at[end * rank] == row) ++end;
      const int64_t count = end - first;
      ASSIGN_OR_RETURN(Tensor own, Tensor::Make(DType::kInt64, Shape({count, rank - 1})));
      ASSIGN_OR_RETURN(Tensor kept, Tensor::Make(values.dtype(), Shape({count})));
      ASSIGN_OR_RETURN(Tensor dims, Tensor::Make(DType::kInt64, Shape({rank - 1})));
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(at + (first + i) * rank + 1, rank - 1, own.data<int64_t>() + i * (rank - 1));
      }
      if (count > 0) {
        const auto bytes = static_cast<int64_t>(DTypeSize(values.dtype()));
        CopyElements(values.dtype(), values.raw() + first * bytes, kept.raw(), count);
      }
      std::copy_n(shape.data<int64_t>() + 1, rank - 1, dims.data<int64_t>());
      first = end;
      ++row;
      return Element{std::move(own), std::move(kept), std::move(dims)};
    };
  });
}

absl::StatusOr<Tensor> NumberOf(DType dtype, int64_t value) {
  if (dtype == DType::kInt64) return Tensor::Scalar(value);
  if (dtype == DType::kInt32) return Tensor::Scalar(static_cast<int32_t>(value));
  if (dtype == DType::kFloat) return Tensor::Scalar(static_cast<float>(value));
  if (dtype == DType::kDouble) return Tensor::Scalar(static_cast<double>(value));
  return Unimplemented("RangeDataset of type ", DTypeName(dtype));
}

absl::Status MakeRange(KernelContext& c) {
  ASSIGN_OR_RETURN(const int64_t start, ScalarInteger(c.input(0), "start"));
  ASSIGN_OR_RETURN(const int64_t stop, ScalarInteger(c.input(1), "stop"));
  ASSIGN_OR_RETURN(const int64_t step, ScalarInteger(c.input(2), "step"));
  if (step == 0) return InvalidArgument("step must be a non-zero integer.");
  ASSIGN_OR_RETURN(const std::vector<DType> types,
                   c.node().Attr<std::vector<DType>>("output_types"));
  return SetDataset(c, [=, type = types[0]](const DataContext&) -> absl::StatusOr<NextElement> {
    return [=, next = start, over = false](const DataContext&) mutable -> MaybeElement {
      if (over || (step > 0 ? next >= stop : next <= stop)) return std::nullopt;
      ASSIGN_OR_RETURN(Tensor value, NumberOf(type, next));
      over = __builtin_add_overflow(next, step, &next);
      return Element{std::move(value)};
    };
  });
}

}  // namespace

DEFINE_OP(TensorDataset) {
  op.Attr("Toutput_types: list(type) >= 1")
      .Attr("output_shapes: list(shape) >= 1")
      .Attr2x("metadata: string = ''")
      .Input("components: Toutput_types")
      .Stateful();
  DefineDataset(op, "One element: the inputs.", MakeTensors);
}

DEFINE_OP(TensorSliceDataset) {
  op.Attr("Toutput_types: list(type) >= 1")
      .Attr("output_shapes: list(shape) >= 1")
      .Attr2x("is_files: bool = false")
      .Attr2x("metadata: string = ''")
      .Attr2x("replicate_on_split: bool = false")
      .Input("components: Toutput_types")
      .Stateful();
  DefineDataset(op, "The rows of the inputs, one after the other.", MakeSlices);
}

DEFINE_OP(SparseTensorSliceDataset) {
  op.Attr("Tvalues: type")
      .Input("indices: int64")
      .Input("values: Tvalues")
      .Input("dense_shape: int64")
      .Stateful();
  DefineDataset(op, "The rows of a sparse tensor, one after the other.", MakeSparseSlices);
}

DEFINE_OP(RangeDataset) {
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Attr2x("replicate_on_split: bool = false")
      .Input("start: int64")
      .Input("stop: int64")
      .Input("step: int64")
      .Stateful();
  DefineDataset(op, "Numbers from start to stop, which is not among them.", MakeRange);
}

}  // namespace muster
