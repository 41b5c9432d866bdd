// A channel over a connected TCP socket, and small things about sockets.
#pragma once

#include <memory>
#include <string>

#include "muster/base/net/descriptor.h"
#include "muster/collective/mesh/channel.h"

namespace muster::collective {

// Writes at once, never blocks.
void SetUpSocket(int socket);
// The other side has acknowledged every byte, or is gone.
bool SocketIsFlushed(int socket);

// Takes a connected socket and sets it up.
std::unique_ptr<Channel> NewTcpChannel(Descriptor socket);

}  // namespace muster::collective
