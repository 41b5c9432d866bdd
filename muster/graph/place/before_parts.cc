#include "muster/graph/place/before_parts.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"

#include "muster/graph/place/partition.h"

namespace muster {
namespace {

constexpr int kWaitsBit = 63;

// Ops with state that never wait for another step. Datasets read files or compute by themselves.
bool NeverWaits(const Node& node) {
  static constexpr absl::string_view kPrefixes[] = {"Variable",
                                                    "VarHandleOp",
                                                    "VarIsInitialized",
                                                    "ReadVariableOp",
                                                    "ResourceGather",
                                                    "Assign",
                                                    "Iterator",
                                                    "OneShotIterator",
                                                    "HashTable",
                                                    "LookupTable",
                                                    "MutableHashTable",
                                                    "Random",
                                                    "TruncatedNormal",
                                                    "Multinomial",
                                                    "_Arg",
                                                    "ParameterizedTruncatedNormal"};
  return absl::c_any_of(
      kPrefixes, [&](absl::string_view prefix) { return absl::StartsWith(node.op(), prefix); });
}

bool MayWait(const Node& node, bool feeds_come_first) {
  if (node.op() == "_Recv" || node.op() == "_HostRecv") {
    return !node.Attr<bool>(kEarlyAttr).value_or(false) &&
           !(feeds_come_first && node.Attr<bool>("client_terminated").value_or(false));
  }
  return node.def().is_stateful && !NeverWaits(node);
}

}  // namespace

BeforeParts BeforeParts::Find(const Graph& graph, const std::vector<int>& part_of,
                              const std::vector<bool>& asks, bool feeds_come_first) {
  BeforeParts found;
  int num_bits = 0;
  for (const bool each : asks)
    found.bit_of_.push_back(each && num_bits < kWaitsBit ? num_bits++ : -1);
  if (num_bits == 0) return found;
  std::vector<uint64_t>& marks = found.marks_;
  marks.resize(static_cast<size_t>(graph.num_nodes()));
  for (const auto& node : graph.nodes()) {
    const int bit = found.bit_of_[static_cast<size_t>(part_of[node->id()])];
    if (bit >= 0) marks[node->id()] |= uint64_t{1} << bit;
    if (MayWait(*node, feeds_come_first)) marks[node->id()] |= uint64_t{1} << kWaitsBit;
  }
  // Marks only grow. Most nodes come after their inputs, so that few passes do.
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (const auto& node : graph.nodes()) {
      uint64_t mark = marks[node->id()];
      for (const Output& input : node->inputs()) mark |= marks[input.node->id()];
      for (const Node* before : node->control_inputs()) mark |= marks[before->id()];
      has_changed |= mark != marks[node->id()];
      marks[node->id()] = mark;
    }
  }
  return found;
}

bool BeforeParts::IsEarly(int node, int part) const {
  if (marks_.empty() || bit_of_[part] < 0) return false;
  return (marks_[node] >> bit_of_[part] & 1) == 0 && marks_[node] >> kWaitsBit == 0;
}

}  // namespace muster
