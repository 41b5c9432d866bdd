#include "muster/master/request_log.h"

#include <algorithm>

#include "absl/hash/hash.h"

#include "muster/master/gather.h"

namespace muster {
namespace {

constexpr size_t kRememberedIds = 10000;  // as many as TensorFlow's masters

absl::Status Twice(absl::string_view method, absl::string_view session, int64_t request_id) {
  return absl::AbortedError(absl::StrCat("The same ", method,
                                         " (Master) request was received twice. session_handle: \"",
                                         session, "\" request_id: ", request_id));
}

// Two requests with one id that ask for different things are no repetition.
size_t Fingerprint(const RunStepRequest& request) {
  std::vector<std::string> feeds;
  for (const NamedTensor& feed : request.feeds) feeds.push_back(feed.name);
  return absl::HashOf(feeds, request.fetches, request.targets, request.partial_run);
}

size_t Fingerprint(const RunCallableRequest& request) {
  return absl::HashOf(request.callable, request.feeds.size());
}

absl::StatusOr<RunStepReply> AsStepReply(absl::StatusOr<RunCallableReply> reply) {
  if (!reply.ok()) return reply.status();
  RunStepReply step;
  for (Tensor& fetch : reply->fetches) step.tensors.push_back({"", std::move(fetch)});
  step.metadata = std::move(reply->metadata);
  return step;
}

absl::StatusOr<RunCallableReply> AsCallableReply(absl::StatusOr<RunStepReply> step) {
  if (!step.ok()) return step.status();
  RunCallableReply reply;
  for (NamedTensor& fetch : step->tensors) reply.fetches.push_back(std::move(fetch.tensor));
  reply.metadata = std::move(step->metadata);
  return reply;
}

size_t SizeOf(const absl::StatusOr<RunStepReply>& reply) {
  if (!reply.ok()) return reply.status().message().size();
  size_t bytes = reply->metadata.size();
  for (const NamedTensor& tensor : reply->tensors)
    bytes += tensor.name.size() + tensor.tensor.size_bytes();
  return bytes;
}

}  // namespace

void RequestLog::Remember(int64_t request_id) {
  seen_.insert(request_id);
  seen_order_.push_back(request_id);
  if (seen_order_.size() <= kRememberedIds) return;
  seen_.erase(seen_order_.front());
  seen_order_.pop_front();
}

absl::Status RequestLog::Admit(absl::string_view method, absl::string_view session,
                               int64_t request_id) {
  if (request_id == 0) return absl::OkStatus();
  MutexLock lock(mutex_);
  if (seen_.contains(request_id)) return Twice(method, session, request_id);
  Remember(request_id);
  return absl::OkStatus();
}

std::optional<RequestLog::Admission<RunStepReply>> RequestLog::AdmitStep(
    const CallOptions& call, const RunStepRequest& request, CallDone<RunStepReply> done) {
  const int64_t id = request.request_id;
  if (id == 0) return Admission<RunStepReply>{call.cancellation, std::move(done)};
  return Begin(id, {"RunStep", request.session, Fingerprint(request)}, call.cancellation,
               std::move(done));
}

std::optional<RequestLog::Admission<RunCallableReply>> RequestLog::AdmitCallable(
    const CallOptions& call, const RunCallableRequest& request, CallDone<RunCallableReply> done) {
  const int64_t id = request.request_id;
  if (id == 0) return Admission<RunCallableReply>{call.cancellation, std::move(done)};
  auto admission =
      Begin(id, {"RunCallable", request.session, Fingerprint(request)}, call.cancellation,
            [done = std::move(done)](absl::StatusOr<RunStepReply> reply) mutable {
              std::move(done)(AsCallableReply(std::move(reply)));
            });
  if (!admission) return std::nullopt;
  return Admission<RunCallableReply>{
      admission->cancellation,
      [end = std::move(admission->done)](absl::StatusOr<RunCallableReply> reply) mutable {
        std::move(end)(AsStepReply(std::move(reply)));
      }};
}

std::optional<RequestLog::Admission<RunStepReply>> RequestLog::Begin(
    int64_t request_id, Asked asked, const std::shared_ptr<Cancellation>& caller,
    CallDone<RunStepReply> done) {
  absl::StatusOr<RunStepReply> answer = Twice(asked.method, asked.session, request_id);
  {
    MutexLock lock(mutex_);
    const auto found = steps_.find(request_id);
    if (found != steps_.end() && found->second.asked == asked) {
      Step& step = found->second;
      if (!step.finished) {
        Wait(request_id, step, caller, std::move(done));
        return std::nullopt;
      }
      answer = step.reply;
    } else if (found == steps_.end() && !seen_.contains(request_id)) {
      Remember(request_id);
      Step& step = steps_[request_id];
      step.asked = std::move(asked);
      step.cancellation = std::make_shared<Cancellation>();
      Wait(request_id, step, caller, std::move(done));
      return Admission<RunStepReply>{step.cancellation, [self = shared_from_this(), request_id](
                                                            absl::StatusOr<RunStepReply> reply) {
                                       self->Finished(request_id, std::move(reply));
                                     }};
    }
  }
  std::move(done)(std::move(answer));
  return std::nullopt;
}

void RequestLog::Wait(int64_t request_id, Step& step,
                      const std::shared_ptr<Cancellation>& cancellation,
                      CallDone<RunStepReply> done) {
  const int64_t number = next_waiter_++;
  step.waiters.push_back({number, std::move(done)});
  if (step.grace) scheduler_.CancelTimer(*std::exchange(step.grace, std::nullopt));
  OnCancel(cancellation, scheduler_,
           [weak = weak_from_this(), request_id, number](absl::Status reason) {
             if (const auto self = weak.lock()) self->Lost(request_id, number, std::move(reason));
           });
}

void RequestLog::Lost(int64_t request_id, int64_t waiter, absl::Status reason) {
  CallDone<RunStepReply> done;
  std::shared_ptr<Cancellation> cancel;
  {
    MutexLock lock(mutex_);
    const auto found = steps_.find(request_id);
    if (found == steps_.end() || found->second.finished) return;
    Step& step = found->second;
    const auto lost = std::find_if(step.waiters.begin(), step.waiters.end(),
                                   [waiter](const Waiter& w) { return w.number == waiter; });
    if (lost == step.waiters.end()) return;
    done = std::move(lost->done);
    step.waiters.erase(lost);
    if (step.waiters.empty() && reason.code() == absl::StatusCode::kUnavailable) {
      // The connection broke: the client may be about to send the request again.
      step.grace = scheduler_.ScheduleAfter(
          options_->orphan_grace,
          [cancellation = std::weak_ptr<Cancellation>(step.cancellation), reason] {
            if (const auto strong = cancellation.lock()) strong->Cancel(reason);
          });
    } else if (step.waiters.empty()) {
      cancel = step.cancellation;
    }
  }
  if (cancel != nullptr) cancel->Cancel(reason);
  std::move(done)(std::move(reason));
}

void RequestLog::Finished(int64_t request_id, absl::StatusOr<RunStepReply> reply) {
  std::list<Waiter> waiters;
  std::vector<absl::StatusOr<RunStepReply>> forgotten;  // dropped without the lock
  {
    MutexLock lock(mutex_);
    const auto found = steps_.find(request_id);
    if (found == steps_.end()) return;
    Step& step = found->second;
    waiters = std::move(step.waiters);
    step.waiters.clear();
    if (step.grace) scheduler_.CancelTimer(*std::exchange(step.grace, std::nullopt));
    step.finished = true;
    // Whoever asks again after all callers had gone must hear that this step is lost.
    step.reply = step.cancellation->cancelled()
                     ? Twice(step.asked.method, step.asked.session, request_id)
                     : reply;
    step.cancellation = nullptr;
    step.bytes = SizeOf(step.reply);
    bytes_ += step.bytes;
    finished_order_.push_back(request_id);
    while (!finished_order_.empty() &&
           (bytes_ > options_->reply_cache_bytes ||
            finished_order_.size() > static_cast<size_t>(options_->reply_cache_entries))) {
      const auto oldest = steps_.find(finished_order_.front());
      finished_order_.pop_front();
      bytes_ -= oldest->second.bytes;
      forgotten.push_back(std::move(oldest->second.reply));
      steps_.erase(oldest);
    }
  }
  for (Waiter& waiter : waiters) std::move(waiter.done)(reply);
}

}  // namespace muster
