#include "muster/worker/batch_receive.h"

#include "muster/base/threads/waiting_thread.h"

namespace muster {

void BatchReceive::Start() {
  // Most often the values are there before they are asked for.
  RecvTensorsReply ready{options_.step->rendezvous->TakeReady(options_.keys, kEnoughBytes)};
  if (!ready.tensors.empty()) {
    for (const RecvTensorsReply::Tensor& each : ready.tensors)
      if (options_.log != nullptr) options_.log->CountSent(each.value.tensor);
    return std::move(options_.done)(std::move(ready));
  }
  for (size_t i = 0; i < options_.keys.size(); ++i) {
    {
      MutexLock lock(mutex_);
      if (bytes_ >= kEnoughBytes || !status_.ok()) break;
      ++left_;
    }
    const RemoteRendezvous::Token token = options_.step->rendezvous->RecvForPeer(
        options_.keys[i], [self = shared_from_this(), i](absl::StatusOr<Rendezvous::Value> value) {
          self->Arrived(i, std::move(value));
        });
    MutexLock lock(mutex_);
    waiting_[i].token = token;
  }
  bool has_some;
  {
    MutexLock lock(mutex_);
    asking_ = false;
    has_some = !reply_.tensors.empty() || !status_.ok();
  }
  if (has_some) return Close();
  on_cancel_.StartScheduled(
      options_.caller, *options_.control, weak_from_this(),
      [](BatchReceive& self, const absl::Status& reason) { self.Cancel(reason); });
}

void BatchReceive::Arrived(size_t index, absl::StatusOr<Rendezvous::Value> value) {
  bool close_now = false;
  bool close_soon = false;
  {
    MutexLock lock(mutex_);
    waiting_[index].is_over = true;
    --left_;
    if (value.ok()) {
      if (options_.log != nullptr) options_.log->CountSent(value->tensor);
      if (!value->is_dead && value->tensor.valid()) bytes_ += value->tensor.size_bytes();
      reply_.tensors.push_back({index, *std::move(value)});
    } else if (status_.ok()) {
      status_ = value.status();
    }
    if (asking_) return;
    if (!closed_) {
      close_now = left_ == 0 || bytes_ >= kEnoughBytes || !status_.ok();
      close_soon = !close_now && !std::exchange(closes_soon_, true);
    }
  }
  if (close_now) return Close();
  if (close_soon)
    return WaitingThread::Current().AtEndOfTurn([self = shared_from_this()] { self->Close(); });
  AnswerIfOver();
}

void BatchReceive::Close() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
  }
  StopWaiting();
  AnswerIfOver();
}

void BatchReceive::Cancel(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    status_ = reason;
  }
  // The step cannot go on without the receiver.
  const auto count = static_cast<int64_t>(options_.keys.size());
  if (StopWaiting() > 0 && options_.steps->ReceiveStopped(options_.step, count)) {
    options_.step->AbortAfter(options_.cancel_grace, *options_.control);
  }
  AnswerIfOver();
}

int64_t BatchReceive::StopWaiting() {
  std::vector<std::pair<size_t, RemoteRendezvous::Token>> open;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (waiting_[i].token != 0 && !waiting_[i].is_over) open.emplace_back(i, waiting_[i].token);
    }
  }
  int64_t stopped = 0;
  for (const auto& [index, token] : open) {
    if (!options_.step->rendezvous->StopWaiting(token)) continue;  // it is on its way
    ++stopped;
    MutexLock lock(mutex_);
    waiting_[index].is_over = true;
  }
  MutexLock lock(mutex_);
  left_ -= stopped;
  return stopped;
}

void BatchReceive::AnswerIfOver() {
  CallDone<RecvTensorsReply> done;
  absl::Status status;
  RecvTensorsReply reply;
  {
    MutexLock lock(mutex_);
    if (!closed_ || left_ != 0 || !options_.done) return;
    done = std::move(options_.done);
    options_.done = nullptr;
    status = std::move(status_);
    reply = std::move(reply_);
  }
  on_cancel_.Release();
  if (status.ok()) {
    std::move(done)(std::move(reply));
  } else {
    std::move(done)(std::move(status));
  }
}

}  // namespace muster
