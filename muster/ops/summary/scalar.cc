// ScalarSummary and MergeSummary.
#include "muster/ops/op.h"
#include "muster/ops/summary/summary_proto.h"

namespace muster {
namespace {

template <typename T>
absl::Status Run(KernelContext& c) {
  const Tensor& tags = c.input(0);
  const Tensor& values = c.input(1);
  if (tags.shape() != values.shape()) {
    const std::string tag =
        tags.num_elements() == 1 ? absl::StrCat(" (tag '", tags.scalar<std::string>(), "')") : "";
    return InvalidArgument("tags and values not the same shape: ", tags.shape().ToString(),
                           " != ", values.shape().ToString(), tag);
  }
  SummaryBuilder summary;
  for (int64_t i = 0; i < tags.num_elements(); ++i) {
    summary.AddScalar(tags.data<std::string>()[i],
                      static_cast<float>(static_cast<Compute<T>>(values.data<T>()[i])));
  }
  ASSIGN_OR_RETURN(std::string bytes, summary.Serialize());
  c.SetOutput(0, Tensor::Scalar(std::move(bytes)));
  return absl::OkStatus();
}

absl::Status RunMerge(KernelContext& c) {
  SummaryBuilder summary;
  for (int i = 0; i < c.num_inputs(); ++i) {
    for (const std::string& serialized : c.input(i).values<std::string>()) {
      RETURN_IF_ERROR(summary.Merge(serialized));
    }
  }
  ASSIGN_OR_RETURN(std::string bytes, summary.Serialize());
  c.SetOutput(0, Tensor::Scalar(std::move(bytes)));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(ScalarSummary) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64}")
      .Input("tags: string")
      .Input("values: T")
      .Output("summary: string")
      .Doc("A Summary with one number for each tag.")
      .Shape(ScalarShape)
      .NoGradient("a summary is text")
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(Run<T>); });
}

DEFINE_OP(MergeSummary) {
  op.Attr("N: int >= 1")
      .Input("inputs: N * string")
      .Output("summary: string")
      .Doc("The values of all the summaries in one; no tag may occur twice.")
      .Shape(ScalarShape)
      .NoGradient("a summary is text")
      .Cpu(RunMerge);
}

}  // namespace muster
