// Opens sessions and makes their model ready: the chief restores or initializes it, the others wait
// until it is there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/client/session.h"
#include "muster/train/loop/timer.h"

namespace muster {

using SessionFactory = std::function<absl::StatusOr<std::shared_ptr<Session>>()>;

// A run with given feeds; a tensor that is fetched may say whether the model is ready.
struct InitStep {
  StepSignature signature;
  std::vector<Tensor> feeds;
  RunOptions options;
  std::string name;  // in error texts

  static InitStep Of(Node* op);
  static InitStep Of(Output tensor);
};

// Where a model can be restored from.
struct CheckpointSource {
  // Writes the checkpoint's values into the session's variables.
  std::function<absl::Status(Session&, const std::string& prefix)> restore;
  // The checkpoints that a directory lists.
  struct State {
    std::string newest;            // empty: none
    std::vector<std::string> all;  // oldest first
  };
  std::function<absl::StatusOr<State>(const std::string& directory)> read_state;
  // Told of the checkpoints that exist. May be empty.
  std::function<absl::Status(std::vector<std::string> prefixes)> recover_last_checkpoints;
  std::string directory;  // the newest one there
  std::string file;       // or this one: not both
  // Wait until there is one, at most `max_wait`.
  bool wait = false;
  absl::Duration max_wait = absl::Seconds(7200);
};

// Thread-safe.
class SessionManager {
 public:
  struct Options {
    std::optional<InitStep> local_init;
    // Steps whose value lists what is missing; absent: ready. ready_for_local_init needs
    // local_init.
    std::optional<InitStep> ready;
    std::optional<InitStep> ready_for_local_init;
    // The longest time between two looks at a model that is not ready. The first ones follow each
    // other after 50 ms.
    absl::Duration recovery_wait = absl::Seconds(30);
    // Whether the tasks have a newer model than any checkpoint. PrepareSession goes on with it
    // then, if `ready` finds nothing missing. May be empty.
    std::function<bool()> keeps_model;
    Interrupted interrupted;
    Timer* timer = nullptr;  // null: real time
  };
  static absl::StatusOr<std::unique_ptr<SessionManager>> Create(Options options);

  struct InitOptions {
    std::optional<InitStep> init;
    std::function<absl::Status(Session&)> init_fn;
    std::string init_fn_name = "None";  // in error texts
  };
  // The chief's session: with the model that is kept, else restored if there is a checkpoint, else
  // initialized; and ready.
  absl::StatusOr<std::shared_ptr<Session>> PrepareSession(const SessionFactory& factory,
                                                          const InitOptions& init,
                                                          const CheckpointSource& source) const;

  struct Recovered {
    std::shared_ptr<Session> session;
    bool ready = false;  // restored, and ready
  };
  absl::StatusOr<Recovered> RecoverSession(const SessionFactory& factory,
                                           const CheckpointSource& source) const;

  // Another worker's session, once the chief has made the model ready. DeadlineExceeded when that
  // takes longer than `max_wait`.
  absl::StatusOr<std::shared_ptr<Session>> WaitForSession(
      const SessionFactory& factory, absl::Duration max_wait = absl::InfiniteDuration()) const;

 private:
  explicit SessionManager(Options options);

  absl::StatusOr<Recovered> Restore(const SessionFactory& factory,
                                    const CheckpointSource& source) const;
  // A session that goes on with the model that the tasks have; not ready when that is not to be.
  absl::StatusOr<Recovered> Keep(const SessionFactory& factory) const;
  // What is missing; nothing when ready.
  absl::StatusOr<std::optional<std::string>> Missing(const std::optional<InitStep>& step,
                                                     Session& session,
                                                     absl::string_view what) const;
  // Runs local_init where the model is ready for it; what is missing otherwise.
  absl::StatusOr<std::optional<std::string>> LocalInit(Session& session) const;

  // What one look at a session found.
  struct Look {
    std::optional<std::string> local_missing, missing;
    bool local_init_ran = false;
    bool ready = false;
  };
  absl::StatusOr<Look> LookAt(Session& session) const;

  const Options options_;
  Timer& timer_;
};

}  // namespace muster
