#include "muster/master/cluster_step.h"

#include "absl/strings/match.h"

#include "muster/base/cancel_callback.h"
#include "muster/master/gather.h"
#include "muster/master/run_metadata_proto.h"
#include "muster/transport/wire/status_proto.h"

namespace muster {
namespace {

constexpr absl::string_view kRule = "=====================";
constexpr size_t kMaxCombinedError = 8 << 10;

}  // namespace

absl::Status CombineErrors(const std::vector<std::pair<std::string, absl::Status>>& roots) {
  const auto prefixed = [](const std::pair<std::string, absl::Status>& root) {
    return Prefixed(root.second, absl::StrCat("From ", root.first, ":\n"));
  };
  const absl::Status first = prefixed(roots.front());
  if (roots.size() == 1) return first;
  std::string text = absl::StrCat("\n", kRule, "\n");
  for (const auto& root : roots) {
    absl::StrAppend(&text, absl::StatusCodeToString(root.second.code()), ": ",
                    prefixed(root).message(), "\n");
  }
  if (text.size() > kMaxCombinedError) text = absl::StrCat(text.substr(0, kMaxCombinedError), "\n");
  absl::StrAppend(&text, kRule, "\n");
  absl::Status combined(first.code(), text);
  first.ForEachPayload([&combined](absl::string_view key, const absl::Cord& value) {
    combined.SetPayload(key, value);
  });
  return combined;
}

namespace {

// A task that has restarted will never know the session again.
absl::Status WithAdvice(absl::Status status) {
  const bool restarted = absl::IsAborted(status) &&
                         absl::StrContains(status.message(), "restarted") &&
                         !absl::StrContains(status.message(), "Re-create your session");
  return restarted ? Suffixed(status, "\nRe-create your session.") : status;
}

}  // namespace

std::shared_ptr<ClusterStep> ClusterStep::Create(Scheduler& scheduler, ClusterStepOptions options,
                                                 const std::shared_ptr<Cancellation>& caller,
                                                 Finished finished) {
  std::shared_ptr<ClusterStep> run(
      new ClusterStep(scheduler, std::move(options), std::move(finished)));
  run->on_cancel_.StartScheduled(
      caller, scheduler, std::weak_ptr<ClusterStep>(run),
      [](ClusterStep& self, const absl::Status& reason) { self.Cancel(reason); });
  if (run->options_.timeout > absl::ZeroDuration()) {
    MutexLock lock(run->mutex_);
    run->timer_ =
        scheduler.ScheduleAfter(run->options_.timeout, [weak = std::weak_ptr<ClusterStep>(run)] {
          if (const auto self = weak.lock())
            self->Cancel(absl::DeadlineExceededError("Deadline Exceeded"));
        });
  }
  return run;
}

void ClusterStep::Cancel(absl::Status reason) {
  bool started;
  {
    MutexLock lock(mutex_);
    if (!finished_ || !cancelled_.ok() || !roots_.empty()) return;
    cancelled_ = reason;
    started = started_;
  }
  if (started) {
    CancelSoon(calls_, scheduler_, std::move(reason));
  } else {
    Finish(std::move(reason));
  }
}

// The worker would say the same of the node through which the value comes in.
absl::Status ClusterStep::CheckFeeds() const {
  for (const auto& [name, feed] : plan_->feeds) {
    const auto given = options_.feeds.find(name);
    if (given == options_.feeds.end()) continue;
    const Tensor& tensor = given->second;
    if (tensor.dtype() != feed.dtype) {
      return Internal("From ", plan_->parts[plan_->client_part].task, ":\nOutput 0 of type ",
                      DTypeName(tensor.dtype()), " does not match declared output type ",
                      DTypeName(feed.dtype), " for node {{node ", feed.node, "}}");
    }
  }
  return absl::OkStatus();
}

void ClusterStep::Start(absl::StatusOr<std::shared_ptr<const ClusterPlan>> plan) {
  if (!plan.ok()) return Finish(plan.status());
  plan_ = *std::move(plan);
  if (absl::Status status = CheckFeeds(); !status.ok())
    return Finish(AfterStart(std::move(status)));
  const size_t count = plan_->parts.size();
  std::vector<RunGraphRequest> requests;
  for (size_t i = 0; i < count; ++i) requests.push_back(Request(i));
  {
    MutexLock lock(mutex_);
    if (!finished_ || started_ || !cancelled_.ok()) return;
    started_ = true;
    left_ = count;
    replies_.resize(count);
  }
  if (count == 0) return AllAnswered();
  if (options_.trace) Logging(true);
  // A worker in this process may answer inside the call, and the last answer ends the step.
  const auto self = shared_from_this();
  // The task of the master comes last: it may run its part inside the call.
  const size_t last = plan_->client_part >= 0 ? static_cast<size_t>(plan_->client_part) : 0;
  for (size_t k = 1; k <= count; ++k) {
    const size_t i = (last + k) % count;
    CallOptions call;
    call.cancellation = calls_;
    requests[i].finished_steps = options_.finished_steps->Take(*plan_->parts[i].worker);
    plan_->parts[i].worker->RunGraph(
        std::move(call), std::move(requests[i]),
        [self, i](absl::StatusOr<RunGraphReply> reply) { self->Answer(i, std::move(reply)); });
  }
}

RunGraphRequest ClusterStep::Request(size_t part) {
  RunGraphRequest request;
  request.session = plan_->session;
  request.graph = plan_->parts[part].graph;
  request.step_id = options_.step_id;
  request.record_timeline = options_.trace;
  request.record_partition_graphs = options_.output_partition_graphs;
  request.is_partial = options_.is_partial;
  request.is_last_partial = options_.is_last_partial;
  request.request_id = NewRequestId();
  if (static_cast<int>(part) != plan_->client_part) return request;
  for (auto& [name, tensor] : options_.feeds) {
    const auto feed = plan_->feeds.find(name);
    if (feed != plan_->feeds.end()) request.send.push_back({feed->second.key, std::move(tensor)});
  }
  for (const std::string& fetch : options_.fetches) {
    const auto key = plan_->fetch_keys.find(fetch);
    if (key != plan_->fetch_keys.end()) request.recv_keys.push_back(key->second);
  }
  return request;
}

void ClusterStep::Answer(size_t part, absl::StatusOr<RunGraphReply> reply) {
  absl::Status cancel_others;
  {
    MutexLock lock(mutex_);
    if (reply.ok()) {
      replies_[part] = *std::move(reply);
    } else {
      const absl::Status& status = reply.status();
      const bool was_cancelled = !cancelled_.ok() || !roots_.empty();
      const bool is_derived = IsDerived(status) || !cancelled_.ok() ||
                              (was_cancelled && status.code() == absl::StatusCode::kCancelled);
      if (!is_derived) {
        cancel_others = FailLocked(part, status);
        if (left_ == 1) cancel_others = absl::OkStatus();  // there are no others
      } else if (!derived_) {
        derived_ = Failure{plan_->parts[part].task, status};
      }
    }
    if (--left_ > 0 && cancel_others.ok()) return;
  }
  if (!cancel_others.ok()) {
    CancelSoon(calls_, scheduler_, std::move(cancel_others));
    return;
  }
  AllAnswered();
}

absl::Status ClusterStep::FailLocked(size_t part, absl::Status status) {
  const std::string& task = plan_->parts[part].task;
  const bool is_first = roots_.empty();
  roots_.push_back({task, std::move(status)});
  if (!is_first) return absl::OkStatus();
  return Derived(absl::CancelledError(absl::StrCat("The step failed on ", task, ".")));
}

bool ClusterStep::MayLeaveTasksBehind() const {
  MutexLock lock(mutex_);
  return finished_ && (!started_ || replies_.size() > 1);
}

std::vector<std::string> ClusterStep::TakeTasksBehind() {
  std::vector<std::string> tasks;
  MutexLock lock(mutex_);
  if (!finished_ || !started_ || left_ == 0 || !std::exchange(lasts_, true)) return tasks;
  for (size_t i = 0; i < replies_.size(); ++i)
    if (IsBehindLocked(i)) tasks.push_back(plan_->parts[i].task);
  return tasks;
}

void ClusterStep::LoseTask(const std::string& task, const absl::Status& why) {
  absl::Status cancel_others;
  {
    MutexLock lock(mutex_);
    if (!finished_ || !started_ || left_ == 0 || !cancelled_.ok() || !roots_.empty()) return;
    for (size_t i = 0; i < replies_.size() && cancel_others.ok(); ++i)
      if (IsBehindLocked(i) && plan_->parts[i].task == task) cancel_others = FailLocked(i, why);
  }
  if (!cancel_others.ok()) CancelSoon(calls_, scheduler_, std::move(cancel_others));
}

void ClusterStep::AllAnswered() {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (!roots_.empty()) {
      std::vector<std::pair<std::string, absl::Status>> roots;
      for (Failure& root : roots_) roots.emplace_back(root.task, std::move(root.status));
      status = CombineErrors(roots);
    } else if (!cancelled_.ok()) {
      status = cancelled_;
    } else if (derived_) {
      status = CombineErrors({{derived_->task, derived_->status}});
    }
  }
  if (options_.trace) Logging(false);
  if (!status.ok()) {
    CleanUp(/*failed=*/true);
    return Finish(std::move(status));
  }
  if (options_.trace) return FetchLogs();
  if (!options_.is_partial || options_.is_last_partial) CleanUp(/*failed=*/false);
  Finish(Collect());
}

