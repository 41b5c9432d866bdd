#include "muster/transport/fast/poller.h"

#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "muster/base/threads/thread_pool.h"

namespace muster::fast {
namespace {

constexpr int kSockets = 12;

// Its events meet: each keeps a thread until all have one.
class Meeting : public Pollable {
 public:
  explicit Meeting(std::shared_ptr<std::barrier<>> all)
      : event_(eventfd(0, EFD_CLOEXEC)), all_(std::move(all)) {}
  ~Meeting() override {
    Poller::Global().Remove(number_, event_);
    close(event_);
  }
  static std::shared_ptr<Meeting> Make(const std::shared_ptr<std::barrier<>>& all) {
    auto meeting = std::make_shared<Meeting>(all);
    meeting->number_ = Poller::Global().Add(meeting);
    Poller::Global().Watch(meeting->number_, meeting->event_, /*for_writing=*/false, true);
    return meeting;
  }
  void Call() const { EXPECT_EQ(eventfd_write(event_, 1), 0); }
  void Ready() override {
    eventfd_t count;
    EXPECT_EQ(eventfd_read(event_, &count), 0);
    Poller::Global().Watch(number_, event_, /*for_writing=*/false);
    thread_ = gettid();
    all_->arrive_and_wait();
  }
  pid_t thread() const { return thread_; }

 private:
  const int event_;
  const std::shared_ptr<std::barrier<>> all_;
  Poller::Number number_ = 0;
  std::atomic<pid_t> thread_{0};
};

int NumThreads(const std::string& searched = "muster-fast") {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(thread.path() / "comm") >> name;
    if (name == searched) ++count;
  }
  return count;
}

TEST(PollerTest, ThreadsStayForTheNextEventsAndGoWhenNoneCome) {
  const auto all = std::make_shared<std::barrier<>>(kSockets + 1);
  std::set<pid_t> threads;
  {
    std::vector<std::shared_ptr<Meeting>> meetings;
    for (int i = 0; i < kSockets; ++i) meetings.push_back(Meeting::Make(all));
    for (int round = 0; round < 20; ++round) {
      for (const auto& meeting : meetings) meeting->Call();
      all->arrive_and_wait();
      for (const auto& meeting : meetings) threads.insert(meeting->thread());
    }
  }
  EXPECT_GE(threads.size(), size_t{kSockets});
  // Where all but four went after each round there would be eight new ones in each.
  EXPECT_LT(threads.size(), size_t{5 * kSockets});
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (NumThreads() > 4 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_LE(NumThreads(), 4);
}

// Starts the thread for timers of a pool.
class TimerStarter : public Pollable {
 public:
  TimerStarter(Scheduler& pool, std::latch& ran)
      : event_(eventfd(1, EFD_CLOEXEC)), pool_(pool), ran_(ran) {}
  ~TimerStarter() override { close(event_); }
  void Ready() override {
    pool_.ScheduleAfter(absl::ZeroDuration(), [this] { ran_.count_down(); });
  }
  int event() const { return event_; }

 private:
  const int event_;
  Scheduler& pool_;
  std::latch& ran_;
};

TEST(PollerTest, ThreadsThatItsThreadsStartAreNotCountedAsThem) {
  const std::unique_ptr<Scheduler> pool = NewThreadPool(1);
  const int before = NumThreads("muster-timer");
  std::latch ran(1);
  const auto starter = std::make_shared<TimerStarter>(*pool, ran);
  const Poller::Number number = Poller::Global().Add(starter);
  Poller::Global().Watch(number, starter->event(), /*for_writing=*/false, /*first=*/true);
  ran.wait();
  EXPECT_EQ(NumThreads("muster-timer"), before + 1);
  Poller::Global().Remove(number, starter->event());
}

}  // namespace
}  // namespace muster::fast
