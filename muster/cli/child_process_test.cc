#include "muster/cli/child_process.h"

#include <csignal>
#include <cstdlib>
#include <optional>

#include "absl/strings/numbers.h"
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kPatienceMillis = 60'000;

// Reads one batch of lines; waits until there is something to read. False: there will be no more.
bool WaitAndRead(int fd, std::string& partial, std::vector<std::string>& lines) {
  pollfd polled{fd, POLLIN, 0};
  if (poll(&polled, 1, kPatienceMillis) != 1) {
    ADD_FAILURE() << "nothing came";
    return false;
  }
  return ReadLines(fd, partial, [&](std::string line) { lines.push_back(std::move(line)); });
}

// A child until the end of its output.
struct Ended {
  std::vector<std::string> lines;
  int status = -1;  // of waitpid
};

Ended RunToEnd(const std::vector<std::string>& words,
               const std::vector<std::pair<std::string, std::string>>& environment = {},
               const std::optional<std::string>& input = std::nullopt) {
  Ended ended;
  const absl::StatusOr<ChildProcess> child = StartChild(words, environment, input.has_value());
  EXPECT_EQ(child.status(), absl::OkStatus());
  if (!child.ok()) return ended;
  if (input.has_value()) {
    EXPECT_EQ(write(child->input, input->data(), input->size()),
              static_cast<ssize_t>(input->size()));
    close(child->input);
  }
  std::string partial;
  while (WaitAndRead(child->output, partial, ended.lines)) {
  }
  SignalChild(*child, SIGKILL);  // only where it has not ended in time
  EXPECT_EQ(waitpid(child->pid, &ended.status, 0), child->pid);
  close(child->output);
  return ended;
}

TEST(ChildProcessTest, OutputAndErrorsArriveTogether) {
  const Ended ended = RunToEnd({"sh", "-c", "echo out; echo err >&2; printf end; exit 7"});
  EXPECT_THAT(ended.lines, ElementsAre("out", "err", "end"));
  ASSERT_TRUE(WIFEXITED(ended.status));
  EXPECT_EQ(WEXITSTATUS(ended.status), 7);
}

TEST(ChildProcessTest, VariablesAreAddedOrReplaced) {
  setenv("MUSTER_TEST_OLD", "old", 1);
  setenv("MUSTER_TEST_KEPT", "kept", 1);
  const Ended ended =
      RunToEnd({"sh", "-c", "echo $MUSTER_TEST_OLD $MUSTER_TEST_KEPT $MUSTER_TEST_NEW; env"},
               {{"MUSTER_TEST_OLD", "replaced"}, {"MUSTER_TEST_NEW", "new"}});
  unsetenv("MUSTER_TEST_OLD");
  unsetenv("MUSTER_TEST_KEPT");
  ASSERT_THAT(ended.lines, testing::Not(IsEmpty()));
  EXPECT_EQ(ended.lines[0], "replaced kept new");
  EXPECT_THAT(ended.lines, testing::Not(testing::Contains("MUSTER_TEST_OLD=old")));
}

TEST(ChildProcessTest, InputIsGivenOrEmpty) {
  EXPECT_THAT(RunToEnd({"cat"}, {}, "one\ntwo\n").lines, ElementsAre("one", "two"));
  EXPECT_THAT(RunToEnd({"cat"}).lines, IsEmpty());
}

TEST(ChildProcessTest, AMissingProgramSaysSo) {
  const Ended ended = RunToEnd({"no-such-program-of-muster"});
  EXPECT_THAT(ended.lines, ElementsAre("cannot be started: no such program"));
  ASSERT_TRUE(WIFEXITED(ended.status));
  EXPECT_EQ(WEXITSTATUS(ended.status), 127);
}

// The grandchild holds the pipe: its output ends only when the signal has reached both.
TEST(ChildProcessTest, SignalsReachAllThatTheChildHasStarted) {
  const absl::StatusOr<ChildProcess> child =
      StartChild({"sh", "-c", "sleep 1000 & echo $!; wait"}, {});
  ASSERT_EQ(child.status(), absl::OkStatus());
  EXPECT_EQ(getpgid(child->pid), child->pid);
  std::string partial;
  std::vector<std::string> lines;
  while (lines.empty() && WaitAndRead(child->output, partial, lines)) {
  }
  ASSERT_EQ(lines.size(), 1u);
  int grandchild = 0;
  ASSERT_TRUE(absl::SimpleAtoi(lines[0], &grandchild));
  EXPECT_EQ(getpgid(grandchild), child->pid);
  SignalChild(*child, SIGTERM);
  while (WaitAndRead(child->output, partial, lines)) {
  }
  EXPECT_EQ(lines.size(), 1u);
  int status = 0;
  EXPECT_EQ(waitpid(child->pid, &status, 0), child->pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  close(child->output);
}

TEST(ChildProcessTest, NoChildGetsNoSignal) {
  SignalChild(ChildProcess(), SIGKILL);  // would end this process
}

TEST(ReadLinesTest, KeepsTheRestAndCutsLongLines) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  std::string partial;
  std::vector<std::string> lines;
  const auto read = [&](size_t max_line) {
    lines.clear();
    return ReadLines(
        ends[0], partial, [&](std::string line) { lines.push_back(line); }, max_line);
  };
  EXPECT_TRUE(read(100));
  EXPECT_THAT(lines, IsEmpty());
  ASSERT_EQ(write(ends[1], "ab\n\ncd", 6), 6);
  EXPECT_TRUE(read(100));
  EXPECT_THAT(lines, ElementsAre("ab", ""));
  EXPECT_EQ(partial, "cd");
  ASSERT_EQ(write(ends[1], "ef\n", 3), 3);
  EXPECT_TRUE(read(100));
  EXPECT_THAT(lines, ElementsAre("cdef"));
  ASSERT_EQ(write(ends[1], "abcdefgh\nij", 11), 11);
  EXPECT_TRUE(read(3));
  EXPECT_THAT(lines, ElementsAre("abc", "def", "gh"));
  close(ends[1]);
  EXPECT_FALSE(read(3));
  EXPECT_THAT(lines, ElementsAre("ij"));
  EXPECT_FALSE(read(3));
  EXPECT_THAT(lines, IsEmpty());
  close(ends[0]);
}

}  // namespace
}  // namespace muster
