// What may be fed for a tensor of a graph: the one check of all sessions and of Python.
#pragma once

#include "muster/base/status.h"
#include "muster/graph/graph.h"
#include "muster/tensor/tensor.h"

namespace muster {

// InvalidArgument, in TensorFlow's words, unless a value of this shape agrees with what the graph
// knows of `feed`: what follows from static shapes has been computed already.
absl::Status CheckFedShape(const Output& feed, const Shape& shape);

// All feeds of a step: `values[i]` has the type of `feeds[i]`, and a shape that agrees with it.
absl::Status CheckFeeds(absl::Span<const Output> feeds, absl::Span<const Tensor> values);
absl::Status CheckFeeds(absl::Span<const std::pair<Output, Tensor>> feeds);

}  // namespace muster
