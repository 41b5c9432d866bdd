#include "muster/task/feeds.h"

#include "muster/graph/shape_text.h"

namespace muster {
namespace {

absl::Status CheckFeed(size_t i, const Output& feed, const Tensor& value) {
  const DType wanted = feed.base_dtype();
  if (value.dtype() != wanted) {
    return InvalidArgument("Expects arg[", i, "] to be ", DTypeName(wanted), " but ",
                           DTypeName(value.dtype()), " is provided");
  }
  return CheckFedShape(feed, value.shape());
}

}  // namespace

absl::Status CheckFedShape(const Output& feed, const Shape& shape) {
  const PartialShape& known = feed.shape();
  if (known.CompatibleWith(shape)) return absl::OkStatus();
  return InvalidArgument("Cannot feed value of shape ", PythonShapeText(shape), " for Tensor '",
                         feed.name(), "', which has shape '", PythonShapeText(known), "'");
}

absl::Status CheckFeeds(absl::Span<const Output> feeds, absl::Span<const Tensor> values) {
  if (values.size() != feeds.size()) {
    return InvalidArgument("Expects ", feeds.size(), " arguments, but ", values.size(),
                           " is provided");
  }
  for (size_t i = 0; i < feeds.size(); ++i) RETURN_IF_ERROR(CheckFeed(i, feeds[i], values[i]));
  return absl::OkStatus();
}

absl::Status CheckFeeds(absl::Span<const std::pair<Output, Tensor>> feeds) {
  for (size_t i = 0; i < feeds.size(); ++i)
    RETURN_IF_ERROR(CheckFeed(i, feeds[i].first, feeds[i].second));
  return absl::OkStatus();
}

}  // namespace muster
