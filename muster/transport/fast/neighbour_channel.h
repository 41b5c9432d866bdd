// A way to a task that becomes faster when the task turns out to take links.
#pragma once

#include <memory>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/settings.h"
#include "muster/transport/fast/fast_link.h"

namespace muster::fast {

// Calls go over `slow`, which reaches any task, until a link is there; and again when it breaks.
// Tasks of this machine that are reached through a proxy have none: it stands there on purpose.
// Thread-safe.
class NeighbourChannel final : public Channel,
                               public std::enable_shared_from_this<NeighbourChannel> {
 public:
  // `name` is how error texts call the other side. `links` may not be kNone. `scheduler` outlives
  // the channel.
  NeighbourChannel(std::shared_ptr<const Channel> slow, std::string name, Links links,
                   Scheduler& scheduler, size_t max_message_bytes)
      : slow_(std::move(slow)),
        name_(std::move(name)),
        links_(links),
        scheduler_(scheduler),
        max_message_bytes_(max_message_bytes) {}

  void Call(absl::string_view service, absl::string_view method, CallOptions options,
            absl::StatusOr<WireMessage> request, Done done) const override;
  void Reconnect() const override { slow_->Reconnect(); }
  void Renew() const override;
  const std::string& address() const override { return slow_->address(); }

 private:
  // Null: none yet. Looks for one where that is worthwhile.
  std::shared_ptr<FastLink> FindLink() const;
  void Look() const;
  void Connect(uint64_t incarnation) const;
  void Found(absl::StatusOr<std::shared_ptr<FastLink>> link) const;

  const std::shared_ptr<const Channel> slow_;
  const std::string name_;
  const Links links_;
  Scheduler& scheduler_;
  const size_t max_message_bytes_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<FastLink> link_ ABSL_GUARDED_BY(mutex_);
  mutable int calls_until_look_ ABSL_GUARDED_BY(mutex_) = 1;
  mutable int calls_between_looks_ ABSL_GUARDED_BY(mutex_) = 20;  // should the next find nothing
};

}  // namespace muster::fast
