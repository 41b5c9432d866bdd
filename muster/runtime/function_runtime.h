// Runs functions of a graph's library for kernels: one set of executors per function, made when it
// is first asked for and kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/runtime/local_partitions.h"

namespace muster {

// Thread-safe. A call has the caller's step container, cancellation and trace; values that its
// devices exchange pass through a rendezvous of its own, since calls may run side by side. Held by
// shared pointers: what calls functions when the step is over (an iterator) keeps it.
class FunctionRuntime : public FunctionCaller,
                        public std::enable_shared_from_this<FunctionRuntime> {
 public:
  // Devices and resources outlive this, devices perhaps because `keep` does; the library does not
  // change.
  FunctionRuntime(std::shared_ptr<const Graph> library, std::vector<Device*> devices,
                  ResourceManager& resources, LocalPartitions::Options options,
                  std::shared_ptr<const void> keep = nullptr)
      : keep_(std::move(keep)),
        library_(std::move(library)),
        devices_(std::move(devices)),
        resources_(resources),
        options_(options) {}

  Device* FindDevice(absl::string_view name) const override;
  absl::StatusOr<Handle> Instantiate(const FunctionRef& function, const CallSite& site) override;
  void Call(Handle handle, std::vector<Tensor> arguments, Step& step, CallDone done) override;

 private:
  struct Instance {
    std::string name;
    std::vector<DType> argument_types;
    size_t num_results = 0;
    std::unique_ptr<LocalPartitions> partitions;
  };
  absl::StatusOr<std::unique_ptr<Instance>> Make(const FunctionRef& function,
                                                 const CallSite& site) const;

  const std::shared_ptr<const void> keep_;
  const std::shared_ptr<const Graph> library_;
  const std::vector<Device*> devices_;
  ResourceManager& resources_;
  const LocalPartitions::Options options_;

  Mutex mutex_;
  absl::flat_hash_map<std::string, Handle> by_key_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Instance>> instances_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
