// Which tasks a cluster has, and where they listen.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/status.h"

namespace muster {

// "/job:ps/replica:0/task:1": the part of a device's name that says which process it is in.
struct TaskName {
  std::string job;
  int task = 0;
  int replica = 0;

  // Accepts whole task names and device names, whose device part is left out.
  static absl::StatusOr<TaskName> Parse(absl::string_view text);
  std::string ToString() const;
  friend bool operator==(const TaskName&, const TaskName&) = default;
};

// Jobs of tasks with their addresses ("host:port"). Numbers of tasks may have holes. A value.
class ClusterSpec {
 public:
  using Tasks = std::map<int, std::string>;

  ClusterSpec() = default;
  explicit ClusterSpec(std::map<std::string, Tasks> jobs)
      : jobs_(std::make_shared<std::map<std::string, Tasks>>(std::move(jobs))) {}

  // "ps=a:2222,b:2222;worker=c:2222"; TensorFlow's "ps|a:2222;b:2222,worker|c:2222"; or JSON, lists
  // or
  // {"0": "a:2222"} per job. InvalidArgument naming the part that is wrong.
  static absl::StatusOr<ClusterSpec> Parse(absl::string_view text);

  // Job names are [A-Za-z][A-Za-z0-9_]*, numbers not negative, addresses host:port, each
  // of one task only ("localhost" and "127.0.0.1" are one host; port 0 may stand many times).
  absl::Status Validate() const;
  const std::map<std::string, Tasks>& jobs() const { return *jobs_; }
  // To change it: from then on this object has jobs of its own.
  std::map<std::string, Tasks>& jobs();
  bool empty() const { return jobs_->empty(); }
  // NotFound for a job or task that is not there.
  absl::StatusOr<std::string> Address(const TaskName& task) const;
  // Sorted by job, then number.
  std::vector<TaskName> tasks() const;
  std::string ToString() const;  // "ps=a:2222,b:2222;worker=c:2222"; holes as "worker=1:c:2222" are
                                 // not written: JSON then
  friend bool operator==(const ClusterSpec& a, const ClusterSpec& b) {
    return a.jobs() == b.jobs();
  }

 private:
  // Shared by copies, since every part of every task has one and clusters are large.
  std::shared_ptr<std::map<std::string, Tasks>> jobs_ =
      std::make_shared<std::map<std::string, Tasks>>();
};

}  // namespace muster
