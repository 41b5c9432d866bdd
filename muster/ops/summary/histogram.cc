// HistogramSummary.
#include "muster/ops/summary/histogram.h"

#include <algorithm>
#include <cmath>

#include "muster/ops/op.h"
#include "muster/ops/summary/summary_proto.h"

namespace muster {
namespace {

std::vector<double> MakeLimits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> limits;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) limits.push_back(-*limit);
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  return limits;
}

const std::vector<double>& Limits() {
  static const std::vector<double> limits = MakeLimits();
  return limits;
}

template <typename T>
absl::Status Run(KernelContext& c) {
  const Tensor& tag = c.input(0);
  const Tensor& values = c.input(1);
  if (tag.rank() != 0) return InvalidArgument("tags must be scalar");
  Histogram histogram;
  for (const T element : values.values<T>()) {
    const double value = static_cast<double>(static_cast<Compute<T>>(element));
    if (std::isnan(value)) {
      return InvalidArgument("Nan in summary histogram for: ", c.node().name());
    }
    if (std::isinf(value)) {
      return InvalidArgument("Infinity in summary histogram for: ", c.node().name());
    }
    histogram.Add(value);
  }
  SummaryBuilder summary;
  summary.AddHistogram(tag.scalar<std::string>(), histogram);
  ASSIGN_OR_RETURN(std::string bytes, summary.Serialize());
  c.SetOutput(0, Tensor::Scalar(std::move(bytes)));
  return absl::OkStatus();
}

}  // namespace

Histogram::Histogram() : limits_(Limits()), counts_(limits_.size()) {}

void Histogram::Add(double value) {
  const auto above = std::upper_bound(limits_.begin(), limits_.end(), value);
  const size_t bucket = std::min<size_t>(above - limits_.begin(), counts_.size() - 1);
  counts_[bucket] += 1;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  count_ += 1;
  sum_ += value;
  const double square = value * value;
  sum_of_squares_ += square;
}

std::vector<Histogram::Bucket> Histogram::Buckets() const {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const bool is_empty = counts_[i] <= 0;
    if (is_empty && i + 1 < counts_.size() && counts_[i + 1] <= 0) continue;
    buckets.push_back({limits_[i], counts_[i]});
  }
  return buckets;
}

DEFINE_OP(HistogramSummary) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64} = DT_FLOAT")
      .Input("tag: string")
      .Input("values: T")
      .Output("summary: string")
      .Doc("A Summary with the distribution of the values, which must be finite.")
      .Shape(ScalarShape)
      .NoGradient("a summary is text")
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(Run<T>); });
}

}  // namespace muster
