#include "muster/params/shard_ledger.h"

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/json.h"
#include "muster/params/state_test.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Outcome = ShardLedger::Outcome;

// What a take got, once it is over.
struct Got {
  bool over = false;
  absl::StatusOr<TakenShard> shard = absl::UnknownError("");
  uint64_t waiting = 0;
};

class ShardLedgerTest : public ::testing::Test {
 protected:
  static RefPtr<ShardLedger> Make(ShardLedgerOptions options) {
    if (options.name.empty()) options.name = "q";
    EXPECT_EQ(CheckShardLedgerOptions(options), absl::OkStatus());
    return MakeRef<ShardLedger>(std::move(options));
  }
  std::shared_ptr<Got> Take(const std::string& worker, int64_t incarnation = 1,
                            int64_t request = -1) {
    auto got = std::make_shared<Got>();
    ledger_->Take(
        {worker, incarnation, request}, *scheduler_,
        [&](uint64_t waiting) {
          got->waiting = waiting;
          return true;
        },
        [got](absl::StatusOr<TakenShard> shard) {
          got->over = true;
          got->shard = std::move(shard);
        });
    return got;
  }
  TakenShard TakeNow(const std::string& worker, int64_t incarnation = 1, int64_t request = -1) {
    const std::shared_ptr<Got> got = Take(worker, incarnation, request);
    EXPECT_TRUE(got->over);
    EXPECT_EQ(got->shard.status(), absl::OkStatus());
    return got->shard.value_or(TakenShard());
  }
  Outcome Done(const TakenShard& shard) { return ledger_->Done(shard.ticket, *scheduler_).value(); }
  void Pass(absl::Duration time) {
    bool is_over = false;
    scheduler_->ScheduleAfter(time, [&] { is_over = true; });
    scheduler_->RunUntil([&] { return is_over; });
  }
  void ExpectAddsUp() {
    const ShardCounts c = ledger_->counts();
    EXPECT_EQ(c.handed + c.late, c.done + c.repeated + c.returned + ledger_->num_held());
  }
  Json Report() { return Json::Parse(ledger_->Report(*scheduler_)).value(); }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(1);
  RefPtr<ShardLedger> ledger_;
};

TEST_F(ShardLedgerTest, EveryShardOfEveryEpochOnce) {
  ledger_ = Make({.shards = {"a", "b", "c"}, .epochs = 2});
  std::vector<std::string> seen;
  for (int i = 0; i < 6; ++i) {
    const TakenShard shard = TakeNow("w");
    EXPECT_EQ(shard.epoch, i / 3);
    seen.push_back(shard.value);
    EXPECT_EQ(Done(shard), Outcome::kDone);
    EXPECT_EQ(Done(shard), Outcome::kKnown);
  }
  EXPECT_THAT(seen, ElementsAre("a", "b", "c", "a", "b", "c"));
  const std::shared_ptr<Got> end = Take("w");
  ASSERT_TRUE(end->over);
  EXPECT_EQ(end->shard.status(), OutOfRange("Shard queue 'q': all 2 epochs are done"));
  EXPECT_EQ(ledger_->counts().done, 6);
  EXPECT_EQ(ledger_->counts().repeated, 0);
  ExpectAddsUp();
}

TEST_F(ShardLedgerTest, OrdersFollowTheSeedAndTheEpoch) {
  const auto orders = [&](uint64_t seed) {
    ledger_ = Make({.count = 50, .epochs = 2, .shuffle = true, .seed = seed});
    std::vector<int64_t> order;
    for (int i = 0; i < 100; ++i) {
      const TakenShard shard = TakeNow("w");
      EXPECT_EQ(shard.value, absl::StrCat(shard.index));
      order.push_back(shard.index);
      Done(shard);
    }
    return order;
  };
  const std::vector<int64_t> first = orders(7);
  EXPECT_EQ(first, orders(7));
  EXPECT_NE(first, orders(8));
  EXPECT_FALSE(std::equal(first.begin(), first.begin() + 50, first.begin() + 50));
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<int64_t> all(first.begin() + epoch * 50, first.begin() + epoch * 50 + 50);
    EXPECT_THAT(all, SizeIs(50));
  }
}

