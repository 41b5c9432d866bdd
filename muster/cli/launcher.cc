#include "muster/cli/launcher.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/base/json.h"
#include "muster/base/settings.h"
#include "muster/cli/remote_task.h"
#include "muster/cli/script.h"
#include "muster/server/status_report.h"

namespace muster {
namespace {

constexpr size_t kKeptLines = 20;

std::string NameOf(const LaunchedTask& task) {
  return absl::StrCat(task.job, " ", task.index);
}

// The argument of a Python process that runs several tasks.
std::string SharedSpec(const LaunchPlan& plan, const PlannedProcess& process) {
  std::vector<std::string> tasks;
  for (const LaunchedTask& task : process.tasks) {
    std::vector<std::string> flags;
    for (const std::string& flag : ClusterFlags(plan, task)) flags.push_back(JsonQuoted(flag));
    tasks.push_back(absl::StrCat(
        "{\"name\": ", JsonQuoted(NameOf(task)), ", \"flags\": [", absl::StrJoin(flags, ", "),
        "], \"address\": ",
        JsonQuoted((task.job == "ps" ? plan.ps : plan.workers).at(static_cast<size_t>(task.index))),
        ", \"tf_config\": ", JsonQuoted(TfConfigText(plan, task)), "}"));
  }
  return absl::StrCat("{\"closed\": ", plan.closed ? "true" : "false", ", \"tasks\": [",
                      absl::StrJoin(tasks, ", "), "]}");
}

bool IsWorker(const PlannedProcess& process) {
  return std::any_of(process.tasks.begin(), process.tasks.end(),
                     [](const LaunchedTask& task) { return task.job != "ps"; });
}

}  // namespace

int OpenSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Launcher::Launcher(const LaunchFlags& flags, LaunchPlan plan, std::string script,
                   std::vector<std::string> arguments)
    : flags_(flags),
      plan_(std::move(plan)),
      script_(std::move(script)),
      arguments_(std::move(arguments)),
      last_step_(StepsAskedFor(arguments_)),
      // Launchers of several tasks share what mpirun and srun give them, which may be a terminal.
      screen_(isatty(STDOUT_FILENO) != 0 && !flags.no_status && !plan_.peers,
              isatty(STDOUT_FILENO) != 0 && !flags.no_colour && !plan_.peers &&
                  EnvironmentVariable("NO_COLOR").empty()) {
  for (const PlannedProcess& planned : plan_.processes) {
    Process process;
    process.plan = planned;
    for (const LaunchedTask& task : planned.tasks) {
      process.tasks.push_back(progress_.size());
      TaskProgress progress;
      progress.name = NameOf(task);
      progress.is_worker = task.job != "ps";
      progress_.push_back(std::move(progress));
    }
    process.name = planned.tasks.size() == 1 ? NameOf(planned.tasks[0])
                   : plan_.closed            ? "cluster"
                                             : absl::StrCat(NameOf(planned.tasks.front()), " to ",
                                                            NameOf(planned.tasks.back()));
    processes_.push_back(std::move(process));
  }
}

int Launcher::Show() const {
  for (const PlannedProcess& process : plan_.processes) {
    for (const LaunchedTask& task : process.tasks) {
      const std::string name = NameOf(task);
      std::printf("%s: %s\n", name.c_str(), absl::StrJoin(ClusterFlags(plan_, task), " ").c_str());
      const std::string config =
          plan_.keeps_tf_config ? EnvironmentVariable("TF_CONFIG") : TfConfigText(plan_, task);
      std::printf("%s: TF_CONFIG=%s\n", name.c_str(), config.c_str());
      if (!process.ssh_host.empty())
        std::printf("%s: on %s\n", name.c_str(), process.ssh_host.c_str());
    }
  }
  return 0;
}

int Launcher::Run() {
  signals_ = OpenSignals();
  signal(SIGPIPE, SIG_IGN);  // a connection that is gone shows in its process
  if (const absl::Status started = StartAll(); !started.ok()) {
    std::fprintf(stderr, "muster launch: %s\n", std::string(started.message()).c_str());
    for (const Process& process : processes_) SignalChild(process.child, SIGKILL);
    return 2;
  }
  while (!AllEnded()) {
    WaitForEvents();
    ReadReports();
    for (size_t i = 0; i < processes_.size(); ++i) ReadOutput(i);
    ReadSignals();
    Reap();
    UpdateLink();
    StartDue();
    StopWhenDone();
    PingRemotes();
    const bool shows = !flags_.no_status && (!plan_.peers || progress_[0].is_worker);
    if (shows && !stopping_) ShowProgress();
  }
  screen_.Finish();
  if (failed_ >= 0) SayFailure();
  return status_;
}

bool Launcher::AllEnded() const {
  const bool ended = std::all_of(processes_.begin(), processes_.end(), [](const Process& process) {
    return process.reaped && process.restart_at == absl::InfiniteFuture();
  });
  return ended && (interrupted_ || peers_ == nullptr || peers_->finished());
}

absl::Status Launcher::StartAll() {
  if (plan_.peers) {
    ASSIGN_OR_RETURN(peers_, LaunchPeers::Open(*plan_.peers));
    if (plan_.peers->rank == 0) {
      screen_.Say(absl::StrCat(plan_.ps.size(), " ps and ", plan_.workers.size(), " workers run ",
                               script_));
    }
  } else if (progress_.size() > 1) {
    screen_.Say(
        absl::StrCat(plan_.ps.size(), " ps and ", plan_.workers.size(), " workers run ", script_));
  }
  const bool remote = !processes_[0].plan.ssh_host.empty();
  RETURN_IF_ERROR(Words(processes_[0]).status());  // before anything is started
  for (Process& process : processes_)
    RETURN_IF_ERROR(remote ? StartRemote(process) : Start(process));
  if (!remote) return absl::OkStatus();
  RETURN_IF_ERROR(WaitForPorts());
  for (Process& process : processes_) {
    ASSIGN_OR_RETURN(const std::vector<std::string> words, Words(process));
    SendStart(process, words);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Launcher::Words(const Process& process) const {
  if (process.tasks.size() == 1 && !plan_.shares_processes) {
    // Before the script's own, so that what the user gives wins.
    std::vector<std::string> words = ClusterFlags(plan_, process.plan.tasks[0]);
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    return ScriptCommand(script_, words, flags_.python);
  }
  ASSIGN_OR_RETURN(std::vector<std::string> words,
                   ScriptCommand(script_, arguments_, flags_.python));
  if (words.size() < 4 || words[1] != "-m") {
    return InvalidArgument("tasks that share a process are threads of a Python script; '", script_,
                           "' is a program (in C++ see LocalCluster)");
  }
  words[2] = "muster._run_tasks";
  words.insert(words.begin() + 3, SharedSpec(plan_, process.plan));
  return words;
}

std::vector<std::pair<std::string, std::string>> Launcher::Environment(
    const Process& process) const {
  std::vector<std::pair<std::string, std::string>> environment = {{"PYTHONUNBUFFERED", "1"}};
  if (!plan_.keeps_tf_config)
    environment.emplace_back("TF_CONFIG", TfConfigText(plan_, process.plan.tasks[0]));
  // A parameter server has no use for a card, and would keep some of its memory.
  if (absl::c_all_of(process.plan.tasks, [](const LaunchedTask& task) { return task.job == "ps"; }))
    environment.emplace_back("CUDA_VISIBLE_DEVICES", "");
  if (flags_.metrics_port > 0) {
    const LaunchedTask& task = process.plan.tasks[0];
    const int place = task.index + (task.job == "ps" ? 0 : static_cast<int>(plan_.ps.size()));
    environment.emplace_back("MUSTER_METRICS_PORT", absl::StrCat(flags_.metrics_port + place));
  }
  return environment;
}

absl::Status Launcher::Start(Process& process) {
  ASSIGN_OR_RETURN(const std::vector<std::string> words, Words(process));
  std::vector<std::pair<std::string, std::string>> environment = Environment(process);
  if (reports_.fd() >= 0) environment.emplace_back(StatusReport::kEnvironmentName, reports_.path());
  ASSIGN_OR_RETURN(process.child, StartChild(words, environment));
  return absl::OkStatus();
}

absl::Status Launcher::StartRemote(Process& process) {
  const std::vector<std::string> words =
      RemoteCommand(flags_.ssh, process.plan.ssh_host, flags_.remote_muster, process.plan.port);
  ASSIGN_OR_RETURN(process.child, StartChild(words, {}, /*with_input=*/true));
  return absl::OkStatus();
}

// The first thing that each remote side says.
absl::Status Launcher::WaitForPorts() {
  const absl::Time end = absl::Now() + kConnectTime;
  for (;;) {
    const auto waits = std::find_if(processes_.begin(), processes_.end(),
                                    [](const Process& process) { return process.plan.port == 0; });
    if (waits == processes_.end()) break;
    WaitForEvents();
    for (size_t i = 0; i < processes_.size(); ++i) ReadOutput(i);
    ReadSignals();
    if (interrupted_) return absl::CancelledError("interrupted");
    for (const Process& process : processes_) {
      if (process.child.output >= 0) continue;
      return absl::UnavailableError(
          absl::StrCat("cannot run on ", process.plan.ssh_host, ": ",
                       process.last_lines.empty() ? "no answer" : process.last_lines.back()));
    }
    if (absl::Now() > end)
      return absl::UnavailableError(absl::StrCat("no answer from ", waits->plan.ssh_host));
  }
  for (const Process& process : processes_) {
    const LaunchedTask& task = process.plan.tasks[0];
    std::string& address =
        (task.job == "ps" ? plan_.ps : plan_.workers)[static_cast<size_t>(task.index)];
    address = absl::StrCat(address.substr(0, address.rfind(':')), ":", process.plan.port);
  }
  return absl::OkStatus();
}

void Launcher::SendStart(Process& process, const std::vector<std::string>& words) {
  const std::string line =
      RemoteStart(words, Environment(process), flags_.variables, flags_.stop_seconds);
  (void)!write(process.child.input, line.data(), line.size());
  fcntl(process.child.input, F_SETFL, O_NONBLOCK);
}

void Launcher::WaitForEvents() {
  std::vector<pollfd> waiting = {{signals_, POLLIN, 0}};
  if (reports_.fd() >= 0) waiting.push_back({reports_.fd(), POLLIN, 0});
  for (const Process& process : processes_)
    if (process.child.output >= 0) waiting.push_back({process.child.output, POLLIN, 0});
  if (peers_ != nullptr) peers_->AddTo(waiting);
  (void)poll(waiting.data(), waiting.size(), 200);
}

void Launcher::ReadReports() {
  for (std::string json = reports_.Receive(); !json.empty(); json = reports_.Receive())
    NoteReport(json);
}

void Launcher::NoteReport(const std::string& json) {
  const absl::StatusOr<Json> report = Json::Parse(json);
  const Json* job = report.ok() ? report->Find("job") : nullptr;
  const Json* index = report.ok() ? report->Find("task") : nullptr;
  if (job == nullptr || job->string() == nullptr || index == nullptr || index->number() == nullptr)
    return;
  const std::string name = absl::StrCat(*job->string(), " ", *index->number());
  for (TaskProgress& progress : progress_)
    if (progress.name == name || (plan_.keeps_tf_config && progress_.size() == 1))
      progress.NoteReport(json, absl::Now());
}

void Launcher::ReadOutput(size_t i) {
  ChildProcess& child = processes_[i].child;
  if (child.output < 0) return;
  if (ReadLines(child.output, processes_[i].partial_line,
                [&](const std::string& line) { HearLine(i, line); })) {
    return;
  }
  close(child.output);
  child.output = -1;
}

void Launcher::HearLine(size_t i, const std::string& line) {
  Process& process = processes_[i];
  if (line.empty() || line[0] != kLineForLauncher) {
    if (process.tasks.size() == 1) progress_[process.tasks[0]].NoteLine(line);
    PrintLine(i, process.name, line);
    return;
  }
  const std::vector<std::string> parts = absl::StrSplit(line.substr(1), absl::MaxSplits(' ', 1));
  const std::string rest = parts.size() == 2 ? parts[1] : "";
  if (parts[0] == "port") {
    int port = 0;
    if (absl::SimpleAtoi(rest, &port)) process.plan.port = port;
  } else if (parts[0] == "report") {
    NoteReport(rest);
  } else if (parts[0] == "out") {
    const std::vector<std::string> out = absl::StrSplit(rest, absl::MaxSplits(kLineForLauncher, 1));
    if (out.size() != 2) return;
    for (const size_t task : process.tasks)
      if (progress_[task].name == out[0]) progress_[task].NoteLine(out[1]);
    PrintLine(i, out[0], out[1]);
  } else if (parts[0] == "end") {
    for (const size_t task : process.tasks)
      if (progress_[task].name == rest) progress_[task].ended = true;
  }
}

void Launcher::PrintLine(size_t i, const std::string& name, const std::string& line) {
  Process& process = processes_[i];
  process.last_lines.push_back(absl::StrCat("[", name, "] ", line));
  if (process.last_lines.size() > kKeptLines) process.last_lines.pop_front();
  size_t colour = process.tasks[0];
  for (const size_t task : process.tasks)
    if (progress_[task].name == name) colour = task;
  screen_.PrintLine(static_cast<int>(colour), name, line);
}

void Launcher::ReadSignals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (interrupted_) {
      SignalAll(SIGKILL);
      continue;
    }
    interrupted_ = true;
    if (status_ == 0) status_ = 128 + signal;
    screen_.Say(absl::StrCat("stops the tasks; ", signal == SIGINT ? "Ctrl-C" : "a signal",
                             " again kills them"));
    // The workers first: they may still want to save on the parameter servers.
    stopping_ = true;
    kill_at_ = absl::Now() + absl::Seconds(2 * flags_.stop_seconds);
    for (Process& process : processes_) {
      process.restart_at = absl::InfiniteFuture();
      if (!process.reaped && IsWorker(process.plan)) Signal(process, signal);
    }
  }
}

void Launcher::Reap() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    int how = 0;
    if (process.reaped || waitpid(process.child.pid, &how, WNOHANG) != process.child.pid) continue;
    process.reaped = true;
    ReadOutput(i);  // what is left of it; something it started may keep the pipe open
    if (process.child.output >= 0) {
      SignalChild(process.child, SIGKILL);
      close(process.child.output);
      process.child.output = -1;
    }
    if (process.child.input >= 0) close(process.child.input);
    process.child.input = -1;
    NoteEnd(i, WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how));
  }
}

