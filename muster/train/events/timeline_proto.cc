#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/framework/step_stats.pb.h"
#include "tensorflow/core/protobuf/config.pb.h"

#include "muster/base/clock.h"
#include "muster/base/json.h"
#include "muster/checkpoint/file.h"
#include "muster/runtime/trace_proto.h"
#include "muster/tensor/message_proto.h"
#include "muster/train/events/timeline.h"
#include "muster/train/hooks/saving_hooks.h"

namespace muster {
namespace {

absl::StatusOr<tensorflow::RunMetadata> MetadataMessage(const RunMetadata& metadata) {
  tensorflow::RunMetadata message;
  if (metadata.serialized.empty() && metadata.nodes.empty()) return message;  // not traced
  const bool parsed =
      metadata.serialized.empty()
          ? message.mutable_step_stats()->ParseFromString(SerializeStepStats(
                metadata.nodes, absl::MakeConstSpan(metadata.partition_graphs), Clock::Real()))
          : message.ParseFromString(metadata.serialized);
  if (!parsed) return Internal("what a traced run has recorded cannot be read");
  return message;
}

// Events in Chrome's trace format; those that name processes come first.
class Trace {
 public:
  void Process(absl::string_view name, int pid) {
    Append(metadata_, absl::StrCat(R"({"name":"process_name","args":{"name":)", JsonQuoted(name),
                                   R"(},"ph":"M","pid":)", pid, "}"));
  }
  // `more` are further members, each with a comma before it.
  void Event(char kind, absl::string_view category, absl::string_view name, int pid, int tid,
             int64_t micros, absl::string_view more) {
    Append(events_, absl::StrCat(R"({"ph":")", std::string(1, kind), R"(","cat":")", category,
                                 R"(","name":)", JsonQuoted(name), R"(,"pid":)", pid, R"(,"tid":)",
                                 tid, R"(,"ts":)", micros, more, "}"));
  }
  std::string Text() const {
    const bool both = !metadata_.empty() && !events_.empty();
    return absl::StrCat(R"({"traceEvents":[)", metadata_, both ? "," : "", events_, "]}");
  }

 private:
  static void Append(std::string& list, const std::string& event) {
    absl::StrAppend(&list, list.empty() ? "" : ",", event);
  }

  std::string metadata_, events_;
};

// The parts of a label "name = Op(input, input)" that the runtime gives an execution.
struct Label {
  std::string name, op;
  std::vector<std::string> inputs;
};

Label ParseLabel(const tensorflow::NodeExecStats& node) {
  const std::string& label = node.timeline_label();
  const size_t equals = label.find(" = ");
  const size_t open = equals == std::string::npos ? equals : label.find('(', equals + 3);
  if (open == std::string::npos || label.back() != ')') {
    const std::string& name = node.node_name();
    const std::string last = name.substr(name.rfind('/') + 1);
    return {name, last.empty() ? label : last, {}};
  }
  return {label.substr(0, equals), label.substr(equals + 3, open - equals - 3),
          absl::StrSplit(label.substr(open + 1, label.size() - open - 2), ", ", absl::SkipEmpty())};
}

// A row of what a card did: names are "node:Op", there or in a label "... @@node:Op#...".
bool IsOfCard(const std::string& device) {
  return absl::StrContains(device, "/stream:") || absl::StrContains(device, "/memcpy");
}

Label ParseCardLabel(const tensorflow::NodeExecStats& node) {
  std::string name = node.node_name();
  const std::string& label = node.timeline_label();
  const size_t start = label.find("@@"), end = label.find('#');
  if (start != std::string::npos && end != std::string::npos && start + 2 < end)
    name = label.substr(start + 2, end - start - 2);
  const std::vector<std::string> fields = absl::StrSplit(name, ':');
  return {fields[0], fields.size() > 1 ? fields[1] : "unknown", {}};
}

// The outputs of one execution of a node.
struct Produced {
  struct Allocation {
    std::string allocator;
    int64_t bytes;
    std::string text;
  };
  std::string name;
  int64_t micros;  // when they came to be
  int64_t last_use;
  int pid, tid, id;
  std::vector<Allocation> allocations;
};

struct Execution {
  const tensorflow::NodeExecStats* node;
  Label label;
  int pid, tid;
  bool is_of_card;
};

