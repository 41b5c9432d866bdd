// Ranks that die, stop, stay away or send nonsense: the others fail soon, name them, and go on.
#include <cstring>

#include "gmock/gmock.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/base/clock.h"
#include "muster/collective/mesh/mesh_packet.h"
#include "muster/collective/mesh/mesh_test.h"
#include "muster/collective/mesh/tcp_channel.h"
#include "muster/collective/mesh/tls_channel.h"

namespace muster::collective {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Minutes(5);

// Descriptors of this process that are open.
int OpenDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// All ranks but `culprit` fail with UNAVAILABLE and its name.
void ExpectNamed(const std::vector<absl::Status>& results, int culprit) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (static_cast<int>(rank) == culprit) continue;
    EXPECT_TRUE(absl::IsUnavailable(results[rank])) << rank << ": " << results[rank];
    EXPECT_THAT(std::string(results[rank].message()),
                HasSubstr(absl::StrCat("rank ", culprit, " (", TestTasks::TaskName(culprit), ")")))
        << "at rank " << rank;
  }
}

// The survivors of tasks 0..3 without `lost` reduce in a group of their own.
void ExpectSurvivorsGoOn(TestTasks& tasks, int count, int lost) {
  std::vector<int> survivors = FirstTasks(count);
  survivors.erase(survivors.begin() + lost);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count - 1; ++rank) {
    threads.emplace_back([&, rank] {
      const auto mesh = tasks.Join(2, survivors, rank, kLong, kLong);
      std::vector<float> data(100000, 1.0f);
      const absl::Status status = AllReduceNow(*mesh, 1, {}, data);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(data[99999], static_cast<float>(count - 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Each rank calls the collectives until one fails.
std::vector<absl::Status> RunUntilFailure(TestGroup& group, size_t count,
                                          const std::function<bool(int rank, int call)>& goes_on) {
  std::vector<absl::Status> results(group.size());
  group.Run([&](Mesh& mesh, int rank) {
    for (int call = 0; results[rank].ok() && goes_on(rank, call); ++call) {
      std::vector<float> data(count, 1.0f);
      results[rank] = AllReduceNow(mesh, static_cast<uint64_t>(call), {}, data);
    }
  });
  return results;
}

TEST(MeshFailure, ARankThatLeavesIsNamedByAll) {
  for (const Wire wire : {Wire::kTcp, Wire::kTls, Wire::kShared, Wire::kMemory}) {
    for (const size_t count : {100, 50000, 1000000}) {
      for (const int culprit : {0, 1, 3}) {
        TestGroup group(wire, 4);
        const auto results = RunUntilFailure(group, count, [&](int rank, int call) {
          if (rank != culprit || call < 2) return true;
          group.meshes[rank] = nullptr;
          return false;
        });
        // A TLS connection that breaks while it is written to may lose the last words of its peer.
        if (wire == Wire::kTls) {
          for (int rank = 0; rank < 4; ++rank) {
            if (rank == culprit) continue;
            EXPECT_TRUE(absl::IsUnavailable(results[rank])) << results[rank];
          }
        } else {
          ExpectNamed(results, culprit);
        }
        ExpectSurvivorsGoOn(group.tasks, 4, culprit);
      }
    }
  }
}

TEST(MeshFailure, ARankThatNeverComesIsNamedByAll) {
  // Ranks that wait for a rank that waits itself get half the bound more, so that the error can
  // arrive.
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) {
    for (const int culprit : {0, 2}) {
      TestGroup group(wire, 4, kLong, absl::Seconds(6));
      const auto results = RunUntilFailure(
          group, 1000000, [&](int rank, int call) { return rank != culprit || call == 0; });
      ExpectNamed(results, culprit);
    }
  }
}

void AbortReachesAllRanksAndLaterCallsOver(Wire wire) {
  TestGroup group(wire, 3);
  const auto results = RunUntilFailure(group, 1000, [&](int rank, int call) {
    if (rank == 1 && call == 3) {
      group.meshes[1]->Abort(absl::AbortedError("/job:worker/task:7 is lost"));
    }
    return true;
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(absl::IsAborted(results[rank])) << results[rank];
    EXPECT_THAT(std::string(results[rank].message()), HasSubstr("/job:worker/task:7 is lost"));
    std::vector<float> data(1);
    EXPECT_TRUE(absl::IsAborted(AllReduceNow(*group.meshes[rank], 99, {}, data)));
    EXPECT_FALSE(group.meshes[rank]->status().ok());
  }
}

TEST(MeshFailure, AbortReachesAllRanksAndLaterCalls) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) AbortReachesAllRanksAndLaterCallsOver(wire);
}

void CallsThatDifferAreToldApartOver(Wire wire) {
  TestGroup group(wire, 2);
  std::vector<absl::Status> results(2);
  group.Run([&](Mesh& mesh, int rank) {
    std::vector<float> data(1000 + static_cast<size_t>(rank));
    results[rank] = AllReduceNow(mesh, 1, {}, data);
  });
  for (const absl::Status& result : results) {
    EXPECT_TRUE(absl::IsInvalidArgument(result)) << result;
    EXPECT_THAT(std::string(result.message()), HasSubstr("calls collective 1 with another"));
  }
}

TEST(MeshFailure, CallsThatDifferAreToldApart) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) CallsThatDifferAreToldApartOver(wire);
}

TEST(MeshFailure, NothingLeaks) {
  constexpr Wire kWires[] = {Wire::kTcp, Wire::kMemory, Wire::kShared};
  { TestGroup warm(Wire::kTcp, 2); }
  const int before = OpenDescriptors();
  for (int i = 0; i < 30; ++i) {
    TestGroup group(kWires[i % 3], 3);
    RunUntilFailure(group, 100000, [&](int rank, int call) {
      if (rank == i % 2 && call == 1) group.meshes[rank] = nullptr;
      return rank != i % 2 || call == 0;
    });
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

enum class Fault { kCut, kSilence };

// A rank whose channels all fail after that many bytes: cut off, or silent like a stopped process.
struct Faulty {
  Fault fault = Fault::kCut;
  std::atomic<int64_t> left{0};
  bool struck() const { return left <= 0; }
};

class FaultyChannel : public Channel {
 public:
  FaultyChannel(std::unique_ptr<Channel> channel, std::shared_ptr<Faulty> state)
      : channel_(std::move(channel)), state_(std::move(state)) {}
  absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces) override {
    if (state_->struck()) return Struck();
    std::vector<iovec> some;
    auto room = static_cast<size_t>(state_->left.load());
    for (iovec piece : pieces) {
      piece.iov_len = std::min(piece.iov_len, room);
      room -= piece.iov_len;
      some.push_back(piece);
    }
    ASSIGN_OR_RETURN(const size_t wrote, channel_->Write(some));
    state_->left -= static_cast<int64_t>(wrote);
    return wrote;
  }
  absl::StatusOr<size_t> Read(absl::Span<const iovec> pieces) override {
    return state_->struck() ? Struck() : channel_->Read(pieces);
  }
  bool can_peek() const override { return channel_->can_peek(); }
  absl::StatusOr<absl::Span<const char>> Peek() override {
    if (!state_->struck()) return channel_->Peek();
    RETURN_IF_ERROR(Struck().status());
    return absl::Span<const char>();
  }
  void Consume(size_t bytes) override { channel_->Consume(bytes); }
  // A rank that was struck does not see what has arrived.
  bool Arm(bool for_room) override { return channel_->Arm(for_room) && !state_->struck(); }
  void Polled() override { channel_->Polled(); }
  bool room_is_polled() const override { return channel_->room_is_polled(); }
  int fd() const override { return channel_->fd(); }
  void SetWaker(std::function<void()> waker) override { channel_->SetWaker(std::move(waker)); }
  void CloseWriting() override { channel_->CloseWriting(); }
  bool Flushed() const override { return channel_->Flushed(); }

 private:
  absl::StatusOr<size_t> Struck() const {
    if (state_->fault == Fault::kSilence) return size_t{0};
    return absl::UnavailableError("cut");
  }

  const std::unique_ptr<Channel> channel_;
  const std::shared_ptr<Faulty> state_;
};

class FaultyConnector : public Connector {
 public:
  FaultyConnector(std::unique_ptr<Connector> connector, std::shared_ptr<Faulty> state)
      : connector_(std::move(connector)), state_(std::move(state)) {}
  void Open(uint64_t group, int rank, Connected connected) override {
    connector_->Open(group, rank,
                     [this, connected](int peer, absl::StatusOr<std::unique_ptr<Channel>> channel) {
                       if (channel.ok() && *channel != nullptr) {
                         *channel = std::make_unique<FaultyChannel>(*std::move(channel), state_);
                       }
                       connected(peer, std::move(channel));
                     });
  }
  void Connect(int peer) override { connector_->Connect(peer); }
  void End(const absl::Status& reason) override { connector_->End(reason); }

 private:
  const std::unique_ptr<Connector> connector_;
  const std::shared_ptr<Faulty> state_;
};

// Three ranks reduce until `culprit` has written `bytes` bytes and fails. What the others say.
std::vector<absl::Status> RunFaulty(Wire wire, Algorithm algorithm, Fault fault, int culprit,
                                    int64_t bytes, absl::Duration silence) {
  const size_t count = 300000;  // a ring has steps of 400000 bytes
  TestTasks tasks(wire, 3);
  std::vector<absl::Status> results(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      MeshOptions options{.group = 1, .rank = rank, .names = {"a", "b", "c"}};
      options.silence = silence;
      // The others have time to send the reason; a rank that is cut off reaches no other.
      options.linger = rank == culprit ? absl::Milliseconds(100) : absl::Seconds(8);
      std::unique_ptr<Connector> connector = tasks.NewConnector(FirstTasks(3), rank);
      if (rank == culprit) {
        auto state = std::make_shared<Faulty>();
        state->fault = fault;
        state->left = bytes;
        connector = std::make_unique<FaultyConnector>(std::move(connector), std::move(state));
      }
      auto mesh = Mesh::Create(options, std::move(connector));
      for (uint64_t call = 0; results[rank].ok(); ++call) {
        std::vector<float> data(count, 1.0f);
        results[rank] = Await(**mesh, [&](Done done) {
          (*mesh)->AllReduceBy(algorithm, call, {}, data.data(), count, std::move(done));
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  results.erase(results.begin() + culprit);
  return results;
}

// In a header, between packets, in each step of the collective and in a later one.
constexpr int64_t kPhases[] = {0, 16, 32, 33, 64, 200000, 400064, 700000, 1200000, 1500000};

TEST(MeshFailure, ACutAtAnyPhaseFailsAllRanks) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared, Wire::kMemory}) {
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kHalving}) {
      for (int culprit = 0; culprit < 3; ++culprit) {
        for (const int64_t bytes : kPhases) {
          for (const absl::Status& result :
               RunFaulty(wire, algorithm, Fault::kCut, culprit, bytes, kLong)) {
            EXPECT_TRUE(absl::IsUnavailable(result)) << bytes << ": " << result;
            // While channels are being made, the first rank that failed may be named instead of the
            // culprit.
            EXPECT_THAT(std::string(result.message()), HasSubstr("rank "));
          }
        }
      }
    }
  }
}

// All at once, since each takes as long as the bound on silence.
TEST(MeshFailure, ARankSilentFromAnyPhaseOnIsNamedByTheOthers) {
  std::vector<std::thread> threads;
  for (const Wire wire : {Wire::kShared, Wire::kMemory}) {
    for (int culprit = 0; culprit < 3; ++culprit) {
      for (const int64_t bytes : {16, 200000, 700000, 1500000}) {
        threads.emplace_back([wire, culprit, bytes] {
          for (const absl::Status& result : RunFaulty(wire, Algorithm::kRing, Fault::kSilence,
                                                      culprit, bytes, absl::Seconds(30))) {
            EXPECT_TRUE(absl::IsUnavailable(result)) << bytes << ": " << result;
            EXPECT_THAT(std::string(result.message()), HasSubstr(absl::StrCat("rank ", culprit)));
          }
        });
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// Ranks as processes, so that they can be killed and stopped.
class Processes {
 public:
  struct Shared {
    struct {
      int port;
      char token[kTokenBytes];
    } endpoints[4];
    std::atomic<int> listening;
    std::atomic<int> calls[4];
    std::atomic<int> failed[4];
    char errors[4][512];
  };

  Processes(bool shared_memory, size_t count, absl::Duration silence)
      : shared_memory_(shared_memory), count_(count), silence_(silence) {
    shared_ = new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0)) Shared{};
    for (int rank = 0; rank < 4; ++rank) {
      pids_[rank] = fork();
      if (pids_[rank] == 0) {
        RunRank(rank);
        _exit(0);
      }
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    munmap(shared_, sizeof(Shared));
  }
  void Signal(int rank, int number) { kill(pids_[rank], number); }
  Shared& shared() { return *shared_; }

  // Waits until `holds`, for some minutes at most.
  static bool WaitUntil(const std::function<bool()>& holds) {
    for (int i = 0; i < 240000; ++i) {
      if (holds()) return true;
      usleep(1000);
    }
    return false;
  }

 private:
  void RunRank(int rank) {
    auto port = DataPort::Listen("127.0.0.1", {.shared_memory = shared_memory_});
    shared_->endpoints[rank].port = (*port)->endpoint().port;
    std::memcpy(shared_->endpoints[rank].token, (*port)->endpoint().token.data(), kTokenBytes);
    ++shared_->listening;
    while (shared_->listening < 4) usleep(1000);
    MeshOptions options{.group = 7, .rank = rank};
    for (int i = 0; i < 4; ++i) options.names.push_back(TestTasks::TaskName(i));
    options.silence = silence_;
    options.lateness = kLong;
    const auto lookup = [this](int peer) -> absl::StatusOr<Endpoint> {
      const auto& found = shared_->endpoints[peer];
      return Endpoint{"127.0.0.1", found.port, std::string(found.token, kTokenBytes)};
    };
    auto mesh = Mesh::Create(options, (*port)->NewConnector(lookup));
    std::vector<float> data(count_);
    absl::Status status;
    for (uint64_t call = 0; status.ok(); ++call) {
      status = AllReduceNow(**mesh, call, {.mean = true}, data);
      if (status.ok()) ++shared_->calls[rank];
    }
    std::snprintf(shared_->errors[rank], sizeof(shared_->errors[rank]), "%s",
                  status.ToString().c_str());
    shared_->failed[rank] = 1;
    // Stays, as a task would.
    while (true) pause();
  }

  const bool shared_memory_;
  const size_t count_;
  const absl::Duration silence_;
  Shared* shared_;
  pid_t pids_[4];
};

void CheckSignal(bool shared_memory, int number, size_t count, int culprit,
                 absl::Duration silence) {
  Processes processes(shared_memory, count, silence);
  Processes::Shared& shared = processes.shared();
  ASSERT_TRUE(Processes::WaitUntil([&] { return shared.calls[culprit] > 3; }));
  processes.Signal(culprit, number);
  const int64_t begin = Clock::Real().NowNanos();
  ASSERT_TRUE(Processes::WaitUntil([&] {
    int failed = 0;
    for (int rank = 0; rank < 4; ++rank) failed += rank != culprit && shared.failed[rank] != 0;
    return failed == 3;
  }));
  EXPECT_LT(Clock::Real().NowNanos() - begin, absl::ToInt64Nanoseconds(absl::Minutes(1)));
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == culprit) continue;
    EXPECT_THAT(shared.errors[rank],
                HasSubstr(absl::StrCat("UNAVAILABLE: rank ", culprit, " (/job:worker/task:")))
        << "at rank " << rank;
  }
}

TEST(MeshFailure, AKilledProcessIsNamedByAll) {
  for (const bool shared_memory : {false, true}) {
    for (const size_t count : {1000, 60000, 300000})
      CheckSignal(shared_memory, SIGKILL, count, count % 7 % 4, kLong);
  }
}

TEST(MeshFailure, AStoppedProcessIsNamedByAll) {
  for (const bool shared_memory : {false, true})
    CheckSignal(shared_memory, SIGSTOP, 300000, 2, absl::Seconds(15));
}

// Raw connections to a data port.
Descriptor ConnectTo(const DataPort& port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port.endpoint().port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

// The other side closes, which a reader sees.
void ExpectClosed(const Descriptor& socket) {
  pollfd polled{socket.get(), POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, 60000), 1);
  char byte;
  EXPECT_LE(recv(socket.get(), &byte, 1, 0), 0);
}

std::string Hello(uint64_t group, int32_t from, int32_t to, const std::string& token) {
  std::string hello = "MUSTERd1";
  hello.append(reinterpret_cast<const char*>(&group), 8);
  hello.append(reinterpret_cast<const char*>(&from), 4);
  hello.append(reinterpret_cast<const char*>(&to), 4);
  return hello + token;
}

void SendAll(const Descriptor& socket, absl::string_view bytes) {
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

TEST(DataPort, StrangersAreTurnedAway) {
  TestGroup group(Wire::kTcp, 2);
  DataPort& port = group.tasks.port(0);
  std::vector<Descriptor> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(ConnectTo(port));
  const Descriptor garbage = ConnectTo(port);
  SendAll(garbage, "GET / HTTP/1.1\r\n\r\n");
  ExpectClosed(garbage);
  const Descriptor wrong_token = ConnectTo(port);
  SendAll(wrong_token, Hello(1, 1, 0, std::string(kTokenBytes, 'x')));
  ExpectClosed(wrong_token);
  group.Run([&](Mesh& mesh, int) {
    std::vector<float> data(10, 1.0f);
    const absl::Status status = AllReduceNow(mesh, 1, {}, data);
    EXPECT_TRUE(status.ok()) << status;
  });
}

TEST(DataPort, AnEncryptedPortTalksToNobodyWithoutTheSecret) {
  TestGroup group(Wire::kTls, 2);
  DataPort& port = group.tasks.port(0);
  const Descriptor plain = ConnectTo(port);
  SendAll(plain, Hello(1, 1, 0, port.endpoint().token));
  ExpectClosed(plain);
  Endpoint wrong = port.endpoint();
  wrong.token[0] = static_cast<char>(wrong.token[0] ^ 1);
  auto channel = NewTlsChannel(ConnectTo(port), TlsSide::kConnects, wrong.token);
  ASSERT_TRUE(channel.ok()) << channel.status();
  char byte = 'M';
  const iovec piece{&byte, 1};
  absl::StatusOr<size_t> moved = (*channel)->Write({&piece, 1});
  // Refused by the handshake, before a byte of ours is sent.
  EXPECT_TRUE(Processes::WaitUntil([&] {
    if (moved.ok()) moved = (*channel)->Read({&piece, 1});
    return !moved.ok();
  }));
  group.Run([&](Mesh& mesh, int) {
    std::vector<float> data(10, 1.0f);
    const absl::Status status = AllReduceNow(mesh, 1, {}, data);
    EXPECT_TRUE(status.ok()) << status;
  });
}

// What an eavesdropper would see.
TEST(TlsChannel, BytesOnTheWireAreNotThePlainOnes) {
  int sockets[2], outside[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, outside), 0);
  const std::string secret(kTokenBytes, 's'), text(100000, 'p');
  const auto client = *NewTlsChannel(Descriptor(sockets[0]), TlsSide::kConnects, secret);
  const auto server = *NewTlsChannel(Descriptor(outside[1]), TlsSide::kAccepts, secret);
  const Descriptor near(sockets[1]), far(outside[0]);
  for (const int fd : {near.get(), far.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string seen, got(text.size(), '\0');
  const auto relay = [&](int from, int to) {
    char bytes[65536];
    const ssize_t count = read(from, bytes, sizeof(bytes));
    if (count <= 0) return;
    seen.append(bytes, static_cast<size_t>(count));
    ASSERT_EQ(write(to, bytes, static_cast<size_t>(count)), count);
  };
  size_t sent = 0, received = 0;
  for (int turn = 0; turn < 1000 && received < text.size(); ++turn) {
    const iovec out{const_cast<char*>(text.data()) + sent, text.size() - sent};
    const iovec in{got.data() + received, got.size() - received};
    if (sent < text.size()) sent += (*client).Write({&out, 1}).value();
    relay(near.get(), far.get());
    received += (*server).Read({&in, 1}).value();
    relay(far.get(), near.get());
  }
  EXPECT_EQ(got, text);
  EXPECT_EQ(seen.find("pppppppp"), std::string::npos);
  EXPECT_EQ(seen.find("ssssssss"), std::string::npos);
}

TEST(DataPort, SilentStrangersAreForgotten) {
  auto port = DataPort::Listen("127.0.0.1", {.patience = absl::Milliseconds(50)});
  ASSERT_TRUE(port.ok()) << port.status();
  const Descriptor silent = ConnectTo(**port);
  ExpectClosed(silent);
  EXPECT_FALSE(DataPort::Listen("no such host.invalid", {}).ok());
}

// A peer with the token that sends wrong bytes: an error with its name, never a crash.
TEST(MeshFailure, WrongBytesFailTheGroup) {
  const MeshPacket data{MeshPacketKind::kData, 1, 0, 0, 64};
  const auto text = [](const MeshPacket& packet) {
    const MeshPacketHeader header = EncodeHeader(packet);
    return std::string(header.data(), header.size());
  };
  std::string flipped = text(data);
  flipped[4] = 77;
  for (const std::string& bytes :
       {std::string(64, '\xff'), flipped, text(data) + std::string(64, 'a'),
        text({MeshPacketKind::kData, 1, 0, 900, 64}), text({MeshPacketKind::kReady, 1, 5, 3, 0}),
        text({MeshPacketKind::kData, 1, 0, 0, 0}), text({MeshPacketKind::kPing, 1, 0, 0, 7})}) {
    TestTasks tasks(Wire::kTcp, 2);
    const auto mesh = tasks.Join(1, {0, 1}, 0, kLong, kLong);
    const Descriptor socket = ConnectTo(tasks.port(0));
    SendAll(socket, Hello(1, 1, 0, tasks.port(0).endpoint().token));
    SendAll(socket, bytes);
    std::vector<float> values(1000);
    const absl::Status status = AllReduceNow(*mesh, 1, {}, values);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (/job:worker/task:1)"));
  }
}

TEST(MeshFailure, FloodsOfUnknownCollectivesAreBounded) {
  TestTasks tasks(Wire::kTcp, 2);
  const auto mesh = tasks.Join(1, {0, 1}, 0, kLong, kLong);
  const Descriptor socket = ConnectTo(tasks.port(0));
  SendAll(socket, Hello(1, 1, 0, tasks.port(0).endpoint().token));
  const std::string payload(kPacketBytes, 'z');
  for (uint64_t tag = 100; tag < 200; ++tag) {
    const MeshPacketHeader header =
        EncodeHeader({MeshPacketKind::kData, tag, 0, 0, static_cast<uint32_t>(payload.size())});
    if (send(socket.get(), header.data(), header.size(), MSG_NOSIGNAL) < 0) break;
    if (send(socket.get(), payload.data(), payload.size(), MSG_NOSIGNAL) < 0) break;
  }
  ASSERT_TRUE(Processes::WaitUntil([&] { return !mesh->status().ok(); }));
  EXPECT_THAT(std::string(mesh->status().message()), HasSubstr("that were not begun here"));
}

}  // namespace
}  // namespace muster::collective
