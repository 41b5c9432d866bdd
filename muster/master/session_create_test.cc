#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/master/master_fixture_test.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

using SessionCreateTest = MasterTest;

TEST_F(SessionCreateTest, SessionIsMadeAndClosedEverywhere) {
  const auto session = Create();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(*session, SizeIs(16));
  EXPECT_THAT(Log(), UnorderedElementsAre(absl::StrCat("GetStatus ", kPs),
                                          absl::StrCat("GetStatus ", kWorker),
                                          absl::StrCat("CreateWorkerSession ", kPs),
                                          absl::StrCat("CreateWorkerSession ", kWorker)));
  const CreateWorkerSessionRequest& request = workers_[kPs]->sessions[0];
  EXPECT_EQ(request.session, *session);
  EXPECT_EQ(request.master_task, kWorker);
  EXPECT_EQ(request.master_incarnation, 0x22u);
  EXPECT_FALSE(request.identity.has_value());
  EXPECT_TRUE(Close(*session).ok());
  EXPECT_EQ(Count("DeleteWorkerSession"), 2);
  EXPECT_EQ(Text(Close(*session)),
            absl::StrCat("ABORTED: Session ", *session,
                         " is not found. Possibly, this master has restarted."));
  EXPECT_EQ(Text(Run(Step(*session, {}, {"y:0"}))),
            absl::StrCat("ABORTED: Session ", *session, " is not found."));
}

TEST_F(SessionCreateTest, FiltersLeaveTasksAlone) {
  SessionConfig config;
  config.device_filters = {"/job:worker"};
  ASSERT_TRUE(Create(config, [](Graph&) { return absl::OkStatus(); }).ok());
  EXPECT_THAT(Log(), ElementsAre(absl::StrCat("GetStatus ", kWorker),
                                 absl::StrCat("CreateWorkerSession ", kWorker)));
  config.device_filters = {"/jub:worker"};
  EXPECT_THAT(Text(Create(config)), HasSubstr("INVALID_ARGUMENT: Could not parse device filter"));
}

TEST_F(SessionCreateTest, LazySessionsGrowToTheTasksThatNodesName) {
  SessionConfig config;
  config.lazy_tasks = true;
  workers_[kPs]->is_up = false;
  const auto session = Create(config, [](Graph& graph) {
    return AddNodes(graph, [](const Scope& s) { s.Add("NoOp", {}, {}, "here"); });
  });
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(Log(), ElementsAre(absl::StrCat("GetStatus ", kWorker),
                                 absl::StrCat("CreateWorkerSession ", kWorker)));
  workers_[kPs]->is_up = true;
  ExtendSessionRequest extend{*session, SmallGraph, 0};
  const auto version = Wait<int64_t>(
      [&](auto done) { master_->ExtendSession({}, std::move(extend), std::move(done)); });
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(*version, 1);
  EXPECT_THAT(Log(), ElementsAre(absl::StrCat("GetStatus ", kPs),
                                 absl::StrCat("CreateWorkerSession ", kPs)));
}

TEST_F(SessionCreateTest, CreationWaitsForMissingTasks) {
  workers_[kPs]->is_up = false;
  std::optional<absl::StatusOr<CreateSessionReply>> reply;
  CreateSessionRequest request;
  request.graph = SmallGraph;
  master_->CreateSession({}, std::move(request),
                         [&](absl::StatusOr<CreateSessionReply> r) { reply = std::move(r); });
  Advance(absl::Minutes(10));
  EXPECT_FALSE(reply.has_value());
  workers_[kPs]->ComeUp();
  scheduler_->RunUntil([&] { return reply.has_value(); });
  EXPECT_TRUE(reply->ok()) << reply->status();
}

TEST_F(SessionCreateTest, CreationEndsWithItsClient) {
  workers_[kPs]->is_up = false;
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  scheduler_->ScheduleAfter(absl::Seconds(5), [cancellation = options.cancellation] {
    cancellation->Cancel(absl::DeadlineExceededError("Deadline Exceeded"));
  });
  CreateSessionRequest request;
  request.graph = SmallGraph;
  const auto reply = Wait<CreateSessionReply>(
      [&](auto done) { master_->CreateSession(options, std::move(request), std::move(done)); });
  EXPECT_EQ(Text(reply), "DEADLINE_EXCEEDED: Deadline Exceeded");
  EXPECT_EQ(master_->counts().sessions, 0);
}

TEST_F(SessionCreateTest, ErrorsOfCreationComeAfterTheTasksAnswered) {
  SessionConfig config;
  config.use_per_session_threads = true;
  EXPECT_EQ(Text(Create(config)),
            "INVALID_ARGUMENT: Distributed session does not support session thread pool options.");
  EXPECT_EQ(Text(Create({}, [](Graph&) { return NotFound("Op type not registered"); })),
            "NOT_FOUND: Op type not registered");
  EXPECT_THAT(Text(Create({},
                          [](Graph& graph) {
                            return AddNodes(graph, [](const Scope& s) {
                              s.WithDevice("/job:nowhere").Add("NoOp", {}, {}, "lost");
                            });
                          })),
              HasSubstr("Cannot assign a device for operation lost"));
  EXPECT_EQ(Count("GetStatus"), 6);
  workers_[kPs]->create_session_status = absl::InternalError("full");
  log_.clear();
  EXPECT_EQ(Text(Create()), "INTERNAL: full");
  EXPECT_EQ(Count("DeleteWorkerSession"), 2);
}

