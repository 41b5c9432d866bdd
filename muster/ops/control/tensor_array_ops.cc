// TensorArrayV3 and the ops on it: definitions, shapes, gradients. A float "flow" carries the order
// of the ops.
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "muster/ops/control/tensor_array_kernels.h"
#include "muster/ops/emit.h"
#include "muster/ops/indexing/gpu_mover.h"

namespace muster {
namespace {

// Handles have always been declared as pairs of strings.
absl::Status CheckHandle(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape handle, c.WithRank(c.input(0), 1));
  return handle.Merge(PartialShape::Vector(2)).status();
}

absl::Status CheckFlow(ShapeContext& c, int i) {
  return c.WithRank(c.input(i), 0).status();
}

// The shape of elements as far as the handle tells.
PartialShape ElementShape(ShapeContext& c) {
  return c.input_handle(0).empty() ? PartialShape() : c.input_handle(0)[0].shape;
}

absl::Status NewShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  c.SetOutput(0, PartialShape::Vector(2));
  c.SetOutput(1, PartialShape::Scalar());
  ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("dtype"));
  ASSIGN_OR_RETURN(const PartialShape element, c.Attr<PartialShape>("element_shape"));
  ASSIGN_OR_RETURN(const bool identical, c.Attr<bool>("identical_element_shapes"));
  if (identical || element.fully_known()) c.SetOutputHandle(0, {DTypeAndShape{dtype, element}});
  return absl::OkStatus();
}

absl::Status WriteShape(ShapeContext& c) {
  RETURN_IF_ERROR(CheckHandle(c));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  RETURN_IF_ERROR(CheckFlow(c, 3));
  RETURN_IF_ERROR(ElementShape(c).Merge(c.input(2)).status());
  c.SetOutput(0, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status ReadShape(ShapeContext& c) {
  RETURN_IF_ERROR(CheckHandle(c));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  RETURN_IF_ERROR(CheckFlow(c, 2));
  c.SetOutput(0, ElementShape(c));
  return absl::OkStatus();
}

absl::Status GatherShape(ShapeContext& c) {
  RETURN_IF_ERROR(CheckHandle(c));
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(1), 1));
  RETURN_IF_ERROR(CheckFlow(c, 2));
  c.SetOutput(0, c.input_handle(0).empty() ? PartialShape()
                                           : ShapeContext::Concatenate(indices, ElementShape(c)));
  return absl::OkStatus();
}

