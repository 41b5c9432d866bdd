// Reports the state of the task to the launcher of this process: `muster launch` shows it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/api/task_status.h"

namespace muster {

// Sends a datagram of JSON twice a second, and whenever something is noted, to a Unix socket:
// {"job": "ps", "task": 0, ...}, see TaskJson. A socket without a reader is not an
// error. Thread-safe.
class StatusReport : public std::enable_shared_from_this<StatusReport> {
 public:
  // Names the socket to the processes that `muster launch` starts.
  static constexpr char kEnvironmentName[] = "MUSTER_STATUS_SOCKET";

  // Null where `path` is empty, or longer than that of a socket may be, which is logged.
  static std::shared_ptr<StatusReport> To(const std::string& path, Scheduler& scheduler,
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
