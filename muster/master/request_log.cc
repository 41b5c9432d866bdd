#include "muster/master/request_log.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace muster {
namespace {

// What a reply takes besides its tensors, roughly.
constexpr size_t kEntryBytes = 512;

absl::Status Twice(absl::string_view method, absl::string_view session, int64_t request_id) {
  return absl::AbortedError(absl::StrCat("The same ", method,
                                         " (Master) request was received twice. session_handle: \"",
                                         session, "\" request_id: ", request_id));
}

// Two requests with one id that ask for different things are not repetitions.
size_t Fingerprint(const RunStepRequest& request) {
  std::vector<std::string> feeds;
  for (const NamedTensor& feed : request.feeds) feeds.push_back(feed.name);
  return absl::HashOf(feeds, request.fetches, request.targets, request.partial_run);
}

size_t Fingerprint(const RunCallableRequest& request) {
  return absl::HashOf(request.callable, request.feeds.size());
}

size_t Fingerprint(const PartialRunSetupRequest& request) {
  return absl::HashOf(request.feeds, request.fetches, request.targets);
}

size_t Fingerprint(const MakeCallableRequest& request) {
  return absl::HashOf(request.feeds, request.fetches, request.targets, request.connections);
}

absl::StatusOr<RunStepReply> AsStepReply(absl::StatusOr<RunCallableReply> reply) {
  if (!reply.ok()) return reply.status();
  RunStepReply step;
  for (Tensor& fetch : reply->fetches) step.tensors.push_back({"", std::move(fetch)});
  step.metadata = std::move(reply->metadata);
  return step;
}

absl::StatusOr<RunStepReply> AsStepReply(absl::StatusOr<std::string> handle) {
  if (!handle.ok()) return handle.status();
  RunStepReply step;
  step.metadata = *std::move(handle);
  return step;
}

absl::StatusOr<RunStepReply> AsStepReply(absl::StatusOr<int64_t> handle) {
  if (!handle.ok()) return handle.status();
  RunStepReply step;
  step.tensors.push_back({"", Tensor::Scalar<int64_t>(*handle)});
  return step;
}

void FromStepReply(RunStepReply step, RunCallableReply& reply) {
  for (NamedTensor& fetch : step.tensors) reply.fetches.push_back(std::move(fetch.tensor));
  reply.metadata = std::move(step.metadata);
}

void FromStepReply(RunStepReply step, std::string& handle) {
  handle = std::move(step.metadata);
}

void FromStepReply(RunStepReply step, int64_t& handle) {
  handle = step.tensors.front().tensor.scalar<int64_t>();
}

size_t SizeOf(const absl::StatusOr<RunStepReply>& reply) {
  if (!reply.ok()) return reply.status().message().size();
  size_t bytes = reply->metadata.size();
  for (const NamedTensor& tensor : reply->tensors)
    bytes += tensor.name.size() + tensor.tensor.size_bytes();
  return bytes;
}

}  // namespace

void RequestLog::Open(const std::string& session) {
  MutexLock lock(mutex_);
  sessions_.try_emplace(session, std::make_shared<Session>());
}

void RequestLog::Close(const std::string& session) {
  Forgotten forgotten;
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  while (!found->second->finished.empty()) ForgetOldestLocked(*found->second, forgotten);
  found->second->is_open = false;
  sessions_.erase(found);  // steps under way still hold it
}

std::optional<RequestLog::Admission<RunStepReply>> RequestLog::AdmitStep(
    const CallOptions& call, const RunStepRequest& request, CallDone<RunStepReply> done) {
  if (request.request_id == 0) return Admission<RunStepReply>{call.cancellation, std::move(done)};
  return Begin({"RunStep", request.session, request.request_id, Fingerprint(request)}, call,
               std::move(done));
}

template <typename Reply>
std::optional<RequestLog::Admission<Reply>> RequestLog::AdmitAs(const CallOptions& call,
                                                                Asked asked, CallDone<Reply> done) {
  if (asked.request_id == 0) return Admission<Reply>{call.cancellation, std::move(done)};
  auto admission = Begin(std::move(asked), call,
                         [done = std::move(done)](absl::StatusOr<RunStepReply> step) mutable {
                           if (!step.ok()) return std::move(done)(step.status());
                           Reply reply{};
                           FromStepReply(*std::move(step), reply);
                           std::move(done)(std::move(reply));
                         });
  if (!admission) return std::nullopt;
  return Admission<Reply>{admission->cancellation,
                          [end = std::move(admission->done)](absl::StatusOr<Reply> reply) mutable {
                            std::move(end)(AsStepReply(std::move(reply)));
                          }};
}

std::optional<RequestLog::Admission<RunCallableReply>> RequestLog::AdmitCallable(
    const CallOptions& call, const RunCallableRequest& request, CallDone<RunCallableReply> done) {
  return AdmitAs(call, {"RunCallable", request.session, request.request_id, Fingerprint(request)},
                 std::move(done));
}

std::optional<RequestLog::Admission<std::string>> RequestLog::AdmitPartialRunSetup(
    const CallOptions& call, const PartialRunSetupRequest& request, CallDone<std::string> done) {
  return AdmitAs(call,
                 {"PartialRunSetup", request.session, request.request_id, Fingerprint(request)},
                 std::move(done));
}

