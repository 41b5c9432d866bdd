// Broadcasting itself: of tensors, of shapes, and the axes that gradients are summed over.
#include <algorithm>
#include <cstring>

#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

absl::StatusOr<Dims> ShapeVector(KernelContext& c, int i) {
  if (c.input(i).rank() != 1)
    return InvalidArgument("In[", i, "] must be a vector.", c.input(i).shape().ToString());
  return IntegerValues(c.input(i));
}

template <typename T>
absl::Status SetVector(KernelContext& c, int i, const Dims& values) {
  ASSIGN_OR_RETURN(Tensor * output,
                   c.AllocateOutput(i, Shape({static_cast<int64_t>(values.size())})));
  std::transform(values.begin(), values.end(), output->data<T>(),
                 [](int64_t v) { return static_cast<T>(v); });
  return absl::OkStatus();
}

template <typename T>
absl::Status RunGradientArgs(KernelContext& c) {
  ASSIGN_OR_RETURN(const Dims x, ShapeVector(c, 0));
  ASSIGN_OR_RETURN(const Dims y, ShapeVector(c, 1));
  ASSIGN_OR_RETURN(const ReductionAxes axes, BroadcastReductionAxes(x, y));
  RETURN_IF_ERROR(SetVector<T>(c, 0, axes.x));
  return SetVector<T>(c, 1, axes.y);
}

template <typename T>
absl::Status RunBroadcastArgs(KernelContext& c) {
  ASSIGN_OR_RETURN(const Dims x, ShapeVector(c, 0));
  ASSIGN_OR_RETURN(const Dims y, ShapeVector(c, 1));
  RETURN_IF_ERROR(BroadcastReductionAxes(x, y).status());
  const size_t rank = std::max(x.size(), y.size());
  Dims result(rank);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x_size = i < rank - x.size() ? 1 : x[i - (rank - x.size())];
    const int64_t y_size = i < rank - y.size() ? 1 : y[i - (rank - y.size())];
    result[i] = x_size == 1 ? y_size : x_size;
  }
  return SetVector<T>(c, 0, result);
}

// Writes `count` copies of one element; plain data by ever larger copies of what is there already.
void Repeat(DType dtype, const char* element, char* to, int64_t count) {
  const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
  if (!IsPlainData(dtype)) {
    for (int64_t i = 0; i < count; ++i) CopyElements(dtype, element, to + i * size, 1);
    return;
  }
  std::memcpy(to, element, static_cast<size_t>(size));
  for (int64_t done = 1; done < count;) {
    const int64_t n = std::min(done, count - done);
    std::memcpy(to + done * size, to, static_cast<size_t>(n * size));
    done += n;
  }
}

// The plan of input 0 and the shape in input 1.
absl::StatusOr<BroadcastPlan> PlanBroadcastTo(KernelContext& c) {
  const Tensor& input = c.input(0);
  const Tensor& target = c.input(1);
  if (target.rank() != 1) {
    return InvalidArgument("shape must be a vector of {int32,int64}, got shape ",
                           target.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims dims, IntegerValues(target));
  for (const int64_t size : dims) {
    if (size < 0) return InvalidArgument("Dimension ", size, " must be >= 0");
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  if (input.rank() > shape.rank()) {
    return InvalidArgument("Rank of input (", input.rank(),
                           ") must be no greater than rank of output shape (", shape.rank(), ").");
  }
  const std::array<const Shape*, 2> shapes = {&input.shape(), &shape};
  ASSIGN_OR_RETURN(BroadcastPlan plan, BroadcastPlan::Make(shapes));
  if (!(plan.output() == shape)) {
    return InvalidArgument("Unable to broadcast tensor of shape ", input.shape().ToString(),
                           " to tensor of shape ", shape.ToString());
  }
  return plan;
}

absl::Status RunBroadcastTo(KernelContext& c) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(const BroadcastPlan plan, PlanBroadcastTo(c));
  if (plan.output() == input.shape()) {
    c.SetOutput(0, input);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, plan.output()));
  const DType dtype = input.dtype();
  const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
  const int64_t inner = plan.inner();
  const char* from = input.raw();
  char* to = output->raw();
  c.ParallelFor(plan.rows(), static_cast<double>(inner * size) * 0.1 + 5,
                [&](int64_t begin, int64_t end) {
                  plan.ForEachRow(begin, end, [&](int64_t at, const BroadcastOffsets& offsets) {
                    if (plan.steps(0))
                      CopyElements(dtype, from + offsets[0] * size, to + at * size, inner);
                    else
                      Repeat(dtype, from + offsets[0] * size, to + at * size, inner);
                  });
                });
  return absl::OkStatus();
}

