#include "muster/collective/mesh/rank_link.h"

#include <algorithm>
#include <cstring>

namespace muster::collective {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
// Flush and Read take turns after this many bytes, so that both directions move.
constexpr size_t kTurnBytes = 512 << 10;
// The limits on what a peer must buffer for collectives it has not begun: bytes, and collectives.
constexpr size_t kUnheardBytes = 4 << 20;
constexpr size_t kUnknownTags = 65536;
// Shorter pieces go through the buffer: one read brings them and the next header.
constexpr size_t kDirectReadBytes = 16 << 10;

// Pads the packets of an abandoned collective. Not const, so that it is in .bss and takes no space
// in the file.
constinit std::array<char, kPacketBytes> zeros{};

absl::Status CheckSignature(uint64_t tag, uint64_t signature, uint64_t expected) {
  if (signature == expected) return absl::OkStatus();
  return InvalidArgument("calls collective ", tag, " with another operation, type, size or root");
}

}  // namespace

void RankLink::Attach(std::unique_ptr<Channel> channel) {
  channel_ = std::move(channel);
  buffer_ = std::make_unique_for_overwrite<char[]>(kBufferBytes);
}

void RankLink::Detach() {
  channel_ = nullptr;
  buffer_ = nullptr;
  writing_ = blocked_ = in_packet_ = false;
  target_ = nullptr;
  begin_ = end_ = 0;
  control_.clear();
  senders_.clear();
  unknown_.clear();
}

absl::Status RankLink::Join(Operation* operation) {
  Operation::Lane& lane = *operation->FindLane(peer_);
  if (const auto found = unknown_.find(operation->tag()); found != unknown_.end()) {
    Unknown unknown = std::move(found->second);
    unknown_.erase(found);
    unknown_bytes_ -= unknown.bytes;
    RETURN_IF_ERROR(CheckSignature(operation->tag(), unknown.signature, operation->signature()));
    lane.heard = true;
    lane.granted_by_peer = unknown.granted;
    for (EarlyStep& early : unknown.steps) {
      RETURN_IF_ERROR(operation->CheckPiece(lane, early.step, early.bytes.size()));
      lane.early.push_back(std::move(early));
    }
  }
  if (!lane.sends.empty()) senders_.push_back({operation, &lane});
  return absl::OkStatus();
}

void RankLink::Queue(const MeshPacket& packet, absl::string_view text) {
  const MeshPacketHeader header = EncodeHeader(packet);
  control_.append(header.data(), header.size());
  control_.append(text.data(), text.size());
}

void RankLink::Abandon(const absl::Status& reason) {
  if (writing_ && writer_.operation != nullptr) {
    payload_ = zeros.data();
    writer_ = {};
  }
  senders_.clear();
  target_ = nullptr;
  const absl::string_view text = absl::string_view(reason.message()).substr(0, kAbortMessageBytes);
  Queue({.kind = MeshPacketKind::kAbort,
         .step = static_cast<uint32_t>(reason.code()),
         .length = static_cast<uint32_t>(text.size())},
        text);
}

bool RankLink::MaySend(Sender& sender) {
  Operation::Lane& lane = *sender.lane;
  if (lane.sent > 0 || lane.charged || lane.next_send < lane.granted_by_peer) return true;
  const size_t bytes = sender.operation->NextSendBytes(lane);
  if (bytes > kEagerBytes) return false;
  if (lane.heard) return true;
  if (unheard_bytes_ + bytes > kUnheardBytes) return false;
  unheard_[sender.operation->tag()] += bytes;
  unheard_bytes_ += bytes;
  lane.charged = true;
  return true;
}

bool RankLink::PickPacket() {
  if (!control_.empty()) {
    control_writing_ = std::exchange(control_, {});
    writer_ = {};
    header_left_ = 0;
    payload_ = control_writing_.data();
    payload_left_ = payload_bytes_ = control_writing_.size();
    return true;
  }
  for (size_t tried = 0; tried < senders_.size(); ++tried) {
    if (next_sender_ >= senders_.size()) next_sender_ = 0;
    Sender& sender = senders_[next_sender_++];
    const Operation::Piece piece = sender.operation->NextPiece(*sender.lane);
    if (piece.bytes == 0 || !MaySend(sender)) continue;
    writer_ = sender;
    header_ =
        EncodeHeader({MeshPacketKind::kData, sender.operation->tag(), sender.operation->signature(),
                      piece.step, static_cast<uint32_t>(piece.bytes)});
    header_left_ = header_.size();
    payload_ = piece.data;
    payload_left_ = payload_bytes_ = piece.bytes;
    return true;
  }
  return false;
}

