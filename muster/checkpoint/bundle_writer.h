// Writes tensors as a checkpoint in TensorFlow's V2 format, to the same bytes: <prefix>.index and
// <prefix>.data-00000-of-00001.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "muster/base/scheduler.h"
#include "muster/base/status.h"
#include "muster/checkpoint/bundle_proto.h"
#include "muster/checkpoint/file.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Thread-compatible. Tensors are held until Finish and written without a copy.
class BundleWriter {
 public:
  struct Options {
    FileSystem* files = &LocalFiles();
    // Computes checksums and writes in parallel; none: on the calling thread.
    Scheduler* scheduler = nullptr;
  };
  explicit BundleWriter(std::string prefix) : BundleWriter(std::move(prefix), Options()) {}
  BundleWriter(std::string prefix, Options options)
      : prefix_(std::move(prefix)), options_(options) {}

  // InvalidArgument when the name is there already; Unimplemented for what cannot be saved.
  absl::Status Add(const std::string& name, Tensor tensor);
  // A part of a larger tensor. InvalidArgument when parts of one name disagree about the whole.
  absl::Status AddSlice(const std::string& name, const Shape& full_shape, const TensorSlice& slice,
                        Tensor tensor);
  // Writes the files and makes them durable; the last missing folder is made. Nothing of a failed
  // attempt is left. Call once.
  absl::Status Finish();

 private:
  // Bytes that follow each other in the data file.
  struct Piece {
    BundleEntry* entry;
    absl::string_view bytes;
    bool has_crc;  // strings and variants: their checksum is not that of the bytes
  };
  absl::Status WriteData(OutputFile& file);

  const std::string prefix_;
  const Options options_;
  std::map<std::string, BundleEntry> entries_;
  std::vector<Piece> pieces_;
  std::vector<Tensor> held_;
  std::deque<std::string> encoded_;  // strings and variants
  int64_t size_ = 0;
};

}  // namespace muster