absl::Status ScatterShape(ShapeContext& c) {
  RETURN_IF_ERROR(CheckHandle(c));
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(1), 1));
  RETURN_IF_ERROR(CheckFlow(c, 3));
  const PartialShape& value = c.input(2);
  if (value.known_rank()) {
    RETURN_IF_ERROR(c.WithRankAtLeast(value, 1).status());
    if (indices.known_rank())
      RETURN_IF_ERROR(ShapeContext::MergeDims(value[0], indices[0]).status());
    RETURN_IF_ERROR(ElementShape(c).Merge(ShapeContext::Subshape(value, 1)).status());
  }
  c.SetOutput(0, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status ConcatShape(ShapeContext& c) {
  RETURN_IF_ERROR(CheckHandle(c));
  RETURN_IF_ERROR(CheckFlow(c, 1));
  c.SetOutput(0, PartialShape());
  c.SetOutput(1, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status SplitShape(ShapeContext& c) {
  RETURN_IF_ERROR(CheckHandle(c));
  RETURN_IF_ERROR(c.WithRank(c.input(2), 1).status());
  RETURN_IF_ERROR(CheckFlow(c, 3));
  c.SetOutput(0, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status SizeShape(ShapeContext& c) {
  RETURN_IF_ERROR(CheckHandle(c));
  return ScalarShape(c);
}

absl::Status GradShape(ShapeContext& c) {
  RETURN_IF_ERROR(CheckHandle(c));
  RETURN_IF_ERROR(CheckFlow(c, 1));
  c.SetOutput(0, PartialShape::Vector(2));
  c.SetOutput(1, PartialShape::Scalar());
  if (c.num_inputs() == 2) c.SetOutputHandle(0, c.input_handle(0));
  return absl::OkStatus();
}

absl::Status CloseShape(ShapeContext& c) {
  return CheckHandle(c);
}

// Which gradient computation made a gradient: its name up to the last part that begins with
// "gradients". Arrays of different computations must not mix.
absl::StatusOr<std::string> GradientSource(Output gradient) {
  const std::vector<absl::string_view> parts = absl::StrSplit(gradient.node->name(), '/');
  size_t end = parts.size();
  while (end > 0 && !absl::StartsWith(parts[end - 1], "gradients")) --end;
  if (end == 0) {
    return InvalidArgument(
        "Expected op/tensor name to start with gradients (excluding scope), got: ",
        gradient.name());
  }
  return absl::StrJoin(parts.begin(), parts.begin() + end, "/");
}

struct GradientArray {
  Output handle;
  Output flow;
};

// The gradient's array, and a flow that waits for it.
GradientArray EmitGradientArray(const Scope& scope, Output handle, Output flow,
                                const std::string& source) {
  const Scope inside = scope.NameScope("TensorArrayGrad").ColocatedWith(*handle.node);
  Node* made = inside.Add("TensorArrayGradV3", {handle, flow}, {{"source", source}});
  if (made == nullptr) return {};
  Node* const before[] = {made};
  const Output ordered =
      inside.WithControlDependencies(before).Op("Identity", {flow}, {}, "gradient_flow");
  return {made->output(0), ordered};
}

absl::Status ReadGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const std::string source, GradientSource(c.dy()));
  const GradientArray array = EmitGradientArray(c.scope(), c.input(0), c.input(2), source);
  const Scope inside = c.scope().NameScope("TensorArrayWrite");
  c.SetDx(2, inside.Op("TensorArrayWriteV3", {array.handle, c.input(1), c.dy(), array.flow}));
  return absl::OkStatus();
}

absl::Status GatherGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const std::string source, GradientSource(c.dy()));
  const GradientArray array = EmitGradientArray(c.scope(), c.input(0), c.input(2), source);
  const Scope inside = c.scope().NameScope("TensorArrayScatter");
  c.SetDx(2, inside.Op("TensorArrayScatterV3", {array.handle, c.input(1), c.dy(), array.flow}));
  return absl::OkStatus();
}

absl::Status ConcatGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const std::string source, GradientSource(c.dy(0)));
  const GradientArray array = EmitGradientArray(c.scope(), c.input(0), c.input(1), source);
  const Scope inside = c.scope().NameScope("TensorArraySplit");
  c.SetDx(1, inside.Op("TensorArraySplitV3", {array.handle, c.dy(0), c.output(1), array.flow}));
  return absl::OkStatus();
}

// For the writing ops: a flow that waits for the write, and the gradient's array behind it.
struct Barrier {
  Output flow;
  GradientArray array;
};

absl::StatusOr<Barrier> EmitBarrier(GradientContext& c) {
  const Scope& scope = c.scope();
  ASSIGN_OR_RETURN(const std::string source, GradientSource(c.dy()));
  const Output flow_out = c.Op("Identity", {c.output()}, {}, "flow_out");
  if (!flow_out) return scope.status();
  Node* const before[] = {flow_out.node};
  const Output flow =
      scope.WithControlDependencies(before).Op("Identity", {c.dy()}, {}, "write_barrier");
  if (!flow) return scope.status();
  return Barrier{flow, EmitGradientArray(scope, c.input(0), flow, source)};
}

absl::Status WriteGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Barrier barrier, EmitBarrier(c));
  const DType dtype = c.Attr<DType>("T");
  c.SetDx(2, c.Op("TensorArrayReadV3", {barrier.array.handle, c.input(1), barrier.array.flow},
                  {{"dtype", dtype}}));
  c.SetDx(3, barrier.flow);
  return absl::OkStatus();
}

