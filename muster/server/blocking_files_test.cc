// Files that never answer, as pipes without a writer: only the steps that read them wait.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/time/time.h"
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "muster/base/cancellation.h"
#include "muster/client/connect.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/server/server.h"
#include "muster/transport/grpc/grpc_transport.h"

namespace muster {
namespace {

class BlockingFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "muster_blocking_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    pipe_ = folder_ + "/pipe";
    ASSERT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
    server_ = Server::CreateLocal().value();
    ASSERT_TRUE(server_->Start().ok());
  }
  void TearDown() override {
    // A reader that still waits for the pipe sees its end.
    const int end = open(pipe_.c_str(), O_RDWR | O_NONBLOCK);
    std::filesystem::remove_all(folder_);
    session_ = nullptr;
    server_ = nullptr;
    close(end);
  }

  void Connect() {
    ASSERT_TRUE(scope_.status().ok()) << scope_.status();
    SessionOptions options;
    options.target = server_->target();
    options.config.use_rpc_for_inprocess_master = true;
    options.master = ConnectMaster(options.target, options.config).value();
    session_ = Session::Create(graph_, std::move(options)).value();
  }
  // A session over a connection of its own.
  std::unique_ptr<Session> ConnectAnotherClient() {
    GrpcOptions grpc;
    grpc.scheduler = &DefaultScheduler();
    transport_ = NewGrpcTransport(std::move(grpc));
    SessionOptions options;
    options.target = server_->target();
    options.master = transport_->ConnectMaster(options.target).value();
    return Session::Create(graph_, std::move(options)).value();
  }

  // A step under way that ends when it is told to, or after a minute.
  struct Running {
    std::shared_ptr<Cancellation> cancellation = std::make_shared<Cancellation>();
    absl::StatusOr<std::vector<Tensor>> result = absl::UnknownError("not yet");
    std::thread thread;
  };
  static RunOptions Within(absl::Duration timeout) {
    RunOptions options;
    options.timeout = timeout;
    return options;
  }
  void Start(Running& running, const Output& fetch) {
    running.thread = std::thread([this, &running, fetch] {
      RunOptions options = Within(absl::Seconds(60));
      options.cancellation = running.cancellation;
      running.result = session_->Run({}, {fetch}, {}, options);
    });
  }

  std::string folder_, pipe_;
  std::unique_ptr<Server> server_;
  Graph graph_;
  Scope scope_{graph_};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Session> session_;
};

TEST_F(BlockingFilesTest, StepsThatReadThemHoldUpNobodyAndCanBeCancelled) {
  const Output name = scope_.Const(Tensor::Scalar<std::string>(pipe_));
  const Output begun =
      scope_.Op("VariableV2", {}, {{"shape", Shape({})}, {"dtype", DType::kInt32}});
  const Output zero = scope_.Op("Assign", {begun, scope_.ConstScalar<int32_t>(0)});
  const Scope counted = scope_.WithControlDependencies(
      {scope_.Op("AssignAdd", {begun, scope_.ConstScalar<int32_t>(1)}, {{"use_locking", true}})
           .node});
  const Output file = counted.Op("Identity", {name});
  const Output whole = scope_.Op("ReadFile", {file});
  const Output restored = scope_.Op(
      "Restore", {file, scope_.Const(Tensor::Scalar<std::string>("x"))}, {{"dt", DType::kFloat}});
  const Output value = scope_.Op("Identity", {begun});
  Connect();
  ASSERT_TRUE(session_->Run({}, {zero}).ok());
  // More than there are threads that compute.
  const int count = 2 * static_cast<int>(std::thread::hardware_concurrency()) + 2;
  std::vector<Running> steps(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) Start(steps[i], i % 2 == 0 ? whole : restored);
  for (int seen = 0; seen < count;) {
    const auto result = session_->Run({}, {value}, {}, Within(absl::Seconds(20)));
    ASSERT_TRUE(result.ok()) << result.status();
    seen = (*result)[0].scalar<int32_t>();
  }
  for (int i = 0; i < 100; ++i) {
    const auto result = session_->Run({}, {value}, {}, Within(absl::Seconds(20)));
    ASSERT_TRUE(result.ok()) << result.status();
  }
  for (Running& step : steps) step.cancellation->Cancel(absl::CancelledError("no longer wanted"));
  for (Running& step : steps) {
    step.thread.join();
    EXPECT_TRUE(absl::IsCancelled(step.result.status())) << step.result.status();
  }
}

