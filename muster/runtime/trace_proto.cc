#include "muster/runtime/trace_proto.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_join.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/step_stats.pb.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/proto/graph_proto.h"
#include "muster/tensor/message_proto.h"

namespace muster {
namespace {

// As TensorFlow calls the allocators of devices.
std::string AllocatorOf(const std::string& device) {
  const absl::StatusOr<DeviceName> name = DeviceName::Parse(device);
  if (!name.ok() || name->type != "GPU") return "cpu";
  return absl::StrCat("GPU_", name->index.value_or(0), "_bfc");
}

void FillOutput(const NodeTrace::OutputTrace& from, const std::string& allocator,
                tensorflow::NodeOutput& to) {
  to.set_slot(from.slot);
  tensorflow::TensorDescription& description = *to.mutable_tensor_description();
  description.set_dtype(static_cast<tensorflow::DataType>(from.dtype));
  for (int64_t dim : from.shape.dims()) description.mutable_shape()->add_dim()->set_size(dim);
  tensorflow::AllocationDescription& allocation = *description.mutable_allocation_description();
  allocation.set_requested_bytes(from.bytes);
  allocation.set_allocated_bytes(from.bytes);
  allocation.set_allocator_name(from.is_on_device ? allocator : "cpu");
}

void FillNode(const NodeTrace& from, std::string label, int64_t offset,
              tensorflow::NodeExecStats& to) {
  const int64_t scheduled = from.scheduled_nanos == 0
                                ? from.start_nanos
                                : std::min(from.scheduled_nanos, from.start_nanos);
  const int64_t took = from.end_nanos - from.start_nanos;
  to.set_node_name(from.node);
  to.set_all_start_nanos(from.start_nanos + offset);
  to.set_op_end_rel_nanos(took);
  to.set_all_end_rel_nanos(took);
  to.set_scheduled_nanos(scheduled + offset);
  to.set_all_start_micros((from.start_nanos + offset) / 1000);
  // A kernel that ran at all took some time.
  const int64_t micros = std::max<int64_t>(1, (took + 999) / 1000);
  to.set_op_end_rel_micros(micros);
  to.set_all_end_rel_micros(micros);
  to.set_scheduled_micros((scheduled + offset) / 1000);
  to.set_thread_id(from.thread_id);
  to.set_timeline_label(std::move(label));
  const std::string allocator = AllocatorOf(from.device);
  int64_t on_host = 0, on_device = 0;
  for (const NodeTrace::OutputTrace& output : from.outputs) {
    FillOutput(output, allocator, *to.add_output());
    if (output.dtype != DType::kResource)
      (output.is_on_device ? on_device : on_host) += output.bytes;
  }
  const auto add_memory = [&to](const std::string& name, int64_t bytes) {
    if (bytes == 0) return;
    tensorflow::AllocatorMemoryUsed& memory = *to.add_memory();
    memory.set_allocator_name(name);
    memory.set_total_bytes(bytes);
    memory.set_peak_bytes(bytes);
    memory.set_live_bytes(bytes);
  };
  add_memory("cpu", on_host);
  add_memory(allocator, on_device);
}

std::string InputList(const Node& node) {
  std::vector<std::string> names;
  for (const Output& input : node.inputs())
    names.push_back(input.index == 0 ? input.node->name() : input.name());
  for (const Node* control : node.control_inputs())
    names.push_back(absl::StrCat("^", control->name()));
  return absl::StrJoin(names, ", ");
}

}  // namespace

std::string SerializeStepStats(std::vector<NodeTrace> traces, TraceLabel label,
                               const Clock& clock) {
  std::stable_sort(traces.begin(), traces.end(), [](const NodeTrace& a, const NodeTrace& b) {
    return a.start_nanos < b.start_nanos;
  });
  // Traces count from the start of the machine, StepStats from 1970.
  const int64_t offset = absl::ToUnixNanos(clock.Now()) - clock.NowNanos();
  tensorflow::StepStats stats;
  absl::flat_hash_map<std::string, int> by_device;
  for (const NodeTrace& trace : traces) {
    const auto [at, is_new] = by_device.emplace(trace.device, stats.dev_stats_size());
    if (is_new) stats.add_dev_stats()->set_device(trace.device);
    FillNode(trace, trace.label.empty() ? label(trace) : trace.label, offset,
             *stats.mutable_dev_stats(at->second)->add_node_stats());
  }
  return stats.SerializeAsString();
}

std::string SerializeStepStats(std::vector<NodeTrace> traces,
                               absl::Span<const std::shared_ptr<const Graph>> graphs,
                               const Clock& clock) {
  return SerializeStepStats(
      std::move(traces),
      [graphs](const NodeTrace& trace) {
        std::string inputs;
        for (const auto& graph : graphs) {
          const Node* node = graph->FindNode(trace.node);
          if (node != nullptr) inputs = InputList(*node);
        }
        return absl::StrCat(trace.node, " = ", trace.op, "(", inputs, ")");
      },
      clock);
}

absl::StatusOr<std::string> SerializeGraph(const Graph& graph) {
  tensorflow::GraphDef proto;
  RETURN_IF_ERROR(GraphToProto(graph, {}, proto));
  proto.mutable_library();  // there, if empty, in TensorFlow's
  return MessageToBytes(proto);
}

}  // namespace muster
