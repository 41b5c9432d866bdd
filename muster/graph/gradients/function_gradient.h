// Derivatives of functions: what a SymbolicGradient node computes, and the nodes that
// differentiate a call.
#pragma once

#include <memory>

#include "muster/graph/gradients/gradient_context.h"

namespace muster {

// The op whose attribute `f` is a function (or an op): from the arguments of f and the gradients of
// its results it computes the gradients of the arguments.
inline constexpr char kSymbolicGradient[] = "SymbolicGradient";

// The body of a function of the library; for kSymbolicGradient, of the gradient of its attribute f.
// That has the arguments and results that f's signature asks for, zeros where f has no gradient.
absl::StatusOr<std::unique_ptr<Graph>> InstantiateCallee(const Graph& library,
                                                         const FunctionRef& callee);

// Whether a node differentiates something, which needs no library when that is an op.
bool HasSymbolicGradient(const Graph& graph);

// What differentiates a node that calls a function; empty for other nodes.
GradientFunction CallGradient(const Node& node);

}  // namespace muster
