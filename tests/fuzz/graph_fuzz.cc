// A GraphDef from the wire: import, pruning, placement, rewrites, partition, executors, and a step
// that has a few milliseconds. The first byte holds options.
#include <array>
#include <memory>
#include <vector>

#include "fuzz_input.h"
#include "message_mutator.h"
#include "tensorflow/core/framework/graph.pb.h"

#include "muster/base/log.h"
#include "muster/client/session.h"
#include "muster/graph/op_registry.h"
#include "muster/graph/proto/graph_proto.h"

namespace muster {
namespace {

constexpr int kMaxNodes = 200;

// Ops that by themselves touch files, end the process or print.
bool IsHarmless(absl::string_view op) {
  constexpr std::array<absl::string_view, 13> kOthers = {
      "WriteFile",   "ReadFile",  "MatchingFiles",      "Abort", "Print",      "PrintV2",
      "SaveV2",      "RestoreV2", "MergeV2Checkpoints", "Save",  "SaveSlices", "Restore",
      "RestoreSlice"};
  return std::find(kOthers.begin(), kOthers.end(), op) == kOthers.end();
}

bool IsHarmless(const tensorflow::GraphDef& proto) {
  if (proto.node_size() > kMaxNodes) return false;
  const auto harmless = [](const auto& nodes) {
    return std::all_of(nodes.begin(), nodes.end(),
                       [](const auto& node) { return IsHarmless(node.op()); });
  };
  const auto& functions = proto.library().function();
  return harmless(proto.node()) && std::all_of(functions.begin(), functions.end(),
                                               [&](auto& f) { return harmless(f.node_def()); });
}

void Try(const tensorflow::GraphDef& proto, uint8_t flags) {
  Graph graph;
  ImportOptions import;
  import.allow_internal_names = (flags & 1) != 0;
  import.adopt_versions = (flags & 1) != 0;
  if (!ImportGraph(graph, proto, import).ok()) {
    FuzzCheck(graph.nodes().empty(), "a graph that was refused leaves nothing behind");
    return;
  }
  tensorflow::GraphDef written;
  (void)GraphToProto(graph, {.add_shapes = (flags & 2) != 0, .strip_defaults = (flags & 4) != 0},
                     written);

  SessionOptions options;
  options.optimize_graph = (flags & 8) == 0;
  options.allow_soft_placement = (flags & 16) == 0;
  options.devices.cpu_devices = (flags & 32) == 0 ? 2 : 1;
  const auto session = Session::Create(graph, options);
  if (!session.ok()) return;
  StepSignature signature;
  for (const auto& node : graph.nodes()) {
    signature.targets.push_back(node.get());
    if ((flags & 64) != 0 && node->num_outputs() > 0 && signature.fetches.size() < 8) {
      signature.fetches.push_back(node->output(0));
    }
  }
  const auto plan = (*session)->Prepare(signature);
  if (!plan.ok()) return;
  RunOptions run;
  run.timeout = absl::Milliseconds(20);
  for (int i = 0; i < 2; ++i) (void)(*session)->Run(**plan, {}, run).ok();
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::SetLogLevel(static_cast<muster::LogLevel>(3));
  muster::FuzzInput input(data, size);
  const uint8_t flags = input.Byte();
  tensorflow::GraphDef proto;
  if (!proto.ParseFromArray(input.rest().data(), static_cast<int>(input.rest().size()))) return 0;
  if (muster::IsHarmless(proto)) muster::Try(proto, flags);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  tensorflow::GraphDef message;
  return muster::MutateInput(data, size, max_size, seed, 1, [&](uint8_t) { return &message; });
}
