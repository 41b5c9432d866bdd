// The tensor of one rank, on all of them.
#include "muster/ops/collective/collective_kernel.h"

namespace muster {
namespace {

constexpr char kTypes[] = "T: {bool, float, half, double, int32, int64}";

template <int kFirstKey>
class Send : public CollectiveKernel {
 public:
  Send() : CollectiveKernel(CollectiveType::kBroadcast, kFirstKey) {}
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(CollectiveKernel::Init(s));
    if (kFirstKey == kAttributes) {
      ASSIGN_OR_RETURN(declared_, s.Attr<PartialShape>("shape"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Prepare(KernelContext& c, CollectiveCall& call) override {
    const Tensor& input = c.input(0);
    if (kFirstKey == kAttributes && !declared_.CompatibleWith(input.shape())) {
      return Internal("Declared shape of op ", c.node().name(),
                      " does not match shape of input: ", declared_.ToString(), " and ",
                      input.shape().ToString());
    }
    call.params.shape = input.shape();
    call.params.is_source = true;
    call.input = call.output = input;
    c.SetOutput(0, input);
    return absl::OkStatus();
  }

  PartialShape declared_;
};

template <int kFirstKey>
class Recv : public CollectiveKernel {
 public:
  Recv() : CollectiveKernel(CollectiveType::kBroadcast, kFirstKey) {}
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(CollectiveKernel::Init(s));
    if (kFirstKey != kAttributes) return absl::OkStatus();
    ASSIGN_OR_RETURN(const PartialShape shape, s.Attr<PartialShape>("shape"));
    if (!shape.fully_known()) {
      return InvalidArgument("shape is ", shape.ToString(),
                             "; a broadcast is received with a shape that is fully known");
    }
    ASSIGN_OR_RETURN(shape_, Shape::Make(shape.dims()));
    return absl::OkStatus();
  }

 private:
  absl::Status Prepare(KernelContext& c, CollectiveCall& call) override {
    call.params.shape = shape_;
    if (kFirstKey != kAttributes) {
      ASSIGN_OR_RETURN(const Dims dims, IntegerVector(c.input(3), "shape"));
      ASSIGN_OR_RETURN(call.params.shape, Shape::Make(dims));
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, call.params.shape));
    call.output = *output;
    return absl::OkStatus();
  }

  Shape shape_;
};

absl::Status DeclaredShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.Attr<PartialShape>("shape"));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status ShapeOfInput(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(3));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(CollectiveBcastSend) {
  KeyAttributes(op.Attr(kTypes))
      .Attr("shape: shape")
      .Attr("communication_hint: string = 'auto'")
      .Attr2x("timeout_seconds: float = 0.0")
      .Input("input: T")
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("Gives a tensor to the other ranks of a group.")
      .Shape(DeclaredShape)
      .Cpu(New<Send<CollectiveKernel::kAttributes>>())
      .Gpu(New<Send<CollectiveKernel::kAttributes>>(), {}, kThroughHost);
}

DEFINE_OP(CollectiveBcastRecv) {
  KeyAttributes(op.Attr(kTypes))
      .Attr("shape: shape")
      .Attr("communication_hint: string = 'auto'")
      .Attr2x("timeout_seconds: float = 0.0")
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("Takes the tensor that one rank of a group gives to the others.")
      .Shape(DeclaredShape)
      .Cpu(New<Recv<CollectiveKernel::kAttributes>>())
      .Gpu(New<Recv<CollectiveKernel::kAttributes>>(), {}, kThroughHost);
}

DEFINE_OP(CollectiveBcastSendV2) {
  KeyInputs(op.Attr(kTypes)
                .Attr("communication_hint: string = 'auto'")
                .Attr("timeout_seconds: float = 0.0")
                .Input("input: T"))
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("CollectiveBcastSend with a group and an instance that are inputs.")
      .Shape(UnchangedShape)
      .Cpu(New<Send<1>>())
      .Gpu(New<Send<1>>(), {}, kThroughHost);
}

DEFINE_OP(CollectiveBcastRecvV2) {
  KeyInputs(op.Attr(kTypes)
                .Attr("Tshape: {int32, int64} = DT_INT32")
                .Attr("communication_hint: string = 'auto'")
                .Attr("timeout_seconds: float = 0.0"))
      .Input("shape: Tshape")
      .HostMemory({"group_size", "group_key", "instance_key", "shape"})
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("CollectiveBcastRecv with a group and an instance that are inputs.")
      .Shape(ShapeOfInput)
      .Cpu(New<Recv<0>>())
      .Gpu(New<Recv<0>>(), {}, kThroughHost);
}

}  // namespace muster
