// A connection between two processes of one machine: calls go one way, replies the other. What is
// large is not sent but lent: the receiver reads it where it lies and says when it is done.
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

#include "muster/base/mutex.h"
#include "muster/base/pace.h"
#include "muster/base/scheduler.h"
#include "muster/tensor/shared_memory.h"
#include "muster/transport/fast/frame.h"
#include "muster/transport/fast/poller.h"
#include "muster/transport/messages/channel.h"

namespace muster::fast {

// A call that the other side has made.
struct LinkCall {
  std::string path;  // "/service/method"
  WireBytes request;
  CallOptions options;
  absl::AnyInvocable<void(absl::StatusOr<WireMessage>) &&> reply;
};
using ServeCall = std::function<void(LinkCall)>;

// Thread-safe. Breaks when the other process is gone, however it went: calls under way then fail
// with Unavailable, those of the other side are cancelled, and what was lent is taken back.
class Link : public Pollable, public std::enable_shared_from_this<Link> {
 public:
  // Takes the socket. `serve` may be null: then calls are refused. `scheduler` outlives the link;
  // without one its calls have neither deadlines nor cancellations.
  // Larger messages than `max_message_bytes` are refused with ResourceExhausted.
  static std::shared_ptr<Link> Create(int socket, ServeCall serve, Scheduler* scheduler,
                                      size_t max_message_bytes = SIZE_MAX);
  ~Link() override;

  // `who` is how error texts call the other side.
  void Call(std::string path, std::string who, CallOptions options, WireMessage request,
            Channel::Done done);
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  void Break(const std::string& why);
  // Calls of the other side that have no reply yet.
  size_t num_served() const;
  void CancelServed(const absl::Status& reason);

  void Ready() override;
  void Tick() override;
  // Reads on the calling thread until `done` holds, `until` has passed or the link is broken.
  // `event` is a descriptor that can be read when somebody else has made `done` true. False where
  // another thread does so already.
  bool ReadUntil(absl::FunctionRef<bool()> done, int event, absl::Time until);

 private:
  Link(int socket, ServeCall serve, Scheduler* scheduler, size_t max_message_bytes)
      : socket_(socket),
        serve_(std::move(serve)),
        scheduler_(scheduler),
        max_message_bytes_(max_message_bytes) {}

  // A message as it goes out.
  struct Outgoing {
    FrameHeader header;
    std::vector<WireMessage::Piece> pieces;
  };
  // What the system has not taken yet.
  struct Queued {
    std::string bytes;
    size_t sent = 0;
    std::vector<int> descriptors;  // go with the first byte
  };
  // A frame that has been read, with its pieces.
  struct Received {
    FrameHeader header;
    WireBytes bytes;
    std::vector<uint64_t> numbers;
  };
  struct MadeCall {
    Channel::Done done;
    std::string path;
    std::string who;
    std::shared_ptr<Cancellation> cancellation;
    Cancellation::Token token = 0;
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
  absl::Status Send(Outgoing frame);
  void WriteNumbersLocked(FrameKind kind, absl::Span<const uint64_t> numbers,
                          std::vector<int> descriptors) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void WriteLocked(absl::string_view head, absl::Span<const absl::string_view> parts,
                   std::vector<int> descriptors) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void ShowSegmentsLocked(const absl::flat_hash_set<uint64_t>& segments)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void ForgetSegmentsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void SendReleasesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Much was lent with calls that nobody waits for any more, and the other side has not looked at
  // it yet: further calls wait here.
  bool is_congested() const;
  void AbandonLoans(uint64_t call);
  void SendDelayed();
  void FailWritingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // The same where the other side may well be there.
  void GiveUpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  absl::Status ReadLocked(std::deque<Received>& frames) ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  // How many bytes came; none: nothing is there now.
  absl::StatusOr<size_t> ReceiveLocked(char* to, size_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::Status TakeBytesLocked(absl::string_view bytes, std::deque<Received>& frames)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::Status FrameReadLocked(std::deque<Received>& frames)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::Status MapSegmentsLocked(absl::Span<const uint64_t> numbers_and_sizes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  absl::StatusOr<WireBytes> BytesOfLocked(Frame frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);

  // Reads what is there and does what it asks for. `let_go`: others read on meanwhile.
  void ReadAndHandle(bool let_go);
  // The poller watches the link from now on.
  void Watch(bool unless_read = true);
  // False where the link is broken or has to be watched.
  bool Pause();
  // Whether something came before it was long enough to fall asleep. Requires: nobody watches.
  bool StayAwake();
  // One look, for who stays awake. True: there is something to handle.
  bool Look();
  std::optional<Received> TakeUnhandled();
  void Handle(Received frame);
  absl::Status CheckSize(const WireBytes& bytes) const;
  void HandleCall(const FrameHeader& header, WireBytes bytes);
  void HandleReply(const FrameHeader& header, WireBytes bytes);
  void HandleRelease(absl::Span<const uint64_t> loans);
  void Reply(uint64_t call, absl::StatusOr<WireMessage> reply);
  // The call has ended here, whatever the other side says of it later.
  void Abandon(uint64_t call, const absl::Status& reason);
  void Finish(MadeCall call, absl::StatusOr<WireBytes> reply);
  void Release(std::vector<uint64_t> loans, size_t bytes);

  int socket_;  // changes only with both of the mutexes below, to -1
  const ServeCall serve_;
  Scheduler* const scheduler_;
  const size_t max_message_bytes_;
  Poller::Number number_ = 0;
  std::atomic<bool> open_{true};
  std::atomic<bool> has_reader_{false};  // a thread in ReadUntil
  static constexpr int64_t kAwakeNanos = 150'000;
  Pace calls_pace_{kAwakeNanos};    // of what the other side sends when nobody waits for it here
  Pace answers_pace_{kAwakeNanos};  // of what a thread waits for
  std::atomic<int64_t> idle_since_{0};  // when the poller was done with it
  // So many quick ones until a thread may handle what comes while nobody watches the link.
  std::atomic<int> handles_until_trusted_{kQuickToBeTrusted};
  std::atomic<int64_t> unwatched_since_{0};  // while a thread handles something; 0: none does
  std::atomic<size_t> abandoned_bytes_{0};   // of what is lent
  std::atomic<bool> other_has_gone_{false};  // or has hung up
  std::atomic<bool> has_given_up_{false};    // and only then found the end
  // Cancelled when the link breaks.
  const std::shared_ptr<Cancellation> connection_ = std::make_shared<Cancellation>();

  Mutex write_mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(write_mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;
  bool write_failed_ ABSL_GUARDED_BY(write_mutex_) = false;
  uint64_t last_loan_ ABSL_GUARDED_BY(write_mutex_) = 0;
  absl::flat_hash_map<uint64_t, Lent> lent_ ABSL_GUARDED_BY(write_mutex_);
  absl::flat_hash_set<uint64_t> shown_ ABSL_GUARDED_BY(write_mutex_);  // segments
  uint64_t returned_seen_ ABSL_GUARDED_BY(write_mutex_) = 0;
  std::vector<uint64_t> releases_ ABSL_GUARDED_BY(write_mutex_);  // not said yet

  Mutex read_mutex_;
  FrameHeader header_ ABSL_GUARDED_BY(read_mutex_);
  size_t header_read_ ABSL_GUARDED_BY(read_mutex_) = 0;
  Buffer body_ ABSL_GUARDED_BY(read_mutex_);
  size_t body_read_ ABSL_GUARDED_BY(read_mutex_) = 0;
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