void ClusterStep::Logging(bool enable) {
  for (const PlanPart& part : plan_->parts) {
    LoggingRequest request;
    request.enable = enable;
    request.disable = !enable;
    part.worker->Logging({}, std::move(request),
                         [worker = part.worker](absl::StatusOr<LoggingReply>) {});
  }
}

void ClusterStep::FetchLogs() {
  auto dones = Gather<LoggingReply>(
      plan_->parts.size(), [self = shared_from_this()](Replies<LoggingReply> replies) {
        {
          MutexLock lock(self->mutex_);
          for (absl::StatusOr<LoggingReply>& reply : replies) {
            if (!reply.ok()) continue;  // a trace without transfers is still a trace
            for (LoggingReply::Step& step : reply->steps)
              self->logs_.push_back(std::move(step.step_stats));
          }
        }
        if (!self->options_.is_partial || self->options_.is_last_partial)
          self->CleanUp(/*failed=*/false);
        self->Finish(self->Collect());
      });
  for (size_t i = 0; i < dones.size(); ++i) {
    CallOptions call;
    call.cancellation = calls_;
    LoggingRequest request;
    request.fetch_steps = {options_.step_id};
    plan_->parts[i].worker->Logging(std::move(call), std::move(request), std::move(dones[i]));
  }
}

