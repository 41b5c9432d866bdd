// UnsortedSegmentJoin: strings that belong to the same segment, one after the other.
#include "absl/strings/str_cat.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

class SegmentJoin : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(separator_, setup.Attr<std::string>("separator"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& inputs = c.input(0);
    const Tensor& ids = c.input(1);
    if (inputs.rank() == 0) return InvalidArgument("Inputs cannot have rank 0");
    if (ids.rank() == 0) return InvalidArgument("segment_ids cannot have rank 0");
    ASSIGN_OR_RETURN(const int64_t segments, ScalarInteger(c.input(2), "num_segments"));
    if (segments < 0) return InvalidArgument("num_segments must be >= 0 but is ", segments);
    if (ids.rank() > inputs.rank() || ids.num_elements() == 0) {
      return InvalidArgument("segment_ids must not be empty nor have more dimensions than inputs");
    }
    for (int d = 0; d < ids.rank(); ++d) {
      if (ids.dim(d) == inputs.dim(d)) continue;
      return InvalidArgument("Segment dimension is ", ids.dim(d), " while input dimension is ",
                             inputs.dim(d), " in rank ", d);
    }
    ASSIGN_OR_RETURN(const Dims rows, IntegerValues(ids));
    for (const int64_t row : rows) {
      if (row < 0 || row >= segments) {
        return InvalidArgument(
            "segment_ids are not allowed to exceed num_segments or to have negative values.");
      }
    }
    Dims dims = {segments};
    for (int d = ids.rank(); d < inputs.rank(); ++d) dims.push_back(inputs.dim(d));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    const int64_t inner = inputs.shape().ElementsIn(ids.rank(), inputs.rank());
    const std::string* from = inputs.data<std::string>();
    for (const int64_t row : rows) {
      std::string* to = output->data<std::string>() + row * inner;
      for (int64_t i = 0; i < inner; ++i)
        absl::StrAppend(to + i, to[i].empty() ? "" : separator_, *from++);
    }
    return absl::OkStatus();
  }

 private:
  std::string separator_;
};

absl::Status SegmentJoinShape(ShapeContext& c) {
  const PartialShape& inputs = c.input(0);
  const PartialShape& ids = c.input(1);
  RETURN_IF_ERROR(c.WithRank(c.input(2), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> segments, c.ScalarInput(2));
  if (!inputs.known_rank() || !ids.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(c.WithRankAtLeast(inputs, ids.rank()).status());
  for (int i = 0; i < ids.rank(); ++i)
    RETURN_IF_ERROR(ShapeContext::MergeDims(inputs[i], ids[i]).status());
  c.SetOutput(0, ShapeContext::Concatenate(PartialShape::Vector(segments.value_or(-1)),
                                           ShapeContext::Subshape(inputs, ids.rank())));
  return absl::OkStatus();
}

DEFINE_OP(UnsortedSegmentJoin) {
  op.Attr("separator: string = ''")
      .Attr("Tindices: {int32, int64}")
      .Attr("Tnumsegments: {int32, int64} = DT_INT32")
      .Input("inputs: string")
      .Input("segment_ids: Tindices")
      .Input("num_segments: Tnumsegments")
      .Output("output: string")
      .Doc("Joins the strings of each segment in the order in which they come.")
      .Shape(SegmentJoinShape)
      .NoGradient("strings")
      .Cpu(New<SegmentJoin>());
}

}  // namespace
}  // namespace muster
