// The nodes that loops are made of. The executor gives them their meaning; the kernels only
// forward.
#include "muster/graph/control_flow/control_flow_gradients.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status Forward(KernelContext& c) {
  c.PassInput(0, 0);
  return absl::OkStatus();
}

absl::Status LoopCond(KernelContext& c) {
  if (!c.input(0).shape().is_scalar()) {
    return InvalidArgument("The condition of a loop must be a scalar, but it has shape ",
                           c.input(0).shape().ToString());
  }
  return Forward(c);
}

// A value that changes from iteration to iteration may change its shape too.
absl::Status EnterShape(ShapeContext& c) {
  c.SetOutput(0, PartialShape());
  c.SetOutputHandle(0, c.input_handle(0));
  ASSIGN_OR_RETURN(const bool is_constant, c.Attr<bool>("is_constant"));
  if (is_constant && c.input_handle(0).empty()) c.SetOutput(0, c.input(0));
  return absl::OkStatus();
}

absl::Status ForwardShape(ShapeContext& c) {
  c.SetOutput(0, c.input(0));
  c.SetOutputHandle(0, c.input_handle(0));
  return absl::OkStatus();
}

absl::Status LoopCondShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape scalar, c.WithRank(c.input(0), 0));
  c.SetOutput(0, std::move(scalar));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Enter) {
  op.Attr("T: type")
      .Attr("frame_name: string")
      .Attr("is_constant: bool = false")
      .Attr("parallel_iterations: int = 10")
      .Input("data: T")
      .Output("output: T")
      .Doc("Makes data available in the first iteration of a frame, or in all when it is constant.")
      .Shape(EnterShape)
      .Gradient(EnterGradient)
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"data", "output"});
}

DEFINE_OP(RefEnter) {
  op.Attr("T: type")
      .Attr("frame_name: string")
      .Attr("is_constant: bool = false")
      .Attr("parallel_iterations: int = 10")
      .Input("data: Ref(T)")
      .Output("output: Ref(T)")
      .Doc("Enter of a reference.")
      .Shape(ForwardShape)
      .Gradient(EnterGradient)
      .Cpu(Forward)
      .Gpu(Forward);
}

DEFINE_OP(Exit) {
  op.Attr("T: type")
      .Input("data: T")
      .Output("output: T")
      .Doc("Makes data available in the frame around this one.")
      .Shape(ForwardShape)
      .Gradient(ExitGradient)
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"data", "output"});
}

DEFINE_OP(RefExit) {
  op.Attr("T: type")
      .Input("data: Ref(T)")
      .Output("output: Ref(T)")
      .Doc("Exit of a reference.")
      .Shape(ForwardShape)
      .Gradient(ExitGradient)
      .Cpu(Forward)
      .Gpu(Forward);
}

DEFINE_OP(NextIteration) {
  op.Attr("T: type")
      .Input("data: T")
      .Output("output: T")
      .Doc("Makes data available in the next iteration.")
      .Shape(ForwardShape)
      .Gradient(NextIterationGradient)
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"data", "output"});
}

DEFINE_OP(RefNextIteration) {
  op.Attr("T: type")
      .Input("data: Ref(T)")
      .Output("output: Ref(T)")
      .Doc("NextIteration of a reference.")
      .Shape(ForwardShape)
      .Gradient(NextIterationGradient)
      .Cpu(Forward)
      .Gpu(Forward);
}

DEFINE_OP(LoopCond) {
  op.Input("input: bool")
      .Output("output: bool")
      .Doc("Whether the loop goes on.")
      .Shape(LoopCondShape)
      .NoGradient("a predicate")
      .HostMemory({"input", "output"})
      .Cpu(LoopCond)
      .Gpu(LoopCond);
}

}  // namespace muster