TEST_F(ShardLedgerTest, AtTheEndOfAnEpochTakesWaitForWhatOthersHave) {
  ledger_ = Make({.count = 2, .epochs = 2});
  const TakenShard first = TakeNow("a"), second = TakeNow("b");
  const std::shared_ptr<Got> waits = Take("c");
  EXPECT_FALSE(waits->over);
  Done(first);
  EXPECT_FALSE(waits->over);
  Done(second);
  ASSERT_TRUE(waits->over);
  EXPECT_EQ(waits->shard->epoch, 1);
  // Takers that wait when all epochs are done get OutOfRange.
  const TakenShard last = TakeNow("a");
  const std::shared_ptr<Got> in_vain = Take("b");
  Done(*waits->shard);
  EXPECT_FALSE(in_vain->over);
  Done(last);
  EXPECT_TRUE(in_vain->over && absl::IsOutOfRange(in_vain->shard.status()));
}

TEST_F(ShardLedgerTest, AWaitingTakeCanBeCancelled) {
  ledger_ = Make({.count = 1});
  const TakenShard shard = TakeNow("a");
  const std::shared_ptr<Got> waits = Take("b");
  EXPECT_TRUE(ledger_->Cancel(waits->waiting));
  EXPECT_FALSE(ledger_->Cancel(waits->waiting));
  ledger_->Flush();
  EXPECT_TRUE(waits->over && absl::IsCancelled(waits->shard.status()));
  Done(shard);
  EXPECT_EQ(ledger_->counts().handed, 1);
}

TEST_F(ShardLedgerTest, WhatALostWorkerHadGoesToOthersInTime) {
  ledger_ = Make({.count = 2, .lease = absl::Seconds(10)});
  const TakenShard lost = TakeNow("a"), other = TakeNow("b");
  Done(other);
  const std::shared_ptr<Got> waits = Take("b");
  Pass(absl::Seconds(9));
  EXPECT_FALSE(waits->over);
  Pass(absl::Seconds(2));
  ASSERT_TRUE(waits->over);
  EXPECT_EQ(waits->shard->index, lost.index);
  EXPECT_EQ(Done(*waits->shard), Outcome::kDone);
  // The first worker was only slow: the shard was done twice, which is reported.
  EXPECT_EQ(Done(lost), Outcome::kRepeated);
  EXPECT_EQ(Done(lost), Outcome::kKnown);
  const ShardCounts counts = ledger_->counts();
  EXPECT_EQ(counts.done, 2);
  EXPECT_EQ(counts.repeated, 1);
  EXPECT_EQ(counts.returned, 1);
  EXPECT_EQ(counts.late, 1);
  ExpectAddsUp();
  const Json report = Report();
  const Json& named = report.Find("repeated_shards")->list()->at(0);
  EXPECT_EQ(*named.Find("worker")->string(), "a");
  EXPECT_EQ(*named.Find("index")->number(), 0);
  EXPECT_EQ(*report.Find("returned_shards")->list()->at(0).Find("why")->string(), "lease ended");
}

TEST_F(ShardLedgerTest, LateIsAsGoodWhenNobodyElseHasDoneIt) {
  ledger_ = Make({.count = 2, .lease = absl::Seconds(10)});
  const TakenShard slow = TakeNow("a");
  Pass(absl::Seconds(20));
  const TakenShard second = TakeNow("b");  // the same
  EXPECT_EQ(second.index, slow.index);
  EXPECT_EQ(Done(slow), Outcome::kDone);
  EXPECT_EQ(Done(second), Outcome::kRepeated);
  Done(TakeNow("b"));
  EXPECT_TRUE(Take("b")->over);
  ExpectAddsUp();
}

TEST_F(ShardLedgerTest, RenewedInTimeItIsKept) {
  ledger_ = Make({.count = 1, .lease = absl::Seconds(10)});
  const TakenShard shard = TakeNow("a");
  const std::shared_ptr<Got> waits = Take("b");
  for (int i = 0; i < 10; ++i) {
    Pass(absl::Seconds(6));
    EXPECT_THAT(ledger_->Renew({shard.ticket, 5, -1}, *scheduler_),
                ElementsAre(true, false, false));
  }
  EXPECT_FALSE(waits->over);
  EXPECT_EQ(Done(shard), Outcome::kDone);
  EXPECT_TRUE(absl::IsOutOfRange(waits->shard.status()));
  EXPECT_EQ(ledger_->counts().returned, 0);
}

