#include "muster/train/replicas/sync_replicas_hook.h"

#include <utility>

#include "absl/strings/str_join.h"

#include "muster/train/loop/notice.h"

namespace muster {

SyncReplicasHook::SyncReplicasHook(std::shared_ptr<const SyncReplicas> sync, Scope scope,
                                   bool is_chief, int num_tokens,
                                   std::shared_ptr<QueueRunner> runner)
    : sync_(std::move(sync)),
      scope_(std::move(scope)),
      is_chief_(is_chief),
      num_tokens_(num_tokens),
      runner_(std::move(runner)) {}

absl::Status SyncReplicasHook::Begin() {
  if (sync_->chief_init() == nullptr) {
    return ValueError(
        "SyncReplicasOptimizer.apply_gradient should be called before using the hook.");
  }
  if (!is_chief_) return absl::OkStatus();
  ASSIGN_OR_RETURN(init_tokens_, sync_->InitTokens(scope_, num_tokens_));
  if (runner_ == nullptr) runner_ = QueueRunner::Create(SyncReplicas::ChiefQueueRunner(sync_));
  return absl::OkStatus();
}

absl::Status SyncReplicasHook::AfterCreateSession(const std::shared_ptr<Session>& session,
                                                  const std::shared_ptr<Coordinator>& coordinator) {
  Node* const init = is_chief_ ? sync_->chief_init() : sync_->local_step_init();
  ASSIGN_OR_RETURN(const std::vector<Tensor> missing,
                   session->Run({}, {sync_->ready_for_local_init()}));
  if (missing[0].num_elements() > 0) {
    return RuntimeError(
        "Init operations did not make model ready for SyncReplicasOptimizer local_init. Init op: ",
        init->name(), ", error: Variables not initialized: ",
        absl::StrJoin(missing[0].values<std::string>(), ", "));
  }
  RETURN_IF_ERROR(session->Run({}, {}, {init}).status());
  if (!is_chief_) return absl::OkStatus();
  RETURN_IF_ERROR(session->Run({}, {}, {init_tokens_}).status());
  sync_->NoteChiefStarted();
  runner_->Start(session, coordinator);
  return absl::OkStatus();
}

absl::Status SyncReplicasHook::End(Session& session) {
  if (is_chief_) return absl::OkStatus();  // its queue runner releases the others
  const absl::Status returned = sync_->ReturnTokens(session);
  // A cluster that has ended before this worker needs no tokens.
  if (!returned.ok()) NoticeInfo("Tokens could not be returned: ", returned.message());
  return absl::OkStatus();
}

// What the thread and the watch share.
struct MissingChiefWatch::Watch {
  std::shared_ptr<Session> session;
  Mutex mutex;
  std::optional<absl::Duration> started ABSL_GUARDED_BY(mutex);  // of the run under way
};

MissingChiefWatch::MissingChiefWatch(std::shared_ptr<const SyncReplicas> sync,
                                     absl::Duration patience)
    : sync_(std::move(sync)), patience_(patience) {}

MissingChiefWatch::~MissingChiefWatch() = default;

void MissingChiefWatch::Start(const std::shared_ptr<Session>& session,
                              const std::shared_ptr<Coordinator>& coordinator) {
  watch_ = std::make_shared<Watch>();
  watch_->session = session;
  const auto body = [watch = watch_, sync = sync_, patience = patience_, coordinator] {
    while (!sync->chief_started() && !coordinator->WaitForStop(patience / 10)) {
      {
        MutexLock lock(watch->mutex);
        if (!watch->started || Timer::Real().Now() - *watch->started < patience) continue;
      }
      coordinator
          ->RequestStop(RuntimeError(
              "SyncReplicasOptimizer '", sync->name(), "': the chief has waited ",
              absl::FormatDuration(patience),
              " for a token, but no queue runner applies the gradients. Add "
              "optimizer.make_session_run_hook("
              "is_chief) to the hooks of every worker's session, or start the optimizer's "
              "get_chief_queue_runner() on the chief."))
          .IgnoreError();
      // Its step waits for a token that is never given out.
      watch->session->Close().IgnoreError();
    }
    watch->session.reset();
    return absl::OkStatus();
  };
  const std::shared_ptr<Thread> thread = Thread::Create("MissingChiefWatch", body);
  coordinator->Register(thread);
  thread->Start();
}

void MissingChiefWatch::StepStarts(const std::vector<const Node*>& asked) {
  if (sync_->chief_started() || !trains_(asked, sync_->train())) return;
  MutexLock lock(watch_->mutex);
  watch_->started = Timer::Real().Now();
}

void MissingChiefWatch::StepEnds() {
  MutexLock lock(watch_->mutex);
  watch_->started.reset();
}

MissingChiefHook::MissingChiefHook(std::shared_ptr<const SyncReplicas> sync,
                                   absl::Duration patience)
    : watch_(std::move(sync), patience) {}

absl::Status MissingChiefHook::AfterCreateSession(const std::shared_ptr<Session>& session,
                                                  const std::shared_ptr<Coordinator>& coordinator) {
  watch_.Start(session, coordinator);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RunArgs>> MissingChiefHook::BeforeRun(RunContext& context) {
  watch_.StepStarts(AskedNodes(context.original_args()));
  return std::nullopt;
}

absl::Status MissingChiefHook::AfterRun(RunContext&, const RunValues&) {
  watch_.StepEnds();
  return absl::OkStatus();
}

}  // namespace muster
