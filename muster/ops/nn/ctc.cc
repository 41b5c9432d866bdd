// Connectionist temporal classification: CTCLoss with its gradient, and the greedy decoder.
#include <cmath>
#include <limits>

#include "absl/strings/str_join.h"

#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

constexpr double kLogZero = -std::numeric_limits<double>::infinity();

double LogSum(double a, double b) {
  if (a == kLogZero) return b;
  if (b == kLogZero) return a;
  return std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

// A batch of sequences of class scores: [time, batch, classes].
struct Scores {
  int64_t time = 0;
  int64_t batch = 0;
  int64_t classes = 0;
  std::vector<int64_t> lengths;
};

// `bad_lengths`: the code that lengths which do not fit are reported with.
absl::StatusOr<Scores> ReadScores(const Tensor& inputs, const Tensor& lengths,
                                  absl::StatusCode bad_lengths) {
  if (inputs.rank() != 3) return InvalidArgument("inputs is not a 3-Tensor");
  if (lengths.rank() != 1) return InvalidArgument("sequence_length is not a vector");
  Scores scores{inputs.dim(0), inputs.dim(1), inputs.dim(2), {}};
  if (scores.time == 0) return InvalidArgument("Max time or first dimension of input cannot be 0.");
  if (scores.batch == 0) return InvalidArgument("batch_size must not be 0");
  if (scores.classes == 0) return InvalidArgument("num_classes must not be 0");
  if (lengths.num_elements() != scores.batch) {
    return absl::Status(bad_lengths,
                        absl::StrCat("len(sequence_length) != batch_size.  len(sequence_length):  ",
                                     lengths.num_elements(), " batch_size: ", scores.batch));
  }
  for (int64_t b = 0; b < scores.batch; ++b) {
    const int64_t length = lengths.values<int32_t>()[b];
    if (length < 0) return InvalidArgument("sequence_length(", b, ") must not be negative");
    if (length > scores.time) {
      return absl::Status(bad_lengths, absl::StrCat("sequence_length(", b, ") <= ", scores.time));
    }
    scores.lengths.push_back(length);
  }
  return scores;
}

// Logarithms of the probabilities of one sequence: [length][classes].
template <typename T>
std::vector<double> LogSoftmax(const Scores& s, const T* inputs, int64_t b) {
  std::vector<double> result(static_cast<size_t>(s.lengths[b] * s.classes));
  for (int64_t t = 0; t < s.lengths[b]; ++t) {
    const T* const from = inputs + (t * s.batch + b) * s.classes;
    double* const to = result.data() + t * s.classes;
    const double largest = *std::max_element(from, from + s.classes);
    double sum = 0;
    for (int64_t i = 0; i < s.classes; ++i) sum += std::exp(static_cast<double>(from[i]) - largest);
    const double shift = largest + std::log(sum);
    for (int64_t i = 0; i < s.classes; ++i) to[i] = static_cast<double>(from[i]) - shift;
  }
  return result;
}

template <typename T>
class CtcLoss : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(collapse_, setup.Attr<bool>("preprocess_collapse_repeated"));
    ASSIGN_OR_RETURN(merge_, setup.Attr<bool>("ctc_merge_repeated"));
    ASSIGN_OR_RETURN(ignore_longer_, setup.Attr<bool>("ignore_longer_outputs_than_inputs"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& inputs = c.input(0);
    ASSIGN_OR_RETURN(const Scores s,
                     ReadScores(inputs, c.input(3), absl::StatusCode::kInvalidArgument));
    ASSIGN_OR_RETURN(const std::vector<std::vector<int>> labels, ReadLabels(c, s.batch));
    std::vector<std::vector<int>> paths(static_cast<size_t>(s.batch));
    for (int64_t b = 0; b < s.batch; ++b) {
      ASSIGN_OR_RETURN(paths[b], Path(s, labels[b], b));
    }
    ASSIGN_OR_RETURN(Tensor* const loss, c.AllocateOutput(0, Shape({s.batch})));
    ASSIGN_OR_RETURN(Tensor* const gradient, c.AllocateOutput(1, inputs.shape()));
    std::fill_n(loss->data<T>(), s.batch, T(0));
    std::fill_n(gradient->data<T>(), gradient->num_elements(), T(0));
    const double cost = 50.0 * static_cast<double>(s.time * s.classes);
    c.ParallelFor(s.batch, cost, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        if (s.lengths[b] == 0 ||
            (ignore_longer_ && static_cast<int64_t>(labels[b].size()) > s.lengths[b]))
          continue;
        loss->data<T>()[b] =
            Run(s, LogSoftmax(s, inputs.data<T>(), b), paths[b], b, gradient->data<T>());
      }
    });
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<std::vector<std::vector<int>>> ReadLabels(KernelContext& c, int64_t batch) {
    const Tensor& indices = c.input(1);
    const Tensor& values = c.input(2);
    if (indices.rank() != 2) return InvalidArgument("labels_indices is not a matrix");
    if (indices.dim(1) < 2) {
      return InvalidArgument("labels_indices second dimension must be >= 2. Received ",
                             indices.dim(1));
    }
    if (values.rank() != 1) return InvalidArgument("labels_values is not a vector");
    if (indices.dim(0) != values.num_elements()) {
      return InvalidArgument(
          "labels_indices and labels_values must contain the same number of rows, but saw shapes: ",
          indices.shape().ToString(), " vs. ", values.shape().ToString());
    }
    std::vector<std::vector<int>> labels(static_cast<size_t>(batch));
    for (int64_t i = 0; i < values.num_elements(); ++i) {
      const int64_t b = indices.values<int64_t>()[i * indices.dim(1)];
      if (b < 0 || b >= batch) {
        return InvalidArgument("labels batch index must be between 0 and ", batch, " but saw: ", b);
      }
      labels[b].push_back(values.values<int32_t>()[i]);
    }
    return labels;
  }

  // The labels with blanks around each of them.
  absl::StatusOr<std::vector<int>> Path(const Scores& s, const std::vector<int>& labels,
                                        int64_t b) const {
    if (labels.empty()) return InvalidArgument("Labels length is zero in batch ", b);
    const int blank = static_cast<int>(s.classes) - 1;
    std::vector<int> path = {blank};
    bool ended = false;
    const auto error = [&](absl::string_view what) {
      return InvalidArgument(what, ", batch: ", b, " num_classes: ", s.classes,
                             " labels: ", absl::StrJoin(labels, ","));
    };
    for (size_t i = 0; i < labels.size(); ++i) {
      if (i > 0 && collapse_ && labels[i] == labels[i - 1]) continue;
      if (labels[i] >= blank) {
        ended = true;
        continue;
      }
      if (ended)
        return error("Saw a non-null label (index >= num_classes - 1) following a null label");
      if (labels[i] < 0) return error("All labels must be nonnegative integers");
      path.push_back(labels[i]);
      path.push_back(blank);
    }
    const auto required = static_cast<int64_t>(labels.size());
    if (!ignore_longer_ && required > s.lengths[b]) {
      return InvalidArgument("Not enough time for target transition sequence (required: ", required,
                             ", available: ", s.lengths[b], ")", b,
                             "You can turn this error into a warning by using the flag "
                             "ignore_longer_outputs_than_inputs");
    }
    return path;
  }

  bool MayStay(const std::vector<int>& path, int64_t u, int blank) const {
    return merge_ || path[u] == blank;
  }
  // From u to u + 2, over a blank.
  bool MaySkip(const std::vector<int>& path, int64_t u, int blank) const {
    return path[u + 2] != blank && !(merge_ && path[u] == path[u + 2]);
  }

  // Forward and backward sums over all paths; gives the loss.
  T Run(const Scores& s, const std::vector<double>& log_y, const std::vector<int>& path, int64_t b,
        T* gradient) const {
    const int64_t length = s.lengths[b];
    const auto states = static_cast<int64_t>(path.size());
    const int blank = static_cast<int>(s.classes) - 1;
    const auto y = [&](int64_t t, int64_t u) { return log_y[t * s.classes + path[u]]; };
    std::vector<double> forward(static_cast<size_t>(length * states), kLogZero);
    std::vector<double> backward = forward;  // without the probability at t itself
    for (int64_t u = 0; u < std::min<int64_t>(2, states); ++u) forward[u] = y(0, u);
    for (int64_t t = 1; t < length; ++t) {
      const double* const before = forward.data() + (t - 1) * states;
      for (int64_t u = 0; u < states; ++u) {
        double sum = MayStay(path, u, blank) ? before[u] : kLogZero;
        if (u >= 1) sum = LogSum(sum, before[u - 1]);
        if (u >= 2 && MaySkip(path, u - 2, blank)) sum = LogSum(sum, before[u - 2]);
        forward[t * states + u] = sum + y(t, u);
      }
    }
    for (int64_t u = std::max<int64_t>(0, states - 2); u < states; ++u)
      backward[(length - 1) * states + u] = 0;
    for (int64_t t = length - 2; t >= 0; --t) {
      const double* const after = backward.data() + (t + 1) * states;
      for (int64_t u = 0; u < states; ++u) {
        double sum = MayStay(path, u, blank) ? after[u] + y(t + 1, u) : kLogZero;
        if (u + 1 < states) sum = LogSum(sum, after[u + 1] + y(t + 1, u + 1));
        if (u + 2 < states && MaySkip(path, u, blank))
          sum = LogSum(sum, after[u + 2] + y(t + 1, u + 2));
        backward[t * states + u] = sum;
      }
    }
    double total = kLogZero;
    for (int64_t u = 0; u < states; ++u) total = LogSum(total, forward[u] + backward[u]);
    if (total == kLogZero) return static_cast<T>(-total);  // no path fits
    std::vector<double> sums(static_cast<size_t>(s.classes));
    for (int64_t t = 0; t < length; ++t) {
      std::fill(sums.begin(), sums.end(), kLogZero);
      for (int64_t u = 0; u < states; ++u) {
        double& sum = sums[path[u]];
        sum = LogSum(sum, forward[t * states + u] + backward[t * states + u]);
      }
      T* const to = gradient + (t * s.batch + b) * s.classes;
      for (int64_t i = 0; i < s.classes; ++i) {
        to[i] = static_cast<T>(std::exp(log_y[t * s.classes + i]) - std::exp(sums[i] - total));
      }
    }
    return static_cast<T>(-total);
  }

  bool collapse_ = false;
  bool merge_ = true;
  bool ignore_longer_ = false;
};

