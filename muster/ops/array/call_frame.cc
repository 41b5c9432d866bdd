// Arguments and results of a partition or function body, and the list ops that functions use.
#include "muster/ops/op.h"

namespace muster {
namespace {

class ArgKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(index_, setup.Attr<int64_t>("index"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    if (c.step().call_frame == nullptr) return Internal("no call frame for argument ", index_);
    ASSIGN_OR_RETURN(Tensor value, c.step().call_frame->GetArg(static_cast<int>(index_)));
    if (value.dtype() != c.output_type(0)) {
      return InvalidArgument("Type mismatch: actual ", DTypeName(value.dtype()), " vs. expect ",
                             DTypeName(c.output_type(0)));
    }
    c.SetOutput(0, std::move(value));
    return absl::OkStatus();
  }

 private:
  int64_t index_ = 0;
};

class RetvalKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(index_, setup.Attr<int64_t>("index"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    if (c.step().call_frame == nullptr) return Internal("no call frame for result ", index_);
    return c.step().call_frame->SetRetval(static_cast<int>(index_), c.TakeInput(0));
  }

 private:
  int64_t index_ = 0;
};

// The caller may have noted what it knows about the argument.
absl::Status ArgShape(ShapeContext& c) {
  PartialShape shape;
  if (const AttrValue* noted = c.node().FindAttr("_output_shapes")) {
    const std::vector<PartialShape>* shapes = noted->get<std::vector<PartialShape>>();
    if (shapes != nullptr && shapes->size() == 1) shape = shapes->front();
  }
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status SameShapes(ShapeContext& c) {
  if (c.num_inputs() != c.num_outputs()) {
    return InvalidArgument("Expected as many inputs as outputs, but got ", c.num_inputs(), " and ",
                           c.num_outputs());
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.SetOutput(i, c.input(i));
    c.SetOutputHandle(i, c.input_handle(i));
  }
  return absl::OkStatus();
}

absl::Status Forward(KernelContext& c) {
  if (c.num_inputs() != c.num_outputs()) {
    return InvalidArgument("Expected as many inputs as outputs, but got ", c.num_inputs(), " and ",
                           c.num_outputs());
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (c.input_type(i) != c.output_type(i)) {
      return InvalidArgument("Input ", i, " has type ", DTypeName(c.input_type(i)), " but output ",
                             i, " has type ", DTypeName(c.output_type(i)));
    }
    c.SetOutput(i, c.TakeInput(i));
  }
  return absl::OkStatus();
}

DEFINE_OP(_Arg) {
  op.Attr("T: type")
      .Attr("index: int >= 0")
      .Output("output: T")
      .Stateful()
      .Doc("An argument of the function or partition.")
      .Shape(ArgShape)
      .HostMemory({"output"})
      .Cpu(New<ArgKernel>())
      .Gpu(New<ArgKernel>());
}

DEFINE_OP(_DeviceArg) {
  op.Attr("T: type")
      .Attr("index: int >= 0")
      .Output("output: T")
      .Stateful()
      .Doc("An argument of the function or partition, in device memory.")
      .Shape(ArgShape)
      .Cpu(New<ArgKernel>())
      .Gpu(New<ArgKernel>());
}

DEFINE_OP(_Retval) {
  op.Attr("T: type")
      .Attr("index: int >= 0")
      .Input("input: T")
      .Stateful()
      .Doc("A result of the function or partition.")
      .Shape(NoOutputs)
      .HostMemory({"input"})
      .Cpu(New<RetvalKernel>())
      .Gpu(New<RetvalKernel>());
}

DEFINE_OP(_DeviceRetval) {
  op.Attr("T: type")
      .Attr("index: int >= 0")
      .Input("input: T")
      .Stateful()
      .Doc("A result of the function or partition, in device memory.")
      .Shape(NoOutputs)
      .Cpu(New<RetvalKernel>())
      .Gpu(New<RetvalKernel>());
}

DEFINE_OP(_ListToArray) {
  op.Attr("Tin: list(type) >= 1")
      .Attr("T: type")
      .Attr("N: int >= 1")
      .Input("input: Tin")
      .Output("output: N * T")
      .Doc("A list of tensors of one type as an array argument.")
      .Shape(SameShapes)
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"input", "output"});
}

DEFINE_OP(_ArrayToList) {
  op.Attr("T: type")
      .Attr("N: int >= 1")
      .Attr("out_types: list(type) >= 1")
      .Input("input: N * T")
      .Output("output: out_types")
      .Doc("An array argument as a list of tensors.")
      .Shape(SameShapes)
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"input", "output"});
}

}  // namespace
}  // namespace muster
