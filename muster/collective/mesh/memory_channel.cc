#include "muster/collective/mesh/memory_channel.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "muster/base/mutex.h"

namespace muster::collective {
namespace {

// Small enough to stay in a core's cache.
constexpr size_t kChannelBytes = 512 << 10;

// One direction: bytes go round in a buffer.
struct Pipe {
  std::vector<char> buffer;
  size_t begin = 0, used = 0;
  bool closed = false;  // by the writer
  bool reader_waits = false, writer_waits = false;
};

struct Connection {
  explicit Connection(size_t capacity) {
    for (Pipe& pipe : pipes) pipe.buffer.resize(capacity);
  }
  Mutex mutex;
  Pipe pipes[2] ABSL_GUARDED_BY(mutex);  // written by side 0 and side 1
  bool gone[2] ABSL_GUARDED_BY(mutex) = {false, false};
  std::function<void()> wakers[2] ABSL_GUARDED_BY(mutex);
};

class MemoryChannel : public Channel {
 public:
  MemoryChannel(std::shared_ptr<Connection> connection, int side)
      : connection_(std::move(connection)), side_(side) {}
  ~MemoryChannel() override {
    MutexLock lock(connection_->mutex);
    connection_->pipes[side_].closed = true;
    connection_->gone[side_] = true;
    connection_->wakers[side_] = nullptr;
    WakeOther();
  }

  absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces) override {
    MutexLock lock(connection_->mutex);
    if (connection_->gone[1 - side_]) return absl::UnavailableError("closed its connection");
    Pipe& pipe = connection_->pipes[side_];
    const size_t capacity = pipe.buffer.size();
    size_t total = 0;
    for (const iovec& piece : pieces) {
      const auto* from = static_cast<const char*>(piece.iov_base);
      for (size_t left = piece.iov_len; left > 0 && pipe.used < capacity;) {
        const size_t at = (pipe.begin + pipe.used) % capacity;
        const size_t count = std::min({left, capacity - pipe.used, capacity - at});
        std::memcpy(pipe.buffer.data() + at, from, count);
        pipe.used += count;
        from += count;
        left -= count;
        total += count;
      }
    }
    if (total == 0) pipe.writer_waits = true;
    if (total > 0 && std::exchange(pipe.reader_waits, false)) WakeOther();
    return total;
  }

  absl::StatusOr<size_t> Read(absl::Span<const iovec> pieces) override {
    MutexLock lock(connection_->mutex);
    Pipe& pipe = connection_->pipes[1 - side_];
    size_t total = 0;
    for (const iovec& piece : pieces) {
      auto* to = static_cast<char*>(piece.iov_base);
      for (size_t left = piece.iov_len; left > 0 && pipe.used > 0;) {
        const size_t count = std::min({left, pipe.used, pipe.buffer.size() - pipe.begin});
        std::memcpy(to, pipe.buffer.data() + pipe.begin, count);
        pipe.begin = (pipe.begin + count) % pipe.buffer.size();
        pipe.used -= count;
        to += count;
        left -= count;
        total += count;
      }
    }
    if (total == 0 && pipe.closed) return absl::UnavailableError("closed its connection");
    if (total == 0) pipe.reader_waits = true;
    if (total > 0 && std::exchange(pipe.writer_waits, false)) WakeOther();
    return total;
  }

  void SetWaker(std::function<void()> waker) override {
    MutexLock lock(connection_->mutex);
    connection_->wakers[side_] = std::move(waker);
  }
  void CloseWriting() override {
    MutexLock lock(connection_->mutex);
    connection_->pipes[side_].closed = true;
    WakeOther();
  }
  bool Flushed() const override { return true; }  // what is in a pipe outlives its writer

 private:
  void WakeOther() ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mutex) {
    if (connection_->wakers[1 - side_]) connection_->wakers[1 - side_]();
  }

  const std::shared_ptr<Connection> connection_;
  const int side_;
};

class MixedConnector : public Connector {
 public:
  MixedConnector(std::function<bool(int)> is_local, std::unique_ptr<Connector> local,
                 std::unique_ptr<Connector> remote)
      : is_local_(std::move(is_local)), local_(std::move(local)), remote_(std::move(remote)) {}
  void Open(uint64_t group, int rank, Connected connected) override {
    local_->Open(group, rank, connected);
    remote_->Open(group, rank, std::move(connected));
  }
  void Connect(int peer) override { (is_local_(peer) ? local_ : remote_)->Connect(peer); }
  void End(const absl::Status& reason) override {
    local_->End(reason);
    remote_->End(reason);
  }

