// Checkpoints in TensorFlow's V1 format: one table per shard that holds tensors as messages. Read
// wherever V2 is; written by the ops Save and SaveSlices only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/checkpoint/file.h"
#include "muster/checkpoint/table/table_reader.h"
#include "muster/checkpoint/tensor_slice.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Thread-safe.
class V1Reader {
 public:
  // `pattern` names one file, or matches those of all shards. NotFound "Unsuccessful
  // TensorSliceReader constructor: Failed to find any matching files for <pattern>".
  static absl::StatusOr<std::unique_ptr<V1Reader>> Open(const std::string& pattern);

  struct Stored {
    DType dtype = DType::kInvalid;
    Shape shape;
    std::vector<std::pair<TensorSlice, size_t>> slices;  // with the file that holds each
  };
  // By name. A tensor that is stored whole has one slice.
  const std::map<std::string, Stored>& tensors() const { return tensors_; }
  // nullptr when there is none.
  const Stored* Find(absl::string_view name) const;

  absl::StatusOr<Tensor> Read(const std::string& name) const;
  absl::StatusOr<Tensor> ReadSlice(const std::string& name, const TensorSlice& slice) const;

 private:
  absl::Status AddFile(const std::string& name);
  absl::StatusOr<Tensor> ReadStored(const std::string& name, const Stored& stored, size_t i) const;

  std::vector<std::unique_ptr<TableReader>> files_;
  std::map<std::string, Stored> tensors_;
};

// Thread-compatible.
class V1Writer {
 public:
  explicit V1Writer(std::string name) : name_(std::move(name)) {}
  // Parts of one tensor may come one by one; a whole one is one part.
  absl::Status Add(const std::string& name, const Shape& full_shape, const TensorSlice& slice,
                   const Tensor& tensor);
  absl::Status Finish(FileSystem& files = LocalFiles());

 private:
  struct Stored {
    DType dtype = DType::kInvalid;
    Shape shape;
    std::vector<TensorSlice> slices;
  };
  const std::string name_;
  std::vector<std::pair<std::string, Stored>> tensors_;  // in the order they came
  std::map<std::string, std::string> entries_;
};

}  // namespace muster