template <typename T>
class CtcGreedyDecoder : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(merge_, setup.Attr<bool>("merge_repeated"));
    ASSIGN_OR_RETURN(blank_, setup.Attr<int64_t>("blank_index"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& inputs = c.input(0);
    ASSIGN_OR_RETURN(const Scores s,
                     ReadScores(inputs, c.input(1), absl::StatusCode::kFailedPrecondition));
    const int64_t blank = blank_ < 0 ? s.classes + blank_ : blank_;
    if (blank < 0 || blank >= s.classes) {
      return InvalidArgument("blank_index expected to be between ", -s.classes, " and ",
                             s.classes - 1, " but was ", blank_);
    }
    ASSIGN_OR_RETURN(Tensor* const scores, c.AllocateOutput(3, Shape({s.batch, 1})));
    std::vector<int64_t> places;
    std::vector<int64_t> values;
    int64_t longest = 0;
    for (int64_t b = 0; b < s.batch; ++b) {
      int64_t previous = -1;
      int64_t count = 0;
      T sum = 0;
      for (int64_t t = 0; t < s.lengths[b]; ++t) {
        const T* const row = inputs.data<T>() + (t * s.batch + b) * s.classes;
        const T* const best = std::max_element(row, row + s.classes);
        sum -= *best;
        const int64_t label = best - row;
        if (label != blank && !(merge_ && label == previous)) {
          places.push_back(b);
          places.push_back(count++);
          values.push_back(label);
        }
        previous = label;
      }
      scores->data<T>()[b] = sum;
      longest = std::max(longest, count);
    }
    const auto count = static_cast<int64_t>(values.size());
    c.SetOutput(0, Tensor::Of<int64_t>(Shape({count, 2}), places));
    c.SetOutput(1, Tensor::Vector<int64_t>(values));
    c.SetOutput(2, Tensor::Vector<int64_t>({s.batch, longest}));
    return absl::OkStatus();
  }

 private:
  bool merge_ = false;
  int64_t blank_ = -1;
};

