#include "muster/client/remote_session.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/device/device.h"
#include "muster/graph/build/scope.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/master/master.h"
#include "muster/transport/inproc/in_process_transport.h"
#include "muster/transport/simulated/simulated_network.h"
#include "muster/worker/worker.h"

namespace muster {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// One task of a cluster: worker and master.
struct TestTask {
  std::shared_ptr<Worker> worker;
  std::shared_ptr<Master> master;
};

TestTask StartTask(const ClusterSpec& cluster, const TaskName& self, Scheduler& scheduler,
                   Transport& transport) {
  TestTask task;
  WorkerOptions worker;
  worker.self = self;
  worker.cluster = cluster;
  worker.scheduler = &scheduler;
  worker.transport = &transport;
  task.worker = Worker::Create(std::move(worker)).value();
  MasterOptions master;
  master.self = self;
  master.scheduler = &scheduler;
  master.transport = &transport;
  master.peers = task.worker->peers();
  master.local_worker = task.worker;
  task.master = Master::Create(std::move(master));
  return task;
}

const ClusterSpec& TwoTasks() {
  static const auto* cluster =
      new ClusterSpec({{"ps", {{0, "ps0:1"}}}, {"worker", {{0, "worker0:1"}}}});
  return *cluster;
}

// The program that all tests run: a variable on the ps, a worker that adds to it.
struct Program {
  Program() {
    const Scope ps = scope.WithDevice("/job:ps/task:0");
    const Scope worker = scope.WithDevice("/job:worker/task:0");
    const Output v = ps.Op("VariableV2", {}, {{"shape", Shape()}, {"dtype", DType::kFloat}}, "v");
    init = ps.Op("Assign", {v, ps.ConstScalar<float>(1)}, {}, "init").node;
    read = worker.Op("Identity", {v}, {}, "read");
    x = worker.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
    doubled = worker.Op("Add", {x, x}, {}, "doubled");
    add = ps.Op("AssignAdd", {v, doubled}, {}, "add");
  }
  Graph graph;
  Scope scope{graph};
  Node* init;
  Output read;
  Output x;
  Output doubled;
  Output add;
};

float Value(const absl::StatusOr<std::vector<Tensor>>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? (*result)[0].scalar<float>() : 0;
}

class SimulatedClusterTest : public testing::TestWithParam<int> {
 protected:
  SimulatedClusterTest() {
    SeedIds(GetParam());
    for (const TaskName& task : TwoTasks().tasks()) Start(task);
  }
  void Start(const TaskName& name) {
    const std::string address = TwoTasks().Address(name).value();
    tasks_[address] = StartTask(TwoTasks(), name, *scheduler_, *network_);
    network_->Listen(address, {tasks_[address].worker, tasks_[address].master});
  }
  void Kill(const TaskName& name) {
    const std::string address = TwoTasks().Address(name).value();
    network_->Kill(address);
    tasks_[address].worker->Stop(absl::CancelledError("killed"));
    tasks_[address].master->Stop(absl::CancelledError("killed"), [](absl::Status) {});
    tasks_.erase(address);
  }
  std::unique_ptr<Session> NewSession(absl::Duration timeout = absl::ZeroDuration()) {
    SessionOptions options;
    options.scheduler = scheduler_.get();
    options.target = "grpc://worker0:1";
    options.master = network_->ConnectMaster(options.target).value();
    options.operation_timeout = timeout;
    return Session::Create(program_.graph, std::move(options)).value();
  }
  int64_t Sessions() { return tasks_["worker0:1"].master->counts().sessions; }

