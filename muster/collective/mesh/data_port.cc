#include "muster/collective/mesh/data_port.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/base/clock.h"
#include "muster/base/mutex.h"
#include "muster/base/net/acceptor.h"
#include "muster/base/threads/thread_name.h"
#include "muster/collective/mesh/shared_channel.h"
#include "muster/collective/mesh/tcp_channel.h"
#include "muster/collective/mesh/tls_channel.h"

namespace muster::collective {
namespace {

constexpr char kHelloMagic[] = "MUSTERd1";
constexpr char kReplyMagic[] = "MUSTERr1";
constexpr size_t kHelloBytes = 56, kReplyBytes = 16, kReasonBytes = 2048;
// Connections that have not shown the token, and those that wait for their group to be formed here.
constexpr int kStrangers = 128;
constexpr size_t kParked = 1024;
constexpr absl::Duration kParkedTime = absl::Minutes(10);
constexpr absl::Duration kKnockInterval = absl::Seconds(1);
constexpr size_t kEndedRemembered = 4096;

template <typename T>
T Get(const char* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(T));
  return value;
}

absl::Status ErrnoStatus(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Takes the same time whatever differs.
bool SameSecret(absl::string_view a, absl::string_view b) {
  unsigned char differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    differs = static_cast<unsigned char>(differs | (a[i] ^ b[i]));
  }
  return differs == 0;
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("no address for ", host, ": ", gai_strerror(error)));
  }
  return Addresses(found);
}

std::string EncodeReply(const absl::Status& status) {
  const absl::string_view text = absl::string_view(status.message()).substr(0, kReasonBytes);
  const std::array<uint32_t, 2> numbers{static_cast<uint32_t>(status.code()),
                                        static_cast<uint32_t>(text.size())};
  std::string reply(kReplyMagic, 8);
  reply.append(reinterpret_cast<const char*>(numbers.data()), sizeof(numbers));
  return reply.append(text.data(), text.size());
}

// A few bytes to a peer that has been sent nothing else: they fit.
void SendReply(Channel& channel, const absl::Status& status) {
  std::string reply = EncodeReply(status);
  const iovec piece{reply.data(), reply.size()};
  [[maybe_unused]] const absl::StatusOr<size_t> sent = channel.Write({&piece, 1});
}

// Waits until `socket` is ready for `events`, or for `timeout` milliseconds. CANCELLED when
// `cancel` becomes readable.
absl::Status WaitFor(int socket, short events, int cancel, int timeout = -1) {
  pollfd polled[2] = {{socket, events, 0}, {cancel, POLLIN, 0}};
  while (poll(polled, 2, timeout) < 0) {
    if (errno != EINTR) return ErrnoStatus("poll");
  }
  return polled[1].revents != 0 ? absl::CancelledError("the group has ended") : absl::OkStatus();
}

absl::Status ReadAll(Channel& channel, char* bytes, size_t count, int cancel) {
  while (count > 0) {
    const iovec piece{bytes, count};
    ASSIGN_OR_RETURN(const size_t got, channel.Read({&piece, 1}));
    if (got == 0 && !channel.Arm(/*for_room=*/false)) {
      RETURN_IF_ERROR(WaitFor(channel.fd(), POLLIN, cancel));
    }
    bytes += got;
    count -= got;
  }
  return absl::OkStatus();
}

