// Channels between tasks of one process: bytes pass through memory, without sockets.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "muster/collective/mesh/channel.h"

namespace muster::collective {

// Two ends of one connection, each of which has room for `capacity` bytes on their way.
std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>> NewMemoryChannels(size_t capacity);

// Where the tasks of one process find each other. Connectors keep it alive. Thread-safe.
class LocalExchange {
 public:
  LocalExchange();
  std::unique_ptr<Connector> NewConnector();

 private:
  friend class LocalConnector;
  struct State;
  std::shared_ptr<State> state_;
};

// Uses `local` for the ranks that share this process and `remote` for the others.
std::unique_ptr<Connector> NewMixedConnector(std::function<bool(int rank)> is_local,
                                             std::unique_ptr<Connector> local,
                                             std::unique_ptr<Connector> remote);

}  // namespace muster::collective
