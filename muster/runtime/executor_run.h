// One step of an executor under way: which nodes are ready, what they have left to wait for, and
// the frames of loops.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

#include "muster/base/mutex.h"
#include "muster/device/running_node.h"
#include "muster/runtime/executor_plan.h"

namespace muster {

struct RunFrame;

// The state of one iteration of a frame.
struct RunIteration {
  RunIteration(const PlanFrame& plan, RunFrame* owner, int64_t number)
      : frame(owner),
        index(number),
        counts(new std::atomic<uint64_t>[plan.num_nodes]),
        inputs(plan.num_inputs) {
    Reset(plan);
  }
  void Reset(const PlanFrame& plan) {
    for (int i = 0; i < plan.num_nodes; ++i)
      counts[i].store(plan.initial_counts[i], std::memory_order_relaxed);
  }
  RunFrame* frame;
  int64_t index;
  std::unique_ptr<std::atomic<uint64_t>[]> counts;
  std::vector<Entry> inputs;
  // Nodes ready or running; counted in child frames only. A node is counted before the one that
  // made it ready is done.
  std::atomic<int64_t> outstanding_nodes{0};
  int64_t outstanding_frames = 0;  // guarded by frame->mutex
};

struct RunFrame {
  RunFrame(const PlanFrame& p, int plan_id, RunIteration* parent_it)
      : plan(p), plan_index(plan_id), parent(parent_it), pending_enters(p.enters) {}
  bool is_root() const { return parent == nullptr; }
  const PlanFrame& plan;
  const int plan_index;
  FrameName name;
  uint64_t id = 0;  // by which peers know it; 0 is the root
  RunIteration* const parent;
  Mutex mutex;
  int pending_enters ABSL_GUARDED_BY(mutex);
  int64_t last_iteration ABSL_GUARDED_BY(mutex) = 0;
  std::deque<std::unique_ptr<RunIteration>> iterations
      ABSL_GUARDED_BY(mutex);  // oldest first, contiguous
  std::vector<std::pair<int, Entry>> next_roots
      ABSL_GUARDED_BY(mutex);  // NextIteration nodes that wait
  std::vector<std::pair<int, Entry>> constants ABSL_GUARDED_BY(mutex);  // from constant Enters
  std::vector<int> dead_exits ABSL_GUARDED_BY(mutex);

  RunIteration* Find(int64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (iterations.empty() || index < iterations.front()->index || index > iterations.back()->index)
      return nullptr;
    return iterations[static_cast<size_t>(index - iterations.front()->index)].get();
  }
};

struct ReadyNode {
  int node;
  RunIteration* iteration;
  bool is_dead;
};
using ReadyNodes = absl::InlinedVector<ReadyNode, 16>;
using NodeOutputs = absl::InlinedVector<Entry, 4>;

// Waking a thread and its warming up cost about this much.
inline constexpr int64_t kBriefNanos = 30000;

// One step under way; reused for later steps.
//
// Hidden, so that its functions call each other directly and not through the library's symbol
// table.
class [[gnu::visibility("hidden")]] ExecutorRun {
 public:
  // The executor.
  class Owner {
   public:
    // See Executor.
    virtual bool is_brief() const = 0;
    virtual bool is_short() const = 0;
    // The step is over.
    virtual void Return(std::unique_ptr<ExecutorRun> run) = 0;

   protected:
    ~Owner() = default;
  };

  ExecutorRun(Owner & owner, const ExecutorPlan& plan, Device& device)
      : owner_(owner),
        plan_(plan),
        device_(device),
        root_(plan.frames[0], 0, nullptr),
        root_iteration_(plan.frames[0], &root_, 0) {
    PlaceConstants();
  }

  void Start(Step & step, Done done);

 private:
  struct AsyncCall {
    ReadyNode ready;
    NodeOutputs outputs;
    std::optional<KernelContext> context;
    int64_t scheduled_nanos = 0;
    int64_t start_nanos = 0;
    std::atomic<bool> is_finished{false};
  };