TEST_F(ShardLedgerTest, ANewLifeGivesBackWhatTheOldOneHad) {
  ledger_ = Make({.count = 2, .lease = absl::Hours(1)});
  const TakenShard lost = TakeNow("a", 1), other = TakeNow("b");
  const std::shared_ptr<Got> of_old_life = Take("a", 1);
  const TakenShard again = TakeNow("a", 2);
  EXPECT_TRUE(of_old_life->over && absl::IsAborted(of_old_life->shard.status()));
  EXPECT_EQ(again.index, lost.index);
  Done(again);
  Done(other);
  EXPECT_EQ(ledger_->counts().returned, 1);
  EXPECT_EQ(ledger_->counts().repeated, 0);
  ExpectAddsUp();
}

TEST_F(ShardLedgerTest, AskingAgainGivesTheSame) {
  ledger_ = Make({.count = 3});
  const TakenShard first = TakeNow("a", 1, 10);
  EXPECT_EQ(TakeNow("a", 1, 10).ticket, first.ticket);
  EXPECT_NE(TakeNow("a", 1, 11).ticket, first.ticket);
  EXPECT_NE(TakeNow("b", 1, 10).ticket, first.ticket);
  EXPECT_EQ(ledger_->counts().handed, 3);
  const std::shared_ptr<Got> waits = Take("b", 1, 12), again = Take("b", 1, 12);
  EXPECT_TRUE(waits->over && absl::IsAborted(waits->shard.status()));
  EXPECT_FALSE(again->over);
}

TEST_F(ShardLedgerTest, GivenBackItIsFree) {
  ledger_ = Make({.count = 1});
  const TakenShard shard = TakeNow("a");
  const std::shared_ptr<Got> waits = Take("b");
  ASSERT_EQ(ledger_->Return(shard.ticket, *scheduler_), absl::OkStatus());
  ASSERT_TRUE(waits->over);
  ASSERT_EQ(ledger_->Return(shard.ticket, *scheduler_), absl::OkStatus());
  EXPECT_EQ(ledger_->counts().returned, 1);
  EXPECT_EQ(Done(*waits->shard), Outcome::kDone);
}

TEST_F(ShardLedgerTest, AStragglersShardIsDoubledOnlyWhereThatIsWanted) {
  for (const bool backup : {false, true}) {
    ledger_ = Make({.count = 4, .lease = absl::Hours(1), .backup = backup});
    const TakenShard slow = TakeNow("slow");
    for (int i = 0; i < 3; ++i) {
      const TakenShard shard = TakeNow("fast");
      Pass(absl::Seconds(1));
      Done(shard);
    }
    const std::shared_ptr<Got> own = Take("slow"), waits = Take("fast");
    Pass(absl::Seconds(10));
    EXPECT_FALSE(own->over);
    ASSERT_EQ(waits->over, backup);
    if (backup) {
      EXPECT_EQ(waits->shard->index, slow.index);
      EXPECT_EQ(Done(*waits->shard), Outcome::kDone);
    }
    EXPECT_EQ(Done(slow), backup ? Outcome::kRepeated : Outcome::kDone);
    EXPECT_EQ(ledger_->counts().repeated, backup ? 1 : 0);
    EXPECT_TRUE(own->over);
    ExpectAddsUp();
  }
}