TEST_F(BlockingFilesTest, AClientDoesNotHoldUpTheFilesOfAnother) {
  const std::string there = folder_ + "/there";
  std::ofstream(there) << "text";
  const Output begun =
      scope_.Op("VariableV2", {}, {{"shape", Shape({})}, {"dtype", DType::kInt32}});
  const Output zero = scope_.Op("Assign", {begun, scope_.ConstScalar<int32_t>(0)});
  const Scope counted = scope_.WithControlDependencies(
      {scope_.Op("AssignAdd", {begun, scope_.ConstScalar<int32_t>(1)}, {{"use_locking", true}})
           .node});
  const Output hung = scope_.Op(
      "ReadFile", {counted.Op("Identity", {scope_.Const(Tensor::Scalar<std::string>(pipe_))})});
  const Output read = scope_.Op("ReadFile", {scope_.Const(Tensor::Scalar<std::string>(there))});
  const Output value = scope_.Op("Identity", {begun});
  Connect();
  const std::unique_ptr<Session> other = ConnectAnotherClient();
  ASSERT_TRUE(other->Run({}, {zero}).ok());
  // More than there are threads for files.
  constexpr int kHung = 200;
  std::vector<Running> steps(kHung);
  for (Running& step : steps) Start(step, hung);
  for (int seen = 0; seen < kHung;) {
    const auto result = other->Run({}, {value}, {}, Within(absl::Seconds(20)));
    ASSERT_TRUE(result.ok()) << result.status();
    seen = (*result)[0].scalar<int32_t>();
  }
  for (int i = 0; i < 10; ++i) {
    const auto result = other->Run({}, {read}, {}, Within(absl::Seconds(20)));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0].scalar<std::string>(), "text");
  }
  // Those that wait for a thread are cancelled as those that have one.
  for (Running& step : steps) step.cancellation->Cancel(absl::CancelledError("no longer wanted"));
  for (Running& step : steps) {
    step.thread.join();
    EXPECT_TRUE(absl::IsCancelled(step.result.status())) << step.result.status();
  }
}

TEST_F(BlockingFilesTest, WhatAReaderReadsForACancelledStepIsTheNextRecord) {
  const Output reader = scope_.Op("TextLineReaderV2", {});
  const Output queue =
      scope_.Op("FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kString}}});
  Node* const put =
      scope_.Add("QueueEnqueueV2",
                 {queue, std::vector<Output>{scope_.Const(Tensor::Scalar<std::string>(pipe_))}});
  const Output line = Output(scope_.Op("ReaderReadV2", {reader, queue}).node, 1);
  // In this process: a run that was cancelled returns when its step has ended, not before.
  session_ = Session::Create(graph_).value();
  ASSERT_TRUE(session_->Run({}, {}, {put}).ok());
  Running given_up;
  Start(given_up, line);
  // Opening the pipe succeeds as soon as there is a reader.
  int writer = -1;
  for (int tries = 0; tries < 20'000 && writer < 0; ++tries) {
    writer = open(pipe_.c_str(), O_WRONLY | O_NONBLOCK);
    if (writer < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_GE(writer, 0);
  given_up.cancellation->Cancel(absl::CancelledError("no longer wanted"));
  given_up.thread.join();
  EXPECT_TRUE(absl::IsCancelled(given_up.result.status())) << given_up.result.status();
  ASSERT_EQ(write(writer, "first\nsecond\n", 13), 13);
  for (const char* expected : {"first", "second"}) {
    const auto result = session_->Run({}, {line}, {}, Within(absl::Seconds(30)));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0].scalar<std::string>(), expected);
  }
  close(writer);
}

}  // namespace
}  // namespace muster
