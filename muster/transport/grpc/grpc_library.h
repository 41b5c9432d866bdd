// gRPC's own threads and memory.
#pragma once

namespace muster {

// Keeps them until the process ends. gRPC would stop them with its last channel, and when that goes
// inside a callback, a thread would wait for itself.
void KeepGrpcRunning();

// Gives the system back what is free of the memory that calls have used. Takes a while.
void ReturnFreeMemory();

}  // namespace muster
