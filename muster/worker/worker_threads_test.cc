// Steps on real threads: errors, cancellation and clean-up at any moment.
#include <random>

#include "muster/transport/inproc/in_process_transport.h"
#include "muster/worker/worker_test.h"

namespace muster {
namespace {

class WorkerThreadsTest : public WorkerTest {
 protected:
  Scheduler* scheduler() override { return pool_.get(); }
  Transport* transport() override { return network_.get(); }
  void Listen(int i, std::shared_ptr<Worker> worker) override {
    network_->Listen(Address(i), {worker, nullptr});
  }

  void WaitFor(int64_t answers) {
    MutexLock lock(mutex_);
    while (answered_ < answers) changed_.Wait(mutex_);
  }
  CallDone<RunGraphReply> Count(bool may_fail) {
    return [this, may_fail](absl::StatusOr<RunGraphReply> reply) {
      MutexLock lock(mutex_);
      ++answered_;
      if (!may_fail) {
        EXPECT_EQ(reply.status(), absl::OkStatus());
      }
      changed_.NotifyAll();
    };
  }

  std::unique_ptr<Scheduler> pool_ = NewThreadPool(4);
  std::unique_ptr<InProcessTransport> network_ = InProcessTransport::Create(*pool_);
  Mutex mutex_;
  CondVar changed_;
  int64_t answered_ = 0;
};

TEST_F(WorkerThreadsTest, StepsEndWhateverHappensToThem) {
  StartCluster(3);
  std::vector<std::string> graphs;
  for (int i = 0; i < 3; ++i) {
    graphs.push_back(RegisterOn(i, [&](const Scope& s) {
      // A value goes round, and is on its way in several copies.
      const int next = (i + 1) % 3;
      const int previous = (i + 2) % 3;
      for (int k = 0; k < 4; ++k) {
        const Output first = i == 0 ? Recv(s, 0, 0, absl::StrCat("feed", k), true)
                                    : Recv(s, previous, i, absl::StrCat("hop", previous, "_", k));
        Send(s, s.Op("Neg", {first}, {}, absl::StrCat("n", k)), i, next,
             absl::StrCat("hop", i, "_", k));
        if (i == 0) Recv(s, 2, 0, absl::StrCat("hop2_", k));
      }
    }));
  }
  std::mt19937 random(5);
  constexpr int64_t kSteps = 150;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const int fate = static_cast<int>(random() % 4);
    CallOptions options;
    options.cancellation = std::make_shared<Cancellation>();
    for (int i = 0; i < 3; ++i) {
      RunGraphRequest request = Request(graphs[i], step);
      for (int k = 0; k < 4 && i == 0; ++k) {
        if (fate == 1 && k == 3) break;  // one is missing: only cancellation ends the step
        request.send.push_back({Key(0, 0, absl::StrCat("feed", k)),
                                fate == 2 ? Tensor::Scalar<int32_t>(1) : Tensor::Scalar<float>(1)});
      }
      workers_[i]->RunGraph(options, std::move(request), Count(fate != 0));
    }
    if (fate == 1) {
      pool_->Schedule([cancellation = options.cancellation] {
        cancellation->Cancel(absl::CancelledError("enough"));
      });
    }
    if (fate == 3) {
      // Perhaps after the test is over, hence with workers of its own.
      pool_->Schedule([workers = workers_, step] {
        for (auto& worker : workers) worker->CleanupGraph({}, step, [](absl::StatusOr<Empty>) {});
      });
    }
    if (step % 10 == 0) WaitFor(3 * step);
  }
  WaitFor(3 * kSteps);
  EXPECT_EQ(workers_[0]->counts().steps, 0);
}

}  // namespace
}  // namespace muster
