#include "muster/transport/api/task_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/mutex.h"
#include "muster/transport/grpc/grpc_fakes_test.h"
#include "muster/transport/inproc/in_process_transport.h"
#include "muster/transport/status.pb.h"
#include "muster/transport/wire/task_status_proto.h"

namespace muster {
namespace {

using testing::HasSubstr;

ClusterStatus Example() {
  ClusterStatus cluster;
  cluster.asked = {"ps", 1};
  cluster.tasks.resize(2);
  TaskStatus& status = cluster.tasks[0].status;
  status.task = {"ps", 1};
  status.incarnation = ~uint64_t{0};
  status.stopping = true;
  status.joined = true;
  status.devices = 3;
  status.uptime = absl::Milliseconds(1500);
  status.sessions = 1;
  status.worker_sessions = 2;
  status.graphs = 3;
  status.steps_under_way = 4;
  status.steps = 5;
  status.parts = 6;
  status.steps_per_second = 7.5;
  status.tensors_sent = 8;
  status.bytes_sent = int64_t{1} << 40;
  status.tensors_received = 10;
  status.bytes_received = 11;
  status.collective_bytes_sent = 15;
  status.collective_bytes_received = 16;
  status.resident_bytes = 12;
  status.variables = 13;
  status.variable_bytes = 14;
  status.global_step = 0;
  cluster.tasks[0].heard = true;
  cluster.tasks[0].health = TaskHealth::kLeft;
  cluster.tasks[0].since = absl::Seconds(3);
  cluster.tasks[0].straggler = true;
  cluster.tasks[0].explanation = "why";
  cluster.tasks[1].status.task = {"worker", 0};
  cluster.tasks[1].status.is_muster = false;
  return cluster;
}

std::string Bytes(const ClusterStatus& cluster) {
  ClusterStatusProto proto;
  ClusterStatusToProto(cluster, proto);
  return proto.SerializeAsString();
}

TEST(TaskStatusTest, ComesBackFromItsMessage) {
  ClusterStatusProto proto;
  ClusterStatusToProto(Example(), proto);
  const absl::StatusOr<ClusterStatus> back = ClusterStatusFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Bytes(*back), Bytes(Example()));
  EXPECT_EQ(back->tasks[0].status.steps_per_second, 7.5);
  EXPECT_EQ(back->tasks[0].status.global_step, 0);
  EXPECT_EQ(back->tasks[1].status.global_step, std::nullopt);
  EXPECT_EQ(back->tasks[0].health, TaskHealth::kLeft);
  EXPECT_EQ(back->tasks[1].health, TaskHealth::kStarting);
  EXPECT_FALSE(back->tasks[1].status.is_muster);
}

TEST(TaskStatusTest, WrongMessagesAreRefused) {
  ClusterStatusProto proto;
  EXPECT_FALSE(ClusterStatusFromProto(proto).ok());
  ClusterStatusToProto(Example(), proto);
  proto.mutable_task(0)->set_health(static_cast<TaskHealthProto>(9));
  EXPECT_THAT(std::string(ClusterStatusFromProto(proto).status().message()),
              HasSubstr("unknown health 9"));
  StatusRequestProto request;
  request.set_leaving("nobody");
  EXPECT_FALSE(StatusRequestFromProto(request).ok());
}

// Remembers what it was asked.
class FakeStatus : public StatusApi {
 public:
  void Status(CallOptions /*options*/, StatusRequest asked, CallDone<ClusterStatus> done) override {
    request = std::move(asked);
    std::move(done)(Example());
  }
  StatusRequest request;
};

absl::StatusOr<ClusterStatus> Ask(WorkerApi& worker, StatusRequest request) {
  struct Reply {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::StatusOr<ClusterStatus>> status ABSL_GUARDED_BY(mutex);
  };
  auto reply = std::make_shared<Reply>();
  StatusApi* const api = StatusOf(worker);
  if (api == nullptr) return absl::UnknownError("no way to ask");
  CallOptions call;
  call.timeout = absl::Seconds(30);
  api->Status(std::move(call), std::move(request), [reply](absl::StatusOr<ClusterStatus> status) {
    MutexLock lock(reply->mutex);
    reply->status = std::move(status);
    reply->changed.NotifyAll();
  });
  MutexLock lock(reply->mutex);
  while (!reply->status) reply->changed.Wait(reply->mutex);
  return *reply->status;
}

StatusRequest GoodbyeRequest() {
  StatusRequest request;
  request.whole_cluster = true;
  request.goodbye = Goodbye{{"worker", 3}, 77};
  return request;
}

void ExpectGoodbye(const StatusRequest& request) {
  EXPECT_TRUE(request.whole_cluster);
  ASSERT_TRUE(request.goodbye);
  EXPECT_EQ(request.goodbye->task.ToString(), "/job:worker/replica:0/task:3");
  EXPECT_EQ(request.goodbye->incarnation, 77u);
}

TEST(TaskStatusTest, TravelsByGrpc) {
  FakeTask task;
  GrpcServerOptions options;
  const auto status = std::make_shared<FakeStatus>();
  options.status = status;
  ASSERT_TRUE(task.Start(std::move(options)).ok());
  const absl::StatusOr<ClusterStatus> answer = Ask(*task.remote, GoodbyeRequest());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(Bytes(*answer), Bytes(Example()));
  ExpectGoodbye(status->request);
}

TEST(TaskStatusTest, ATaskWithoutItSaysSo) {
  FakeTask task;
  ASSERT_TRUE(task.Start().ok());
  EXPECT_EQ(Ask(*task.remote, {}).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(TaskStatusTest, TravelsInsideAProcess) {
  const std::unique_ptr<InProcessTransport> direct = InProcessTransport::Create(DefaultScheduler());
  const auto status = std::make_shared<FakeStatus>();
  direct->Listen("a:1", {std::make_shared<FakeWorker>(), nullptr, status});
  direct->Listen("b:1", {std::make_shared<FakeWorker>(), nullptr});
  const auto peers =
      direct->Connect(ClusterSpec({{"ps", {{0, "a:1"}, {1, "b:1"}}}}), TaskName(), nullptr);
  const absl::StatusOr<ClusterStatus> answer =
      Ask(*peers->Worker("/job:ps/replica:0/task:0"), GoodbyeRequest());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(Bytes(*answer), Bytes(Example()));
  ExpectGoodbye(status->request);
  EXPECT_EQ(Ask(*peers->Worker("/job:ps/replica:0/task:1"), {}).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace muster
