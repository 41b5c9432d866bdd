#include "muster/transport/grpc/grpc_listener.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster {
namespace {

// Before the thread looks whether it should end.
constexpr int kMostAtOnce = 64;

// Accepted sockets have what the listening one has.
void SetUp(int listener) {
  const int on = 1;
  const int timeout_millis = kServerKeepaliveTimeoutMillis;
  setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(listener, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_millis, sizeof(timeout_millis));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(
    ListeningSockets sockets, std::unique_ptr<Server> server, std::shared_ptr<Acceptor> acceptor,
    std::shared_ptr<GrpcConnections> connections) {
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return absl::UnknownError(absl::StrCat("eventfd: ", std::strerror(errno)));
  for (const Descriptor& socket : sockets.sockets()) SetUp(socket.get());
  RETURN_IF_ERROR(sockets.Listen());
  return std::unique_ptr<GrpcListener>(new GrpcListener(std::move(sockets), std::move(wake),
                                                        std::move(server), std::move(acceptor),
                                                        std::move(connections)));
}

GrpcListener::GrpcListener(ListeningSockets sockets, Descriptor wake,
                           std::unique_ptr<Server> server, std::shared_ptr<Acceptor> acceptor,
                           std::shared_ptr<GrpcConnections> connections)
    : sockets_(std::move(sockets)),
      wake_(std::move(wake)),
      server_(std::move(server)),
      acceptor_(std::move(acceptor)),
      connections_(std::move(connections)),
      thread_([this] {
        pthread_setname_np(pthread_self(), "muster-accept");
        Run();
      }) {
  acceptor_->set_refresh([weak = std::weak_ptr<GrpcConnections>(connections_)] {
    if (const auto open = weak.lock()) open->Sweep();
  });
}

GrpcListener::~GrpcListener() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void GrpcListener::Run() {
  for (;;) {
    std::vector<pollfd> waiting = {{wake_.get(), POLLIN, 0}};
    const absl::Duration pause = acceptor_->pause();
    const bool is_paused = pause > absl::ZeroDuration();
    for (const Descriptor& socket : sockets_.sockets())
      waiting.push_back({is_paused ? -1 : socket.get(), POLLIN, 0});
    poll(waiting.data(), waiting.size(),
         is_paused ? static_cast<int>(absl::ToInt64Milliseconds(pause)) : -1);
    if (waiting[0].revents != 0) return;
    for (size_t i = 1; i < waiting.size(); ++i) {
      // After a pause each is asked, so that it is known when the system gives connections again.
      if (is_paused || waiting[i].revents != 0) AcceptFrom(sockets_.sockets()[i - 1].get());
    }
  }
}

void GrpcListener::AcceptFrom(int listener) {
  const auto make_room = [this](const std::string* peer) { return connections_->MakeRoom(peer); };
  for (int i = 0; i < kMostAtOnce; ++i) {
    std::optional<Acceptor::Connection> connection = acceptor_->Accept(listener, make_room);
    if (!connection) return;
    connections_->Add(*connection);
    Server::NewConnectionParameters parameters;
    parameters.listener_fd = listener;
    parameters.fd = std::move(connection->socket).Release();
    server_->HandleNewConnection(&parameters);
  }
}

}  // namespace muster
