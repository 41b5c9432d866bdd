#include "muster/server/status_report.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "muster/base/log.h"
#include "muster/master/master.h"
#include "muster/params/variable.h"
#include "muster/runtime/resource_manager.h"
#include "muster/worker/worker.h"

namespace muster {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(500);

// The step of the model when this task holds it: TensorFlow's hooks and supervisors find it by the
// same name.
std::optional<int64_t> GlobalStep(const ResourceManager& resources) {
  const absl::StatusOr<RefPtr<Variable>> variable = resources.LookupAs<Variable>("", "global_step");
  if (!variable.ok()) return std::nullopt;
  const Tensor value = (*variable)->Snapshot();
  if (!value.valid() || value.num_elements() != 1) return std::nullopt;
  if (value.dtype() == DType::kInt64) return *value.data<int64_t>();
  if (value.dtype() == DType::kInt32) return *value.data<int32_t>();
  return std::nullopt;
}

}  // namespace

std::shared_ptr<StatusReport> StatusReport::FromEnvironment(Scheduler& scheduler, TaskName self,
                                                            std::shared_ptr<Master> master,
                                                            std::shared_ptr<Worker> worker) {
  const char* path = std::getenv(kEnvironmentName);
  if (path == nullptr || *path == '\0') return nullptr;
  if (std::strlen(path) >= sizeof(sockaddr_un::sun_path)) {
    LOG(WARNING) << kEnvironmentName << " is longer than a socket's path may be: " << path;
    return nullptr;
  }
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return nullptr;
  return std::make_shared<StatusReport>(scheduler, std::move(self), std::move(master),
                                        std::move(worker), socket, path);
}

StatusReport::StatusReport(Scheduler& scheduler, TaskName self, std::shared_ptr<Master> master,
                           std::shared_ptr<Worker> worker, int socket, std::string path)
    : scheduler_(scheduler),
      self_(std::move(self)),
      master_(std::move(master)),
      worker_(std::move(worker)),
      socket_(socket),
      path_(std::move(path)) {}

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
  std::string text = absl::StrCat("{\"job\": \"", self_.job, "\", \"task\": ", self_.task,
                                  ", \"steps\": ", master_->counts().steps_run);
  if (const std::optional<int64_t> step = GlobalStep(worker_->resources()))
    absl::StrAppend(&text, ", \"global_step\": ", *step);
  MutexLock lock(mutex_);
  absl::StrAppend(&text, ", \"joined\": ", joined_ ? "true" : "false", "}");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  // Nobody may listen any more, or not read fast enough: the next report says the same.
  (void)sendto(socket_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

}  // namespace muster