void RankLink::Wrote(size_t bytes) {
  const size_t of_header = std::min(bytes, header_left_);
  header_left_ -= of_header;
  payload_ += bytes - of_header;
  payload_left_ -= bytes - of_header;
  if (header_left_ > 0 || payload_left_ > 0) return;
  writing_ = false;
  if (writer_.operation == nullptr) return;
  Operation::Lane& lane = *writer_.lane;
  writer_.operation->Sent(lane, payload_bytes_);
  if (lane.next_send == lane.sends.size()) {
    std::erase_if(senders_, [&](const Sender& sender) { return sender.lane == &lane; });
  }
}

absl::Status RankLink::Flush(int64_t now_nanos) {
  blocked_ = false;
  for (size_t written = 0; written < kTurnBytes;) {
    if (!writing_ && !(writing_ = PickPacket())) return absl::OkStatus();
    // The rest of a packet may have been moved out of the way of what came in.
    if (writer_.operation != nullptr) {
      payload_ = writer_.operation->NextPiece(*writer_.lane).data + payload_bytes_ - payload_left_;
    }
    const iovec pieces[2] = {{header_.data() + (header_.size() - header_left_), header_left_},
                             {const_cast<char*>(payload_), payload_left_}};  // iovec knows no const
    const bool has_header = header_left_ > 0;
    ASSIGN_OR_RETURN(const size_t wrote,
                     channel_->Write(absl::MakeSpan(pieces).subspan(has_header ? 0 : 1)));
    if (wrote == 0) {
      blocked_ = true;
      return absl::OkStatus();
    }
    sent_nanos = now_nanos;
    owner_.Moved(wrote, 0);
    written += wrote;
    if (writer_.operation != nullptr) writer_.operation->progress_nanos = now_nanos;
    Wrote(wrote);
  }
  blocked_ = true;  // there may be more
  return absl::OkStatus();
}

absl::StatusOr<size_t> RankLink::Read(int64_t now_nanos) {
  size_t total = 0;
  for (bool more = true; more && total < kTurnBytes;) {
    size_t got = 0;
    if (begin_ == end_ && channel_->can_peek()) {
      ASSIGN_OR_RETURN(const absl::Span<const char> bytes, channel_->Peek());
      if (bytes.empty()) break;
      ASSIGN_OR_RETURN(got, Parse(bytes));
      if (got > 0) channel_->Consume(got);
    }
    // Also for a part of what must come as a whole.
    if (got == 0) {
      ASSIGN_OR_RETURN(got, ReadCopied(more));
    }
    if (got == 0) break;
    heard_nanos = now_nanos;
    owner_.Moved(0, got);
    total += got;
  }
  return total;
}

