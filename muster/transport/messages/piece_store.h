// Tensors, and messages, that are too large for one message: their receivers fetch them in pieces.
#pragma once

#include <cstdint>
#include <vector>

#include "muster/base/status.h"
#include "muster/tensor/tensor.h"
#include "muster/transport/messages/transient_store.h"

namespace muster {

// Thread-safe.
class PieceStore {
 public:
  // An entry that has not been fetched from for this long is dropped.
  static constexpr absl::Duration kKeep = absl::Minutes(1);

  // `scheduler` outlives the store.
  explicit PieceStore(Scheduler& scheduler) : entries_(scheduler, kKeep) {}
  // Under which its pieces are found. Random, so that it cannot be guessed.
  uint64_t Add(const Tensor& tensor);
  uint64_t Add(std::vector<Buffer> parts);  // as if they were contiguous
  // The bytes [offset, offset + length), shortened at the end of a part. Pieces may be taken in any
  // order; when as many bytes were taken as there are, all are dropped. NotFound for what is not,
  // or no longer, here; OutOfRange past the end.
  absl::StatusOr<Buffer> Take(uint64_t id, uint64_t offset, uint64_t length);
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<Buffer> parts;
    uint64_t size_bytes = 0;
    uint64_t taken = 0;  // bytes
  };
  using Entries = TransientStore<Entry>;
  Entries entries_;
};

}  // namespace muster