void Launcher::NoteEnd(size_t i, int code) {
  Process& process = processes_[i];
  if (code != 0 && !stopping_ && process.restarts < flags_.max_restarts) {
    // One that fails at once is not started again and again without pause.
    const absl::Duration pause = std::min(
        absl::Seconds(10), process.restarts == 0
                               ? absl::ZeroDuration()
                               : absl::Milliseconds(250) * (1 << std::min(process.restarts, 6)));
    ++process.restarts;
    process.restart_at = absl::Now() + pause;
    screen_.Say(absl::StrCat(process.name, " failed with status ", code, "; it is started again (",
                             process.restarts, " of ", flags_.max_restarts, ")"));
    return;
  }
  for (const size_t task : process.tasks) progress_[task].ended = true;
  if (peers_ != nullptr) peers_->TellEnded(stopping_ ? 0 : code);
  if (code == 0 || stopping_) return;
  failed_ = static_cast<int>(i);
  status_ = code;
  screen_.Say(absl::StrCat(process.name, " failed; the other tasks are stopped"));
  Stop(SIGTERM, absl::Seconds(flags_.stop_seconds));
}

// With its place in the cluster: the others go on as if it had been away.
void Launcher::StartDue() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    if (stopping_ || process.restart_at > absl::Now()) continue;
    process.restart_at = absl::InfiniteFuture();
    process.partial_line.clear();
    for (const size_t task : process.tasks) progress_[task].NoteRestart();
    absl::Status started;
    if (process.plan.ssh_host.empty()) {
      started = Start(process);
    } else {
      started = StartRemote(process);
      const absl::StatusOr<std::vector<std::string>> words = Words(process);
      if (started.ok() && words.ok()) SendStart(process, *words);
    }
    process.reaped = !started.ok();
    if (started.ok()) continue;
    PrintLine(i, process.name, std::string(started.message()));
    process.restarts = flags_.max_restarts;
    NoteEnd(i, 2);
  }
}

