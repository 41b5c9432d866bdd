// What a traced step did: start, end and memory of every kernel. Turned into RunMetadata at the
// edge.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/tensor/tensor.h"

namespace muster {

struct NodeTrace {
  std::string device;
  std::string node;
  std::string op;
  int64_t scheduled_nanos = 0;
  int64_t start_nanos = 0;
  int64_t end_nanos = 0;
  uint32_t thread_id = 0;
  struct OutputTrace {
    int slot = 0;
    DType dtype = DType::kInvalid;
    Shape shape;
    int64_t bytes = 0;
  };
  std::vector<OutputTrace> outputs;
};

// Thread-safe.
class StepTrace {
 public:
  void Add(NodeTrace node) {
    MutexLock lock(mutex_);
    nodes_.push_back(std::move(node));
  }
  std::vector<NodeTrace> Take() {
    MutexLock lock(mutex_);
    return std::move(nodes_);
  }

 private:
  Mutex mutex_;
  std::vector<NodeTrace> nodes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