// The first bytes to a peer.
absl::Status WriteHello(Channel& channel, std::string hello, int cancel) {
  for (size_t written = 0; written < hello.size();) {
    const iovec piece{hello.data() + written, hello.size() - written};
    ASSIGN_OR_RETURN(const size_t wrote, channel.Write({&piece, 1}));
    // There is room for them; only a handshake waits, for the other side.
    if (wrote == 0) RETURN_IF_ERROR(WaitFor(channel.fd(), POLLIN, cancel, /*timeout=*/100));
    written += wrote;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Channel>> NewChannel(Descriptor socket, TlsSide side,
                                                    const Endpoint& endpoint) {
  if (endpoint.encrypted) return NewTlsChannel(std::move(socket), side, endpoint.token);
  return NewTcpChannel(std::move(socket));
}

absl::StatusOr<Descriptor> ConnectTo(const Endpoint& endpoint, int cancel) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(endpoint.host, endpoint.port, 0));
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Descriptor socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) return ErrnoStatus("no socket");
    if (connect(socket.get(), address->ai_addr, address->ai_addrlen) == 0) return socket;
    if (errno == EINPROGRESS) {
      RETURN_IF_ERROR(WaitFor(socket.get(), POLLOUT, cancel));
      socklen_t size = sizeof(int);
      int error = 0;
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) return socket;
      errno = error;
    }
    last = ErrnoStatus(absl::StrCat(endpoint.host, ":", endpoint.port));
  }
  return last;
}

}  // namespace

class DataPort::State {
 public:
  // `local_listener` may be none.
  State(Endpoint endpoint, Descriptor listener, Descriptor local_listener, Descriptor wake,
        absl::Duration patience)
      : endpoint_(std::move(endpoint)),
        listener_(std::move(listener)),
        local_listener_(std::move(local_listener)),
        wake_(std::move(wake)),
        patience_(patience),
        acceptor_(absl::StrCat("the data port ", endpoint_.port), {kStrangers, kStrangers}) {}

  const Endpoint& endpoint() const { return endpoint_; }
  bool shares_memory() const { return local_listener_.get() >= 0; }
  void Run();
  void Stop();
  void Open(uint64_t group, int rank, Connector::Connected connected);
  void Close(uint64_t group, int rank, const absl::Status& reason);

 private:
  using Place = std::pair<uint64_t, int>;
  struct Stranger {
    std::unique_ptr<Channel> channel;
    LocalCaller* caller = nullptr;  // the channel, if it came through the local socket
    std::string peer;
    std::array<char, kHelloBytes> hello;
    size_t got = 0;
    int64_t deadline = 0;
  };
  struct Parked {
    std::unique_ptr<Channel> channel;
    Place place;
    int from = 0;
    int64_t deadline = 0;
  };

  void Accept(const Descriptor& listener);
  void Forget(std::list<Stranger>::iterator stranger, Acceptor::End end);
  // False when the connection is done with, one way or another.
  bool ReadHello(Stranger& stranger);
  void Admit(Stranger& stranger);
  // Answers a rank whose group is open here, and hands its channel on.
  static void Welcome(const Place& place, int from, std::unique_ptr<Channel> channel,
                      const Connector::Connected& connected);

  const Endpoint endpoint_;
  const Descriptor listener_;
  const Descriptor local_listener_;
  const Descriptor wake_;
  const absl::Duration patience_;
  Acceptor acceptor_;              // counts strangers
  std::list<Stranger> strangers_;  // of the thread alone, in order of arrival
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Place, Connector::Connected> open_ ABSL_GUARDED_BY(mutex_);
  std::map<Place, absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::list<Place> ended_order_ ABSL_GUARDED_BY(mutex_);
  std::list<Parked> parked_ ABSL_GUARDED_BY(mutex_);

 public:
  std::thread thread;
};

void DataPort::State::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread.join();
}

void DataPort::State::Run() {
  while (true) {
    std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
    const absl::Duration pause = acceptor_.pause();
    const bool is_paused = pause > absl::ZeroDuration();
    polled.push_back({is_paused ? -1 : listener_.get(), POLLIN, 0});
    polled.push_back({is_paused ? -1 : local_listener_.get(), POLLIN, 0});
    for (const Stranger& stranger : strangers_)
      polled.push_back({stranger.channel->fd(), POLLIN, 0});
    const int timeout = is_paused            ? static_cast<int>(absl::ToInt64Milliseconds(pause))
                        : strangers_.empty() ? 5000
                                             : 100;
    poll(polled.data(), polled.size(), timeout);
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      const int64_t now = Clock::Real().NowNanos();
      parked_.remove_if([&](const Parked& parked) { return parked.deadline < now; });
    }
    size_t index = 3;
    const int64_t now = Clock::Real().NowNanos();
    for (auto next = strangers_.begin(); next != strangers_.end();) {
      const auto stranger = next++;
      const bool readable = polled[index++].revents != 0;
      if (stranger->deadline < now || (readable && !ReadHello(*stranger)))
        Forget(stranger, Acceptor::End::kClosed);
    }
    if (is_paused || polled[1].revents != 0) Accept(listener_);
    const bool has_local = local_listener_.get() >= 0;
    if (has_local && (is_paused || polled[2].revents != 0)) Accept(local_listener_);
  }
}

