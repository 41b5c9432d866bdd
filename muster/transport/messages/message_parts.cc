#include "muster/transport/messages/message_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "muster/tensor/memory_guard.h"
#include "muster/transport/messages/methods.h"
#include "muster/transport/peer.pb.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

// Moves all pieces of some parts, a few at a time.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  Transfer(std::shared_ptr<const Channel> channel, CallOptions options, uint64_t id, Parts parts,
           Done done)
      : channel_(std::move(channel)),
        options_(std::move(options)),
        id_(id),
        parts_(std::move(parts)),
        done_(std::move(done)) {}
  virtual ~Transfer() = default;

  void Start() { Continue(absl::OkStatus()); }

 protected:
  struct Piece {
    size_t part = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t before = 0;  // bytes of the parts before
  };
  virtual void Move(Piece piece) = 0;

  void Call(absl::string_view method, absl::StatusOr<WireMessage> request, Channel::Done done) {
    channel_->Call(kPeerService, method, options_, std::move(request), std::move(done));
  }
  void Moved(absl::Status status) {
    {
      MutexLock lock(mutex_);
      --under_way_;
    }
    Continue(std::move(status));
  }
  uint64_t id() const { return id_; }
  const Parts& parts() const { return parts_; }

 private:
  static constexpr int kUnderWay = 4;

  std::optional<Piece> NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (next_.part < parts_.size() && next_.begin == parts_[next_.part].length_bytes()) {
      next_.before += parts_[next_.part].length_bytes();
      ++next_.part;
      next_.begin = 0;
    }
    if (next_.part == parts_.size()) return std::nullopt;
    Piece piece = next_;
    piece.end =
        std::min<uint64_t>(piece.begin + kPartPieceBytes, parts_[piece.part].length_bytes());
    next_.begin = piece.end;
    return piece;
  }

  void Continue(absl::Status status) {
    Done done;
    std::vector<Piece> pieces;
    {
      MutexLock lock(mutex_);
      if (!done_) return;
      while (status.ok() && under_way_ < kUnderWay) {
        const std::optional<Piece> piece = NextLocked();
        if (!piece) break;
        pieces.push_back(*piece);
        ++under_way_;
      }
      if (!status.ok() || under_way_ == 0) {
        done = std::move(done_);
        done_ = nullptr;
      }
    }
    if (done) return std::move(done)(std::move(status));
    for (const Piece& piece : pieces) Move(piece);
  }

  const std::shared_ptr<const Channel> channel_;
  const CallOptions options_;
  const uint64_t id_;
  const Parts parts_;
  Mutex mutex_;
  Piece next_ ABSL_GUARDED_BY(mutex_);
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  Done done_ ABSL_GUARDED_BY(mutex_);
};

class Fetch final : public Transfer {
 public:
  using Transfer::Transfer;

 private:
  void Move(Piece piece) override {
    PieceRequest request;
    request.set_id(id());
    request.set_offset(piece.before + piece.begin);
    request.set_length(piece.end - piece.begin);
    Call("Piece", SerializeMessage(request),
         [self = std::static_pointer_cast<Fetch>(shared_from_this()),
          piece](absl::StatusOr<WireBytes> bytes) {
           const absl::StatusOr<uint64_t> stored =
               bytes.ok() ? self->Store(piece, *bytes) : absl::StatusOr<uint64_t>(bytes.status());
           if (!stored.ok() || *stored == piece.end - piece.begin)
             return self->Moved(stored.status());
           // The other side makes smaller ones.
           Piece rest = piece;
           rest.begin += *stored;
           self->Move(rest);
         });
  }

