// The collectives of one step: finds the other ranks and runs this process's part.
#pragma once

#include <memory>

#include "muster/base/scheduler.h"
#include "muster/collective/step/collective_buffers.h"
#include "muster/runtime/collectives.h"

namespace muster {

// Thread-safe. `scheduler` outlives what is running.
class StepCollectives : public CollectiveExecutor {
 public:
  StepCollectives(std::shared_ptr<CollectiveResolver> resolver,
                  std::shared_ptr<CollectiveExchange> exchange, Scheduler& scheduler,
                  std::shared_ptr<DirectGroups> direct = nullptr)
      : resolver_(std::move(resolver)),
        exchange_(std::move(exchange)),
        scheduler_(scheduler),
        direct_(std::move(direct)) {}
  void Run(CollectiveCall call, Done done) override;
  DirectGroups* direct() override { return direct_.get(); }
  CollectiveExchange& exchange() { return *exchange_; }

 private:
  const std::shared_ptr<CollectiveResolver> resolver_;
  const std::shared_ptr<CollectiveExchange> exchange_;
  Scheduler& scheduler_;
  const std::shared_ptr<DirectGroups> direct_;
};

// Among devices of one process.
class LocalCollectiveExchange : public CollectiveExchange {
 public:
  explicit LocalCollectiveExchange(
      Scheduler& scheduler,
      std::shared_ptr<CollectiveBuffers> buffers = std::make_shared<CollectiveBuffers>())
      : scheduler_(scheduler), buffers_(std::move(buffers)) {}
  void Provide(std::string key, Buffer bytes, Done consumed) override {
    buffers_->Provide(key, std::move(bytes), std::move(consumed));
  }
  void Fetch(const CollectiveGroup::Member& from, const DeviceAttributes& to, std::string key,
             size_t num_bytes, std::shared_ptr<Cancellation> cancellation, Fetched done) override;
  void WatchConsumer(const CollectiveGroup::Member&, std::shared_ptr<Cancellation>, Done) override {
  }
  void Abort(const absl::Status& reason) override { buffers_->Abort(reason); }

 private:
  Scheduler& scheduler_;
  const std::shared_ptr<CollectiveBuffers> buffers_;
};

}  // namespace muster
