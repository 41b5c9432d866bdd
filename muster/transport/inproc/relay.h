// Calls between tasks of one process: the part that does not depend on how they travel.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "muster/base/cancel_callback.h"
#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/api/forwarding.h"
#include "muster/transport/api/peers.h"
#include "muster/transport/api/task_status.h"

namespace muster {

// What listens at an address. Any may be null.
struct Endpoint {
  std::shared_ptr<WorkerApi> worker;
  std::shared_ptr<MasterApi> master;
  std::shared_ptr<StatusApi> status = nullptr;
};

// A call on its way. Thread-safe.
class RelayedCall {
 public:
  RelayedCall(std::string from_address, std::string to_address, bool waits)
      : from(std::move(from_address)), to(std::move(to_address)), wait_for_ready(waits) {}
  virtual ~RelayedCall() = default;
  const std::string from;
  const std::string to;
  const bool wait_for_ready;
  uint64_t number = 0;  // for the carrier, which sets it before anything else happens

  // Makes the call at its destination. Once.
  virtual void Deliver(const Endpoint& endpoint) = 0;
  // The caller gets an error; a reply that comes later is dropped.
  virtual void Fail(absl::Status status) = 0;
  // The caller has its answer.
  virtual bool answered() const = 0;
  // Cancels the call where it is served: the caller is gone.
  void CancelAtServer(absl::Status reason) { server_->Cancel(std::move(reason)); }

 protected:
  const std::shared_ptr<Cancellation> server_ = std::make_shared<Cancellation>();
};

// How calls travel. Thread-safe.
class Carrier {
 public:
  virtual ~Carrier() = default;
  // Has the call delivered, or fails it.
  virtual void Carry(std::shared_ptr<RelayedCall> call) = 0;
  // Runs `answer` where the reply arrives; dropping it loses the reply.
  virtual void CarryReply(const std::shared_ptr<RelayedCall>& call, Task answer) = 0;
  // The call has been answered, whichever way.
  virtual void Ended(RelayedCall& call) = 0;
  virtual Scheduler& scheduler() = 0;
};

// Starts calls of one kind of server from one address to another. `Call` is what Forward of
// forwarding.h gets.
class Relay {
 public:
  // `caller` has the address from which calls come as its host.
  Relay(std::shared_ptr<Carrier> carrier, std::shared_ptr<const Caller> caller, std::string to)
      : carrier_(std::move(carrier)), caller_(std::move(caller)), to_(std::move(to)) {}

  template <typename Api, typename Reply, typename Call>
  void Start(CallOptions options, CallDone<Reply> done, Call call) {
    const auto typed = std::make_shared<TypedCall<Api, Reply>>(
        carrier_, caller_, to_, std::move(options), std::move(done), std::move(call));
    typed->Start();
  }

 private:
  template <typename Api, typename Reply>
  class TypedCall;

  const std::shared_ptr<Carrier> carrier_;
  const std::shared_ptr<const Caller> caller_;
  const std::string to_;
};

template <typename Api, typename Reply>
class Relay::TypedCall : public RelayedCall,
                         public std::enable_shared_from_this<TypedCall<Api, Reply>> {
 public:
  using Function = absl::AnyInvocable<void(Api&, CallOptions, CallDone<Reply>) &&>;

  TypedCall(std::shared_ptr<Carrier> carrier, std::shared_ptr<const Caller> caller,
            const std::string& to_address, CallOptions options, CallDone<Reply> done, Function call)
      : RelayedCall(caller->host, to_address, options.wait_for_ready),
        carrier_(std::move(carrier)),
        caller_(std::move(caller)),
        options_(std::move(options)),
        done_(std::move(done)),
        call_(std::move(call)) {}

  void Start() {
    const std::weak_ptr<TypedCall> weak = this->weak_from_this();
    Scheduler& scheduler = carrier_->scheduler();
    if (options_.timeout < absl::InfiniteDuration()) {
      MutexLock lock(mutex_);
      timer_ = scheduler.ScheduleAfter(options_.timeout, [weak] {
        if (const auto self = weak.lock())
          self->GiveUp(absl::DeadlineExceededError("Deadline Exceeded"));
      });
    }
    const bool is_wanted = on_cancel_.StartScheduled(
        options_.cancellation, scheduler, weak,
        [](TypedCall& self, const absl::Status& reason) { self.GiveUp(reason); });
    if (is_wanted) carrier_->Carry(this->shared_from_this());
  }

  void Deliver(const Endpoint& endpoint) override {
    std::shared_ptr<Api> api;
    if constexpr (std::is_same_v<Api, WorkerApi>) {
      api = endpoint.worker;
    } else if constexpr (std::is_same_v<Api, StatusApi>) {
      api = endpoint.status;
    } else {
      api = endpoint.master;
    }
    if (api == nullptr) {
      Fail(absl::UnimplementedError(absl::StrCat("Nothing of the kind listens at ", to)));
      return;
    }
    CallOptions served;
    served.cancellation = server_;
    served.peer = CallOptions::Peer::kMuster;
    served.caller = caller_;
    Function call = std::move(call_);
    std::move(call)(*api, std::move(served),
                    [self = this->shared_from_this(), api](absl::StatusOr<Reply> reply) mutable {
                      Carrier& carrier = *self->carrier_;
                      carrier.CarryReply(self, [self, reply = std::move(reply)]() mutable {
                        self->Answer(std::move(reply));
                      });
                    });
  }

  void Fail(absl::Status status) override { Answer(std::move(status)); }
  bool answered() const override { return answered_.load(std::memory_order_acquire); }

 private:
  void GiveUp(const absl::Status& reason) {
    if (answered()) return;
    Fail(reason);
    CancelAtServer(absl::CancelledError("The caller has cancelled the call"));
  }

  void Answer(absl::StatusOr<Reply> reply) {
    if (answered_.exchange(true, std::memory_order_acq_rel)) return;
    const auto self = this->shared_from_this();  // the carrier may hold the last reference
    std::optional<Scheduler::TimerId> timer;
    {
      MutexLock lock(mutex_);
      timer = timer_;
    }
    if (timer) carrier_->scheduler().CancelTimer(*timer);
    on_cancel_.Release();
    carrier_->Ended(*this);
    std::move(done_)(std::move(reply));
  }

  const std::shared_ptr<Carrier> carrier_;
  const std::shared_ptr<const Caller> caller_;
  const CallOptions options_;
  std::atomic<bool> answered_{false};
  Mutex mutex_;
  std::optional<Scheduler::TimerId> timer_ ABSL_GUARDED_BY(mutex_);
  CallDone<Reply> done_;
  Function call_;
  CancelCallback on_cancel_;
};

// Peers and masters that are reached through `carrier`. A call from a task has its address in
// `cluster`.
std::shared_ptr<Peers> NewRelayedPeers(std::shared_ptr<Carrier> carrier,
                                       std::shared_ptr<const ClusterSpec> cluster,
                                       const TaskName& self,
                                       std::shared_ptr<WorkerApi> self_worker);
// "grpc://host:port". `from` is the caller's address.
absl::StatusOr<std::shared_ptr<MasterApi>> NewRelayedMaster(std::shared_ptr<Carrier> carrier,
                                                            std::string from,
                                                            absl::string_view target);

}  // namespace muster