TEST_F(ShardLedgerTest, SlowWorkersGetFewer) {
  ledger_ = Make({.count = 44, .lease = absl::Hours(1)});
  const std::map<std::string, absl::Duration> pace = {{"fast", absl::Seconds(1)},
                                                      {"slow", absl::Seconds(10)}};
  std::map<std::string, int> done;
  std::function<void(const std::string&)> work = [&](const std::string& worker) {
    const std::shared_ptr<Got> got = Take(worker);
    if (!got->over || !got->shard.ok()) return;
    scheduler_->ScheduleAfter(pace.at(worker), [&, worker, shard = *got->shard] {
      Done(shard);
      ++done[worker];
      work(worker);
    });
  };
  for (const auto& [worker, seconds] : pace) work(worker);
  scheduler_->RunUntil([] { return false; });
  EXPECT_EQ(done["fast"], 40);
  EXPECT_EQ(done["slow"], 4);
  const Json report = Report();
  for (const Json& worker : *report.Find("workers")->list()) {
    const std::string& name = *worker.Find("worker")->string();
    EXPECT_EQ(*worker.Find("done")->number(), done[name]);
    EXPECT_NEAR(*worker.Find("seconds")->number(),
                done[name] * absl::ToDoubleSeconds(pace.at(name)), 1e-3);
  }
}

TEST_F(ShardLedgerTest, ARestoreUndoesWhatCameAfterTheCheckpoint) {
  const ShardLedgerOptions options{.name = "q", .count = 4, .epochs = 2};
  ledger_ = Make(options);
  Done(TakeNow("a"));
  const TakenShard held = TakeNow("b");
  const std::string state = ledger_->Save();
  Done(held);
  Done(TakeNow("a"));
  const TakenShard later = TakeNow("a");
  for (const bool restarted : {false, true}) {
    // In the same task, or in a restarted one.
    if (restarted) ledger_ = Make(options);
    EXPECT_FALSE(ledger_->initialized());
    ASSERT_EQ(ledger_->Restore(state, *scheduler_), absl::OkStatus());
    EXPECT_TRUE(ledger_->initialized());
    EXPECT_EQ(Done(held), Outcome::kOutdated);
    EXPECT_EQ(Done(later), Outcome::kOutdated);
    EXPECT_EQ(ledger_->counts().done, 1);
    ExpectAddsUp();
    std::vector<int64_t> rest;
    for (int i = 0; i < 3; ++i) {
      const TakenShard shard = TakeNow("a", restarted ? 3 : 1);
      EXPECT_EQ(shard.epoch, 0);
      rest.push_back(shard.index);
      EXPECT_EQ(Done(shard), Outcome::kDone);
    }
    EXPECT_THAT(rest, UnorderedElementsAre(1, 2, 3));
    EXPECT_EQ(TakeNow("a", restarted ? 3 : 1).epoch, 1);
    const ShardCounts counts = ledger_->counts();
    EXPECT_EQ(counts.outdated, 2);
    EXPECT_EQ(counts.returned, 1);
    EXPECT_EQ(counts.restored, 1);
    EXPECT_EQ(*Report().Find("returned_shards")->list()->at(0).Find("why")->string(), "restored");
    ExpectAddsUp();
    if (restarted) continue;
    ledger_->Initialize(/*gentle=*/true, *scheduler_);
    EXPECT_EQ(ledger_->counts().done, 4);
    ledger_->Initialize(/*gentle=*/false, *scheduler_);
    EXPECT_EQ(ledger_->counts().done, 0);
    EXPECT_EQ(TakeNow("a").index, 0);
  }
}

TEST_F(ShardLedgerTest, AFinishedQueueGoesOnWithMoreEpochs) {
  ledger_ = Make({.count = 1});
  Done(TakeNow("a"));
  const std::string state = ledger_->Save();
  ASSERT_EQ(ledger_->Restore(state, *scheduler_), absl::OkStatus());
  EXPECT_TRUE(absl::IsOutOfRange(Take("a")->shard.status()));
  ledger_ = Make({.count = 1, .epochs = 2});
  ASSERT_EQ(ledger_->Restore(state, *scheduler_), absl::OkStatus());
  EXPECT_EQ(TakeNow("a").epoch, 1);
}