TEST_F(SessionCreateTest, SessionsMayBringTheirCluster) {
  SessionConfig config;
  config.cluster = ClusterSpec({{"alpha", {{0, "ps0:2222"}}}, {"boss", {{3, "worker0:2222"}}}});
  const auto session = Create(config, [](Graph& graph) {
    return AddNodes(
        graph, [](const Scope& s) { s.WithDevice("/job:alpha/task:0").Add("NoOp", {}, {}, "n"); });
  });
  ASSERT_TRUE(session.ok()) << session.status();
  const CreateWorkerSessionRequest& request = workers_[kPs]->sessions.at(0);
  EXPECT_EQ(request.master_task, "/job:boss/replica:0/task:3");
  EXPECT_TRUE(request.isolate_state);
  EXPECT_EQ(request.identity->self, (TaskName{"alpha", 0, 0}));
  const auto devices = Wait<ListDevicesReply>(
      [&](auto done) { master_->ListDevices({}, *session, std::move(done)); });
  ASSERT_THAT(devices->local, SizeIs(1));
  EXPECT_EQ(devices->local[0].name, "/job:boss/replica:0/task:3/device:CPU:0");
  EXPECT_EQ(devices->remote.at(0).name, "/job:alpha/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(devices->remote.at(0).incarnation, 0x11u);

  EXPECT_THAT(Text(Create(config, SmallGraph, "grpc://elsewhere:2222")),
              HasSubstr("INVALID_ARGUMENT: The master (current machine) is not included in the "
                        "provided cluster_def. "));
  config.cluster = ClusterSpec({{"worker", {{0, "worker0:2222"}}}});
  EXPECT_EQ(
      Text(Create(config)),
      "INVALID_ARGUMENT: The ClusterSpec names the job and task index to be the same names "
      "that were provided when the server booted. This is currently not allowed. Job: worker, "
      "task index: 0");
}

TEST_F(SessionCreateTest, ExtensionsFollowVersions) {
  const std::string session = Create().value();
  const auto extend = [&](int64_t version, const char* name) {
    ExtendSessionRequest request;
    request.session = session;
    request.current_version = version;
    request.graph = [name](Graph& graph) {
      return AddNodes(graph, [name](const Scope& s) { s.Add("NoOp", {}, {}, name); });
    };
    return Wait<int64_t>(
        [&](auto done) { master_->ExtendSession({}, std::move(request), std::move(done)); });
  };
  EXPECT_EQ(Text(extend(3, "n")), "ABORTED: Current version is 0 but caller expected 3.");
  EXPECT_EQ(extend(0, "n").value(), 1);
  EXPECT_TRUE(Run(Step(session, {}, {}, {"n"})).ok());
  // A bad extension leaves no trace.
  ExtendSessionRequest bad;
  bad.session = session;
  bad.current_version = 1;
  bad.graph = [](Graph& graph) {
    return AddNodes(graph,
                    [](const Scope& s) { s.WithDevice("/job:nowhere").Add("NoOp", {}, {}, "m"); });
  };
  EXPECT_FALSE(Wait<int64_t>([&](auto done) {
                 master_->ExtendSession({}, std::move(bad), std::move(done));
               }).ok());
  EXPECT_EQ(extend(1, "m").value(), 2);
}

TEST_F(SessionCreateTest, AnExtensionSentAgainHappensOnce) {
  const std::string session = Create().value();
  CallOptions from_muster;
  from_muster.peer = CallOptions::Peer::kMuster;
  const auto extend = [&](size_t fingerprint, CallDone<int64_t> done) {
    ExtendSessionRequest request;
    request.session = session;
    request.fingerprint = fingerprint;
    request.graph = [](Graph& graph) {
      return AddNodes(graph, [](const Scope& s) { s.Add("NoOp", {}, {}, "n"); });
    };
    master_->ExtendSession(from_muster, std::move(request), std::move(done));
  };
  std::vector<std::string> answers;
  const auto record = [&](absl::StatusOr<int64_t> version) {
    answers.push_back(version.ok() ? absl::StrCat(*version) : Text(version));
  };
  extend(77, record);
  extend(77, record);  // while it is under way
  scheduler_->RunUntil([&] { return answers.size() == 2; });
  extend(77, record);  // afterwards
  extend(78, record);  // another one
  EXPECT_THAT(answers,
              ElementsAre("1", "1", "1", "ABORTED: Current version is 1 but caller expected 0."));
}

}  // namespace
}  // namespace muster
