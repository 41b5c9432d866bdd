#include "muster/transport/grpc/grpc_arrivals.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "muster/transport/grpc/grpc_fakes_test.h"

namespace muster {
namespace {

using testing::HasSubstr;

constexpr int64_t kMega = int64_t{1} << 20;

// What is left to the process, for as long as it lives.
class Left {
 public:
  explicit Left(int64_t bytes) {
    MemoryGuard::Global().Limit(MemoryGuard::Global().held_bytes() + bytes);
  }
  ~Left() { MemoryGuard::Global().Limit(INT64_MAX); }
};

// A client that sends what it likes.
class Client {
 public:
  explicit Client(int port) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                         grpc::InsecureChannelCredentials(), arguments);
  }
  grpc::Status RunStep(int64_t bytes) {
    const std::unique_ptr<char[]> zeros(new char[static_cast<size_t>(bytes)]());
    const grpc::Slice slice(zeros.get(), static_cast<size_t>(bytes), grpc::Slice::STATIC_SLICE);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel_);
    const auto call =
        stub.PrepareUnaryCall(&context, "/tensorflow.MasterService/RunStep", request, &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
};

TEST(GrpcArrivalsTest, ARequestThatDoesNotFitIsRefusedWhileItComes) {
  FakeTask task;
  ASSERT_TRUE(task.Start().ok());
  const Left left(40 * kMega);
  Client client(task.server->port());
  for (int i = 0; i < 2; ++i) {
    const grpc::Status status = client.RunStep(600 * kMega);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("OOM when receiving a message, of which "));
    EXPECT_THAT(status.error_message(), HasSubstr("the tensors of this process may take "));
    // The same connection, and another one, are served.
    EXPECT_EQ(client.RunStep(kMega).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(Client(task.server->port()).RunStep(kMega).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST(GrpcArrivalsTest, ARequestThatFitsArrives) {
  FakeTask task;
  ASSERT_TRUE(task.Start().ok());
  const Left left(300 * kMega);
  Client client(task.server->port());
  // No request consists of zeros; it is read before that is known.
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(client.RunStep(200 * kMega).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace muster
