// The file `checkpoint`, which names the newest checkpoint of a folder and those that are kept, and
// what asks for checkpoints by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/checkpoint/file.h"

namespace muster {

inline constexpr char kStateFile[] = "checkpoint";

// Oldest first. Times are seconds; the graph's saver leaves them out.
struct CheckpointState {
  std::string model_checkpoint_path;
  std::vector<std::string> all_model_checkpoint_paths;
  std::vector<double> all_model_checkpoint_timestamps;
  std::optional<double> last_preserved_timestamp;
};

// The text of the file, as TensorFlow prints it.
std::string CheckpointStateToText(const CheckpointState& state);
// InvalidArgument for a text that is not such a state.
absl::StatusOr<CheckpointState> CheckpointStateFromText(absl::string_view text);
// The serialized message, for those that hand it on.
std::string SerializeCheckpointState(const CheckpointState& state);

// What a state for a folder says: the newest checkpoint comes last in the list, and paths are made
// relative to the folder when that is relative itself (or with `save_relative_paths`).
// InvalidArgument when there are times but not one for each checkpoint.
absl::StatusOr<CheckpointState> MakeCheckpointState(
    const std::string& directory, const std::string& newest, std::vector<std::string> all = {},
    std::vector<double> timestamps = {}, std::optional<double> last_preserved_timestamp = {},
    bool save_relative_paths = false);

// `latest_filename` "" stands for "checkpoint". Paths come back joined to the folder when they are
// relative. NotFound when the file is missing, InvalidArgument when it is not a state or names no
// checkpoint.
absl::StatusOr<CheckpointState> ReadCheckpointState(const std::string& directory,
                                                    const std::string& latest_filename = "");
absl::Status WriteCheckpointState(const std::string& directory, const CheckpointState& state,
                                  const std::string& latest_filename = "",
                                  FileSystem& files = LocalFiles());

// The newest prefix if its files are there; "" otherwise.
std::string LatestCheckpoint(const std::string& directory, const std::string& latest_filename = "");
// A checkpoint of V2, or of V1, with that prefix is there.
bool CheckpointExists(const std::string& prefix);
// When the checkpoint was written, in seconds since 1970; nothing when it is not there.
std::optional<double> CheckpointTime(const std::string& prefix);
// Removes all files of a checkpoint, and its graph (<prefix>.<meta_suffix>).
absl::Status RemoveCheckpoint(const std::string& prefix, const std::string& meta_suffix = "meta",
                              FileSystem& files = LocalFiles());
// The file of the graph that belongs to a checkpoint: "<prefix>.meta", without a V1 shard pattern.
std::string MetaGraphFileName(absl::string_view prefix, absl::string_view meta_suffix = "meta");

}  // namespace muster
