// How bytes of collectives get from task to task in one step.
#pragma once

#include <memory>
#include <string>

#include "muster/collective/step/collective_buffers.h"
#include "muster/runtime/collectives.h"
#include "muster/transport/api/peers.h"
#include "muster/worker/transfer_log.h"

namespace muster {

// Thread-safe.
class TaskExchange : public CollectiveExchange, public std::enable_shared_from_this<TaskExchange> {
 public:
  // Schedulers outlive what is running.
  TaskExchange(std::string task, std::shared_ptr<Peers> peers, int64_t step_id,
               std::shared_ptr<CollectiveBuffers> buffers, std::shared_ptr<TransferLog> log,
               Scheduler& control, Scheduler& compute)
      : task_(std::move(task)),
        peers_(std::move(peers)),
        step_id_(step_id),
        buffers_(std::move(buffers)),
        log_(std::move(log)),
        control_(control),
        compute_(compute) {}

  void Provide(std::string key, Buffer bytes, Done consumed) override {
    buffers_->Provide(key, std::move(bytes), std::move(consumed));
  }
  void Fetch(const CollectiveGroup::Member& from, const DeviceAttributes& to, std::string key,
             size_t num_bytes, std::shared_ptr<Cancellation> cancellation, Fetched done) override;
  void WatchConsumer(const CollectiveGroup::Member& to, std::shared_ptr<Cancellation> cancellation,
                     Done lost) override;
  void Abort(const absl::Status& reason) override { buffers_->Abort(Derived(reason)); }

 private:
  void Ask(const CollectiveGroup::Member& from, const std::string& to, std::string key,
           size_t num_bytes, std::shared_ptr<Cancellation> cancellation, Fetched done);

  const std::string task_;
  const std::shared_ptr<Peers> peers_;
  const int64_t step_id_;
  const std::shared_ptr<CollectiveBuffers> buffers_;
  const std::shared_ptr<TransferLog> log_;
  Scheduler& control_;
  Scheduler& compute_;
};

// Asks a task now and then whether it lives, until `over` is cancelled; `lost` is called once, when
// it does not, with an error that names it.
void WatchTask(std::shared_ptr<Peers> peers, const std::string& task, Scheduler& scheduler,
               std::shared_ptr<Cancellation> over,
               absl::AnyInvocable<void(const absl::Status&) &&> lost);

}  // namespace muster