// --- Shapes, gradients, definitions ------------------------------------------------------------

absl::StatusOr<int64_t> BatchOf(ShapeContext& c, int lengths) {
  ASSIGN_OR_RETURN(const PartialShape inputs, c.WithRank(c.input(0), 3));
  ASSIGN_OR_RETURN(const PartialShape times, c.WithRank(c.input(lengths), 1));
  return ShapeContext::MergeDims(inputs.dim(1), times.dim(0));
}

absl::Status LossShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t batch, BatchOf(c, 3));
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(1), 2));
  ASSIGN_OR_RETURN(const PartialShape values, c.WithRank(c.input(2), 1));
  RETURN_IF_ERROR(ShapeContext::MergeDims(indices.dim(0), values.dim(0)).status());
  ASSIGN_OR_RETURN(PartialShape gradient, c.WithRank(c.input(0), 3));
  gradient.Set(1, batch);
  c.SetOutput(0, PartialShape::Vector(batch));
  c.SetOutput(1, std::move(gradient));
  return absl::OkStatus();
}

absl::Status DecoderShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t batch, BatchOf(c, 1));
  c.SetOutput(0, PartialShape::Matrix(-1, 2));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(2));
  c.SetOutput(3, PartialShape::Matrix(batch, 1));
  return absl::OkStatus();
}

