#include "muster/collective/mesh/operation.h"

#include <algorithm>
#include <cstring>

#include "muster/collective/mesh/mesh_packet.h"

namespace muster::collective {
namespace {

// Less than this waits for more, unless it is the end of a send.
constexpr size_t kPieceBytes = 64 << 10;

}  // namespace

Operation::Operation(uint64_t tag, uint64_t signature, Schedule schedule, char* data,
                     const ReduceKernel* kernel, int64_t divisor, Done done)
    : tag_(tag),
      signature_(signature),
      schedule_(std::move(schedule)),
      data_(data),
      kernel_(kernel != nullptr ? *kernel : ReduceKernel{.element_bytes = 1}),
      divisor_(divisor),
      done_(std::move(done)),
      outgoing_(schedule_.sends.size()),
      sends_left_(schedule_.sends.size()) {
  const auto lane_of = [&](int peer) -> Lane& {
    if (Lane* lane = FindLane(peer); lane != nullptr) return *lane;
    lanes_.emplace_back().peer = peer;
    return lanes_.back();
  };
  for (size_t i = 0; i < schedule_.sends.size(); ++i) {
    lane_of(schedule_.sends[i].peer).sends.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < schedule_.receives.size(); ++i) {
    Lane& lane = lane_of(schedule_.receives[i].peer);
    receive_steps_.push_back(static_cast<uint32_t>(lane.receives.size()));
    lane.receives.push_back(static_cast<int>(i));
  }
}

Operation::Lane* Operation::FindLane(int peer) {
  for (Lane& lane : lanes_) {
    if (lane.peer == peer) return &lane;
  }
  return nullptr;
}

bool Operation::Needs(const Lane& lane) const {
  return lane.next_send < lane.sends.size() ||
         (!lane.receives.empty() && lane.receives.back() >= static_cast<int>(current_));
}

size_t Operation::Available(const Send& send) const {
  if (send.after < static_cast<int>(current_)) return send.bytes;
  if (send.after > static_cast<int>(current_) || send.snapshot) return 0;
  const Receive& receive = schedule_.receives[current_];
  if (send.offset < receive.offset || send.offset + send.bytes > receive.offset + receive.bytes) {
    return 0;
  }
  const size_t end = receive.offset + received_;
  return end <= send.offset ? 0 : std::min(send.bytes, end - send.offset);
}

Operation::Piece Operation::NextPiece(const Lane& lane) const {
  if (lane.next_send == lane.sends.size()) return {};
  const int index = lane.sends[lane.next_send];
  const Send& send = schedule_.sends[index];
  size_t available = Available(send);
  // Bytes arrive cut anywhere; they are sent on in whole elements.
  if (available < send.bytes) available -= available % kernel_.element_bytes;
  const size_t bytes = std::min(available - std::min(available, lane.sent), kPacketBytes);
  if (bytes == 0 || (bytes < kPieceBytes && available < send.bytes)) return {};
  const char* const snapshot = outgoing_[index].snapshot.get();
  const char* const base = snapshot != nullptr ? snapshot : data_ + send.offset;
  return {base + lane.sent, bytes, static_cast<uint32_t>(lane.next_send)};
}

void Operation::Sent(Lane& lane, size_t bytes) {
  lane.sent += bytes;
  if (lane.sent < NextSendBytes(lane)) return;
  lane.sent = 0;
  lane.charged = false;
  outgoing_[lane.sends[lane.next_send]].sent = true;
  ++lane.next_send;
  --sends_left_;
}

absl::Status Operation::CheckPiece(const Lane& lane, uint32_t step, size_t bytes) const {
  if (step >= lane.receives.size() || lane.receives[step] < static_cast<int>(current_)) {
    return InvalidArgument("sends step ", step, " of collective ", tag_, ", which is not awaited");
  }
  const auto index = static_cast<size_t>(lane.receives[step]);
  const Receive& receive = schedule_.receives[index];
  size_t there = index == current_ ? received_ : 0;
  for (const EarlyStep& early : lane.early) {
    if (early.step == step) there += early.bytes.size();
  }
  if (bytes > receive.bytes - there) {
    return InvalidArgument("sends ", there + bytes, " bytes in step ", step, " of collective ",
                           tag_, ", which has ", receive.bytes);
  }
  return absl::OkStatus();
}

bool Operation::IsNext(const Lane& lane, uint32_t step) const {
  return current_ < schedule_.receives.size() && lane.early.empty() &&
         lane.receives[step] == static_cast<int>(current_);
}

size_t Operation::Accept(const char* bytes, size_t count) {
  TakeSnapshots();
  const Receive& receive = schedule_.receives[current_];
  char* target = data_ + receive.offset + received_;
  count = std::min(count, receive.bytes - received_);
  if (receive.reduce) {
    const size_t elements = count / kernel_.element_bytes;
    count = elements * kernel_.element_bytes;
    kernel_.combine(target, receive.incoming_first ? bytes : target,
                    receive.incoming_first ? target : bytes, elements);
    if (receive.finish && divisor_ > 0) kernel_.divide(target, elements, divisor_);
  } else {
    std::memcpy(target, bytes, count);
  }
  Copied(count);
  return count;
}

char* Operation::CopyTarget() {
  TakeSnapshots();
  const Receive& receive = schedule_.receives[current_];
  return receive.reduce ? nullptr : data_ + receive.offset + received_;
}

void Operation::Copied(size_t count) {
  received_ += count;
  if (received_ < schedule_.receives[current_].bytes) return;
  ++current_;
  received_ = 0;
}

// In order: a send with a snapshot waits for the receive before it, and receives come in order.
void Operation::TakeSnapshots() {
  for (; next_snapshot_ < schedule_.sends.size(); ++next_snapshot_) {
    const Send& send = schedule_.sends[next_snapshot_];
    if (!send.snapshot) continue;
    if (send.after >= static_cast<int>(current_)) return;
    if (outgoing_[next_snapshot_].sent) continue;
    auto& copy = outgoing_[next_snapshot_].snapshot;
    copy = std::make_unique_for_overwrite<char[]>(send.bytes);
    std::memcpy(copy.get(), data_ + send.offset, send.bytes);
  }
}

absl::Status Operation::AcceptEarly() {
  while (current_ < schedule_.receives.size()) {
    Lane& lane = *FindLane(schedule_.receives[current_].peer);
    if (lane.early.empty()) return absl::OkStatus();
    EarlyStep& early = lane.early.front();
    if (early.step != receive_steps_[current_]) {
      return InvalidArgument("sends step ", early.step, " of collective ", tag_, " where step ",
                             receive_steps_[current_], " is awaited");
    }
    const size_t before = current_;
    const size_t taken = Accept(early.bytes.data(), early.bytes.size());
    if (taken == early.bytes.size()) {
      lane.early.pop_front();
    } else if (current_ != before) {
      return InvalidArgument("sends too many bytes in collective ", tag_);
    } else {
      early.bytes.erase(0, taken);
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

uint32_t Operation::NewGrant(const Lane& lane) const {
  if (awaited_peer() != lane.peer) return 0;
  size_t end = current_;
  bool large = false;
  for (; end < schedule_.receives.size() && schedule_.receives[end].peer == lane.peer; ++end) {
    large |= schedule_.receives[end].bytes > kEagerBytes;
  }
  const uint32_t granted = receive_steps_[end - 1] + 1;
  return large && granted > lane.granted_to_peer ? granted : 0;
}

}  // namespace muster::collective
