// A master whose workers are fakes, in simulated time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/master/fake_worker_test.h"
#include "muster/master/master.h"

namespace muster {

inline constexpr char kPs[] = "/job:ps/replica:0/task:0";
inline constexpr char kWorker[] = "/job:worker/replica:0/task:0";

inline absl::Status AddNodes(Graph& graph, absl::FunctionRef<void(const Scope&)> build) {
  Scope scope(graph);
  build(scope);
  return scope.status();
}

// x and y = x * x on the ps, z = -y on the worker, "go" without outputs.
inline absl::Status SmallGraph(Graph& graph) {
  return AddNodes(graph, [](const Scope& scope) {
    const Scope ps = scope.WithDevice("/job:ps/task:0");
    const Output x =
        ps.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape()}}, "x");
    const Output y = ps.Op("Square", {x}, {}, "y");
    scope.WithDevice("/job:worker/task:0").Op("Neg", {y}, {}, "z");
    ps.Add("NoOp", {}, {}, "go");
  });
}

class MasterTest : public testing::Test {
 protected:
  MasterTest() {
    for (const char* task : {kPs, kWorker}) {
      workers_[task] = std::make_shared<FakeWorker>(task, task == kPs ? 0x11 : 0x22, log_);
      transport_.by_address[task == kPs ? "ps0:2222" : "worker0:2222"] = workers_[task];
    }
    MasterOptions options;
    options.self = {"worker", 0, 0};
    options.port = 2222;
    options.scheduler = scheduler_.get();
    options.transport = &transport_;
    options.peers = std::make_shared<FakePeers>(workers_);
    options.local_worker = workers_[kWorker];
    master_ = Master::Create(std::move(options));
  }

  template <typename Reply, typename Start>
  absl::StatusOr<Reply> Wait(Start start) {
    auto reply = std::make_shared<std::optional<absl::StatusOr<Reply>>>();
    start([reply](absl::StatusOr<Reply> r) { *reply = std::move(r); });
    scheduler_->RunUntil([&] { return reply->has_value(); });
    if (!*reply) return absl::UnknownError("nothing came");
    return **std::move(reply);
  }
  absl::StatusOr<std::string> Create(SessionConfig config = {}, GraphEdit graph = SmallGraph,
                                     std::string target = "grpc://worker0:2222") {
    CreateSessionRequest request;
    request.graph = std::move(graph);
    request.config = std::move(config);
    request.target = std::move(target);
    auto reply = Wait<CreateSessionReply>(
        [&](auto done) { master_->CreateSession({}, std::move(request), std::move(done)); });
    if (!reply.ok()) return reply.status();
    return reply->session;
  }
  absl::StatusOr<RunStepReply> Run(RunStepRequest request, CallOptions options = {}) {
    return Wait<RunStepReply>(
        [&](auto done) { master_->RunStep(options, std::move(request), std::move(done)); });
  }
  RunStepRequest Step(const std::string& session, std::vector<std::string> feeds,
                      std::vector<std::string> fetches, std::vector<std::string> targets = {}) {
    RunStepRequest request;
    request.session = session;
    for (const std::string& feed : feeds) request.feeds.push_back({feed, Tensor::Scalar<float>(1)});
    request.fetches = std::move(fetches);
    request.targets = std::move(targets);
    return request;
  }
  absl::StatusOr<Empty> Close(const std::string& session) {
    return Wait<Empty>([&](auto done) { master_->CloseSession({}, session, std::move(done)); });
  }
  // What happened since the last time.
  std::vector<std::string> Log() { return std::exchange(log_, {}); }
  int Count(absl::string_view what) const {
    return static_cast<int>(std::count_if(log_.begin(), log_.end(), [&](const std::string& line) {
      return absl::StartsWith(line, what);
    }));
  }
  void Advance(absl::Duration by) {
    bool passed = false;
    scheduler_->ScheduleAfter(by, [&passed] { passed = true; });
    scheduler_->RunUntil([&passed] { return passed; });
  }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(1);
  std::vector<std::string> log_;
  std::map<std::string, std::shared_ptr<FakeWorker>> workers_;
  FakeTransport transport_;
  std::shared_ptr<Master> master_;
};

inline std::string Text(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}
template <typename T>
std::string Text(const absl::StatusOr<T>& result) {
  return Text(result.status());
}

}  // namespace muster