absl::Status ScatterGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Barrier barrier, EmitBarrier(c));
  const DType dtype = c.Attr<DType>("T");
  c.SetDx(2, c.Op("TensorArrayGatherV3", {barrier.array.handle, c.input(1), barrier.array.flow},
                  {{"dtype", dtype}}));
  c.SetDx(3, barrier.flow);
  return absl::OkStatus();
}

absl::Status SplitGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Barrier barrier, EmitBarrier(c));
  const DType dtype = c.Attr<DType>("T");
  c.SetDx(1, c.Op("TensorArrayConcatV3", {barrier.array.handle, barrier.array.flow},
                  {{"dtype", dtype}}));
  c.SetDx(3, barrier.flow);
  return absl::OkStatus();
}

constexpr const char* kNotDifferentiable = "It gives no values of elements.";

// TensorFlow's types of the ops differ, and int32 is missing in some: arrays of such types are in
// host memory.
std::vector<DType> GpuElementsAnd(std::initializer_list<DType> more) {
  std::vector<DType> dtypes = GpuFloatsAnd({DType::kComplex64, DType::kComplex128});
  dtypes.insert(dtypes.end(), more);
  return dtypes;
}

}  // namespace

DEFINE_OP(TensorArrayV3) {
  op.Attr("dtype: type")
      .Attr("element_shape: shape = { unknown_rank: true }")
      .Attr("dynamic_size: bool = false")
      .Attr("clear_after_read: bool = true")
      .Attr("identical_element_shapes: bool = false")
      .Attr("tensor_array_name: string = ''")
      .Input("size: int32")
      .Output("handle: resource")
      .Output("flow: float")
      .Stateful()
      .Doc("A new array of tensors for this step.")
      .Shape(NewShape)
      .NoGradient(kNotDifferentiable)
      .HostMemory({"size", "handle"})
      .Cpu(TensorArrayNew())
      .GpuTypes("dtype", GpuElementsAnd({DType::kInt64}), [](DType) { return TensorArrayNew(); });
}

DEFINE_OP(TensorArrayWriteV3) {
  op.Attr("T: type")
      .Input("handle: resource")
      .Input("index: int32")
      .Input("value: T")
      .Input("flow_in: float")
      .Output("flow_out: float")
      .Stateful()
      .Doc("Puts a tensor at an index.")
      .Shape(WriteShape)
      .Gradient(WriteGradient)
      .HostMemory({"handle", "index"})
      .Cpu(TensorArrayWrite())
      .GpuTypes("T", GpuElementsAnd({}), [](DType) { return TensorArrayWrite(); });
}

DEFINE_OP(TensorArrayReadV3) {
  op.Attr("dtype: type")
      .Input("handle: resource")
      .Input("index: int32")
      .Input("flow_in: float")
      .Output("value: dtype")
      .Stateful()
      .Doc("The tensor at an index.")
      .Shape(ReadShape)
      .Gradient(ReadGradient)
      .HostMemory({"handle", "index"})
      .Cpu(TensorArrayRead())
      .GpuTypes("dtype", GpuElementsAnd({DType::kInt64}), [](DType) { return TensorArrayRead(); });
}

DEFINE_OP(TensorArrayGatherV3) {
  op.Attr("dtype: type")
      .Attr("element_shape: shape = { unknown_rank: true }")
      .Input("handle: resource")
      .Input("indices: int32")
      .Input("flow_in: float")
      .Output("value: dtype")
      .Stateful()
      .Doc("The tensors at the given indices, stacked.")
      .Shape(GatherShape)
      .Gradient(GatherGradient)
      .HostMemory({"handle", "indices"})
      .Cpu(TensorArrayGather())
      .GpuTypes("dtype", GpuElementsAnd({DType::kInt32}), TensorArrayGatherOnGpu);
}

