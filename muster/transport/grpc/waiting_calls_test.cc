#include "muster/transport/grpc/waiting_calls.h"

#include <atomic>
#include <latch>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include <gtest/gtest.h>

namespace muster {
namespace {

class RefusedCall : public WaitingCalls::Call {
 public:
  explicit RefusedCall(std::string name) : name_(std::move(name)) {}
  std::string peer_name() const override { return name_; }
  void Refuse(absl::Status why) override {
    // The call may be gone as soon as this is counted.
    const std::shared_ptr<Refusal> refusal = refusal_;
    refusal->why = std::move(why);
    refusal->has_come.count_down();
  }
  absl::Status WaitForRefusal() {
    refusal_->has_come.wait();
    return refusal_->why;
  }

 private:
  struct Refusal {
    absl::Status why;
    std::latch has_come{1};
  };
  const std::string name_;
  const std::shared_ptr<Refusal> refusal_ = std::make_shared<Refusal>();
};

bool Eventually(absl::FunctionRef<bool()> condition) {
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

TEST(WaitingCallsTest, ThoseThatAreMeantAreRefused) {
  WaitingCalls calls("test", absl::Milliseconds(1), [&] {
    calls.RefuseEach([](const WaitingCalls::Call& call) { return call.peer_name() == "bad"; },
                     absl::ResourceExhaustedError("too long"));
    return absl::Milliseconds(1);
  });
  RefusedCall good("good"), bad("bad"), another_bad("bad");
  for (RefusedCall* const call : {&bad, &good, &another_bad}) calls.Begin(*call);
  EXPECT_EQ(bad.WaitForRefusal(), absl::ResourceExhaustedError("too long"));
  EXPECT_EQ(another_bad.WaitForRefusal(), absl::ResourceExhaustedError("too long"));
  EXPECT_FALSE(calls.End(bad));
  EXPECT_FALSE(calls.End(another_bad));
  EXPECT_TRUE(calls.End(good));
  EXPECT_FALSE(calls.End(good)) << "it has ended";
}

TEST(WaitingCallsTest, TheOldestIsVisitedFirst) {
  WaitingCalls calls("test", absl::Milliseconds(1), [] { return absl::Milliseconds(1); });
  RefusedCall first("1"), second("2"), third("3");
  for (RefusedCall* const call : {&first, &second, &third}) calls.Begin(*call);
  calls.End(second);
  std::string names;
  calls.ForEach([&](const WaitingCalls::Call& call) { names += call.peer_name(); });
  EXPECT_EQ(names, "13");
  calls.End(first);
  calls.End(third);
}

TEST(WaitingCallsTest, TheThreadSleepsWithoutCallsAndWakesWithOne) {
  std::atomic<int> looks{0};
  WaitingCalls calls("test", absl::Milliseconds(1), [&] {
    ++looks;
    return absl::Milliseconds(1);
  });
  const auto sleeps = [&] {
    const int before = looks;
    absl::SleepFor(absl::Milliseconds(100));  // awake it would look many times
    return looks == before;
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Eventually(sleeps));
    const int before = looks;
    RefusedCall call("1");
    calls.Begin(call);
    EXPECT_TRUE(Eventually([&] { return looks > before + 20; }));
    EXPECT_TRUE(calls.End(call));
  }
}

// A call ends either by itself or by its refusal.
TEST(WaitingCallsTest, CallsEndOnceWhileTheyAreRefused) {
  WaitingCalls calls("test", absl::ZeroDuration(), [&] {
    int number = 0;
    calls.RefuseEach([&](const WaitingCalls::Call&) { return ++number % 2 == 0; },
                     absl::CancelledError("even"));
    return absl::ZeroDuration();
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int refusals = 0; refusals < 50;) {
        RefusedCall first("1"), second("2");
        calls.Begin(first);
        calls.Begin(second);
        for (RefusedCall* const call : {&first, &second}) {
          if (calls.End(*call)) continue;
          EXPECT_TRUE(absl::IsCancelled(call->WaitForRefusal()));
          ++refusals;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  calls.ForEach([](const WaitingCalls::Call&) { ADD_FAILURE() << "a call still waits"; });
}

}  // namespace
}  // namespace muster
