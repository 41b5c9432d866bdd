// gRPC's own threads.
#pragma once

namespace muster {

// Keeps them until the process ends. gRPC would stop them with its last channel, and when that goes
// inside a callback, a thread would wait for itself.
void KeepGrpcRunning();

}  // namespace muster
