// Several checkpoints become one: how the shards of a sharded save come together.
#pragma once

#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/checkpoint/file.h"

namespace muster {

struct MergeOptions {
  // Folders of the inputs are removed where they are empty and not the destination's.
  bool delete_old_dirs = true;
  // Inputs that are not there are left out, as long as one is.
  bool allow_missing_files = false;
  FileSystem* files = &LocalFiles();
};

// Moves the data files of `prefixes` to `destination` and writes one index for all of them. The
// inputs are gone afterwards.
absl::Status MergeCheckpoints(const std::vector<std::string>& prefixes,
                              const std::string& destination, const MergeOptions& options = {});

}  // namespace muster
