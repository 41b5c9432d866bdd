// Where tensors pass between partitions: a producer never blocks, a consumer may ask early or late.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"

#include "muster/base/status.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Thread-safe. Keys are "src_device;incarnation;dst_device;name;frame:iteration", values
// sent under one key are received in their order.
class Rendezvous {
 public:
  struct Value {
    Tensor tensor;
    bool is_dead = false;
  };
  using RecvDone = absl::AnyInvocable<void(absl::StatusOr<Value>) &&>;

  virtual ~Rendezvous() = default;
  virtual absl::Status Send(absl::string_view key, Value value) = 0;
  // `done` runs once: when the value is there (perhaps inside this call), or with the reason of
  // Abort.
  virtual void RecvAsync(absl::string_view key, RecvDone done) = 0;
  // Peers may know the frame of a loop by another number: keys that name `alias` mean `frame`.
  virtual void AliasFrame(uint64_t /*frame*/, uint64_t /*alias*/) {}
  // Pending and later receives fail with `reason`, sends too.
  virtual void Abort(absl::Status reason) = 0;
};

// Between partitions of one process.
std::unique_ptr<Rendezvous> NewLocalRendezvous();

}  // namespace muster
