#include "muster/train/loop/queue_runner.h"

#include <algorithm>
#include <utility>

#include "muster/base/cancellation.h"
#include "muster/base/log.h"
#include "muster/train/loop/notice.h"

namespace muster {

struct QueueRunner::Group {
  std::shared_ptr<Session> session;
  std::shared_ptr<Coordinator> coordinator;  // may be null
  // Made by the thread that creates the others, while the graph does not change.
  absl::StatusOr<std::shared_ptr<StepPlan>> close, cancel;
  // Of the enqueue steps.
  std::shared_ptr<Cancellation> cancellation = std::make_shared<Cancellation>();
  // Of the steps that wait for what they make.
  std::shared_ptr<Cancellation> waiting = std::make_shared<Cancellation>();
  Mutex mutex;
  CondVar changed;
  int enqueuing ABSL_GUARDED_BY(mutex) = 0;
};

namespace {

absl::StatusOr<std::shared_ptr<StepPlan>> PrepareOp(Session& session, Node* op) {
  if (op == nullptr) return FailedPrecondition("the queue runner has no such op");
  return session.Prepare({{}, {}, {op}});
}

// For closing ops: a queue may have been closed by another thread.
void RunAndIgnoreErrors(Session& session, const absl::StatusOr<std::shared_ptr<StepPlan>>& plan,
                        absl::Duration timeout) {
  RunOptions options;
  options.timeout = timeout;
  if (plan.ok()) session.Run(**plan, {}, options).status().IgnoreError();
}

}  // namespace

std::shared_ptr<QueueRunner> QueueRunner::Create(QueueRunnerDef def, Options options) {
  return std::shared_ptr<QueueRunner>(new QueueRunner(std::move(def), std::move(options)));
}

std::vector<std::shared_ptr<Thread>> QueueRunner::CreateThreads(
    std::shared_ptr<Session> session, std::shared_ptr<Coordinator> coordinator) {
  {
    MutexLock lock(mutex_);
    int& running = running_[session.get()];
    if (running > 0) return {};
    running = static_cast<int>(def_.enqueue_ops.size());
    errors_.clear();
  }
  auto group = std::make_shared<Group>();
  if (def_.waits != nullptr) session->EndStepsWith(def_.waits, group->waiting);
  group->close = PrepareOp(*session, def_.close_op);
  group->cancel = PrepareOp(*session, def_.cancel_op);
  std::vector<std::shared_ptr<Thread>> threads;
  for (Node* op : def_.enqueue_ops) {
    threads.push_back(
        Thread::Create(absl::StrCat("QueueRunnerThread-", def_.queue_name, "-", op->name()),
                       [self = shared_from_this(), group, plan = PrepareOp(*session, op)] {
                         return self->RunEnqueue(*group, plan);
                       }));
  }
  if (coordinator != nullptr) {
    threads.push_back(
        Thread::Create(absl::StrCat("QueueRunnerThread-", def_.queue_name, "-close_on_stop"),
                       [self = shared_from_this(), group] {
                         self->CancelOnStop(*group);
                         return absl::OkStatus();
                       }));
    for (const auto& thread : threads) coordinator->Register(thread);
  }
  group->session = std::move(session);
  group->coordinator = std::move(coordinator);
  return threads;
}

std::vector<std::shared_ptr<Thread>> QueueRunner::Start(std::shared_ptr<Session> session,
                                                        std::shared_ptr<Coordinator> coordinator) {
  std::vector<std::shared_ptr<Thread>> threads =
      CreateThreads(std::move(session), std::move(coordinator));
  for (const auto& thread : threads) thread->Start();
  return threads;
}

absl::Status QueueRunner::RunEnqueue(Group& group,
                                     const absl::StatusOr<std::shared_ptr<StepPlan>>& plan) {
  {
    MutexLock lock(group.mutex);
    ++group.enqueuing;
  }
  bool closed = false;
  absl::Status status = EnqueueUntilStop(group, plan, closed);
  // The last one to find the queue it reads from closed closes its own.
  if (Leave(group.session.get()) && closed)
    RunAndIgnoreErrors(*group.session, group.close, absl::ZeroDuration());
  {
    MutexLock lock(group.mutex);
    --group.enqueuing;
    group.changed.NotifyAll();
  }
  if (status.ok()) return status;
  // A step that was cancelled after the stop is not an error.
  if (group.cancellation->cancelled() && absl::IsCancelled(status)) return absl::OkStatus();
  if (options_.on_error) status = options_.on_error(std::move(status));
  if (group.coordinator != nullptr) return group.coordinator->RequestStop(std::move(status));
  group.waiting->Cancel(status);
  Notice(LogLevel::kError, absl::StrCat("Exception in QueueRunner: ", status.message()));
  MutexLock lock(mutex_);
  errors_.push_back(status);
  return status;
}

absl::Status QueueRunner::EnqueueUntilStop(Group& group,
                                           const absl::StatusOr<std::shared_ptr<StepPlan>>& plan,
                                           bool& closed) {
  RETURN_IF_ERROR(plan.status());
  RunOptions options;
  options.cancellation = group.cancellation;
  while (group.coordinator == nullptr || !group.coordinator->ShouldStop()) {
    absl::Status status = group.session->Run(**plan, {}, options).status();
    if (status.ok()) continue;
    closed = std::find(def_.closed_codes.begin(), def_.closed_codes.end(), status.code()) !=
             def_.closed_codes.end();
    return closed ? absl::OkStatus() : status;
  }
  return absl::OkStatus();
}

void QueueRunner::CancelOnStop(Group& group) {
  group.coordinator->WaitForStop();
  const absl::Status why = group.coordinator->requested();
  if (!why.ok()) group.waiting->Cancel(why);
  if (def_.on_clean_stop && why.ok()) {
    const absl::Status done = def_.on_clean_stop(*group.session);
    if (!done.ok()) LOG(WARNING) << "Queue runner " << def_.queue_name << " at its stop: " << done;
  }
  Timer& timer = group.coordinator->timer();
  const absl::Duration until = timer.Now() + options_.cancel_after;
  RunAndIgnoreErrors(*group.session, group.cancel, options_.cancel_after);
  // Not every step waits for this queue: that of a synchronous chief waits for gradients that no
  // worker sends any more.
  {
    MutexLock lock(group.mutex);
    while (group.enqueuing > 0) {
      const absl::Duration left = until - timer.Now();
      if (left <= absl::ZeroDuration()) break;
      timer.Wait(group.changed, group.mutex, left);
    }
    if (group.enqueuing == 0) return;
  }
  group.cancellation->Cancel(absl::CancelledError("Step was cancelled: its coordinator stopped."));
}

bool QueueRunner::Leave(const Session* session) {
  MutexLock lock(mutex_);
  const auto found = running_.find(session);
  if (--found->second > 0) return false;
  running_.erase(found);
  return true;
}

std::vector<absl::Status> QueueRunner::errors() const {
  MutexLock lock(mutex_);
  return errors_;
}

}  // namespace muster
