#include "muster/collective/mesh/tcp_channel.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster::collective {
namespace {

class TcpChannel : public Channel {
 public:
  explicit TcpChannel(Descriptor socket) : socket_(std::move(socket)) { SetUpSocket(fd()); }

  absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces) override {
    const msghdr message = Message(pieces);
    return Result(sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  absl::StatusOr<size_t> Read(absl::Span<const iovec> pieces) override {
    msghdr message = Message(pieces);
    const ssize_t got = recvmsg(fd(), &message, MSG_DONTWAIT);
    if (got == 0) return absl::UnavailableError("closed its connection");
    return Result(got);
  }
  int fd() const override { return socket_.get(); }
  void CloseWriting() override { shutdown(fd(), SHUT_WR); }
  bool Flushed() const override { return SocketIsFlushed(fd()); }

 private:
  static msghdr Message(absl::Span<const iovec> pieces) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());  // msghdr knows no const
    message.msg_iovlen = pieces.size();
    return message;
  }
  static absl::StatusOr<size_t> Result(ssize_t bytes) {
    if (bytes >= 0) return static_cast<size_t>(bytes);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
    return absl::UnavailableError(absl::StrCat("connection lost (", std::strerror(errno), ")"));
  }

  const Descriptor socket_;
};

}  // namespace

void SetUpSocket(int socket) {
  const int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

bool SocketIsFlushed(int socket) {
  // After a reset nothing will be acknowledged.
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_CLOSE)
    return true;
  int unsent = 0;
  return ioctl(socket, SIOCOUTQ, &unsent) != 0 || unsent == 0;
}

std::unique_ptr<Channel> NewTcpChannel(Descriptor socket) {
  return std::make_unique<TcpChannel>(std::move(socket));
}

}  // namespace muster::collective
