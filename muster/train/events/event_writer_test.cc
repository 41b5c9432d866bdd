// The writer of event files: the file it leaves, its life, its errors, and many threads at once.
#include "muster/train/events/event_writer.h"

#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorflow/core/util/event.pb.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/base/status.h"
#include "muster/checkpoint/records/record_reader.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class EventWriterTest : public ::testing::Test {
 protected:
  EventWriterTest() {
    static int count = 0;
    directory_ = absl::StrCat(::testing::TempDir(), "/events_", getpid(), "_", count++, "/a/b");
  }
  ~EventWriterTest() override {
    std::filesystem::remove_all(std::filesystem::path(directory_).parent_path().parent_path());
  }

  std::shared_ptr<EventWriter> Open(EventWriterOptions options = EventWriterOptions()) {
    auto writer = EventWriter::Open(directory_, std::move(options));
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  static std::vector<tensorflow::Event> Events(const std::string& path) {
    std::vector<tensorflow::Event> events;
    auto reader = RecordReader::Open(path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (;;) {
      auto record = (*reader)->Next();
      if (!record.ok()) {
        EXPECT_EQ(record.status().code(), absl::StatusCode::kOutOfRange) << record.status();
        return events;
      }
      EXPECT_TRUE(events.emplace_back().ParseFromString(*record));
    }
  }

  std::string directory_;
};

std::string SummaryWithMetadata(const std::string& tag) {
  tensorflow::Summary summary;
  tensorflow::Summary::Value* value = summary.add_value();
  value->set_tag(tag);
  value->set_simple_value(1);
  value->mutable_metadata()->set_display_name("shown");
  return summary.SerializeAsString();
}

TEST_F(EventWriterTest, TheFirstRecordIsTensorFlows) {
  VirtualClock clock;
  clock.Advance(absl::Seconds(1500000000) + absl::Milliseconds(250));
  EventWriterOptions options;
  options.clock = &clock;
  auto writer = Open(options);
  EXPECT_TRUE(Files().empty());
  EXPECT_TRUE(writer->AddScalar("x", 2, 7).ok());
  EXPECT_TRUE(writer->Close().ok());
  ASSERT_EQ(Files().size(), 1u);
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  EXPECT_EQ(std::filesystem::path(Files()[0]).filename(),
            absl::StrCat("events.out.tfevents.1500000000.", host));
  auto reader = RecordReader::Open(Files()[0]);
  ASSERT_TRUE(reader.ok());
  const char first[] =
      "\x09\0\0\0\xc0\x0b\x5a\xd6\x41\x1a\x0d"
      "brain.Event:2";
  EXPECT_EQ(*(*reader)->Next(), std::string(first, sizeof(first) - 1));
  const std::vector<tensorflow::Event> events = Events(Files()[0]);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].wall_time(), 1500000000.25);
  EXPECT_EQ(events[1].step(), 7);
}

TEST_F(EventWriterTest, MetadataIsKeptOnce) {
  auto writer = Open();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(writer->AddSummary(SummaryWithMetadata("a")).ok());
  EXPECT_TRUE(writer->AddSummary(SummaryWithMetadata("b")).ok());
  EXPECT_EQ(writer->AddSummary("\xff\xff").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(writer->AddRunMetadata("", "step_1", 1).ok());
  EXPECT_EQ(writer->AddRunMetadata("", "step_1", 1).message(),
            "The provided tag was already used for this event type");
  EXPECT_TRUE(writer->Close().ok());
  const std::vector<tensorflow::Event> events = Events(Files()[0]);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_TRUE(events[1].summary().value(0).has_metadata());
  EXPECT_FALSE(events[2].summary().value(0).has_metadata());
  EXPECT_TRUE(events[3].summary().value(0).has_metadata());
}

TEST_F(EventWriterTest, ReopeningStartsAFileAndLeavesTheOldOne) {
  auto writer = Open();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(writer->AddSessionLog(SessionStatus::kStart, "", "", i).ok());
    EXPECT_TRUE(writer->Close().ok());
    EXPECT_TRUE(writer->AddScalar("dropped", 1).ok());
    EXPECT_TRUE(writer->Flush().ok());
    EXPECT_TRUE(writer->Reopen().ok());
    EXPECT_TRUE(writer->Reopen().ok());
  }
  ASSERT_EQ(Files().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const std::vector<tensorflow::Event> events = Events(Files()[i]);
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[1].step(), i);
    EXPECT_EQ(events[1].session_log().status(), tensorflow::SessionLog::START);
  }
}

