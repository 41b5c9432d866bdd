#include "muster/worker/remote_rendezvous.h"

#include <algorithm>

#include "absl/strings/match.h"

#include "muster/base/in_order.h"
#include "muster/base/threads/waiting_thread.h"
#include "muster/device/device_name.h"
#include "muster/tensor/memory_guard.h"
#include "muster/worker/transfer_key.h"

namespace muster {
namespace {

absl::string_view SourceOf(absl::string_view key) {
  return key.substr(0, key.find(';'));
}

absl::Status WrongTask(absl::string_view source, absl::string_view task) {
  return InvalidArgument("Invalid rendezvous key (src): ", source, " @ ", task);
}

// Outside of loops, where no frame has a number.
bool IsPlainKey(absl::string_view key) {
  return absl::EndsWith(key, ";0:0");
}

}  // namespace

void RemoteRendezvous::Refuse(AskedByTask& wanted, const absl::Status& reason) {
  for (auto& [task, asked] : wanted) {
    for (RecvDone& done : asked.wanted.dones) std::move(done)(reason);
  }
}

void RemoteRendezvous::Bind(std::string task, std::shared_ptr<Peers> peers) {
  Answers turned_away;
  {
    MutexLock lock(mutex_);
    if (!task_.empty()) return;
    task_ = std::move(task);
    peers_ = std::move(peers);
    if (slots_.empty()) return;
    std::vector<std::string> emptied;
    for (auto* entry : InOrder(slots_)) {
      auto& [key, slot] = *entry;
      const absl::string_view source = SourceOf(key);
      if (slot.waiting.empty() || TaskOf(source) == task_) continue;
      for (Waiting& waiting : slot.waiting) {
        waiting_peers_.erase(waiting.token);
        turned_away.emplace_back(std::move(waiting.done), WrongTask(source, task_));
      }
      emptied.push_back(key);
    }
    for (const std::string& key : emptied) slots_.erase(key);
  }
  for (auto& [done, status] : turned_away) std::move(done)(std::move(status));
}

absl::Status RemoteRendezvous::Send(absl::string_view key, Value value) {
  RecvDone done;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return aborted_;
    Slot& slot = slots_[key];
    if (slot.waiting.empty()) {
      slot.values.push_back(std::move(value));
      return absl::OkStatus();
    }
    Waiting first = std::move(slot.waiting.front());
    slot.waiting.erase(slot.waiting.begin());
    if (slot.waiting.empty()) slots_.erase(key);
    if (first.token != 0) waiting_peers_.erase(first.token);
    done = std::move(first.done);
  }
  // The receiver's work, such as a reply, does not belong to the kernel that sends.
  const CatchesLackOfMemory not_here(false);
  std::move(done)(std::move(value));
  return absl::OkStatus();
}

void RemoteRendezvous::RecvAsync(absl::string_view key, RecvDone done) {
  const absl::string_view from = TaskOf(SourceOf(key));
  absl::Status refused;
  bool is_remote;
  std::shared_ptr<Peers> peers;
  {
    MutexLock lock(mutex_);
    refused = !aborted_.ok() ? aborted_ : receives_cancelled_;
    is_remote = !from.empty() && from != task_;
    if (refused.ok() && is_remote) {
      // Nearly always something has been wanted of the same task in this turn.
      if (const auto asked = wanted_.find(from); asked != wanted_.end())
        return asked->second.wanted.Add(key, std::move(done));
      peers = peers_;
    }
  }
  if (!refused.ok()) {
    std::move(done)(std::move(refused));
  } else if (is_remote) {
    RecvFromPeer(key, std::string(from), std::move(peers), std::move(done));
  } else {
    RecvHere(std::string(key), 0, std::move(done));
  }
}

void RemoteRendezvous::RecvHere(const std::string& key, Token token, RecvDone done) {
  absl::StatusOr<Value> result = absl::UnknownError("");
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) {
      result = aborted_;
    } else if (token == 0 && !receives_cancelled_.ok()) {
      result = receives_cancelled_;
    } else {
      const std::string canonical = token == 0 ? key : CanonicalLocked(key);
      if (token != 0 && !task_.empty() && TaskOf(SourceOf(key)) != task_) {
        result = WrongTask(SourceOf(key), task_);
      } else {
        Slot& slot = slots_[canonical];
        if (slot.values.empty()) {
          slot.waiting.push_back({token, std::move(done)});
          if (token != 0) waiting_peers_.emplace(token, canonical);
          return;
        }
        result = std::move(slot.values.front());
        slot.values.erase(slot.values.begin());
        if (slot.values.empty()) slots_.erase(canonical);
      }
    }
  }
  std::move(done)(std::move(result));
}

