#include "muster/checkpoint/bundle_commit.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "muster/base/log.h"
#include "muster/checkpoint/bundle_proto.h"
#include "muster/checkpoint/table/table_reader.h"

namespace muster {
namespace {

// The number of shards that the index of `prefix` names; 0 when it cannot be read, so that nothing
// is lost by replacing it.
int ShardsInUse(const std::string& prefix) {
  const absl::StatusOr<std::unique_ptr<TableReader>> table =
      TableReader::Open(IndexFileName(prefix));
  if (!table.ok()) return 0;
  const absl::StatusOr<std::optional<std::string>> bytes = (*table)->Get("");
  if (!bytes.ok() || !bytes->has_value()) return 0;
  const absl::StatusOr<BundleHeader> header = BundleHeader::Parse(**bytes);
  return header.ok() ? std::max(header->num_shards, 0) : 0;
}

void RemoveShards(const std::string& prefix, int num_shards, FileSystem& files) {
  const std::string pattern = EscapePattern(prefix) + absl::StrFormat(
                                                          ".data-?????"
                                                          "-of-%05d",
                                                          num_shards);
  for (const std::string& name : MatchFiles(pattern)) {
    const absl::Status status = files.Remove(name);
    if (!status.ok())
      LOG(WARNING) << "An old file of a checkpoint was not removed: " << status.message();
  }
}

}  // namespace

std::string IndexFileName(absl::string_view prefix) {
  return absl::StrCat(prefix, ".index");
}

std::string DataFileName(absl::string_view prefix, int shard, int num_shards) {
  return absl::StrFormat("%s.data-%05d-of-%05d", prefix, shard, num_shards);
}

std::string DataFilePattern(absl::string_view prefix) {
  return EscapePattern(prefix) +
         ".data-?????"
         "-of-?????";
}

absl::Status CommitBundle(const std::string& prefix, const std::vector<std::string>& data_files,
                          absl::FunctionRef<std::string(int num_shards)> make_index,
                          FileSystem& files) {
  const std::string directory = DirectoryOf(prefix);
  const auto shards = static_cast<int>(data_files.size());
  const int in_use = ShardsInUse(prefix);
  const int first = in_use == 0 ? shards : std::max(in_use, shards) + 1;
  for (int i = 0; i < shards; ++i) {
    RETURN_IF_ERROR(files.Rename(data_files[i], DataFileName(prefix, i, first)));
  }
  RETURN_IF_ERROR(files.SyncDirectory(directory));
  RETURN_IF_ERROR(WriteFileAtomically(IndexFileName(prefix), make_index(first), files));
  if (first == shards) return absl::OkStatus();

  // The new checkpoint is committed. It remains to give it the usual names.
  for (int i = 0; i < shards; ++i) {
    const std::string usual = DataFileName(prefix, i, shards);
    const std::string temporary = TemporaryName(usual);
    absl::Status status = files.Link(DataFileName(prefix, i, first), temporary);
    if (status.ok()) status = files.Rename(temporary, usual);
    if (!status.ok()) {
      // A file system without links: a checkpoint with unusual names is better than none.
      LOG(WARNING) << "The data of " << prefix << " keeps the names *-of-" << first << ": "
                   << status.message();
      files.Remove(temporary).IgnoreError();
      return absl::OkStatus();
    }
  }
  RETURN_IF_ERROR(files.SyncDirectory(directory));
  RETURN_IF_ERROR(WriteFileAtomically(IndexFileName(prefix), make_index(shards), files));
  RemoveShards(prefix, first, files);
  if (in_use != shards) RemoveShards(prefix, in_use, files);
  return absl::OkStatus();
}

}  // namespace muster
