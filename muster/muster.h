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
// A training program collects what it makes in a Model, an optimizer changes the variables, and a
// MonitoredTrainingSession initializes, saves, recovers and calls hooks:
//
//   Model model;
//   model.AddGlobalStep(scope);
//   TrainVariable w = model.AddVariable(scope, "w", GlorotUniform({784, 10}));
//   Output loss = ...;
//   AdamOptimizer adam(0.001);
//   Node* train = *model.Minimize(scope, loss, adam);
//
//   MonitoredTrainingSessionOptions options;
//   options.graph = &graph;
//   options.model = model;
//   options.checkpoint_dir = "model";
//   options.last_step = 1000;
//   auto session = *MonitoredTrainingSession(std::move(options));
//   while (!session->ShouldStop()) session->Run(feeds, {loss}, {train}).value();
//   session->Close();
//
// In a cluster every process has a Server, and options.session says at which of them a session
// runs. examples/mnist_replica.cc is a whole program.
//
//   options.session = *OptionsForTarget(server->target());
#pragma once

#include "muster/client/connect.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/graph/graph.h"
#include "muster/ops.h"
#include "muster/optimizers.h"
#include "muster/server/local_cluster.h"
#include "muster/server/server.h"
#include "muster/tensor/tensor.h"
#include "muster/train/events/event_writer.h"
#include "muster/train/hooks/hooks.h"
#include "muster/train/loop/coordinator.h"
#include "muster/train/loop/interruption.h"
#include "muster/train/loop/queue_runner.h"
#include "muster/train/loop/shard_queue.h"
#include "muster/train/loop/supervisor.h"
#include "muster/train/loop/training_session.h"
#include "muster/train/model/device_setter.h"
#include "muster/train/model/model.h"
#include "muster/train/model/variables.h"
#include "muster/train/optimizers/decay.h"
#include "muster/train/optimizers/moving_average.h"
#include "muster/train/replicas/all_reduce_hook.h"
#include "muster/train/replicas/sync_replicas_hook.h"
#include "muster/train/saving/saver.h"
#include "muster/transport/api/cluster.h"
