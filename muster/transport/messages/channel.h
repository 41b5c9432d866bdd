// A way to one task, over which calls go out as messages.
#pragma once

#include <string>

#include "absl/functional/any_invocable.h"

#include "muster/transport/api/call.h"
#include "muster/transport/wire/wire_message.h"

namespace muster {

// Thread-safe.
class Channel {
 public:
  virtual ~Channel() = default;

  using Done = absl::AnyInvocable<void(absl::StatusOr<WireBytes>) &&>;
  // An error in place of the request is passed on to `done`.
  virtual void Call(absl::string_view service, absl::string_view method, CallOptions options,
                    absl::StatusOr<WireMessage> request, Done done) const = 0;
  // Does not wait any longer before it tries to connect again.
  virtual void Reconnect() const = 0;
  // Later calls go over another connection: this one may be dead without an error.
  virtual void Renew() const = 0;
  // "host:port"
  virtual const std::string& address() const = 0;
};

// The error of a call that failed on the way; `who` is "NAME (ADDRESS)".
absl::Status CallFailed(const absl::Status& status, absl::string_view who,
                        absl::string_view method);

}  // namespace muster