// For executions in the order of their start, the first row that is free then.
std::vector<int> Rows(const std::vector<const tensorflow::NodeExecStats*>& nodes) {
  std::vector<int64_t> busy_until;
  std::vector<int> rows;
  for (const auto* node : nodes) {
    const auto free = std::find_if(busy_until.begin(), busy_until.end(),
                                   [&](int64_t end) { return end <= node->all_start_micros(); });
    rows.push_back(static_cast<int>(free - busy_until.begin()));
    if (free == busy_until.end()) busy_until.push_back(0);
    busy_until[rows.back()] = node->all_start_micros() + node->all_end_rel_micros();
  }
  return rows;
}

class TimelineMaker {
 public:
  TimelineMaker(const tensorflow::StepStats& stats, const TimelineOptions& options)
      : stats_(stats), options_(options) {}

  Timeline Make() && {
    const int devices = stats_.dev_stats_size();
    if (options_.show_memory) trace_.Process("Allocators", 0);
    for (int i = 0; i < devices; ++i)
      trace_.Process(absl::StrCat(stats_.dev_stats(i).device(), " Compute"), i + 1);
    for (int i = 0; options_.show_memory && i < devices; ++i)
      trace_.Process(absl::StrCat(stats_.dev_stats(i).device(), " Tensors"), i + 1 + devices);
    for (int i = 0; i < devices; ++i) ShowDevice(stats_.dev_stats(i), i + 1);
    if (options_.show_dataflow || options_.show_memory) FollowInputs();
    Timeline timeline;
    timeline.maximums = Maximums();
    if (options_.show_memory) {
      for (const Produced& made : produced_) ShowTensors(made, made.pid + devices);
    }
    timeline.json = trace_.Text();
    return timeline;
  }

 private:
  void ShowDevice(const tensorflow::DeviceStepStats& device, int pid) {
    std::vector<const tensorflow::NodeExecStats*> nodes;
    for (const auto& node : device.node_stats()) nodes.push_back(&node);
    std::stable_sort(nodes.begin(), nodes.end(), [](const auto* a, const auto* b) {
      return a->all_start_micros() < b->all_start_micros();
    });
    const std::vector<int> rows = Rows(nodes);
    const bool is_of_card = IsOfCard(device.device());
    for (size_t i = 0; i < nodes.size(); ++i) {
      executions_.push_back({nodes[i],
                             is_of_card ? ParseCardLabel(*nodes[i]) : ParseLabel(*nodes[i]), pid,
                             rows[i], is_of_card});
    }
    for (size_t i = executions_.size() - nodes.size(); i < executions_.size(); ++i)
      ShowExecution(executions_[i]);
  }

  void ShowExecution(const Execution& execution) {
    const tensorflow::NodeExecStats& node = *execution.node;
    int64_t start = node.all_start_micros(), duration = node.all_end_rel_micros();
    if (options_.kernels_only) {
      start += node.op_start_rel_micros();
      duration = node.op_end_rel_micros() - node.op_start_rel_micros();
    }
    const Label& label = execution.label;
    std::string args = absl::StrCat(R"(,"dur":)", duration, R"(,"args":{"name":)",
                                    JsonQuoted(label.name), R"(,"op":)", JsonQuoted(label.op));
    for (size_t i = 0; i < label.inputs.size(); ++i)
      absl::StrAppend(&args, R"(,"input)", i, R"(":)", JsonQuoted(label.inputs[i]));
    trace_.Event('X', "Op", label.op, execution.pid, execution.tid, start, absl::StrCat(args, "}"));
    if (execution.is_of_card) return;
    Produced made{label.name, start + duration, start + duration, execution.pid, execution.tid, 0,
                  {}};
    made.id = static_cast<int>(produced_.size());
    for (const tensorflow::NodeOutput& output : node.output()) {
      const auto& description = output.tensor_description().allocation_description();
      const std::string& allocator = description.allocator_name();
      made.allocations.push_back(
          {allocator.empty() ? "cpu" : allocator, description.requested_bytes(),
           absl::StrReplaceAll(output.tensor_description().DebugString(), {{"\"", ""}})});
    }
    // If a node ran several times, the last run counts.
    const auto [at, is_new] = produced_at_.try_emplace(label.name, produced_.size());
    if (is_new) {
      produced_.push_back(std::move(made));
    } else {
      produced_[at->second] = std::move(made);
    }
  }