  const TaskName ps_{"ps", 0, 0};
  const TaskName worker_{"worker", 0, 0};
  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(GetParam());
  std::unique_ptr<SimulatedNetwork> network_ =
      SimulatedNetwork::Create(*scheduler_, {static_cast<uint64_t>(GetParam())});
  std::map<std::string, TestTask> tasks_;
  Program program_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatedClusterTest, testing::Range(1, 21));

TEST_P(SimulatedClusterTest, RunsStepsOverTwoTasks) {
  auto session = NewSession();
  const Program& p = program_;
  ASSERT_TRUE(session->Run({}, {}, {p.init}).ok());
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(Value(session->Run({{p.x, Tensor::Scalar<float>(1)}}, {p.add})), 3 + 2 * i);
  EXPECT_EQ(Value(session->Run({}, {p.read, p.read})), 11);
  // The graph grows.
  const Output more = program_.scope.WithDevice("/job:ps/task:0").Op("Neg", {p.read}, {}, "more");
  EXPECT_EQ(Value(session->Run({}, {more})), -11);
  // A step that has nothing to do makes no call.
  EXPECT_TRUE(session->Run({}, {}).ok());
  EXPECT_EQ(Value(session->Run({{p.x, Tensor::Scalar<float>(7)}}, {p.x})), 7);
  EXPECT_THAT(session->ListDevices().value(), SizeIs(2));
  EXPECT_EQ(Sessions(), 1);
  EXPECT_TRUE(session->Close().ok());
  EXPECT_EQ(Sessions(), 0);
  EXPECT_EQ(tasks_["ps0:1"].worker->counts().sessions, 0);
  EXPECT_EQ(session->Run({}, {p.read}).status().code(), absl::StatusCode::kCancelled);
}

TEST_P(SimulatedClusterTest, ErrorsNameTheirTask) {
  auto session = NewSession();
  EXPECT_THAT(session->Run({}, {program_.read}).status().ToString(),
              HasSubstr("FAILED_PRECONDITION: From /job:ps/replica:0/task:0:\nAttempting to use "
                        "uninitialized value v"));
}

TEST_P(SimulatedClusterTest, PartialRunsCrossTasks) {
  auto session = NewSession();
  const Program& p = program_;
  ASSERT_TRUE(session->Run({}, {}, {p.init}).ok());
  const auto handle = session->PartialRunSetup({{p.x}, {p.doubled, p.add}, {}});
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(Value(session->PartialRun(*handle, {{p.x, Tensor::Scalar<float>(2)}}, {p.doubled})), 4);
  EXPECT_EQ(Value(session->PartialRun(*handle, {}, {p.add})), 5);
}

TEST_P(SimulatedClusterTest, ARestartedTaskAbortsSteps) {
  auto session = NewSession();
  const Program& p = program_;
  ASSERT_TRUE(session->Run({}, {}, {p.init}).ok());
  EXPECT_EQ(Value(session->Run({}, {p.read})), 1);
  Kill(ps_);
  EXPECT_EQ(session->Run({}, {p.read}).status().code(), absl::StatusCode::kUnavailable);
  Start(ps_);
  const absl::Status status = session->Run({}, {p.read}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_TRUE(session->Close().ok());
  // A new session finds the task, without its state.
  auto fresh = NewSession();
  ASSERT_TRUE(fresh->Run({}, {}, {p.init}).ok());
  EXPECT_EQ(Value(fresh->Run({}, {p.read})), 1);
}

TEST_P(SimulatedClusterTest, ClosingWithADeadTaskIsQuick) {
  auto session = NewSession();
  ASSERT_TRUE(session->Run({}, {}, {program_.init}).ok());
  Kill(ps_);
  absl::Time before = scheduler_->clock().Now();
  EXPECT_TRUE(session->Close().ok());
  EXPECT_LE(scheduler_->clock().Now() - before, absl::Seconds(2));
}

TEST_P(SimulatedClusterTest, ADeadMasterIsWaitedForButNotWhenClosing) {
  auto session = NewSession(absl::Seconds(30));
  ASSERT_TRUE(session->Run({}, {}, {program_.init}).ok());
  Kill(worker_);
  EXPECT_EQ(session->Run({}, {program_.read}).status().code(), absl::StatusCode::kDeadlineExceeded);
  Start(worker_);
  const absl::Status status = session->Run({}, {program_.read}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(" is not found."));

  auto other = NewSession();
  ASSERT_TRUE(other->Run({}, {}, {program_.init}).ok());
  Kill(worker_);
  const absl::Time before = scheduler_->clock().Now();
  EXPECT_TRUE(other->Close().ok());
  EXPECT_LE(scheduler_->clock().Now() - before, absl::Seconds(2));
}

TEST_P(SimulatedClusterTest, CreationWaitsForTheLastTask) {
  Kill(ps_);
  bool started = false;
  scheduler_->ScheduleAfter(absl::Seconds(100), [&] {
    Start(ps_);
    started = true;
  });
  auto session = NewSession();
  ASSERT_TRUE(session->Run({}, {}, {program_.init}).ok());
  EXPECT_TRUE(started);
  Kill(ps_);
  auto impatient = NewSession(absl::Seconds(5));
  EXPECT_EQ(impatient->Run({}, {program_.read}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

// On threads: a session used by many at once.
TEST(InProcessClusterTest, StepsRunConcurrently) {
  auto pool = NewThreadPool(4);
  auto transport = InProcessTransport::Create(*pool);
  std::map<std::string, TestTask> tasks;
  for (const TaskName& name : TwoTasks().tasks()) {
    const std::string address = TwoTasks().Address(name).value();
    tasks[address] = StartTask(TwoTasks(), name, *pool, *transport);
    transport->Listen(address, {tasks[address].worker, tasks[address].master});
  }
  Program p;
  SessionOptions options;
  options.target = "grpc://worker0:1";
  options.master = tasks["worker0:1"].master;
  auto session = Session::Create(p.graph, options).value();
  ASSERT_TRUE(session->Run({}, {}, {p.init}).ok());
  constexpr int kThreads = 4;
  constexpr int kSteps = 100;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kSteps; ++i)
        EXPECT_TRUE(session->Run({{p.x, Tensor::Scalar<float>(0.5)}}, {}, {p.add.node}).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Value(session->Run({}, {p.read})), 1 + kThreads * kSteps);
  EXPECT_TRUE(session->Close().ok());
  for (auto& [address, task] : tasks) {
    task.worker->Stop(absl::CancelledError("over"));
    transport->Close(address);
  }
}

TEST(GraphPieceTest, LoopsTravel) {
  Graph graph;
  Scope scope(graph);
  const auto loop = WhileLoop(
      scope, {scope.ConstScalar<float>(0)},
      [](const Scope& s, const std::vector<Output>& v) -> absl::StatusOr<Output> {
        return s.Op("Less", {v[0], s.ConstScalar<float>(10)});
      },
      [](const Scope& s, const std::vector<Output>& v) -> absl::StatusOr<std::vector<Output>> {
        return std::vector<Output>{s.Op("Add", {v[0], s.ConstScalar<float>(3)})};
      });
  ASSERT_TRUE(loop.ok()) << loop.status();
  Graph copy;
  ASSERT_TRUE(GraphPiece::Take(graph, 0)->AddTo(copy).ok());
  EXPECT_EQ(copy.num_nodes(), graph.num_nodes());
  auto session = Session::Create(copy).value();
  EXPECT_EQ(Value(session->Run({}, {Output(copy.FindNode((*loop)[0].node->name()), 0)})), 12);
  EXPECT_THAT(std::string(GraphPiece::Take(graph, 0)->AddTo(copy).message()),
              HasSubstr("GraphDef argument to Extend includes node 'Const'"));
  EXPECT_EQ(copy.num_nodes(), graph.num_nodes());
}

}  // namespace
}  // namespace muster