TEST_F(ShardLedgerTest, WhatIsNoStateChangesNothing) {
  ledger_ = Make({.shards = {"a", "b\xff", "c"}});
  Done(TakeNow("w\xfe"));
  TakeNow("w\xfe");
  const std::string good = ledger_->Save();
  const auto restore = [&](const std::string& text) { return ledger_->Restore(text, *scheduler_); };
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_TRUE(absl::IsInvalidArgument(restore(good.substr(0, length)))) << length;
  const auto changed = [&](absl::string_view from, absl::string_view to) {
    EXPECT_THAT(good, HasSubstr(from));
    return restore(absl::StrReplaceAll(good, {{from, to}}));
  };
  EXPECT_TRUE(absl::IsUnimplemented(changed("\"version\": 1", "\"version\": 2")));
  EXPECT_TRUE(absl::IsFailedPrecondition(changed("\"shards\": 3", "\"shards\": 4")));
  EXPECT_TRUE(absl::IsFailedPrecondition(changed("\"fingerprint\": \"", "\"fingerprint\": \"0")));
  for (const char* marks : {"0-2", "3", "1-0", "0,0", "-1", "0-99999999999999999999", "x", ","}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        changed("\"marks\": \"0\"", absl::StrCat("\"marks\": \"", marks, "\""))))
        << marks;
  }
  for (const char* number : {"-1", "1.5", "1e300", "\"1\"", "null", "2"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        changed("\"done\": 1, \"repeated\"", absl::StrCat("\"done\": ", number, ", \"repeated\""))))
        << number;
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(changed("\"epoch\": 0, \"marks\"", "\"epoch\": 9, \"marks\"")));
  EXPECT_TRUE(absl::IsInvalidArgument(changed("\"workers\": [", "\"workers\": [7, ")));
  EXPECT_TRUE(absl::IsInvalidArgument(restore("[]")));
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int j = 0; j < 3; ++j) text[random() % text.size()] = static_cast<char>(random());
    restore(text).IgnoreError();
  }
  ASSERT_EQ(restore(good), absl::OkStatus());
  EXPECT_EQ(ledger_->counts().done, 1);
  ExpectAddsUp();
}

TEST_F(ShardLedgerTest, TicketsThatWereNeverGivenAreRefused) {
  ledger_ = Make({.count = 3});
  const TakenShard shard = TakeNow("a");
  for (const int64_t ticket :
       {int64_t{0}, int64_t{-1}, shard.ticket + 1, int64_t{7}, std::numeric_limits<int64_t>::min(),
        std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ledger_->Done(ticket, *scheduler_).status())) << ticket;
    EXPECT_TRUE(absl::IsInvalidArgument(ledger_->Return(ticket, *scheduler_))) << ticket;
  }
  ExpectAddsUp();
}

TEST_F(ShardLedgerTest, OptionsAreChecked) {
  const auto message = [](const ShardLedgerOptions& options) {
    return std::string(CheckShardLedgerOptions(options).message());
  };
  EXPECT_THAT(message({}), HasSubstr("must have between 1 and 16777216 shards, not 0"));
  EXPECT_THAT(message({.count = -3}), HasSubstr("not -3"));
  EXPECT_THAT(message({.count = int64_t{1} << 40}), HasSubstr("must have between"));
  EXPECT_THAT(message({.shards = {"a"}, .count = 2}), HasSubstr("either shards"));
  EXPECT_THAT(message({.count = 1, .epochs = -1}), HasSubstr("epochs must be at least 0"));
  EXPECT_THAT(message({.count = 1, .lease = absl::ZeroDuration()}), HasSubstr("lease"));
  EXPECT_THAT(message({.count = 1, .lease = absl::InfiniteDuration()}), HasSubstr("lease"));
}

TEST_F(ShardLedgerTest, NamesOfWorkersHaveAnEnd) {
  constexpr int64_t kMany = 3 * ShardLedger::kWorkersAtMost;
  ledger_ = Make({.count = kMany});
  const TakenShard kept = TakeNow("keeper");
  for (int64_t i = 1; i < kMany; ++i) Done(TakeNow(absl::StrCat("worker", i)));
  const Json report = Report();
  const std::vector<Json>& workers = *report.Find("workers")->list();
  EXPECT_LE(workers.size(), ShardLedger::kWorkersAtMost + 1);
  double done = 0;
  bool keeper_is_there = false;
  for (const Json& worker : workers) {
    done += *worker.Find("done")->number();
    keeper_is_there |= *worker.Find("worker")->string() == "keeper";
  }
  EXPECT_EQ(done, kMany - 1);
  EXPECT_TRUE(keeper_is_there);
  EXPECT_EQ(Done(kept), Outcome::kDone);
}

