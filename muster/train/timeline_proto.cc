#include <fstream>
#include <utility>

#include "tensorflow/core/framework/step_stats.pb.h"
#include "tensorflow/core/protobuf/config.pb.h"

#include "muster/base/clock.h"
#include "muster/base/json.h"
#include "muster/checkpoint/file.h"
#include "muster/runtime/trace_proto.h"
#include "muster/tensor/message_proto.h"
#include "muster/train/saving_hooks.h"

namespace muster {
namespace {

absl::StatusOr<tensorflow::RunMetadata> MetadataMessage(const RunMetadata& metadata) {
  tensorflow::RunMetadata message;
  const bool parsed =
      metadata.serialized.empty()
          ? message.mutable_step_stats()->ParseFromString(SerializeStepStats(
                metadata.nodes, absl::MakeConstSpan(metadata.partition_graphs), Clock::Real()))
          : message.ParseFromString(metadata.serialized);
  if (!parsed) return Internal("what a traced run has recorded cannot be read");
  return message;
}

// Chrome's trace events: a process per device, a row per thread, complete ("X") events.
std::string TraceEvents(const tensorflow::StepStats& stats) {
  std::string json = "{\"traceEvents\":[";
  bool first = true;
  const auto add = [&](const std::string& event) {
    absl::StrAppend(&json, first ? "\n" : ",\n", event);
    first = false;
  };
  for (int pid = 0; pid < stats.dev_stats_size(); ++pid) {
    const tensorflow::DeviceStepStats& device = stats.dev_stats(pid);
    add(absl::StrCat("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", pid,
                     ",\"args\":{\"name\":", JsonQuoted(absl::StrCat(device.device(), " Compute")),
                     "}}"));
    for (const tensorflow::NodeExecStats& node : device.node_stats()) {
      const std::string& label = node.timeline_label();
      const size_t equals = label.find(" = ");
      const size_t open = label.find('(');
      const std::string op = equals != std::string::npos && open != std::string::npos
                                 ? label.substr(equals + 3, open - equals - 3)
                                 : node.node_name();
      add(absl::StrCat("{\"ph\":\"X\",\"cat\":\"Op\",\"name\":", JsonQuoted(op), ",\"pid\":", pid,
                       ",\"tid\":", node.thread_id(), ",\"ts\":", node.all_start_micros(),
                       ",\"dur\":", node.all_end_rel_micros(), ",\"args\":{\"name\":",
                       JsonQuoted(node.node_name()), ",\"op\":", JsonQuoted(op), "}}"));
    }
  }
  return absl::StrCat(json, "\n]}\n");
}

}  // namespace

absl::StatusOr<std::string> SerializeRunMetadata(const RunMetadata& metadata,
                                                 bool with_partition_graphs) {
  ASSIGN_OR_RETURN(tensorflow::RunMetadata message, MetadataMessage(metadata));
  if (with_partition_graphs && metadata.serialized.empty()) {
    for (const std::shared_ptr<const Graph>& graph : metadata.partition_graphs) {
      ASSIGN_OR_RETURN(const std::string bytes, SerializeGraph(*graph));
      if (!message.add_partition_graphs()->ParseFromString(bytes))
        return Internal("a graph that ran cannot be read");
    }
  }
  return MessageToBytes(message);
}

absl::StatusOr<std::string> SaveTimeline(const RunMetadata& metadata, const std::string& path) {
  ASSIGN_OR_RETURN(const tensorflow::RunMetadata message, MetadataMessage(metadata));
  std::ofstream file(LocalPath(path), std::ios::trunc | std::ios::binary);
  file << TraceEvents(message.step_stats());
  file.close();
  if (!file) return absl::UnknownError(absl::StrCat("cannot write ", path));
  return MessageToBytes(message);
}

}  // namespace muster
