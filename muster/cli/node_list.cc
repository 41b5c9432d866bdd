#include "muster/cli/node_list.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace muster {
namespace {

constexpr size_t kMaxNodes = 100000;

// Commas inside brackets do not separate.
std::vector<absl::string_view> SplitOutsideBrackets(absl::string_view text) {
  std::vector<absl::string_view> parts;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    } else {
      depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    }
  }
  return parts;
}

// "01-03,07" as texts, as wide as they are written.
absl::StatusOr<std::vector<std::string>> ExpandRanges(absl::string_view text) {
  std::vector<std::string> numbers;
  for (const absl::string_view range : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    uint32_t first = 0;
    uint32_t last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || last < first ||
        last - first >= kMaxNodes - numbers.size()) {
      return InvalidArgument("'", range, "' is not a range of numbers");
    }
    const int width = static_cast<int>(ends.front().size());
    for (uint32_t number = first; number <= last; ++number)
      numbers.push_back(absl::StrFormat("%0*u", width, number));
  }
  return numbers;
}

absl::StatusOr<std::vector<std::string>> ExpandName(absl::string_view name) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const size_t open = name.find('[');
    const absl::string_view plain = name.substr(0, open);
    for (std::string& one : names) absl::StrAppend(&one, plain);
    if (open == absl::string_view::npos) break;
    const size_t close = name.find(']', open);
    if (close == absl::string_view::npos) return InvalidArgument("']' is missing");
    ASSIGN_OR_RETURN(const std::vector<std::string> numbers,
                     ExpandRanges(name.substr(open + 1, close - open - 1)));
    if (numbers.size() * names.size() > kMaxNodes)
      return InvalidArgument("more than ", kMaxNodes, " nodes");
    std::vector<std::string> longer;
    for (const std::string& one : names)
      for (const std::string& number : numbers) longer.push_back(one + number);
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view text) {
  std::vector<std::string> all;
  for (const absl::string_view part : SplitOutsideBrackets(text)) {
    absl::StatusOr<std::vector<std::string>> names = ExpandName(part);
    if (names.ok() && (part.empty() || absl::StrContains(part.substr(0, part.find('[')), ']')))
      names = InvalidArgument("a name is expected");
    if (!names.ok())
      return Prefixed(names.status(), absl::StrCat("the list of nodes '", text, "': "));
    all.insert(all.end(), names->begin(), names->end());
    if (all.size() > kMaxNodes)
      return InvalidArgument("the list of nodes '", text, "': more than ", kMaxNodes, " nodes");
  }
  return all;
}

absl::StatusOr<std::vector<int>> ExpandTaskCounts(absl::string_view text) {
  std::vector<int> counts;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::string_view whole = part;
    uint32_t times = 1;
    uint32_t count = 0;
    const size_t open = part.find("(x");
    bool good = true;
    if (open != absl::string_view::npos) {
      absl::string_view repeated = part.substr(open + 2);
      good = absl::ConsumeSuffix(&repeated, ")") && absl::SimpleAtoi(repeated, &times);
      part = part.substr(0, open);
    }
    if (!good || !absl::SimpleAtoi(part, &count) || count > kMaxNodes || times < 1 ||
        times > kMaxNodes - counts.size()) {
      return InvalidArgument("the tasks per node '", text, "': '", whole,
                             "' is neither N nor N(xTIMES)");
    }
    counts.insert(counts.end(), times, static_cast<int>(count));
  }
  return counts;
}

}  // namespace muster
