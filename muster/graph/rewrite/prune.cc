#include "muster/graph/rewrite/prune.h"

#include "absl/container/flat_hash_set.h"

#include "muster/base/status.h"
#include "muster/graph/rewrite/fetch_order.h"
#include "muster/graph/rewrite/step_copy.h"

namespace muster {
namespace {

class Pruner {
 public:
  Pruner(const Graph& graph, const StepSignature& signature, StepBoundary boundary)
      : signature_(signature), boundary_(boundary), step_(graph) {}

  absl::StatusOr<std::unique_ptr<Graph>> Run() {
    for (const Output& feed : signature_.feeds) {
      if (!step_.Replace(feed))
        return InvalidArgument("Tensor ", feed.name(), " is fed more than once");
    }
    step_.Need(signature_.fetches, signature_.targets);
    RETURN_IF_ERROR(AddArguments());
    RETURN_IF_ERROR(step_.CopyNodes([](const Node&, Node&) { return absl::OkStatus(); }));
    RETURN_IF_ERROR(step_.CloseGaps());
    RETURN_IF_ERROR(AddResults());
    return step_.Take();
  }

 private:
  absl::Status AddArguments() {
    for (size_t i = 0; i < signature_.feeds.size(); ++i) {
      const Output& feed = signature_.feeds[i];
      NodeSpec spec;
      spec.name =
          step_.FreshName(absl::StrCat("_arg_", feed.node->name(), "_", feed.index, "_", i));
      spec.device = feed.node->device();
      if (boundary_ == StepBoundary::kCallFrame) {
        spec.op = "_Arg";
        spec.attrs = {{"T", feed.base_dtype()}, {"index", static_cast<int64_t>(i)}};
      } else {
        spec.op = "_Recv";
        spec.attrs = TransferAttrs(feed, true);
        spec.attrs.emplace("tensor_type", feed.base_dtype());
      }
      ASSIGN_OR_RETURN(Node * argument, step_.copy().AddNode(std::move(spec)));
      argument->set_output_shape(0, feed.shape());
      step_.SetStandIn(feed, Output(argument, 0));
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

  absl::Status AddResults() {
    std::vector<Node*> results;
    for (size_t i = 0; i < signature_.fetches.size(); ++i) {
      const Output& fetch = signature_.fetches[i];
      NodeSpec spec;
      spec.name =
          step_.FreshName(absl::StrCat("_retval_", fetch.node->name(), "_", fetch.index, "_", i));
      spec.device = fetch.node->device();
      spec.inputs = {step_.Mapped(fetch)};
      if (boundary_ == StepBoundary::kCallFrame) {
        spec.op = "_Retval";
        spec.attrs = {{"T", fetch.base_dtype()}, {"index", static_cast<int64_t>(i)}};
      } else {
        spec.op = "_Send";
        spec.attrs = TransferAttrs(fetch, false);
        spec.attrs.emplace("T", fetch.base_dtype());
      }
      ASSIGN_OR_RETURN(Node * result, step_.copy().AddNode(std::move(spec)));
      results.push_back(result);
    }
    // A fetch of a partial run must not wait for later feeds.
    if (boundary_ == StepBoundary::kCallFrame) FetchAfterUpdates(step_.copy(), results);
    return absl::OkStatus();
  }

  const StepSignature& signature_;
  const StepBoundary boundary_;
  StepCopy step_;
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
