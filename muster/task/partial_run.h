// A step that takes its feeds and gives its fetches in parts: what has come, and what may be asked
// for.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/graph/graph.h"

namespace muster {

// Thread-compatible. Tensors are named in full, "x:0".
class PartialRun {
 public:
  // `behind[i]`: the numbers of the feeds that fetch i is computed from.
  PartialRun(const std::vector<std::string>& feeds, const std::vector<std::string>& fetches,
             std::vector<std::vector<size_t>> behind);

  // Notes one part. InvalidArgument, in TensorFlow's words, for a feed or fetch that was not
  // announced or has come before, and for a fetch that needs feeds which have not; nothing is noted
  // then. A fetch that is named twice counts once.
  absl::Status Take(absl::Span<const std::string> feeds, absl::Span<const std::string> fetches);
  // Nothing is left to be fed or fetched.
  bool is_over() const;

 private:
  std::vector<std::string> feeds_;
  absl::flat_hash_map<std::string, size_t> feed_numbers_;
  absl::flat_hash_map<std::string, size_t> fetch_numbers_;
  std::vector<std::vector<size_t>> behind_;
  std::vector<bool> is_fed_;
  std::vector<bool> is_fetched_;
};

// For each fetch the numbers of the feeds that it is computed from, itself if it is fed.
std::vector<std::vector<size_t>> FeedsBehind(absl::Span<const Output> feeds,
                                             absl::Span<const Output> fetches);

}  // namespace muster