TEST_F(EventWriterTest, WithASuffixTheFileIsMadeAtOnce) {
  EventWriterOptions options;
  options.suffix = ".v2";
  auto writer = Open(options);
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_THAT(Files()[0], ::testing::EndsWith(".v2"));
  EXPECT_EQ(Events(Files()[0]).size(), 1u);
}

TEST_F(EventWriterTest, WhatWasWrittenIsFlushedInTime) {
  EventWriterOptions options;
  options.flush_every = absl::Milliseconds(30);
  auto writer = Open(options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(writer->AddScalar("x", 1).ok());
    for (int tries = 0; tries < 500; ++tries) {
      if (!Files().empty() && Events(Files()[0]).size() == 2u + i) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(Events(Files()[0]).size(), 2u + i);
  }
}

TEST_F(EventWriterTest, ADeletedFolderIsToldOnceAndHangsNobody) {
  auto writer = Open();
  EXPECT_TRUE(writer->AddScalar("x", 1).ok());
  EXPECT_TRUE(writer->Flush().ok());
  std::filesystem::remove_all(directory_);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(writer->AddScalar("x", 1).ok());
  EXPECT_THAT(std::string(writer->Flush().message()), HasSubstr("has disappeared."));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(writer->AddScalar("x", 1).ok());
  EXPECT_FALSE(writer->Close().ok());
  EXPECT_TRUE(writer->Reopen().ok());
  EXPECT_TRUE(writer->AddScalar("x", 1).ok());
  EXPECT_TRUE(writer->Flush().ok());
  EXPECT_EQ(Events(Files()[0]).size(), 2u);
}

TEST_F(EventWriterTest, AFullDiskIsToldOnceAndHangsNobody) {
  auto writer = Open();
  EXPECT_TRUE(writer->AddScalar("first", 1).ok());
  EXPECT_TRUE(writer->Flush().ok());
  {
    // Files may not grow beyond this, as on a full disk.
    rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    rlimit limit = old;
    limit.rlim_cur = 200;
    auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(writer->AddGraph(std::string(500, 'x')).ok());
    EXPECT_FALSE(writer->Flush().ok());
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
  }
  EXPECT_FALSE(writer->Close().ok());
  EXPECT_EQ(Events(Files()[0]).size(), 2u);
}

TEST_F(EventWriterTest, AFolderThatCannotBeMadeIsAnError) {
  EXPECT_EQ(EventWriter::Open("/proc/no/such/folder").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EventWriterTest, ManyThreadsWriteCloseAndReopen) {
  EventWriterOptions options;
  options.max_queue = 2;
  auto writer = Open(options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_TRUE(writer->AddScalar("x", 1, i).ok());
      EXPECT_TRUE(writer->Flush().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Events(Files()[0]).size(), 801u);
  threads.clear();
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        (void)writer->AddScalar("x", 1, i);
        if (t == 0) (void)writer->Close();
        if (t == 1) (void)writer->Reopen();
        if (t == 2) (void)writer->Flush();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(EventWriterTest, OneWriterPerFolder) {
  auto writer = EventWriterCache::Get(directory_);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(*writer, *EventWriterCache::Get(directory_));
  EXPECT_TRUE((*writer)->AddScalar("x", 1).ok());
  EventWriter::FlushAll();
  EXPECT_EQ(Events(Files()[0]).size(), 2u);
  EventWriterCache::Clear();
  EXPECT_TRUE((*writer)->is_closed());
  EXPECT_FALSE(EventWriterCache::Get("/proc/no/such/folder").ok());
  EXPECT_FALSE(EventWriterCache::Get("/proc/no/such/folder").ok());
}

TEST_F(EventWriterTest, AForkDoesNotWaitForTheThreadThatItLacks) {
  auto writer = Open();
  EXPECT_TRUE(writer->AddScalar("x", 1).ok());
  EXPECT_TRUE(writer->Flush().ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    for (int i = 0; i < 100; ++i) (void)writer->AddScalar("x", 1);
    (void)writer->Flush();
    EventWriter::FlushAll();
    (void)writer->Close();
    _exit(0);
  }
  int code = -1;
  waitpid(child, &code, 0);
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(writer->Close().ok());
  EXPECT_EQ(Events(Files()[0]).size(), 2u);
}

}  // namespace
}  // namespace muster
