// What every call between tasks has in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

#include "muster/base/caller.h"
#include "muster/base/cancellation.h"
#include "muster/base/status.h"

namespace muster {

// How a call is made and, where it is served, where it comes from.
struct CallOptions {
  // Cancelling it ends the call soon with its reason. Null: the call cannot be cancelled.
  std::shared_ptr<Cancellation> cancellation;
  absl::Duration timeout = absl::InfiniteDuration();
  // Wait for a peer that is not there yet instead of failing with Unavailable.
  bool wait_for_ready = false;
  // What the other side is known to be, on the side that serves the call.
  enum class Peer : uint8_t { kUnknown, kMuster, kTensorFlow1, kTensorFlow2 };
  Peer peer = Peer::kUnknown;
  // On that side too: who makes the call. Null: code of this process, without a transport.
  std::shared_ptr<const Caller> caller;
};

// Called exactly once, from any thread, perhaps inside the call.
template <typename Reply>
using CallDone = absl::AnyInvocable<void(absl::StatusOr<Reply>) &&>;

// The reply of calls that only succeed or fail.
struct Empty {};

// Payloads that statuses carry between tasks; TensorFlow from 2.7 on uses the same keys.
inline constexpr absl::string_view kDerivedPayload = "type.googleapis.com/tensorflow.DerivedStatus";
inline constexpr absl::string_view kRestartedPayload =
    "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted";
// A derived error is a consequence of another one, which is the one to report to the user.
absl::Status Derived(absl::Status status);
bool IsDerived(const absl::Status& status);
// Marks ABORTED errors that tell a client to recreate its session.
absl::Status PossiblyRestarted(absl::Status status);

// Random, not zero: lets the receiver recognize a call that is sent again.
int64_t NewRequestId();
// Random, below 2^57.
int64_t NewStepId();
// Makes the two repeatable, for simulations.
void SeedIds(uint64_t seed);

}  // namespace muster
