// The public surface of Muster in C++: build a graph through a Scope, differentiate it, run it in a
// Session.
//
//   Graph graph;
//   Scope scope(graph);
//   Output x = ops::Placeholder(scope, DType::kFloat);
//   Output y = ops::Square(scope, x);
//   auto session = Session::Create(graph);
//   auto result = (*session)->Run({{x, Tensor::Scalar<float>(3)}}, {y});
#pragma once

#include "muster/client/session.h"
#include "muster/graph/gradients.h"
#include "muster/graph/graph.h"
#include "muster/graph/scope.h"
#include "muster/ops.h"
#include "muster/tensor/tensor.h"
