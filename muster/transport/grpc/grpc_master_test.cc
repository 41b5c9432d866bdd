// Calls to a master over a real connection, and access control.
#include <cstdlib>
#include <filesystem>

#include "tensorflow/core/protobuf/config.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/base/net/socket_fakes_test.h"
#include "muster/transport/grpc/grpc_fakes_test.h"

namespace muster {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

absl::Status AddNoOp(Graph& graph, std::string name, std::vector<std::string> after) {
  NodeSpec spec;
  spec.name = std::move(name);
  spec.op = "NoOp";
  for (const std::string& before : after) {
    Node* node = graph.FindNode(before);
    if (node == nullptr) return NotFound("no node ", before);
    spec.control_inputs.push_back(node);
  }
  return graph.AddNode(std::move(spec)).status();
}

class GrpcMasterTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status status = task_.Start();
    ASSERT_TRUE(status.ok()) << status;
  }
  template <typename Start>
  void ExpectEmpty(const std::string& text, Start start) {
    const absl::Status status = Await<Empty>(start).status();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(task_.master->text, text);
  }
  absl::StatusOr<int64_t> Extend(GraphEdit edit) {
    return Await<int64_t>([&](CallDone<int64_t> done) {
      ExtendSessionRequest request;
      request.session = "session1";
      request.graph = std::move(edit);
      request.current_version = 5;
      task_.remote_master->ExtendSession({}, std::move(request), std::move(done));
    });
  }
  FakeTask task_;
};

TEST_F(GrpcMasterTest, SessionsAreMadeAndExtended) {
  CreateSessionRequest request;
  request.graph = [](Graph& graph) { return AddNoOp(graph, "a", {}); };
  request.config.device_filters = {"/job:ps"};
  request.config.operation_timeout = absl::Seconds(2);
  request.target = "grpc://here";
  const auto created = Await<CreateSessionReply>([&](CallDone<CreateSessionReply> done) {
    task_.remote_master->CreateSession({}, std::move(request), std::move(done));
  });
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->session, "session1");
  EXPECT_EQ(created->graph_version, 5);
  EXPECT_EQ(task_.master->text, "CreateSession grpc://here");
  EXPECT_EQ(task_.master->config->operation_timeout, absl::Seconds(2));
  EXPECT_THAT(task_.master->config->device_filters, testing::ElementsAre("/job:ps"));

  // An edit may use what the session has.
  const absl::StatusOr<int64_t> version =
      Extend([](Graph& graph) { return AddNoOp(graph, "b", {"a"}); });
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(*version, 6);
  ASSERT_EQ(task_.master->graph.num_nodes(), 2);
  EXPECT_EQ(task_.master->graph.FindNode("b")->control_inputs()[0]->name(), "a");
  // After an edit that the master refused the client's picture is as before.
  task_.master->error = absl::AbortedError("no");
  EXPECT_FALSE(Extend([](Graph& graph) { return AddNoOp(graph, "c", {"b"}); }).ok());
  task_.master->error = absl::OkStatus();
  EXPECT_EQ(Extend([](Graph& graph) { return AddNoOp(graph, "d", {"c"}); }).status().code(),
            StatusCode::kNotFound);
  ExpectEmpty("CloseSession session1", [&](CallDone<Empty> done) {
    task_.remote_master->CloseSession({}, "session1", std::move(done));
  });
  EXPECT_EQ(Extend([](Graph& graph) { return AddNoOp(graph, "e", {}); }).status().code(),
            StatusCode::kAborted);
}

TEST_F(GrpcMasterTest, Steps) {
  RunStepRequest request;
  request.session = "s";
  request.feeds = {{"x:0", Tensor::Scalar<double>(2.5)}};
  request.fetches = {"y:0"};
  request.targets = {"t"};
  request.options.timeout = absl::Milliseconds(10);
  request.options.trace = true;
  request.partial_run = "p";
  request.request_id = 9;
  tensorflow::RunMetadata metadata;
  metadata.mutable_step_stats()->add_dev_stats()->set_device("d");
  task_.master->run_step_reply = {{{"y:0", Tensor::Vector<Half>({Half(1.0f)})}},
                                  metadata.SerializeAsString()};
  const auto run = [&](CallOptions options) {
    return Await<RunStepReply>([&](CallDone<RunStepReply> done) {
      task_.remote_master->RunStep(std::move(options), request, std::move(done));
    });
  };
  const absl::StatusOr<RunStepReply> reply = run({});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->metadata, metadata.SerializeAsString());
  EXPECT_TRUE(SameTensor(reply->tensors[0].tensor, Tensor::Vector<Half>({Half(1.0f)})));
  const RunStepRequest& got = *task_.master->run_step;
  EXPECT_TRUE(SameTensor(got.feeds[0].tensor, request.feeds[0].tensor));
  EXPECT_EQ(got.fetches, request.fetches);
  EXPECT_EQ(got.targets, request.targets);
  EXPECT_EQ(got.options.timeout, absl::Milliseconds(10));
  EXPECT_TRUE(got.options.trace && !got.options.has_debug_watches);
  EXPECT_EQ(got.partial_run, "p");
  EXPECT_EQ(got.request_id, 9);
  task_.master->error = absl::FailedPreconditionError(std::string(5000, 'y'));
  EXPECT_EQ(run({}).status(), task_.master->error);
}

