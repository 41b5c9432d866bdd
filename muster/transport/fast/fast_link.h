// A connection between two processes: calls go one way, replies the other. On one machine what is
// large is not sent but lent: the receiver reads it where it lies and says when it is done. Between
// machines everything is sent, from the memory where it lies into memory that the tensors keep.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/threads/waiting_thread.h"
#include "muster/tensor/shared_memory.h"
#include "muster/transport/fast/packet.h"
#include "muster/transport/fast/poller.h"
#include "muster/transport/messages/channel.h"

namespace muster::fast {

// A call that the other side has made.
struct FastCall {
  std::string path;  // "/service/method"
  WireBytes request;
  CallOptions options;
  absl::AnyInvocable<void(absl::StatusOr<WireMessage>) &&> reply;
};
using ServeCall = std::function<void(FastCall)>;

// Whether both processes are on one machine, and can share memory.
enum class Reach : uint8_t { kMachine, kNetwork };

// Thread-safe. Breaks when the other process is gone, however it went: calls under way then fail
// with Unavailable, those of the other side are cancelled, and what was lent is taken back.
//
// Packets are read by a thread of the poller or, instead of it, by a thread that waits for the
// answer to a call over this link: for the latter the link is a WorkSource.
class FastLink : public Pollable, public WorkSource, public std::enable_shared_from_this<FastLink> {
 public:
  // Takes the socket. `serve` may be null: then calls are refused. `scheduler` outlives the link;
  // without one its calls have neither deadlines nor cancellations.
  // Larger messages than `max_message_bytes` are refused with ResourceExhausted. `caller` is the
  // other end, where it may call; null: the process that the system names.
  static std::shared_ptr<FastLink> Create(int socket, ServeCall serve, Scheduler* scheduler,
                                          size_t max_message_bytes = SIZE_MAX,
                                          Reach reach = Reach::kMachine,
                                          std::shared_ptr<const Caller> caller = nullptr);
  ~FastLink() override;

  // `who` is how error texts call the other side.
  void Call(std::string path, std::string who, CallOptions options, WireMessage request,
            Channel::Done done);
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  void Break(const std::string& why);
  // Calls of the other side that have no reply yet.
  size_t num_served() const;
  void CancelServed(const absl::Status& reason);
  // Of a link over the network, for tests: when the other side is asked whether it is there, and
  // when the link breaks.
  void SetSilence(absl::Duration ask_after, absl::Duration break_after);

  void Ready() override;
  void Tick() override;

  bool is_exclusive() const override { return true; }
  bool Claim() override;
  void GiveBack() override;
  // Reads what is there, without handling it.
  bool Look() override;
  bool Serve() override;
  bool Sleep(WaitingThread& thread, int64_t nanos) override;
  Pace* pace() override { return &answers_pace_; }
  bool TryBeginSpin() override;

 private:
  FastLink(int socket, ServeCall serve, Scheduler* scheduler, size_t max_message_bytes, Reach reach,
           std::shared_ptr<const Caller> caller);

  // The process at the other end. All tasks and clients of a process share its link, so that their
  // role is not known, and no session ends with it: its caller has no connection.
  static std::shared_ptr<const Caller> CallerAt(int socket);

  // A message as it goes out.
  struct Outgoing {
    PacketHeader header;
    std::vector<WireMessage::Piece> pieces;
  };
  // A message that the system has not taken whole. Moving it moves no byte of it.
  struct Queued {
    std::vector<char> head;
    std::vector<WireMessage::Piece> pieces;
    std::vector<absl::string_view> parts;  // of `head` and `pieces`, what is left of them
    size_t next = 0;                       // of the parts
    size_t bytes = 0;                      // left
    std::vector<int> descriptors;          // go with the first byte
  };
  // A packet that has been read, with its pieces.
  struct Received {
    PacketHeader header;
    WireBytes bytes;
    std::vector<uint64_t> numbers;
    absl::Status lack;  // of memory: its bytes were thrown away
  };
  struct MadeCall {
    Channel::Done done;
    std::string path;
    std::string who;
    std::shared_ptr<Cancellation> cancellation;
    std::shared_ptr<CancelCallback> on_cancel;
    std::optional<Scheduler::TimerId> timer;
  };
  struct Loans;
  static constexpr int kQuickToBeTrusted = 8;
  struct Lent {
    std::vector<Buffer> buffers;
    size_t bytes = 0;        // of all of them
    uint64_t call = 0;       // 0: lent with a reply
    bool abandoned = false;  // its call
  };

