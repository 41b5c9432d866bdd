#include "muster/cli/launch_peers.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/base/net/acceptor.h"
#include "muster/base/net/listening_sockets.h"

namespace muster {
namespace {

constexpr absl::Duration kConnectTime = absl::Minutes(5);
constexpr absl::Duration kLateTime = absl::Minutes(1);
constexpr int kLostStatus = 1;
constexpr int kStrangers = 64;  // connections that have not named a rank

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList Resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.empty() ? nullptr : host.c_str(), absl::StrCat(port).c_str(), &hints,
                  &found) != 0) {
    found = nullptr;
  }
  return {found, &freeaddrinfo};
}

// A connection that carries lines.
class Lines {
 public:
  explicit Lines(int fd) : fd_(fd) {}
  ~Lines() {
    if (fd_ >= 0) close(fd_);
  }
  Lines(Lines&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), partial_(std::move(other.partial_)) {}
  Lines& operator=(Lines&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(partial_, other.partial_);
    return *this;
  }

  int fd() const { return fd_; }
  // Short, and few of them: they always fit into what the system keeps for us.
  void Send(const std::string& line) {
    if (fd_ >= 0) (void)!send(fd_, (line + "\n").c_str(), line.size() + 1, MSG_NOSIGNAL);
  }
  // Whole lines that have come. Closed when the other side is gone or says too much.
  std::vector<std::string> Read() {
    std::vector<std::string> lines;
    char text[4096];
    while (fd_ >= 0) {
      const ssize_t length = recv(fd_, text, sizeof(text), MSG_DONTWAIT);
      if (length < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (length <= 0 || partial_.size() > sizeof(text)) {
        close(std::exchange(fd_, -1));
        break;
      }
      for (const char c : absl::string_view(text, static_cast<size_t>(length))) {
        if (c == '\n') {
          lines.push_back(std::exchange(partial_, ""));
        } else {
          partial_.push_back(c);
        }
      }
    }
    return lines;
  }

 private:
  int fd_;
  std::string partial_;
};

class Leader : public LaunchPeers {
 public:
  Leader(const PeersPlan& plan, ListeningSockets listeners)
      : plan_(plan),
        listeners_(std::move(listeners)),
        acceptor_(absl::StrCat("port ", plan.port, " for other launchers"),
                  {plan.size + kStrangers, plan.size + kStrangers}),
        ranks_(static_cast<size_t>(plan.size)) {
    ranks_[0].known = true;
  }
  ~Leader() override { RemoveFolder(); }

  void AddTo(std::vector<pollfd>& waiting) const override {
    // Where the system gives no connections it is asked with each update only.
    for (const Descriptor& listener : listeners_.sockets())
      if (acceptor_.pause() == absl::ZeroDuration()) waiting.push_back({listener.get(), POLLIN, 0});
    for (const Member& member : members_) waiting.push_back({member.lines.fd(), POLLIN, 0});
  }

  void Update() override {
    for (const Descriptor& listener : listeners_.sockets()) Accept(listener.get());
    for (size_t i = 0; i < members_.size(); ++i) {
      for (const std::string& line : members_[i].lines.Read()) Hear(members_[i], line);
      if (members_[i].lines.fd() >= 0) continue;
      const int rank = members_[i].rank;
      Forget(members_.begin() + static_cast<ptrdiff_t>(i--), Acceptor::End::kClosed);
      if (rank >= 0 && !ranks_[static_cast<size_t>(rank)].ended)
        Fail(kLostStatus, absl::StrCat("rank ", rank, " is gone"));
    }
    Decide();
  }

  void TellJoined() override { ranks_[0].joined = true; }
  void TellEnded(int code) override { NoteEnd(0, code); }
  std::optional<int> stop() const override { return stop_; }
  // Launchers that report late are stopped too, within kLateTime.
  bool finished() const override {
    if (!stop_) return false;
    return AllKnown() || absl::Now() > stopped_at_ + kLateTime;
  }
  std::string reason() const override { return reason_; }

 private:
  struct Member {
    Lines lines;
    std::string peer;
    int rank = -1;  // until it has named its rank
  };
  struct State {
    bool known = false;
    bool joined = false;
    bool ended = false;
  };

  void Accept(int listener) {
    const auto make_room = [this](const std::string*) {
      // A connection that has not named its rank may never do so.
      const auto oldest = std::find_if(members_.begin(), members_.end(),
                                       [](const Member& member) { return member.rank < 0; });
      if (oldest == members_.end()) return false;
      Forget(oldest, Acceptor::End::kDropped);
      return true;
    };
    for (int i = 0; i < kStrangers; ++i) {
      std::optional<Acceptor::Connection> accepted = acceptor_.Accept(listener, make_room);
      if (!accepted) return;
      members_.push_back(
          {Lines(std::move(accepted->socket).Release()), std::move(accepted->peer), -1});
    }
  }

  void Forget(std::vector<Member>::iterator member, Acceptor::End end) {
    acceptor_.Ended(member->peer, end);
    members_.erase(member);
  }

  void Hear(Member& member, const std::string& line) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int number = -1;
    if (words[0] == "hello" && words.size() == 3 && words[1] == plan_.key &&
        absl::SimpleAtoi(words[2], &number) && number > 0 && number < plan_.size) {
      member.rank = number;
      ranks_[static_cast<size_t>(number)].known = true;
      if (stop_) member.lines.Send(StopLine());
    } else if (member.rank < 0) {
      member.lines = Lines(-1);  // not one of ours
    } else if (words[0] == "joined") {
      ranks_[static_cast<size_t>(member.rank)].joined = true;
    } else if (words[0] == "ended" && words.size() == 2 && absl::SimpleAtoi(words[1], &number)) {
      NoteEnd(member.rank, number);
    }
  }

