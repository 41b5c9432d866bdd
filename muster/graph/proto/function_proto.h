// Functions of a graph: kept as they came, and turned into graphs of their own when one is called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/graph/graph.h"

namespace tensorflow {
class FunctionDefLibrary;
}  // namespace tensorflow

namespace muster {

// Names of the functions that were new. InvalidArgument, and none added, for bad signatures and for
// a name that belongs to an op or to another function.
absl::StatusOr<std::vector<std::string>> ImportFunctions(
    Graph& into, const tensorflow::FunctionDefLibrary& proto);
// Sorted by name, byte for byte as imported.
absl::Status FunctionsToProto(const Graph& graph, tensorflow::FunctionDefLibrary& proto);

// Makes the functions of `from` known in `to` too. Those that `to` has stay.
void CopyFunctions(const Graph& from, Graph& to);
// The nodes inside a function that must have run when a call of it has ended.
absl::StatusOr<std::vector<std::string>> ControlResults(const Graph& library,
                                                        const std::string& function);

// A graph in which _Arg nodes stand for the arguments and _Retval nodes for the results, the
// attributes of `function` put in where the body names them. Nodes that must run although no result
// needs them (control results) precede every _Retval.
absl::StatusOr<std::unique_ptr<Graph>> InstantiateFunction(const Graph& library,
                                                           const FunctionRef& function);

}  // namespace muster