TEST_F(GrpcMasterTest, OtherMethods) {
  MasterApi& master = *task_.remote_master;
  const auto partial = Await<std::string>([&](CallDone<std::string> done) {
    master.PartialRunSetup({}, {"s", {"a:0"}, {"b:0", "c:0"}, {}, 7}, std::move(done));
  });
  ASSERT_TRUE(partial.ok()) << partial.status();
  EXPECT_EQ(*partial, "partial1");
  EXPECT_EQ(task_.master->text, "PartialRunSetup s1207");
  ExpectEmpty("Reset 12", [&](CallDone<Empty> done) {
    master.Reset({}, {"a"}, {"b", "c"}, std::move(done));
  });

  DeviceAttributes device;
  device.name = "/job:a/replica:0/task:0/device:CPU:0";
  device.incarnation = 5;
  task_.master->devices = {{device}, {device, device}};
  const auto devices = Await<ListDevicesReply>(
      [&](CallDone<ListDevicesReply> done) { master.ListDevices({}, "s", std::move(done)); });
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->local.size(), 1u);
  EXPECT_EQ(devices->remote.size(), 2u);
  EXPECT_EQ(devices->remote[1].name, device.name);

  MakeCallableRequest callable;
  callable.session = "s";
  callable.feeds = {"a:0"};
  callable.fetches = {"b:0"};
  callable.connections = {{"c:0", "d:0"}};
  callable.options.has_debug_watches = true;
  callable.has_feed_or_fetch_devices = true;
  const auto handle = Await<int64_t>(
      [&](CallDone<int64_t> done) { master.MakeCallable({}, callable, std::move(done)); });
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(*handle, 8);
  EXPECT_EQ(task_.master->callable->connections, callable.connections);
  EXPECT_TRUE(task_.master->callable->has_feed_or_fetch_devices);
  EXPECT_TRUE(task_.master->callable->options.has_debug_watches);

  task_.master->run_callable_reply.fetches = {Tensor::Scalar<int32_t>(3)};
  RunCallableRequest run;
  run.session = "s";
  run.callable = 8;
  run.feeds = {Tensor::Vector<std::string>({"a", "b"})};
  const auto result = Await<RunCallableReply>(
      [&](CallDone<RunCallableReply> done) { master.RunCallable({}, run, std::move(done)); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(SameTensor(result->fetches[0], Tensor::Scalar<int32_t>(3)));
  EXPECT_TRUE(SameTensor(task_.master->run_callable->feeds[0], run.feeds[0]));
  ExpectEmpty("ReleaseCallable s8",
              [&](CallDone<Empty> done) { master.ReleaseCallable({}, "s", 8, std::move(done)); });
}

TEST_F(GrpcMasterTest, Targets) {
  for (const char* target :
       {"", "localhost:2222", "http://localhost:2222", "grpc://", "grpc://localhost",
        "grpc://localhost:", "grpc://localhost:2222:8080", "grpc://:2222", "grpc://a:b",
        "grpc://a:0", "grpc://a:70000", "grpc://a/b:1", "grpc://::1:2222", "grpc+verbs://a:1"}) {
    const absl::Status status = task_.transport->ConnectMaster(target).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << target;
    EXPECT_THAT(std::string(status.message()), HasSubstr("grpc://host:port"));
  }
  EXPECT_TRUE(task_.transport->ConnectMaster("grpc://localhost:2222").ok());
  EXPECT_TRUE(task_.transport->ConnectMaster("grpc://[::1]:2222").ok());
}

TEST_F(GrpcMasterTest, TakenPorts) {
  GrpcServerOptions options;
  options.host = "127.0.0.1";
  options.port = task_.server->port();
  const absl::Status status = GrpcServer::Start(options, task_.master, task_.worker).status();
  EXPECT_EQ(status.code(), StatusCode::kUnknown);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Could not start gRPC server"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(options.port)));
}

TEST(GrpcServerTest, WithoutAMaster) {
  FakeTask task;
  task.master = nullptr;
  ASSERT_TRUE(task.Start().ok());
  const auto devices = Await<ListDevicesReply>([&](CallDone<ListDevicesReply> done) {
    task.remote_master->ListDevices({}, "", std::move(done));
  });
  EXPECT_EQ(devices.status().code(), StatusCode::kUnimplemented);
}

absl::Status Ping(FakeTask& task) {
  CallOptions options;
  options.timeout = absl::Seconds(20);
  return Await<Empty>(
             [&](CallDone<Empty> done) { task.remote->CleanupGraph(options, 1, std::move(done)); })
      .status();
}

TEST(GrpcSecurityTest, Tokens) {
  GrpcServerOptions options;
  options.security.token = "secret";
  FakeTask task;
  ASSERT_TRUE(task.Start(options, options.security).ok());
  EXPECT_TRUE(Ping(task).ok()) << Ping(task);
  EXPECT_TRUE(task.worker->last.caller->has_token);
  for (const char* wrong : {"", "secre", "secret1", "Secret"}) {
    SecurityOptions client;
    client.token = wrong;
    ASSERT_TRUE(task.Connect(client, absl::StrCat("127.0.0.1:", task.server->port())).ok());
    EXPECT_EQ(Ping(task).code(), StatusCode::kUnauthenticated) << wrong;
  }
}

// Certificates made by the openssl command.
class GrpcTlsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("openssl version > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "THE OPENSSL COMMAND IS MISSING: TLS IS NOT TESTED";
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "muster_tls_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca "
        "-keyout ca.key -out ca.pem");
    for (const std::string name : {"task", "other"}) {
      Run("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + name +
          " -keyout " + name + ".key -out " + name + ".csr");
    }
    const std::string names = folder_ + "/names";
    ASSERT_EQ(std::system(("echo subjectAltName=IP:127.0.0.1 > " + names).c_str()), 0);
    Run("x509 -req -days 2 -in task.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names "
        "-out task.pem");
    Run("x509 -req -days 2 -in other.csr -signkey other.key -out other.pem");
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  void Run(const std::string& arguments) {
    const std::string command = "cd " + folder_ + " && openssl " + arguments + " > /dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  SecurityOptions With(const std::string& certificate, bool ca) {
    SecurityOptions security;
    if (!certificate.empty()) {
      security.certificate_file = folder_ + "/" + certificate + ".pem";
      security.key_file = folder_ + "/" + certificate + ".key";
    }
    if (ca) security.ca_file = folder_ + "/ca.pem";
    return security;
  }
  std::string folder_;
};

