#include "muster/train/saving/saver.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include <sys/stat.h>

#include "muster/checkpoint/checkpoint_state.h"
#include "muster/checkpoint/file.h"
#include "muster/train/loop/notice.h"
#include "muster/train/saving/save_leftovers.h"

namespace muster {
namespace {

bool IsDirectory(const std::string& name) {
  struct stat found;
  return stat(LocalPath(name).c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<Output> FindOutput(const Graph& graph, absl::string_view name) {
  const size_t colon = name.rfind(':');
  int index = 0;
  Node* node = colon == absl::string_view::npos ? nullptr : graph.FindNode(name.substr(0, colon));
  if (node == nullptr || !absl::SimpleAtoi(name.substr(colon + 1), &index) || index < 0 ||
      index >= node->num_outputs()) {
    return ValueError("The saver's tensor '", name, "' is not in the graph of the session");
  }
  return Output(node, index);
}

absl::Status RestoreFailed(const absl::Status& status, absl::string_view why) {
  return Prefixed(
      status,
      absl::StrCat(
          "Restoring from checkpoint failed. This is most likely due to ", why,
          " from the checkpoint. Please ensure that you have not altered the graph expected "
          "based on the checkpoint. Original error:\n\n"));
}

}  // namespace

absl::Status CheckSaverDef(const SaverDef& def) {
  if (def.save_tensor_name.empty())
    return ValueError("saver_def must specify the save_tensor_name: ", def.restore_op_name);
  if (def.restore_op_name.empty())
    return ValueError("saver_def must specify the restore_op_name: ", def.save_tensor_name);
  return absl::OkStatus();
}

Saver::Saver(SaverDef def, SaverOptions options, bool empty)
    : def_(std::move(def)), options_(std::move(options)), empty_(empty) {
  next_checkpoint_time_ = Now() + static_cast<double>(def_.keep_checkpoint_every_n_hours) * 3600;
}

absl::StatusOr<std::unique_ptr<Saver>> Saver::Build(const Scope& scope,
                                                    std::vector<Saveable> saveables,
                                                    SaverOptions options) {
  if (saveables.empty()) return Empty(std::move(options));
  ASSIGN_OR_RETURN(SaverDef def, BuildSaverNodes(scope, std::move(saveables), options));
  return FromDef(std::move(def), std::move(options));
}

absl::StatusOr<std::unique_ptr<Saver>> Saver::FromDef(SaverDef def, SaverOptions options) {
  RETURN_IF_ERROR(CheckSaverDef(def));
  return std::unique_ptr<Saver>(new Saver(std::move(def), std::move(options), false));
}

std::unique_ptr<Saver> Saver::Empty(SaverOptions options) {
  return std::unique_ptr<Saver>(new Saver(SaverDef(), std::move(options), true));
}

double Saver::Now() const {
  const Clock& clock = options_.clock != nullptr ? *options_.clock : Clock::Real();
  return absl::ToDoubleSeconds(clock.Now() - absl::UnixEpoch());
}

absl::StatusOr<std::string> Saver::RunSave(Session& session, const std::string& prefix) {
  ASSIGN_OR_RETURN(const Output filename, FindOutput(session.graph(), def_.filename_tensor_name));
  ASSIGN_OR_RETURN(const Output saved, FindOutput(session.graph(), def_.save_tensor_name));
  ASSIGN_OR_RETURN(const std::vector<Tensor> results,
                   session.Run({{filename, Tensor::Scalar<std::string>(prefix)}}, {saved}));
  if (results.size() != 1 || results[0].dtype() != DType::kString ||
      results[0].num_elements() != 1) {
    return InvalidArgument("The saver's tensor '", def_.save_tensor_name,
                           "' must give the name of the checkpoint, one string");
  }
  return results[0].data<std::string>()[0];
}

absl::StatusOr<std::optional<std::string>> Saver::Save(Session& session, const std::string& path,
                                                       std::optional<int64_t> step,
                                                       const SaveOptions& options) {
  const std::string latest =
      options.latest_filename.empty() ? "checkpoint" : options.latest_filename;
  if (absl::StrContains(latest, '/'))
    return ValueError("'latest_filename' must not contain path components");
  std::string prefix = path;
  if (step.has_value()) {
    prefix = options_.pad_step_number ? absl::StrFormat("%s-%08d", path, *step)
                                      : absl::StrCat(path, "-", *step);
  } else if (BaseName(path) == latest && !def_.sharded) {
    return ValueError("'latest_filename' collides with 'save_path': '", latest, "' and '", path,
                      "'");
  }
  std::string written = prefix;
  if (!empty_) {
    const std::string folder = ParentOf(path);
    MutexLock lock(save_mutex_);
    absl::StatusOr<std::string> saved = absl::UnknownError("");
    {
      const SaveUnderWay under_way(prefix);
      saved = RunSave(session, prefix);
    }
    absl::Status status = saved.status();
    if (status.ok()) {
      written = *std::move(saved);
      RemoveSaveLeftovers(path);
      if (options.write_state) status = RecordState(folder, written, options);
    }
    const bool may_lack_folder = absl::IsFailedPrecondition(status) || absl::IsNotFound(status);
    if (may_lack_folder && !folder.empty() && !IsDirectory(folder))
      return ValueError("Parent directory of ", path, " doesn't exist, can't save.");
    RETURN_IF_ERROR(status);
  }
  if (options.meta_graph) {
    ASSIGN_OR_RETURN(const std::string bytes, options.meta_graph());
    RETURN_IF_ERROR(
        WriteFileAtomically(MetaGraphFileName(prefix, options.meta_graph_suffix), bytes));
  }
  if (empty_) return std::nullopt;
  return written;
}

absl::Status Saver::RecordState(const std::string& folder, const std::string& prefix,
                                const SaveOptions& options) {
  RecordLast(prefix);
  ASSIGN_OR_RETURN(const CheckpointState state,
                   MakeCheckpointState(folder, prefix, last_checkpoints(), {}, std::nullopt,
                                       options_.save_relative_paths));
  RETURN_IF_ERROR(WriteCheckpointState(folder, state, options.latest_filename));
  DeleteOneExpired(options.meta_graph_suffix);
  return absl::OkStatus();
}

void Saver::RecordLast(const std::string& prefix) {
  if (def_.max_to_keep <= 0) return;
  const double now = Now();
  MutexLock lock(mutex_);
  std::erase_if(last_, [&](const auto& entry) { return entry.first == prefix; });
  last_.emplace_back(prefix, now);
  if (last_.size() > static_cast<size_t>(def_.max_to_keep)) {
    expired_.push_back(last_.front());
    last_.erase(last_.begin());
  }
}

void Saver::DeleteOneExpired(const std::string& meta_graph_suffix) {
  std::string prefix;
  {
    MutexLock lock(mutex_);
    if (expired_.empty()) return;
    const double written = expired_.front().second;
    prefix = expired_.front().first;
    expired_.erase(expired_.begin());
    if (written > next_checkpoint_time_) {  // this one is kept for ever
      next_checkpoint_time_ += static_cast<double>(def_.keep_checkpoint_every_n_hours) * 3600;
      return;
    }
  }
  const absl::Status removed = RemoveCheckpoint(prefix, meta_graph_suffix);
  if (!removed.ok()) NoticeWarning("Ignoring: ", removed.message());
}

absl::Status Saver::Restore(Session& session, const std::string& prefix) {
  if (empty_) return absl::OkStatus();
  const std::string folder = ParentOf(prefix);
  if (!folder.empty() && !FileExists(folder))
    return NotFound(folder, "; No such file or directory");
  if (!CheckpointExists(prefix))
    return ValueError("The passed save_path is not a valid checkpoint: ", prefix);
  NoticeInfo("Restoring parameters from ", prefix);
  ASSIGN_OR_RETURN(const Output filename, FindOutput(session.graph(), def_.filename_tensor_name));
  Node* restore = session.graph().FindNode(def_.restore_op_name);
  if (restore == nullptr) {
    return ValueError("The saver's operation '", def_.restore_op_name,
                      "' is not in the graph of the session");
  }
  const absl::Status status =
      session.Run({{filename, Tensor::Scalar<std::string>(prefix)}}, {}, {restore}).status();
  if (absl::IsNotFound(status))
    return RestoreFailed(status, "a Variable name or other graph key that is missing");
  if (absl::IsInvalidArgument(status))
    return RestoreFailed(status, "a mismatch between the current graph and the graph");
  return status;
}

std::vector<std::string> Saver::last_checkpoints() const {
  MutexLock lock(mutex_);
  std::vector<std::string> prefixes;
  for (const auto& [prefix, time] : last_) prefixes.push_back(prefix);
  return prefixes;
}

std::vector<std::pair<std::string, double>> Saver::last_checkpoints_with_time() const {
  MutexLock lock(mutex_);
  return last_;
}

void Saver::set_last_checkpoints_with_time(
    std::vector<std::pair<std::string, double>> checkpoints) {
  MutexLock lock(mutex_);
  last_ = std::move(checkpoints);
}

void Saver::RecoverLastCheckpoints(const std::vector<std::string>& prefixes) {
  std::vector<std::pair<std::string, double>> found;
  for (const std::string& prefix : prefixes) {
    if (const std::optional<double> time = CheckpointTime(prefix))
      found.emplace_back(prefix, *time);
  }
  set_last_checkpoints_with_time(std::move(found));
}

double Saver::next_checkpoint_time() const {
  MutexLock lock(mutex_);
  return next_checkpoint_time_;
}

}  // namespace muster
