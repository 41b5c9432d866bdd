#include "muster/transport/api/cluster.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "muster/device/device_name.h"
#include "muster/transport/api/cluster_json.h"

namespace muster {
namespace {

constexpr absl::string_view kForms =
    "a cluster is written as 'ps=HOST:PORT,HOST:PORT;worker=HOST:PORT', as "
    "'ps|HOST:PORT;HOST:PORT,worker|HOST:PORT' or as JSON";

bool ValidJob(absl::string_view job) {
  if (job.empty() || !absl::ascii_isalpha(job[0])) return false;
  for (const char c : job) {
    if (!absl::ascii_isalnum(c) && c != '_') return false;
  }
  return true;
}

absl::Status ValidateAddress(absl::string_view address, absl::string_view where) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == absl::string_view::npos || colon == 0 || colon + 1 == address.size()) {
    return InvalidArgument("'", address, "' of ", where, " is not an address: HOST:PORT expected");
  }
  const absl::string_view host = address.substr(0, colon);
  const absl::string_view digits = address.substr(colon + 1);
  for (const char c : digits) {
    if (!absl::ascii_isdigit(c)) port = -2;
  }
  if (port == -2 || !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return InvalidArgument("'", address, "' of ", where, " is not an address: the port '", digits,
                           "' is not a number from 0 to 65535");
  }
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!bracketed && (absl::StrContains(host, ':') || absl::StrContains(host, '/'))) {
    return InvalidArgument("'", address, "' of ", where, " is not an address: the host '", host,
                           "' may have no ':' or '/' (an IPv6 address stands in brackets)");
  }
  for (const char c : host) {
    if (absl::ascii_isspace(c) || !absl::ascii_isprint(c)) {
      return InvalidArgument("'", address, "' of ", where, " is not an address: the host '", host,
                             "' has a space in it");
    }
    // What separates jobs and tasks in the forms that Parse reads, and quotes.
    if (absl::StrContains("|,;={}\"\\'", c)) {
      return InvalidArgument("'", address, "' of ", where, " is not an address: the host '", host,
                             "' has a '", std::string(1, c), "' in it");
    }
  }
  return absl::OkStatus();
}

// What an address that has been validated leads to: names of hosts do not tell capitals from small
// letters, and this machine has two usual names.
std::string Place(absl::string_view address) {
  const size_t colon = address.rfind(':');
  std::string host = absl::AsciiStrToLower(address.substr(0, colon));
  if (host == "127.0.0.1") host = "localhost";
  int port = 0;
  (void)absl::SimpleAtoi(address.substr(colon + 1), &port);
  return port == 0 ? "" : absl::StrCat(host, ":", port);  // 0: whatever port is free
}

// "JOB<equals>A<between_tasks>B<between_jobs>JOB<equals>C".
absl::StatusOr<ClusterSpec> ParseList(absl::string_view text, char between_jobs, char equals,
                                      char between_tasks) {
  std::map<std::string, ClusterSpec::Tasks> jobs;
  for (absl::string_view part : absl::StrSplit(text, between_jobs)) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;  // a separator at the end
    const size_t at = part.find(equals);
    if (at == absl::string_view::npos) {
      return InvalidArgument("'", part, "' in the cluster has no '", std::string(1, equals),
                             "': ", kForms);
    }
    const std::string job(absl::StripAsciiWhitespace(part.substr(0, at)));
    ClusterSpec::Tasks tasks;
    for (absl::string_view address : absl::StrSplit(part.substr(at + 1), between_tasks)) {
      address = absl::StripAsciiWhitespace(address);
      if (address.empty())
        return InvalidArgument("job '", job, "' in the cluster has an empty address: ", kForms);
      tasks[static_cast<int>(tasks.size())] = std::string(address);
    }
    if (!jobs.emplace(job, std::move(tasks)).second)
      return InvalidArgument("job '", job, "' is in the cluster twice");
  }
  ClusterSpec cluster(std::move(jobs));
  RETURN_IF_ERROR(cluster.Validate());
  return cluster;
}

bool Dense(const ClusterSpec::Tasks& tasks) {
  return tasks.empty() ||
         (tasks.begin()->first == 0 && tasks.rbegin()->first == static_cast<int>(tasks.size()) - 1);
}

}  // namespace

absl::StatusOr<TaskName> TaskName::Parse(absl::string_view text) {
  ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(text));
  if (!name.job || !name.task)
    return InvalidArgument("'", text, "' names no task: /job:NAME/task:N expected");
  return TaskName{*name.job, *name.task, name.replica.value_or(0)};
}

std::string TaskName::ToString() const {
  return absl::StrCat("/job:", job, "/replica:", replica, "/task:", task);
}

absl::StatusOr<ClusterSpec> ClusterSpec::Parse(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return InvalidArgument("the cluster is empty: ", kForms);
  if (text[0] == '{') {
    absl::StatusOr<Json> json = Json::Parse(text);
    if (!json.ok()) return Prefixed(json.status(), "the cluster is ");
    return ClusterFromJson(*json);
  }
  // TensorFlow's form has the two separators the other way round.
  return absl::StrContains(text, '|') ? ParseList(text, ',', '|', ';')
                                      : ParseList(text, ';', '=', ',');
}

std::map<std::string, ClusterSpec::Tasks>& ClusterSpec::jobs() {
  if (jobs_.use_count() > 1) jobs_ = std::make_shared<std::map<std::string, Tasks>>(*jobs_);
  return *jobs_;
}

absl::Status ClusterSpec::Validate() const {
  if (empty()) return InvalidArgument("the cluster has no jobs");
  struct Taken {
    std::string task, address;
  };
  std::map<std::string, Taken> places;
  for (const auto& [job, tasks] : jobs()) {
    if (!ValidJob(job)) {
      return InvalidArgument("'", job,
                             "' is not a job's name: a letter, then letters, digits and '_'");
    }
    for (const auto& [number, address] : tasks) {
      if (number < 0) return InvalidArgument("job '", job, "' has a task numbered ", number);
      const std::string task = absl::StrCat("/job:", job, "/task:", number);
      RETURN_IF_ERROR(ValidateAddress(address, task));
      const std::string place = Place(address);
      if (place.empty()) continue;
      const auto [taken, is_new] = places.emplace(place, Taken{task, address});
      if (!is_new) {
        return InvalidArgument(
            "'", address, "' of ", task, " is already the address of ", taken->second.task,
            taken->second.address == address ? std::string()
                                             : absl::StrCat(" ('", taken->second.address, "')"),
            ": each task of a cluster listens at an address of its own");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ClusterSpec::Address(const TaskName& task) const {
  const auto job = jobs().find(task.job);
  if (job == jobs().end()) return NotFound("Job \"", task.job, "\" was not defined in cluster");
  const auto found = job->second.find(task.task);
  if (found == job->second.end())
    return NotFound("Task ", task.task, " was not defined in job \"", task.job, "\"");
  return found->second;
}

std::vector<TaskName> ClusterSpec::tasks() const {
  std::vector<TaskName> names;
  for (const auto& [job, tasks] : jobs()) {
    for (const auto& [number, address] : tasks) names.push_back({job, number, 0});
  }
  return names;
}

std::string ClusterSpec::ToString() const {
  std::vector<std::string> plain, json;
  bool dense = true;
  for (const auto& [job, tasks] : jobs()) {
    dense = dense && Dense(tasks) && !tasks.empty();
    std::vector<std::string> addresses, members;
    for (const auto& [number, address] : tasks) {
      addresses.push_back(address);
      members.push_back(absl::StrCat("\"", number, "\": ", JsonQuoted(address)));
    }
    plain.push_back(absl::StrCat(job, "=", absl::StrJoin(addresses, ",")));
    json.push_back(absl::StrCat(JsonQuoted(job), ": {", absl::StrJoin(members, ", "), "}"));
  }
  return dense ? absl::StrJoin(plain, ";") : absl::StrCat("{", absl::StrJoin(json, ", "), "}");
}

}  // namespace muster
