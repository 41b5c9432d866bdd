// The frames of loops.
//
// Enter makes (or finds) the child frame of the current iteration; NextIteration moves a value to
// the next iteration, which is created when fewer than parallel_iterations are under way and
// otherwise waits in next_roots; Exit hands a live value to the parent. Dead exits of the last
// iteration are passed on when the frame is done: all Enters have arrived and no iteration is left.
// One mutex per frame guards its iterations; counts are atomic.
#include "muster/runtime/executor_run.h"

namespace muster {

void ExecutorRun::Enter(const PlanNode& item, const ReadyNode& at, NodeOutputs& outputs,
                        ReadyNodes& ready) {
  RunFrame* frame;
  bool created = false;
  {
    MutexLock lock(mutex_);
    std::unique_ptr<RunFrame>& slot = frames_[{at.iteration, item.child_frame}];
    if (slot == nullptr) {
      slot = std::make_unique<RunFrame>(plan_.frames[item.child_frame], item.child_frame,
                                        at.iteration);
      NameFrame(*slot);
      created = true;
      MutexLock frame_lock(slot->mutex);
      slot->iterations.push_back(std::make_unique<RunIteration>(slot->plan, slot.get(), 0));
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
    NodeOutputs value = outputs;
    if (item.kind == NodeKind::kConstantEnter) {
      // Every iteration under way gets it now, later ones when they start; dead ones too, since a
      // control loop may go on without the values that it waits for.
      frame->constants.emplace_back(at.node, outputs[0]);
      for (auto& iteration : frame->iterations) {
        NodeOutputs copy = outputs;
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

void ExecutorRun::NameFrame(RunFrame& frame) {
  frame.name = frame.parent->frame->name.Child(frame.plan.name, frame.parent->index);
  const FrameIds rule = step_->frame_ids;
  frame.id = frame.name.id(rule);
  if (step_->rendezvous != nullptr) {
    step_->rendezvous->AliasFrame(
        frame.id,
        frame.name.id(rule == FrameIds::kSince23 ? FrameIds::kBefore23 : FrameIds::kSince23));
  }
}

void ExecutorRun::NextIteration(const PlanNode& item, int node, RunIteration& from,
                                NodeOutputs& outputs, ReadyNodes& ready) {
  RunFrame& frame = *from.frame;
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

RunIteration& ExecutorRun::AddIterationLocked(RunFrame& frame, ReadyNodes& ready) {
  const int64_t index = ++frame.last_iteration;
  frame.iterations.push_back(std::make_unique<RunIteration>(frame.plan, &frame, index));
  RunIteration& iteration = *frame.iterations.back();
  // Dead exits seen so far belong to an iteration that was not the last.
  frame.dead_exits.clear();
  for (const auto& [node, entry] : frame.constants) {
    NodeOutputs value(1, entry);
    Activate(plan_.nodes[node], entry.state == Entry::State::kEmpty, value, iteration, ready);
  }
  return iteration;
}

// Counts one node of a child frame's iteration as done and closes what is over.
void ExecutorRun::NodeDone(RunIteration& iteration, ReadyNodes& ready) {
  RunFrame& frame = *iteration.frame;
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
bool ExecutorRun::CleanUpLocked(RunFrame& frame, ReadyNodes& ready) {
  while (!frame.iterations.empty()) {
    RunIteration& oldest = *frame.iterations.front();
    const bool is_over = oldest.outstanding_nodes == 0 && oldest.outstanding_frames == 0 &&
                         (oldest.index > 0 || frame.pending_enters == 0);
    if (!is_over) break;
    if (!frame.next_roots.empty()) {
      // There is room for the iteration that waits; it starts before the oldest one goes.
      AddIterationLocked(frame, ready);
      std::vector<std::pair<int, Entry>> roots = std::move(frame.next_roots);
      frame.next_roots.clear();
      for (auto& [node, entry] : roots) {
        NodeOutputs value(1, std::move(entry));
        Activate(plan_.nodes[node], false, value, *frame.iterations.back(), ready);
      }
    }
    frame.iterations.pop_front();
  }
  return frame.pending_enters == 0 && frame.iterations.empty();
}

void ExecutorRun::FrameDone(RunFrame& frame, ReadyNodes& ready) {
  RunIteration& parent = *frame.parent;
  std::vector<int> dead_exits;
  {
    MutexLock lock(frame.mutex);
    dead_exits = std::move(frame.dead_exits);
  }
  for (int node : dead_exits) {
    NodeOutputs nothing(1);
    Activate(plan_.nodes[node], /*is_dead=*/true, nothing, parent, ready);
  }
  std::unique_ptr<RunFrame> dropped;
  {
    MutexLock lock(mutex_);
    const auto found = frames_.find(std::make_pair(frame.parent, frame.plan_index));
    dropped = std::move(found->second);
    frames_.erase(found);
  }
  RunFrame& parent_frame = *parent.frame;  // the iteration itself may go with the clean-up
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

}  // namespace muster