absl::Status DifferentiateLoss(GradientContext& c) {
  const Output gradient =
      c.Op("PreventGradient", {c.output(1)},
           {{"message", std::string("Currently there is no way to take the second derivative of "
                                    "ctc_loss due to the fused implementation's interaction with "
                                    "tf.gradients()")}});
  c.SetDx(0, c.Op("Mul", {ExpandDims(c, c.dy(), -1), gradient}, {}, "mul"));
  return c.scope().status();
}

}  // namespace

DEFINE_OP(CTCLoss) {
  op.Attr("preprocess_collapse_repeated: bool = false")
      .Attr("ctc_merge_repeated: bool = true")
      .Attr("ignore_longer_outputs_than_inputs: bool = false")
      .Attr("T: {float, double} = DT_FLOAT")
      .Input("inputs: T")
      .Input("labels_indices: int64")
      .Input("labels_values: int32")
      .Input("sequence_length: int32")
      .Output("loss: T")
      .Output("gradient: T")
      .Doc("Minus the logarithm of the probability of the labels under all alignments.")
      .Shape(LossShapes)
      .Gradient(DifferentiateLoss);
  op.CpuTypes<Types<float, double>>("T", []<typename T>() { return New<CtcLoss<T>>(); });
}

DEFINE_OP(CTCGreedyDecoder) {
  op.Attr("merge_repeated: bool = false")
      .Attr2x("blank_index: int = -1")
      .Attr("T: {float, double} = DT_FLOAT")
      .Input("inputs: T")
      .Input("sequence_length: int32")
      .Output("decoded_indices: int64")
      .Output("decoded_values: int64")
      .Output("decoded_shape: int64")
      .Output("log_probability: T")
      .Doc("The best class of every time without blanks.")
      .Shape(DecoderShapes)
      .NoGradient("choices");
  op.CpuTypes<Types<float, double>>("T", []<typename T>() { return New<CtcGreedyDecoder<T>>(); });
}

}  // namespace muster