void DataPort::State::Forget(std::list<Stranger>::iterator stranger, Acceptor::End end) {
  acceptor_.Ended(stranger->peer, end);
  strangers_.erase(stranger);
}

void DataPort::State::Accept(const Descriptor& listener) {
  // The connection that has been without a valid token for longest is dropped first.
  std::optional<Acceptor::Connection> accepted =
      acceptor_.Accept(listener.get(), [this](const std::string*) {
        if (strangers_.empty()) return false;
        Forget(strangers_.begin(), Acceptor::End::kDropped);
        return true;
      });
  if (!accepted) return;
  Descriptor socket = std::move(accepted->socket);
  LocalCaller* caller = nullptr;
  absl::StatusOr<std::unique_ptr<Channel>> channel;
  if (&listener == &local_listener_) {
    std::unique_ptr<LocalCaller> local = LocalCaller::Take(std::move(socket));
    caller = local.get();
    channel = std::move(local);
  } else {
    channel = NewChannel(std::move(socket), TlsSide::kAccepts, endpoint_);
  }
  if (!channel.ok() || *channel == nullptr)
    return acceptor_.Ended(accepted->peer, Acceptor::End::kDropped);
  Stranger& stranger = strangers_.emplace_back();
  stranger.peer = std::move(accepted->peer);
  stranger.channel = *std::move(channel);
  stranger.caller = caller;
  stranger.deadline = Clock::Real().NowNanos() + absl::ToInt64Nanoseconds(patience_);
}

bool DataPort::State::ReadHello(Stranger& stranger) {
  const iovec piece{stranger.hello.data() + stranger.got, kHelloBytes - stranger.got};
  const absl::StatusOr<size_t> got = stranger.channel->Read({&piece, 1});
  if (!got.ok()) return false;
  stranger.got += *got;
  // Wrong bytes are rejected without waiting for more.
  const size_t of_magic = std::min<size_t>(stranger.got, 8);
  if (std::memcmp(stranger.hello.data(), kHelloMagic, of_magic) != 0) return false;
  if (stranger.got < kHelloBytes) return true;
  if (!SameSecret({stranger.hello.data() + 24, kTokenBytes}, endpoint_.token)) return false;
  if (stranger.caller != nullptr) {
    absl::StatusOr<std::unique_ptr<Channel>> channel = std::move(*stranger.caller).Accept();
    if (!channel.ok()) return false;
    stranger.caller = nullptr;
    stranger.channel = *std::move(channel);
  }
  Admit(stranger);
  return false;
}

void DataPort::State::Admit(Stranger& stranger) {
  const char* const hello = stranger.hello.data();
  const Place place{Get<uint64_t>(hello, 8), Get<int32_t>(hello, 20)};
  const int from = Get<int32_t>(hello, 16);
  MutexLock lock(mutex_);
  if (const auto ended = ended_.find(place); ended != ended_.end()) {
    SendReply(*stranger.channel, ended->second);
  } else if (const auto open = open_.find(place); open != open_.end()) {
    Welcome(place, from, std::move(stranger.channel), open->second);
  } else if (parked_.size() < kParked) {
    parked_.push_back({std::move(stranger.channel), place, from,
                       Clock::Real().NowNanos() + absl::ToInt64Nanoseconds(kParkedTime)});
  } else {
    SendReply(*stranger.channel, absl::ResourceExhaustedError("too many groups are being formed"));
  }
}

