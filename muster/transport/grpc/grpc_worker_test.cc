// Calls to a worker over a real connection.
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "google/protobuf/stubs/logging.h"
#include "tensorflow/core/framework/step_stats.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "muster/base/cancel_callback.h"
#include "muster/transport/api/peer.h"
#include "muster/transport/grpc/grpc_bytes.h"
#include "muster/transport/grpc/grpc_fakes_test.h"
#include "muster/transport/messages/methods.h"

namespace muster {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class GrpcWorkerTest : public testing::Test {
 protected:
  void SetUp() override {
    GrpcServerOptions options;
    options.scheduler = &DefaultScheduler();
    options.capabilities = {"fast"};
    const absl::Status status = task_.Start(std::move(options));
    ASSERT_TRUE(status.ok()) << status;
  }

  absl::StatusOr<RunGraphReply> RunGraph(CallOptions options, RunGraphRequest request = {}) {
    return Await<RunGraphReply>([&](CallDone<RunGraphReply> done) {
      task_.remote->RunGraph(std::move(options), std::move(request), std::move(done));
    });
  }
  absl::StatusOr<RecvTensorReply> RecvTensor(CallOptions options = {}) {
    return Await<RecvTensorReply>([&](CallDone<RecvTensorReply> done) {
      task_.remote->RecvTensor(std::move(options), {3, "key", 4}, std::move(done));
    });
  }
  template <typename Start>
  void ExpectEmpty(const std::string& text, Start start) {
    const absl::Status status = Await<Empty>(start).status();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(task_.worker->text, text);
  }

  // A call with bytes of our choice, as a stock client would make it.
  grpc::Status Raw(const std::string& path, const std::string& request,
                   std::string* reply = nullptr, const std::string& agent = "") {
    grpc::ChannelArguments arguments;
    if (!agent.empty()) arguments.SetUserAgentPrefix(agent);
    auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", task_.server->port()),
                                             grpc::InsecureChannelCredentials(), arguments);
    grpc::ClientContext context;
    WireMessage message;
    message.Append(request);
    const grpc::ByteBuffer in = ToByteBuffer(std::move(message));
    grpc::ByteBuffer out;
    std::promise<grpc::Status> done;
    grpc::GenericStub(channel).UnaryCall(&context, path, grpc::StubOptions(), &in, &out,
                                         [&](grpc::Status status) { done.set_value(status); });
    const grpc::Status status = done.get_future().get();
    const WireBytes bytes = FromByteBuffer(out).value();
    if (reply != nullptr) *reply = WireReader(bytes).Text();
    return status;
  }

  FakeTask task_;
};

TEST_F(GrpcWorkerTest, EveryMethod) {
  WorkerApi& remote = *task_.remote;
  const auto devices = Await<std::vector<DeviceAttributes>>(
      [&](CallDone<std::vector<DeviceAttributes>> done) { remote.GetStatus({}, std::move(done)); });
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ((*devices)[0].incarnation, 0xFEDCBA9876543210u);
  EXPECT_EQ((*devices)[0].memory_limit_bytes, 268435456);
  EXPECT_EQ(task_.worker->last.peer, CallOptions::Peer::kMuster);

  CreateWorkerSessionRequest session;
  session.session = "s";
  session.isolate_state = true;
  session.master_task = "/job:m/replica:0/task:0";
  session.master_incarnation = 0xFFFFFFFFFFFFFFFF;
  session.identity = {ClusterSpec({{"w", {{3, "a:1"}}}}), TaskName{"w", 3, 0}};
  auto owner = std::make_shared<Caller>();
  owner->name = "10.0.0.3:4711";
  owner->host = "10.0.0.3";
  owner->subject = "CN=ada";
  owner->has_token = true;
  owner->role = Caller::Role::kClient;
  session.owner = owner;
  ExpectEmpty("CreateWorkerSession", [&](CallDone<Empty> done) {
    remote.CreateWorkerSession({}, session, std::move(done));
  });
  EXPECT_EQ(task_.worker->session->master_incarnation, session.master_incarnation);
  EXPECT_TRUE(task_.worker->session->isolate_state);
  EXPECT_EQ(task_.worker->session->owner->ToString(), "client 10.0.0.3:4711 (CN=ada)");
  EXPECT_EQ(task_.worker->session->owner->host, "10.0.0.3");
  EXPECT_TRUE(task_.worker->session->owner->has_token);
  EXPECT_EQ(task_.worker->session->identity->cluster, session.identity->cluster);
  EXPECT_EQ(task_.worker->session->identity->self, session.identity->self);
  ExpectEmpty("DeleteWorkerSession s",
              [&](CallDone<Empty> done) { remote.DeleteWorkerSession({}, "s", std::move(done)); });
  ExpectEmpty("DeregisterGraph s1g", [&](CallDone<Empty> done) {
    remote.DeregisterGraph({}, "s", true, "g", std::move(done));
  });
  ExpectEmpty("CleanupGraph -7",
              [&](CallDone<Empty> done) { remote.CleanupGraph({}, -7, std::move(done)); });
  ExpectEmpty("CleanupAll 2", [&](CallDone<Empty> done) {
    remote.CleanupAll({}, {"a", "b"}, std::move(done));
  });
  ExpectEmpty("MarkRecvFinished -9",
              [&](CallDone<Empty> done) { remote.MarkRecvFinished({}, -9, std::move(done)); });

  tensorflow::StepStats stats;
  stats.add_dev_stats()->set_device("d");
  task_.worker->logging_reply.steps = {{5, stats.SerializeAsString()}};
  LoggingRequest logging;
  logging.enable = true;
  logging.fetch_steps = {1, 2};
  const auto log = Await<LoggingReply>(
      [&](CallDone<LoggingReply> done) { remote.Logging({}, logging, std::move(done)); });
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(task_.worker->text, "Logging 1002");
  EXPECT_EQ(log->steps[0].id, 5);
  EXPECT_EQ(log->steps[0].step_stats, stats.SerializeAsString());
}