absl::StatusOr<size_t> RankLink::ReadCopied(bool& more) {
  size_t asked, got;
  char* const direct =
      in_packet_ && target_ != nullptr && begin_ == end_ && packet_left_ >= kDirectReadBytes
          ? target_->CopyTarget()
          : nullptr;
  if (begin_ == end_) begin_ = end_ = 0;
  if (direct != nullptr) {
    const iovec pieces[2] = {{direct, packet_left_}, {buffer_.get(), kPacketHeaderBytes}};
    asked = packet_left_ + kPacketHeaderBytes;
    ASSIGN_OR_RETURN(got, channel_->Read(pieces));
    const size_t copied = std::min(got, packet_left_);
    end_ = got - copied;
    if (copied > 0) {
      packet_left_ -= copied;
      in_packet_ = packet_left_ > 0;
      Operation* const target = target_;
      target->Copied(copied);
      RETURN_IF_ERROR(target->AcceptEarly());
      owner_.Touched(target);
    }
  } else {
    if (begin_ > 0) {
      std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    asked = kBufferBytes - end_;
    const iovec piece{buffer_.get() + end_, asked};
    ASSIGN_OR_RETURN(got, channel_->Read({&piece, 1}));
    end_ += got;
  }
  more = got == asked;
  ASSIGN_OR_RETURN(const size_t taken, Parse({buffer_.get() + begin_, end_ - begin_}));
  begin_ += taken;
  return got;
}

absl::StatusOr<size_t> RankLink::Parse(absl::Span<const char> bytes) {
  input_ = bytes;
  while (!input_.empty()) {
    if (!in_packet_) {
      if (input_.size() < kPacketHeaderBytes) break;
      ASSIGN_OR_RETURN(packet_, DecodeHeader(input_.data()));
      // A message is taken when all of it is there.
      if (packet_.kind == MeshPacketKind::kAbort &&
          input_.size() < kPacketHeaderBytes + packet_.length) {
        break;
      }
      input_.remove_prefix(kPacketHeaderBytes);
      RETURN_IF_ERROR(BeginPacket());
      continue;
    }
    ASSIGN_OR_RETURN(const size_t taken, TakePayload());
    if (taken == 0) break;  // not a whole element yet
  }
  return bytes.size() - input_.size();
}

absl::Status RankLink::BeginPacket() {
  switch (packet_.kind) {
    case MeshPacketKind::kPing:
      Queue({.kind = MeshPacketKind::kPong});
      return absl::OkStatus();
    case MeshPacketKind::kPong:
      return absl::OkStatus();
    case MeshPacketKind::kAbort: {
      const bool known = packet_.step >= 1 && packet_.step <= 16;
      abort_ = absl::Status(
          known ? static_cast<absl::StatusCode>(packet_.step) : absl::StatusCode::kUnavailable,
          absl::string_view(input_.data(), packet_.length));
      input_.remove_prefix(packet_.length);
      return absl::OkStatus();
    }
    case MeshPacketKind::kReady:
      return TakeReady(owner_.FindOperation(packet_.tag));
    case MeshPacketKind::kData:
      in_packet_ = true;
      packet_left_ = packet_.length;
      return BeginData(owner_.FindOperation(packet_.tag));
  }
  return absl::OkStatus();
}

void RankLink::Heard(uint64_t tag) {
  if (const auto found = unheard_.find(tag); found != unheard_.end()) {
    unheard_bytes_ -= found->second;
    unheard_.erase(found);
  }
}

absl::StatusOr<RankLink::Unknown*> RankLink::FindUnknown() {
  if (unknown_.size() >= kUnknownTags && !unknown_.contains(packet_.tag)) {
    return InvalidArgument("takes part in ", kUnknownTags, " collectives that were not begun here");
  }
  const auto [found, is_new] = unknown_.try_emplace(packet_.tag);
  if (is_new) found->second.signature = packet_.signature;
  RETURN_IF_ERROR(CheckSignature(packet_.tag, packet_.signature, found->second.signature));
  return &found->second;
}

absl::Status RankLink::TakeReady(Operation* operation) {
  if (operation == nullptr) {
    // A rank that only sends may have ended the collective before its receiver began it.
    if (unheard_.contains(packet_.tag)) {
      Heard(packet_.tag);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Unknown* const unknown, FindUnknown());
    unknown->granted = std::max(unknown->granted, packet_.step);
    return absl::OkStatus();
  }
  Heard(packet_.tag);
  RETURN_IF_ERROR(CheckSignature(packet_.tag, packet_.signature, operation->signature()));
  Operation::Lane* const lane = operation->FindLane(peer_);
  if (lane == nullptr) return InvalidArgument("awaits bytes of collective ", packet_.tag);
  lane->heard = true;
  lane->granted_by_peer = std::max(lane->granted_by_peer, packet_.step);
  owner_.Touched(operation);
  return absl::OkStatus();
}

absl::Status RankLink::BeginData(Operation* operation) {
  Heard(packet_.tag);
  target_ = nullptr;
  if (operation == nullptr) {
    if (unknown_bytes_ + packet_.length > kUnheardBytes) {
      return InvalidArgument("sends more than ", kUnheardBytes,
                             " bytes for collectives that were not begun here");
    }
    ASSIGN_OR_RETURN(Unknown* const unknown, FindUnknown());
    unknown->bytes += packet_.length;
    unknown_bytes_ += packet_.length;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckSignature(packet_.tag, packet_.signature, operation->signature()));
  Operation::Lane* const lane = operation->FindLane(peer_);
  if (lane == nullptr) return InvalidArgument("sends bytes of collective ", packet_.tag);
  lane->heard = true;
  RETURN_IF_ERROR(operation->CheckPiece(*lane, packet_.step, packet_.length));
  if (packet_.length % operation->element_bytes() != 0) {
    return InvalidArgument("cuts an element in two in collective ", packet_.tag);
  }
  if (operation->IsNext(*lane, packet_.step)) target_ = operation;
  return absl::OkStatus();
}

absl::StatusOr<size_t> RankLink::TakePayload() {
  const char* const bytes = input_.data();
  size_t count = std::min(input_.size(), packet_left_);
  Operation* touched = target_;
  if (target_ != nullptr) {
    count = target_->Accept(bytes, count);
  } else {
    touched = owner_.FindOperation(packet_.tag);
    EarlySteps* steps;
    if (touched != nullptr) {
      steps = &touched->FindLane(peer_)->early;
    } else {
      ASSIGN_OR_RETURN(Unknown* const unknown, FindUnknown());
      steps = &unknown->steps;
    }
    if (steps->empty() || steps->back().step != packet_.step) steps->push_back({packet_.step, {}});
    steps->back().bytes.append(bytes, count);
  }
  input_.remove_prefix(count);
  packet_left_ -= count;
  in_packet_ = packet_left_ > 0;
  if (touched != nullptr) {
    RETURN_IF_ERROR(touched->AcceptEarly());
    owner_.Touched(touched);
  }
  return count;
}

}  // namespace muster::collective
