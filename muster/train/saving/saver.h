// tf.train.Saver: nodes that save and restore variables, the files of past saves, and which of them
// are kept.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/train/saving/saveable.h"

namespace muster {

enum class CheckpointVersion { kLegacy = 0, kV1 = 1, kV2 = 2 };

// The message SaverDef: all that another program needs to save and restore with this graph.
struct SaverDef {
  std::string filename_tensor_name;
  std::string save_tensor_name;
  std::string restore_op_name;
  int max_to_keep = 0;  // 0: nothing is ever deleted
  bool sharded = false;
  float keep_checkpoint_every_n_hours = 0;
  CheckpointVersion version = CheckpointVersion::kV2;
};

// InvalidArgument when a name that saving needs is missing.
absl::Status CheckSaverDef(const SaverDef& def);

// Nodes of a builder of the caller's own, instead of SaveV2 and RestoreV2.
struct SaverNodes {
  std::function<absl::StatusOr<Node*>(const Scope&, Output filename,
                                      const std::vector<Saveable>& saveables)>
      save;
  // One tensor per spec of the saveables.
  std::function<absl::StatusOr<std::vector<Output>>(
      const Scope&, Output filename, const std::vector<Saveable>& saveables, int preferred_shard)>
      restore;
};

struct SaverOptions {
  std::string name;      // "": "save"
  std::string filename;  // what the file name defaults to; "": "model"
  bool reshape = false;  // restored values take the variable's shape
  bool sharded = false;  // one file per device that holds variables
  // One RestoreV2 for all tensors, or one each, on the variable's device.
  bool bulk_restore = true;
  bool restore_sequentially = false;
  int max_to_keep = 5;
  double keep_checkpoint_every_n_hours = 10000.0;
  CheckpointVersion version = CheckpointVersion::kV2;
  SaverNodes nodes;
  // What follows concerns saving only, also with a SaverDef.
  bool pad_step_number = false;      // "model.ckpt-00000010"
  bool save_relative_paths = false;  // in the state file
  Clock* clock = nullptr;            // null: the machine's
};

// Adds the nodes (file-formats: "Graph pieces"). Saveables are taken in the order of their names.
// InvalidArgument when two of them have one name or one state.
absl::StatusOr<SaverDef> BuildSaverNodes(const Scope& scope, std::vector<Saveable> saveables,
                                         const SaverOptions& options);

struct SaveOptions {
  std::string latest_filename;  // "": "checkpoint"
  std::string meta_graph_suffix = "meta";
  bool write_state = true;
  // Gives the bytes of `<prefix>.<suffix>`; nothing is written where it is not set.
  std::function<absl::StatusOr<std::string>()> meta_graph;
};

// Thread-safe.
class Saver {
 public:
  // A saver without saveables saves and restores nothing (TensorFlow's allow_empty).
  static absl::StatusOr<std::unique_ptr<Saver>> Build(const Scope& scope,
                                                      std::vector<Saveable> saveables,
                                                      SaverOptions options = {});
  // For a graph that has the nodes already.
  static absl::StatusOr<std::unique_ptr<Saver>> FromDef(SaverDef def, SaverOptions options = {});
  static std::unique_ptr<Saver> Empty(SaverOptions options = {});

  const SaverDef& def() const { return def_; }
  bool empty() const { return empty_; }

  // Writes a checkpoint `path` or `path-step`, the state file beside it and the meta graph; deletes
  // what is no longer kept. The prefix that was written; nothing for an empty saver.
  // InvalidArgument when the names collide, FailedPrecondition when the folder's parent is missing.
  absl::StatusOr<std::optional<std::string>> Save(Session& session, const std::string& path,
                                                  std::optional<int64_t> step = std::nullopt,
                                                  const SaveOptions& options = {});
  // InvalidArgument when there is no such checkpoint; NotFound and InvalidArgument when it does not
  // fit the graph.
  absl::Status Restore(Session& session, const std::string& prefix);

  // Checkpoints that are not deleted yet, oldest first, and when each was written (seconds since
  // the epoch).
  std::vector<std::string> last_checkpoints() const;
  std::vector<std::pair<std::string, double>> last_checkpoints_with_time() const;
  void set_last_checkpoints_with_time(std::vector<std::pair<std::string, double>> checkpoints);
  // Those of `prefixes` that exist, with the times of their files, as after a restart.
  void RecoverLastCheckpoints(const std::vector<std::string>& prefixes);
  double next_checkpoint_time() const;

 private:
  Saver(SaverDef def, SaverOptions options, bool empty);
  double Now() const;
  absl::StatusOr<std::string> RunSave(Session& session, const std::string& prefix);
  absl::Status RecordState(const std::string& folder, const std::string& prefix,
                           const SaveOptions& options) ABSL_EXCLUSIVE_LOCKS_REQUIRED(save_mutex_);
  void RecordLast(const std::string& prefix);
  void DeleteOneExpired(const std::string& meta_graph_suffix);

  const SaverDef def_;
  const SaverOptions options_;
  const bool empty_;
  // One save at a time: the state file names the one that began last.
  Mutex save_mutex_;
  mutable Mutex mutex_;
  std::vector<std::pair<std::string, double>> last_;
  std::vector<std::pair<std::string, double>> expired_;
  double next_checkpoint_time_ = 0;
};

}  // namespace muster