void DataPort::State::Welcome(const Place& place, int from, std::unique_ptr<Channel> channel,
                              const Connector::Connected& connected) {
  SendReply(*channel, absl::OkStatus());
  const bool is_knock = from < place.second;
  connected(from, is_knock ? nullptr : std::move(channel));
}

void DataPort::State::Open(uint64_t group, int rank, Connector::Connected connected) {
  MutexLock lock(mutex_);
  const Place place{group, rank};
  for (auto next = parked_.begin(); next != parked_.end();) {
    const auto parked = next++;
    if (parked->place != place) continue;
    Welcome(place, parked->from, std::move(parked->channel), connected);
    parked_.erase(parked);
  }
  open_[place] = std::move(connected);
}

void DataPort::State::Close(uint64_t group, int rank, const absl::Status& reason) {
  MutexLock lock(mutex_);
  const Place place{group, rank};
  if (open_.erase(place) == 0) return;
  ended_[place] = reason;
  ended_order_.push_back(place);
  if (ended_order_.size() > kEndedRemembered) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
}

class TcpConnector : public Connector {
 public:
  TcpConnector(std::shared_ptr<DataPort::State> state, DataPort::Lookup lookup)
      : state_(std::move(state)),
        lookup_(std::move(lookup)),
        cancel_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~TcpConnector() override {
    End(absl::UnavailableError("has left the group"));
    std::vector<std::thread> threads;
    {
      MutexLock lock(mutex_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }

  void Open(uint64_t group, int rank, Connected connected) override {
    group_ = group;
    rank_ = rank;
    connected_ = connected;
    state_->Open(group, rank,
                 [this, connected = std::move(connected)](
                     int peer, absl::StatusOr<std::unique_ptr<Channel>> channel) {
                   if (channel.ok() && *channel != nullptr) {
                     MutexLock lock(mutex_);
                     came_.insert(peer);
                     changed_.NotifyAll();
                   }
                   connected(peer, std::move(channel));
                 });
  }

  void Connect(int peer) override {
    MutexLock lock(mutex_);
    if (ended_) return;
    threads_.emplace_back([this, peer] {
      NameThread("muster-connect");
      if (peer < rank_) return connected_(peer, Dial(peer));
      const absl::Status lost = KnockUntilItComes(peer);
      if (!lost.ok()) connected_(peer, lost);
    });
  }

  void End(const absl::Status& reason) override {
    {
      MutexLock lock(mutex_);
      if (std::exchange(ended_, true)) return;
      changed_.NotifyAll();
    }
    state_->Close(group_, rank_, reason);
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(cancel_.get(), &one, sizeof(one));
  }

 private:
  // The higher rank opens the channel. Knocks repeatedly: a rank that was there may be lost before
  // it connects.
  absl::Status KnockUntilItComes(int peer) {
    for (;;) {
      RETURN_IF_ERROR(Dial(peer).status());
      const absl::Time again = absl::Now() + kKnockInterval;
      MutexLock lock(mutex_);
      const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return ended_ || came_.contains(peer);
      };
      while (!is_over() && absl::Now() < again) changed_.WaitFor(mutex_, again - absl::Now());
      if (is_over()) return absl::OkStatus();
    }
  }

  absl::StatusOr<std::unique_ptr<Channel>> Dial(int peer) {
    ASSIGN_OR_RETURN(const Endpoint endpoint, lookup_(peer));
    if (endpoint.token.size() != kTokenBytes) return InvalidArgument("its token has another size");
    std::string hello(kHelloMagic, 8);
    const std::array<int32_t, 2> ranks{rank_, peer};
    hello.append(reinterpret_cast<const char*>(&group_), 8);
    hello.append(reinterpret_cast<const char*>(ranks.data()), 8);
    hello.append(endpoint.token);
    if (peer < rank_ && state_->shares_memory() && !endpoint.encrypted) {
      absl::StatusOr<std::unique_ptr<Channel>> channel =
          ConnectLocally(LocalNameOf(endpoint.port, endpoint.token), hello);
      // On another machine, or without shared memory: connects over the network.
      const absl::StatusOr<Reply> reply =
          channel.ok() ? ReadReply(**channel) : absl::StatusOr<Reply>(channel.status());
      if (reply.ok() && reply->status.ok()) return channel;
      if (reply.ok()) return reply->status;
    }
    ASSIGN_OR_RETURN(Descriptor socket, ConnectTo(endpoint, cancel_.get()));
    ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                     NewChannel(std::move(socket), TlsSide::kConnects, endpoint));
    RETURN_IF_ERROR(WriteHello(*channel, std::move(hello), cancel_.get()));
    ASSIGN_OR_RETURN(const Reply reply, ReadReply(*channel));
    RETURN_IF_ERROR(reply.status);
    return channel;
  }

