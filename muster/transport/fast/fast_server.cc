#include "muster/transport/fast/fast_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "muster/transport/api/peer.h"

namespace muster::fast {
namespace {

constexpr int kBufferBytes = 4 << 20;
constexpr int kBacklog = 128;
constexpr size_t kMostAtOnce = 64;  // connections, before others have their turn

struct Address {
  sockaddr_un address = {};
  socklen_t length = 0;
};

// A name that no file has: it goes with the socket.
Address AddressOf(const std::string& name) {
  Address result;
  result.address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof(result.address.sun_path) - 1);
  std::memcpy(result.address.sun_path + 1, name.data(), size);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return result;
}

int NewSocket() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fd;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof(kBufferBytes));
  return fd;
}

bool IsSameUser(int socket) {
  ucred credentials = {};
  socklen_t length = sizeof(credentials);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == geteuid();
}

// A process has one link to each server. Links leave most descriptors to connections over the
// network.
ConnectionLimits LinkLimits() {
  const int in_all = std::clamp(DescriptorLimit() / 4, 16, 4096);
  return {in_all, in_all / 2};
}

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

std::string CapabilityOf(int port, absl::string_view name) {
  return absl::StrCat("fast=", port, "=", name);
}

absl::string_view NameIn(absl::string_view capability, absl::string_view address) {
  const absl::string_view port = address.substr(address.rfind(':') + 1);
  const bool is_fast = absl::ConsumePrefix(&capability, "fast=") &&
                       absl::ConsumePrefix(&capability, port) &&
                       absl::ConsumePrefix(&capability, "=");
  return is_fast ? capability : absl::string_view();
}

absl::StatusOr<std::shared_ptr<FastServer>> FastServer::Start(ServeCall serve, Scheduler& scheduler,
                                                              size_t max_message_bytes) {
  std::shared_ptr<FastServer> server(
      new FastServer(std::move(serve), scheduler, max_message_bytes));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

FastServer::FastServer(ServeCall serve, Scheduler& scheduler, size_t max_message_bytes)
    : serve_(std::move(serve)),
      scheduler_(scheduler),
      max_message_bytes_(max_message_bytes),
      acceptor_("the fast plane", LinkLimits()) {}

absl::Status FastServer::Listen() {
  Poller& poller = Poller::Global();
  if (!poller.works()) return SystemError("cannot wait for connections");
  const PeerInfo& self = LocalPeer();
  name_ = absl::StrFormat("muster-%016x-%016x", self.incarnation,
                          static_cast<uint64_t>(NewRequestId()));
  const int fd = NewSocket();
  if (fd < 0) return SystemError("cannot make a socket");
  const Address address = AddressOf(name_);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0 ||
      listen(fd, kBacklog) != 0) {
    absl::Status status = SystemError("cannot listen");
    close(fd);
    return status;
  }
  number_ = poller.Add(weak_from_this());
  MutexLock lock(mutex_);
  socket_ = fd;
  poller.Watch(number_, fd, /*for_writing=*/false, /*first=*/true);
  return absl::OkStatus();
}

FastServer::~FastServer() {
  Refuse();
  for (const auto& link : Links()) link->Break("Socket closed");
}

void FastServer::Ready() {
  std::vector<Acceptor::Connection> accepted;
  {
    MutexLock lock(mutex_);
    if (socket_ < 0) return;
    const auto make_room = [this](const std::string*) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return RemoveEndedLocked();
    };
    while (accepted.size() < kMostAtOnce) {
      std::optional<Acceptor::Connection> connection = acceptor_.Accept(socket_, make_room);
      if (!connection) break;
      accepted.push_back(*std::move(connection));
    }
    const absl::Duration pause = acceptor_.pause();
    if (pause > absl::ZeroDuration()) {
      WatchLaterLocked(pause);
    } else {
      Poller::Global().Watch(number_, socket_, /*for_writing=*/false);
    }
  }
  for (Acceptor::Connection& connection : accepted) AddLocal(std::move(connection));
}

void FastServer::WatchLaterLocked(absl::Duration pause) {
  scheduler_.ScheduleAfter(pause, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    MutexLock lock(self->mutex_);
    if (self->socket_ >= 0)
      Poller::Global().Watch(self->number_, self->socket_, /*for_writing=*/false);
  });
}