  void NoteEnd(int rank, int code) {
    ranks_[static_cast<size_t>(rank)].ended = true;
    if (code != 0) Fail(code, absl::StrCat("rank ", rank, " has ended with status ", code));
  }

  void Fail(int code, std::string reason) {
    if (stop_) return;
    reason_ = std::move(reason);
    SayStop(code);
  }

  // As on one machine: parameter servers, and workers that only serve, end with the others.
  void Decide() {
    bool done = true;
    bool one_ended = false;
    for (int rank = 0; rank < plan_.size; ++rank) {
      const State& state = ranks_[static_cast<size_t>(rank)];
      if (rank < plan_.ps) continue;
      done &= state.ended || state.joined;
      one_ended |= state.ended;
    }
    if (AllKnown()) RemoveFolder();
    if (!stop_ && done && one_ended) SayStop(0);
  }

  bool AllKnown() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const State& state) { return state.known; });
  }

  std::string StopLine() const { return absl::StrCat("stop ", *stop_, " ", reason_); }

  void SayStop(int code) {
    stop_ = code;
    stopped_at_ = absl::Now();
    for (Member& member : members_)
      if (member.rank >= 0) member.lines.Send(StopLine());
  }

  void RemoveFolder() {
    if (plan_.folder.empty()) return;
    for (int rank = 0; rank < plan_.size; ++rank)
      unlink(absl::StrCat(plan_.folder, "/rank-", rank).c_str());
    rmdir(std::exchange(plan_.folder, "").c_str());
  }

  PeersPlan plan_;
  const ListeningSockets listeners_;
  Acceptor acceptor_;
  std::vector<State> ranks_;
  std::vector<Member> members_;
  absl::Time stopped_at_ = absl::InfiniteFuture();
  std::optional<int> stop_;
  std::string reason_;
};

class Follower : public LaunchPeers {
 public:
  explicit Follower(const PeersPlan& plan) : plan_(plan) {}

  void AddTo(std::vector<pollfd>& waiting) const override {
    if (lines_.fd() >= 0) waiting.push_back({lines_.fd(), POLLIN, 0});
  }

  void Update() override {
    if (stop_) return;
    if (lines_.fd() < 0) Connect();
    if (lines_.fd() < 0) {
      if (absl::Now() > give_up_at_)
        Lose(absl::StrCat("the launcher of rank 0 cannot be reached at ", plan_.host, ":",
                          plan_.port));
      return;
    }
    for (const std::string& line : lines_.Read()) {
      const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
      int code = 0;
      if (words.size() == 3 && words[0] == "stop" && absl::SimpleAtoi(words[1], &code)) {
        stop_ = code;
        reason_ = words[2];
      }
    }
    if (lines_.fd() < 0 && !stop_ && !told_end_) Lose("the launcher of rank 0 is gone");
  }

  void TellJoined() override { Tell("joined"); }
  void TellEnded(int code) override {
    told_end_ = true;
    Tell(absl::StrCat("ended ", code));
  }
  std::optional<int> stop() const override { return stop_; }
  bool finished() const override { return stop_ || (told_end_ && unsent_.empty()); }
  std::string reason() const override { return reason_; }

 private:
  // Waits a moment at most: a network that answers nothing must not hold up the task.
  static bool Connected(int fd, const addrinfo& address) {
    if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return true;
    pollfd waiting{fd, POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof(error);
    return errno == EINPROGRESS && poll(&waiting, 1, 1000) == 1 &&
           getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }

  void Connect() {
    if (absl::Now() < next_try_) return;
    next_try_ = absl::Now() + absl::Milliseconds(200);
    const AddressList found = Resolve(plan_.host, plan_.port, 0);
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (fd < 0) continue;
      if (!Connected(fd, *at)) {
        close(fd);
        continue;
      }
      lines_ = Lines(fd);
      lines_.Send(absl::StrCat("hello ", plan_.key, " ", plan_.rank));
      for (const std::string& line : std::exchange(unsent_, {})) lines_.Send(line);
      return;
    }
  }

  void Tell(const std::string& line) {
    if (lines_.fd() < 0) Connect();
    if (lines_.fd() >= 0) {
      lines_.Send(line);
    } else {
      unsent_.push_back(line);
    }
  }

  void Lose(std::string reason) {
    stop_ = kLostStatus;
    reason_ = std::move(reason);
  }

  const PeersPlan plan_;
  Lines lines_{-1};
  std::vector<std::string> unsent_;
  bool told_end_ = false;
  absl::Time next_try_ = absl::InfinitePast();
  const absl::Time give_up_at_ = absl::Now() + kConnectTime;
  std::optional<int> stop_;
  std::string reason_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LaunchPeers>> LaunchPeers::Open(const PeersPlan& plan) {
  if (plan.rank > 0) return std::make_unique<Follower>(plan);
  absl::StatusOr<ListeningSockets> listeners =
      ListeningSockets::Bind(plan.host == "localhost" ? plan.host : "", plan.port);
  absl::Status status = listeners.status();
  if (status.ok()) status = listeners->Listen();
  if (!status.ok()) return Suffixed(status, ", for the other launchers");
  return std::make_unique<Leader>(plan, *std::move(listeners));
}

}  // namespace muster