  // ResourceExhausted for what can neither be shown nor is short enough for the socket.
  absl::Status Send(Outgoing packet);
  absl::Status SendLent(Outgoing packet);
  absl::Status SendWhole(Outgoing packet);
  void WriteNumbersLocked(PacketKind kind, absl::Span<const uint64_t> numbers,
                          std::vector<int> descriptors) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void WriteLocked(const PacketHeader& header, absl::Span<const char> table,
                   std::vector<WireMessage::Piece> pieces, absl::Span<const absl::string_view> body,
                   std::vector<int> descriptors) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // The other side calls but does not read the replies: its calls are not read either. Only where
  // calls are served, so that the two sides never wait for each other.
  bool is_full() const {
    return serve_ != nullptr && reach_ == Reach::kNetwork && replies_wait_.load();
  }
  // Breaks a link over the network on which nothing has come for too long although something is
  // waited for; asks the other side before.
  void CheckSilence();
  bool IsWaited() const;
  void ShowSegmentsLocked(const absl::flat_hash_set<uint64_t>& segments)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void ForgetSegmentsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void SendReleasesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Cancelled calls have lent many buffers that the other side has not looked at yet: further calls
  // wait here.
  bool is_congested() const;
  void AbandonLoans(uint64_t call);
  void SendDelayed();
  void FailWritingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // The same where the other side may well be there.
  void GiveUpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  absl::Status ReadLocked(std::deque<Received>& packets) ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  // How many bytes came; none: nothing is there now.
  absl::StatusOr<size_t> ReceiveLocked(char* to, size_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::Status TakeBytesLocked(absl::string_view bytes, std::deque<Received>& packets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::Status PacketReadLocked(std::deque<Received>& packets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::Status MapSegmentsLocked(absl::Span<const uint64_t> numbers_and_sizes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  // What was lent with a message, given back when the result goes.
  std::shared_ptr<const void> LoansOf(const Packet& packet);
  absl::StatusOr<WireBytes> BytesOfLocked(Packet packet) ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);

  // Reads what is there and does what it asks for. `hand_over`: others read on meanwhile.
  void ReadAndHandle(bool hand_over);
  // The poller watches the link from now on.
  void Watch(bool unless_read = true);
  // False where the link is broken or has to be watched.
  bool Pause();
  // Spins for the next packet, unless it is not expected soon. Requires: the poller does not watch.
  bool SpinForPacket();
  std::optional<Received> TakeUnhandled();
  void Handle(Received packet);
  absl::Status CheckSize(uint64_t bytes) const;
  absl::Status CheckBodySize(const PacketHeader& header) const;
  void HandleCall(const PacketHeader& header, WireBytes bytes);
  void HandleReply(const PacketHeader& header, WireBytes bytes);
  void HandleRelease(absl::Span<const uint64_t> loans);
  // A device of this process wants to read the other side's segments by itself.
  void AskToKeep(absl::Span<const uint64_t> numbers_and_sizes);
  void HandleKeep(absl::Span<const uint64_t> segments);
  void HandleKept(absl::Span<const uint64_t> segments);
  void Reply(uint64_t call, absl::StatusOr<WireMessage> reply);
  // The same for a call that is no longer in `served_`.
  void SendReply(uint64_t call, absl::StatusOr<WireMessage> reply);
  // The call has ended here, whatever the other side says of it later.
  void Abandon(uint64_t call, const absl::Status& reason);
  void Finish(MadeCall call, absl::StatusOr<WireBytes> reply);
  void Release(std::vector<uint64_t> loans, size_t bytes);

  int socket_;  // changes only with both of the mutexes below, to -1
  const ServeCall serve_;
  const std::shared_ptr<const Caller> caller_;  // the other end, where it may call
  Scheduler* const scheduler_;
  const size_t max_message_bytes_;
  const Reach reach_;
  Poller::Number number_ = 0;
  std::atomic<bool> open_{true};
  std::atomic<bool> has_reader_{false};  // a thread that has claimed it
  static constexpr int64_t kLongestSpinNanos = 150'000;
  Pace calls_pace_{kLongestSpinNanos};    // of packets for which no thread waits here
  Pace answers_pace_{kLongestSpinNanos};  // of what a thread waits for
  std::atomic<int64_t> idle_since_{0};    // when the poller was done with it
  // Quick packets to go until a thread may handle one while no other thread watches the link.
  std::atomic<int> handles_until_trusted_{kQuickToBeTrusted};
  std::atomic<int64_t> unwatched_since_{0};  // while a thread handles something; 0: none does
  std::atomic<size_t> abandoned_bytes_{0};   // of what is lent
  std::atomic<bool> other_has_gone_{false};  // or has hung up
  std::atomic<bool> has_given_up_{false};    // and only then found the end
  std::atomic<bool> replies_wait_{false};    // more of them than should
  std::atomic<bool> heard_{true};            // since the last look at the silence
  // Of a link over the network, in nanoseconds of the monotonic clock.
  std::atomic<int64_t> ask_after_{10'000'000'000};
  std::atomic<int64_t> break_after_{30'000'000'000};
  std::atomic<int64_t> silent_since_{0};
  std::atomic<int64_t> last_look_{0};

  Mutex write_mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(write_mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;
  bool write_failed_ ABSL_GUARDED_BY(write_mutex_) = false;
  uint64_t last_loan_ ABSL_GUARDED_BY(write_mutex_) = 0;
  absl::flat_hash_map<uint64_t, Lent> lent_ ABSL_GUARDED_BY(write_mutex_);
  absl::flat_hash_set<uint64_t> shown_ ABSL_GUARDED_BY(write_mutex_);  // segments
  absl::flat_hash_set<uint64_t> kept_ ABSL_GUARDED_BY(write_mutex_);  // of those shown
  uint64_t returned_seen_ ABSL_GUARDED_BY(write_mutex_) = 0;
  std::vector<uint64_t> releases_ ABSL_GUARDED_BY(write_mutex_);  // not said yet

  mutable Mutex read_mutex_;
  PacketHeader header_ ABSL_GUARDED_BY(read_mutex_);
  size_t header_read_ ABSL_GUARDED_BY(read_mutex_) = 0;
  Buffer body_ ABSL_GUARDED_BY(read_mutex_);
  size_t body_read_ ABSL_GUARDED_BY(read_mutex_) = 0;
  absl::Status body_lack_ ABSL_GUARDED_BY(read_mutex_);  // why `body_` has room for its table only
  std::deque<int> descriptors_ ABSL_GUARDED_BY(read_mutex_);  // received, not mapped yet

  std::deque<Received> unhandled_ ABSL_GUARDED_BY(read_mutex_);
  absl::Status read_status_ ABSL_GUARDED_BY(read_mutex_);  // once it has failed nothing is read
  // Of the other side.
  absl::flat_hash_map<uint64_t, std::shared_ptr<const SharedMapping>> segments_
      ABSL_GUARDED_BY(read_mutex_);

  mutable Mutex calls_mutex_;
  uint64_t last_call_ ABSL_GUARDED_BY(calls_mutex_) = 0;
  absl::flat_hash_map<uint64_t, MadeCall> made_ ABSL_GUARDED_BY(calls_mutex_);
  std::map<uint64_t, Outgoing> delayed_ ABSL_GUARDED_BY(calls_mutex_);  // by their calls
  std::map<uint64_t, std::shared_ptr<Cancellation>> served_ ABSL_GUARDED_BY(calls_mutex_);
};

}  // namespace muster::fast
