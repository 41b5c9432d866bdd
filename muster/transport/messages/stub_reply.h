// From the bytes of a reply to what a stub's caller gets.
#pragma once

#include <utility>

#include "muster/transport/messages/channel.h"
#include "muster/transport/wire_tensor_proto.h"

namespace muster {

// `read` makes a StatusOr<Reply> of the bytes.
template <typename Reply, typename Read>
Channel::Done ReplyWith(CallDone<Reply> done, Read read) {
  return [done = std::move(done), read = std::move(read)](absl::StatusOr<WireBytes> bytes) mutable {
    if (!bytes.ok()) {
      std::move(done)(bytes.status());
    } else {
      std::move(done)(read(*bytes));
    }
  };
}

// `convert` makes a Reply of the message.
template <typename Proto, typename Reply, typename Convert>
Channel::Done ReplyAs(CallDone<Reply> done, Convert convert) {
  return ReplyWith(std::move(done),
                   [convert = std::move(convert)](const WireBytes& bytes) -> absl::StatusOr<Reply> {
                     Proto proto;
                     RETURN_IF_ERROR(ParseMessage(bytes, proto));
                     return convert(proto);
                   });
}

inline Channel::Done EmptyReply(CallDone<Empty> done) {
  return ReplyWith(std::move(done),
                   [](const WireBytes&) -> absl::StatusOr<Empty> { return Empty(); });
}

}  // namespace muster