TEST_F(GrpcTlsTest, Tls) {
  GrpcServerOptions options;
  options.security = With("task", /*ca=*/false);
  FakeTask task;
  ASSERT_TRUE(task.Start(options, With("", /*ca=*/true)).ok());
  EXPECT_TRUE(Ping(task).ok()) << Ping(task);
  // In the clear.
  const std::string address = absl::StrCat("127.0.0.1:", task.server->port());
  ASSERT_TRUE(task.Connect({}, address).ok());
  EXPECT_EQ(Ping(task).code(), StatusCode::kUnavailable);
  // Another authority.
  ASSERT_TRUE(task.Connect(With("other", /*ca=*/false), address).ok());
  EXPECT_EQ(Ping(task).code(), StatusCode::kUnavailable);
}

TEST_F(GrpcTlsTest, ConnectionsThatDoNotFinishTheirHelloEnd) {
  GrpcServerOptions options;
  options.security = With("task", /*ca=*/false);
  options.handshake_timeout = absl::Milliseconds(200);
  FakeTask task;
  ASSERT_TRUE(task.Start(std::move(options)).ok());
  // A record of 512 bytes with a hello of 508, of which 6 are there.
  const std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  for (const size_t bytes : {0, 3, 11}) {
    TestClient client(task.server->port());
    ASSERT_TRUE(client.Send(hello.substr(0, bytes)));
    EXPECT_EQ(client.ReadAll(), "");
  }
}

TEST_F(GrpcTlsTest, MutualTls) {
  GrpcServerOptions options;
  options.security = With("task", /*ca=*/true);
  options.security.token = "secret";
  FakeTask task;
  ASSERT_TRUE(task.Start(options, options.security).ok());
  EXPECT_TRUE(Ping(task).ok()) << Ping(task);
  EXPECT_EQ(task.worker->last.caller->subject, "CN=task");
  EXPECT_TRUE(task.worker->last.caller->has_token);
  const std::string address = absl::StrCat("127.0.0.1:", task.server->port());
  ASSERT_TRUE(task.Connect(With("", /*ca=*/true), address).ok());
  EXPECT_EQ(Ping(task).code(), StatusCode::kUnavailable);
  ASSERT_TRUE(task.Connect(With("other", /*ca=*/true), address).ok());
  EXPECT_EQ(Ping(task).code(), StatusCode::kUnavailable);
  ASSERT_TRUE(task.Connect(With("task", /*ca=*/true), address).ok());
  EXPECT_EQ(Ping(task).code(), StatusCode::kUnauthenticated);
}

TEST_F(GrpcTlsTest, OptionsThatDoNotFit) {
  GrpcServerOptions options;
  options.security.certificate_file = folder_ + "/task.pem";
  EXPECT_EQ(GrpcServer::Start(options, nullptr, nullptr).status().code(),
            StatusCode::kInvalidArgument);
  options.security.key_file = folder_ + "/missing.key";
  EXPECT_EQ(GrpcServer::Start(options, nullptr, nullptr).status().code(), StatusCode::kNotFound);
  options.security = SecurityOptions();
  options.security.ca_file = folder_ + "/ca.pem";
  EXPECT_EQ(GrpcServer::Start(options, nullptr, nullptr).status().code(),
            StatusCode::kInvalidArgument);
  FakeTask task;
  SecurityOptions client;
  client.ca_file = folder_ + "/missing.pem";
  ASSERT_TRUE(task.Start({}, client).ok());
  EXPECT_EQ(Ping(task).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
