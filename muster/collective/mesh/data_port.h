// The TCP port on which one task takes the channels of its meshes.
//
// The connecting rank names the group and both ranks and shows the port's token, which it got over
// a connection on which tasks are authenticated already. The higher rank connects to the lower one.
// The lower one knocks: it announces that it waits for the channel, and learns from the reply, or
// from a connection that is refused or breaks, whether the other one is alive; it repeats that
// every second until the channel is open. An encrypted port speaks TLS from the first byte on, with
// the token as the secret of both sides.
//
// A port that is not encrypted also has a local socket for processes of the same user on this
// machine, where the hello passes a descriptor of shared memory and the reply comes through that
// memory. A connecting rank tries it first, and falls back to the port.
//
//   hello: magic 8 | group 8 | from 4 | to 4 | token 32
//   reply: magic 8 | code 4 | length 4 | message
//
// After code 0 the bytes of the mesh follow, unless it was a knock (from < to): that connection
// ends.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

#include "muster/collective/mesh/channel.h"

namespace muster::collective {

inline constexpr size_t kTokenBytes = 32;

// How to reach a data port; `token` is a secret.
struct Endpoint {
  std::string host;
  int port = 0;
  std::string token;
  bool encrypted = false;
};

// Thread-safe. Outlives its connectors.
class DataPort {
 public:
  // The endpoint of a rank of the group. May wait; called on threads of its own.
  using Lookup = std::function<absl::StatusOr<Endpoint>(int rank)>;

  struct Options {
    // How long a connection may take to send its hello.
    absl::Duration patience = absl::Seconds(10);
    bool encrypted = false;
    // Between processes of one machine, unless encrypted.
    bool shared_memory = true;
  };

  // Listens on a free port of `host`, an address or a name of this machine.
  static absl::StatusOr<std::unique_ptr<DataPort>> Listen(const std::string& host, Options options);
  ~DataPort();

  const Endpoint& endpoint() const;
  std::unique_ptr<Connector> NewConnector(Lookup lookup);

 private:
  class State;
  friend class TcpConnector;
  explicit DataPort(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace muster::collective
