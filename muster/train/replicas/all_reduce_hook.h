// Forms the group of an all-reduce, and forms it again when a member is lost or another one joins.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/train/hooks/hook.h"
#include "muster/train/hooks/runs_node.h"
#include "muster/train/replicas/all_reduce.h"
#include "muster/train/replicas/all_reduce_meeting.h"
#include "muster/transport/api/cluster.h"

namespace muster {

// All tasks of a job, in order.
std::vector<AllReduceMember> AllReduceMembers(const ClusterSpec& cluster, absl::string_view job);

// With the session's creation: joins the others, copies the model of the member with the highest
// step and sets the group's variables. While it runs: admits tasks that wait. An error of a step
// (a member was lost) makes a session that recovers start over, and the survivors meet again here.
class AllReduceHook : public SessionRunHook {
 public:
  // `variables` are asked for when the session begins: the model may still grow.
  AllReduceHook(std::shared_ptr<AllReduce> all_reduce, Scope scope, AllReduceHookOptions options,
                std::function<absl::StatusOr<std::vector<TrainVariable>>()> variables);
  ~AllReduceHook() override;

  absl::Status Begin() override;
  absl::Status AfterCreateSession(const std::shared_ptr<Session>& session,
                                  const std::shared_ptr<Coordinator>& coordinator) override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;
  absl::Status End(Session& session) override;

 private:
  absl::Status Form(Session& session);
  absl::Status Enter(Session& session, const AllReducePlace& place);
  absl::Status EmptyAccumulators(Session& session);
  absl::Status Note(Session& session, const std::string& leader);
  const AllReduceMember& self() const { return options_.members[options_.index]; }

  const std::shared_ptr<AllReduce> all_reduce_;
  const Scope scope_;
  AllReduceHookOptions options_;
  const std::function<absl::StatusOr<std::vector<TrainVariable>>()> variables_;
  RunsNode trains_;
  std::unique_ptr<AllReduceMeeting> meeting_;

  // Nodes of the graph.
  Output step_;
  Output new_values_;  // key, size, rank
  Node* assign_ = nullptr;
  Output leader_;
  Node* note_ = nullptr;
  Output endpoint_;
  Output source_;
  Output members_;
  Output endpoints_;
  Node* enter_ = nullptr;
  AllReduce::Broadcast broadcast_;
};

}  // namespace muster