// Workers take, work, die silently, stall and come back, at random; the ledger's account agrees
// with what they have really finished.
class ShardLedgerStormTest : public ShardLedgerTest, public ::testing::WithParamInterface<int> {
 protected:
  struct Worker {
    std::string name;
    int64_t incarnation = 1;
  };
  static constexpr int kShards = 23, kEpochs = 3;

  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  void Work(Worker& worker) {
    const int64_t life = worker.incarnation;
    ledger_->Take(
        {worker.name, life, next_request_++}, *scheduler_, [](uint64_t) { return true; },
        [this, &worker, life](absl::StatusOr<TakenShard> shard) {
          if (absl::IsAborted(shard.status()) && life != worker.incarnation) return;
          if (!shard.ok()) {
            EXPECT_TRUE(absl::IsOutOfRange(shard.status())) << shard.status();
            if (life == worker.incarnation) ++ended_;
            return;
          }
          // Never two epochs at once.
          EXPECT_EQ(shard->epoch, static_cast<int64_t>(finished_.size()) / kShards);
          const bool stalls = Draw(12) == 0;
          scheduler_->ScheduleAfter(
              stalls ? absl::Seconds(30) : absl::Milliseconds(200 + Draw(4000)),
              [this, &worker, life, shard = *std::move(shard)] { Finish(worker, life, shard); });
        });
  }
  void Finish(Worker& worker, int64_t life, const TakenShard& shard) {
    if (life != worker.incarnation) return;  // died meanwhile
    if (deaths_ < 20 && Draw(8) == 0) {
      ++deaths_;
      const int64_t next = ++worker.incarnation;
      scheduler_->ScheduleAfter(absl::Seconds(Draw(40)), [this, &worker, next] {
        if (worker.incarnation == next) Work(worker);
      });
      return;
    }
    ++reports_;
    const bool is_first = finished_.insert({shard.epoch, shard.index}).second;
    const Outcome outcome = Done(shard);
    if (Draw(5) == 0) {
      EXPECT_EQ(Done(shard), Outcome::kKnown);  // the answer was lost
    }
    EXPECT_EQ(outcome, is_first ? Outcome::kDone : Outcome::kRepeated);
    ExpectAddsUp();
    Work(worker);
  }

  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  int64_t next_request_ = 0;
  int deaths_ = 0, ended_ = 0;
  int64_t reports_ = 0;
  std::set<std::pair<int64_t, int64_t>> finished_;
};

TEST_P(ShardLedgerStormTest, TheAccountAddsUp) {
  scheduler_ = SimulatedScheduler::Create(static_cast<uint64_t>(GetParam()));
  ledger_ = Make({.count = kShards,
                  .epochs = kEpochs,
                  .shuffle = true,
                  .seed = static_cast<uint64_t>(GetParam()),
                  .lease = absl::Seconds(10),
                  .backup = GetParam() % 2 == 0});
  std::vector<Worker> workers = {{"w0"}, {"w1"}, {"w2"}, {"w3"}};
  for (Worker& worker : workers) Work(worker);
  scheduler_->RunUntil([] { return false; });
  EXPECT_EQ(ended_, 4);
  EXPECT_THAT(finished_, SizeIs(kShards * kEpochs));
  const ShardCounts counts = ledger_->counts();
  EXPECT_EQ(counts.done, kShards * kEpochs);
  EXPECT_EQ(counts.done + counts.repeated, reports_);
  EXPECT_EQ(counts.outdated, 0);
  ExpectAddsUp();
  const Json report = Report();
  EXPECT_THAT(*report.Find("repeated_shards")->list(), SizeIs(counts.repeated));
  EXPECT_THAT(*report.Find("returned_shards")->list(), SizeIs(counts.returned));
}

INSTANTIATE_TEST_SUITE_P(Seeds, ShardLedgerStormTest, ::testing::Range(1, 101));