ServeCall FastServer::ServeUnlessRefused() const {
  return [serve = serve_, refuses = refuses_](FastCall call) {
    if (refuses->load())
      return std::move(call.reply)(absl::UnavailableError("The server is being stopped"));
    serve(std::move(call));
  };
}

void FastServer::Add(Descriptor socket, std::shared_ptr<const Caller> caller) {
  if (refuses_->load()) return;
  std::shared_ptr<FastLink> link =
      FastLink::Create(std::move(socket).Release(), ServeUnlessRefused(), &scheduler_,
                       max_message_bytes_, Reach::kNetwork, std::move(caller));
  MutexLock lock(mutex_);
  RemoveEndedLocked();
  links_.push_back({std::move(link), ""});
}

void FastServer::AddLocal(Acceptor::Connection connection) {
  const int socket = connection.socket.get();
  if (!IsSameUser(socket)) return acceptor_.Ended(connection.peer, Acceptor::End::kDropped);
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof(kBufferBytes));
  std::shared_ptr<FastLink> link =
      FastLink::Create(std::move(connection.socket).Release(), ServeUnlessRefused(), &scheduler_,
                       max_message_bytes_);
  MutexLock lock(mutex_);
  RemoveEndedLocked();
  links_.push_back({std::move(link), std::move(connection.peer)});
}

bool FastServer::RemoveEndedLocked() {
  const auto first = std::stable_partition(links_.begin(), links_.end(),
                                           [](const auto& each) { return each.link->is_open(); });
  const bool found = first != links_.end();
  for (auto ended = first; ended != links_.end(); ++ended)
    if (!ended->peer.empty()) acceptor_.Ended(ended->peer, Acceptor::End::kClosed);
  links_.erase(first, links_.end());
  return found;
}

std::vector<std::shared_ptr<FastLink>> FastServer::Links() {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<FastLink>> links;
  for (const OpenLink& each : links_) links.push_back(each.link);
  return links;
}

size_t FastServer::NumServed() {
  size_t count = 0;
  for (const auto& link : Links()) count += link->num_served();
  return count;
}

void FastServer::Refuse() {
  refuses_->store(true);
  MutexLock lock(mutex_);
  if (socket_ < 0) return;
  Poller::Global().Remove(number_, socket_);
  close(socket_);
  socket_ = -1;
}

void FastServer::Stop(absl::Duration grace) {
  Refuse();
  const absl::Time cancel_at = absl::Now() + grace;
  const absl::Time leave_at = cancel_at + absl::Seconds(1);
  bool cancelled = false;
  while (NumServed() > 0 && absl::Now() < leave_at) {
    if (!cancelled && absl::Now() >= cancel_at) {
      cancelled = true;
      for (const auto& link : Links())
        link->CancelServed(absl::UnavailableError("The server is being stopped"));
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
  for (const auto& link : Links()) link->Break("Socket closed");
}

absl::StatusOr<std::shared_ptr<FastLink>> LinkTo(const std::string& name, Scheduler& scheduler,
                                                 size_t max_message_bytes) {
  struct Known {
    Mutex mutex;
    absl::flat_hash_map<std::string, std::weak_ptr<FastLink>> links ABSL_GUARDED_BY(mutex);
  };
  static auto* const known = new Known;
  MutexLock lock(known->mutex);
  std::shared_ptr<FastLink> link = known->links[name].lock();
  if (link != nullptr && link->is_open()) return link;
  absl::erase_if(known->links, [](const auto& each) { return each.second.expired(); });
  if (!Poller::Global().works()) return SystemError("cannot wait for answers");
  const int fd = NewSocket();
  if (fd < 0) return SystemError("cannot make a socket");
  const Address address = AddressOf(name);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0 ||
      !IsSameUser(fd)) {
    absl::Status status = SystemError("cannot connect to a neighbour");
    close(fd);
    return status;
  }
  link = FastLink::Create(fd, nullptr, &scheduler, max_message_bytes);
  known->links[name] = link;
  return link;
}

}  // namespace muster::fast
