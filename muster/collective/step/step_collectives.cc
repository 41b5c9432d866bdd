#include "muster/collective/step/step_collectives.h"

#include <optional>

#include "muster/base/cancel_callback.h"
#include "muster/base/status.h"
#include "muster/collective/step/collective_run.h"
#include "muster/runtime/direct_groups.h"

namespace muster {
namespace {

// More than this is worth a thread of its own.
constexpr size_t kInlineBytes = size_t{64} << 10;

// One collective under way: resolution, then the run. Ends once, whatever comes first.
class Collective : public std::enable_shared_from_this<Collective> {
 public:
  Collective(std::shared_ptr<CollectiveResolver> resolver,
             std::shared_ptr<CollectiveExchange> exchange, Scheduler& scheduler,
             CollectiveCall call, Done done)
      : resolver_(std::move(resolver)),
        exchange_(std::move(exchange)),
        scheduler_(scheduler),
        call_(std::move(call)),
        done_(std::move(done)) {}

  void Start() {
    const bool goes_on = on_cancel_.StartScheduled(
        call_.cancellation, scheduler_, weak_from_this(),
        [](Collective& self, const absl::Status& reason) { self.End(reason); });
    if (!goes_on) return;
    if (call_.params.timeout > absl::ZeroDuration()) {
      MutexLock lock(mutex_);
      timer_ = scheduler_.ScheduleAfter(call_.params.timeout, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->TimedOut();
      });
    }
    resolver_->ResolveGroup(
        call_.params, waits_,
        [self = shared_from_this()](absl::StatusOr<std::shared_ptr<const CollectiveGroup>> group) {
          if (!group.ok()) return self->End(self->Explained(group.status()));
          self->GroupReady(*std::move(group));
        });
  }

 private:
  void TimedOut() {
    bool is_resolved;
    {
      MutexLock lock(mutex_);
      is_resolved = run_ != nullptr;
    }
    End(absl::DeadlineExceededError(absl::StrCat(
        call_.params.ToString(), " on ", call_.params.device.name, ": Collective has timed out ",
        is_resolved ? "during execution." : "waiting for other workers.")));
  }

  absl::Status Explained(const absl::Status& status) const {
    return Prefixed(status,
                    absl::StrCat(call_.params.ToString(), " on ", call_.params.device.name, ": "));
  }

  void GroupReady(std::shared_ptr<const CollectiveGroup> group) {
    const int rank = group->RankOf(call_.params.device.name);
    if (rank < 0 || group->size() != call_.params.group_size) {
      return End(Explained(Internal("group ", group->key, " of ", group->size(),
                                    " devices does not have the device")));
    }
    {
      MutexLock lock(mutex_);
      group_ = group;
    }
    resolver_->ResolveInstance(
        call_.params, group, waits_,
        [self = shared_from_this(), group, rank](absl::StatusOr<int> source_rank) {
          if (!source_rank.ok()) return self->End(self->Explained(source_rank.status()));
          self->InstanceReady(group, rank, *source_rank);
        });
  }

  void InstanceReady(std::shared_ptr<const CollectiveGroup> group, int rank, int source_rank) {
    CollectiveRun::Options options;
    options.params = call_.params;
    options.input = call_.input;
    options.output = call_.output;
    options.group = std::move(group);
    options.rank = rank;
    options.source_rank = source_rank;
    options.exchange = exchange_;
    options.cancellation = waits_;
    options.done = [self = shared_from_this()](absl::Status status) {
      self->End(std::move(status));
    };
    absl::StatusOr<std::shared_ptr<CollectiveRun>> run = CollectiveRun::Create(std::move(options));
    if (!run.ok()) return End(run.status());
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      run_ = *run;
    }
    (*run)->Start();
  }

  void End(absl::Status status) {
    std::optional<Scheduler::TimerId> timer;
    std::shared_ptr<CollectiveRun> run;
    std::shared_ptr<const CollectiveGroup> group;
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      ended_ = true;
      timer = timer_;
      run = std::move(run_);
      group = std::move(group_);
    }
    if (timer) scheduler_.CancelTimer(*timer);
    on_cancel_.Release();
    if (!status.ok()) {
      if (run != nullptr) run->Fail(status);
      if (group != nullptr) resolver_->Forget(*group);
      exchange_->Abort(status);
    }
    waits_->Cancel(status.ok() ? absl::CancelledError("The collective is over") : status);
    // The next reader of the result may then change it in place.
    if (status.ok()) call_.input = call_.output = Tensor();
    Done done = std::move(done_);
    std::move(done)(std::move(status));
  }

  const std::shared_ptr<CollectiveResolver> resolver_;
  const std::shared_ptr<CollectiveExchange> exchange_;
  Scheduler& scheduler_;
  CollectiveCall call_;
  Done done_;
  const std::shared_ptr<Cancellation> waits_ = std::make_shared<Cancellation>();
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Scheduler::TimerId> timer_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<CollectiveRun> run_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const CollectiveGroup> group_ ABSL_GUARDED_BY(mutex_);
  CancelCallback on_cancel_;
};

}  // namespace

void StepCollectives::Run(CollectiveCall call, Done done) {
  if (direct_ != nullptr && direct_->TryRun(call, done)) return;
  std::make_shared<Collective>(resolver_, exchange_, scheduler_, std::move(call), std::move(done))
      ->Start();
}

void LocalCollectiveExchange::Fetch(const CollectiveGroup::Member&, const DeviceAttributes&,
                                    std::string key, size_t, std::shared_ptr<Cancellation>,
                                    Fetched done) {
  buffers_->Consume(
      key, [scheduler = &scheduler_, done = std::move(done)](absl::StatusOr<Buffer> bytes) mutable {
        if (!bytes.ok() || bytes->length_bytes() < kInlineBytes)
          return std::move(done)(std::move(bytes));
        scheduler->Schedule([done = std::move(done), bytes = std::move(bytes)]() mutable {
          std::move(done)(std::move(bytes));
        });
      });
}

}  // namespace muster
