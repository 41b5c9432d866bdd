// One process of a small cluster that counts which code runs. check_step_path.py starts it as
//
//   step_path ps|worker|client PS_ADDRESS WORKER_ADDRESS, or step_path local
//
// and writes commands to it, a line each, which it answers with "ok" when they are done:
//
//   step   runs one training step (client and local only)
//   clear  sets all counters to zero
//   dump   prints the file and the offset of each piece of code that has run since
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "muster/muster.h"

namespace {

// What clang has put into one program or library: a counter for each piece of code without a
// branch, and where the piece begins.
struct Counters {
  uint8_t* begin;
  uint8_t* end;
  const uintptr_t* pieces;  // pairs of an address and flags
};

// Filled before main, in an order that leaves no other object to be sure of.
Counters counters[64];
int num_counters = 0;

void Clear() {
  for (int i = 0; i < num_counters; ++i) std::fill(counters[i].begin, counters[i].end, 0);
}

void Dump() {
  for (int i = 0; i < num_counters; ++i) {
    const Counters& list = counters[i];
    Dl_info info;  // of the file in which all of them are; slow to find
    if (dladdr(reinterpret_cast<void*>(list.pieces[0]), &info) == 0) continue;
    const auto base = reinterpret_cast<uintptr_t>(info.dli_fbase);
    for (size_t at = 0; at < static_cast<size_t>(list.end - list.begin); ++at) {
      if (list.begin[at] != 0)
        std::printf("%s 0x%zx\n", info.dli_fname, list.pieces[2 * at] - base);
    }
  }
}

using muster::DType;
using muster::Node;
using muster::Output;
using muster::PartialShape;
using muster::Scope;
using muster::Session;
using muster::Tensor;
namespace ops = muster::ops;

// Linear regression: the variable at the ps, everything else at the worker.
struct Training {
  muster::Graph graph;
  muster::Model model;
  Output examples, labels, loss;
  Node* train = nullptr;
  std::unique_ptr<Session> session;
  std::shared_ptr<muster::StepPlan> plan;

  // With its own session; `target` empty: in this process. Ready means that a step is planned.
  absl::Status Begin(const std::string& target) {
    const bool in_cluster = !target.empty();
    Scope scope(graph);
    if (in_cluster) {
      scope = scope.WithDeviceFunction(
          muster::ReplicaDeviceSetter(1, {.worker_device = "/job:worker/task:0"}));
    }
    examples = ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape({-1, 8})});
    labels = ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape({-1, 1})});
    const auto weights = model.AddVariable(scope, "weights", muster::Zeros({8, 1}));
    const Output guess = ops::MatMul(scope, examples, muster::Value(scope, weights));
    loss = ops::Mean(scope, ops::Square(scope, ops::Sub(scope, guess, labels)),
                     scope.ConstVector({0, 1}));
    muster::GradientDescentOptimizer optimizer(0.1);
    ASSIGN_OR_RETURN(train, model.Minimize(scope, loss, optimizer));
    ASSIGN_OR_RETURN(Node* const init, muster::Initializer(scope, model.variables));
    RETURN_IF_ERROR(scope.status());
    muster::SessionOptions options;
    if (in_cluster) {
      ASSIGN_OR_RETURN(options, muster::OptionsForTarget(target));
    }
    ASSIGN_OR_RETURN(session, Session::Create(graph, std::move(options)));
    RETURN_IF_ERROR(session->Run({}, {}, {init}).status());
    ASSIGN_OR_RETURN(plan, session->Prepare({{examples, labels}, {loss}, {train}}));
    return absl::OkStatus();
  }

  absl::Status Step() {
    return session
        ->Run(*plan,
              {Tensor::Of<float>({1, 8}, {1, 2, 3, 4, 5, 6, 7, 8}), Tensor::Of<float>({1, 1}, {1})})
        .status();
  }
};

int Serve(const absl::Status& ready, Training* training) {
  absl::Status status = ready;
  std::string command;
  std::printf("%s\n", status.ok() ? "ok" : status.ToString().c_str());
  std::fflush(stdout);
  while (status.ok() && std::getline(std::cin, command)) {
    if (command == "clear") Clear();
    if (command == "dump") Dump();
    if (command == "step") status = training->Step();
    std::printf("%s\n", status.ok() ? "ok" : status.ToString().c_str());
    std::fflush(stdout);
  }
  return status.ok() ? 0 : 1;
}

}  // namespace

// clang calls these for every object of a program or library, each time with all of its counters.
extern "C" void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end) {
  for (int i = 0; i < num_counters; ++i) {
    if (counters[i].begin == begin) return;
  }
  if (begin != end && num_counters < 64) counters[num_counters++] = {begin, end, nullptr};
}
extern "C" void __sanitizer_cov_pcs_init(const uintptr_t* begin, const uintptr_t* end) {
  for (int i = 0; i < num_counters; ++i) {
    const ptrdiff_t pieces = counters[i].end - counters[i].begin;
    if (counters[i].pieces == begin) return;
    if (counters[i].pieces == nullptr && 2 * pieces == end - begin) {
      counters[i].pieces = begin;
      return;
    }
  }
}

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role != "local" && argc != 4) {
    std::fprintf(stderr,
                 "step_path ps|worker|client PS_ADDRESS WORKER_ADDRESS, or step_path local\n");
    return 2;
  }
  if (role == "ps" || role == "worker") {
    muster::ServerOptions options;
    options.cluster = muster::ClusterSpec({{"ps", {{0, argv[2]}}}, {"worker", {{0, argv[3]}}}});
    options.job = role;
    options.task = 0;
    options.links = muster::Links::kNone;  // over gRPC, as with stock peers
    const auto server = muster::Server::Create(std::move(options));
    return Serve(server.ok() ? (*server)->Start() : server.status(), nullptr);
  }
  Training training;
  return Serve(training.Begin(role == "client" ? absl::StrCat("grpc://", argv[3]) : ""), &training);
}
