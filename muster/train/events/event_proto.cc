#include "muster/train/events/event_proto.h"

#include "tensorflow/core/util/event.pb.h"

#include "muster/base/status.h"
#include "muster/tensor/message_proto.h"

namespace muster {
namespace {

tensorflow::Event Stamped(const EventStamp& stamp) {
  tensorflow::Event event;
  event.set_wall_time(stamp.wall_time);
  if (stamp.step.has_value()) event.set_step(*stamp.step);
  return event;
}

}  // namespace

std::string VersionEvent(double wall_time) {
  tensorflow::Event event;
  event.set_wall_time(wall_time);
  event.set_file_version("brain.Event:2");
  return event.SerializeAsString();
}

absl::StatusOr<std::string> SummaryEvent(const EventStamp& stamp, absl::string_view summary,
                                         absl::flat_hash_set<std::string>& seen_tags) {
  tensorflow::Event event = Stamped(stamp);
  if (!MessageFromBytes(summary, *event.mutable_summary())) {
    return InvalidArgument("these ", summary.size(), " bytes are not a Summary");
  }
  for (tensorflow::Summary::Value& value : *event.mutable_summary()->mutable_value()) {
    if (!seen_tags.insert(value.tag()).second) value.clear_metadata();
  }
  return MessageToBytes(event);
}

std::string ScalarEvent(const EventStamp& stamp, absl::string_view tag, float value) {
  tensorflow::Event event = Stamped(stamp);
  tensorflow::Summary::Value* made = event.mutable_summary()->add_value();
  made->set_tag(std::string(tag));
  made->set_simple_value(value);
  return event.SerializeAsString();
}

absl::StatusOr<std::string> GraphEvent(const EventStamp& stamp, absl::string_view graph_def) {
  tensorflow::Event event = Stamped(stamp);
  event.set_graph_def(std::string(graph_def));
  return MessageToBytes(event);
}

absl::StatusOr<std::string> MetaGraphEvent(const EventStamp& stamp,
                                           absl::string_view meta_graph_def) {
  tensorflow::Event event = Stamped(stamp);
  event.set_meta_graph_def(std::string(meta_graph_def));
  return MessageToBytes(event);
}

std::string SessionLogEvent(const EventStamp& stamp, SessionStatus status,
                            absl::string_view checkpoint_path, absl::string_view message) {
  tensorflow::Event event = Stamped(stamp);
  tensorflow::SessionLog* log = event.mutable_session_log();
  log->set_status(static_cast<tensorflow::SessionLog::SessionStatus>(status));
  log->set_checkpoint_path(std::string(checkpoint_path));
  log->set_msg(std::string(message));
  return event.SerializeAsString();
}

absl::StatusOr<std::string> RunMetadataEvent(const EventStamp& stamp, absl::string_view tag,
                                             absl::string_view run_metadata) {
  tensorflow::Event event = Stamped(stamp);
  event.mutable_tagged_run_metadata()->set_tag(std::string(tag));
  event.mutable_tagged_run_metadata()->set_run_metadata(std::string(run_metadata));
  return MessageToBytes(event);
}

}  // namespace muster
