#include "muster/cli/report_socket.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "muster/base/settings.h"

namespace muster {

ReportSocket::ReportSocket() {
  const std::string parent = EnvironmentVariable("TMPDIR");
  std::string folder = absl::StrCat(parent.empty() ? "/tmp" : parent, "/muster-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) return;
  folder_ = folder;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path().size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path().c_str(), path().size() + 1);
  fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd_);
    fd_ = -1;
  }
}

ReportSocket::~ReportSocket() {
  if (fd_ >= 0) close(fd_);
  if (folder_.empty()) return;
  unlink(path().c_str());
  rmdir(folder_.c_str());
}

std::string ReportSocket::Receive() {
  char text[4096];
  const ssize_t length = fd_ < 0 ? -1 : recv(fd_, text, sizeof(text), 0);
  return length <= 0 ? "" : std::string(text, static_cast<size_t>(length));
}

}  // namespace muster
