#include "muster/transport/grpc/grpc_listener.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/base/threads/thread_name.h"
#include "muster/transport/fast/greeting.h"
#include "muster/transport/grpc/grpc_sockets.h"

namespace muster {
namespace {

// Before the thread looks whether it should end.
constexpr int kMostAtOnce = 64;
// Clients of gRPC, and those that want a link, speak first, at once. gRPC gets those that do not.
constexpr absl::Duration kSpeakWithin = absl::Seconds(1);
constexpr absl::Duration kGreetWithin = absl::Seconds(10);
// More are not waited for, but handed to gRPC.
constexpr size_t kMostUndecided = 256;

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
    std::shared_ptr<GrpcConnections> connections, TakeLink take_link) {
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return absl::UnknownError(absl::StrCat("eventfd: ", std::strerror(errno)));
  for (const Descriptor& socket : sockets.sockets()) SetUp(socket.get());
  RETURN_IF_ERROR(sockets.Listen());
  return std::unique_ptr<GrpcListener>(
      new GrpcListener(std::move(sockets), std::move(wake), std::move(server), std::move(acceptor),
                       std::move(connections), std::move(take_link)));
}

GrpcListener::GrpcListener(ListeningSockets sockets, Descriptor wake,
                           std::unique_ptr<Server> server, std::shared_ptr<Acceptor> acceptor,
                           std::shared_ptr<GrpcConnections> connections, TakeLink take_link)
    : sockets_(std::move(sockets)),
      wake_(std::move(wake)),
      server_(std::move(server)),
      acceptor_(std::move(acceptor)),
      connections_(std::move(connections)),
      take_link_(std::move(take_link)),
      thread_([this] {
        NameThread("muster-accept");
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
    const bool is_paused = acceptor_->pause() > absl::ZeroDuration();
    for (const Descriptor& socket : sockets_.sockets())
      waiting.push_back({is_paused ? -1 : socket.get(), POLLIN, 0});
    const size_t num_listeners = sockets_.sockets().size();
    for (const Undecided& each : undecided_)
      waiting.push_back({each.connection.socket.get(), POLLIN, 0});
    poll(waiting.data(), waiting.size(), PollMillis());
    if (waiting[0].revents != 0) return;
    std::vector<Undecided> undecided;
    for (size_t i = 0; i < undecided_.size(); ++i) {
      const bool is_due = waiting[1 + num_listeners + i].revents != 0;
      if (!(is_due || absl::Now() >= undecided_[i].until) || !Decide(undecided_[i]))
        undecided.push_back(std::move(undecided_[i]));
    }
    undecided_ = std::move(undecided);
    for (size_t i = 1; i <= num_listeners; ++i) {
      // After a pause each is asked, so that it is known when the system gives connections again.
      if (is_paused || waiting[i].revents != 0) AcceptFrom(sockets_.sockets()[i - 1].get());
    }
  }
}

int GrpcListener::PollMillis() const {
  absl::Duration pause = acceptor_->pause();
  if (pause <= absl::ZeroDuration()) pause = absl::InfiniteDuration();
  const absl::Time now = absl::Now();
  for (const Undecided& each : undecided_)
    pause = std::min(pause, std::max(each.until - now, absl::Milliseconds(1)));
  return pause == absl::InfiniteDuration() ? -1
                                           : static_cast<int>(absl::ToInt64Milliseconds(pause));
}

void GrpcListener::AcceptFrom(int listener) {
  const auto make_room = [this](const std::string* peer) { return connections_->MakeRoom(peer); };
  for (int i = 0; i < kMostAtOnce; ++i) {
    std::optional<Acceptor::Connection> connection = acceptor_->Accept(listener, make_room);
    if (!connection) return;
    connections_->Add(*connection);
    if (take_link_ == nullptr || undecided_.size() >= kMostUndecided) {
      HandToGrpc(*std::move(connection), listener);
      continue;
    }
    Undecided undecided{*std::move(connection), listener, "", absl::Now() + kSpeakWithin};
    if (!Decide(undecided)) undecided_.push_back(std::move(undecided));
  }
}

// The first byte tells gRPC and TLS from a greeting.
bool GrpcListener::Decide(Undecided& undecided) {
  const int socket = undecided.connection.socket.get();
  std::string& greeting = undecided.greeting;
  char bytes[sizeof(fast::Greeting)];
  const bool is_greeting = !greeting.empty();
  const size_t missing = sizeof(bytes) - greeting.size();
  const ssize_t count = recv(socket, bytes, missing, MSG_DONTWAIT | (is_greeting ? 0 : MSG_PEEK));
  const bool nothing_yet = count < 0 && (errno == EAGAIN || errno == EINTR);
  if (nothing_yet && absl::Now() < undecided.until) return false;
  const absl::string_view heard(bytes, count < 0 ? 0 : static_cast<size_t>(count));
  if (!is_greeting) {
    if (heard.empty() || !fast::MayBeGreeting(heard)) {
      HandToGrpc(std::move(undecided.connection), undecided.listener);
      return true;
    }
    // gRPC has no use for these bytes.
    undecided.until = absl::Now() + kGreetWithin;
    greeting.assign(heard.data(), heard.size());
    recv(socket, bytes, heard.size(), MSG_DONTWAIT);
  } else {
    greeting.append(heard.data(), heard.size());
  }
  const bool is_done = greeting.size() == sizeof(fast::Greeting);
  if (heard.empty() || !fast::MayBeGreeting(greeting)) {
    undecided.connection.socket = Descriptor();  // its place comes back when this is noticed
    return true;
  }
  if (is_done) HandToLinks(std::move(undecided.connection));
  return is_done;
}

void GrpcListener::HandToGrpc(Acceptor::Connection connection, int listener) {
  Server::NewConnectionParameters parameters;
  parameters.listener_fd = listener;
  parameters.fd = std::move(connection.socket).Release();
  server_->HandleNewConnection(&parameters);
}

void GrpcListener::HandToLinks(Acceptor::Connection connection) {
  const int socket = connection.socket.get();
  auto caller = std::make_shared<Caller>();
  caller->name = EndName(socket);
  caller->host = connection.peer;
  connections_->NoteLink(caller->name);
  const fast::Greeting greeting;
  const absl::string_view own = greeting.bytes();
  // Nothing was sent before: it fits.
  if (send(socket, own.data(), own.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
      static_cast<ssize_t>(own.size()))
    take_link_(std::move(connection.socket), std::move(caller));
}

}  // namespace muster
