// Who sends which bytes to whom, and in which order: a collective as a list, made by a pure
// function of rank, number of ranks and size. The mesh carries it out.
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