void Launcher::UpdateLink() {
  if (peers_ == nullptr) return;
  if (progress_[0].joined && !told_joined_) {
    told_joined_ = true;
    peers_->TellJoined();
  }
  peers_->Update();
  if (!peers_->stop() || stopping_) return;
  if (status_ == 0) status_ = *peers_->stop();
  if (!peers_->reason().empty()) screen_.Say(peers_->reason());
  Stop(SIGTERM, absl::Seconds(flags_.stop_seconds));
}

void Launcher::PingRemotes() {
  if (absl::Now() - pinged_at_ < kPingInterval) return;
  pinged_at_ = absl::Now();
  for (const Process& process : processes_)
    if (process.child.input >= 0) (void)!write(process.child.input, "ping\n", 5);
}

// Parameter servers, and workers that only serve others, end with the workers that train.
void Launcher::StopWhenDone() {
  if (stopping_) {
    if (absl::Now() > kill_at_) SignalAll(SIGKILL);
    if (interrupted_ && !servers_stopped_ && WorkersEnded()) {
      servers_stopped_ = true;
      SignalAll(SIGTERM);
    }
    return;
  }
  if (peers_ != nullptr) return;  // rank 0 decides
  bool one_ended = false;
  for (const TaskProgress& progress : progress_) {
    if (!progress.is_worker) continue;
    if (!progress.ended && !progress.joined) return;
    one_ended |= progress.ended;
  }
  if (one_ended) Stop(SIGTERM, absl::Seconds(flags_.stop_seconds));
}