std::optional<RequestLog::Admission<int64_t>> RequestLog::AdmitMakeCallable(
    const CallOptions& call, const MakeCallableRequest& request, CallDone<int64_t> done) {
  return AdmitAs(call, {"MakeCallable", request.session, request.request_id, Fingerprint(request)},
                 std::move(done));
}

std::optional<RequestLog::Admission<RunStepReply>> RequestLog::Begin(Asked asked,
                                                                     const CallOptions& call,
                                                                     CallDone<RunStepReply> done) {
  const int64_t request_id = asked.request_id;
  absl::StatusOr<RunStepReply> answer = Twice(asked.method, asked.session, request_id);
  {
    MutexLock lock(mutex_);
    const auto entry = sessions_.find(asked.session);
    if (entry == sessions_.end())
      return Admission<RunStepReply>{call.cancellation, std::move(done)};
    const std::shared_ptr<Session>& session = entry->second;
    const auto found = session->steps.find(request_id);
    if (found != session->steps.end() && found->second.asked == asked) {
      Step& step = found->second;
      if (!step.finished) {
        Wait(session, step, call.cancellation, std::move(done));
        return std::nullopt;
      }
      answer = step.reply;
    } else if (found == session->steps.end() && session->seen.Insert(request_id)) {
      Step& step = session->steps[request_id];
      step.asked = std::move(asked);
      step.cancellation = std::make_shared<Cancellation>();
      Wait(session, step, call.cancellation, std::move(done));
      return Admission<RunStepReply>{
          step.cancellation,
          [self = shared_from_this(), session, request_id](absl::StatusOr<RunStepReply> reply) {
            self->Finished(*session, request_id, std::move(reply));
          }};
    }
  }
  std::move(done)(std::move(answer));
  return std::nullopt;
}

void RequestLog::Wait(const std::shared_ptr<Session>& session, Step& step,
                      const std::shared_ptr<Cancellation>& cancellation,
                      CallDone<RunStepReply> done) {
  Waiter& waiter = step.waiters.emplace_back();
  waiter.number = next_waiter_++;
  waiter.done = std::move(done);
  if (step.grace) scheduler_.CancelTimer(*std::exchange(step.grace, std::nullopt));
  waiter.on_cancel.StartScheduled(
      cancellation, scheduler_, weak_from_this(),
      [of = std::weak_ptr<Session>(session), request_id = step.asked.request_id,
       number = waiter.number](RequestLog& self, const absl::Status& reason) {
        if (const auto its = of.lock()) self.Lost(*its, request_id, number, reason);
      });
}

void RequestLog::Lost(Session& session, int64_t request_id, int64_t waiter, absl::Status reason) {
  CallDone<RunStepReply> done;
  std::shared_ptr<Cancellation> cancel;
  {
    MutexLock lock(mutex_);
    const auto found = session.steps.find(request_id);
    if (found == session.steps.end() || found->second.finished) return;
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

void RequestLog::Finished(Session& session, int64_t request_id,
                          absl::StatusOr<RunStepReply> reply) {
  std::list<Waiter> waiters;
  Forgotten forgotten;
  {
    MutexLock lock(mutex_);
    const auto found = session.steps.find(request_id);
    if (found == session.steps.end()) return;
    Step& step = found->second;
    waiters = std::move(step.waiters);
    step.waiters.clear();
    if (step.grace) scheduler_.CancelTimer(*std::exchange(step.grace, std::nullopt));
    step.finished = true;
    // A retry that comes after all callers had gone must get the error that this step is lost.
    step.reply = step.cancellation->cancelled()
                     ? Twice(step.asked.method, step.asked.session, request_id)
                     : reply;
    step.cancellation = nullptr;
    step.bytes = kEntryBytes + SizeOf(step.reply);
    KeepLocked(session, request_id, forgotten);
  }
  for (Waiter& waiter : waiters) std::move(waiter.done)(reply);
}

void RequestLog::KeepLocked(Session& session, int64_t request_id, Forgotten& forgotten) {
  if (session.finished.empty()) ++num_keeping_;
  session.finished.push_back(request_id);
  const size_t added = session.steps[request_id].bytes;
  session.bytes += added;
  bytes_ += added;
  const size_t limit = session.is_open ? static_cast<size_t>(options_->reply_cache_entries) : 0;
  while (session.finished.size() > limit) ForgetOldestLocked(session, forgotten);
  while (bytes_ > options_->reply_cache_bytes) {
    // Sessions that keep no more than their part lose nothing to others. A session that keeps more
    // is mostly this one; another one only after the parts have become smaller.
    const size_t part = options_->reply_cache_bytes / num_keeping_;
    Session& largest = session.bytes > part ? session : LargestLocked();
    do {
      ForgetOldestLocked(largest, forgotten);
    } while (bytes_ > options_->reply_cache_bytes && largest.bytes > part);
  }
}

void RequestLog::ForgetOldestLocked(Session& session, Forgotten& forgotten) {
  const auto oldest = session.steps.find(session.finished.front());
  session.finished.pop_front();
  if (session.finished.empty()) --num_keeping_;
  session.bytes -= oldest->second.bytes;
  bytes_ -= oldest->second.bytes;
  forgotten.push_back(std::move(oldest->second.reply));
  session.steps.erase(oldest);
}

RequestLog::Session& RequestLog::LargestLocked() {
  const auto largest = std::max_element(
      sessions_.begin(), sessions_.end(),
      [](const auto& a, const auto& b) { return a.second->bytes < b.second->bytes; });
  return *largest->second;
}

}  // namespace muster
