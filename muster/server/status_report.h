// Tells whoever started this process how the task is doing: `muster launch` shows it.
#pragma once

#include <memory>
#include <string>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/cluster.h"

namespace muster {

class Master;
class Worker;

// Sends a datagram of JSON twice a second, and whenever something is noted, to the Unix socket that
// the environment names: {"job": "ps", "task": 0, "steps": 12, "global_step": 7, "joined": true}.
// A socket nobody reads is not an error. Thread-safe.
class StatusReport : public std::enable_shared_from_this<StatusReport> {
 public:
  static constexpr char kEnvironmentName[] = "MUSTER_STATUS_SOCKET";

  // Null where the environment names no socket.
  static std::shared_ptr<StatusReport> FromEnvironment(Scheduler& scheduler, TaskName self,
                                                       std::shared_ptr<Master> master,
                                                       std::shared_ptr<Worker> worker);
  StatusReport(Scheduler& scheduler, TaskName self, std::shared_ptr<Master> master,
               std::shared_ptr<Worker> worker, int socket, std::string path);
  ~StatusReport();
  void Start();
  void Stop();
  // The process does nothing but serve.
  void NoteJoined();

 private:
  void SendAndWait();
  void Send();

  Scheduler& scheduler_;
  const TaskName self_;
  const std::shared_ptr<Master> master_;
  const std::shared_ptr<Worker> worker_;
  const int socket_;
  const std::string path_;
  Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster
