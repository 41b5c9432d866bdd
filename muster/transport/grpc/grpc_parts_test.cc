// Messages that are longer than gRPC carries, with a limit that costs less to reach.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "muster/transport/grpc/grpc_fakes_test.h"
#include "muster/transport/messages/message_parts.h"

namespace muster {
namespace {

using testing::HasSubstr;

constexpr size_t kLimit = 3 << 20;  // more than a piece

Tensor Numbers(int64_t count) {
  Tensor tensor(DType::kInt32, Shape({count}));
  for (int64_t i = 0; i < count; ++i)
    tensor.data<int32_t>()[i] = static_cast<int32_t>(i * 2654435761);
  return tensor;
}

class GrpcPartsTest : public testing::Test {
 protected:
  void SetUp() override {
    task_.max_whole_bytes = kLimit;
    const absl::Status status = task_.Start(server_);
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::StatusOr<RunStepReply> RunStep(std::vector<NamedTensor> feeds) {
    RunStepRequest request;
    request.session = "session1";
    request.feeds = std::move(feeds);
    return Await<RunStepReply>([&](CallDone<RunStepReply> done) {
      task_.remote_master->RunStep({}, std::move(request), std::move(done));
    });
  }
  GrpcServerOptions server_;
  FakeTask task_;
};

TEST_F(GrpcPartsTest, LongFeedsAndFetchesArrive) {
  // Several pieces of several parts; strings are in the message itself.
  const Tensor large = Numbers(1'300'000);
  const Tensor other = Numbers(70'001);
  const Tensor text = Tensor::Vector<std::string>({std::string(300'000, 'x'), "y", ""});
  task_.master->run_step_reply.tensors = {{"a:0", large}, {"s:0", text}, {"b:0", other}};
  task_.master->run_step_reply.metadata = "";
  for (int i = 0; i < 2; ++i) {
    const auto reply = RunStep({{"x:0", other}, {"t:0", text}, {"y:0", large}});
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(task_.master->run_step->feeds.size(), 3u);
    EXPECT_EQ(task_.master->run_step->session, "session1");
    EXPECT_EQ(task_.master->run_step->feeds[2].name, "y:0");
    EXPECT_TRUE(SameTensor(task_.master->run_step->feeds[0].tensor, other));
    EXPECT_TRUE(SameTensor(task_.master->run_step->feeds[1].tensor, text));
    EXPECT_TRUE(SameTensor(task_.master->run_step->feeds[2].tensor, large));
    ASSERT_EQ(reply->tensors.size(), 3u);
    EXPECT_TRUE(SameTensor(reply->tensors[0].tensor, large));
    EXPECT_TRUE(SameTensor(reply->tensors[1].tensor, text));
    EXPECT_EQ(reply->tensors[2].name, "b:0");
    EXPECT_TRUE(SameTensor(reply->tensors[2].tensor, other));
  }
}

TEST_F(GrpcPartsTest, SoDoThoseBetweenTasks) {
  const Tensor large = Numbers(1'300'000);
  task_.worker->run_graph_reply.recv = {{"r", large}};
  RunGraphRequest request;
  request.send = {{"s", large}};
  const auto reply = Await<RunGraphReply>([&](CallDone<RunGraphReply> done) {
    task_.remote->RunGraph({}, std::move(request), std::move(done));
  });
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(SameTensor(task_.worker->run_graph->send[0].tensor, large));
  EXPECT_TRUE(SameTensor(reply->recv[0].tensor, large));
}

TEST_F(GrpcPartsTest, ErrorsComeThrough) {
  task_.master->error = absl::AbortedError("no");
  EXPECT_EQ(RunStep({{"x:0", Numbers(1'000'000)}}).status(), absl::AbortedError("no"));
}

TEST_F(GrpcPartsTest, ATaskTakesNoMoreThanItWasToldTo) {
  task_.server->Stop(absl::ZeroDuration());
  server_.max_message_bytes = 1'000'000;
  ASSERT_TRUE(task_.Start(server_).ok());
  const absl::Status status = RunStep({{"x:0", Numbers(1'000'000)}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("Received message larger than max ("));
}

// A task that knows none of our own calls.
class StockService final : public grpc::CallbackGenericService {};

TEST(GrpcPartsToStockTest, TheErrorNamesTheTensorItsSizeAndTheLimit) {
  StockService service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  FakeTask task;
  task.max_sent_bytes = task.max_whole_bytes = kLimit;
  ASSERT_TRUE(task.Connect({}, absl::StrCat("127.0.0.1:", port)).ok());
  RunStepRequest request;
  request.feeds = {{"small:0", Numbers(10)}, {"weights:0", Numbers(1'000'000)}};
  const auto reply = Await<RunStepReply>([&](CallDone<RunStepReply> done) {
    task.remote_master->RunStep({}, std::move(request), std::move(done));
  });
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(reply.status().message(), HasSubstr("tensor 'weights:0' has 40000"));
  EXPECT_THAT(reply.status().message(), HasSubstr("the limit is 3145728 bytes"));
  server->Shutdown();
}

// One that takes steps, and no parts of messages.
class StockMaster final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Reactor(*this, context->method() == "/tensorflow.MasterService/RunStep");
  }
  std::atomic<int> num_others{0};
  std::atomic<size_t> last_bytes{0};

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(StockMaster& master, bool is_step) : master_(master) {
      if (is_step) {
        StartRead(&request_);
      } else {
        ++master_.num_others;
        Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""));
      }
    }
    void OnReadDone(bool ok) override {
      if (ok) master_.last_bytes = request_.Length();
      const grpc::Slice empty;
      response_ = grpc::ByteBuffer(&empty, 1);
      StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    StockMaster& master_;
    grpc::ByteBuffer request_;
    grpc::ByteBuffer response_;
  };
};

TEST(GrpcPartsToStockTest, WhatGrpcCanCarryGoesWhole) {
  StockMaster service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  FakeTask task;
  task.max_whole_bytes = kLimit;
  ASSERT_TRUE(task.Connect({}, absl::StrCat("127.0.0.1:", port)).ok());
  for (int i = 0; i < 2; ++i) {
    service.last_bytes = 0;
    RunStepRequest request;
    request.feeds = {{"weights:0", Numbers(1'000'000)}};
    const auto reply = Await<RunStepReply>([&](CallDone<RunStepReply> done) {
      task.remote_master->RunStep({}, std::move(request), std::move(done));
    });
    EXPECT_TRUE(reply.ok()) << reply.status();
    EXPECT_GT(service.last_bytes, 4'000'000u);
  }
  EXPECT_EQ(service.num_others, 1) << "it is asked once";
  server->Shutdown();
}

WireReader Piece(const WireBytes& bytes) {
  return WireReader(bytes);
}

TEST(UploadStoreTest, OnlyWholeMessagesAreHandedOut) {
  const auto scheduler = SimulatedScheduler::Create(1);
  UploadStore store(*scheduler, 1 << 30);
  const uint64_t size = kPartPieceBytes + 10;
  const absl::StatusOr<uint64_t> id = store.Begin({size, 3});
  ASSERT_TRUE(id.ok()) << id.status();
  const WireBytes full = WireBytes::Of(std::string(kPartPieceBytes, 'a'));
  const WireBytes rest = WireBytes::Of(std::string(10, 'b'));
  const WireBytes last = WireBytes::Of("ccc");
  EXPECT_TRUE(store.Put(*id, 0, kPartPieceBytes, Piece(rest)).ok());
  EXPECT_EQ(store.Take(*id).status().code(), absl::StatusCode::kFailedPrecondition);
  // Twice, in between, too long, too short, outside, of another.
  for (const absl::Status& status :
       {store.Put(*id, 0, kPartPieceBytes, Piece(rest)), store.Put(*id, 0, 5, Piece(rest)),
        store.Put(*id, 1, 0, Piece(full)), store.Put(*id, 0, 0, Piece(last)),
        store.Put(*id, 2, 0, Piece(last)), store.Put(*id, 1, UINT64_MAX, Piece(last))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(store.Put(*id + 1, 1, 0, Piece(last)).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store.Put(*id, 1, 0, Piece(last)).ok());
  EXPECT_TRUE(store.Put(*id, 0, 0, Piece(full)).ok());
  const absl::StatusOr<WireBytes> message = store.Take(*id);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(WireReader(*message).Text(),
            std::string(kPartPieceBytes, 'a') + std::string(10, 'b') + "ccc");
  EXPECT_EQ(store.Take(*id).status().code(), absl::StatusCode::kNotFound);
}

TEST(UploadStoreTest, IsBounded) {
  const auto scheduler = SimulatedScheduler::Create(1);
  UploadStore store(*scheduler, 1000);
  EXPECT_EQ(store.Begin({600, 600}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Begin({UINT64_MAX, 2}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Begin(std::vector<uint64_t>(UploadStore::kMaxParts + 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (size_t i = 0; i < UploadStore::kMaxMessages; ++i) EXPECT_TRUE(store.Begin({10}).ok());
  EXPECT_EQ(store.Begin({10}).status().code(), absl::StatusCode::kResourceExhausted);
  // No more bytes arrive for them.
  EXPECT_TRUE(scheduler->RunUntil([&] { return store.size() == 0; }));
  EXPECT_TRUE(store.Begin({10}).ok());
}

}  // namespace
}  // namespace muster
