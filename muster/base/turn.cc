#include "muster/base/turn.h"

#include <utility>
#include <vector>

namespace muster {
namespace {

struct ThreadTurn {
  int depth = 0;
  std::vector<Task> put_off;
};

ThreadTurn& Current() {
  thread_local ThreadTurn turn;
  return turn;
}

}  // namespace

Turn::Turn() {
  ++Current().depth;
}

Turn::~Turn() {
  // Still inside of it, so that tasks which put off more do not nest.
  if (Current().depth == 1) RunPutOff();
  --Current().depth;
}

void Turn::AtEnd(Task task) {
  ThreadTurn& turn = Current();
  if (turn.depth == 0) {
    std::move(task)();
  } else {
    turn.put_off.push_back(std::move(task));
  }
}

bool Turn::HasPutOff() {
  return !Current().put_off.empty();
}

void Turn::RunPutOff() {
  ThreadTurn& turn = Current();
  while (!turn.put_off.empty()) {
    std::vector<Task> tasks = std::exchange(turn.put_off, {});
    for (Task& task : tasks) std::move(task)();
  }
}

TurnBreak::TurnBreak() : depth_(Current().depth) {
  Turn::RunPutOff();
  Current().depth = 0;
}

TurnBreak::~TurnBreak() {
  Current().depth = depth_;
}

}  // namespace muster
