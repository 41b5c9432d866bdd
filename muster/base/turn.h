// A turn: a stretch of work that one thread does without a pause. What several pieces of the work
// want to say to the same listener can wait for its end and then be said at once.
#pragma once

#include "muster/base/scheduler.h"

namespace muster {

// Lives on the stack of the thread whose turn it is. A turn inside of another one is part of it.
class Turn {
 public:
  Turn();
  // Runs what was put off; what that puts off too.
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Runs `task` at the end of this thread's turn, or now where it has none. Requires: the caller
  // holds no lock that the task could want.
  static void AtEnd(Task task);
  // Whether something waits for the end of this thread's turn.
  static bool HasPutOff();
  // Runs it now: the turn is going to take longer than others should wait.
  static void RunPutOff();
};

// A thread that waits has ended its turn for that time: what it put off is run before, and what it
// runs meanwhile has turns of its own.
class TurnBreak {
 public:
  TurnBreak();
  ~TurnBreak();
  TurnBreak(const TurnBreak&) = delete;
  TurnBreak& operator=(const TurnBreak&) = delete;

 private:
  const int depth_;
};

}  // namespace muster
