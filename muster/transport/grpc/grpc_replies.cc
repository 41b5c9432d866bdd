#include "muster/transport/grpc/grpc_replies.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "muster/tensor/unused_memory.h"
#include "muster/transport/grpc/grpc_sockets.h"

namespace muster {
namespace {

// Between two looks, by what is left: at this rate it would be gone.
constexpr double kFastestReplyBytesPerSecond = 4e9;
constexpr absl::Duration kShortestPause = absl::Milliseconds(2);
constexpr absl::Duration kLongestPause = absl::Milliseconds(250);
// What may come until the next look.
constexpr int64_t kExpectedBytes = int64_t{8} << 20;
// When less is left, arriving replies are counted: there is no time for that once memory is short.
constexpr int64_t kCountFromBytes = int64_t{64} << 20;

// What a reply of that size takes on the way at most, with its headers, frames and TLS records.
uint64_t SentBytes(size_t reply_bytes) {
  return reply_bytes + reply_bytes / 64 + 1024;
}

}  // namespace

GrpcReplies& GrpcReplies::Global() {
  // Never destroyed: calls may be under way until the process ends.
  static GrpcReplies& replies = *std::make_unique<GrpcReplies>(MemoryGuard::Global()).release();
  return replies;
}

GrpcReplies::GrpcReplies(MemoryGuard& guard)
    : guard_(guard), calls_("muster-replies", kShortestPause, [this] { return Look(); }) {}

absl::Duration GrpcReplies::Look() {
  int64_t left_bytes = 0;
  const bool counts = !guard_.WhyNoRoom(0, kCountFromBytes, left_bytes).empty();
  const absl::Duration pause =
      std::clamp(absl::Seconds(static_cast<double>(std::max<int64_t>(left_bytes, 0)) /
                               kFastestReplyBytesPerSecond),
                 kShortestPause, kLongestPause);
  if (!counts) {
    StopCounting();
    return pause;
  }
  is_counting_.store(true, std::memory_order_relaxed);
  UpdateTraffic();
  const Traffics::value_type* const busiest = FindBusiest();
  if (busiest == nullptr || guard_.WhyNoRoom(0, kExpectedBytes, left_bytes).empty()) return pause;
  ReleaseUnusedMemory();
  const std::string why = guard_.WhyNoRoom(0, kExpectedBytes, left_bytes);
  if (!why.empty()) RefuseAllOf(busiest->first, why);
  return pause;
}

void GrpcReplies::Count(const Call& call, size_t bytes) {
  const std::optional<std::string> address = EndName(absl::string_view(call.peer_name()));
  if (!address) return;
  MutexLock lock(mutex_);
  uint64_t& replied = replied_bytes_[*address];
  const bool is_known = bytes != kUnknownBytes && replied != kUnknownBytes;
  replied = is_known ? replied + SentBytes(bytes) : kUnknownBytes;
}

void GrpcReplies::StopCounting() {
  if (!is_counting_.exchange(false, std::memory_order_relaxed)) return;
  traffic_.clear();
  MutexLock lock(mutex_);
  replied_bytes_.clear();
}

void GrpcReplies::UpdateTraffic() {
  // Before the sockets: what was replied has been received.
  std::map<std::string, uint64_t> replied_bytes;
  {
    MutexLock lock(mutex_);
    replied_bytes.swap(replied_bytes_);
  }
  Traffics traffic;
  for (const auto& [address, received] : LookAtSockets()) {
    Traffic& now = traffic[address];
    now.received_bytes = received;
    const auto before = traffic_.find(address);
    // Connections may have ended.
    if (before == traffic_.end() || before->second.received_bytes > received) continue;
    now.arriving_bytes = before->second.arriving_bytes + received - before->second.received_bytes;
    // Estimates are high, and some of the first replies came before the first look.
    const auto replied = replied_bytes.find(address);
    if (replied != replied_bytes.end())
      now.arriving_bytes -= std::min(now.arriving_bytes, replied->second);
  }
  traffic_ = std::move(traffic);
}

std::map<std::string, uint64_t> GrpcReplies::LookAtSockets() {
  std::map<std::string, uint64_t> received;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &fd)) continue;
    const std::string end = EndName(fd);
    const std::optional<SocketState> state =
        end.empty() ? std::nullopt : StateOf(fd, SocketNumber(fd));
    if (state) received[end] += state->received_bytes;
  }
  return received;
}

const GrpcReplies::Traffics::value_type* GrpcReplies::FindBusiest() const {
  const Traffics::value_type* busiest = nullptr;
  calls_.ForEach([&](const Call& call) {
    const std::optional<std::string> address = EndName(absl::string_view(call.peer_name()));
    const auto found = address ? traffic_.find(*address) : traffic_.end();
    if (found == traffic_.end() || found->second.arriving_bytes < kFewBytes) return;
    if (busiest == nullptr || found->second.arriving_bytes > busiest->second.arriving_bytes)
      busiest = &*found;
  });
  return busiest;
}

void GrpcReplies::RefuseAllOf(const std::string& address, const std::string& why) {
  const absl::Status status = absl::ResourceExhaustedError(
      absl::StrCat("OOM when receiving a message from ", address, ": ", why));
  traffic_[address].arriving_bytes = 0;  // it goes
  calls_.RefuseEach(
      [&](const Call& call) { return EndName(absl::string_view(call.peer_name())) == address; },
      status);
}

}  // namespace muster