DEFINE_OP(TensorArrayScatterV3) {
  op.Attr("T: type")
      .Input("handle: resource")
      .Input("indices: int32")
      .Input("value: T")
      .Input("flow_in: float")
      .Output("flow_out: float")
      .Stateful()
      .Doc("Puts the rows of a tensor at the given indices.")
      .Shape(ScatterShape)
      .Gradient(ScatterGradient)
      .HostMemory({"handle", "indices"})
      .Cpu(TensorArrayScatter())
      .GpuTypes("T", GpuElementsAnd({DType::kInt64}), TensorArrayScatterOnGpu);
}

DEFINE_OP(TensorArrayConcatV3) {
  op.Attr("dtype: type")
      .Attr("element_shape_except0: shape = { unknown_rank: true }")
      .Input("handle: resource")
      .Input("flow_in: float")
      .Output("value: dtype")
      .Output("lengths: int64")
      .Stateful()
      .Doc("All tensors joined along their first axis, and their lengths.")
      .Shape(ConcatShape)
      .Gradient(ConcatGradient)
      .HostMemory({"handle", "lengths"})
      .Cpu(TensorArrayConcat())
      .GpuTypes("dtype", GpuElementsAnd({DType::kInt32}), TensorArrayConcatOnGpu);
}

DEFINE_OP(TensorArraySplitV3) {
  op.Attr("T: type")
      .Input("handle: resource")
      .Input("value: T")
      .Input("lengths: int64")
      .Input("flow_in: float")
      .Output("flow_out: float")
      .Stateful()
      .Doc("Puts pieces of the given lengths of a tensor into the array.")
      .Shape(SplitShape)
      .Gradient(SplitGradient)
      .HostMemory({"handle", "lengths"})
      .Cpu(TensorArraySplit())
      .GpuTypes("T", GpuElementsAnd({}), TensorArraySplitOnGpu);
}

DEFINE_OP(TensorArraySizeV3) {
  op.Input("handle: resource")
      .Input("flow_in: float")
      .Output("size: int32")
      .Stateful()
      .Doc("How many elements an array has.")
      .Shape(SizeShape)
      .NoGradient(kNotDifferentiable)
      .HostMemory({"handle", "size"})
      .Cpu(TensorArraySize())
      .GpuUntyped(TensorArraySize());
}

DEFINE_OP(TensorArrayGradV3) {
  op.Attr("source: string")
      .Input("handle: resource")
      .Input("flow_in: float")
      .Output("grad_handle: resource")
      .Output("flow_out: float")
      .Stateful()
      .Doc("The array that collects the gradients of an array's elements.")
      .Shape(GradShape)
      .NoGradient(kNotDifferentiable)
      .HostMemory({"handle", "grad_handle"})
      .Cpu(TensorArrayGradient())
      .GpuUntyped(TensorArrayGradient());
}

DEFINE_OP(TensorArrayGradWithShape) {
  op.Attr("source: string")
      .Input("handle: resource")
      .Input("flow_in: float")
      .Input("shape_to_prepend: int32")
      .Output("grad_handle: resource")
      .Output("flow_out: float")
      .Stateful()
      .Doc("TensorArrayGradV3 for gradients with further leading axes.")
      .Shape(GradShape)
      .NoGradient(kNotDifferentiable)
      .HostMemory({"handle", "shape_to_prepend", "grad_handle"})
      .Cpu(TensorArrayGradient())
      .GpuUntyped(TensorArrayGradient());
}

DEFINE_OP(TensorArrayCloseV3) {
  op.Input("handle: resource")
      .Stateful()
      .Doc("Empties an array and refuses its further use.")
      .Shape(CloseShape)
      .NoGradient(kNotDifferentiable)
      .HostMemory({"handle"})
      .Cpu(TensorArrayClose())
      .GpuUntyped(TensorArrayClose());
}

}  // namespace muster
