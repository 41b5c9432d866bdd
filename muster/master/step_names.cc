#include "muster/master/step_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/graph/proto/graph_proto.h"

namespace muster {
namespace {

// As in "y:12", which is how clients name nearly all tensors; not as in "y", "y:" or "y:012".
bool IsFull(absl::string_view name) {
  const size_t colon = name.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return false;
  const absl::string_view digits = name.substr(colon + 1);
  constexpr size_t kSurelyAnInt = 9;
  return !digits.empty() && digits.size() <= kSurelyAnInt &&
         (digits.size() == 1 || digits[0] != '0') &&
         std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit);
}

}  // namespace

std::string FullTensorName(absl::string_view name) {
  if (IsFull(name)) return std::string(name);
  const TensorName parsed = ParseTensorName(name);
  return parsed.is_control() ? std::string(name) : parsed.ToString();
}

StepNames StepNames::Canonical() const {
  StepNames result = *this;
  for (std::string& feed : result.feeds) feed = FullTensorName(feed);
  for (std::string& fetch : result.fetches) fetch = FullTensorName(fetch);
  for (auto& [from, to] : result.connections) {
    from = FullTensorName(from);
    to = FullTensorName(to);
  }
  std::sort(result.feeds.begin(), result.feeds.end());
  std::sort(result.connections.begin(), result.connections.end());
  for (std::vector<std::string>* names : {&result.fetches, &result.targets}) {
    std::sort(names->begin(), names->end());
    names->erase(std::unique(names->begin(), names->end()), names->end());
  }
  return result;
}

std::string StepNames::ToString() const {
  std::string text = absl::StrCat(absl::StrJoin(feeds, ","), "->", absl::StrJoin(fetches, ","), "/",
                                  absl::StrJoin(targets, ","));
  for (const auto& [from, to] : connections) absl::StrAppend(&text, "/", from, "=>", to);
  if (is_partial) absl::StrAppend(&text, "/partial");
  return text;
}

}  // namespace muster
