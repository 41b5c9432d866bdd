// Names of a checkpoint's files, and the one way in which new ones come into place: whatever
// happens in between, the prefix can be read, with the old tensors or the new ones.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "muster/base/status.h"
#include "muster/checkpoint/file.h"

namespace muster {

std::string IndexFileName(absl::string_view prefix);  // <prefix>.index
std::string DataFileName(absl::string_view prefix, int shard, int num_shards);
// Matches the data files of a prefix, whatever their number.
std::string DataFilePattern(absl::string_view prefix);

// Renames `data_files`, which are durable, to the data files of `prefix`, then writes the index
// that `make_index` gives for a number of shards. Where the prefix is in use already, a rename of
// data under an old index would break it: the new data first gets names that only a new index knows
// (another number of shards), and the usual names, by a second index, once that one holds.
absl::Status CommitBundle(const std::string& prefix, const std::vector<std::string>& data_files,
                          absl::FunctionRef<std::string(int num_shards)> make_index,
                          FileSystem& files);

}  // namespace muster
