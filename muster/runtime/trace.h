// What a traced step did: start, end and memory of every kernel. Turned into RunMetadata at the
// edge.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "muster/base/mutex.h"
#include "muster/device/gpu/gpu_times.h"
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
    bool is_on_device = false;
  };
  std::vector<OutputTrace> outputs;
  std::string label = {};  // for timelines; empty: the node with its inputs
};

// Thread-safe.
class StepTrace {
 public:
  void Add(NodeTrace node) {
    MutexLock lock(mutex_);
    nodes_.push_back(std::move(node));
  }
  // What the cards of the task do for the step.
  GpuTimes& gpu_times() {
    MutexLock lock(mutex_);
    if (gpu_times_ == nullptr) gpu_times_ = std::make_unique<GpuTimes>();
    return *gpu_times_;
  }
  // After the step. What cards did has rows and names as TensorFlow's device tracer gives them: its
  // timelines know the rows by "/stream:" and "/memcpy", and split names at the colon.
  std::vector<NodeTrace> Take() {
    std::vector<NodeTrace> nodes;
    std::unique_ptr<GpuTimes> times;
    {
      MutexLock lock(mutex_);
      nodes = std::move(nodes_);
      times = std::move(gpu_times_);
    }
    if (times == nullptr) return nodes;
    for (GpuTimedCall& call : times->Take()) {
      NodeTrace trace;
      trace.device = absl::StrCat(absl::StripPrefix(call.device, "/job:localhost/replica:0/task:0"),
                                  call.is_copy ? "/memcpy" : "/stream:all");
      trace.node = absl::StrCat(call.node, ":", call.op);
      trace.op = std::move(call.op);
      trace.scheduled_nanos = trace.start_nanos = call.start_nanos;
      trace.end_nanos = call.end_nanos;
      trace.label = std::move(call.what);
      nodes.push_back(std::move(trace));
    }
    return nodes;
  }

 private:
  Mutex mutex_;
  std::vector<NodeTrace> nodes_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GpuTimes> gpu_times_ ABSL_GUARDED_BY(mutex_);  // null: no card was asked
};

}  // namespace muster
