#include "muster/worker/reply_cache.h"

namespace muster {

bool ReplyCache::Begin(int64_t request_id, int64_t step_id, ReplyDone done) {
  std::optional<absl::StatusOr<RecvTensorReply>> reply;
  {
    MutexLock lock(mutex_);
    const auto found = entries_.find(request_id);
    if (found == entries_.end()) {
      if (entries_.size() < kMaxReplies) {
        Entry& entry = entries_[request_id];
        entry.step_id = step_id;
        entry.waiting.push_back(std::move(done));
        by_step_[step_id].insert(request_id);
        return true;
      }
      reply = absl::ResourceExhaustedError(
          absl::StrCat("More than ", kMaxReplies, " replies of RecvTensor are not acknowledged"));
    } else if (found->second.reply) {
      reply = *found->second.reply;
    } else {
      found->second.waiting.push_back(std::move(done));
      return false;
    }
  }
  std::move(done)(*std::move(reply));
  return false;
}

void ReplyCache::Finish(int64_t request_id, absl::StatusOr<RecvTensorReply> reply) {
  if (reply.ok()) reply->require_ack = true;
  std::vector<ReplyDone> waiting;
  {
    MutexLock lock(mutex_);
    const auto found = entries_.find(request_id);
    if (found == entries_.end()) return;
    waiting.swap(found->second.waiting);
    if (by_step_.contains(found->second.step_id)) {
      found->second.reply = reply;
    } else {
      entries_.erase(found);  // the step was forgotten meanwhile, so no later call would erase it
    }
  }
  for (ReplyDone& done : waiting) std::move(done)(reply);
}

void ReplyCache::Forget(int64_t request_id) {
  Entry dropped;
  MutexLock lock(mutex_);
  const auto found = entries_.find(request_id);
  // Whoever waits for a reply still gets it.
  if (found == entries_.end() || !found->second.reply) return;
  dropped = std::move(found->second);
  entries_.erase(found);
  const auto step = by_step_.find(dropped.step_id);
  if (step == by_step_.end()) return;
  step->second.erase(request_id);
  if (step->second.empty()) by_step_.erase(step);
}

void ReplyCache::ForgetStep(int64_t step_id) {
  absl::flat_hash_set<int64_t> requests;
  {
    MutexLock lock(mutex_);
    const auto found = by_step_.find(step_id);
    if (found == by_step_.end()) return;
    requests = std::move(found->second);
    by_step_.erase(found);
  }
  for (int64_t request : requests) Forget(request);
}

}  // namespace muster