TEST_F(GrpcWorkerTest, GraphsAreRegistered) {
  for (const FrameIds frame_ids : {FrameIds::kBefore23, FrameIds::kSince23}) {
    RegisterGraphRequest request;
    request.session = "s";
    request.optimize = false;
    request.collective_graph_key = 4;
    request.frame_ids = frame_ids;
    request.graph = []() -> absl::StatusOr<std::unique_ptr<Graph>> {
      auto graph = std::make_unique<Graph>();
      NodeSpec spec;
      spec.name = "_hidden";
      spec.op = "NoOp";
      spec.device = "/job:ps/replica:0/task:0/device:CPU:0";
      RETURN_IF_ERROR(graph->AddNode(std::move(spec)).status());
      return graph;
    };
    const auto handle = Await<std::string>([&](CallDone<std::string> done) {
      task_.remote->RegisterGraph({}, std::move(request), std::move(done));
    });
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ(*handle, "graph1");
    EXPECT_EQ(task_.worker->text, "RegisterGraph s104");
    EXPECT_EQ(task_.worker->frame_ids, frame_ids);
    ASSERT_EQ(task_.worker->graph->num_nodes(), 1);
    EXPECT_EQ(task_.worker->graph->nodes()[0]->device(), "/job:ps/replica:0/task:0/device:CPU:0");
  }
}

TEST_F(GrpcWorkerTest, StepsCarryTensors) {
  RunGraphRequest request;
  request.session = "s";
  request.graph = "g";
  request.step_id = 77;
  request.send = {{"k1", Tensor::Vector<float>({1, 2})},
                  {"k2", Tensor::Scalar<std::string>("text")}};
  request.recv_keys = {"r"};
  request.record_timeline = true;
  request.is_partial = true;
  request.request_id = -5;
  task_.worker->run_graph_reply.recv = {{"r", Tensor::Vector<int64_t>({1, 2, 3})}};
  const absl::StatusOr<RunGraphReply> reply = RunGraph({}, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->recv.size(), 1u);
  EXPECT_EQ(reply->recv[0].name, "r");
  EXPECT_TRUE(SameTensor(reply->recv[0].tensor, Tensor::Vector<int64_t>({1, 2, 3})));
  const RunGraphRequest& got = *task_.worker->run_graph;
  EXPECT_EQ(got.step_id, 77);
  EXPECT_EQ(got.request_id, -5);
  EXPECT_TRUE(got.in_session && got.record_timeline && got.is_partial && !got.is_last_partial);
  ASSERT_EQ(got.send.size(), 2u);
  EXPECT_TRUE(SameTensor(got.send[0].tensor, request.send[0].tensor));
  EXPECT_TRUE(SameTensor(got.send[1].tensor, request.send[1].tensor));
}

TEST_F(GrpcWorkerTest, LargeTensor) {
  Tensor large(DType::kFloat, Shape({16 << 20}));
  for (int64_t i = 0; i < large.num_elements(); ++i) large.data<float>()[i] = static_cast<float>(i);
  task_.worker->recv_reply.value.tensor = large;
  task_.worker->recv_reply.require_ack = true;
  const absl::StatusOr<RecvTensorReply> reply = RecvTensor();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->require_ack);
  EXPECT_TRUE(SameTensor(reply->value.tensor, large));
  // The sent tensor is released.
  task_.worker->recv_reply = RecvTensorReply();
  const absl::Time patience = absl::Now() + absl::Seconds(10);
  while (!large.exclusive() && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(large.exclusive());
  RunGraphRequest request;
  request.send = {{"k", large}};
  ASSERT_TRUE(RunGraph({}, request).ok());
  EXPECT_TRUE(SameTensor(task_.worker->run_graph->send[0].tensor, large));
}

TEST(GrpcPiecesTest, TensorsBeyondTheLimitComeInPieces) {
  FakeTask task;
  GrpcServerOptions options;
  options.max_piece_bytes = 1000;
  ASSERT_TRUE(task.Start(std::move(options)).ok());
  Tensor large(DType::kUint8, Shape({4003}));
  for (int64_t i = 0; i < large.num_elements(); ++i)
    large.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  for (const bool require_ack : {false, true}) {
    task.worker->recv_reply.value.tensor = large;
    task.worker->recv_reply.require_ack = require_ack;
    const auto reply = Await<RecvTensorReply>([&](CallDone<RecvTensorReply> done) {
      task.remote->RecvTensor({}, {3, "key", 4}, std::move(done));
    });
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->require_ack, require_ack);
    EXPECT_TRUE(SameTensor(reply->value.tensor, large));
  }
}

TEST(GrpcPiecesTest, SeveralTensorsComeInOneReply) {
  FakeTask task;
  GrpcServerOptions options;
  options.max_piece_bytes = 5000;
  ASSERT_TRUE(task.Start(std::move(options)).ok());
  Tensor large(DType::kUint8, Shape({4003}));
  for (int64_t i = 0; i < large.num_elements(); ++i)
    large.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  const Tensor text = Tensor::Vector<std::string>({"a", "bcd"});
  // The second of the large ones does not fit any more, so it is fetched.
  task.worker->recv_several_reply.tensors = {
      {2, {large, false}}, {0, {Tensor(), true}}, {1, {large, false}}, {4, {text, false}}};
  const auto ask = [&] {
    return Await<RecvTensorsReply>([&](CallDone<RecvTensorsReply> done) {
      task.remote->RecvTensors({}, {3, {"k", "l"}, 4}, std::move(done));
    });
  };
  const auto reply = ask();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(task.worker->text, "RecvTensors 3k,l4");
  ASSERT_EQ(reply->tensors.size(), 4u);
  EXPECT_EQ(reply->tensors[0].index, 2u);
  EXPECT_TRUE(SameTensor(reply->tensors[0].value.tensor, large));
  EXPECT_EQ(reply->tensors[1].index, 0u);
  EXPECT_TRUE(reply->tensors[1].value.is_dead);
  EXPECT_EQ(reply->tensors[2].index, 1u);
  EXPECT_TRUE(SameTensor(reply->tensors[2].value.tensor, large));
  EXPECT_TRUE(SameTensor(reply->tensors[3].value.tensor, text));
  task.worker->error = absl::AbortedError("over");
  EXPECT_EQ(ask().status(), absl::AbortedError("over"));
}

TEST(GrpcPiecesTest, LargeTensorsComeWholeInWhateverOrder) {
  FakeTask task;
  ASSERT_TRUE(task.Start().ok());
  Tensor large(DType::kInt32, Shape({(5 << 20) + 11}));  // more pieces than are under way at once
  for (int64_t i = 0; i < large.num_elements(); ++i)
    large.data<int32_t>()[i] = static_cast<int32_t>(i * 2654435761);
  task.worker->recv_reply.value.tensor = large;
  const auto reply = Await<RecvTensorReply>([&](CallDone<RecvTensorReply> done) {
    task.remote->RecvTensor({}, {3, "key", 4}, std::move(done));
  });
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(SameTensor(reply->value.tensor, large));
}

TEST_F(GrpcWorkerTest, DeadValues) {
  task_.worker->recv_reply.value.is_dead = true;
  const absl::StatusOr<RecvTensorReply> reply = RecvTensor();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->value.is_dead);
}

