// NonMaxSuppression: the best boxes of those that overlap.
#include <algorithm>
#include <numeric>

#include "muster/ops/op.h"

namespace muster {
namespace {

// The share that two boxes have in common of what they cover; corners may come in any order.
float Overlap(const float* a, const float* b) {
  const auto area = [](const float* box) {
    return std::abs(box[2] - box[0]) * std::abs(box[3] - box[1]);
  };
  const float area_a = area(a), area_b = area(b);
  if (!(area_a > 0) || !(area_b > 0)) return 0;
  const auto shared = [&](int low, int high) {
    const float begin = std::max(std::min(a[low], a[high]), std::min(b[low], b[high]));
    const float end = std::min(std::max(a[low], a[high]), std::max(b[low], b[high]));
    return std::max(end - begin, 0.0f);
  };
  const float both = shared(0, 2) * shared(1, 3);
  return both / (area_a + area_b - both);
}

absl::StatusOr<float> ScalarFloat(const Tensor& tensor, const char* what) {
  if (tensor.rank() != 0) {
    return InvalidArgument(what, " must be 0-D, got shape ", tensor.shape().ToString());
  }
  return tensor.dtype() == DType::kHalf ? static_cast<float>(tensor.scalar<Half>())
                                        : tensor.scalar<float>();
}

std::vector<float> AsFloats(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.dtype() == DType::kHalf ? static_cast<float>(tensor.data<Half>()[i])
                                               : tensor.data<float>()[i];
  }
  return values;
}

struct Thresholds {
  float overlap = 0.5f;
  float score = 0;
  bool has_score = false;
};

absl::StatusOr<std::vector<int32_t>> Select(KernelContext& c, const Thresholds& thresholds) {
  const Tensor& boxes = c.input(0);
  const Tensor& scores = c.input(1);
  if (!(thresholds.overlap >= 0 && thresholds.overlap <= 1))
    return InvalidArgument("iou_threshold must be in [0, 1]");
  if (boxes.rank() != 2) return InvalidArgument("boxes must be 2-D", boxes.shape().ToString());
  if (boxes.dim(1) != 4) return InvalidArgument("boxes must have 4 columns");
  if (scores.rank() != 1) return InvalidArgument("scores must be 1-D", scores.shape().ToString());
  if (scores.dim(0) != boxes.dim(0)) return InvalidArgument("scores has incompatible shape");
  ASSIGN_OR_RETURN(const int64_t limit, ScalarInteger(c.input(2), "max_output_size"));
  if (limit < 0) return InvalidArgument("output size must be non-negative");
  const std::vector<float> box = AsFloats(boxes);
  const std::vector<float> score = AsFloats(scores);
  std::vector<int32_t> order;
  for (size_t i = 0; i < score.size(); ++i) {
    if (!thresholds.has_score || score[i] > thresholds.score)
      order.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return score[a] > score[b]; });
  std::vector<int32_t> selected;
  for (const int32_t candidate : order) {
    if (static_cast<int64_t>(selected.size()) >= limit) break;
    const bool suppressed = std::any_of(selected.begin(), selected.end(), [&](int32_t better) {
      return Overlap(&box[candidate * 4], &box[better * 4]) > thresholds.overlap;
    });
    if (!suppressed) selected.push_back(candidate);
  }
  return selected;
}

class SuppressKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    const absl::StatusOr<float> overlap = s.Attr<float>("iou_threshold");
    if (overlap.ok()) overlap_ = *overlap;
    const absl::StatusOr<bool> pads = s.Attr<bool>("pad_to_max_output_size");
    pads_ = pads.ok() && *pads;
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    Thresholds thresholds{overlap_, 0, false};
    if (c.num_inputs() > 3) {
      ASSIGN_OR_RETURN(thresholds.overlap, ScalarFloat(c.input(3), "iou_threshold"));
    }
    if (c.num_inputs() > 4) {
      ASSIGN_OR_RETURN(thresholds.score, ScalarFloat(c.input(4), "score_threshold"));
      thresholds.has_score = true;
    }
    ASSIGN_OR_RETURN(const std::vector<int32_t> selected, Select(c, thresholds));
    const auto valid = static_cast<int32_t>(selected.size());
    int64_t size = valid;
    if (pads_) {
      ASSIGN_OR_RETURN(size, ScalarInteger(c.input(2), "max_output_size"));
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({size})));
    auto* const rest = std::copy(selected.begin(), selected.end(), output->data<int32_t>());
    std::fill(rest, output->data<int32_t>() + size, 0);
    if (c.num_outputs() > 1) c.SetOutput(1, Tensor::Scalar<int32_t>(valid));
    return absl::OkStatus();
  }

 private:
  float overlap_ = 0.5f;
  bool pads_ = false;
};

absl::Status InferShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape scores, c.WithRank(c.input(1), 1));
  for (int i = 2; i < c.num_inputs(); ++i) RETURN_IF_ERROR(c.WithRank(c.input(i), 0).status());
  RETURN_IF_ERROR(ShapeContext::MergeDims(boxes.dim(0), scores.dim(0)).status());
  RETURN_IF_ERROR(ShapeContext::MergeDims(boxes.dim(1), 4).status());
  c.SetOutput(0, PartialShape::Vector(-1));
  if (c.num_outputs() == 1) return absl::OkStatus();
  c.SetOutput(1, PartialShape::Scalar());
  ASSIGN_OR_RETURN(const bool pads, c.Attr<bool>("pad_to_max_output_size"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> limit, c.ScalarInput(2));
  if (pads && limit && *limit >= 0) c.SetOutput(0, PartialShape::Vector(*limit));
  return absl::OkStatus();
}

void DefineTyped(OpBuilder& op) {
  op.Input("boxes: T").Input("scores: T").Input("max_output_size: int32");
}

void Finish(OpBuilder& op, const char* doc) {
  op.Output("selected_indices: int32").Doc(doc).Shape(InferShape).NoGradient("a selection");
}

constexpr char kDoc[] = "Indices of the best boxes, without those that overlap a better one.";

}  // namespace

DEFINE_OP(NonMaxSuppression) {
  op.Attr("iou_threshold: float = 0.5")
      .Input("boxes: float")
      .Input("scores: float")
      .Input("max_output_size: int32");
  Finish(op, kDoc);
  op.Cpu(New<SuppressKernel>());
}

DEFINE_OP(NonMaxSuppressionV2) {
  op.Attr("T: {half, float} = DT_FLOAT").Attr("T_threshold: {half, float} = DT_FLOAT");
  DefineTyped(op);
  op.Input("iou_threshold: T_threshold");
  Finish(op, kDoc);
  op.CpuDTypes("T", {DType::kHalf, DType::kFloat}, New<SuppressKernel>());
  op.GpuOnHost("T", {DType::kFloat});
}

DEFINE_OP(NonMaxSuppressionV3) {
  op.Attr("T: {half, float} = DT_FLOAT").Attr("T_threshold: {half, float} = DT_FLOAT");
  DefineTyped(op);
  op.Input("iou_threshold: T_threshold").Input("score_threshold: T_threshold");
  Finish(op, kDoc);
  op.CpuDTypes("T", {DType::kHalf, DType::kFloat}, New<SuppressKernel>());
  op.GpuOnHost("T", {DType::kFloat});
}

DEFINE_OP(NonMaxSuppressionV4) {
  op.Attr("T: {half, float} = DT_FLOAT")
      .Attr("T_threshold: {half, float} = DT_FLOAT")
      .Attr("pad_to_max_output_size: bool = false");
  DefineTyped(op);
  op.Input("iou_threshold: T_threshold").Input("score_threshold: T_threshold");
  Finish(op, kDoc);
  op.Output("valid_outputs: int32");
  op.CpuDTypes("T", {DType::kHalf, DType::kFloat}, New<SuppressKernel>());
}

}  // namespace muster