RemoteRendezvous::Token RemoteRendezvous::RecvForPeer(absl::string_view key, RecvDone done) {
  Token token;
  {
    MutexLock lock(mutex_);
    token = ++last_id_;
  }
  RecvHere(std::string(key), token, std::move(done));
  return token;
}

std::vector<RecvTensorsReply::Tensor> RemoteRendezvous::TakeReady(const KeyList& keys,
                                                                  size_t enough_bytes) {
  std::vector<RecvTensorsReply::Tensor> taken;
  MutexLock lock(mutex_);
  if (!aborted_.ok() || slots_.empty()) return taken;
  taken.reserve(keys.size());
  size_t bytes = 0;
  for (size_t i = 0; i < keys.size() && bytes < enough_bytes; ++i) {
    if (!IsPlainKey(keys[i])) continue;
    const auto slot = slots_.find(keys[i]);
    if (slot == slots_.end() || slot->second.values.empty()) continue;
    auto& values = slot->second.values;
    taken.push_back({i, std::move(values.front())});
    const Value& value = taken.back().value;
    if (!value.is_dead && value.tensor.valid()) bytes += value.tensor.size_bytes();
    values.erase(values.begin());
    if (values.empty()) slots_.erase(slot);
  }
  return taken;
}

bool RemoteRendezvous::StopWaiting(Token token) {
  Waiting dropped;
  MutexLock lock(mutex_);
  const auto peer = waiting_peers_.find(token);
  if (peer == waiting_peers_.end()) return false;
  const auto slot = slots_.find(peer->second);
  auto& waiting = slot->second.waiting;
  const auto at = std::find_if(waiting.begin(), waiting.end(),
                               [token](const Waiting& w) { return w.token == token; });
  dropped = std::move(*at);
  waiting.erase(at);
  if (waiting.empty()) slots_.erase(slot);
  waiting_peers_.erase(peer);
  return true;
}

std::string RemoteRendezvous::CanonicalLocked(absl::string_view key) {
  if (IsPlainKey(key)) return std::string(key);
  const absl::StatusOr<TransferKey> parsed = TransferKey::Parse(key);
  if (!parsed.ok() || parsed->frame == 0) return std::string(key);
  const auto alias = aliases_.find(parsed->frame);
  if (alias != aliases_.end()) return parsed->InFrame(alias->second, key);
  unknown_frames_[parsed->frame].emplace_back(key);
  return std::string(key);
}

void RemoteRendezvous::AliasFrame(uint64_t frame, uint64_t alias) {
  Answers answers;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aliases_.emplace(frame, frame);
    unknown_frames_.erase(frame);
    if (!aliases_.emplace(alias, frame).second) return;
    const auto unknown = unknown_frames_.find(alias);
    if (unknown == unknown_frames_.end()) return;
    for (const std::string& key : unknown->second) {
      const auto old = slots_.find(key);
      if (old == slots_.end() || old->second.waiting.empty()) continue;
      auto moved = std::move(old->second.waiting);
      slots_.erase(old);
      const std::string canonical = TransferKey::Parse(key)->InFrame(frame, key);
      Slot& slot = slots_[canonical];
      for (Waiting& waiting : moved) {
        if (slot.values.empty()) {
          waiting_peers_[waiting.token] = canonical;
          slot.waiting.push_back(std::move(waiting));
          continue;
        }
        waiting_peers_.erase(waiting.token);
        answers.emplace_back(std::move(waiting.done), std::move(slot.values.front()));
        slot.values.erase(slot.values.begin());
      }
      if (slot.values.empty() && slot.waiting.empty()) slots_.erase(canonical);
    }
    unknown_frames_.erase(unknown);
  }
  // The executor that tells of a frame holds a lock.
  if (!answers.empty()) AnswerSoon(std::move(answers));
}

void RemoteRendezvous::AnswerSoon(Answers answers) {
  scheduler_.Schedule([answers = std::move(answers)]() mutable {
    for (auto& [done, value] : answers) std::move(done)(std::move(value));
  });
}