  // `is_share`: what another thread has handed over is not divided again. `done`: nodes that are
  // done but still counted.
  void Loop(ReadyNodes first, bool is_share = false, int64_t done = 0);
  bool IsWorthSharing(const ReadyNodes& here) const;
  void Share(ReadyNodes & here);
  void Prefetch(const ReadyNode& later, const ReadyNode& next) const;
  // Runs one node; what it made ready is appended to `ready`. False when it goes on asynchronously.
  bool RunNode(const ReadyNode& at, ReadyNodes& ready);
  // Where nodes keep their order the device hears which one runs.
  absl::Status ComputeInOrder(const PlanNode& item, KernelContext& context) const;
  NodeAtWork AtWork(const PlanNode& item) const;
  absl::Status PrepareInputs(const PlanNode& item, Entry* inputs) const;
  void RunAsync(const PlanNode& item, const ReadyNode& at, Entry* inputs, ReadyNodes& ready);
  void FinishAsync(AsyncCall & call, const absl::Status& status);
  // An awaited node has its value of so many bytes and has made `ready` ready, or the other roots
  // have run. What may begin now; nothing while others are awaited.
  ReadyNodes Hold(ReadyNodes ready, int64_t bytes);
  // On a thread that has completed a kernel.
  void GoOn(ReadyNodes ready);
  absl::Status CheckOutputs(const PlanNode& item, NodeOutputs& outputs) const;
  void Trace(const PlanNode& item, const NodeOutputs& outputs, int64_t start_nanos) const;
  void Fail(const PlanNode& item, const absl::Status& status);
  void Fail(const absl::Status& named);
  void ClearInputs(const PlanNode& item, Entry* inputs) {
    if (item.has_constant_inputs) return ClearButConstants(item, inputs);
    for (int i = 0; i < item.num_inputs; ++i) inputs[i].Clear();
  }
  void ClearButConstants(const PlanNode& item, Entry* inputs);
  void PlaceConstants();
  void TraceConstants();

  void Propagate(const ReadyNode& at, NodeOutputs& outputs, ReadyNodes& ready);
  void Activate(const PlanNode& item, bool is_dead, NodeOutputs& outputs, RunIteration& to,
                ReadyNodes& ready);
  void DeliverPlain(const PlanEdge& edge, bool edge_is_dead, RunIteration& to, ReadyNodes& ready);
  void DeliverMerge(const PlanEdge& edge, bool edge_is_dead, bool from_enter, RunIteration& to,
                    ReadyNodes& ready);
  void MakeReady(int node, RunIteration& iteration, bool is_dead, ReadyNodes& ready);

  void NameFrame(RunFrame & frame);
  void Enter(const PlanNode& item, const ReadyNode& at, NodeOutputs& outputs, ReadyNodes& ready);
  void NextIteration(const PlanNode& item, int node, RunIteration& from, NodeOutputs& outputs,
                     ReadyNodes& ready);
  RunIteration& AddIterationLocked(RunFrame & frame, ReadyNodes & ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(frame.mutex);
  void NodeDone(RunIteration & iteration, ReadyNodes & ready);
  bool CleanUpLocked(RunFrame & frame, ReadyNodes & ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(frame.mutex);
  void FrameDone(RunFrame & frame, ReadyNodes & ready);

  void Finish();

  Owner& owner_;
  const ExecutorPlan& plan_;
  Device& device_;
  Step* step_ = nullptr;
  Done done_;
  RunFrame root_;
  RunIteration root_iteration_;
  uint32_t steps_ = 0;  // run so far
  std::atomic<int64_t> outstanding_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  ReadyNodes arrived_ ABSL_GUARDED_BY(mutex_);  // made ready by kernels that ended elsewhere
  // Until awaited nodes have their values; see Hold.
  int num_awaited_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  ReadyNodes held_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::pair<RunIteration*, int>, std::unique_ptr<RunFrame>> frames_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
