// Runs the processes of a launch to their end.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "muster/cli/child_process.h"
#include "muster/cli/launch_peers.h"
#include "muster/cli/launch_plan.h"
#include "muster/cli/launch_screen.h"
#include "muster/cli/report_socket.h"

namespace muster {

// Lines of a process that begin with this are for the launcher: "port N" and "report JSON" of the
// remote side (launch_task.cc), "out TASK" + this + TEXT and "end TASK" of Python processes with
// several tasks.
inline constexpr char kLineForLauncher = '\x01';

// SIGINT, SIGTERM and SIGCHLD as something to read; they are blocked.
int OpenSignals();

class Launcher {
 public:
  Launcher(const LaunchFlags& flags, LaunchPlan plan, std::string script,
           std::vector<std::string> arguments);
  int Run();  // the exit status
  // Prints the arguments and TF_CONFIG of each task, and starts nothing.
  int Show() const;

 private:
  struct Process {
    PlannedProcess plan;
    std::string name;  // "worker 0"
    std::vector<size_t> tasks;
    ChildProcess child;
    std::string partial_line;
    std::deque<std::string> last_lines;
    bool reaped = false;
    int restarts = 0;
    absl::Time restart_at = absl::InfiniteFuture();
    absl::Time gone_at = absl::InfiniteFuture();  // a connection that does not end is ended
  };

  absl::Status StartAll();
  absl::Status Start(Process& process);
  absl::Status StartRemote(Process& process);
  absl::Status WaitForPorts();
  absl::StatusOr<std::vector<std::string>> Words(const Process& process) const;
  std::vector<std::pair<std::string, std::string>> Environment(const Process& process) const;
  void SendStart(Process& process, const std::vector<std::string>& words);
  bool AllEnded() const;

  void WaitForEvents();
  void ReadReports();
  void NoteReport(const std::string& json);
  void ReadOutput(size_t i);
  void HearLine(size_t i, const std::string& line);
  void PrintLine(size_t i, const std::string& name, const std::string& line);
  void ReadSignals();
  void Reap();
  void NoteEnd(size_t i, int code);
  void StartDue();
  void UpdateLink();
  void PingRemotes();
  void StopWhenDone();
  bool WorkersEnded() const;
  void Stop(int signal, absl::Duration grace);
  void SignalAll(int signal);
  void Signal(Process& process, int signal);
  void ShowProgress();
  void SayFailure();

  const LaunchFlags flags_;
  LaunchPlan plan_;
  const std::string script_;
  const std::vector<std::string> arguments_;
  const std::optional<int64_t> last_step_;
  LaunchScreen screen_;
  ReportSocket reports_;
  std::unique_ptr<LaunchPeers> peers_;
  int signals_ = -1;
  std::vector<Process> processes_;
  std::vector<TaskProgress> progress_;  // one for each task
  bool told_joined_ = false;
  bool stopping_ = false;
  bool interrupted_ = false;
  bool servers_stopped_ = false;
  absl::Time kill_at_ = absl::InfiniteFuture();
  absl::Time shown_at_ = absl::InfinitePast();
  absl::Time pinged_at_ = absl::InfinitePast();
  int64_t first_step_ = -1;
  absl::Time first_step_at_ = absl::Now();
  int failed_ = -1;
  int status_ = 0;
};

}  // namespace muster
