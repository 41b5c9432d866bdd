// Shape, rank and size of a tensor as tensors.
#include <limits>

#include "muster/ops/op.h"

namespace muster {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

absl::Status ShapeShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, PartialShape::Vector(c.input(i).rank()));
  return absl::OkStatus();
}

// Of every input: Shape has one, ShapeN several.
absl::Status ShapeOf(KernelContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) {
    const Shape& shape = c.input(i).shape();
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(i, Shape({shape.rank()})));
    for (int k = 0; k < shape.rank(); ++k) {
      if (output->dtype() == DType::kInt64) {
        output->data<int64_t>()[k] = shape.dim(k);
      } else if (shape.dim(k) > kMaxInt32) {
        return InvalidArgument("Shape output type is 32-bit but dim ", k, " is ", shape.dim(k));
      } else {
        output->data<int32_t>()[k] = static_cast<int32_t>(shape.dim(k));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Rank(KernelContext& c) {
  c.SetOutput(0, Tensor::Scalar<int32_t>(c.input(0).rank()));
  return absl::OkStatus();
}

absl::Status Size(KernelContext& c) {
  const int64_t size = c.input(0).num_elements();
  if (c.output_type(0) == DType::kInt64) {
    c.SetOutput(0, Tensor::Scalar<int64_t>(size));
  } else if (size > kMaxInt32) {
    return InvalidArgument(
        "Number of elements was larger than representable by 32-bit output type: ", size);
  } else {
    c.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(size)));
  }
  return absl::OkStatus();
}

DEFINE_OP(Shape) {
  op.Attr("T: type")
      .Attr("out_type: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Output("output: out_type")
      .Doc("The dims of a tensor.")
      .Shape(ShapeShape)
      .NoGradient("a shape does not depend on values")
      .HostMemory({"output"})
      .Cpu(ShapeOf)
      .GpuForwards(ShapeOf, "T", {"input"});
}

DEFINE_OP(ShapeN) {
  op.Attr("N: int >= 1")
      .Attr("T: type")
      .Attr("out_type: {int32, int64} = DT_INT32")
      .Input("input: N * T")
      .Output("output: N * out_type")
      .Doc("The dims of several tensors.")
      .Shape(ShapeShape)
      .NoGradient("a shape does not depend on values")
      .HostMemory({"output"})
      .Cpu(ShapeOf)
      .GpuForwards(ShapeOf, "T", {"input"});
}

DEFINE_OP(Rank) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: int32")
      .Doc("The number of dims of a tensor.")
      .Shape(ScalarShape)
      .NoGradient("a rank does not depend on values")
      .HostMemory({"output"})
      .Cpu(Rank)
      .GpuForwards(Rank, "T", {"input"}, {DType::kInt32, DType::kBool});
}

DEFINE_OP(Size) {
  op.Attr("T: type")
      .Attr("out_type: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Output("output: out_type")
      .Doc("The number of elements of a tensor.")
      .Shape(ScalarShape)
      .NoGradient("a size does not depend on values")
      .HostMemory({"output"})
      .Cpu(Size)
      .GpuForwards(Size, "T", {"input"}, {DType::kInt32, DType::kBool});
}

}  // namespace
}  // namespace muster
