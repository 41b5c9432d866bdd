// The events of TensorBoard's files as serialized messages.
#pragma once

#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

// TensorFlow's numbers.
enum class SessionStatus { kUnspecified = 0, kStart = 1, kStop = 2, kCheckpoint = 3 };

// What every event has besides its content; no step is not the same as step 0 to a writer, though
// both are read as 0.
struct EventStamp {
  double wall_time = 0;  // seconds
  std::optional<int64_t> step;
};

// The first record of a file.
std::string VersionEvent(double wall_time);
// `summary` is a serialized Summary. Metadata of a value stays only the first time that its tag is
// seen. InvalidArgument when the bytes are not a Summary.
absl::StatusOr<std::string> SummaryEvent(const EventStamp& stamp, absl::string_view summary,
                                         absl::flat_hash_set<std::string>& seen_tags);
std::string ScalarEvent(const EventStamp& stamp, absl::string_view tag, float value);
absl::StatusOr<std::string> GraphEvent(const EventStamp& stamp, absl::string_view graph_def);
absl::StatusOr<std::string> MetaGraphEvent(const EventStamp& stamp,
                                           absl::string_view meta_graph_def);
std::string SessionLogEvent(const EventStamp& stamp, SessionStatus status,
                            absl::string_view checkpoint_path, absl::string_view message);
absl::StatusOr<std::string> RunMetadataEvent(const EventStamp& stamp, absl::string_view tag,
                                             absl::string_view run_metadata);

}  // namespace muster
