// A cluster of workers in one process, and the part of a master that tests need.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/build/graph_test_util.h"
#include "muster/transport/inproc/in_process_transport.h"
#include "muster/transport/inproc/relay.h"
#include "muster/worker/worker.h"

namespace muster {

// The answer of a call, once it is there.
template <typename Reply>
struct Answered {
  std::shared_ptr<std::optional<absl::StatusOr<Reply>>> value =
      std::make_shared<std::optional<absl::StatusOr<Reply>>>();
  CallDone<Reply> done() const {
    return [value = value](absl::StatusOr<Reply> reply) { *value = std::move(reply); };
  }
  bool has_value() const { return value->has_value(); }
  absl::StatusOr<Reply>& operator*() const { return **value; }
  absl::Status status() const {
    return has_value() ? (*value)->status() : absl::UnknownError("not answered");
  }
};

class WorkerTest : public ::testing::Test {
 protected:
  static constexpr absl::string_view kSession = "feed";

  static std::string Address(int i) { return absl::StrCat("t", i, ":1"); }
  static std::string Task(int i) { return absl::StrCat("/job:w/replica:0/task:", i); }
  static std::string Cpu(int i, int number = 0) {
    return absl::StrCat(Task(i), "/device:CPU:", number);
  }

  WorkerOptions OptionsOf(int i) {
    WorkerOptions options;
    options.self = TaskName{"w", i, 0};
    options.cluster = cluster_;
    options.scheduler = scheduler();
    options.transport = transport();
    return options;
  }
  virtual Scheduler* scheduler() { return scheduler_.get(); }
  virtual Transport* transport() = 0;
  virtual void Listen(int i, std::shared_ptr<Worker> worker) = 0;

  void StartCluster(int size) {
    std::map<std::string, ClusterSpec::Tasks> jobs;
    for (int i = 0; i < size; ++i) jobs["w"][i] = Address(i);
    cluster_ = ClusterSpec(jobs);
    workers_.resize(size);
    for (int i = 0; i < size; ++i) StartWorker(OptionsOf(i));
    for (int i = 0; i < size; ++i) EXPECT_EQ(NewSession(i), absl::OkStatus());
  }
  void StartWorker(WorkerOptions options) {
    const int i = options.self.task;
    auto worker = Worker::Create(std::move(options));
    ASSERT_EQ(worker.status(), absl::OkStatus());
    workers_[i] = *worker;
    Listen(i, *worker);
  }
  void TearDown() override {
    for (auto& worker : workers_) worker->Stop(absl::CancelledError("the test is over"));
    RunAll();
    workers_.clear();
  }
  void RunAll() {
    scheduler_->RunUntil([] { return false; });
  }
  // Runs what is ready, without moving the clock.
  void RunReady() {
    while (scheduler_->RunOne()) {
    }
  }

  absl::Status NewSession(int i, absl::string_view name = kSession) {
    CreateWorkerSessionRequest request;
    request.session = std::string(name);
    return Create(i, std::move(request));
  }
  absl::Status Create(int i, CreateWorkerSessionRequest request) {
    Answered<Empty> answer;
    workers_[i]->CreateWorkerSession({}, std::move(request), answer.done());
    return answer.status();
  }

  // The graph's nodes must have devices.
  absl::StatusOr<std::string> Register(int i, std::unique_ptr<Graph> graph,
                                       absl::string_view session = kSession) {
    RegisterGraphRequest request;
    request.session = std::string(session);
    request.graph = [graph = std::move(graph)]() mutable -> absl::StatusOr<std::unique_ptr<Graph>> {
      return std::move(graph);
    };
    Answered<std::string> answer;
    workers_[i]->RegisterGraph({}, std::move(request), answer.done());
    return answer.has_value() ? *answer : answer.status();
  }

