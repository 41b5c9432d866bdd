// Checkpoints as .safetensors files: a length, names and places as JSON, then the elements.
#pragma once

#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/checkpoint/checkpoint_reader.h"
#include "muster/checkpoint/file.h"

namespace muster {

struct ExportResult {
  int tensors = 0;
  int64_t bytes = 0;
  std::vector<std::string> left_out;  // "name (type)": the format has no such type
};

// One tensor is in memory at a time. Types without a name in the format (strings, complex and
// quantized numbers) are left out.
absl::StatusOr<ExportResult> ExportSafetensors(const CheckpointReader& reader,
                                               const std::string& file,
                                               FileSystem& files = LocalFiles());

}  // namespace muster
