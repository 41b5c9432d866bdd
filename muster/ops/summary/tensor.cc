// TensorSummary and TensorSummaryV2: a tensor as it is.
#include "muster/ops/op.h"
#include "muster/ops/summary/summary_proto.h"

namespace muster {
namespace {

absl::Status RunV1(KernelContext& c) {
  SummaryBuilder summary;
  RETURN_IF_ERROR(summary.AddTensorOfNode(c.node().name(), c.input(0)));
  ASSIGN_OR_RETURN(std::string bytes, summary.Serialize());
  c.SetOutput(0, Tensor::Scalar(std::move(bytes)));
  return absl::OkStatus();
}

absl::Status RunV2(KernelContext& c) {
  const Tensor& tag = c.input(0);
  const Tensor& metadata = c.input(2);
  if (tag.rank() != 0) return InvalidArgument("tag must be scalar");
  if (metadata.rank() != 0) return InvalidArgument("serialized_summary_metadata must be scalar");
  SummaryBuilder summary;
  RETURN_IF_ERROR(
      summary.AddTensor(tag.scalar<std::string>(), c.input(1), metadata.scalar<std::string>()));
  ASSIGN_OR_RETURN(std::string bytes, summary.Serialize());
  c.SetOutput(0, Tensor::Scalar(std::move(bytes)));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(TensorSummary) {
  op.Attr("T: type")
      .Attr("description: string = ''")
      .Attr("labels: list(string) = []")
      .Attr("display_name: string = ''")
      .Input("tensor: T")
      .Output("summary: string")
      .Doc("A Summary with the tensor, under the name of the node.")
      .Shape(ScalarShape)
      .NoGradient("a summary is text")
      .CpuDTypes("T", AllDTypes(), Stateless(RunV1));
}

DEFINE_OP(TensorSummaryV2) {
  op.Attr("T: type")
      .Input("tag: string")
      .Input("tensor: T")
      .Input("serialized_summary_metadata: string")
      .Output("summary: string")
      .Doc("A Summary with the tensor, and metadata that say which part of TensorBoard shows it.")
      .Shape(ScalarShape)
      .NoGradient("a summary is text")
      .CpuDTypes("T", AllDTypes(), Stateless(RunV2));
}

}  // namespace muster