void RemoteRendezvous::Abort(absl::Status reason) {
  reason = Derived(std::move(reason));
  absl::flat_hash_map<std::string, Slot> slots;
  std::map<uint64_t, std::shared_ptr<Cancellation>> calls;
  decltype(wanted_) wanted;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = reason;
    slots.swap(slots_);
    calls.swap(calls_);
    wanted.swap(wanted_);
    waiting_peers_.clear();
    unknown_frames_.clear();
    peers_ = nullptr;
  }
  for (auto& [id, call] : calls) call->Cancel(reason);
  Refuse(wanted, reason);
  if (slots.empty()) return;  // as at the end of most steps
  for (auto* entry : InOrder(slots)) {
    for (Waiting& waiting : entry->second.waiting) std::move(waiting.done)(reason);
  }
}

void RemoteRendezvous::CancelReceives(absl::Status reason) {
  std::vector<RecvDone> ended;
  std::map<uint64_t, std::shared_ptr<Cancellation>> calls;
  decltype(wanted_) wanted;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok() || !receives_cancelled_.ok()) return;
    receives_cancelled_ = reason;
    calls.swap(calls_);
    wanted.swap(wanted_);
    std::vector<std::string> emptied;
    for (auto* entry : InOrder(slots_)) {
      auto& [key, slot] = *entry;
      absl::InlinedVector<Waiting, 1> peers;
      for (Waiting& waiting : slot.waiting) {
        if (waiting.token == 0) {
          ended.push_back(std::move(waiting.done));
        } else {
          peers.push_back(std::move(waiting));
        }
      }
      slot.waiting = std::move(peers);
      if (slot.waiting.empty() && slot.values.empty()) emptied.push_back(key);
    }
    for (const std::string& key : emptied) slots_.erase(key);
  }
  for (auto& [id, call] : calls) call->Cancel(reason);
  Refuse(wanted, reason);
  for (RecvDone& done : ended) std::move(done)(reason);
}

void RemoteRendezvous::RecvFromPeer(absl::string_view key, const std::string& task,
                                    std::shared_ptr<Peers> peers, RecvDone done) {
  std::shared_ptr<WorkerApi> worker = peers == nullptr ? nullptr : peers->Worker(task);
  if (worker == nullptr) {
    std::move(done)(Internal("No worker known as ", task));
    return;
  }
  if (!worker->IsMuster()) return AskForOne(std::move(worker), std::string(key), std::move(done));
  absl::Status refused;
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    refused = !aborted_.ok() ? aborted_ : receives_cancelled_;
    if (refused.ok()) {
      is_first = wanted_.empty();
      Asked& asked = wanted_[task];
      asked.worker = std::move(worker);
      asked.wanted.Add(key, std::move(done));
    }
  }
  if (!refused.ok()) {
    std::move(done)(std::move(refused));
  } else if (is_first) {
    WaitingThread::Current().AtEndOfTurn([self = shared_from_this()] { self->AskPeers(); });
  }
}

void RemoteRendezvous::AskPeers() {
  decltype(wanted_) wanted;
  {
    MutexLock lock(mutex_);
    wanted.swap(wanted_);
  }
  for (auto& [task, asked] : wanted) AskFor(asked.worker, std::move(asked.wanted));
}

void RemoteRendezvous::AskFor(const std::shared_ptr<WorkerApi>& worker, WantedList wanted) {
  constexpr size_t kMost = RecvTensorsRequest::kMaxKeys;
  const auto ask = [&](WantedList list) {
    if (list.size() > 1) return AskForSeveral(worker, std::move(list));
    if (list.size() == 1) AskForOne(worker, std::string(list.keys[0]), std::move(list.dones[0]));
  };
  if (wanted.size() <= kMost) return ask(std::move(wanted));
  for (size_t begin = 0; begin < wanted.size(); begin += kMost) {
    WantedList part;
    for (size_t i = begin; i < std::min(wanted.size(), begin + kMost); ++i)
      part.Add(wanted.keys[i], std::move(wanted.dones[i]));
    ask(std::move(part));
  }
}

absl::StatusOr<uint64_t> RemoteRendezvous::OpenCall(std::shared_ptr<Cancellation> call) {
  MutexLock lock(mutex_);
  if (!aborted_.ok()) return aborted_;
  if (!receives_cancelled_.ok()) return receives_cancelled_;
  calls_.emplace(++last_id_, std::move(call));
  return last_id_;
}

