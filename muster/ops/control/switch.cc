// Choosing between values: Switch, Merge and their kin. Gradients of control flow depend on the
// contexts of nodes and are therefore in the graph layer.
#include "muster/graph/control_flow/control_flow_gradients.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::StatusOr<bool> Predicate(KernelContext& c) {
  const Tensor& predicate = c.input(1);
  if (!predicate.shape().is_scalar()) {
    return InvalidArgument("The second input must be a scalar, but it has shape ",
                           predicate.shape().ToString());
  }
  return predicate.scalar<bool>();
}

absl::Status RunSwitch(KernelContext& c) {
  ASSIGN_OR_RETURN(const bool predicate, Predicate(c));
  c.PassInput(0, predicate ? 1 : 0);
  c.SetOutputDead(predicate ? 0 : 1);
  return absl::OkStatus();
}

// An index outside the range means the last output.
absl::Status RunSwitchN(KernelContext& c) {
  const Tensor& selector = c.input(1);
  if (!selector.shape().is_scalar()) {
    return InvalidArgument("The second input must be a scalar, but it has shape ",
                           selector.shape().ToString());
  }
  int index = selector.scalar<int32_t>();
  if (index < 0 || index >= c.num_outputs()) index = c.num_outputs() - 1;
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (i != index) c.SetOutputDead(i);
  }
  c.PassInput(0, index);
  return absl::OkStatus();
}

// The input that has arrived alive; the others are dead or have not come.
absl::StatusOr<int> LiveInput(KernelContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.input_is_dead(i) && (c.input(i).valid() || c.input_is_reference(i))) return i;
  }
  return Internal("Merge '", c.node().name(), "' ran without a live input");
}

absl::Status RunMerge(KernelContext& c) {
  ASSIGN_OR_RETURN(const int live, LiveInput(c));
  c.PassInput(live, 0);
  c.SetOutput(1, Tensor::Scalar<int32_t>(live));
  return absl::OkStatus();
}

absl::Status RunRefSelect(KernelContext& c) {
  const Tensor& selector = c.input(0);
  if (!selector.shape().is_scalar()) {
    return InvalidArgument("Index must be a scalar, but it has shape ",
                           selector.shape().ToString());
  }
  const int32_t index = selector.scalar<int32_t>();
  if (index < 0 || index >= c.num_inputs() - 1) {
    return InvalidArgument("Index must be in the range [0, ", c.num_inputs() - 1, ") but got ",
                           index);
  }
  c.SetOutputReference(0, c.input_reference(1 + index));
  return absl::OkStatus();
}

absl::Status RunRefIdentity(KernelContext& c) {
  c.SetOutputReference(0, c.input_reference(0));
  return absl::OkStatus();
}

absl::Status SwitchShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.SetOutput(i, c.input(0));
    c.SetOutputHandle(i, c.input_handle(0));
  }
  return absl::OkStatus();
}

// What all inputs have in common. A loop's back edge may not be there yet.
absl::Status MergeShape(ShapeContext& c) {
  c.SetOutput(1, PartialShape::Scalar());
  PartialShape common;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.node().input(i) || !c.input(i).known_rank()) {
      c.SetOutput(0, PartialShape());
      return absl::OkStatus();
    }
    const PartialShape& shape = c.input(i);
    if (i == 0) {
      common = shape;
      continue;
    }
    if (shape.rank() != common.rank()) {
      c.SetOutput(0, PartialShape());
      return absl::OkStatus();
    }
    for (int d = 0; d < shape.rank(); ++d) {
      if (shape[d] != common[d]) common.Set(d, -1);
    }
  }
  c.SetOutput(0, std::move(common));
  return absl::OkStatus();
}

absl::Status RefSelectShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  const PartialShape& first = c.input(1);
  bool same = first.fully_known();
  for (int i = 2; same && i < c.num_inputs(); ++i) same = c.input(i) == first;
  c.SetOutput(0, same ? first : PartialShape());
  return absl::OkStatus();
}

absl::Status IdentityShape(ShapeContext& c) {
  c.SetOutput(0, c.input(0));
  c.SetOutputHandle(0, c.input_handle(0));
  return absl::OkStatus();
}

absl::Status PassGradient(GradientContext& c) {
  c.SetDx(0, c.gradient(0));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Switch) {
  op.Attr("T: type")
      .Input("data: T")
      .Input("pred: bool")
      .Output("output_false: T")
      .Output("output_true: T")
      .Doc("Sends data to output 1 when pred is true, else to output 0; the other output is dead.")
      .Shape(SwitchShape)
      .Gradient(SwitchGradient)
      .HostMemory({"pred"})
      .Cpu(RunSwitch)
      .GpuForwards(RunSwitch, "T", {"data", "output_false", "output_true"},
                   {DType::kInt32, DType::kBool});
}

DEFINE_OP(RefSwitch) {
  op.Attr("T: type")
      .Input("data: Ref(T)")
      .Input("pred: bool")
      .Output("output_false: Ref(T)")
      .Output("output_true: Ref(T)")
      .AllowsUninitializedInput()
      .Doc("Switch of a reference.")
      .Shape(SwitchShape)
      .Gradient(SwitchGradient)
      .HostMemory({"pred"})
      .Cpu(RunSwitch)
      .Gpu(RunSwitch);
}

DEFINE_OP(_SwitchN) {
  op.Attr("num_outs: int >= 1")
      .Attr("T: type")
      .Input("data: T")
      .Input("output_index: int32")
      .Output("outputs: num_outs * T")
      .Doc("Sends data to the output with the given index, or to the last one.")
      .Shape(SwitchShape)
      .HostMemory({"output_index"})
      .Cpu(RunSwitchN)
      .GpuForwards(RunSwitchN, "T", {"data", "outputs"}, {DType::kInt32, DType::kBool});
}

DEFINE_OP(Merge) {
  op.Attr("T: type")
      .Attr("N: int >= 1")
      .Input("inputs: N * T")
      .Output("output: T")
      .Output("value_index: int32")
      .Doc("Forwards the first live input and its index.")
      .Shape(MergeShape)
      .Gradient(MergeGradient)
      .HostMemory({"value_index"})
      .Cpu(RunMerge)
      .GpuForwards(RunMerge, "T", {"inputs", "output"});
}

DEFINE_OP(RefMerge) {
  op.Attr("T: type")
      .Attr("N: int >= 1")
      .Input("inputs: Ref(N * T)")
      .Output("output: Ref(T)")
      .Output("value_index: int32")
      .Doc("Merge of references.")
      .Shape(MergeShape)
      .Gradient(MergeGradient)
      .HostMemory({"value_index"})
      .Cpu(RunMerge)
      .Gpu(RunMerge);
}

DEFINE_OP(RefSelect) {
  op.Attr("T: type")
      .Attr("N: int >= 1")
      .Input("index: int32")
      .Input("inputs: Ref(N * T)")
      .Output("output: Ref(T)")
      .Doc("The reference with the given index.")
      .Shape(RefSelectShape)
      .HostMemory({"index"})
      .Cpu(RunRefSelect);
}

DEFINE_OP(RefIdentity) {
  op.Attr("T: type")
      .Input("input: Ref(T)")
      .Output("output: Ref(T)")
      .AllowsUninitializedInput()
      .Doc("The same reference.")
      .Shape(IdentityShape)
      .Gradient(PassGradient)
      .Cpu(RunRefIdentity)
      .Gpu(RunRefIdentity);
}

}  // namespace muster