bool Launcher::WorkersEnded() const {
  if (peers_ != nullptr && !peers_->stop()) return false;
  return std::all_of(progress_.begin(), progress_.end(), [](const TaskProgress& progress) {
    return !progress.is_worker || progress.joined || progress.ended;
  });
}

void Launcher::Stop(int signal, absl::Duration grace) {
  stopping_ = true;
  kill_at_ = absl::Now() + grace;
  for (Process& process : processes_) process.restart_at = absl::InfiniteFuture();
  SignalAll(signal);
}

void Launcher::SignalAll(int signal) {
  for (Process& process : processes_)
    if (!process.reaped) Signal(process, signal);
}

void Launcher::Signal(Process& process, int signal) {
  if (process.plan.ssh_host.empty()) {
    SignalChild(process.child, signal);
    return;
  }
  const std::string line = absl::StrCat("signal ", signal, "\n");
  if (process.child.input >= 0) (void)!write(process.child.input, line.data(), line.size());
  if (signal != SIGKILL) return;
  // The remote side ends with what it has started. A connection over which nothing comes does not.
  if (process.gone_at == absl::InfiniteFuture()) process.gone_at = absl::Now() + absl::Seconds(2);
  if (absl::Now() > process.gone_at) SignalChild(process.child, SIGKILL);
}

void Launcher::ShowProgress() {
  const absl::Time now = absl::Now();
  if (now - shown_at_ < absl::Milliseconds(200)) return;
  shown_at_ = now;
  if (first_step_ < 0) {
    for (const TaskProgress& task : progress_) {
      if (!task.global_step || *task.global_step == 0) continue;
      first_step_ = *task.global_step;
      first_step_at_ = now;
    }
  }
  screen_.ShowProgress(
      ProgressLine(progress_, last_step_, now - first_step_at_, std::max<int64_t>(first_step_, 0)),
      now);
}

void Launcher::SayFailure() {
  const Process& process = processes_[static_cast<size_t>(failed_)];
  std::fprintf(stderr, "muster launch: %s ended with status %d; its last lines:\n",
               process.name.c_str(), status_);
  for (const std::string& line : process.last_lines) std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace muster