  absl::StatusOr<uint64_t> Store(Piece piece, const WireBytes& bytes) const {
    WireReader reader(bytes);
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field != 1 || tag.type != WireType::kBytes)
      return InvalidArgument("A piece of a tensor came without its bytes");
    ASSIGN_OR_RETURN(WireReader data, reader.Bytes());
    const size_t length = data.remaining();
    if (length == 0 || length > piece.end - piece.begin) {
      return InvalidArgument("A piece of ", length, " bytes came for the bytes ", piece.begin,
                             " to ", piece.end, " of a tensor");
    }
    data.CopyTo(parts()[piece.part].data() + piece.begin, length);
    return length;
  }
};

class Upload final : public Transfer {
 public:
  using Transfer::Transfer;

 private:
  void Move(Piece piece) override {
    UploadRequest head;
    head.set_id(id());
    head.set_part(piece.part);
    head.set_offset(piece.begin);
    absl::StatusOr<WireMessage> request = SerializeMessage(head);
    if (request.ok()) {
      request->AppendHeader(kUploadData, piece.end - piece.begin);
      request->Attach(parts()[piece.part].Slice(piece.begin, piece.end - piece.begin));
    }
    Call("Upload", std::move(request),
         [self = std::static_pointer_cast<Upload>(shared_from_this())](
             const absl::StatusOr<WireBytes>& bytes) { self->Moved(bytes.status()); });
  }
};

}  // namespace

WireMessage PartList::Write() const {
  MessageInParts proto;
  proto.set_id(id);
  *proto.mutable_part_bytes() = {part_bytes.begin(), part_bytes.end()};
  WireMessage message;
  message.Append(proto.SerializeAsString());
  return message;
}

absl::StatusOr<PartList> PartList::Read(const WireBytes& bytes) {
  MessageInParts proto;
  RETURN_IF_ERROR(ParseMessage(bytes, proto));
  return PartList{proto.id(), {proto.part_bytes().begin(), proto.part_bytes().end()}};
}

Parts PartsOf(WireMessage message) {
  Parts parts;
  for (WireMessage::Piece& piece : message.pieces()) {
    if (piece.size() == 0) continue;
    if (piece.buffer) {
      parts.push_back(std::move(piece.buffer));
      continue;
    }
    auto text = std::make_unique<std::string>(std::move(piece.text));
    const absl::string_view bytes = *text;
    parts.push_back(Buffer::AdoptExternal(bytes.data(), bytes.size(), [kept = std::move(text)] {}));
  }
  return parts;
}

std::vector<uint64_t> SizesOf(const Parts& parts) {
  std::vector<uint64_t> sizes;
  for (const Buffer& part : parts) sizes.push_back(part.length_bytes());
  return sizes;
}

absl::StatusOr<Parts> AllocateParts(const std::vector<uint64_t>& part_bytes) {
  if (part_bytes.size() > UploadStore::kMaxParts) {
    return InvalidArgument("A message comes in ", part_bytes.size(), " parts; at most ",
                           UploadStore::kMaxParts, " are taken");
  }
  Parts parts;
  for (const uint64_t bytes : part_bytes) {
    Buffer part = HostAllocator().Allocate(bytes);
    if (!part) {
      return absl::ResourceExhaustedError(absl::StrCat("OOM when receiving a part of ", bytes,
                                                       " bytes of a message: ", TakeShortage()));
    }
    parts.push_back(part.Slice(0, bytes));
  }
  return parts;
}

WireBytes JoinParts(Parts parts) {
  auto kept = std::make_shared<const Parts>(std::move(parts));
  WireBytes bytes;
  for (const Buffer& part : *kept) bytes.pieces.emplace_back(part.data(), part.length_bytes());
  bytes.owner = std::move(kept);
  return bytes;
}

void FetchParts(std::shared_ptr<const Channel> channel, CallOptions options, uint64_t id,
                Parts parts, absl::AnyInvocable<void(absl::Status) &&> done) {
  std::make_shared<Fetch>(std::move(channel), std::move(options), id, std::move(parts),
                          std::move(done))
      ->Start();
}