  void FollowInputs() {
    int flow = 0;
    for (const Execution& execution : executions_) {
      const int64_t start = execution.node->all_start_micros();
      for (const std::string& input : execution.label.inputs) {
        const auto at = produced_at_.find(NodeOf(input));
        if (at == produced_at_.end()) continue;
        Produced& source = produced_[at->second];
        source.last_use = std::max(source.last_use, start + execution.node->all_end_rel_micros());
        const bool moves = source.pid != execution.pid || source.tid != execution.tid;
        if (!options_.show_dataflow || !moves) continue;
        const std::string id = absl::StrCat(R"(,"id":)", flow++);
        trace_.Event('s', "DataFlow", source.name, source.pid, source.tid, source.micros, id);
        trace_.Event('t', "DataFlow", source.name, execution.pid, execution.tid, start, id);
      }
    }
  }

  // "^a/b:1" is of node "a/b".
  static std::string NodeOf(absl::string_view input) {
    while (absl::ConsumePrefix(&input, "^")) {
    }
    const size_t colon = input.rfind(':');
    if (colon != absl::string_view::npos && colon + 1 < input.size() &&
        std::all_of(input.begin() + colon + 1, input.end(), absl::ascii_isdigit)) {
      input = input.substr(0, colon);
    }
    return std::string(input);
  }

  std::map<std::string, AllocationMaximum> Maximums() {
    struct Change {
      int64_t micros, bytes;
      const std::string* name;
    };
    std::map<std::string, std::vector<Change>> changes;  // by allocator
    for (const Produced& made : produced_) {
      for (const auto& allocation : made.allocations) {
        std::vector<Change>& list = changes[allocation.allocator];
        list.push_back({made.micros, allocation.bytes, &made.name});
        list.push_back({made.last_use, -allocation.bytes, &made.name});
      }
    }
    std::map<std::string, AllocationMaximum> maximums;
    for (auto& [allocator, list] : changes) {
      std::stable_sort(list.begin(), list.end(), [](const Change& a, const Change& b) {
        return std::pair(a.micros, -a.bytes) < std::pair(b.micros, -b.bytes);
      });
      AllocationMaximum& best = maximums[allocator];
      std::map<std::string, int64_t> held;
      int64_t total = 0;
      for (const Change& change : list) {
        total += change.bytes;
        held[*change.name] += change.bytes;
        if (total > best.num_bytes) {
          best = {change.micros, total, {}};
          for (const auto& [name, bytes] : held) {
            if (bytes > 0) best.tensors.insert(name);
          }
        }
        if (!options_.show_memory) continue;
        trace_.Event('C', "Memory", allocator, 0, 0, change.micros,
                     absl::StrCat(R"(,"args":{)", JsonQuoted(allocator), ":", total, "}"));
      }
    }
    return maximums;
  }

  void ShowTensors(const Produced& made, int pid) {
    if (made.allocations.empty()) return;
    const std::string id = absl::StrCat(R"(,"id":)", made.id);
    trace_.Event('N', "Tensor", made.name, pid, 0, made.micros, id);
    for (const auto& allocation : made.allocations) {
      trace_.Event('O', "Tensor", made.name, pid, 0, made.micros,
                   absl::StrCat(id, R"(,"args":{"snapshot":{"tensor_description":)",
                                JsonQuoted(allocation.text), "}}"));
    }
    trace_.Event('D', "Tensor", made.name, pid, 0, made.last_use, id);
  }

  const tensorflow::StepStats& stats_;
  const TimelineOptions& options_;
  Trace trace_;
  std::vector<Execution> executions_;
  std::vector<Produced> produced_;
  absl::flat_hash_map<std::string, size_t> produced_at_;
};

}  // namespace

absl::StatusOr<Timeline> MakeTimeline(const std::string& step_stats,
                                      const TimelineOptions& options) {
  tensorflow::StepStats message;
  if (!message.ParseFromString(step_stats))
    return InvalidArgument(step_stats.size(), " bytes that are not a StepStats message");
  return TimelineMaker(message, options).Make();
}

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
  file << TimelineMaker(message.step_stats(), TimelineOptions()).Make().json;
  file.close();
  if (!file) return absl::UnknownError(absl::StrCat("cannot write ", path));
  return MessageToBytes(message);
}

}  // namespace muster
