// Names of a checkpoint's files, and the atomic commit of new ones.
//
// A checkpoint is an index and N data files; the index names N, and thereby the data files that
// belong to it. Renaming one file is atomic, renaming several is not. So the commit point is the
// rename of the index, and no data file that the current index names is replaced before it:
//   1. the new data files, already durable, get names that the current index does not refer to
//      (another number of shards, where the prefix is in use);
//   2. the new index is written to a temporary file, made durable, and renamed into place;
//   3. where step 1 took other names, the data is linked under the usual ones as well, an index
//      that refers to those is committed like the first, and the other names are removed.
// After a crash before step 2 the prefix holds the old checkpoint, after it the new one.
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
// that `make_index` gives for a number of shards.
absl::Status CommitBundle(const std::string& prefix, const std::vector<std::string>& data_files,
                          absl::FunctionRef<std::string(int num_shards)> make_index,
                          FileSystem& files);

}  // namespace muster
