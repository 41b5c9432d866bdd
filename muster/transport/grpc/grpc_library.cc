#include "muster/transport/grpc/grpc_library.h"

#include <memory>

#include "absl/synchronization/mutex.h"
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <malloc.h>

#include "muster/base/settings.h"

namespace muster {
namespace {

// A call over a channel that leads nowhere: it fails at once, but from then on the channel holds
// the threads.
struct Pin {
  std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel("", nullptr);
  grpc::ClientContext context;
  grpc::Slice nothing;
  grpc::ByteBuffer request{&nothing, 1};
  grpc::ByteBuffer response;
};

// gRPC allocates a new receive buffer for each message. By default that memory goes back to the
// system with each large tensor, and its pages cost more than the copies.
void KeepReceiveMemory() {
#ifdef __GLIBC__
  if (!EnvironmentVariable("MALLOC_TRIM_THRESHOLD_").empty()) return;
  mallopt(M_MMAP_THRESHOLD, 16 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
#endif
}

}  // namespace

void KeepGrpcRunning() {
  static const Pin* const pin = [] {
    KeepReceiveMemory();
    // Packaged abseil looks for cycles in the order of gRPC's locks, all of them under one lock.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    Pin* made = std::make_unique<Pin>().release();
    grpc::GenericStub(made->channel)
        .UnaryCall(&made->context, "/muster/nowhere", grpc::StubOptions(), &made->request,
                   &made->response, [](const grpc::Status&) {});
    return made;
  }();
  static_cast<void>(pin);
}

void ReturnFreeMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace muster
