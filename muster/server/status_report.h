// Tells whoever started this process how the task is doing: `muster launch` shows it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/task_status.h"

namespace muster {

// Sends a datagram of JSON twice a second, and whenever something is noted, to the Unix socket that
// the environment names: {"job": "ps", "task": 0, ...}, see TaskJson.
// A socket nobody reads is not an error. Thread-safe.
class StatusReport : public std::enable_shared_from_this<StatusReport> {
 public:
  static constexpr char kEnvironmentName[] = "MUSTER_STATUS_SOCKET";

  // Null where the environment names no socket.
  static std::shared_ptr<StatusReport> FromEnvironment(Scheduler& scheduler,
                                                       std::function<TaskStatus()> status);
  StatusReport(Scheduler& scheduler, std::function<TaskStatus()> status, int socket,
               std::string path);
  ~StatusReport();
  void Start();
  void Stop();
  // The process does nothing but serve.
  void NoteJoined();

 private:
  void SendAndWait();
  void Send();

  Scheduler& scheduler_;
  const std::function<TaskStatus()> status_;
  const int socket_;
  const std::string path_;
  Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster
