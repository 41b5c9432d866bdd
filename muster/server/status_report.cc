#include "muster/server/status_report.h"

#include <cstring>
#include <utility>

#include "absl/time/time.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "muster/base/log.h"
#include "muster/server/task_report.h"

namespace muster {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(500);

}  // namespace

std::shared_ptr<StatusReport> StatusReport::To(const std::string& path, Scheduler& scheduler,
                                               std::function<TaskStatus()> status) {
  if (path.empty()) return nullptr;
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    LOG(WARNING) << kEnvironmentName << " is '" << path << "': the path of a socket has less than "
                 << sizeof(sockaddr_un::sun_path) << " bytes";
    return nullptr;
  }
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return nullptr;
  return std::make_shared<StatusReport>(scheduler, std::move(status), socket, path);
}

StatusReport::StatusReport(Scheduler& scheduler, std::function<TaskStatus()> status, int socket,
                           std::string path)
    : scheduler_(scheduler), status_(std::move(status)), socket_(socket), path_(std::move(path)) {}

StatusReport::~StatusReport() {
  close(socket_);
}

void StatusReport::Start() {
  {
    MutexLock lock(mutex_);
    running_ = true;
  }
  SendAndWait();
}

void StatusReport::Stop() {
  MutexLock lock(mutex_);
  running_ = false;
}

void StatusReport::NoteJoined() {
  {
    MutexLock lock(mutex_);
    if (joined_) return;
    joined_ = true;
  }
  Send();
}

void StatusReport::SendAndWait() {
  {
    MutexLock lock(mutex_);
    if (!running_) return;
  }
  Send();
  scheduler_.ScheduleAfter(kInterval, [weak = weak_from_this()] {
    if (const std::shared_ptr<StatusReport> self = weak.lock()) self->SendAndWait();
  });
}

void StatusReport::Send() {
  TaskStatus status = status_();
  MutexLock lock(mutex_);
  status.joined = joined_;
  const std::string text = TaskJson(status);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  // The launcher may be gone, or not read fast enough: the next report repeats the state.
  (void)sendto(socket_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

}  // namespace muster
