#include "muster/task/partial_run.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace muster {

PartialRun::PartialRun(const std::vector<std::string>& feeds,
                       const std::vector<std::string>& fetches,
                       std::vector<std::vector<size_t>> behind)
    : feeds_(feeds),
      behind_(std::move(behind)),
      is_fed_(feeds.size(), false),
      is_fetched_(fetches.size(), false) {
  for (size_t i = 0; i < feeds.size(); ++i) feed_numbers_.emplace(feeds[i], i);
  for (size_t i = 0; i < fetches.size(); ++i) {
    // One that is announced twice is fetched under its first number.
    if (!fetch_numbers_.emplace(fetches[i], i).second) is_fetched_[i] = true;
  }
}

absl::Status PartialRun::Take(absl::Span<const std::string> feeds,
                              absl::Span<const std::string> fetches) {
  std::vector<bool> is_fed = is_fed_;
  for (const std::string& feed : feeds) {
    const auto found = feed_numbers_.find(feed);
    if (found == feed_numbers_.end())
      return InvalidArgument("The feed ", feed, " was not specified in partial_run_setup.");
    if (is_fed[found->second]) return InvalidArgument("The feed ", feed, " has already been fed.");
    is_fed[found->second] = true;
  }
  std::vector<size_t> asked;
  for (const std::string& fetch : fetches) {
    const auto found = fetch_numbers_.find(fetch);
    if (found == fetch_numbers_.end())
      return InvalidArgument("The fetch ", fetch, " was not specified in partial_run_setup.");
    if (is_fetched_[found->second])
      return InvalidArgument("The fetch ", fetch, " has already been fetched.");
    asked.push_back(found->second);
  }
  for (const size_t fetch : asked) {
    for (const size_t feed : behind_[fetch]) {
      if (is_fed[feed]) continue;
      // TensorFlow, too, names the feed that is missing.
      return InvalidArgument("Fetch ", feeds_[feed],
                             " can't be computed from the feeds that have been fed so far.");
    }
  }
  is_fed_ = std::move(is_fed);
  for (const size_t fetch : asked) is_fetched_[fetch] = true;
  return absl::OkStatus();
}

bool PartialRun::is_over() const {
  const auto all = [](const std::vector<bool>& flags) {
    return std::find(flags.begin(), flags.end(), false) == flags.end();
  };
  return all(is_fed_) && all(is_fetched_);
}

std::vector<std::vector<size_t>> FeedsBehind(absl::Span<const Output> feeds,
                                             absl::Span<const Output> fetches) {
  absl::flat_hash_map<Output, size_t> numbers;
  for (size_t i = 0; i < feeds.size(); ++i) numbers.emplace(feeds[i], i);
  std::vector<std::vector<size_t>> result;
  for (const Output& fetch : fetches) {
    std::vector<size_t>& behind = result.emplace_back();
    std::vector<bool> seen_feeds(feeds.size(), false);
    absl::flat_hash_set<const Node*> seen;
    std::vector<const Node*> open;
    const auto visit = [&](const Output& output) {
      const auto feed = numbers.find(output);
      if (feed == numbers.end()) {
        if (seen.insert(output.node).second) open.push_back(output.node);
      } else if (!seen_feeds[feed->second]) {
        seen_feeds[feed->second] = true;
        behind.push_back(feed->second);
      }
    };
    visit(fetch);
    while (!open.empty()) {
      const Node* const node = open.back();
      open.pop_back();
      for (const Output& input : node->inputs()) visit(input);
      for (Node* before : node->control_inputs()) visit(Output(before, 0));
    }
  }
  return result;
}

}  // namespace muster
