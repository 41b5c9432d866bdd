// Workers on a network that delays, loses and kills.
#include "muster/transport/simulated/simulated_network.h"
#include "muster/worker/worker_test.h"

namespace muster {
namespace {

class SimulatedClusterTest : public WorkerTest {
 protected:
  Transport* transport() override { return network_.get(); }
  void Listen(int i, std::shared_ptr<Worker> worker) override {
    network_->Listen(Address(i), {worker, nullptr});
  }
  void UseSeed(uint64_t seed) {
    scheduler_ = SimulatedScheduler::Create(seed);
    network_ = SimulatedNetwork::Create(*scheduler_, {.seed = seed});
  }
  SimulatedClusterTest() { UseSeed(3); }

  // y = 3x from task 0 to task 1, which negates it.
  void RegisterPair() {
    producer_ = RegisterOn(0, [&](const Scope& s) {
      Send(s, s.Op("Mul", {Recv(s, 0, 0, "x:0", true), Number(s, 3, "three")}, {}, "y"), 0, 1, "y");
    });
    consumer_ = RegisterOn(1, [&](const Scope& s) {
      Send(s, s.Op("Neg", {Recv(s, 0, 1, "y")}, {}, "z"), 1, 1, "z:0", true);
    });
  }
  Answered<RunGraphReply> StartConsumer(int64_t step) {
    RunGraphRequest request = Request(consumer_, step);
    request.recv_keys = {Key(1, 1, "z:0")};
    return Run(1, std::move(request));
  }
  Answered<RunGraphReply> StartProducer(int64_t step) {
    RunGraphRequest request = Request(producer_, step);
    request.send = {{Key(0, 0, "x:0"), Tensor::Scalar<float>(2)}};
    return Run(0, std::move(request));
  }

  std::unique_ptr<SimulatedNetwork> network_;
  std::string producer_, consumer_;
};

TEST_F(SimulatedClusterTest, ManyStepsAtOnceInAnyOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    UseSeed(seed);
    StartCluster(2);
    RegisterPair();
    std::vector<Answered<RunGraphReply>> runs;
    for (int64_t step = 1; step <= 10; ++step) {
      if (step % 2 == 0) StartProducer(step);
      runs.push_back(StartConsumer(step));
      if (step % 2 == 1) StartProducer(step);
    }
    RunAll();
    for (const auto& run : runs) EXPECT_EQ(Only(run), -6);
    TearDown();
  }
  StartCluster(1);
}

TEST_F(SimulatedClusterTest, APeerThatDiesInTheMiddleOfAStep) {
  StartCluster(2);
  RegisterPair();
  const auto run = StartConsumer(1);
  scheduler_->RunUntil([&] { return scheduler_->clock().NowNanos() > 5'000'000; });
  EXPECT_FALSE(run.has_value());
  network_->Kill(Address(0));
  RunAll();
  EXPECT_TRUE(absl::IsUnavailable(run.status()));
  EXPECT_THAT(std::string(run.status().message()), ::testing::StartsWith("Socket closed"));
  const auto down = StartConsumer(2);
  RunAll();
  EXPECT_THAT(std::string(down.status().message()),
              ::testing::StartsWith("failed to connect to all addresses"));

  // A call that waits for the peer gets through when it is back, and finds another life.
  workers_[0]->Stop(absl::UnavailableError("killed"));
  Answered<std::vector<DeviceAttributes>> status;
  CallOptions patient;
  patient.wait_for_ready = true;
  workers_[1]->peers()->Worker(Task(0))->GetStatus(patient, status.done());
  RunAll();
  EXPECT_FALSE(status.has_value());
  StartWorker(OptionsOf(0));
  RunAll();
  ASSERT_EQ(status.status(), absl::OkStatus());
  const auto restarted = StartConsumer(3);
  RunAll();
  EXPECT_TRUE(absl::IsAborted(restarted.status()));
}

TEST_F(SimulatedClusterTest, SilenceLastsUntilSomebodyGivesUp) {
  StartCluster(2);
  RegisterPair();
  network_->Cut(Address(0), Address(1));
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  RunGraphRequest request = Request(consumer_, 1);
  request.recv_keys = {Key(1, 1, "z:0")};
  const auto run = Run(1, std::move(request), options);
  StartProducer(1);
  RunAll();
  EXPECT_FALSE(run.has_value());
  Answered<std::vector<DeviceAttributes>> status;
  CallOptions limited;
  limited.timeout = absl::Seconds(3);
  workers_[1]->peers()->Worker(Task(0))->GetStatus(limited, status.done());
  RunAll();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status.status()));
  options.cancellation->Cancel(absl::CancelledError("enough"));
  RunAll();
  EXPECT_TRUE(absl::IsCancelled(run.status()));

  network_->Heal(Address(0), Address(1));
  const auto healed = StartConsumer(2);
  StartProducer(2);
  RunAll();
  EXPECT_EQ(Only(healed), -6);

  network_->Pause(Address(0));
  const auto paused = StartConsumer(3);
  StartProducer(3);
  RunAll();
  EXPECT_FALSE(paused.has_value());
  network_->Resume(Address(0));
  RunAll();
  EXPECT_EQ(Only(paused), -6);
}

TEST_F(SimulatedClusterTest, ACallerThatDiesIsCancelledAtItsPeer) {
  StartCluster(2);
  RegisterPair();
  const auto blocked = Run(0, Request(producer_, 1));  // nothing is fed
  const auto run = StartConsumer(1);
  scheduler_->RunUntil([&] { return scheduler_->clock().NowNanos() > 5'000'000; });
  network_->Kill(Address(1));
  workers_[1]->Stop(absl::UnavailableError("killed"));
  RunAll();
  EXPECT_TRUE(absl::IsAborted(blocked.status()));
  EXPECT_TRUE(absl::IsUnavailable(run.status()));
}

}  // namespace
}  // namespace muster
