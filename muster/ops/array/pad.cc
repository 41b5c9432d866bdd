// Putting a border of one value around a tensor.
#include "muster/ops/array/gradients.h"
#include "muster/ops/array/paddings.h"
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status PadShape(ShapeContext& c) {
  return PaddedShapeRule(c, 1);
}

absl::Status Pad(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const std::vector<Padding> paddings, ReadPaddings(c.input(1), input.shape()));
  ASSIGN_OR_RETURN(const Shape shape, PaddedShape(input.shape(), paddings));
  const bool has_value = c.num_inputs() == 3;
  if (has_value && c.input(2).rank() != 0) {
    return InvalidArgument("constant_values must be a scalar. Found: ",
                           c.input(2).shape().ToString());
  }
  if (shape == input.shape()) {
    c.SetOutput(0, c.TakeInput(0));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  std::vector<EmbeddedAxis> axes;
  for (int i = 0; i < input.rank(); ++i)
    axes.push_back({shape.dim(i), paddings[i].before, 1, input.dim(i)});
  return mover.Embed(c, axes, has_value ? &c.input(2) : nullptr, input, *output);
}

// Cuts the input's place out of dy.
absl::Status PadGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Output x = c.input(0);
  const Output rank = RankOf(c, x);
  const Output size = PackScalars(c, {rank, 1}, "stack");
  const Output origin = c.scope().ConstVector({0, 0}, "Slice/begin");
  const Output before = c.Op("Slice", {c.input(1), origin, size});
  const Output flat = c.scope().ConstVector({-1}, "Reshape/shape");
  const Output begin = c.Op("Reshape", {before, flat});
  const Output sizes = c.ShapeOf(x, "Shape", c.input(1).base_dtype());
  c.SetDx(0, c.Op("Slice", {dy, begin, sizes}));
  return absl::OkStatus();
}

std::vector<DType> GpuPadDTypes() {
  return GpuFloatsAnd(
      {DType::kBool, DType::kInt8, DType::kUint8, DType::kComplex64, DType::kComplex128});
}

DEFINE_OP(Pad) {
  op.Attr("T: type")
      .Attr("Tpaddings: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("paddings: Tpaddings")
      .Output("output: T")
      .Doc("A tensor with a border of zeros.")
      .Shape(PadShape)
      .Gradient(PadGradient)
      .HostMemory({"paddings"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Pad>>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuPadDTypes(), MovesOnGpu<MoveBy<Pad>, GpuEmbedder>);
}

DEFINE_OP(PadV2) {
  op.Attr("T: type")
      .Attr("Tpaddings: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("paddings: Tpaddings")
      .Input("constant_values: T")
      .Output("output: T")
      .Doc("A tensor with a border of a given value.")
      .Shape(PadShape)
      .Gradient(PadGradient)
      .HostMemory({"paddings"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Pad>>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuPadDTypes(), MovesOnGpu<MoveBy<Pad>, GpuEmbedder>, {"constant_values"});
}

}  // namespace
}  // namespace muster
