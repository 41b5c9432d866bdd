// The algorithms of collectives as data: which bytes a rank sends to and receives from which peer,
// in which order. A schedule is a pure function of rank, number of ranks and size; Operation keeps
// track of its progress and the mesh moves the bytes.
//
// All-reduce of n bytes over N ranks (Thakur, Rabenseifner, Gropp: "Optimization of collective
// communication operations in MPICH"):
//   recursive doubling   In round k a rank exchanges all n bytes with the rank whose number differs
//                        in bit k, and reduces. log2(N) rounds, n*log2(N) bytes: for small n.
//   recursive halving    Reduce-scatter: in each round the ranges are halved; a rank sends the half
//                        that its partner keeps. Then an all-gather by the same partners in reverse
//                        order. 2*log2(N) rounds, 2*n*(N-1)/N bytes.
//   ring                 The n bytes are N parts. Reduce-scatter: N-1 times each rank sends a part
//                        to its right neighbour, which adds its own. All-gather: the reduced parts
//                        go around once more. 2*(N-1) rounds, 2*n*(N-1)/N bytes, to one neighbour
//                        only: for large n. Parts are pipelined: bytes go on as they arrive.
// Doubling and halving need a power of two; the extra ranks first give their elements to a
// neighbour and then get the result from it.
// Reduce-scatter is the first half of the ring, all-gather of large blocks the second; small blocks
// go directly from each rank to all others. Broadcast is a pipelined chain for many bytes, a
// binomial tree for few.
#pragma once

#include <cstddef>

#include "absl/container/inlined_vector.h"

namespace muster::collective {

struct Send {
  int peer = 0;
  size_t offset = 0;
  size_t bytes = 0;
  // The receive that brings these bytes, or -1. A part of them may go on while the rest still
  // comes.
  int after = -1;
  // The same bytes are overwritten by a receive that does not wait: send from a copy.
  bool snapshot = false;
};

struct Receive {
  int peer = 0;
  size_t offset = 0;
  size_t bytes = 0;
  bool reduce = false;          // combine with what is there, else overwrite it
  bool incoming_first = false;  // operands in the order of the ranks
  bool finish = false;          // the last reduction of these bytes: divide for a mean
};

// The i-th send of rank a to rank b is the i-th receive of b from a. Receives are taken strictly in
// order, which fixes the order of every reduction.
struct Schedule {
  absl::InlinedVector<Send, 2> sends;
  absl::InlinedVector<Receive, 2> receives;
};

enum class Algorithm {
  kDoubling,  // everything to the partner in each of log2(N) rounds: fewest rounds
  kHalving,   // halves, quarters, ... reduced and gathered again: log2(N) rounds each way
  kRing,      // to the right neighbour only, in a pipeline: best for the wire
};
Algorithm ChooseAllReduce(int ranks, size_t bytes);

Schedule AllReduceSchedule(Algorithm algorithm, int rank, int ranks, size_t count,
                           size_t element_bytes);
Schedule ReduceScatterSchedule(int rank, int ranks, size_t count, size_t element_bytes);
Schedule AllGatherSchedule(int rank, int ranks, size_t block_bytes);
Schedule BroadcastSchedule(int rank, int ranks, int root, size_t bytes);

}  // namespace muster::collective
