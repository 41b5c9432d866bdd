// How a step runs.
//
// Every node of a frame iteration has a count of what it waits for (executor_plan.h). Whoever
// brings the last input makes the node ready and, if it is cheap, runs it next on the same thread;
// expensive nodes beyond the first go to the scheduler. `outstanding_` counts nodes that are ready
// or running: the step is over when it reaches zero.
//
// Frames. Enter makes (or finds) the child frame of the current iteration; NextIteration moves a
// value to the next iteration, which is created when fewer than parallel_iterations are under way
// and otherwise waits in next_roots; Exit hands a live value to the parent. Dead exits of the last
// iteration are passed on when the frame is done: all Enters have arrived and no iteration is left.
// One mutex per frame guards its iterations; counts are atomic.
#include "muster/runtime/executor.h"

#include <atomic>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include <unistd.h>

#include "muster/base/attention.h"
#include "muster/base/check.h"
#include "muster/base/float_mode.h"
#include "muster/base/mutex.h"
#include "muster/base/turn.h"
#include "muster/runtime/executor_plan.h"
#include "muster/runtime/lack_of_memory.h"
#include "muster/runtime/trace.h"

namespace muster {
namespace {

// Above this a node is worth handing to another thread while there is other work here.
constexpr uint32_t kExpensiveNanos = 8000;
// Below this a node's time is looked at in one of so many steps.
constexpr uint32_t kWorthMeasuringNanos = 2000;
constexpr uint32_t kStepsBetweenMeasures = 16;
// So many nodes at once are worth waking other threads for, unless each is so small that the
// threads would mostly wait for the counts and references which all of them change.
constexpr size_t kNodesWorthSharing = 256;
constexpr uint32_t kNanosWorthSharing = 500;
// After so many nodes in a row the thread looks whether somebody else has waited for it long
// enough.
constexpr uint32_t kNodesBetweenLooks = 512;
constexpr int64_t kLongestTurnNanos = 5000000;
// What nodes have sent to other tasks waits for company, but no longer than this.
constexpr int64_t kLongestWaitNanos = 500000;
// Waking a thread and its warming up cost about this much.
constexpr int64_t kBriefNanos = 30000;
constexpr int64_t kShortNanos = 5000000;

// What a node takes, as it was measured several times. One that was interrupted is not expensive
// because of that, and one that was when it ran first is soon known not to be.
uint32_t Averaged(uint32_t average, uint32_t took) {
  if (average == 0) return took;
  if (took < average) return average - (average - took) / 4;
  return average + (std::min(took, 2 * average + kWorthMeasuringNanos) - average) / 8;
}

struct Frame;

// The state of one iteration of a frame.
struct Iteration {
  Iteration(const PlanFrame& plan, Frame* owner, int64_t number)
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
  Frame* frame;
  int64_t index;
  std::unique_ptr<std::atomic<uint64_t>[]> counts;
  std::vector<Entry> inputs;
  // Nodes ready or running; counted in child frames only. A node is counted before the one that
  // made it ready is done.
  std::atomic<int64_t> outstanding_nodes{0};
  int64_t outstanding_frames = 0;  // guarded by frame->mutex
};

struct Frame {
  Frame(const PlanFrame& p, int plan_id, Iteration* parent_it)
      : plan(p), plan_index(plan_id), parent(parent_it), pending_enters(p.enters) {}
  bool is_root() const { return parent == nullptr; }
  const PlanFrame& plan;
  const int plan_index;
  FrameName name;
  uint64_t id = 0;  // by which peers know it; 0 is the root
  Iteration* const parent;
  Mutex mutex;
  int pending_enters ABSL_GUARDED_BY(mutex);
  int64_t last_iteration ABSL_GUARDED_BY(mutex) = 0;
  std::deque<std::unique_ptr<Iteration>> iterations
      ABSL_GUARDED_BY(mutex);  // oldest first, contiguous
  std::vector<std::pair<int, Entry>> next_roots
      ABSL_GUARDED_BY(mutex);  // NextIteration nodes that wait
  std::vector<std::pair<int, Entry>> constants ABSL_GUARDED_BY(mutex);  // from constant Enters
  std::vector<int> dead_exits ABSL_GUARDED_BY(mutex);

  Iteration* Find(int64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (iterations.empty() || index < iterations.front()->index || index > iterations.back()->index)
      return nullptr;
    return iterations[static_cast<size_t>(index - iterations.front()->index)].get();
  }
};

struct Ready {
  int node;
  Iteration* iteration;
  bool is_dead;
};
using ReadyList = absl::InlinedVector<Ready, 16>;
using Outputs = absl::InlinedVector<Entry, 4>;

class PlannedExecutor;
class StepRun;

// The asynchronous kernel that this thread is in the middle of starting: whose it is, and where
// nodes go that it makes ready before that is over.
struct Starting {
  StepRun* run = nullptr;
  ReadyList* ready = nullptr;
};
thread_local Starting starting;

// One step under way; reused for later steps.
class StepRun {
 public:
  StepRun(PlannedExecutor& owner, const ExecutorPlan& plan, Device& device)
      : owner_(owner),
        plan_(plan),
        device_(device),
        root_(plan.frames[0], 0, nullptr),
        root_iteration_(plan.frames[0], &root_, 0) {
    PlaceConstants();
  }

  void Start(Step& step, Done done);

 private:
  struct AsyncCall {
    Ready ready;
    Outputs outputs;
    std::optional<KernelContext> context;
    int64_t scheduled_nanos = 0;
    int64_t start_nanos = 0;
    std::atomic<bool> is_finished{false};
  };

  // `is_share`: what another thread has handed over is not divided again. `done`: nodes that are
  // done but still counted.
  void Loop(ReadyList first, bool is_share = false, int64_t done = 0);
  bool IsWorthSharing(const ReadyList& here) const;
  void Share(ReadyList& here);
  void Prefetch(const Ready& later, const Ready& next) const;
  // Runs one node; what it made ready is appended to `ready`. False when it goes on asynchronously.
  bool RunNode(const Ready& at, ReadyList& ready);
  absl::Status PrepareInputs(const PlanNode& item, Entry* inputs) const;
  void RunAsync(const PlanNode& item, const Ready& at, Entry* inputs, ReadyList& ready);
  void FinishAsync(AsyncCall& call, const absl::Status& status);
  absl::Status CheckOutputs(const PlanNode& item, Outputs& outputs) const;
  void Trace(const PlanNode& item, const Outputs& outputs, int64_t start_nanos) const;
  void Fail(const PlanNode& item, const absl::Status& status);
  void Fail(const absl::Status& named);
  void ClearInputs(const PlanNode& item, Entry* inputs) {
    if (item.has_constant_inputs) return ClearButConstants(item, inputs);
    for (int i = 0; i < item.num_inputs; ++i) inputs[i].Clear();
  }
  void ClearButConstants(const PlanNode& item, Entry* inputs);
  void PlaceConstants();
  void TraceConstants();

  void Propagate(const Ready& at, Outputs& outputs, ReadyList& ready);
  void Activate(const PlanNode& item, bool is_dead, Outputs& outputs, Iteration& to,
                ReadyList& ready);
  void DeliverPlain(const PlanEdge& edge, bool edge_is_dead, Iteration& to, ReadyList& ready);
  void DeliverMerge(const PlanEdge& edge, bool edge_is_dead, bool from_enter, Iteration& to,
                    ReadyList& ready);
  void MakeReady(int node, Iteration& iteration, bool is_dead, ReadyList& ready);

  void NameFrame(Frame& frame);
  void Enter(const PlanNode& item, const Ready& at, Outputs& outputs, ReadyList& ready);
  void NextIteration(const PlanNode& item, int node, Iteration& from, Outputs& outputs,
                     ReadyList& ready);
  Iteration& AddIterationLocked(Frame& frame, ReadyList& ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(frame.mutex);
  void NodeDone(Iteration& iteration, ReadyList& ready);
  bool CleanUpLocked(Frame& frame, ReadyList& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(frame.mutex);
  void FrameDone(Frame& frame, ReadyList& ready);

  void Finish();

  PlannedExecutor& owner_;
  const ExecutorPlan& plan_;
  Device& device_;
  Step* step_ = nullptr;
  Done done_;
  Frame root_;
  Iteration root_iteration_;
  uint32_t steps_ = 0;  // run so far
  std::atomic<int64_t> outstanding_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  ReadyList arrived_ ABSL_GUARDED_BY(mutex_);  // made ready by kernels that ended elsewhere
  absl::flat_hash_map<std::pair<Iteration*, int>, std::unique_ptr<Frame>> frames_
      ABSL_GUARDED_BY(mutex_);
};

class PlannedExecutor : public Executor {
 public:
  PlannedExecutor(ExecutorPlan plan, Device& device) : plan_(std::move(plan)), device_(device) {}

  void Run(Step& step, Done done) override {
    if (plan_.nodes.empty()) {
      std::move(done)(absl::OkStatus());
      return;
    }
    std::unique_ptr<StepRun> run;
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        run = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (run == nullptr) run = std::make_unique<StepRun>(*this, plan_, device_);
    run.release()->Start(step, std::move(done));
  }

  bool is_brief() const override { return is_brief_.load(std::memory_order_relaxed); }
  bool is_short() const override { return is_short_.load(std::memory_order_relaxed); }

  void Return(std::unique_ptr<StepRun> run) {
    MutexLock lock(mutex_);
    // Soon after the first step, then now and then: what nodes take changes with their inputs.
    if (const uint64_t step = ++steps_run_; step == 2 || step % 64 == 0) Estimate();
    if (idle_.size() < 8) idle_.push_back(std::move(run));
  }

 private:
  void Estimate() {
    int64_t total_nanos = 0;
    for (const PlanNode& node : plan_.nodes)
      if (node.kind != NodeKind::kConstant)
        total_nanos += 200 + node.cost_nanos.load(std::memory_order_relaxed);
    // How often a loop goes round is not known.
    const bool is_known = plan_.frames.size() == 1;
    is_brief_.store(is_known && total_nanos < kBriefNanos, std::memory_order_relaxed);
    is_short_.store(is_known && total_nanos < kShortNanos, std::memory_order_relaxed);
  }

  const ExecutorPlan plan_;
  Device& device_;
  std::atomic<bool> is_brief_{false};
  std::atomic<bool> is_short_{false};
  Mutex mutex_;
  uint64_t steps_run_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<StepRun>> idle_ ABSL_GUARDED_BY(mutex_);
};

void StepRun::Start(Step& step, Done done) {
  step_ = &step;
  done_ = std::move(done);
  root_iteration_.Reset(plan_.frames[0]);
  failed_.store(false, std::memory_order_relaxed);
  // One more than there are nodes: it is not over before all have begun.
  outstanding_.store(static_cast<int64_t>(plan_.roots.size()) + 1, std::memory_order_relaxed);
  ++steps_;
  if (step_->trace != nullptr) TraceConstants();
  ReadyList ready;
  int64_t begun = 1;
  if (plan_.num_asking_roots > 0) {
    // What others have to send is asked for first, and all of it together.
    const Turn turn;
    for (int i = 0; i < plan_.num_asking_roots; ++i)
      begun += RunNode({plan_.roots[i], &root_iteration_, false}, ready) ? 1 : 0;
    Turn::RunPutOff();
  }
  for (size_t i = static_cast<size_t>(plan_.num_asking_roots); i < plan_.roots.size(); ++i)
    ready.push_back({plan_.roots[i], &root_iteration_, false});
  Loop(std::move(ready), /*is_share=*/false, begun);
}

void StepRun::PlaceConstants() {
  for (size_t i = 0; i < plan_.constants.size(); ++i) {
    if (!plan_.constants[i].valid()) continue;
    root_iteration_.inputs[i].tensor = plan_.constants[i];
    root_iteration_.inputs[i].state = Entry::State::kValue;
  }
}

// Kernels may have taken a constant out of its place.
void StepRun::ClearButConstants(const PlanNode& item, Entry* inputs) {
  for (int i = 0; i < item.num_inputs; ++i) {
    const Tensor& constant = plan_.constants[item.first_input + i];
    if (!constant.valid()) {
      inputs[i].Clear();
    } else if (inputs[i].tensor.buffer().region() != constant.buffer().region()) {
      inputs[i].tensor = constant;
    }
  }
}

void StepRun::TraceConstants() {
  for (const PlanNode& item : plan_.nodes) {
    if (item.kind != NodeKind::kConstant) continue;
    Outputs value(1);
    value[0].tensor = item.node->Attr<Tensor>("value").value_or(Tensor());
    Trace(item, value, step_->scheduler->clock().NowNanos());
  }
}

// Takes the nodes that are ready; keeps the cheap ones for itself, and one expensive one for when
// they are done, unless that takes longer than another thread takes to come.
void StepRun::Loop(ReadyList first, bool is_share, int64_t done) {
  const FlushDenormals flush;
  const Turn turn;
  ReadyList here;  // a stack: depth first keeps values warm and memory low
  ReadyList ready = std::move(first);
  int64_t turn_start_nanos = 0;
  uint32_t nodes_run = 0;
  int64_t waited_nanos = 0;
  int64_t done_here = done;  // nodes that are done but still counted in outstanding_
  bool may_share = !is_share;
  constexpr Ready kNone{-1, nullptr, false};
  Ready kept = kNone;
  int64_t kept_nanos = 0;
  for (;;) {
    for (const Ready& next : ready) {
      const PlanNode& item = plan_.nodes[next.node];
      if (next.is_dead || item.cost_nanos.load(std::memory_order_relaxed) < kExpensiveNanos) {
        here.push_back(next);
      } else if (kept.node < 0) {
        kept = next;
        kept_nanos = 0;
      } else {
        step_->scheduler->Schedule([this, next] { Loop({next}); });
      }
    }
    if (kept.node >= 0 && here.empty()) {
      here.push_back(std::exchange(kept, kNone));
    } else if (kept.node >= 0 && kept_nanos > kBriefNanos) {
      step_->scheduler->Schedule([this, late = std::exchange(kept, kNone)] { Loop({late}); });
    }
    if (here.empty()) {
      if (done_here == 0 ||
          outstanding_.fetch_sub(done_here, std::memory_order_acq_rel) != done_here)
        return;
      Turn::RunPutOff();  // others need it more than the one who hears that the step is over
      return Finish();
    }
    if (may_share && here.size() >= kNodesWorthSharing) {
      if (IsWorthSharing(here)) Share(here);
      may_share = false;
    }
    if (++nodes_run % kNodesBetweenLooks == 0) {
      const int64_t now = step_->scheduler->clock().NowNanos();
      if (turn_start_nanos == 0) turn_start_nanos = now;
      if (now - turn_start_nanos > kLongestTurnNanos) {
        outstanding_.fetch_sub(done_here, std::memory_order_acq_rel);  // `here` is still counted
        if (kept.node >= 0) here.push_back(kept);
        step_->scheduler->Schedule([this, rest = std::move(here)] { Loop(rest); });
        return;
      }
    }
    const Ready at = here.back();
    here.pop_back();
    if (here.size() >= 2) Prefetch(here[here.size() - 2], here.back());
    ready.clear();
    if (kept.node >= 0)
      kept_nanos += plan_.nodes[at.node].cost_nanos.load(std::memory_order_relaxed);
    if (Turn::HasPutOff()) {
      waited_nanos += plan_.nodes[at.node].cost_nanos.load(std::memory_order_relaxed);
      if (waited_nanos > kLongestWaitNanos) Turn::RunPutOff();
    } else {
      waited_nanos = 0;
    }
    if (!RunNode(at, ready)) continue;
    // The node is done and has made ready.size() others ready, which must be counted before others
    // can see them.
    done_here += 1 - static_cast<int64_t>(ready.size());
    if (done_here < 0) {
      outstanding_.fetch_sub(done_here, std::memory_order_acq_rel);
      done_here = 0;
    }
  }
}

bool StepRun::IsWorthSharing(const ReadyList& here) const {
  constexpr size_t kLookedAt = 16;
  uint64_t nanos = 0;
  for (size_t i = 0; i < kLookedAt; ++i) {
    const Ready& at = here[i * here.size() / kLookedAt];
    nanos += plan_.nodes[at.node].cost_nanos.load(std::memory_order_relaxed);
  }
  return nanos >= kLookedAt * kNanosWorthSharing;
}

// Many nodes are divided among the threads; the last share stays here.
void StepRun::Share(ReadyList& here) {
  const auto shares = static_cast<size_t>(step_->scheduler->parallelism());
  const size_t size = here.size() / shares;
  for (size_t i = 1; i < shares; ++i) {
    ReadyList share(here.end() - static_cast<int64_t>(size), here.end());
    here.resize(here.size() - size);
    step_->scheduler->Schedule(
        [this, handed = std::move(share)]() mutable { Loop(std::move(handed), true); });
  }
}

// In a graph of thousands of nodes each finds what it needs out of the cache: it is called for
// while the one before still runs, step by step along the pointers.
void StepRun::Prefetch(const Ready& later, const Ready& next) const {
  const PlanNode& later_item = plan_.nodes[later.node];
  __builtin_prefetch(&later_item);
  __builtin_prefetch(&later_item.initial_count);
  const PlanNode& item = plan_.nodes[next.node];
  const PlanNode& successor = plan_.nodes[item.first_target];
  for (const PlanNode* each : {&item, &successor}) {
    __builtin_prefetch(each->kernel.get());
    __builtin_prefetch(&each->node->output_types());
    __builtin_prefetch(each->output_types);
    __builtin_prefetch(plan_.edges.data() + each->first_edge);
  }
  const Entry* inputs = next.iteration->inputs.data() + item.first_input;
  for (int i = 0; i < std::min(item.num_inputs, 2); ++i) __builtin_prefetch(inputs + i);
}

absl::Status StepRun::PrepareInputs(const PlanNode& item, Entry* inputs) const {
  for (int i = 0; i < item.num_inputs; ++i) {
    Entry& entry = inputs[i];
    if (entry.state != Entry::State::kReference) continue;
    if (IsRef(item.node->input_types()[i])) {
      if (!item.allows_uninitialized && !entry.reference->initialized())
        return entry.reference->Uninitialized();
      continue;
    }
    if (i < item.num_passed_inputs) {
      if (item.passes_values && !entry.tensor.valid()) entry.tensor = entry.reference->Snapshot();
      // Only the branch that a Switch chooses needs the value.
      const bool is_switch = item.num_passed_inputs < item.num_inputs;
      if (!is_switch && !entry.reference->initialized()) return entry.reference->Uninitialized();
      continue;
    }
    // The reader gets a snapshot: later updates do not touch it. It may have been taken by a node
    // that passes the reference on.
    if (!entry.tensor.valid()) entry.tensor = entry.reference->Snapshot();
    if (!entry.tensor.valid()) {
      if (!item.allows_uninitialized) return entry.reference->Uninitialized();
    }
    entry.reference.reset();
    entry.state = Entry::State::kValue;
  }
  return absl::OkStatus();
}

absl::Status StepRun::CheckOutputs(const PlanNode& item, Outputs& outputs) const {
  for (int i = 0; i < item.num_outputs; ++i) {
    const Entry& entry = outputs[i];
    if (entry.state == Entry::State::kEmpty) {
      return Internal("Missing ", i, "-th output from node ", item.node->name());
    }
    if (entry.state == Entry::State::kValue &&
        entry.tensor.dtype() != BaseType(item.node->output_types()[i])) {
      return Internal("Output ", i, " of type ", DTypeName(entry.tensor.dtype()),
                      " does not match declared output type ",
                      DTypeName(item.node->output_types()[i]), " for node ", item.node->name());
    }
  }
  return absl::OkStatus();
}

void StepRun::Trace(const PlanNode& item, const Outputs& outputs, int64_t start_nanos) const {
  NodeTrace trace;
  trace.device = device_.name();
  trace.node = item.node->name();
  trace.op = item.node->op();
  trace.scheduled_nanos = start_nanos;
  trace.start_nanos = start_nanos;
  trace.end_nanos = step_->scheduler->clock().NowNanos();
  trace.thread_id = static_cast<uint32_t>(gettid());
  for (int i = 0; i < item.num_outputs; ++i) {
    const Tensor& tensor = outputs[i].tensor;
    if (tensor.valid()) {
      trace.outputs.push_back(
          {i, tensor.dtype(), tensor.shape(), static_cast<int64_t>(tensor.size_bytes())});
    }
  }
  step_->trace->Add(std::move(trace));
}

void StepRun::Fail(const PlanNode& item, const absl::Status& status) {
  Fail(Suffixed(status, absl::StrCat("\n\t [[{{node ", item.node->name(), "}}]]")));
}

void StepRun::Fail(const absl::Status& named) {
  {
    MutexLock lock(mutex_);
    if (!error_.ok()) return;
    error_ = named;
    failed_.store(true, std::memory_order_release);
  }
  // Whoever waits inside the step must stop waiting; what they then report is not the cause.
  // Cancelled first: the reason of the cancellation is then the first error of all partitions.
  if (step_->cancellation != nullptr) step_->cancellation->Cancel(named);
  if (step_->rendezvous != nullptr) step_->rendezvous->Abort(named);
}

bool StepRun::RunNode(const Ready& at, ReadyList& ready) {
  const PlanNode& item = plan_.nodes[at.node];
  Entry* inputs = at.iteration->inputs.data() + item.first_input;
  if (failed_.load(std::memory_order_acquire)) {
    ClearInputs(item, inputs);
    return true;
  }
  if (at.is_dead && item.kind != NodeKind::kTransfer && item.kind != NodeKind::kControlTrigger) {
    ClearInputs(item, inputs);
    Outputs outputs(item.num_outputs);
    Propagate(at, outputs, ready);
    return true;
  }
  if (step_->cancellation != nullptr && step_->cancellation->cancelled()) {
    Fail(step_->cancellation->reason());
    ClearInputs(item, inputs);
    return true;
  }
  if (item.has_reference_inputs) {
    const absl::Status status = PrepareInputs(item, inputs);
    if (!status.ok()) {
      Fail(item, status);
      ClearInputs(item, inputs);
      return true;
    }
  }
  if (item.is_async) {
    RunAsync(item, at, inputs, ready);
    return false;
  }
  Outputs outputs(item.num_outputs);
  KernelContext context(*step_, device_, *item.node, absl::MakeSpan(inputs, item.num_inputs),
                        absl::MakeSpan(outputs));
  context.set_frame(at.iteration->frame->id, at.iteration->index);
  context.set_input_dead(at.is_dead);
  const uint32_t average = item.cost_nanos.load(std::memory_order_relaxed);
  // Looking at the clock takes as long as a small node: those are measured in a few steps only.
  const bool is_measured = average == 0 || average >= kWorthMeasuringNanos ||
                           (static_cast<uint32_t>(at.node) + steps_) % kStepsBetweenMeasures == 0 ||
                           step_->trace != nullptr;
  Clock& clock = step_->scheduler->clock();
  const int64_t start = is_measured ? clock.NowNanos() : 0;
  absl::Status status = EndedByLackOfMemory([&] { return item.kernel->Compute(context); });
  if (is_measured) {
    const auto took = static_cast<uint32_t>(std::min<int64_t>(clock.NowNanos() - start, 1 << 30));
    item.cost_nanos.store(Averaged(average, took), std::memory_order_relaxed);
  }
  ClearInputs(item, inputs);
  if (status.ok() && item.num_outputs > 0) status = CheckOutputs(item, outputs);
  if (!status.ok()) {
    Fail(item, status);
    return true;
  }
  if (step_->trace != nullptr) Trace(item, outputs, start);
  Propagate(at, outputs, ready);
  return true;
}

void StepRun::RunAsync(const PlanNode& item, const Ready& at, Entry* inputs, ReadyList& ready) {
  auto call = std::make_shared<AsyncCall>();
  call->ready = at;
  call->outputs.resize(item.num_outputs);
  call->start_nanos = step_->scheduler->clock().NowNanos();
  call->context.emplace(*step_, device_, *item.node, absl::MakeSpan(inputs, item.num_inputs),
                        absl::MakeSpan(call->outputs));
  call->context->set_frame(at.iteration->frame->id, at.iteration->index);
  call->context->set_input_dead(at.is_dead);
  const Starting before = std::exchange(starting, {this, &ready});
  const auto finish = [this, call](const absl::Status& status) {
    // What follows, up to the reply of the step, is no part of the kernel.
    const CatchesLackOfMemory not_here(false);
    if (!call->is_finished.exchange(true)) FinishAsync(*call, status);
  };
  const absl::Status lacking = EndedByLackOfMemory([&] {
    item.kernel->ComputeAsync(*call->context, finish);
    return absl::OkStatus();
  });
  if (!lacking.ok()) finish(lacking);
  starting = before;
}

void StepRun::FinishAsync(AsyncCall& call, const absl::Status& kernel_status) {
  const PlanNode& item = plan_.nodes[call.ready.node];
  ClearInputs(item, call.ready.iteration->inputs.data() + item.first_input);
  ReadyList ready;
  absl::Status status = kernel_status;
  if (status.ok()) status = CheckOutputs(item, call.outputs);
  if (status.ok()) {
    if (step_->trace != nullptr) Trace(item, call.outputs, call.start_nanos);
    Propagate(call.ready, call.outputs, ready);
  } else {
    Fail(item, status);
  }
  const int64_t change = static_cast<int64_t>(ready.size()) - 1;
  if (change != 0 && outstanding_.fetch_add(change, std::memory_order_acq_rel) + change == 0) {
    Finish();
    return;
  }
  if (ready.empty()) return;
  // Values that were there already: the loop that asked for them goes on with them.
  if (starting.run == this) {
    starting.ready->insert(starting.ready->end(), ready.begin(), ready.end());
    return;
  }
  // The thread that completed the kernel belongs to someone else: unless it is soon over, the rest
  // of the step goes to the scheduler.
  if (owner_.is_brief()) return Loop(std::move(ready));
  // Values that arrive together go on together.
  {
    MutexLock lock(mutex_);
    const bool is_first = arrived_.empty();
    arrived_.insert(arrived_.end(), ready.begin(), ready.end());
    if (!is_first) return;
  }
  const auto go_on = [this] {
    ReadyList arrived;
    {
      MutexLock lock(mutex_);
      arrived.swap(arrived_);
    }
    Loop(std::move(arrived));
  };
  if (!owner_.is_short() || !Attention::IsHeld() || Turn::HasPutOff())
    return step_->scheduler->Schedule(go_on);
  Turn::AtEnd([go_on] {
    Attention::LetGo();
    go_on();
  });
}

void StepRun::MakeReady(int node, Iteration& iteration, bool is_dead, ReadyList& ready) {
  if (!iteration.frame->is_root())
    iteration.outstanding_nodes.fetch_add(1, std::memory_order_relaxed);
  ready.push_back({node, &iteration, is_dead});
}

void StepRun::DeliverPlain(const PlanEdge& edge, bool edge_is_dead, Iteration& to,
                           ReadyList& ready) {
  const PlanNode& target = plan_.nodes[edge.target];
  const uint64_t change = edge_is_dead ? kOneDead - 1 : uint64_t{0} - 1;
  const uint64_t now =
      to.counts[target.index_in_frame].fetch_add(change, std::memory_order_acq_rel) + change;
  // Subtracting one borrows from the upper half when the lower one is zero, which cannot happen
  // while edges are due.
  if (Waiting(now) == 0) {
    const bool is_dead = Dead(now) > 0 && target.kind != NodeKind::kControlTrigger;
    MakeReady(edge.target, to, is_dead, ready);
  }
}

// A dead Enter kills its Merge by itself: the other input, the back edge, never comes. Everything
// in the frame is then dead once, which is what peers that hold the rest of the loop wait for.
void StepRun::DeliverMerge(const PlanEdge& edge, bool edge_is_dead, bool from_enter, Iteration& to,
                           ReadyList& ready) {
  const PlanNode& target = plan_.nodes[edge.target];
  const auto inputs = static_cast<uint32_t>(target.num_inputs);
  std::atomic<uint64_t>& count = to.counts[target.index_in_frame];
  uint64_t old = count.load(std::memory_order_acquire);
  uint64_t now;
  do {
    now = old;
    if (edge.input < 0) {
      now -= 2;
    } else if (edge_is_dead) {
      now += from_enter ? kOneDead * inputs : kOneDead;
    } else {
      now &= ~uint64_t{1};
    }
  } while (!count.compare_exchange_weak(old, now, std::memory_order_acq_rel));
  const auto runs = [&](uint64_t c) {
    return Waiting(c) == 0 || (Waiting(c) == 1 && Dead(c) >= inputs);
  };
  if (runs(now) && !runs(old)) MakeReady(edge.target, to, Waiting(now) != 0, ready);
}

// Hands the outputs of a node to its consumers in iteration `to`.
void StepRun::Activate(const PlanNode& item, bool is_dead, Outputs& outputs, Iteration& to,
                       ReadyList& ready) {
  for (int e = item.first_edge; e < item.edge_end; ++e) {
    const PlanEdge& edge = plan_.edges[e];
    const PlanNode& target = plan_.nodes[edge.target];
    bool edge_is_dead = is_dead;
    if (edge.input >= 0) {
      Entry& value = outputs[edge.output];
      edge_is_dead |= value.state == Entry::State::kDead || value.state == Entry::State::kEmpty;
      Entry& slot = to.inputs[target.first_input + edge.input];
      if (edge_is_dead) {
        if (target.kind != NodeKind::kMerge) slot.state = Entry::State::kDead;
      } else {
        if (target.kind == NodeKind::kMerge &&
            (to.counts[target.index_in_frame].fetch_or(kMergeTaken, std::memory_order_acq_rel) &
             kMergeTaken) != 0) {
          continue;
        }
        // The last consumer of an output takes it, so that a sole consumer may reuse its memory.
        if (edge.carries == PlanEdge::Carries::kLastValue) {
          slot = std::move(value);
        } else if (edge.carries == PlanEdge::Carries::kValue) {
          slot = value;
        } else {
          slot = value;
          if (value.reference) slot.tensor = Tensor();
        }
      }
    }
    if (target.kind == NodeKind::kMerge) {
      const bool from_enter =
          item.kind == NodeKind::kEnter || item.kind == NodeKind::kConstantEnter;
      DeliverMerge(edge, edge_is_dead, from_enter, to, ready);
    } else {
      DeliverPlain(edge, edge_is_dead, to, ready);
    }
  }
}

void StepRun::Propagate(const Ready& at, Outputs& outputs, ReadyList& ready) {
  const PlanNode& item = plan_.nodes[at.node];
  Iteration& from = *at.iteration;
  switch (item.kind) {
    case NodeKind::kEnter:
    case NodeKind::kConstantEnter:
      Enter(item, at, outputs, ready);
      break;
    case NodeKind::kExit:
      if (!at.is_dead) {
        Iteration& parent = *from.frame->parent;
        Activate(item, false, outputs, parent, ready);
      } else {
        MutexLock lock(from.frame->mutex);
        if (from.index == from.frame->last_iteration) from.frame->dead_exits.push_back(at.node);
      }
      break;
    case NodeKind::kNextIteration:
      if (!at.is_dead) NextIteration(item, at.node, from, outputs, ready);
      break;
    default:
      Activate(item, at.is_dead, outputs, from, ready);
  }
  if (!from.frame->is_root()) NodeDone(from, ready);
}

void StepRun::NameFrame(Frame& frame) {
  frame.name = frame.parent->frame->name.Child(frame.plan.name, frame.parent->index);
  const FrameIds rule = step_->frame_ids;
  frame.id = frame.name.id(rule);
  if (step_->rendezvous != nullptr) {
    step_->rendezvous->AliasFrame(
        frame.id,
        frame.name.id(rule == FrameIds::kSince23 ? FrameIds::kBefore23 : FrameIds::kSince23));
  }
}

void StepRun::Enter(const PlanNode& item, const Ready& at, Outputs& outputs, ReadyList& ready) {
  Frame* frame;
  bool created = false;
  {
    MutexLock lock(mutex_);
    std::unique_ptr<Frame>& slot = frames_[{at.iteration, item.child_frame}];
    if (slot == nullptr) {
      slot =
          std::make_unique<Frame>(plan_.frames[item.child_frame], item.child_frame, at.iteration);
      NameFrame(*slot);
      created = true;
      MutexLock frame_lock(slot->mutex);
      slot->iterations.push_back(std::make_unique<Iteration>(slot->plan, slot.get(), 0));
    }
    frame = slot.get();
  }
  if (created && !at.iteration->frame->is_root()) {
    MutexLock lock(at.iteration->frame->mutex);
    ++at.iteration->outstanding_frames;
  }
  bool frame_done = false;
  {
    MutexLock lock(frame->mutex);
    Outputs value = outputs;
    if (item.kind == NodeKind::kConstantEnter) {
      // Every iteration under way gets it now, later ones when they start; dead ones too, since a
      // control loop may go on without the values that it waits for.
      frame->constants.emplace_back(at.node, outputs[0]);
      for (auto& iteration : frame->iterations) {
        Outputs copy = outputs;
        Activate(item, at.is_dead, copy, *iteration, ready);
      }
    } else {
      Activate(item, at.is_dead, value, *frame->Find(0), ready);
    }
    --frame->pending_enters;
    frame_done = CleanUpLocked(*frame, ready);
  }
  if (frame_done) FrameDone(*frame, ready);
}

Iteration& StepRun::AddIterationLocked(Frame& frame, ReadyList& ready) {
  const int64_t index = ++frame.last_iteration;
  frame.iterations.push_back(std::make_unique<Iteration>(frame.plan, &frame, index));
  Iteration& iteration = *frame.iterations.back();
  // Dead exits seen so far belong to an iteration that was not the last.
  frame.dead_exits.clear();
  for (const auto& [node, entry] : frame.constants) {
    Outputs value(1, entry);
    Activate(plan_.nodes[node], entry.state == Entry::State::kEmpty, value, iteration, ready);
  }
  return iteration;
}

void StepRun::NextIteration(const PlanNode& item, int node, Iteration& from, Outputs& outputs,
                            ReadyList& ready) {
  Frame& frame = *from.frame;
  MutexLock lock(frame.mutex);
  if (from.index == frame.last_iteration) {
    if (static_cast<int>(frame.iterations.size()) >= frame.plan.parallel_iterations) {
      frame.next_roots.emplace_back(node, outputs[0]);
      return;
    }
    AddIterationLocked(frame, ready);
  }
  Activate(item, false, outputs, *frame.Find(from.index + 1), ready);
}

// Counts one node of a child frame's iteration as done and closes what is over.
void StepRun::NodeDone(Iteration& iteration, ReadyList& ready) {
  Frame& frame = *iteration.frame;
  bool frame_done;
  {
    MutexLock lock(frame.mutex);
    if (iteration.outstanding_nodes.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    frame_done = CleanUpLocked(frame, ready);
  }
  if (frame_done) FrameDone(frame, ready);
}

// Drops iterations from the oldest on that nothing can reach any more; true when the whole frame is
// over.
bool StepRun::CleanUpLocked(Frame& frame, ReadyList& ready) {
  while (!frame.iterations.empty()) {
    Iteration& oldest = *frame.iterations.front();
    const bool is_over = oldest.outstanding_nodes == 0 && oldest.outstanding_frames == 0 &&
                         (oldest.index > 0 || frame.pending_enters == 0);
    if (!is_over) break;
    if (!frame.next_roots.empty()) {
      // There is room for the iteration that waits; it starts before the oldest one goes.
      AddIterationLocked(frame, ready);
      std::vector<std::pair<int, Entry>> roots = std::move(frame.next_roots);
      frame.next_roots.clear();
      for (auto& [node, entry] : roots) {
        Outputs value(1, std::move(entry));
        Activate(plan_.nodes[node], false, value, *frame.iterations.back(), ready);
      }
    }
    frame.iterations.pop_front();
  }
  return frame.pending_enters == 0 && frame.iterations.empty();
}

void StepRun::FrameDone(Frame& frame, ReadyList& ready) {
  Iteration& parent = *frame.parent;
  std::vector<int> dead_exits;
  {
    MutexLock lock(frame.mutex);
    dead_exits = std::move(frame.dead_exits);
  }
  for (int node : dead_exits) {
    Outputs nothing(1);
    Activate(plan_.nodes[node], /*is_dead=*/true, nothing, parent, ready);
  }
  std::unique_ptr<Frame> dropped;
  {
    MutexLock lock(mutex_);
    const auto found = frames_.find(std::make_pair(frame.parent, frame.plan_index));
    dropped = std::move(found->second);
    frames_.erase(found);
  }
  Frame& parent_frame = *parent.frame;  // the iteration itself may go with the clean-up
  if (parent_frame.is_root()) return;
  bool parent_done = false;
  {
    MutexLock lock(parent_frame.mutex);
    --parent.outstanding_frames;
    if (parent.outstanding_nodes == 0 && parent.outstanding_frames == 0)
      parent_done = CleanUpLocked(parent_frame, ready);
  }
  if (parent_done) FrameDone(parent_frame, ready);
}

void StepRun::Finish() {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    status = std::move(error_);
    error_ = absl::OkStatus();
    frames_.clear();
  }
  if (!status.ok()) {
    // Nodes that never ran have left inputs behind.
    for (Entry& entry : root_iteration_.inputs) entry.Clear();
    PlaceConstants();
  }
  Done done = std::move(done_);
  step_ = nullptr;
  PlannedExecutor& owner = owner_;
  owner.Return(std::unique_ptr<StepRun>(this));
  // Nothing of this object may be touched from here on: it may run another step already.
  std::move(done)(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const Graph& graph, Device& device,
                                                           KernelSource kernels) {
  ASSIGN_OR_RETURN(ExecutorPlan plan, ExecutorPlan::Make(graph, kernels));
  return std::make_unique<PlannedExecutor>(std::move(plan), device);
}

}  // namespace muster