  RunGraphRequest Request(const std::string& graph, int64_t step) {
    RunGraphRequest request;
    request.session = std::string(kSession);
    request.graph = graph;
    request.step_id = step;
    request.request_id = NewRequestId();
    return request;
  }
  Answered<RunGraphReply> Run(int i, RunGraphRequest request, CallOptions options = {}) {
    Answered<RunGraphReply> answer;
    workers_[i]->RunGraph(std::move(options), std::move(request), answer.done());
    return answer;
  }
  Answered<RecvTensorReply> Ask(int i, int64_t step, std::string key, CallOptions options = {},
                                int64_t id = NewRequestId()) {
    Answered<RecvTensorReply> answer;
    workers_[i]->RecvTensor(std::move(options), {step, std::move(key), id}, answer.done());
    return answer;
  }
  void Cleanup(int i, int64_t step) {
    Answered<Empty> answer;
    workers_[i]->CleanupGraph({}, step, answer.done());
    EXPECT_EQ(answer.status(), absl::OkStatus());
  }

  int64_t Incarnation(int i, int number = 0) {
    return static_cast<int64_t>(workers_[i]->devices()[number]->attributes().incarnation);
  }
  std::string Key(int from, int to, absl::string_view name) {
    return absl::StrFormat("%s;%016x;%s;%s;0:0", Cpu(from),
                           static_cast<uint64_t>(Incarnation(from)), Cpu(to), name);
  }
  AttrMap Transfer(int from, int to, absl::string_view name, bool client = false) {
    return {{"tensor_name", std::string(name)},
            {"send_device", Cpu(from)},
            {"send_device_incarnation", Incarnation(from)},
            {"recv_device", Cpu(to)},
            {"client_terminated", client}};
  }
  static absl::string_view NodePart(absl::string_view name) {
    return name.substr(0, name.find(':'));
  }
  void Send(const Scope& scope, Output value, int from, int to, absl::string_view name,
            bool client = false) {
    AttrMap attrs = Transfer(from, to, name, client);
    attrs.emplace("T", value.base_dtype());
    scope.Op("_Send", {value}, std::move(attrs), absl::StrCat("send_", NodePart(name)));
  }
  Output Recv(const Scope& scope, int from, int to, absl::string_view name, bool client = false) {
    AttrMap attrs = Transfer(from, to, name, client);
    attrs.emplace("tensor_type", DType::kFloat);
    return scope.Op("_Recv", {}, std::move(attrs), absl::StrCat("recv_", NodePart(name)));
  }
  Output Number(const Scope& scope, float value, absl::string_view name) {
    return scope.Op("Const", {},
                    {{"dtype", DType::kFloat}, {"value", Tensor::Scalar<float>(value)}}, name);
  }
  // Nodes made by `build` on CPU:0 of task i.
  template <typename Build>
  std::string RegisterOn(int i, Build build, absl::string_view session = kSession) {
    auto graph = std::make_unique<Graph>();
    const Scope scope = Scope(*graph).WithDevice(Cpu(i));
    build(scope);
    EXPECT_EQ(scope.status(), absl::OkStatus());
    const auto handle = Register(i, std::move(graph), session);
    EXPECT_EQ(handle.status(), absl::OkStatus());
    return handle.value_or("");
  }
  static float Only(const Answered<RunGraphReply>& answer) {
    if (answer.status() != absl::OkStatus() || (*answer)->recv.size() != 1) {
      ADD_FAILURE() << answer.status();
      return -1;
    }
    return (*answer)->recv[0].tensor.template scalar<float>();
  }

  ClusterSpec cluster_;
  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(7);
  std::vector<std::shared_ptr<Worker>> workers_;
};

// Tasks that call each other directly.
class InProcessTest : public WorkerTest {
 protected:
  Transport* transport() override { return network_.get(); }
  void Listen(int i, std::shared_ptr<Worker> worker) override {
    network_->Listen(Address(i), {worker, nullptr});
  }

  // Reads an uninitialised variable: FAILED_PRECONDITION.
  Output Bad(const Scope& scope) {
    const Output v = Variable(scope, "bad");
    return scope.Op("Identity", {v}, {}, "bad/read");
  }
  static Output Variable(const Scope& scope, absl::string_view name) {
    return scope.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}},
                    name);
  }

  std::unique_ptr<InProcessTransport> network_ = InProcessTransport::Create(*scheduler_);
};

}  // namespace muster
