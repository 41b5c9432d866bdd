// The element-wise sum, product, minimum, maximum or mean of the tensors of all ranks.
#include <cstring>

#include "muster/ops/collective/collective_kernel.h"

namespace muster {
namespace {

constexpr char kTypes[] = "T: {bfloat16, float, half, double, int32, int64}";
constexpr char kMerge[] = "merge_op: {'Min', 'Max', 'Mul', 'Add'}";
constexpr char kFinal[] = "final_op: {'Id', 'Div'}";

absl::StatusOr<MergeOp> ReadMergeOp(const KernelSetup& s) {
  ASSIGN_OR_RETURN(const std::string name, s.Attr<std::string>("merge_op"));
  if (name == "Add") return MergeOp::kAdd;
  if (name == "Mul") return MergeOp::kMul;
  if (name == "Min") return MergeOp::kMin;
  if (name == "Max") return MergeOp::kMax;
  return InvalidArgument("merge_op must be one of {\"Min\", \"Max\", \"Mul\", \"Add\"} but got ",
                         name);
}

absl::StatusOr<FinalOp> ReadFinalOp(const KernelSetup& s) {
  ASSIGN_OR_RETURN(const std::string name, s.Attr<std::string>("final_op"));
  if (name == "Id") return FinalOp::kId;
  if (name == "Div") return FinalOp::kDiv;
  return InvalidArgument("final_op must be one of {\"Id\", \"Div\"} but got ", name);
}

template <int kFirstKey>
class Reduce : public CollectiveKernel {
 public:
  Reduce() : CollectiveKernel(CollectiveType::kReduce, kFirstKey) {}
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(CollectiveKernel::Init(s));
    ASSIGN_OR_RETURN(merge_, ReadMergeOp(s));
    ASSIGN_OR_RETURN(final_, ReadFinalOp(s));
    if (kFirstKey == kAttributes) {
      ASSIGN_OR_RETURN(const auto offsets, s.Attr<std::vector<int64_t>>("subdiv_offsets"));
      for (const int64_t offset : offsets) {
        if (offset < -INT32_MAX || offset > INT32_MAX)
          return InvalidArgument("subdiv_offsets has ", offset, ", which is not a 32-bit integer");
        offsets_.push_back(static_cast<int>(offset));
      }
      max_subdivs_ = 0;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const int64_t most, s.Attr<int64_t>("max_subdivs_per_device"));
    if (most < -1 || most > INT32_MAX) {
      return InvalidArgument("max_subdivs_per_device is ", most,
                             "; it is -1 for one subdivision, or the most of them");
    }
    max_subdivs_ = static_cast<int>(most);
    return absl::OkStatus();
  }

 private:
  absl::Status Prepare(KernelContext& c, CollectiveCall& call) override {
    const Tensor& input = c.input(0);
    call.params.shape = input.shape();
    call.params.merge = merge_;
    call.params.final = final_;
    call.params.subdiv_offsets = offsets_;
    call.params.max_subdivs_per_device = max_subdivs_;
    ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, input.shape()));
    if (output->raw() != input.raw() && input.size_bytes() > 0)
      std::memcpy(output->raw(), input.raw(), input.size_bytes());
    call.output = *output;
    return absl::OkStatus();
  }

  MergeOp merge_ = MergeOp::kAdd;
  FinalOp final_ = FinalOp::kId;
  std::vector<int> offsets_;
  int max_subdivs_ = -1;
};

// Each rank gets its part of the reduction, cut along the first dimension.
class ReduceScatter : public CollectiveKernel {
 public:
  ReduceScatter() : CollectiveKernel(CollectiveType::kReduceScatter, 1) {}
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(CollectiveKernel::Init(s));
    ASSIGN_OR_RETURN(merge_, ReadMergeOp(s));
    ASSIGN_OR_RETURN(final_, ReadFinalOp(s));
    return absl::OkStatus();
  }

 private:
  absl::Status Prepare(KernelContext& c, CollectiveCall& call) override {
    const Tensor& input = c.input(0);
    if (input.rank() == 0 || input.dim(0) % call.params.group_size != 0) {
      return InvalidArgument("A reduce-scatter among ", call.params.group_size,
                             " ranks cuts the first dimension into equal parts; the shape is ",
                             input.shape().ToString());
    }
    Dims dims(input.shape().dims().begin(), input.shape().dims().end());
    dims[0] /= call.params.group_size;
    ASSIGN_OR_RETURN(call.params.shape, Shape::Make(dims));
    call.params.merge = merge_;
    call.params.final = final_;
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, call.params.shape));
    call.input = input;
    call.output = *output;
    return absl::OkStatus();
  }

  MergeOp merge_ = MergeOp::kAdd;
  FinalOp final_ = FinalOp::kId;
};

absl::Status UnknownFirstDimension(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), 1));
  if (shape.known_rank()) shape.Set(0, -1);
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(CollectiveReduce) {
  KeyAttributes(op.Attr(kTypes))
      .Attr(kMerge)
      .Attr(kFinal)
      .Attr("subdiv_offsets: list(int)")
      .Attr("wait_for: list(int) = []")
      .Attr("communication_hint: string = 'auto'")
      .Attr2x("timeout_seconds: float = 0.0")
      .Input("input: T")
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("Brings the tensors of all ranks of a group together, element by element.")
      .Shape(UnchangedShape)
      .Cpu(New<Reduce<CollectiveKernel::kAttributes>>())
      .Gpu(New<Reduce<CollectiveKernel::kAttributes>>(), {}, kThroughHost);
}

DEFINE_OP(CollectiveReduceV2) {
  KeyInputs(op.Attr(kTypes)
                .Attr(kMerge)
                .Attr(kFinal)
                .Attr("communication_hint: string = 'auto'")
                .Attr("timeout_seconds: float = 0.0")
                .Attr("is_stateless: bool = false")
                .Attr("Nordering_token: int >= 0 = 0")
                .Attr("max_subdivs_per_device: int = -1")
                .Input("input: T"))
      .Input("ordering_token: Nordering_token * resource")
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("CollectiveReduce with a group and an instance that are inputs.")
      .Shape(UnchangedShape)
      .Cpu(New<Reduce<1>>())
      .Gpu(New<Reduce<1>>(), {}, kThroughHost);
}

DEFINE_OP(CollectiveReduceScatterV2) {
  KeyInputs(op.Attr(kTypes)
                .Attr(kMerge)
                .Attr(kFinal)
                .Attr("communication_hint: string = 'auto'")
                .Attr("timeout_seconds: float = 0.0")
                .Attr("is_stateless: bool = false")
                .Attr("Nordering_token: int >= 0 = 0")
                .Attr("max_subdivs_per_device: int = -1")
                .Input("input: T"))
      .Input("ordering_token: Nordering_token * resource")
      .Output("data: T")
      .Stateful()
      .DistributedCommunication()
      .Doc("The part of CollectiveReduceV2 that falls to this rank.")
      .Shape(UnknownFirstDimension)
      .Cpu(New<ReduceScatter>());
}

}  // namespace muster
