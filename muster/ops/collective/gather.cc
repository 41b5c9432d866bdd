// The tensors of all ranks one after the other, and parts of them exchanged.
#include "muster/ops/collective/collective_kernel.h"

namespace muster {
namespace {

template <int kFirstKey>
class Gather : public CollectiveKernel {
 public:
  Gather() : CollectiveKernel(CollectiveType::kGather, kFirstKey) {}

 private:
  absl::Status Prepare(KernelContext& c, CollectiveCall& call) override {
    ASSIGN_OR_RETURN(call.params.shape, GatheredShape(c.input(0).shape(), call.params.group_size));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, call.params.shape));
    call.input = c.input(0);
    call.output = *output;
    return absl::OkStatus();
  }
};

class AllToAll : public CollectiveKernel {
 public:
  AllToAll() : CollectiveKernel(CollectiveType::kAllToAll, 1) {}

 private:
  absl::Status Prepare(KernelContext& c, CollectiveCall& call) override {
    const Tensor& input = c.input(0);
    if (input.rank() == 0 || input.dim(0) % call.params.group_size != 0) {
      return InvalidArgument(
          "input to all-to-all first dimension size (", input.rank() == 0 ? 0 : input.dim(0),
          ") must be a multiple of the group size (", call.params.group_size, ")");
    }
    call.params.shape = input.shape();
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    call.input = input;
    call.output = *output;
    return absl::OkStatus();
  }
};

absl::Status GatherShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t size, c.Attr<int64_t>("group_size"));
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), 1));
  if (shape.known_rank()) shape.Set(0, shape.dim(0) < 0 ? -1 : c.MultiplyDims(shape.dim(0), size));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status GatherV2Shape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), 1));
  if (shape.known_rank()) shape.Set(0, -1);
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(CollectiveGather) {
  KeyAttributes(op.Attr("T: {float, half, double, int32, int64}"))
      .Attr("shape: shape")
      .Attr("communication_hint: string = 'auto'")
      .Attr2x("timeout_seconds: float = 0.0")
      .Input("input: T")
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("The tensors of all ranks of a group, along the first dimension.")
      .Shape(GatherShape)
      .Cpu(New<Gather<CollectiveKernel::kAttributes>>())
      .Gpu(New<Gather<CollectiveKernel::kAttributes>>(), {}, kThroughHost);
}

DEFINE_OP(CollectiveGatherV2) {
  KeyInputs(op.Attr("T: {float, half, double, int32, int64}")
                .Attr("communication_hint: string = 'auto'")
                .Attr("timeout_seconds: float = 0.0")
                .Attr("is_stateless: bool = false")
                .Attr("Nordering_token: int >= 0 = 0")
                .Input("input: T"))
      .Input("ordering_token: Nordering_token * resource")
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("CollectiveGather with a group and an instance that are inputs.")
      .Shape(GatherV2Shape)
      .Cpu(New<Gather<1>>())
      .Gpu(New<Gather<1>>(), {}, kThroughHost);
}

DEFINE_OP(CollectiveAllToAllV2) {
  KeyInputs(op.Attr("T: {bfloat16, float, half, double, int32, int64}")
                .Attr("communication_hint: string = 'auto'")
                .Attr("timeout_seconds: float = 0.0")
                .Attr("is_stateless: bool = false")
                .Attr("Nordering_token: int >= 0 = 0")
                .Input("input: T"))
      .Input("ordering_token: Nordering_token * resource")
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("Sends part i of the first dimension to rank i, and puts theirs in its place.")
      .Shape(UnchangedShape)
      .Cpu(New<AllToAll>());
}

}  // namespace muster
