// soak TARGET THREADS PHASE...: each phase is a number of sessions, opened and used from all
// threads at once; every other one is dropped without being closed, as by a client that vanishes.
// After a phase "done" is printed, and the next begins with a line on standard input.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "muster/client/connect.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/transport/api/forwarding.h"
#include "muster/transport/grpc/grpc_transport.h"

namespace muster {
namespace {

// A master that learns of the end of a session only by that of its connection, which no other
// session has.
class Deserted : public ForwardingMaster<Deserted> {
 public:
  explicit Deserted(std::shared_ptr<MasterApi> master) : master_(std::move(master)) {}
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    call(*master_, std::move(options), std::move(done));
  }
  void CloseSession(CallOptions, std::string, CallDone<Empty> done) override {
    std::move(done)(Empty());
  }

 private:
  const std::shared_ptr<MasterApi> master_;
};

absl::Status UseSession(const std::string& target, int thread, bool drop) {
  Graph graph;
  const Scope scope(graph);
  const Scope ps = scope.WithDevice("/job:ps/task:0");
  const Output v = ps.Op("VariableV2", {}, {{"shape", Shape({})}, {"dtype", DType::kFloat}},
                         absl::StrCat("v", thread));
  const Output set = ps.Op("Assign", {v, ps.ConstScalar<float>(1)});
  const Output twice = scope.WithDevice("/job:worker/task:0").Op("Add", {set, set});
  RETURN_IF_ERROR(scope.status());
  SessionOptions options;
  options.target = target;
  if (drop) {
    GrpcOptions grpc;
    grpc.scheduler = &DefaultScheduler();
    ASSIGN_OR_RETURN(std::shared_ptr<MasterApi> own,
                     NewGrpcTransport(std::move(grpc))->ConnectMaster(target));
    options.master = std::make_shared<Deserted>(std::move(own));
  } else {
    ASSIGN_OR_RETURN(options.master, ConnectMaster(target, options.config));
  }
  ASSIGN_OR_RETURN(const auto session, Session::Create(graph, std::move(options)));
  ASSIGN_OR_RETURN(const std::vector<Tensor> result, session->Run({}, {twice}));
  if (result[0].scalar<float>() != 2) return Internal("wrong value ", result[0].scalar<float>());
  return session->Close();
}

bool RunPhase(const std::string& target, int threads, int sessions) {
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      for (int number = next++; number < sessions && !failed; number = next++) {
        const absl::Status status = UseSession(target, i, number % 2 == 0);
        if (status.ok()) continue;
        std::fprintf(stderr, "session %d: %s\n", number, status.ToString().c_str());
        failed = true;
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  return !failed;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: soak TARGET THREADS PHASE...\n");
    return 2;
  }
  for (int i = 3; i < argc; ++i) {
    if (!muster::RunPhase(argv[1], std::atoi(argv[2]), std::atoi(argv[i]))) return 1;
    std::printf("done\n");
    std::fflush(stdout);
    std::string line;
    std::getline(std::cin, line);
  }
  return 0;
}