void ClusterStep::CleanUp(bool failed) {
  for (size_t i = 0; i < plan_->parts.size(); ++i) {
    const std::shared_ptr<WorkerApi>& worker = plan_->parts[i].worker;
    if (failed || static_cast<int>(i) == plan_->client_part) {
      FinishedSteps::Tell(worker, options_.step_id);
    } else {
      options_.finished_steps->Add(worker, options_.step_id);
    }
  }
}

absl::StatusOr<StepResult> ClusterStep::Collect() {
  MutexLock lock(mutex_);
  StepResult result;
  absl::flat_hash_map<std::string, Tensor> by_key;
  std::vector<std::string> stats;
  std::vector<std::string> graphs;
  for (std::optional<RunGraphReply>& reply : replies_) {
    for (NamedTensor& value : reply->recv) by_key[value.name] = std::move(value.tensor);
    stats.push_back(std::move(reply->step_stats));
    for (std::string& graph : reply->partition_graphs) graphs.push_back(std::move(graph));
  }
  for (std::string& log : logs_) stats.push_back(std::move(log));
  for (const std::string& fetch : options_.fetches) {
    const auto key = plan_->fetch_keys.find(fetch);
    const auto value = key == plan_->fetch_keys.end() ? by_key.end() : by_key.find(key->second);
    if (value == by_key.end())
      return Internal("The workers gave no value for the fetched tensor ", fetch);
    result.fetches[fetch] = std::move(value->second);
  }
  if (options_.trace || options_.output_partition_graphs)
    result.metadata = MergeRunMetadata(stats, graphs);
  return result;
}

void ClusterStep::Finish(absl::StatusOr<StepResult> result) {
  Finished finished;
  std::optional<Scheduler::TimerId> timer;
  const bool has_metadata = !options_.is_partial || options_.is_last_partial;
  bool started;
  {
    MutexLock lock(mutex_);
    if (!finished_) return;
    started = started_;
    finished = std::move(finished_);
    finished_ = nullptr;
    timer = timer_;
  }
  if (timer) scheduler_.CancelTimer(*timer);
  on_cancel_.Release();
  if (!result.ok() && started && has_metadata) result = AfterStart(result.status());
  if (!result.ok()) result = WithAdvice(result.status());
  std::move(finished)(std::move(result));
}

}  // namespace muster
