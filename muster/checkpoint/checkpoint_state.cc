#include "muster/checkpoint/checkpoint_state.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/strip.h"
#include <sys/stat.h>

#include "muster/base/log.h"
#include "muster/checkpoint/bundle_commit.h"

namespace muster {
namespace {

bool IsAbsolute(absl::string_view path) {
  return !path.empty() && path.front() == '/';
}

std::string Join(const std::string& directory, const std::string& name) {
  if (IsAbsolute(name) || directory.empty()) return name;
  return directory.back() == '/' ? directory + name : absl::StrCat(directory, "/", name);
}

std::string RelativeTo(const std::string& path, const std::string& directory) {
  std::error_code error;
  const std::filesystem::path base =
      std::filesystem::absolute(directory.empty() ? "." : LocalPath(directory), error);
  if (error) return path;
  const std::filesystem::path whole = std::filesystem::absolute(LocalPath(path), error);
  if (error) return path;
  // "/a/." and "/a/" are "/a".
  std::filesystem::path folder = (base / "").lexically_normal().parent_path();
  const std::string relative = whole.lexically_normal().lexically_relative(folder).string();
  return relative.empty() ? path : relative;
}

// Files of a V1 checkpoint: the prefix may be a pattern itself, or stand for shards.
std::vector<std::string> V1Files(const std::string& prefix) {
  if (FileExists(prefix)) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(LocalPath(prefix), ignored)) return {prefix};
  }
  std::vector<std::string> found = MatchFiles(prefix);
  if (found.empty())
    found = MatchFiles(EscapePattern(prefix) +
                       "-?????"
                       "-of-?????");
  return found;
}

std::optional<double> ModificationTime(const std::string& name) {
  struct stat about;
  if (::stat(LocalPath(name).c_str(), &about) != 0) return std::nullopt;
  return static_cast<double>(about.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(about.st_mtim.tv_nsec);
}

std::string StateFileName(const std::string& directory, const std::string& latest_filename) {
  return Join(directory, latest_filename.empty() ? kStateFile : latest_filename);
}

}  // namespace

absl::StatusOr<CheckpointState> MakeCheckpointState(const std::string& directory,
                                                    const std::string& newest,
                                                    std::vector<std::string> all,
                                                    std::vector<double> timestamps,
                                                    std::optional<double> last_preserved_timestamp,
                                                    bool save_relative_paths) {
  if (all.empty() || all.back() != newest) all.push_back(newest);
  if (!timestamps.empty() && timestamps.size() != all.size()) {
    return InvalidArgument("Checkpoint timestamps, if provided, must match checkpoint paths (got ",
                           all.size(), " paths and ", timestamps.size(), " timestamps)");
  }
  CheckpointState state;
  state.model_checkpoint_path = newest;
  state.all_model_checkpoint_paths = std::move(all);
  state.all_model_checkpoint_timestamps = std::move(timestamps);
  state.last_preserved_timestamp = last_preserved_timestamp;
  const auto shorten = [&](std::string& path) {
    const bool wanted = IsAbsolute(path) ? save_relative_paths : !IsAbsolute(directory);
    if (wanted) path = RelativeTo(path, directory);
  };
  shorten(state.model_checkpoint_path);
  for (std::string& path : state.all_model_checkpoint_paths) shorten(path);
  return state;
}

absl::StatusOr<CheckpointState> ReadCheckpointState(const std::string& directory,
                                                    const std::string& latest_filename) {
  const std::string name = StateFileName(directory, latest_filename);
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(name));
  absl::StatusOr<CheckpointState> state = CheckpointStateFromText(text);
  if (!state.ok()) return Suffixed(state.status(), absl::StrCat(": ", name));
  if (state->model_checkpoint_path.empty()) {
    return InvalidArgument("Invalid checkpoint state loaded from ", directory,
                           ": it has no model_checkpoint_path");
  }
  state->model_checkpoint_path = Join(directory, state->model_checkpoint_path);
  for (std::string& path : state->all_model_checkpoint_paths) path = Join(directory, path);
  return state;
}

absl::Status WriteCheckpointState(const std::string& directory, const CheckpointState& state,
                                  const std::string& latest_filename, FileSystem& files) {
  const std::string name = StateFileName(directory, latest_filename);
  if (name == state.model_checkpoint_path) {
    return InvalidArgument("Save path '", state.model_checkpoint_path,
                           "' conflicts with path used for checkpoint state.  Please use a "
                           "different save path.");
  }
  return WriteFileAtomically(name, CheckpointStateToText(state), files);
}

std::string LatestCheckpoint(const std::string& directory, const std::string& latest_filename) {
  const absl::StatusOr<CheckpointState> state = ReadCheckpointState(directory, latest_filename);
  if (!state.ok()) {
    if (!absl::IsNotFound(state.status())) LOG(WARNING) << state.status().message();
    return "";
  }
  if (!state->model_checkpoint_path.empty() && CheckpointExists(state->model_checkpoint_path))
    return state->model_checkpoint_path;
  LOG(ERROR) << "Couldn't match files for checkpoint " << state->model_checkpoint_path;
  return "";
}

bool CheckpointExists(const std::string& prefix) {
  return CheckpointTime(prefix).has_value();
}

std::optional<double> CheckpointTime(const std::string& prefix) {
  if (prefix.empty()) return std::nullopt;
  if (const std::optional<double> time = ModificationTime(IndexFileName(prefix))) return time;
  const std::vector<std::string> found = V1Files(prefix);
  return found.empty() ? std::nullopt : ModificationTime(found[0]);
}

absl::Status RemoveCheckpoint(const std::string& prefix, const std::string& meta_suffix,
                              FileSystem& files) {
  absl::Status result;
  const auto remove = [&](const std::string& name) {
    const absl::Status status = files.Remove(name);
    if (!status.ok() && !absl::IsNotFound(status)) result.Update(status);
  };
  const std::string meta = MetaGraphFileName(prefix, meta_suffix);
  if (FileExists(meta)) remove(meta);
  if (const std::string index = IndexFileName(prefix); FileExists(index)) {
    // The index first: without it the data is not found.
    remove(index);
    for (const std::string& name : MatchFiles(DataFilePattern(prefix))) remove(name);
  } else {
    for (const std::string& name : V1Files(prefix)) remove(name);
  }
  return result;
}

std::string MetaGraphFileName(absl::string_view prefix, absl::string_view meta_suffix) {
  // "model.ckpt-00001-of-00004" of a sharded V1 checkpoint: the graph belongs to all shards.
  const auto without_last = [](absl::string_view text, absl::string_view characters) {
    const size_t last = text.find_last_not_of(characters);
    return last == absl::string_view::npos ? absl::string_view() : text.substr(0, last + 1);
  };
  absl::string_view rest = without_last(prefix, "0123456789");
  if (rest.size() < prefix.size() && absl::ConsumeSuffix(&rest, "-of-")) {
    absl::string_view name = without_last(rest, "?0123456789");
    if (name.size() < rest.size() && absl::ConsumeSuffix(&name, "-")) prefix = name;
  }
  return absl::StrCat(prefix, ".", meta_suffix);
}

}  // namespace muster
