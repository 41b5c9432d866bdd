// For tests that compare a graph with the node list of the same Python program.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "muster/graph/build/emit.h"
#include "muster/graph/build/scope.h"

namespace muster {

// "name op input,input:1,^control @colocated" per node, in order of creation.
inline std::vector<std::string> NodeList(const Graph& graph) {
  std::vector<std::string> lines;
  for (const auto& node : graph.nodes()) {
    std::vector<std::string> inputs;
    for (const Output& input : node->inputs()) {
      inputs.push_back(input.index == 0 ? input.node->name() : input.name());
    }
    for (const Node* before : node->control_inputs())
      inputs.push_back(absl::StrCat("^", before->name()));
    std::string line = absl::StrCat(node->name(), " ", node->op());
    if (!inputs.empty()) absl::StrAppend(&line, " ", absl::StrJoin(inputs, ","));
    const std::vector<std::string> groups = node->ColocationGroups();
    if (!groups.empty()) absl::StrAppend(&line, " @", absl::StrJoin(groups, ","));
    lines.push_back(std::move(line));
  }
  return lines;
}

inline std::vector<std::string> Lines(absl::string_view text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// A Python operator with a number on the right: node `name` and constant `name/y`.
inline Output WithNumber(const Scope& scope, absl::string_view op, absl::string_view name, Output x,
                         double y) {
  const Scope own = scope.NameScope(name);
  const Output number = EmitScalar(own, x.base_dtype(), y, "y");
  return OpNamed(own, op, {x, number});
}

inline Output Placeholder(const Scope& scope, absl::string_view name, DType dtype,
                          PartialShape shape) {
  return scope.Op("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}}, name);
}

}  // namespace muster
