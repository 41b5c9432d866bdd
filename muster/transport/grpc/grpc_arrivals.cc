#include "muster/transport/grpc/grpc_arrivals.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "muster/tensor/unused_memory.h"

namespace muster {
namespace {

// Between two looks, by what is left: at this rate it would be gone.
constexpr double kFastestBytesPerSecond = 4e9;
constexpr absl::Duration kShortestPause = absl::Milliseconds(2);
constexpr absl::Duration kLongestPause = absl::Milliseconds(20);
// While nothing large arrives.
constexpr absl::Duration kUsualPause = absl::Milliseconds(4);
// Bytes that may arrive before the next check.
constexpr int64_t kComingBytes = int64_t{8} << 20;
constexpr int kLooksToSkip = 5;

}  // namespace

GrpcArrivals::GrpcArrivals(std::shared_ptr<GrpcConnections> connections, MemoryGuard& guard)
    : connections_(std::move(connections)),
      guard_(guard),
      calls_("muster-arrivals", kUsualPause, [this] { return Judge(FindArriving()); }) {}

std::vector<GrpcArrivals::Arriving> GrpcArrivals::FindArriving() {
  absl::flat_hash_map<std::string, std::optional<GrpcConnections::Traffic>> traffic;
  absl::flat_hash_map<std::string, int64_t> bytes;
  calls_.ForEach([&](WaitingCalls::Call& waiting) {
    Call& call = static_cast<Call&>(waiting);
    if (!call.is_seen_) call.name_ = call.peer_name();
    const auto [found, is_new] = traffic.try_emplace(call.name_);
    if (is_new) found->second = connections_->TrafficOf(call.name_);
    if (!found->second) return;
    const GrpcConnections::Traffic& now = *found->second;
    if (!std::exchange(call.is_seen_, true)) call.before_ = now;
    const auto received = static_cast<int64_t>(now.received_bytes - call.before_.received_bytes);
    const auto served = static_cast<int64_t>(now.served_bytes - call.before_.served_bytes);
    int64_t& of_connection = bytes[call.name_];
    of_connection = std::max(of_connection, received - served);
  });
  std::vector<Arriving> arriving;
  for (const auto& [name, count] : bytes) arriving.push_back({name, count});
  return arriving;
}

absl::Duration GrpcArrivals::Judge(const std::vector<Arriving>& arriving) {
  int64_t all_bytes = 0;
  const Arriving* most = nullptr;
  for (const Arriving& connection : arriving) {
    all_bytes += connection.bytes;
    if (most == nullptr || connection.bytes > most->bytes) most = &connection;
  }
  if (all_bytes < kFewBytes) return kUsualPause;
  if (looks_to_skip_ > 0) {
    --looks_to_skip_;
    return kShortestPause;
  }
  int64_t left_bytes = 0;
  std::string why = guard_.WhyNoRoom(all_bytes, kComingBytes, left_bytes);
  if (!why.empty()) {
    ReleaseUnusedMemory();
    why = guard_.WhyNoRoom(all_bytes, kComingBytes, left_bytes);
  }
  if (!why.empty()) {
    RefuseAllOf(*most, why);
    return kShortestPause;
  }
  return std::clamp(absl::Seconds(static_cast<double>(left_bytes) / kFastestBytesPerSecond),
                    kShortestPause, kLongestPause);
}

void GrpcArrivals::RefuseAllOf(const Arriving& connection, const std::string& why) {
  looks_to_skip_ = kLooksToSkip;
  const absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
      "OOM when receiving a message, of which ", connection.bytes, " bytes have come: ", why));
  calls_.RefuseEach(
      [&](const WaitingCalls::Call& waiting) {
        const Call& call = static_cast<const Call&>(waiting);
        return call.is_seen_ && call.name_ == connection.name;
      },
      status);
}

}  // namespace muster
