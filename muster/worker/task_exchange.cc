#include "muster/worker/task_exchange.h"

#include "muster/base/status.h"

namespace muster {
namespace {

// More than this is worth a thread of its own.
constexpr size_t kInlineBytes = size_t{64} << 10;
// Nobody asks about a collective that ends soon.
constexpr absl::Duration kWatchAfter = absl::Seconds(1);
constexpr absl::Duration kHeartbeat = absl::Seconds(1);
constexpr absl::Duration kSilence = absl::Seconds(30);

class TaskHeart : public std::enable_shared_from_this<TaskHeart> {
 public:
  TaskHeart(std::shared_ptr<WorkerApi> worker, std::string task, Scheduler& scheduler,
            std::shared_ptr<Cancellation> over,
            absl::AnyInvocable<void(const absl::Status&) &&> lost)
      : worker_(std::move(worker)),
        task_(std::move(task)),
        scheduler_(scheduler),
        over_(std::move(over)),
        lost_(std::move(lost)) {}

  void AskLater() {
    scheduler_.ScheduleAfter(kHeartbeat, [self = shared_from_this()] { self->Ask(); });
  }

 private:
  void Ask() {
    if (over_->cancelled()) return;
    CallOptions options;
    options.timeout = kSilence;
    worker_->GetStatus(
        std::move(options),
        [self = shared_from_this()](const absl::StatusOr<std::vector<DeviceAttributes>>& devices) {
          if (self->over_->cancelled()) return;
          if (devices.ok()) return self->AskLater();
          std::move(self->lost_)(absl::UnavailableError(
              absl::StrCat(self->task_, " does not answer: ", devices.status().message())));
        });
  }

  const std::shared_ptr<WorkerApi> worker_;
  const std::string task_;
  Scheduler& scheduler_;
  const std::shared_ptr<Cancellation> over_;
  absl::AnyInvocable<void(const absl::Status&) &&> lost_;
};

}  // namespace

void TaskExchange::Fetch(const CollectiveGroup::Member& from, const DeviceAttributes& to,
                         std::string key, size_t num_bytes,
                         std::shared_ptr<Cancellation> cancellation, Fetched done) {
  Fetched soon = [compute = &compute_,
                  done = std::move(done)](absl::StatusOr<Buffer> bytes) mutable {
    if (!bytes.ok() || bytes->length_bytes() < kInlineBytes)
      return std::move(done)(std::move(bytes));
    compute->Schedule([done = std::move(done), bytes = std::move(bytes)]() mutable {
      std::move(done)(std::move(bytes));
    });
  };
  if (from.task == task_) {
    buffers_->Consume(key, std::move(soon));
  } else {
    Ask(from, to.name, std::move(key), num_bytes, std::move(cancellation), std::move(soon));
  }
}

void TaskExchange::Ask(const CollectiveGroup::Member& from, const std::string& to, std::string key,
                       size_t num_bytes, std::shared_ptr<Cancellation> cancellation, Fetched done) {
  const std::shared_ptr<WorkerApi> worker = peers_->Worker(from.task);
  if (worker == nullptr) return std::move(done)(Internal("No worker known as ", from.task));
  RecvBufRequest request;
  request.step_id = step_id_;
  request.key = std::move(key);
  request.num_bytes = static_cast<int64_t>(num_bytes);
  request.src_device = from.device.name;
  request.src_incarnation = from.device.incarnation;
  request.dst_device = to;
  request.request_id = NewRequestId();
  const int64_t request_id = request.request_id;
  CallOptions options;
  options.cancellation = cancellation;
  WorkerApi& server = *worker;
  server.RecvBuf(std::move(options), std::move(request),
                 [worker, request_id, cancellation, log = log_,
                  done = std::move(done)](absl::StatusOr<RecvBufReply> reply) mutable {
                   if (!reply.ok()) {
                     return std::move(done)(cancellation->cancelled() ? cancellation->reason()
                                                                      : reply.status());
                   }
                   log->CountCollective(0, static_cast<int64_t>(reply->bytes.length_bytes()));
                   if (reply->require_ack)
                     worker->MarkRecvFinished({}, request_id, [worker](absl::StatusOr<Empty>) {});
                   std::move(done)(std::move(reply->bytes));
                 });
}

// Requests a buffer that no rank offers: the answer comes when the step fails there, or the task
// does.
void TaskExchange::WatchConsumer(const CollectiveGroup::Member& to,
                                 std::shared_ptr<Cancellation> cancellation, Done lost) {
  if (to.task == task_) return;
  control_.ScheduleAfter(
      kWatchAfter, [self = shared_from_this(), to, cancellation = std::move(cancellation),
                    lost = std::move(lost)]() mutable {
        if (cancellation->cancelled()) return;
        const std::string key = absl::StrCat("watch:", NewRequestId());
        Scheduler& control = self->control_;
        self->Ask(
            to, "", key, 0, cancellation,
            [&control, cancellation, lost = std::move(lost)](absl::StatusOr<Buffer> bytes) mutable {
              absl::Status reason =
                  bytes.ok() ? Internal("no rank offers this buffer") : bytes.status();
              // A step that is over there has taken all it needs: that is about to be heard.
              control.ScheduleAfter(kWatchAfter, [cancellation, lost = std::move(lost),
                                                  reason = std::move(reason)]() mutable {
                if (!cancellation->cancelled()) std::move(lost)(std::move(reason));
              });
            });
      });
}

void WatchTask(std::shared_ptr<Peers> peers, const std::string& task, Scheduler& scheduler,
               std::shared_ptr<Cancellation> over,
               absl::AnyInvocable<void(const absl::Status&) &&> lost) {
  std::shared_ptr<WorkerApi> worker = peers == nullptr ? nullptr : peers->Worker(task);
  if (worker == nullptr) return;
  std::make_shared<TaskHeart>(std::move(worker), task, scheduler, std::move(over), std::move(lost))
      ->AskLater();
}

}  // namespace muster