 private:
  const std::function<bool(int)> is_local_;
  const std::unique_ptr<Connector> local_, remote_;
};

}  // namespace

std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>> NewMemoryChannels(size_t capacity) {
  auto connection = std::make_shared<Connection>(capacity);
  return {std::make_unique<MemoryChannel>(connection, 0),
          std::make_unique<MemoryChannel>(connection, 1)};
}

std::unique_ptr<Connector> NewMixedConnector(std::function<bool(int)> is_local,
                                             std::unique_ptr<Connector> local,
                                             std::unique_ptr<Connector> remote) {
  return std::make_unique<MixedConnector>(std::move(is_local), std::move(local), std::move(remote));
}

struct LocalExchange::State {
  using Place = std::pair<uint64_t, int>;  // group and rank
  Mutex mutex;
  std::map<Place, Connector::Connected> open ABSL_GUARDED_BY(mutex);
  std::map<Place, absl::Status> ended ABSL_GUARDED_BY(mutex);
  std::set<std::tuple<uint64_t, int, int>> asked
      ABSL_GUARDED_BY(mutex);  // group, asking rank, asked rank

  // Hands both their ends, once both are there and one has asked.
  void Match(uint64_t group, int a, int b) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto first = open.find({group, a}), second = open.find({group, b});
    if (first == open.end() || second == open.end()) return;
    asked.erase({group, a, b});
    asked.erase({group, b, a});
    auto [one, other] = NewMemoryChannels(kChannelBytes);
    first->second(b, std::move(one));
    second->second(a, std::move(other));
  }
};

class LocalConnector : public Connector {
 public:
  explicit LocalConnector(std::shared_ptr<LocalExchange::State> state) : state_(std::move(state)) {}
  ~LocalConnector() override { End(absl::UnavailableError("has left the group")); }

  void Open(uint64_t group, int rank, Connected connected) override {
    MutexLock lock(state_->mutex);
    group_ = group;
    rank_ = rank;
    state_->open[{group, rank}] = std::move(connected);
    std::vector<int> waiting;
    for (const auto& [of, who, whom] : state_->asked) {
      if (of == group && whom == rank) waiting.push_back(who);
    }
    for (const int peer : waiting) {
      matched_.insert(peer);
      state_->Match(group, peer, rank);
    }
  }

  void Connect(int peer) override {
    MutexLock lock(state_->mutex);
    const auto self = state_->open.find({group_, rank_});
    if (self == state_->open.end() || !matched_.insert(peer).second) return;
    if (const auto ended = state_->ended.find({group_, peer}); ended != state_->ended.end()) {
      self->second(peer, ended->second);
      return;
    }
    state_->asked.insert({group_, rank_, peer});
    state_->Match(group_, rank_, peer);
  }

  void End(const absl::Status& reason) override {
    MutexLock lock(state_->mutex);
    if (state_->open.erase({group_, rank_}) == 0) return;
    std::erase_if(state_->asked, [&](const auto& asked) {
      return std::get<0>(asked) == group_ && std::get<1>(asked) == rank_;
    });
    state_->ended[{group_, rank_}] = reason;
    // Ranks that wait for this one get the reason now; later ones find it in `ended` for a while.
    for (auto asked = state_->asked.begin(); asked != state_->asked.end();) {
      const auto [of, who, whom] = *asked;
      if (of != group_ || whom != rank_) {
        ++asked;
        continue;
      }
      asked = state_->asked.erase(asked);
      if (const auto waits = state_->open.find({group_, who}); waits != state_->open.end()) {
        waits->second(rank_, reason);
      }
    }
    if (state_->ended.size() > kEndedRemembered) state_->ended.erase(state_->ended.begin());
  }

 private:
  static constexpr size_t kEndedRemembered = 4096;

  const std::shared_ptr<LocalExchange::State> state_;
  uint64_t group_ = 0;
  int rank_ = -1;
  std::set<int> matched_;  // guarded by the state's mutex
};

LocalExchange::LocalExchange() : state_(std::make_shared<State>()) {}

std::unique_ptr<Connector> LocalExchange::NewConnector() {
  return std::make_unique<LocalConnector>(state_);
}

}  // namespace muster::collective