  // What the other side says of the group.
  struct Reply {
    absl::Status status;
  };
  absl::StatusOr<Reply> ReadReply(Channel& channel) {
    char reply[kReplyBytes];
    RETURN_IF_ERROR(ReadAll(channel, reply, sizeof(reply), cancel_.get()));
    const auto code = Get<uint32_t>(reply, 8), length = Get<uint32_t>(reply, 12);
    if (std::memcmp(reply, kReplyMagic, 8) != 0 || code > 16 || length > kReasonBytes) {
      return absl::UnavailableError("something else answers at its port");
    }
    if (code == 0) return Reply{};
    std::string reason(length, '\0');
    RETURN_IF_ERROR(ReadAll(channel, reason.data(), length, cancel_.get()));
    return Reply{absl::Status(static_cast<absl::StatusCode>(code), reason)};
  }

  const std::shared_ptr<DataPort::State> state_;
  const DataPort::Lookup lookup_;
  const Descriptor cancel_;
  uint64_t group_ = 0;
  int rank_ = -1;
  Connected connected_;
  Mutex mutex_;
  CondVar changed_;  // what follows
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<int> came_ ABSL_GUARDED_BY(mutex_);  // peers whose channels were handed on
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

DataPort::DataPort(std::shared_ptr<State> state) : state_(std::move(state)) {
  state_->thread = std::thread([state = state_.get()] {
    NameThread("muster-data");
    state->Run();
  });
}

DataPort::~DataPort() {
  state_->Stop();
}

absl::StatusOr<std::unique_ptr<DataPort>> DataPort::Listen(const std::string& host,
                                                           Options options) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(host, 0, AI_PASSIVE));
  Descriptor listener(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0 || bind(listener.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(listener.get(), 128) != 0) {
    return ErrnoStatus(absl::StrCat("Cannot listen on ", host));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  char port[16];
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof(port),
                  NI_NUMERICSERV) != 0) {
    return ErrnoStatus("The port of a listening socket");
  }
  Endpoint endpoint{host, 0, std::string(kTokenBytes, '\0'), options.encrypted};
  if (!absl::SimpleAtoi(port, &endpoint.port)) return Internal("Port '", port, "' is not a number");
  if (getrandom(endpoint.token.data(), kTokenBytes, 0) != static_cast<ssize_t>(kTokenBytes)) {
    return ErrnoStatus("No random bytes");
  }
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return ErrnoStatus("No descriptor");
  Descriptor local_listener;
  if (options.shared_memory && !options.encrypted) {
    // Without it all peers connect over the network.
    absl::StatusOr<Descriptor> local = ListenLocally(LocalNameOf(endpoint.port, endpoint.token));
    if (local.ok()) local_listener = *std::move(local);
  }
  // The thread belongs to the port; connectors may still hold the state when it is gone.
  return std::unique_ptr<DataPort>(new DataPort(
      std::make_shared<State>(std::move(endpoint), std::move(listener), std::move(local_listener),
                              std::move(wake), options.patience)));
}

const Endpoint& DataPort::endpoint() const {
  return state_->endpoint();
}

std::unique_ptr<Connector> DataPort::NewConnector(Lookup lookup) {
  return std::make_unique<TcpConnector>(state_, std::move(lookup));
}

}  // namespace muster::collective