TEST_F(GrpcWorkerTest, ErrorsKeepCodeTextAndPayloads) {
  for (int code = 1; code <= 16; ++code) {
    task_.worker->error = absl::Status(static_cast<StatusCode>(code), "what\nhappened \xc3\xa4");
    const absl::Status status = RecvTensor().status();
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("what\nhappened \xc3\xa4"));
    EXPECT_EQ(IsDerived(status), code == 1);
    EXPECT_EQ(RunGraph({}).status(), task_.worker->error);
  }
  task_.worker->error = PossiblyRestarted(Derived(absl::AbortedError("x")));
  EXPECT_EQ(RecvTensor().status(), task_.worker->error);
  // In the body only the mark travels.
  EXPECT_EQ(RunGraph({}).status(), Derived(absl::AbortedError("x")));
}

TEST_F(GrpcWorkerTest, LongTextsAreCutInHeadersOnly) {
  task_.worker->error = absl::InternalError(std::string(10000, 'x'));
  EXPECT_EQ(RecvTensor().status().message(), std::string(3072, 'x') + " ... [truncated]");
  EXPECT_EQ(RunGraph({}).status().message().size(), 10000u);
}

TEST_F(GrpcWorkerTest, ErrorsInTheBodyOnlyWhenAsked) {
  task_.worker->error = Derived(absl::AbortedError("x"));
  tensorflow::RunGraphRequest request;
  EXPECT_EQ(Raw("/tensorflow.WorkerService/RunGraph", request.SerializeAsString()).error_code(),
            grpc::StatusCode::ABORTED);
  request.set_store_errors_in_response_body(true);
  std::string bytes;
  EXPECT_TRUE(Raw("/tensorflow.WorkerService/RunGraph", request.SerializeAsString(), &bytes).ok());
  tensorflow::RunGraphResponse reply;
  ASSERT_TRUE(reply.ParseFromString(bytes));
  EXPECT_EQ(static_cast<int>(reply.status_code()), 10);
  EXPECT_EQ(reply.status_error_message(), "x");
  EXPECT_EQ(task_.worker->last.peer, CallOptions::Peer::kTensorFlow2);
}

TEST_F(GrpcWorkerTest, OldPeersAreKnownByTheirAgent) {
  task_.worker->error = Derived(absl::AbortedError("x"));
  const grpc::Status status =
      Raw("/tensorflow.WorkerService/GetStatus", "", nullptr, "grpc-c++/1.19.1 grpc-c/7.0.0");
  EXPECT_EQ(task_.worker->last.peer, CallOptions::Peer::kTensorFlow1);
  EXPECT_EQ(status.error_message(), "[_Derived_]x");
}

TEST_F(GrpcWorkerTest, UnknownPathsAndWhatIsNotSupported) {
  for (const char* path :
       {"/tensorflow.WorkerService/Nothing", "/tensorflow.grpc.WorkerService/GetStatus",
        "/tensorflow.eager.EagerService/CreateContext", "/x"}) {
    const grpc::Status status = Raw(path, "");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << path;
    EXPECT_EQ(status.error_message(), "") << path;
  }
  EXPECT_EQ(Raw("/tensorflow.WorkerService/Tracing", "").error_message(), "Tracing");
  // The fake has no collectives; what it says of them comes through.
  EXPECT_EQ(Raw("/tensorflow.WorkerService/RecvBuf", "").error_message(), "RecvBuf");
}

TEST_F(GrpcWorkerTest, GarbageOnEveryMethod) {
  const google::protobuf::LogSilencer silent;
  const std::string garbage[] = {std::string(100, '\xff'),
                                 std::string("\x0a\xff\xff\xff\xff\x0f", 6),
                                 std::string("\x0a\x05\x01", 3), std::string(1, '\0')};
  for (const Method& method : AllMethods()) {
    for (const std::string& bytes : garbage) {
      const grpc::Status status = Raw(absl::StrCat("/", method.service, "/", method.name), bytes);
      EXPECT_THAT(status.error_code(), testing::AnyOf(grpc::StatusCode::INVALID_ARGUMENT,
                                                      grpc::StatusCode::UNIMPLEMENTED))
          << method.name << status.error_message();
    }
  }
  EXPECT_TRUE(Raw("/tensorflow.WorkerService/GetStatus", "").ok());
}