void UploadParts(std::shared_ptr<const Channel> channel, CallOptions options, Parts parts,
                 absl::AnyInvocable<void(absl::StatusOr<PartList>) &&> done) {
  UploadRequest begin;
  const std::vector<uint64_t> sizes = SizesOf(parts);
  *begin.mutable_part_bytes() = {sizes.begin(), sizes.end()};
  const Channel& first = *channel;
  first.Call(kPeerService, "Upload", options, SerializeMessage(begin),
             [channel = std::move(channel), options, sizes, parts = std::move(parts),
              done = std::move(done)](absl::StatusOr<WireBytes> bytes) mutable {
               UploadReply reply;
               absl::Status status = bytes.ok() ? ParseMessage(*bytes, reply) : bytes.status();
               if (!status.ok()) return std::move(done)(std::move(status));
               auto finish = [list = PartList{reply.id(), std::move(sizes)},
                              done = std::move(done)](absl::Status uploaded) mutable {
                 if (!uploaded.ok()) return std::move(done)(std::move(uploaded));
                 std::move(done)(std::move(list));
               };
               std::make_shared<Upload>(std::move(channel), std::move(options), reply.id(),
                                        std::move(parts), std::move(finish))
                   ->Start();
             });
}

absl::StatusOr<uint64_t> UploadStore::Begin(const std::vector<uint64_t>& part_bytes) {
  uint64_t total = 0;
  for (const uint64_t bytes : part_bytes) {
    if (bytes > max_message_bytes_ - total) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "Received message larger than max (", total + bytes, " vs. ", max_message_bytes_, ")"));
    }
    total += bytes;
  }
  const auto too_many = [] {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxMessages, " messages are on their way in parts already"));
  };
  if (messages_.size() >= kMaxMessages) return too_many();  // before it takes memory
  Message message;
  ASSIGN_OR_RETURN(message.parts, AllocateParts(part_bytes));
  for (const uint64_t bytes : part_bytes)
    message.claimed.emplace_back((bytes + kPartPieceBytes - 1) / kPartPieceBytes);
  message.missing_bytes = total;
  const std::optional<uint64_t> id = messages_.Add(std::move(message));
  if (!id) return too_many();
  return *id;
}

absl::Status UploadStore::Put(uint64_t id, uint64_t part, uint64_t offset, WireReader data) {
  const uint64_t length = data.remaining();
  absl::StatusOr<Buffer> to = NotFound("No message comes in parts under number ", id);
  messages_.Visit(id, [&](Message& message) {
    const uint64_t size = part < message.parts.size() ? message.parts[part].length_bytes() : 0;
    const uint64_t number = offset / kPartPieceBytes;
    if (offset >= size || offset % kPartPieceBytes != 0 ||
        length != std::min(kPartPieceBytes, size - offset) || message.claimed[part][number]) {
      to = InvalidArgument("A piece of ", length, " bytes at ", offset, " of part ", part,
                           " is not one of those that are missing");
    } else {
      message.claimed[part][number] = true;
      to = message.parts[part].Slice(offset, length);
    }
    return Messages::After::kKeep;
  });
  RETURN_IF_ERROR(to.status());
  data.CopyTo(to->data(), length);
  messages_.Visit(id, [&](Message& message) {
    message.missing_bytes -= length;
    return Messages::After::kKeep;
  });
  return absl::OkStatus();
}

absl::StatusOr<WireBytes> UploadStore::Take(uint64_t id) {
  absl::StatusOr<Parts> parts = NotFound("No message came in parts under number ", id);
  messages_.Visit(id, [&](Message& message) {
    if (message.missing_bytes > 0) {
      parts = FailedPrecondition("Of the message in parts ", message.missing_bytes,
                                 " bytes are missing");
      return Messages::After::kKeep;
    }
    parts = std::move(message.parts);
    return Messages::After::kDrop;
  });
  RETURN_IF_ERROR(parts.status());
  return JoinParts(*std::move(parts));
}

}  // namespace muster
