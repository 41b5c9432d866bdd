// The collectives of N ranks, independent of the transport: the mesh over sockets and shared memory
// here, NCCL later.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

#include "muster/base/status.h"
#include "muster/collective/reduce.h"

namespace muster::collective {

// Called once, with the first error of the group or OK. Must be short and must not wait: it runs on
// whichever thread moves the group's bytes. It must not own the group either, whose destructor
// waits for such a thread.
using Done = absl::AnyInvocable<void(absl::Status) &&>;

// Every rank calls the same collectives with the same tag, sizes and types, in any order and with
// several under way at once. A tag is used once in the life of a group. Buffers belong to the group
// until `done` is called. Results are the same bytes on all ranks and in every run with the same
// number of ranks. Thread-safe.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "rank 2 (/job:worker/replica:0/task:2)", as errors name it.
  virtual std::string Name(int rank) const = 0;

  // data[i] of all ranks, reduced, in place.
  virtual void AllReduce(uint64_t tag, const Reduction& reduction, void* data, size_t count,
                         Done done) = 0;
  // The same, but rank r holds only its part of the result: elements [count*r/size,
  // count*(r+1)/size). The rest of `data` is left in no particular state.
  virtual void ReduceScatter(uint64_t tag, const Reduction& reduction, void* data, size_t count,
                             Done done) = 0;
  // `data` has size() blocks of `block_bytes`; this rank's own is filled before, all of them after.
  virtual void AllGather(uint64_t tag, void* data, size_t block_bytes, Done done) = 0;
  virtual void Broadcast(uint64_t tag, int root, void* data, size_t bytes, Done done) = 0;

  // Fails every collective under way and to come with `reason`, here and at the other ranks.
  virtual void Abort(absl::Status reason) = 0;
  // Why the group is unusable; OK while it is not.
  virtual absl::Status status() const = 0;
  // Moves the group's bytes on the calling thread until `done` holds, which only a Done of this
  // group makes true: faster than waiting for another thread.
  virtual void HelpUntil(absl::FunctionRef<bool()> done) = 0;
  // Between these two calls the caller is about to help, or helps: no other thread is woken for
  // what it starts.
  virtual void ComeToHelp() {}
  virtual void EndHelp() {}
};

// Starts a collective and returns when it has ended: `start` receives the Done to hand on.
absl::Status Await(Group& group, absl::FunctionRef<void(Done)> start);

}  // namespace muster::collective
