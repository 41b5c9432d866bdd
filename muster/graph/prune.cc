#include "muster/graph/prune.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/base/status.h"
#include "muster/graph/fetch_order.h"

namespace muster {
namespace {

class Pruner {
 public:
  Pruner(const Graph& graph, const StepSignature& signature, StepBoundary boundary)
      : graph_(graph),
        signature_(signature),
        boundary_(boundary),
        result_(std::make_unique<Graph>()) {}

  absl::StatusOr<std::unique_ptr<Graph>> Run() {
    result_->versions() = graph_.versions();
    FindNeeded();
    RETURN_IF_ERROR(AddArguments());
    CopyNodes();
    RETURN_IF_ERROR(CloseLoops());
    RETURN_IF_ERROR(AddResults());
    return std::move(result_);
  }

 private:
  void FindNeeded() {
    absl::flat_hash_set<Output> fed(signature_.feeds.begin(), signature_.feeds.end());
    std::vector<const Node*> open;
    const auto need = [&](const Node* node) {
      if (needed_.insert(node).second) open.push_back(node);
    };
    for (const Output& fetch : signature_.fetches) {
      if (!fed.contains(fetch)) need(fetch.node);
    }
    for (const Node* target : signature_.targets) need(target);
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      for (const Output& input : node->inputs()) {
        if (!fed.contains(input)) need(input.node);
      }
      for (const Node* before : node->control_inputs()) {
        // A placeholder whose output is fed is not run just because something waits for it.
        if (before->num_outputs() == 1 && fed.contains(Output(const_cast<Node*>(before), 0)))
          continue;
        need(before);
      }
    }
  }

  absl::Status AddArguments() {
    for (size_t i = 0; i < signature_.feeds.size(); ++i) {
      const Output& feed = signature_.feeds[i];
      if (arguments_.contains(feed))
        return InvalidArgument("Tensor ", feed.name(), " is fed more than once");
      NodeSpec spec;
      spec.name = FreshName(absl::StrCat("_arg_", feed.node->name(), "_", feed.index, "_", i));
      spec.device = feed.node->device();
      if (boundary_ == StepBoundary::kCallFrame) {
        spec.op = "_Arg";
        spec.attrs = {{"T", feed.base_dtype()}, {"index", static_cast<int64_t>(i)}};
      } else {
        spec.op = "_Recv";
        spec.attrs = TransferAttrs(feed, true);
        spec.attrs.emplace("tensor_type", feed.base_dtype());
      }
      ASSIGN_OR_RETURN(Node * argument, result_->AddNode(std::move(spec)));
      argument->set_output_shape(0, feed.shape());
      arguments_[feed] = Output(argument, 0);
    }
    return absl::OkStatus();
  }

  AttrMap TransferAttrs(const Output& tensor, bool is_feed) const {
    return {{"tensor_name", StepKey(tensor.name(), is_feed)},
            {"send_device", ""},
            {"send_device_incarnation", int64_t{1}},
            {"recv_device", ""},
            {"client_terminated", true}};
  }

  std::string FreshName(std::string name) const {
    while (graph_.FindNode(name) != nullptr || result_->FindNode(name) != nullptr) name += "_";
    return name;
  }

  Output Mapped(const Output& output) const {
    const auto argument = arguments_.find(output);
    if (argument != arguments_.end()) return argument->second;
    const auto copy = copies_.find(output.node);
    return copy == copies_.end() ? Output() : Output(copy->second, output.index);
  }

  void CopyNodes() {
    for (const auto& node : graph_.nodes()) {
      if (!needed_.contains(node.get())) continue;
      std::vector<Output> inputs;
      for (const Output& input : node->inputs()) inputs.push_back(Mapped(input));
      std::vector<Node*> control;
      for (const Node* before : node->control_inputs()) {
        const auto copy = copies_.find(before);
        if (copy != copies_.end()) {
          control.push_back(copy->second);
        } else if (needed_.contains(before)) {
          late_control_.emplace_back(node.get(), before);
        }
      }
      copies_[node.get()] =
          result_->AddCopy(*node, node->name(), std::move(inputs), std::move(control));
    }
  }

  // Inputs that come later in the order: back edges of loops, and edges of graphs that were
  // imported unordered.
  absl::Status CloseLoops() {
    for (const auto& [original, copy] : copies_) {
      for (int i = 0; i < original->num_inputs(); ++i) {
        if (copy->input(i).node != nullptr) continue;
        RETURN_IF_ERROR(result_->UpdateInput(*copy, i, Mapped(original->input(i))));
      }
    }
    for (const auto& [node, before] : late_control_)
      result_->AddControlInput(*copies_[node], *copies_[before]);
    return absl::OkStatus();
  }

  absl::Status AddResults() {
    std::vector<Node*> results;
    for (size_t i = 0; i < signature_.fetches.size(); ++i) {
      const Output& fetch = signature_.fetches[i];
      NodeSpec spec;
      spec.name = FreshName(absl::StrCat("_retval_", fetch.node->name(), "_", fetch.index, "_", i));
      spec.device = fetch.node->device();
      spec.inputs = {Mapped(fetch)};
      if (boundary_ == StepBoundary::kCallFrame) {
        spec.op = "_Retval";
        spec.attrs = {{"T", fetch.base_dtype()}, {"index", static_cast<int64_t>(i)}};
      } else {
        spec.op = "_Send";
        spec.attrs = TransferAttrs(fetch, false);
        spec.attrs.emplace("T", fetch.base_dtype());
      }
      ASSIGN_OR_RETURN(Node * result, result_->AddNode(std::move(spec)));
      results.push_back(result);
    }
    // What a partial run fetches must not wait for what it is fed later.
    if (boundary_ == StepBoundary::kCallFrame) FetchAfterUpdates(*result_, results);
    return absl::OkStatus();
  }

  const Graph& graph_;
  const StepSignature& signature_;
  const StepBoundary boundary_;
  std::unique_ptr<Graph> result_;
  absl::flat_hash_set<const Node*> needed_;
  absl::flat_hash_map<Output, Output> arguments_;
  absl::flat_hash_map<const Node*, Node*> copies_;
  std::vector<std::pair<const Node*, const Node*>> late_control_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Graph>> PruneForStep(const Graph& graph,
                                                    const StepSignature& signature,
                                                    StepBoundary boundary) {
  return Pruner(graph, signature, boundary).Run();
}

bool IsNeeded(const Node* node, const std::vector<const Node*>& asked) {
  absl::flat_hash_set<const Node*> seen(asked.begin(), asked.end());
  std::vector<const Node*> open = asked;
  while (!open.empty()) {
    const Node* const next = open.back();
    open.pop_back();
    if (next == node) return true;
    for (const Output& input : next->inputs())
      if (seen.insert(input.node).second) open.push_back(input.node);
    for (const Node* before : next->control_inputs())
      if (seen.insert(before).second) open.push_back(before);
  }
  return false;
}

std::string StepKey(absl::string_view tensor_name, bool is_feed) {
  return absl::StrCat(is_feed ? "feed;" : "fetch;", tensor_name);
}

}  // namespace muster
