#include "muster/checkpoint/merge.h"

#include <map>
#include <optional>

#include "muster/base/log.h"
#include "muster/checkpoint/bundle_commit.h"
#include "muster/checkpoint/bundle_proto.h"
#include "muster/checkpoint/bundle_reader.h"
#include "muster/checkpoint/table/table_reader.h"
#include "muster/checkpoint/table/table_writer.h"

namespace muster {
namespace {

struct Merged {
  std::optional<BundleHeader> header;
  std::map<std::string, BundleEntry> entries;
  std::map<std::string, int> shard_of_file;
  std::vector<std::string> data_files;  // by shard
};

absl::Status AddEntry(const std::string& prefix, int num_shards, const std::string& key,
                      BundleEntry entry, Merged& merged) {
  const auto existing = merged.entries.find(key);
  if (existing != merged.entries.end()) {
    BundleEntry& first = existing->second;
    if (first.slices.empty()) {
      return InvalidArgument("Duplicate tensor keyed by ", key,
                             " encountered, when merging prefix: ", prefix);
    }
    if (entry.slices.empty()) {
      return Internal("Duplicate tensor keyed by ", key,
                      "; attempting to merge in a non-slice bundle entry");
    }
    if (first.dtype != entry.dtype || !(first.shape == entry.shape)) {
      return InvalidArgument("Slices of tensor ", key, " disagree: ", DTypeName(first.dtype),
                             first.shape.ToString(), " and ", DTypeName(entry.dtype),
                             entry.shape.ToString(), ", when merging prefix: ", prefix);
    }
    first.slices.insert(first.slices.end(), entry.slices.begin(), entry.slices.end());
    return absl::OkStatus();
  }
  const std::string file = DataFileName(prefix, entry.shard, num_shards);
  const auto [place, is_new] =
      merged.shard_of_file.try_emplace(file, static_cast<int>(merged.data_files.size()));
  if (is_new) merged.data_files.push_back(file);
  entry.shard = place->second;
  merged.entries.emplace(key, std::move(entry));
  return absl::OkStatus();
}

absl::Status AddBundle(const std::string& prefix, Merged& merged) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> bundle, BundleReader::Open(prefix));
  const BundleHeader& header = bundle->header();
  if (!merged.header) {
    merged.header = header;
  } else if (merged.header->big_endian != header.big_endian) {
    return InvalidArgument("Merging bundles with conflicting endianness; inputs corrupted?");
  } else if (merged.header->producer != header.producer ||
             merged.header->min_consumer != header.min_consumer) {
    return InvalidArgument("Merging bundles with different format versions: merged ",
                           merged.header->producer, " vs. curr ", header.producer);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                   TableReader::Open(IndexFileName(prefix)));
  return table->ForEach([&](absl::string_view key, absl::string_view value) -> absl::Status {
    if (key.empty()) return absl::OkStatus();
    absl::StatusOr<BundleEntry> entry = BundleEntry::Parse(value);
    if (!entry.ok()) return Suffixed(entry.status(), absl::StrCat("; tensor '", key, "'"));
    return AddEntry(prefix, header.num_shards, std::string(key), *std::move(entry), merged);
  });
}

}  // namespace

absl::Status MergeCheckpoints(const std::vector<std::string>& prefixes,
                              const std::string& destination, const MergeOptions& options) {
  FileSystem& files = *options.files;
  Merged merged;
  for (const std::string& prefix : prefixes) {
    const absl::Status status = AddBundle(prefix, merged);
    if (absl::IsNotFound(status)) {
      if (options.allow_missing_files) continue;
      return InvalidArgument("allow_missing_files was set to false and ", prefix,
                             " did not exist. ", status.message());
    }
    RETURN_IF_ERROR(status);
  }
  if (!merged.header) {
    return InvalidArgument("At least one prefix checkpoint file must exist, but none existed.");
  }
  const std::string directory = DirectoryOf(destination);
  RETURN_IF_ERROR(files.MakeDirectory(directory));
  const auto make_index = [&](int num_shards) {
    TableWriter table;
    BundleHeader header = *merged.header;
    header.num_shards = num_shards;
    table.Add("", header.Serialize());
    for (const auto& [key, entry] : merged.entries) table.Add(key, entry.Serialize());
    return std::move(table).Finish();
  };
  RETURN_IF_ERROR(CommitBundle(destination, merged.data_files, make_index, files));

  // The new checkpoint is committed: what cannot be removed is left.
  for (const std::string& prefix : prefixes) {
    if (prefix != destination) files.Remove(IndexFileName(prefix)).IgnoreError();
  }
  if (!options.delete_old_dirs) return absl::OkStatus();
  for (const std::string& prefix : prefixes) {
    const std::string old = DirectoryOf(prefix);
    if (old == directory) continue;
    const absl::Status status = files.RemoveEmptyDirectory(old);
    // The first of several inputs in one folder has removed it.
    if (!status.ok() && !absl::IsNotFound(status))
      LOG(INFO) << "A folder of merged checkpoints was not removed: " << status.message();
  }
  return absl::OkStatus();
}

}  // namespace muster
