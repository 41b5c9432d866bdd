#include "muster/collective/mesh/schedule.h"

#include <bit>
#include <vector>

namespace muster::collective {
namespace {

// Up to here latency dominates: the number of rounds counts, not the number of bytes.
constexpr size_t kDoublingBytes = 16 << 10;
// Up to here halving, with fewer rounds than a ring of more than two ranks, is faster.
constexpr size_t kHalvingBytes = 512 << 10;
// Up to here each rank sends to all others, or to several, at once.
constexpr size_t kDirectBytes = 32 << 10;

class Builder {
 public:
  int last_receive() const { return static_cast<int>(schedule_.receives.size()) - 1; }
  void AddSend(Send send) {
    if (send.bytes > 0) schedule_.sends.push_back(send);
  }
  void AddReceive(Receive receive) {
    if (receive.bytes > 0) schedule_.receives.push_back(receive);
  }
  Schedule Take() { return std::move(schedule_); }

 private:
  Schedule schedule_;
};

struct Range {
  size_t offset = 0;
  size_t bytes = 0;
};

// Part `index` of `parts`, cut between elements.
Range Part(size_t count, size_t element_bytes, int index, int parts) {
  const size_t quotient = count / parts, rest = count % parts;
  const auto begin = [&](size_t i) { return quotient * i + rest * i / parts; };
  const size_t from = begin(index), to = begin(index + 1);
  return {from * element_bytes, (to - from) * element_bytes};
}

// Part r ends up reduced at rank r.
void RingReduce(Builder& builder, int rank, int ranks, size_t count, size_t element_bytes) {
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  for (int step = 0; step < ranks - 1; ++step) {
    const Range out = Part(count, element_bytes, (rank - step - 1 + 2 * ranks) % ranks, ranks);
    const Range in = Part(count, element_bytes, (rank - step - 2 + 2 * ranks) % ranks, ranks);
    builder.AddSend({right, out.offset, out.bytes, step == 0 ? -1 : builder.last_receive()});
    builder.AddReceive({left, in.offset, in.bytes, /*reduce=*/true, /*incoming_first=*/true,
                        /*finish=*/step == ranks - 2});
  }
}

// Part r starts at rank r.
void RingGather(Builder& builder, int rank, int ranks, size_t count, size_t element_bytes) {
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  for (int step = 0; step < ranks - 1; ++step) {
    const Range out = Part(count, element_bytes, (rank - step + ranks) % ranks, ranks);
    const Range in = Part(count, element_bytes, (rank - step - 1 + ranks) % ranks, ranks);
    builder.AddSend({right, out.offset, out.bytes, builder.last_receive()});
    builder.AddReceive({left, in.offset, in.bytes});
  }
}

// For numbers of ranks that are not powers of two: the extra ranks send their elements to a
// neighbour first and get the result back.
struct Fold {
  Fold(int rank, int ranks)
      : power(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        folded(ranks - power),
        idle(rank < 2 * folded && rank % 2 == 0),
        place(rank < 2 * folded ? rank / 2 : rank - folded) {}
  int RankAt(int at) const { return at < folded ? 2 * at + 1 : at + folded; }

  int power;   // ranks that take part in the rounds
  int folded;  // pairs
  bool idle;   // this rank waits for the result
  int place;   // of this rank, or of its neighbour, among `power`
};

void DoublingRounds(Builder& builder, int rank, const Fold& fold, size_t bytes) {
  for (int mask = 1; mask < fold.power; mask *= 2) {
    const int partner = fold.RankAt(fold.place ^ mask);
    builder.AddSend({partner, 0, bytes, builder.last_receive(), /*snapshot=*/true});
    builder.AddReceive({partner, 0, bytes, /*reduce=*/true, /*incoming_first=*/partner < rank,
                        /*finish=*/mask * 2 == fold.power});
  }
}

void HalvingRounds(Builder& builder, int rank, const Fold& fold, size_t count,
                   size_t element_bytes) {
  std::vector<Range> kept, given;
  Range range{0, count};  // in elements
  for (int mask = fold.power / 2; mask > 0; mask /= 2) {
    const Range low{range.offset, range.bytes / 2};
    const Range high{range.offset + low.bytes, range.bytes - low.bytes};
    const bool keeps_low = (fold.place & mask) == 0;
    const int partner = fold.RankAt(fold.place ^ mask);
    range = keeps_low ? low : high;
    const Range other = keeps_low ? high : low;
    builder.AddSend({partner, other.offset * element_bytes, other.bytes * element_bytes,
                     builder.last_receive()});
    builder.AddReceive({partner, range.offset * element_bytes, range.bytes * element_bytes,
                        /*reduce=*/true, /*incoming_first=*/partner < rank, /*finish=*/mask == 1});
    kept.push_back(range);
    given.push_back(other);
  }
  for (int mask = 1; mask < fold.power; mask *= 2) {
    const int partner = fold.RankAt(fold.place ^ mask);
    const Range own = kept.back(), other = given.back();
    kept.pop_back();
    given.pop_back();
    builder.AddSend(
        {partner, own.offset * element_bytes, own.bytes * element_bytes, builder.last_receive()});
    builder.AddReceive({partner, other.offset * element_bytes, other.bytes * element_bytes});
  }
}

}  // namespace

Algorithm ChooseAllReduce(int ranks, size_t bytes) {
  if (bytes <= kDoublingBytes) return Algorithm::kDoubling;
  return ranks > 2 && bytes <= kHalvingBytes ? Algorithm::kHalving : Algorithm::kRing;
}

Schedule AllReduceSchedule(Algorithm algorithm, int rank, int ranks, size_t count,
                           size_t element_bytes) {
  Builder builder;
  if (ranks == 1) return builder.Take();
  if (algorithm == Algorithm::kRing) {
    RingReduce(builder, rank, ranks, count, element_bytes);
    RingGather(builder, rank, ranks, count, element_bytes);
    return builder.Take();
  }
  const Fold fold(rank, ranks);
  const size_t bytes = count * element_bytes;
  if (fold.idle) {
    builder.AddSend({rank + 1, 0, bytes});
    builder.AddReceive({rank + 1, 0, bytes});
    return builder.Take();
  }
  const bool has_neighbour = rank < 2 * fold.folded;
  if (has_neighbour) {
    builder.AddReceive({rank - 1, 0, bytes, /*reduce=*/true, /*incoming_first=*/true});
  }
  if (algorithm == Algorithm::kDoubling) {
    DoublingRounds(builder, rank, fold, bytes);
  } else {
    HalvingRounds(builder, rank, fold, count, element_bytes);
  }
  if (has_neighbour) builder.AddSend({rank - 1, 0, bytes, builder.last_receive()});
  return builder.Take();
}

Schedule ReduceScatterSchedule(int rank, int ranks, size_t count, size_t element_bytes) {
  Builder builder;
  if (ranks > 1) RingReduce(builder, rank, ranks, count, element_bytes);
  return builder.Take();
}

Schedule AllGatherSchedule(int rank, int ranks, size_t block_bytes) {
  Builder builder;
  if (ranks == 1) return builder.Take();
  if (block_bytes > kDirectBytes) {
    RingGather(builder, rank, ranks, ranks * block_bytes, 1);
    return builder.Take();
  }
  for (int step = 1; step < ranks; ++step) {
    const int to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
    builder.AddSend({to, rank * block_bytes, block_bytes});
    builder.AddReceive({from, from * block_bytes, block_bytes});
  }
  return builder.Take();
}

Schedule BroadcastSchedule(int rank, int ranks, int root, size_t bytes) {
  Builder builder;
  const int place = (rank - root + ranks) % ranks;  // the root's is 0
  const auto rank_at = [&](int at) { return (at + root) % ranks; };
  if (bytes > kDirectBytes) {  // a chain, in a pipeline
    if (place > 0) builder.AddReceive({rank_at(place - 1), 0, bytes});
    if (place + 1 < ranks) {
      builder.AddSend({rank_at(place + 1), 0, bytes, builder.last_receive()});
    }
    return builder.Take();
  }
  // A binomial tree: each rank that has the bytes sends them on, over distances that halve.
  const auto places = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)));
  const int lowest = place == 0 ? places : place & -place;
  if (place > 0) builder.AddReceive({rank_at(place - lowest), 0, bytes});
  for (int step = lowest / 2; step > 0; step /= 2) {
    if (place + step < ranks) {
      builder.AddSend({rank_at(place + step), 0, bytes, builder.last_receive()});
    }
  }
  return builder.Take();
}

}  // namespace muster::collective