TEST_F(ShardLedgerTest, ACopyFollowsItWithItsTickets) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const ShardLedgerOptions options{
        .name = "q", .count = 12, .epochs = 3, .shuffle = true, .seed = seed};
    ShardLedgerOptions of_copy = options;
    of_copy.seed = 99;  // as drawn by another task
    ledger_ = Make(options);
    std::vector<int64_t> tickets;
    const auto make_copy = [&]() -> RefPtr<State> { return Make(of_copy); };
    const auto change = [&](std::mt19937& random) {
      const std::string worker = absl::StrCat("w", random() % 3);
      switch (random() % 8) {
        case 0:
          return Pass(absl::Seconds(random() % 40));
        case 1:
          return ledger_->Initialize(/*gentle=*/random() % 4 != 0, *scheduler_);
        case 2:
          if (tickets.empty()) return;
          return ledger_->Return(tickets[random() % tickets.size()], *scheduler_).IgnoreError();
        case 3:
        case 4:
          if (tickets.empty()) return;
          return ledger_->Done(tickets[random() % tickets.size()], *scheduler_)
              .status()
              .IgnoreError();
        default:
          const std::shared_ptr<Got> got = Take(worker, 1 + random() % 2);
          if (got->shard.ok()) tickets.push_back(got->shard->ticket);
          if (!got->over && ledger_->Cancel(got->waiting)) ledger_->Flush();
      }
    };
    FollowAtRandom(ledger_, make_copy, change, seed, 400);
  }
}

TEST_F(ShardLedgerTest, ACopyTakesOver) {
  ledger_ = Make({.count = 3});
  const TakenShard first = TakeNow("a");
  const TakenShard second = TakeNow("b");
  Done(first);
  const RefPtr<ShardLedger> copy = Make({.count = 3});
  ASSERT_EQ(copy->ApplyDelta(StateDelta::Whole(ledger_->TakeSnapshot().value())), absl::OkStatus());
  Pass(absl::Hours(1));  // the clock of the other task is another
  ledger_ = copy;
  EXPECT_EQ(Done(first), Outcome::kKnown);
  EXPECT_EQ(TakeNow("a").index, 2);
  EXPECT_EQ(Done(second), Outcome::kDone);
  ExpectAddsUp();
  EXPECT_EQ(ledger_->counts().returned, 0);
}

TEST_F(ShardLedgerTest, ACopyThatCannotBeIsRefused) {
  ledger_ = Make({.count = 3});
  TakeNow("a");
  const StateSnapshot good = ledger_->TakeSnapshot().value();
  const RefPtr<ShardLedger> copy = Make({.count = 3});
  const auto refused = [&](size_t part, Tensor tensor) {
    StateSnapshot bad = good;
    bad.parts[part].tensors = {std::move(tensor)};
    const std::string before = copy->Save();
    const absl::Status status = copy->ApplyDelta(StateDelta::Whole(std::move(bad)));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(copy->Save(), before);
    return std::string(status.message());
  };
  EXPECT_THAT(refused(1, Tensor::Vector<int64_t>({1})), HasSubstr("are not five"));
  EXPECT_THAT(refused(1, Tensor::Vector<int64_t>({1, 0, 1, 0, 1})), HasSubstr("out of range"));
  EXPECT_THAT(refused(1, Tensor::Vector<int64_t>({1, 5, 1, 0, 4})), HasSubstr("out of range"));
  EXPECT_THAT(refused(2, Tensor::Vector<int64_t>({2})), HasSubstr("position 2 cannot be free"));
  EXPECT_THAT(refused(3, Tensor::Vector<double>({-1})), HasSubstr("a time is negative"));
  EXPECT_THAT(refused(4, Tensor::Of<int64_t>(Shape({1, 6}), {0, 0, 3, 3, 1, -1})),
              HasSubstr("the hand-out 0 of shard 3 of epoch 0 at position 3 cannot be"));
  EXPECT_THAT(refused(4, Tensor::Of<int64_t>(Shape({1, 6}), {7, 0, 0, 0, 1, -1})),
              HasSubstr("the hand-out 7"));
  EXPECT_THAT(refused(5, Tensor::Vector<std::string>({})), HasSubstr("0 workers"));
  EXPECT_EQ(copy->ApplyDelta(StateDelta::Whole(good)), absl::OkStatus());
}

}  // namespace
}  // namespace muster
