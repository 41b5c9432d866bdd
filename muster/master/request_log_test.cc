#include "muster/master/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::HasSubstr;

class RequestLogTest : public testing::Test {
 protected:
  // A log whose replies of all sessions take at most `bytes` bytes.
  std::shared_ptr<RequestLog> MakeLog(size_t bytes = 64 << 20) {
    auto options = std::make_shared<MasterOptions>();
    options->scheduler = scheduler_.get();
    options->reply_cache_bytes = bytes;
    auto log = std::make_shared<RequestLog>(std::move(options));
    log->Open("quiet");
    log->Open("busy");
    return log;
  }

  // The answer to a client that requests a step; counts how often steps have run.
  std::string Ask(RequestLog& log, const std::string& session, int64_t request_id,
                  size_t reply_bytes = 8) {
    RunStepRequest request;
    request.session = session;
    request.request_id = request_id;
    request.fetches = {"x:0"};
    std::string heard = "nothing";
    auto admission = log.AdmitStep({}, request, [&](absl::StatusOr<RunStepReply> reply) {
      heard = reply.ok() ? std::string(reply->metadata.substr(0, 16)) : reply.status().ToString();
    });
    if (admission) {
      ++runs_;
      RunStepReply reply;
      reply.metadata = absl::StrCat("reply ", request_id);
      reply.metadata.resize(std::max(reply_bytes, reply.metadata.size()), ' ');
      std::move(admission->done)(std::move(reply));
    }
    return heard.substr(0, heard.find_last_not_of(' ') + 1);
  }

  const std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(7);
  int runs_ = 0;
};

TEST_F(RequestLogTest, ASessionKeepsItsRepliesWhateverOthersRun) {
  const auto log = MakeLog();
  EXPECT_EQ(Ask(*log, "quiet", 1), "reply 1");
  for (int64_t id = 2; id <= 20'000; ++id) Ask(*log, "busy", id);
  EXPECT_EQ(runs_, 20'000);
  EXPECT_EQ(Ask(*log, "quiet", 1), "reply 1");
  EXPECT_EQ(Ask(*log, "busy", 19'999), "reply 19999");
  // A reply that is gone does not make the step run again.
  EXPECT_THAT(Ask(*log, "busy", 18'000), HasSubstr("ABORTED: The same RunStep (Master) request"));
  EXPECT_EQ(runs_, 20'000);
}

TEST_F(RequestLogTest, TheIdsOfSessionsAreTheirOwn) {
  const auto log = MakeLog();
  EXPECT_EQ(Ask(*log, "quiet", 1), "reply 1");
  EXPECT_EQ(Ask(*log, "busy", 1), "reply 1");
  EXPECT_EQ(runs_, 2);
}

TEST_F(RequestLogTest, SessionsThatHoldMostForgetFirst) {
  const auto log = MakeLog(/*bytes=*/100'000);
  EXPECT_EQ(Ask(*log, "busy", 1, 90'000), "reply 1");
  // Now the busy session holds more than its part, although it does nothing any more.
  for (int64_t id = 2; id < 12; ++id) Ask(*log, "quiet", id, 3'000);
  EXPECT_EQ(Ask(*log, "quiet", 2), "reply 2");
  EXPECT_EQ(Ask(*log, "quiet", 11), "reply 11");
  EXPECT_THAT(Ask(*log, "busy", 1), HasSubstr("ABORTED"));
  // Neither can it push out the other's replies by its own.
  for (int64_t id = 100; id < 200; ++id) Ask(*log, "busy", id, 9'000);
  EXPECT_EQ(Ask(*log, "quiet", 2), "reply 2");
  EXPECT_EQ(Ask(*log, "busy", 199), "reply 199");
  EXPECT_THAT(Ask(*log, "busy", 190), HasSubstr("ABORTED"));
  // A reply that is too large for the cache is given once.
  EXPECT_EQ(Ask(*log, "busy", 300, 200'000), "reply 300");
  EXPECT_THAT(Ask(*log, "busy", 300), HasSubstr("ABORTED"));
  EXPECT_EQ(Ask(*log, "quiet", 2), "reply 2");
}

TEST_F(RequestLogTest, ManySmallRepliesTakeNoMoreThanFewLargeOnes) {
  const auto log = MakeLog(/*bytes=*/100'000);
  for (int64_t id = 1; id <= 1000; ++id) Ask(*log, "busy", id, 0);
  EXPECT_EQ(Ask(*log, "busy", 1000), "reply 1000");
  EXPECT_THAT(Ask(*log, "busy", 500), HasSubstr("ABORTED"));
}

TEST_F(RequestLogTest, AClosedSessionLeavesItsPartToOthers) {
  const auto log = MakeLog(/*bytes=*/100'000);
  for (int64_t id = 1; id <= 10; ++id) Ask(*log, "busy", id, 9'000);
  RunStepRequest request;
  request.session = "busy";
  request.request_id = 50;
  std::string heard;
  auto admission = log->AdmitStep(
      {}, request, [&](absl::StatusOr<RunStepReply> reply) { heard = reply.status().ToString(); });
  ASSERT_TRUE(admission.has_value());
  log->Close("busy");
  // A step that was under way still answers, and leaves nothing behind.
  std::move(admission->done)(absl::CancelledError("closed"));
  EXPECT_THAT(heard, HasSubstr("closed"));
  for (int64_t id = 1; id <= 10; ++id) Ask(*log, "quiet", id, 9'000);
  for (int64_t id = 1; id <= 10; ++id)
    EXPECT_EQ(Ask(*log, "quiet", id), absl::StrCat("reply ", id));
  EXPECT_EQ(runs_, 20);
}

}  // namespace
}  // namespace muster
