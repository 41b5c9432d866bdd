// Ctrl-C and SIGTERM in a training program: the loop ends at its next step, what would be lost is
// saved, and the program ends with one line.
//
//   options.session.interrupted = CatchInterruptions();
//   ASSIGN_OR_RETURN(auto session, MonitoredTrainingSession(std::move(options)));
//   absl::Status status;
//   while (status.ok() && !session->ShouldStop())
//     status = session->Run(feeds, {}, {train}).status();
//   return session->CloseAfter(status);  // "Interrupted; saved model/model.ckpt-20"
//
// and in main, with that status:
//
//   if (IsInterruption(status)) std::cerr << status.message() << "\n";
//   return ExitStatus(status);
#pragma once

#include <string>
#include <vector>

#include "muster/train/loop/timer.h"

namespace muster {

// From here on the first SIGINT or SIGTERM interrupts the program instead of ending it; a second
// signal ends it at once. Signals that are ignored, or have a handler already, are left alone. The
// function gives an error while the program is interrupted, to every thread and session that asks;
// only a session that is being closed may go on. When the last copy of all such functions is gone
// the signals have their default action again, and the interruption is over. Thread-safe.
Interrupted CatchInterruptions();

// Whether this is how a loop ended that was interrupted: Cancelled, the message is what the user
// should be told.
bool IsInterruption(const absl::Status& status);

// Of a program that ends with `status`: 128 and the signal after an interruption, as shells count.
int ExitStatus(const absl::Status& status);

// --- For what closes a training session

// While one lives, the calling thread is not interrupted: it saves.
class Uninterrupted {
 public:
  Uninterrupted();
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
  Uninterrupted& operator=(const Uninterrupted&) = delete;
};

// How a loop has been interrupted that ended with `error` and asked `interrupted`, which may be
// empty. OK: it has not been, or has failed by itself.
absl::Status InterruptionOf(const absl::Status& error, const Interrupted& interrupted);

// `interruption` as the user is told of it, once it is known what has been saved.
absl::Status InterruptionWith(const absl::Status& interruption,
                              const absl::StatusOr<std::vector<std::string>>& saved);

}  // namespace muster