TEST_F(GrpcWorkerTest, CancellationReachesTheOtherSide) {
  std::promise<void> started;
  std::promise<absl::Status> reason;
  CancelCallback on_cancel;
  task_.worker->hold = [&](CallOptions options, std::function<void(absl::Status)> done) {
    EXPECT_TRUE(on_cancel.Start(options.cancellation, [&reason, done](const absl::Status&) {
      done(absl::CancelledError("gave up"));
      reason.set_value(absl::OkStatus());
    }));
    started.set_value();
  };
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  std::thread canceller([&, cancellation = options.cancellation] {
    started.get_future().wait();
    cancellation->Cancel(absl::AbortedError("my reason"));
  });
  EXPECT_EQ(RecvTensor(options).status(), absl::AbortedError("my reason"));
  canceller.join();
  auto reached = reason.get_future();
  ASSERT_EQ(reached.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  // Cancelled before it started.
  EXPECT_EQ(RecvTensor(options).status(), absl::AbortedError("my reason"));
}

TEST_F(GrpcWorkerTest, DeadlinesReachTheOtherSide) {
  std::promise<absl::Status> reason;
  absl::Duration timeout;
  CancelCallback on_cancel;
  task_.worker->hold = [&](CallOptions options, std::function<void(absl::Status)> done) {
    timeout = options.timeout;
    EXPECT_TRUE(on_cancel.Start(options.cancellation, [&reason, done](const absl::Status& why) {
      done(absl::CancelledError("late"));
      reason.set_value(why);
    }));
  };
  CallOptions options;
  options.timeout = absl::Milliseconds(200);
  EXPECT_EQ(RecvTensor(options).status().code(), StatusCode::kDeadlineExceeded);
  auto reached = reason.get_future();
  ASSERT_EQ(reached.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(reached.get().ok());
  EXPECT_LE(timeout, absl::Milliseconds(250));
  EXPECT_GT(timeout, absl::ZeroDuration());
  task_.worker->hold = nullptr;
  ASSERT_TRUE(RunGraph({}).ok());
  EXPECT_EQ(task_.worker->last.timeout, absl::InfiniteDuration());
}

TEST_F(GrpcWorkerTest, StopCancelsWhatIsUnderWay) {
  std::promise<void> started;
  CancelCallback on_cancel;
  task_.worker->hold = [&](CallOptions options, std::function<void(absl::Status)> done) {
    EXPECT_TRUE(on_cancel.Start(options.cancellation, [done](const absl::Status&) {
      done(absl::CancelledError("stopped"));
    }));
    started.set_value();
  };
  std::thread stopper([&] {
    started.get_future().wait();
    task_.server->Stop(absl::Milliseconds(50));
  });
  EXPECT_FALSE(RecvTensor().ok());
  stopper.join();
  const absl::Status status = RunGraph({}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/replica:0/task:0"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("127.0.0.1:", task_.server->port())));
}

TEST_F(GrpcWorkerTest, WaitForReadyWaitsForAServer) {
  GrpcServerOptions options;
  options.host = "127.0.0.1";
  options.port = task_.server->port();
  task_.server.reset();
  EXPECT_EQ(RunGraph({}).status().code(), StatusCode::kUnavailable);
  std::thread restarter([&] {
    absl::SleepFor(absl::Milliseconds(300));
    absl::StatusOr<std::unique_ptr<GrpcServer>> again =
        GrpcServer::Start(options, task_.master, task_.worker);
    ASSERT_TRUE(again.ok()) << again.status();
    task_.server = *std::move(again);
  });
  CallOptions wait;
  wait.wait_for_ready = true;
  EXPECT_TRUE(RunGraph(wait).ok());
  restarter.join();
}

TEST_F(GrpcWorkerTest, AfterReconnectNoCallFailsWithTheOldError) {
  GrpcServerOptions options;
  options.host = "127.0.0.1";
  options.port = task_.server->port();
  task_.server.reset();
  EXPECT_EQ(RunGraph({}).status().code(), StatusCode::kUnavailable);
  absl::StatusOr<std::unique_ptr<GrpcServer>> again =
      GrpcServer::Start(options, task_.master, task_.worker);
  ASSERT_TRUE(again.ok()) << again.status();
  task_.server = *std::move(again);
  task_.remote->Reconnect();
  const absl::Status status = RunGraph({}).status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(GrpcWorkerTest, ManyCallsAtOnce) {
  Mutex mutex;
  std::vector<std::function<void(absl::Status)>> held;
  task_.worker->hold = [&](CallOptions, std::function<void(absl::Status)> done) {
    MutexLock lock(mutex);
    held.push_back(std::move(done));
  };
  constexpr int kCalls = 500;
  std::atomic<int> ended = 0;
  for (int i = 0; i < kCalls; ++i) {
    task_.remote->RecvTensor({}, {1, "k", i},
                             [&](const absl::StatusOr<RecvTensorReply>&) { ++ended; });
  }
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  const auto all_held = [&] {
    MutexLock lock(mutex);
    return held.size() == kCalls;
  };
  while (!all_held() && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(1));
  ASSERT_TRUE(all_held());
  for (auto& done : held) done(absl::AbortedError("x"));
  while (ended < kCalls && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(ended, kCalls);
}

TEST_F(GrpcWorkerTest, PeersGreetEachOther) {
  PeerApi* peer = PeerOf(*task_.remote);
  ASSERT_NE(peer, nullptr);
  const auto info = Await<PeerInfo>(
      [&](CallDone<PeerInfo> done) { peer->Hello({}, LocalPeer(), std::move(done)); });
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version, 1);
  EXPECT_EQ(info->incarnation, LocalPeer().incarnation);
  EXPECT_EQ(info->boot_id, LocalPeer().boot_id);
  EXPECT_THAT(info->capabilities, testing::ElementsAre(kBatchesCapability, "fast"));
  EXPECT_EQ(PeerOf(*task_.worker), nullptr);
}

TEST_F(GrpcWorkerTest, AMusterTaskIsKnownAfterAWhile) {
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  while (!task_.remote->IsMuster() && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(task_.remote->IsMuster());
  EXPECT_FALSE(task_.worker->IsMuster());
}

TEST_F(GrpcWorkerTest, FinishedStepsTravelWithTheNextOne) {
  RunGraphRequest request;
  request.finished_steps = {7, int64_t{1} << 56};
  ASSERT_TRUE(RunGraph({}, request).ok());
  EXPECT_THAT(task_.worker->run_graph->finished_steps, testing::ElementsAre(7, int64_t{1} << 56));
}

TEST_F(GrpcWorkerTest, Peers) {
  auto own = std::make_shared<FakeWorker>();
  const ClusterSpec cluster({{"ps", {{0, "a:1"}, {2, "b:1"}}}, {"w", {{0, "c:1"}}}});
  const auto peers = task_.transport->Connect(cluster, TaskName{"w", 0, 0}, own);
  EXPECT_EQ(peers->Tasks().size(), 3u);
  EXPECT_EQ(peers->Worker("/job:w/replica:0/task:0"), own);
  EXPECT_NE(peers->Worker("/job:ps/replica:0/task:2"), nullptr);
  EXPECT_EQ(peers->Worker("/job:ps/replica:0/task:2"), peers->Worker("/job:ps/replica:0/task:2"));
  EXPECT_EQ(peers->Worker("/job:ps/replica:0/task:1"), nullptr);
}

// A task that ends each call with this.
class EndingService final : public grpc::CallbackGenericService {
 public:
  explicit EndingService(grpc::Status status) : status_(std::move(status)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor(status_);
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(const grpc::Status& status) { Finish(status); }
    void OnDone() override { delete this; }
  };
  const grpc::Status status_;
};

absl::Status StatusOfCallTo(EndingService& service) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError("the server does not start");
  FakeTask task;
  RETURN_IF_ERROR(task.Connect({}, absl::StrCat("127.0.0.1:", port)));
  return Await<std::vector<DeviceAttributes>>(
             [&](auto done) { task.remote->GetStatus({}, std::move(done)); })
      .status();
}

// Callers recover from Unavailable, unlike from a call that a task itself reports as cancelled.
TEST(GrpcDroppedTest, CallsThatAStoppedServerDropsAreUnavailable) {
  EndingService dropping(grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED"));
  const absl::Status dropped = StatusOfCallTo(dropping);
  EXPECT_EQ(dropped.code(), StatusCode::kUnavailable) << dropped;
  EXPECT_THAT(std::string(dropped.message()), HasSubstr("it is being stopped"));
  EndingService cancelling(grpc::Status(grpc::StatusCode::CANCELLED, "Step 7 was cancelled"));
  EXPECT_EQ(StatusOfCallTo(cancelling).code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace muster
