// What a task knows of those that call it over gRPC.
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "muster/transport/grpc/grpc_fakes_test.h"

namespace muster {
namespace {

class GrpcCallerTest : public testing::Test {
 protected:
  void SetUp() override {
    GrpcServerOptions options;
    options.scheduler = &DefaultScheduler();
    ASSERT_TRUE(task_.Start(std::move(options)).ok());
    address_ = absl::StrCat("127.0.0.1:", task_.server->port());
  }
  // Whom the task has seen.
  std::shared_ptr<const Caller> Ask(WorkerApi& remote) {
    const auto devices =
        Await<std::vector<DeviceAttributes>>([&](CallDone<std::vector<DeviceAttributes>> done) {
          remote.GetStatus({}, std::move(done));
        });
    EXPECT_TRUE(devices.ok()) << devices.status();
    return task_.worker->last.caller;
  }
  std::shared_ptr<const Caller> CloseSession() {
    const auto closed = Await<Empty>(
        [&](CallDone<Empty> done) { task_.remote_master->CloseSession({}, "s", std::move(done)); });
    EXPECT_TRUE(closed.ok()) << closed.status();
    return task_.master->last.caller;
  }

  FakeTask task_;
  std::string address_;
};

TEST_F(GrpcCallerTest, AllCallsOfAConnectionHaveTheSame) {
  const auto client = Ask(*task_.remote);
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->role, Caller::Role::kClient);
  EXPECT_EQ(client->host, "127.0.0.1");
  EXPECT_TRUE(absl::StartsWith(client->name, "127.0.0.1:")) << client->name;
  EXPECT_FALSE(client->has_token);
  EXPECT_EQ(client->subject, "");
  EXPECT_EQ(Ask(*task_.remote), client);
}

TEST_F(GrpcCallerTest, TasksAndOperatorsSayWhatTheyAre) {
  const ClusterSpec cluster({{"ps", {{0, address_}}}, {"m", {{2, "a:1"}}}});
  const auto peers = task_.transport->Connect(cluster, TaskName{"m", 2, 0}, nullptr);
  const auto master = Ask(*peers->Worker("/job:ps/replica:0/task:0"));
  EXPECT_EQ(master->role, Caller::Role::kTask);
  EXPECT_EQ(master->task, "/job:m/replica:0/task:2");
  EXPECT_NE(master->name, Ask(*task_.remote)->name);
  GrpcOptions options;
  options.scheduler = &DefaultScheduler();
  options.role = Caller::Role::kOperator;
  const auto transport = NewGrpcTransport(std::move(options));
  const auto seen = transport->Connect(cluster, TaskName(), nullptr);
  EXPECT_EQ(Ask(*seen->Worker("/job:ps/replica:0/task:0"))->role, Caller::Role::kOperator);
}

TEST_F(GrpcCallerTest, StockTensorFlowIsAnAddress) {
  const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  const grpc::Slice nothing;
  const grpc::ByteBuffer in(&nothing, 1);
  grpc::ByteBuffer out;
  std::promise<grpc::Status> done;
  grpc::GenericStub(channel).UnaryCall(&context, "/tensorflow.WorkerService/GetStatus",
                                       grpc::StubOptions(), &in, &out,
                                       [&](grpc::Status status) { done.set_value(status); });
  done.get_future().get();
  const auto caller = task_.worker->last.caller;
  ASSERT_NE(caller, nullptr);
  EXPECT_EQ(caller->role, Caller::Role::kUnknown);
  EXPECT_EQ(caller->host, "127.0.0.1");
}

TEST_F(GrpcCallerTest, AClientEndsWithItsConnection) {
  const auto caller = CloseSession();
  ASSERT_NE(caller, nullptr);
  ASSERT_NE(caller->connection, nullptr);
  EXPECT_FALSE(caller->connection->cancelled());
  EXPECT_EQ(CloseSession(), caller);
  task_.remote_master = nullptr;
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (!caller->connection->cancelled() && absl::Now() < end)
    absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(caller->connection->reason().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster
