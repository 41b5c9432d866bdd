// How a step runs, in the order in which it comes by.
//
// Every node of a frame iteration has a count of what it waits for (executor_plan.h). The node that
// brings the last input makes it ready and, if it is cheap, it runs next on the same thread;
// expensive nodes beyond the first go to the scheduler. `outstanding_` counts nodes that are ready
// or running: the step is over when it reaches zero.
#include "muster/runtime/executor_run.h"

#include <algorithm>

#include "muster/base/float_mode.h"
#include "muster/base/threads/waiting_thread.h"
#include "muster/runtime/lack_of_memory.h"

namespace muster {
namespace {

// Above this a node is worth handing to another thread while there is other work here.
constexpr uint32_t kExpensiveNanos = 8000;
// A node that takes less is measured only in one of kStepsBetweenMeasures steps.
constexpr uint32_t kWorthMeasuringNanos = 2000;
constexpr uint32_t kStepsBetweenMeasures = 16;
// So many nodes at once are worth waking other threads for, unless each is small (IsWorthSharing).
constexpr size_t kNodesWorthSharing = 256;
// After this many nodes in a row the thread checks whether its turn has lasted kLongestTurnNanos,
// and then schedules the rest behind other work.
constexpr uint32_t kNodesBetweenLooks = 512;
constexpr int64_t kLongestTurnNanos = 5000000;
// Messages of nodes to other tasks are batched, but wait no longer than this.
constexpr int64_t kLongestWaitNanos = 500000;
// The same where nodes keep their order: how long they take differs from step to step.
constexpr uint32_t kLongestWaitNodes = 128;
// Nodes do not wait longer when awaited values have so many bytes: a model that large computes with
// the first while others are on their way, though its steps then differ.
constexpr int64_t kMostHeldBytes = int64_t{32} << 20;

// The cost of a node, averaged over several measurements. One preempted run does not make a node
// expensive, and a slow first run is soon forgotten.
uint32_t Averaged(uint32_t average, uint32_t took) {
  if (average == 0) return took;
  if (took < average) return average - (average - took) / 4;
  return average + (std::min(took, 2 * average + kWorthMeasuringNanos) - average) / 8;
}

}  // namespace

void ExecutorRun::Start(Step& step, Done done) {
  step_ = &step;
  done_ = std::move(done);
  root_iteration_.Reset(plan_.frames[0]);
  failed_.store(false, std::memory_order_relaxed);
  const bool holds = plan_.num_awaited > 0;
  // One more than there are nodes: it is not over before all have begun. And one for what is held.
  outstanding_.store(static_cast<int64_t>(plan_.roots.size()) + (holds ? 2 : 1),
                     std::memory_order_relaxed);
  if (holds) {
    MutexLock lock(mutex_);
    num_awaited_ = plan_.num_awaited + 1;
    held_bytes_ = 0;
  }
  ++steps_;
  if (step_->trace != nullptr) TraceConstants();
  ReadyNodes ready;
  int64_t begun = 1;
  if (plan_.num_asking_roots > 0) {
    // Tensors of other tasks are requested first, in one batch.
    WaitingThread& thread = WaitingThread::Current();
    const Turn turn(thread);
    for (int i = 0; i < plan_.num_asking_roots; ++i)
      begun += RunNode({plan_.roots[i], &root_iteration_, false}, ready) ? 1 : 0;
    thread.RunDeferred();
  }
  for (size_t i = static_cast<size_t>(plan_.num_asking_roots); i < plan_.roots.size(); ++i)
    ready.push_back({plan_.roots[i], &root_iteration_, false});
  Loop(std::move(ready), /*is_share=*/false, begun);
  if (!holds) return;
  ready = Hold({}, 0);
  if (!ready.empty()) Loop(std::move(ready));
}

// A step in which values come in another order is the same for the device: what they make ready
// begins in the order of the nodes.
ReadyNodes ExecutorRun::Hold(ReadyNodes ready, int64_t bytes) {
  outstanding_.fetch_add(static_cast<int64_t>(ready.size()), std::memory_order_acq_rel);
  ReadyNodes begin;
  {
    MutexLock lock(mutex_);
    --num_awaited_;
    held_bytes_ += bytes;
    held_.insert(held_.end(), ready.begin(), ready.end());
    if (num_awaited_ == 0 || held_bytes_ > kMostHeldBytes) begin.swap(held_);
  }
  if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    Finish();
    return {};
  }
  // The loop takes the last one first.
  std::sort(begin.begin(), begin.end(),
            [](const ReadyNode& a, const ReadyNode& b) { return a.node > b.node; });
  return begin;
}

// Takes the nodes that are ready; keeps the cheap ones for itself, and one expensive one for when
// they are done, unless that takes longer than another thread takes to come.
void ExecutorRun::Loop(ReadyNodes first, bool is_share, int64_t done) {
  const FlushDenormals flush;
  WaitingThread& thread = WaitingThread::Current();
  const Turn turn(thread);
  ReadyNodes here;  // a stack: depth first keeps values warm and memory low
  ReadyNodes ready = std::move(first);
  int64_t turn_start_nanos = 0;
  uint32_t nodes_run = 0;
  int64_t waited_nanos = 0;
  uint32_t waited_nodes = 0;
  int64_t done_here = done;  // nodes that are done but still counted in outstanding_
  bool may_share = !is_share && !plan_.keeps_order;
  const uint32_t expensive_nanos = plan_.keeps_order ? UINT32_MAX : kExpensiveNanos;
  constexpr ReadyNode kNone{-1, nullptr, false};
  ReadyNode kept = kNone;
  int64_t kept_nanos = 0;
  ReadyNodes last;  // a queue; see PlanNode::runs_last
  size_t num_last_run = 0;
  for (;;) {
    for (const ReadyNode& next : ready) {
      const PlanNode& item = plan_.nodes[next.node];
      if (item.runs_last) {
        last.push_back(next);
      } else if (next.is_dead ||
                 item.cost_nanos.load(std::memory_order_relaxed) < expensive_nanos) {
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
    if (here.empty() && num_last_run < last.size()) here.push_back(last[num_last_run++]);
    if (here.empty()) {
      if (done_here == 0 ||
          outstanding_.fetch_sub(done_here, std::memory_order_acq_rel) != done_here)
        return;
      thread.RunDeferred();  // other tasks need it more than the caller needs to hear of the end
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
        here.insert(here.begin(), last.begin() + static_cast<int64_t>(num_last_run), last.end());
        step_->scheduler->Schedule([this, rest = std::move(here)] { Loop(rest); });
        return;
      }
    }
    const ReadyNode at = here.back();
    here.pop_back();
    if (here.size() >= 2) Prefetch(here[here.size() - 2], here.back());
    ready.clear();
    if (kept.node >= 0)
      kept_nanos += plan_.nodes[at.node].cost_nanos.load(std::memory_order_relaxed);
    if (thread.has_deferred()) {
      waited_nanos += plan_.nodes[at.node].cost_nanos.load(std::memory_order_relaxed);
      const bool is_long =
          plan_.keeps_order ? ++waited_nodes > kLongestWaitNodes : waited_nanos > kLongestWaitNanos;
      if (is_long) thread.RunDeferred();
    } else {
      waited_nanos = 0;
      waited_nodes = 0;
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

// In a graph of thousands of nodes each finds what it needs out of the cache: it is called for
// while the one before still runs, step by step along the pointers.
void ExecutorRun::Prefetch(const ReadyNode& later, const ReadyNode& next) const {
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

bool ExecutorRun::RunNode(const ReadyNode& at, ReadyNodes& ready) {
  const PlanNode& item = plan_.nodes[at.node];
  Entry* inputs = at.iteration->inputs.data() + item.first_input;
  if (failed_.load(std::memory_order_acquire)) {
    ClearInputs(item, inputs);
    return true;
  }
  if (at.is_dead && item.kind != NodeKind::kTransfer && item.kind != NodeKind::kControlTrigger) {
    ClearInputs(item, inputs);
    NodeOutputs outputs(item.num_outputs);
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
  NodeOutputs outputs(item.num_outputs);
  KernelContext context(*step_, device_, *item.node, absl::MakeSpan(inputs, item.num_inputs),
                        absl::MakeSpan(outputs));
  context.set_frame(at.iteration->frame->id, at.iteration->index);
  context.set_input_dead(at.is_dead);
  context.set_host_outputs(item.host_outputs.get());
  const uint32_t average = item.cost_nanos.load(std::memory_order_relaxed);
  // Looking at the clock takes as long as a small node: those are measured in a few steps only.
  const bool is_measured = average == 0 || average >= kWorthMeasuringNanos ||
                           (static_cast<uint32_t>(at.node) + steps_) % kStepsBetweenMeasures == 0 ||
                           step_->trace != nullptr;
  Clock& clock = step_->scheduler->clock();
  const int64_t start = is_measured ? clock.NowNanos() : 0;
  absl::Status status = EndedByLackOfMemory([&] {
    return plan_.keeps_order ? ComputeInOrder(item, context) : item.kernel->Compute(context);
  });
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

absl::Status ExecutorRun::PrepareInputs(const PlanNode& item, Entry* inputs) const {
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

void ExecutorRun::RunAsync(const PlanNode& item, const ReadyNode& at, Entry* inputs,
                           ReadyNodes& ready) {
  auto call = std::make_shared<AsyncCall>();
  call->ready = at;
  call->outputs.resize(item.num_outputs);
  call->start_nanos = step_->scheduler->clock().NowNanos();
  call->context.emplace(*step_, device_, *item.node, absl::MakeSpan(inputs, item.num_inputs),
                        absl::MakeSpan(call->outputs));
  call->context->set_frame(at.iteration->frame->id, at.iteration->index);
  call->context->set_input_dead(at.is_dead);
  call->context->set_host_outputs(item.host_outputs.get());
  // A kernel that has its values already ends inside this call: the loop goes on with what it made
  // ready.
  const Collecting collecting(this, &ready);
  const auto finish = [this, call](const absl::Status& status) {
    // The code that follows, up to the reply of the step, does not belong to the kernel.
    const CatchesLackOfMemory not_here(false);
    if (!call->is_finished.exchange(true)) FinishAsync(*call, status);
  };
  std::optional<RunningNode> running;
  if (plan_.keeps_order) running.emplace(AtWork(item));
  const absl::Status lacking = EndedByLackOfMemory([&] {
    item.kernel->ComputeAsync(*call->context, finish);
    return absl::OkStatus();
  });
  if (!lacking.ok()) finish(lacking);
}

void ExecutorRun::FinishAsync(AsyncCall& call, const absl::Status& kernel_status) {
  const PlanNode& item = plan_.nodes[call.ready.node];
  ClearInputs(item, call.ready.iteration->inputs.data() + item.first_input);
  ReadyNodes ready;
  absl::Status status = kernel_status;
  if (status.ok()) status = CheckOutputs(item, call.outputs);
  const Tensor* const value = item.is_awaited ? &call.outputs[0].tensor : nullptr;
  const int64_t bytes =
      value != nullptr && value->valid() ? static_cast<int64_t>(value->size_bytes()) : 0;
  if (status.ok()) {
    if (step_->trace != nullptr) Trace(item, call.outputs, call.start_nanos);
    Propagate(call.ready, call.outputs, ready);
  } else {
    Fail(item, status);
  }
  if (item.is_awaited) {
    ready = Hold(std::move(ready), bytes);
    if (!ready.empty()) GoOn(std::move(ready));
    return;
  }
  const int64_t change = static_cast<int64_t>(ready.size()) - 1;
  if (change != 0 && outstanding_.fetch_add(change, std::memory_order_acq_rel) + change == 0) {
    Finish();
    return;
  }
  if (!ready.empty()) GoOn(std::move(ready));
}

void ExecutorRun::GoOn(ReadyNodes ready) {
  WaitingThread& thread = WaitingThread::Current();
  // See RunAsync.
  if (auto* const collected = static_cast<ReadyNodes*>(thread.CollectorOf(this))) {
    collected->insert(collected->end(), ready.begin(), ready.end());
    return;
  }
  // The thread that completed the kernel belongs to someone else: unless it is soon over, the rest
  // of the step goes to the scheduler. What a device has computed is sent at once: nodes that this
  // starts elsewhere ask the same question.
  const auto is_send = [this](const ReadyNode& at) {
    const PlanNode& item = plan_.nodes[at.node];
    return item.kind == NodeKind::kTransfer && !item.is_async;
  };
  if (owner_.is_brief() || (plan_.keeps_order && std::all_of(ready.begin(), ready.end(), is_send)))
    return Loop(std::move(ready));
  // Values that arrive together go on together.
  {
    MutexLock lock(mutex_);
    const bool is_first = arrived_.empty();
    arrived_.insert(arrived_.end(), ready.begin(), ready.end());
    if (!is_first) return;
  }
  const auto go_on = [this] {
    ReadyNodes arrived;
    {
      MutexLock lock(mutex_);
      arrived.swap(arrived_);
    }
    Loop(std::move(arrived));
  };
  if (!owner_.is_short() || !thread.has_duty() || thread.has_deferred())
    return step_->scheduler->Schedule(go_on);
  thread.AtEndOfTurn([go_on] {
    WaitingThread::Current().HandOver();
    go_on();
  });
}

absl::Status ExecutorRun::CheckOutputs(const PlanNode& item, NodeOutputs& outputs) const {
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
    if (item.host_outputs == nullptr || entry.state != Entry::State::kValue ||
        !IsPlainData(entry.tensor.dtype()))
      continue;
    const bool is_host = (*item.host_outputs)[i];
    if (entry.tensor.size_bytes() > 0 && is_host == IsInDeviceMemory(entry.tensor)) {
      return Internal("Output ", i, " of node ", item.node->name(), " is not in ",
                      is_host ? "host memory" : "the memory of its device");
    }
  }
  return absl::OkStatus();
}

// Kernels may have taken a constant out of its place.
void ExecutorRun::ClearButConstants(const PlanNode& item, Entry* inputs) {
  for (int i = 0; i < item.num_inputs; ++i) {
    const Tensor& constant = plan_.constants[item.first_input + i];
    if (!constant.valid()) {
      inputs[i].Clear();
    } else if (inputs[i].tensor.buffer().region() != constant.buffer().region()) {
      inputs[i].tensor = constant;
    }
  }
}

void ExecutorRun::Propagate(const ReadyNode& at, NodeOutputs& outputs, ReadyNodes& ready) {
  const PlanNode& item = plan_.nodes[at.node];
  RunIteration& from = *at.iteration;
  switch (item.kind) {
    case NodeKind::kEnter:
    case NodeKind::kConstantEnter:
      Enter(item, at, outputs, ready);
      break;
    case NodeKind::kExit:
      if (!at.is_dead) {
        RunIteration& parent = *from.frame->parent;
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

// Hands the outputs of a node to its consumers in iteration `to`.
void ExecutorRun::Activate(const PlanNode& item, bool is_dead, NodeOutputs& outputs,
                           RunIteration& to, ReadyNodes& ready) {
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

void ExecutorRun::DeliverPlain(const PlanEdge& edge, bool edge_is_dead, RunIteration& to,
                               ReadyNodes& ready) {
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

// A dead Enter alone kills its Merge: the other input, the back edge, never arrives. Everything
// in the frame is then dead once, which is what peers that hold the rest of the loop wait for.
void ExecutorRun::DeliverMerge(const PlanEdge& edge, bool edge_is_dead, bool from_enter,
                               RunIteration& to, ReadyNodes& ready) {
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

void ExecutorRun::MakeReady(int node, RunIteration& iteration, bool is_dead, ReadyNodes& ready) {
  if (!iteration.frame->is_root())
    iteration.outstanding_nodes.fetch_add(1, std::memory_order_relaxed);
  ready.push_back({node, &iteration, is_dead});
}

void ExecutorRun::Fail(const PlanNode& item, const absl::Status& status) {
  Fail(Suffixed(status, absl::StrCat("\n\t [[{{node ", item.node->name(), "}}]]")));
}

void ExecutorRun::Fail(const absl::Status& named) {
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

void ExecutorRun::Finish() {
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
  Owner& owner = owner_;
  owner.Return(std::unique_ptr<ExecutorRun>(this));
  // Nothing of this object may be touched from here on: it may run another step already.
  std::move(done)(status);
}

}  // namespace muster