class GpuBroadcastTo final : public GpuKernel {
 public:
  explicit GpuBroadcastTo(DType dtype)
      : run_(*this, "math/broadcast.cu", absl::StrCat("Repeat<", GpuWord(dtype), ">")) {}

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const BroadcastPlan plan, PlanBroadcastTo(c));
    if (plan.output() == input.shape()) {
      c.SetOutput(0, input);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const GpuBroadcast<1> broadcast, MakeGpuBroadcast<1>(plan));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output()));
    return run_.LaunchForEach(GpuPacks(broadcast.count, output->dtype()), GpuIn(input),
                              GpuOut(*output), broadcast);
  }

 private:
  GpuFunction run_;
};

absl::Status GradientArgsShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  c.SetOutput(0, PartialShape::Vector(-1));
  c.SetOutput(1, PartialShape::Vector(-1));
  return absl::OkStatus();
}
absl::Status BroadcastArgsShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape x, c.WithRank(c.input(0), 1));
  ASSIGN_OR_RETURN(const PartialShape y, c.WithRank(c.input(1), 1));
  const bool known = x.dim(0) >= 0 && y.dim(0) >= 0;
  c.SetOutput(0, PartialShape::Vector(known ? std::max(x.dim(0), y.dim(0)) : -1));
  return absl::OkStatus();
}
absl::Status BroadcastToShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape output, c.InputAsShape(1));
  if (output.known_rank() && c.input(0).known_rank()) {
    ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtMost(c.input(0), output.rank()));
    for (int i = 1; i <= input.rank(); ++i) {
      const int64_t size = input.dim(input.rank() - i);
      if (size > 1)
        RETURN_IF_ERROR(ShapeContext::MergeDims(size, output.dim(output.rank() - i)).status());
    }
  }
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

absl::Status BroadcastToGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output target = c.input(1);
  const Output shape = c.ShapeOf(c.input(0), "Shape", target.base_dtype());
  const Output args = c.Op("BroadcastGradientArgs", {target, shape});
  const Output sum = c.Op("Sum", {dy, Output(args.node, 1)}, {{"keep_dims", true}});
  c.SetDx(0, c.Op("Reshape", {sum, shape}));
  return c.scope().status();
}

DEFINE_OP(BroadcastGradientArgs) {
  op.Attr("T: {int32, int64} = DT_INT32")
      .Input("s0: T")
      .Input("s1: T")
      .Output("r0: T")
      .Output("r1: T");
  op.Doc("The axes over which the gradients of two broadcast operands are summed.")
      .Shape(GradientArgsShape)
      .NoGradient("shapes have no derivative")
      .HostMemory({"s0", "s1", "r0", "r1"})
      .CpuTypes<Indices>("T", []<typename T>() { return Stateless(RunGradientArgs<T>); })
      .GpuOnHost("T", {DType::kInt32, DType::kInt64});
}
DEFINE_OP(BroadcastArgs) {
  op.Attr("T: {int32, int64} = DT_INT32").Input("s0: T").Input("s1: T").Output("r0: T");
  op.Doc("The shape that two shapes broadcast to.")
      .Shape(BroadcastArgsShape)
      .HostMemory({"s0", "s1", "r0"})
      .CpuTypes<Indices>("T", []<typename T>() { return Stateless(RunBroadcastArgs<T>); })
      .GpuOnHost("T", {DType::kInt32, DType::kInt64});
}
DEFINE_OP(BroadcastTo) {
  op.Attr("T: type")
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("shape: Tidx")
      .Output("output: T");
  op.Doc("The input repeated along the axes where the shape is larger.")
      .Shape(BroadcastToShape)
      .Gradient(BroadcastToGradient)
      .HostMemory({"shape"})
      .CpuDTypes("T", AllDTypes(), Stateless(RunBroadcastTo))
      .GpuTypes("T", With(kGpuFields, {DType::kBool}), KernelOnGpu<GpuBroadcastTo>())
      .GpuOnHost("T");
}

}  // namespace
}  // namespace muster