void RemoteRendezvous::CloseCall(uint64_t id) {
  MutexLock lock(mutex_);
  calls_.erase(id);
}

void RemoteRendezvous::Log(absl::string_view key, const Tensor& tensor, int64_t start_nanos) {
  log_->CountReceived(tensor);
  if (!log_->enabled()) return;
  log_->Record(step_id_, key, tensor, start_nanos, scheduler_.clock().NowNanos());
}

void RemoteRendezvous::AskForOne(std::shared_ptr<WorkerApi> worker, std::string key,
                                 RecvDone received) {
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  const absl::StatusOr<uint64_t> id = OpenCall(options.cancellation);
  if (!id.ok()) {
    std::move(received)(id.status());
    return;
  }
  RecvTensorRequest request{step_id_, key, NewRequestId()};
  WorkerApi& to = *worker;
  auto done = [self = shared_from_this(), worker = std::move(worker), key = std::move(key),
               received = std::move(received), call = options.cancellation, id = *id,
               request_id = request.request_id, start = scheduler_.clock().NowNanos()](
                  absl::StatusOr<RecvTensorReply> reply) mutable {
    self->CloseCall(id);
    if (!reply.ok()) {
      std::move(received)(call->cancelled() ? call->reason() : reply.status());
      return;
    }
    if (reply->require_ack)
      worker->MarkRecvFinished({}, request_id, [worker](absl::StatusOr<Empty>) {});
    self->Log(key, reply->value.tensor, start);
    std::move(received)(std::move(reply->value));
  };
  to.RecvTensor(std::move(options), std::move(request), std::move(done));
}

void RemoteRendezvous::AskForSeveral(std::shared_ptr<WorkerApi> worker, WantedList wanted) {
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  const absl::StatusOr<uint64_t> id = OpenCall(options.cancellation);
  if (!id.ok()) {
    for (RecvDone& done : wanted.dones) std::move(done)(id.status());
    return;
  }
  RecvTensorsRequest request;
  request.step_id = step_id_;
  request.request_id = NewRequestId();
  request.keys = wanted.keys;
  WorkerApi& to = *worker;
  auto done = [self = shared_from_this(), worker = std::move(worker), wanted = std::move(wanted),
               call = options.cancellation, id = *id, start = scheduler_.clock().NowNanos()](
                  absl::StatusOr<RecvTensorsReply> reply) mutable {
    self->CloseCall(id);
    if (!reply.ok() && call->cancelled()) reply = call->reason();
    self->Received(worker, std::move(wanted), start, std::move(reply));
  };
  to.RecvTensors(std::move(options), std::move(request), std::move(done));
}

void RemoteRendezvous::Received(const std::shared_ptr<WorkerApi>& worker, WantedList wanted,
                                int64_t start_nanos, absl::StatusOr<RecvTensorsReply> reply) {
  // Messages that follow from these values are sent together too.
  const Turn turn;
  if (absl::IsUnimplemented(reply.status())) {
    // Another program has taken the task's place.
    for (size_t i = 0; i < wanted.size(); ++i)
      AskForOne(worker, std::string(wanted.keys[i]), std::move(wanted.dones[i]));
    return;
  }
  std::vector<bool> has_come(wanted.size());
  size_t num_come = 0;
  if (reply.ok()) {
    // Tensors that were not requested are dropped.
    std::erase_if(reply->tensors, [&](const RecvTensorsReply::Tensor& tensor) {
      if (tensor.index >= wanted.size() || has_come[tensor.index]) return true;
      has_come[tensor.index] = true;
      ++num_come;
      return false;
    });
    if (num_come == 0) reply = Internal("RecvTensors was answered without a tensor");
  }
  if (!reply.ok()) {
    for (RecvDone& done : wanted.dones) std::move(done)(reply.status());
    return;
  }
  if (num_come < wanted.size()) {
    WantedList rest;
    for (size_t i = 0; i < wanted.size(); ++i)
      if (!has_come[i]) rest.Add(wanted.keys[i], std::move(wanted.dones[i]));
    AskFor(worker, std::move(rest));
  }
  for (RecvTensorsReply::Tensor& tensor : reply->tensors) {
    Log(wanted.keys[tensor.index], tensor.value.tensor, start_nanos);
    std::move(wanted.dones[tensor.index])(std::move(tensor.value));
  }
}

}  // namespace muster
