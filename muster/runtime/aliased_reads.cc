#include "muster/runtime/aliased_reads.h"

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"

#include "muster/graph/rewrite/fetch_order.h"

namespace muster {
namespace {

bool ChoosesBranch(const Node& node) {
  return node.op() == "Switch" || node.op() == "_SwitchN";
}

// Takes a reference, and may change what it refers to. The others hand the reference on or look at
// it.
bool MayChange(const Node& node) {
  return !absl::StartsWith(node.op(), "Ref") && node.op() != "IsVariableInitialized";
}

}  // namespace

int NumPassedInputs(const Node& node) {
  static const auto* const ops = new absl::flat_hash_set<absl::string_view>{
      "Identity", "IdentityN", "StopGradient",  "PreventGradient",
      "Enter",    "Exit",      "NextIteration", "Merge"};
  if (ChoosesBranch(node)) return 1;
  return ops->contains(node.op()) ? node.num_inputs() : 0;
}

class AliasedReads::Finder {
 public:
  Finder(const Graph& graph, AliasedReads& found)
      : graph_(graph),
        found_(found),
        ever_after_(graph.num_nodes()),
        in_iteration_after_(graph.num_nodes()) {}

  void Run() {
    std::map<const Node*, std::vector<Read>> reads;           // by variable
    std::map<const Node*, std::vector<const Node*>> changes;  // by variable
    for (const auto& node : graph_.nodes()) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (!IsRef(node->input(i).dtype())) continue;
        const Node* const variable = ReferencedVariable(node->input(i), graph_);
        if (IsRef(node->input_types()[i])) {
          if (MayChange(*node)) changes[variable].push_back(node.get());
        } else if (i < NumPassedInputs(*node)) {
          reads[variable].push_back({node.get(), i});
          // The variable need not have a value where the branch that reads it is not taken.
          if (ChoosesBranch(*node)) found_.passes_[node->id()] = true;
        }
      }
    }
    for (const auto& [variable, readers] : reads) {
      const auto changed = changes.find(variable);
      if (changed == changes.end()) continue;
      for (const Node* change : changed->second) {
        FindBehind(*change, /*over_iterations=*/true, ever_after_);
        FindBehind(*change, /*over_iterations=*/false, in_iteration_after_);
        for (const Read& read : readers) FollowValue(read);
      }
    }
  }

 private:
  struct Read {
    const Node* node;
    int input;
  };

  // A set of nodes that is emptied without touching each: there may be as many changes as nodes.
  class NodeSet {
   public:
    explicit NodeSet(int num_nodes) : marks_(num_nodes, 0) {}
    void Clear() { ++current_; }
    bool Insert(const Node& node) { return std::exchange(marks_[node.id()], current_) != current_; }
    bool Contains(const Node& node) const { return marks_[node.id()] == current_; }

   private:
    std::vector<int> marks_;
    int current_ = 1;
  };

  // What runs after `start` goes into `behind`.
  void FindBehind(const Node& start, bool over_iterations, NodeSet& behind) const {
    behind.Clear();
    std::vector<const Node*> open = {&start};
    while (!open.empty()) {
      const Node& at = *open.back();
      open.pop_back();
      if (!over_iterations && at.op() == "NextIteration") continue;
      const auto add = [&](const Node& next) {
        if (behind.Insert(next)) open.push_back(&next);
      };
      for (const Node::Consumer& consumer : at.consumers()) add(*consumer.node);
      for (const Node* after : Waiting(at)) add(*after);
    }
  }

  const std::vector<const Node*>& Waiting(const Node& node) const {
    if (waiting_.empty()) {
      waiting_.resize(graph_.num_nodes());
      for (const auto& after : graph_.nodes()) {
        for (const Node* before : after->control_inputs())
          waiting_[before->id()].push_back(after.get());
      }
    }
    return waiting_[node.id()];
  }

  // An input that takes what a read has given.
  struct Place {
    const Node* node;
    int input;
    std::vector<size_t> from;  // the places whose nodes hand it on; none for the read itself
  };

  // Goes along the nodes that hand on what `read` has read. Those on a way to a node that runs
  // after the change, and not only after a reader that does so itself, pass the reference.
  void FollowValue(const Read& read) {
    std::vector<Place> places = {{read.node, read.input, {}}};
    std::vector<size_t> wanted;  // places whose node has to pass the reference
    absl::flat_hash_map<std::pair<int, int>, size_t> seen;  // node id, input
    for (size_t at = 0; at < places.size(); ++at) {
      const Node& passing = *places[at].node;
      for (const Node::Consumer& consumer : passing.consumers()) {
        const Node& user = *consumer.node;
        // The second output of Merge, the index of its input, is a separate value.
        if (passing.op() == "Merge" && consumer.output != 0) continue;
        if (passing.op() == "IdentityN" && places[at].input != consumer.output) continue;
        if (consumer.input < NumPassedInputs(user)) {
          const auto [place, is_new] = seen.try_emplace({user.id(), consumer.input}, places.size());
          if (is_new) places.push_back({&user, consumer.input, {}});
          places[place->second].from.push_back(at);
        } else if (RunsAfter(user, *read.node)) {
          found_.again_.insert({user.id(), consumer.input});
          wanted.push_back(at);
        }
      }
    }
    std::vector<bool> marked(places.size(), false);
    while (!wanted.empty()) {
      const size_t at = wanted.back();
      wanted.pop_back();
      if (marked[at]) continue;
      marked[at] = true;
      const Place& place = places[at];
      found_.passes_[place.node->id()] = true;
      if (!place.from.empty()) found_.again_.insert({place.node->id(), place.input});
      wanted.insert(wanted.end(), place.from.begin(), place.from.end());
    }
  }

  bool RunsAfter(const Node& user, const Node& reader) const {
    if (!ever_after_.Contains(user)) return false;
    if (!ever_after_.Contains(reader)) return true;
    return in_iteration_after_.Contains(user) && !in_iteration_after_.Contains(reader);
  }

  const Graph& graph_;
  AliasedReads& found_;
  NodeSet ever_after_;          // the change that is looked at
  NodeSet in_iteration_after_;  // the same, in the same iteration of its loops
  mutable std::vector<std::vector<const Node*>> waiting_;  // by node id: nodes that wait for it
};

AliasedReads::AliasedReads(const Graph& graph) : passes_(graph.num_nodes(), false) {
  Finder(graph, *this).Run();
}

}  // namespace muster
