#include "muster/transport/grpc/waiting_calls.h"

#include <utility>
#include <vector>

#include "muster/base/threads/thread_name.h"

namespace muster {
namespace {

constexpr int kLooksUntilAsleep = 10;

}  // namespace

WaitingCalls::WaitingCalls(std::string thread_name, absl::Duration first_pause, Look look)
    : first_pause_(first_pause),
      look_(std::move(look)),
      thread_([this, name = std::move(thread_name)] {
        NameThread(name);
        Run();
      }) {}

WaitingCalls::~WaitingCalls() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  thread_.join();
}

void WaitingCalls::Begin(Call& call) {
  MutexLock lock(mutex_);
  call.place_ = waiting_.insert(waiting_.end(), &call);
  call.is_listed_ = true;
  if (!is_asleep_) return;
  is_asleep_ = false;
  changed_.NotifyOne();
}

bool WaitingCalls::End(Call& call) {
  MutexLock lock(mutex_);
  if (!call.is_listed_) return false;
  waiting_.erase(call.place_);
  call.is_listed_ = false;
  return true;
}

void WaitingCalls::ForEach(absl::FunctionRef<void(Call&)> visit) const {
  MutexLock lock(mutex_);
  for (Call* const call : waiting_) visit(*call);
}

void WaitingCalls::RefuseEach(absl::FunctionRef<bool(Call&)> is_meant, const absl::Status& why) {
  std::vector<Call*> refused;
  {
    MutexLock lock(mutex_);
    waiting_.remove_if([&](Call* call) {
      if (!is_meant(*call)) return false;
      call->is_listed_ = false;
      refused.push_back(call);
      return true;
    });
  }
  for (Call* const call : refused) call->Refuse(why);
}

void WaitingCalls::Run() {
  while (WaitForNextLook()) pause_ = look_();
}

bool WaitingCalls::WaitForNextLook() {
  MutexLock lock(mutex_);
  looks_without_calls_ = waiting_.empty() ? looks_without_calls_ + 1 : 0;
  if (looks_without_calls_ > kLooksUntilAsleep) {
    is_asleep_ = true;
    while (is_asleep_ && !stopping_) changed_.Wait(mutex_);
    pause_ = first_pause_;
  }
  if (!stopping_) changed_.WaitFor(mutex_, pause_);
  return !stopping_;
}

}  // namespace muster
