// The master of a task: sessions of clients, run over all tasks of the cluster.
#pragma once

#include <memory>

#include "muster/transport/api/master_api.h"
#include "muster/transport/api/peers.h"
#include "muster/transport/api/step_sequences.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {

class Farewells;

struct MasterOptions {
  TaskName self;
  int port = 0;  // on which the task listens; sessions with a cluster of their own name it
  // Outlive the master.
  Scheduler* scheduler = nullptr;
  Transport* transport = nullptr;
  std::shared_ptr<Peers> peers;                   // of the cluster that the server was started with
  std::shared_ptr<WorkerApi> local_worker;        // of the same task
  SessionConfig default_config;                   // under every session's own
  std::shared_ptr<StepSequences> step_sequences;  // of the same task; null: its own
  std::shared_ptr<Farewells> farewells;           // null: its own
  // A client that has no call open for this long after it vanished loses its session.
  absl::Duration orphan_grace = absl::Seconds(10);
  // Closing a session waits no longer than this for tasks that do not answer.
  absl::Duration close_timeout = absl::Milliseconds(1500);
  // Missing tasks are named after the first, then at growing intervals up to the second.
  absl::Duration missing_first_report = absl::Seconds(2);
  absl::Duration missing_report_limit = absl::Seconds(60);
  // How tasks are watched whose part of a step is over.
  LivenessOptions liveness;
  CallerLimits limits;  // of every caller
  // Replies of finished steps, for requests that are sent again: bytes of all sessions, and how
  // many each session has.
  size_t reply_cache_bytes = 64 << 20;
  int reply_cache_entries = 1024;
};

// Thread-safe. See wire-protocol §3.1, §3.2, §3.5, §3.8 to §3.12 for what clients rely on.
class Master : public MasterApi {
 public:
  static std::shared_ptr<Master> Create(MasterOptions options);
  // What would begin something new fails with `reason`; what is under way goes on.
  virtual void Refuse(absl::Status reason) = 0;
  // Steps under way are cancelled with `reason`, sessions closed; later calls fail. `done` when it
  // is over.
  virtual void Stop(absl::Status reason, Done done) = 0;
  struct Counts {
    int64_t sessions = 0;
    int64_t steps = 0;
    int64_t steps_run = 0;
  };
  virtual Counts counts() const = 0;
};

}  // namespace muster
