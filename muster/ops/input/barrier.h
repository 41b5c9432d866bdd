// Barriers: components of one key come at different times and leave together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/ops/input/queue.h"

namespace muster {

// Thread-safe.
class Barrier : public Resource {
 public:
  static constexpr const char* kTypeName = "N10tensorflow7barrier7BarrierE";
  Barrier(std::string name, std::vector<DType> dtypes, std::vector<PartialShape> shapes);
  std::string Describe() const override { return "Barrier"; }
  const std::string& name() const { return name_; }
  const std::vector<DType>& dtypes() const { return dtypes_; }
  const std::vector<PartialShape>& shapes() const { return shapes_; }

  // Row i of `values` becomes the component of key i. Keys with all components become ready, in
  // the order in which they were first seen.
  absl::Status Insert(int component, const Tensor& keys, const Tensor& values);
  // {indices, keys, values...} of ready keys; waits for them.
  void Take(int64_t count, bool allow_fewer, Queue::OnWait on_wait, Queue::TupleDone done);
  // No new keys from now on; with `cancel_pending_enqueues` incomplete ones are dropped too.
  absl::Status Close(bool cancel_pending_enqueues);
  int64_t ready_size() const { return ready_->size(); }
  int64_t incomplete_size() const;

  bool Cancel(uint64_t ticket) { return ready_->Cancel(ticket); }
  void Flush() { ready_->Flush(); }

 private:
  struct Entry {
    int64_t index = 0;
    std::vector<Tensor> components;
  };
  absl::Status InsertOneLocked(int component, const std::string& key, int64_t row, Tensor value,
                               std::vector<Queue::Tuple>& ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseReadyQueue();

  const std::string name_;
  const std::vector<DType> dtypes_;
  const std::vector<PartialShape> shapes_;
  const RefPtr<Queue> ready_;
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  int inserting_ ABSL_GUARDED_BY(mutex_) = 0;  // whose ready keys are on their way to `ready_`
  bool has_new_keys_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t next_index_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Entry> incomplete_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
