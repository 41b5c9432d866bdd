// Forms the group of an all-reduce, and forms it anew when a member is lost or another one comes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/train/all_reduce.h"
#include "muster/train/hook.h"
#include "muster/train/runs_node.h"
#include "muster/transport/cluster.h"

namespace muster {

// A task that may take part.
struct AllReduceMember {
  std::string task;    // "/job:worker/replica:0/task:1"
  std::string target;  // "grpc://host:port"
};

// All tasks of a job, in order.
std::vector<AllReduceMember> AllReduceMembers(const ClusterSpec& cluster, absl::string_view job);

struct AllReduceHookOptions {
  std::vector<AllReduceMember> members;  // the same list on all, in order of their ranks
  int index = 0;                         // of this task in it
  // A smaller group never trains. 0: half of the members, so that of three no one goes on alone.
  int least = 0;
  // How long the others may take when a group is formed and not all have come.
  absl::Duration grace = absl::Seconds(3);
  // How long a group may take to be formed, the first time and when it was lost.
  absl::Duration patience = absl::Minutes(10);
  // Asked now and then while waiting; an error ends it.
  std::function<absl::Status()> interrupted = {};
};

// With the session's creation: joins the others, takes the model of the member that is furthest and
// sets the group's variables. While it runs: lets in who waits. An error of a step (a member was
// lost) makes a session that recovers start over, and the survivors meet again here.
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
  class Meeting;
  struct Place;
  absl::Status Form(Session& session);
  absl::StatusOr<Place> Meet(int64_t step, const std::string& endpoint);
  absl::Status Enter(Session& session, const Place& place);
  absl::Status EmptyAccumulators(Session& session);
  absl::Status Note(Session& session, const std::string& leader);
  const AllReduceMember& self() const { return options_.members[options_.index]; }

  const std::shared_ptr<AllReduce> all_reduce_;
  const Scope scope_;
  AllReduceHookOptions options_;
  const std::function<absl::StatusOr<std::vector<TrainVariable>>()> variables_;
  RunsNode trains_;
  std::unique_ptr<Meeting> meeting_;
  std::vector<std::string> last_group_;  // whom this task was with, the leader first

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
