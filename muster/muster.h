// The public surface of Muster in C++: build a graph through a Scope, differentiate it, run it in a
// Session.
//
//   Graph graph;
//   Scope scope(graph);
//   Output x = ops::Placeholder(scope, DType::kFloat);
//   Output y = ops::Square(scope, x);
//   auto session = Session::Create(graph);
//   auto result = (*session)->Run({{x, Tensor::Scalar<float>(3)}}, {y});
//
// Variables are made with MakeVariable and trained by an optimizer:
//
//   TrainVariable w = *MakeVariable(scope, "w", GlorotUniform({784, 10}));
//   AdamOptimizer adam(0.001);
//   Node* train = *adam.Minimize(scope, loss, {w});
//
// A MonitoredTrainingSession (train/training_session.h) initializes, saves and recovers:
//
//   auto session = *MonitoredTrainingSession(std::move(options));
//   while (!session->ShouldStop()) session->Run(feeds, {loss}, {train}).value();
//
// In a cluster, every process has a Server, and SessionOptions::master says which of them runs the
// session:
//
//   options.master = *ConnectMaster("grpc://host:2222", options.config);
#pragma once

#include "muster/client/connect.h"
#include "muster/client/session.h"
#include "muster/graph/gradients.h"
#include "muster/graph/graph.h"
#include "muster/graph/scope.h"
#include "muster/ops.h"
#include "muster/server/server.h"
#include "muster/tensor/tensor.h"
#include "muster/train/decay.h"
#include "muster/train/device_setter.h"
#include "muster/train/hooks.h"
#include "muster/train/moving_average.h"
#include "muster/train/optimizers.h"
#include "muster/train/training_session.h"
#include "muster/train/variables.h"
#include "muster/transport/cluster.h"
