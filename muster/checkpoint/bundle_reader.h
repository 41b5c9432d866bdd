// Reads checkpoints in TensorFlow's V2 format (see bundle_writer.h), in either byte order, with
// tensors that are stored whole or in slices.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/status.h"
#include "muster/checkpoint/bundle_proto.h"
#include "muster/checkpoint/file.h"
#include "muster/checkpoint/table/table_reader.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Thread-safe. Every error about a tensor names it.
class BundleReader {
 public:
  // NotFound when there is no index, DataLoss when it is damaged.
  static absl::StatusOr<std::unique_ptr<BundleReader>> Open(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  const BundleHeader& header() const { return header_; }

  // NotFound "Key <name> not found in checkpoint".
  absl::StatusOr<BundleEntry> Find(absl::string_view name) const;
  absl::StatusOr<bool> Contains(absl::string_view name) const;
  // All tensors in order of their names; slices are left out, the tensors they belong to are not.
  absl::StatusOr<std::vector<std::pair<std::string, BundleEntry>>> List() const;

  absl::StatusOr<Tensor> Read(const std::string& name) const;
  absl::StatusOr<Tensor> ReadSlice(const std::string& name, const TensorSlice& slice) const;

  // Several tensors at once, straight into memory that `allocate` gives for the i-th, in parallel.
  // Nothing is allocated that the files could not fill.
  struct Request {
    std::string name;
    std::optional<TensorSlice> slice;  // none: all of it
  };
  using Allocate = absl::FunctionRef<absl::StatusOr<Tensor*>(size_t i, DType, const Shape&)>;
  absl::Status ReadAll(absl::Span<const Request> requests, Allocate allocate,
                       Scheduler* scheduler) const;

 private:
  // One stored tensor or slice on its way into memory.
  struct Piece {
    std::string name;  // of the tensor, for errors
    BundleEntry entry;
    const InputFile* file = nullptr;
    char* into = nullptr;
    std::string encoded;  // strings and variants
    Tensor own;           // where the piece is not contiguous in the wanted tensor
    Tensor* wanted = nullptr;
    TensorSlice piece_slice, wanted_slice;
    uint32_t crc = 0;
  };

  BundleReader(std::string prefix, std::unique_ptr<TableReader> index, BundleHeader header)
      : prefix_(std::move(prefix)), index_(std::move(index)), header_(header) {}
  absl::StatusOr<const InputFile*> DataFile(int shard) const;
  // The entry is within its file and its size is that of its shape.
  absl::StatusOr<const InputFile*> CheckPlace(absl::string_view name,
                                              const BundleEntry& entry) const;
  absl::Status Plan(const Request& request, size_t i, Allocate allocate,
                    std::vector<Piece>& pieces) const;
  absl::Status ReadPieces(std::vector<Piece>& pieces, Scheduler* scheduler) const;
  absl::Status Finish(Piece& piece) const;
  absl::Status DecodeStrings(const Piece& piece, Tensor& tensor) const;
  absl::Status DecodeVariants(const Piece& piece, Tensor& tensor) const;
  absl::Status ChecksumError(const Piece& piece, uint32_t calculated) const;

  const std::string prefix_;
  const std::unique_ptr<TableReader> index_;
  const BundleHeader header_;
  mutable Mutex mutex_;
  mutable std::map<int, std::unique_ptr<InputFile>> data_files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
