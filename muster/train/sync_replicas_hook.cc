#include "muster/train/sync_replicas_hook.h"

#include <utility>

#include "absl/strings/str_join.h"

#include "muster/train/notice.h"

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
  if (runner_ == nullptr) {
    QueueRunnerDef def = sync_->chief_queue_runner();
    def.on_clean_stop = [sync = sync_](Session& session) { return sync->ReleaseWorkers(session); };
    runner_ = QueueRunner::Create(std::move(def));
  }
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
  runner_->Start(session, coordinator);
  return absl::OkStatus();
}

}  // namespace muster
