// The ops with which a model is initialized, checked, summarized and saved.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/train/loop/monitored_session.h"
#include "muster/train/loop/session_manager.h"
#include "muster/train/model/model.h"
#include "muster/train/saving/saver.h"

namespace muster {

// What is not set is made by Finalize.
struct Scaffold {
  Node* init_op = nullptr;
  std::vector<std::pair<Output, Tensor>> init_feeds;
  std::function<absl::Status(Session&)> init_fn;  // after init_op
  Output ready_op;                                // names of what has no value yet
  Output ready_for_local_init_op;
  Node* local_init_op = nullptr;
  Output summary_op;  // none when there are no summaries
  std::shared_ptr<Saver> saver;
  // Whether the tasks have a newer model than any checkpoint; none: they never have.
  std::function<bool()> keeps_model;

  // Makes the rest in the scope's graph, with TensorFlow's nodes. Again is fine.
  absl::Status Finalize(const Scope& scope, const Model& model);
};

// Restores the newest checkpoint or initializes the model. The scaffold must be final.
// `interrupted` is asked while it waits.
class ChiefSessionCreator : public SessionCreator {
 public:
  static absl::StatusOr<std::shared_ptr<ChiefSessionCreator>> Create(
      std::shared_ptr<const Scaffold> scaffold, SessionFactory factory,
      std::string checkpoint_dir = "", std::string checkpoint_file = "",
      Interrupted interrupted = {});
  absl::StatusOr<std::shared_ptr<Session>> CreateSession() override;

 private:
  ChiefSessionCreator(std::shared_ptr<const Scaffold> scaffold, SessionFactory factory)
      : scaffold_(std::move(scaffold)), factory_(std::move(factory)) {}
  const std::shared_ptr<const Scaffold> scaffold_;
  const SessionFactory factory_;
  std::unique_ptr<SessionManager> manager_;
  SessionManager::InitOptions init_;
  CheckpointSource source_;
};

// Waits until the chief has made the model ready.
class WorkerSessionCreator : public SessionCreator {
 public:
  static absl::StatusOr<std::shared_ptr<WorkerSessionCreator>> Create(
      const Scaffold& scaffold, SessionFactory factory, absl::Duration max_wait = absl::Minutes(30),
      Interrupted interrupted = {});
  absl::StatusOr<std::shared_ptr<Session>> CreateSession() override;

 private:
  WorkerSessionCreator(SessionFactory factory, absl::Duration max_wait)
      : factory_(std::move(factory)), max_wait_(max_wait) {}
  const SessionFactory factory_;
  const absl::Duration max_wait_;
  std::unique_ptr<SessionManager> manager_;
};

}  // namespace muster
