// For tests of graph rewrites: a step's graph from a program's, and what is in it.
#pragma once

#include "absl/strings/match.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/status.h"
#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/rewrite/passes.h"
#include "muster/graph/rewrite/prune.h"

namespace muster {

class PassTest : public ::testing::Test {
 protected:
  PassTest() : scope_(graph_) {}

  Output Floats(absl::string_view name, PartialShape shape) {
    return Placeholder(scope_, name, DType::kFloat, std::move(shape));
  }
  // The graph of a step that fetches these, with all placeholders among `feeds` fed, after `pass`.
  void Rewrite(absl::Status (*pass)(GraphRewriter&), std::vector<Output> feeds,
               std::vector<Output> fetches, std::vector<Node*> targets = {}) {
    ASSERT_EQ(scope_.status(), absl::OkStatus());
    auto pruned = PruneForStep(graph_, {std::move(feeds), std::move(fetches), std::move(targets)});
    ASSERT_EQ(pruned.status(), absl::OkStatus());
    step_ = *std::move(pruned);
    GraphRewriter rewriter(*step_);
    ASSERT_EQ(pass(rewriter), absl::OkStatus());
  }
  // Without the nodes that carry feeds.
  std::vector<std::string> List() const {
    std::vector<std::string> lines;
    for (std::string& line : NodeList(*step_)) {
      if (!absl::StrContains(line, " _Arg")) lines.push_back(std::move(line));
    }
    return lines;
  }
  const Node* Find(absl::string_view name) const { return step_->FindNode(name); }

  Graph graph_;
  Scope scope_;
  std::unique_ptr<Graph> step_;
};

}  // namespace muster
