// muster launch: a whole cluster on this machine, one process for each task, running one script or
// program.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include <CLI/CLI.hpp>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/base/json.h"
#include "muster/cli/child_process.h"
#include "muster/cli/commands.h"
#include "muster/cli/launch_screen.h"
#include "muster/cli/script.h"
#include "muster/server/status_report.h"
#include "muster/transport/local_address.h"

namespace muster {
namespace {

struct LaunchFlags {
  int ps = 1;
  int workers = 1;
  bool no_colour = false;
  bool no_status = false;
  double stop_seconds = 5;
};

struct Task {
  std::string job;
  int index = 0;
  ChildProcess process;
  std::string partial_line;
  bool reaped = false;
  int code = 0;
};

// A socket that the servers of the tasks report to; its folder goes with it.
class ReportSocket {
 public:
  ReportSocket() {
    const char* parent = std::getenv("TMPDIR");
    std::string folder = absl::StrCat(parent != nullptr ? parent : "/tmp", "/muster-XXXXXX");
    if (mkdtemp(folder.data()) == nullptr) return;
    folder_ = folder;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path().size() >= sizeof(address.sun_path)) return;
    std::memcpy(address.sun_path, path().c_str(), path().size() + 1);
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(fd_);
      fd_ = -1;
    }
  }
  ~ReportSocket() {
    if (fd_ >= 0) close(fd_);
    if (folder_.empty()) return;
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  ReportSocket(const ReportSocket&) = delete;
  ReportSocket& operator=(const ReportSocket&) = delete;

  // -1: there is no progress to show beyond what the tasks print.
  int fd() const { return fd_; }
  std::string path() const { return folder_ + "/status"; }

 private:
  std::string folder_;
  int fd_ = -1;
};

absl::StatusOr<std::vector<std::string>> FreeAddresses(int count) {
  std::vector<ReservedPort> held;  // all of them until the last is chosen, so that they differ
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(ReservedPort port, ReservedPort::Take("localhost", 0));
    addresses.push_back(absl::StrCat("localhost:", port.port()));
    held.push_back(std::move(port));
  }
  return addresses;
}

std::string JsonList(const std::vector<std::string>& words) {
  return absl::StrCat("[\"", absl::StrJoin(words, "\", \""), "\"]");
}

// SIGINT, SIGTERM and SIGCHLD as something to read.
int OpenSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

class Launch {
 public:
  Launch(const LaunchFlags& flags, std::string script, std::vector<std::string> arguments)
      : flags_(flags),
        script_(std::move(script)),
        arguments_(std::move(arguments)),
        last_step_(StepsAskedFor(arguments_)),
        screen_(
            isatty(STDOUT_FILENO) != 0 && !flags.no_status,
            isatty(STDOUT_FILENO) != 0 && !flags.no_colour && std::getenv("NO_COLOR") == nullptr) {}

  int Run() {
    signals_ = OpenSignals();
    if (const absl::Status started = StartAll(); !started.ok()) {
      std::fprintf(stderr, "muster launch: %s\n", std::string(started.message()).c_str());
      for (const Task& task : tasks_) SignalChild(task.process, SIGKILL);
      return 2;
    }
    while (!std::all_of(tasks_.begin(), tasks_.end(), [](const Task& t) { return t.reaped; })) {
      WaitForEvents();
      ReadReports();
      for (size_t i = 0; i < tasks_.size(); ++i) ReadOutput(i);
      ReadSignals();
      Reap();
      StopWhenDone();
      if (!flags_.no_status && !stopping_) ShowProgress();
    }
    screen_.Finish();
    if (failed_ >= 0) SayFailure();
    return status_;
  }

 private:
  absl::Status StartAll() {
    ASSIGN_OR_RETURN(const std::vector<std::string> all, FreeAddresses(flags_.ps + flags_.workers));
    const std::vector<std::string> ps(all.begin(), all.begin() + flags_.ps);
    const std::vector<std::string> workers(all.begin() + flags_.ps, all.end());
    std::string cluster = absl::StrCat("{\"worker\": ", JsonList(workers));
    if (!ps.empty()) absl::StrAppend(&cluster, ", \"ps\": ", JsonList(ps));
    cluster += "}";
    screen_.Say(absl::StrCat(flags_.ps, " ps and ", flags_.workers, " workers run ", script_));
    for (int i = 0; i < flags_.ps + flags_.workers; ++i) {
      Task task;
      task.job = i < flags_.ps ? "ps" : "worker";
      task.index = i < flags_.ps ? i : i - flags_.ps;
      // Before the script's own, so that what the user gives wins.
      std::vector<std::string> words = {
          absl::StrCat("--ps_hosts=", absl::StrJoin(ps, ",")),
          absl::StrCat("--worker_hosts=", absl::StrJoin(workers, ",")),
          absl::StrCat("--job_name=", task.job), absl::StrCat("--task_index=", task.index)};
      words.insert(words.end(), arguments_.begin(), arguments_.end());
      ASSIGN_OR_RETURN(words, ScriptCommand(script_, words));
      std::vector<std::pair<std::string, std::string>> environment = {
          {"TF_CONFIG", absl::StrCat("{\"cluster\": ", cluster, ", \"task\": {\"type\": \"",
                                     task.job, "\", \"index\": ", task.index, "}}")},
          {"PYTHONUNBUFFERED", "1"}};
      if (reports_.fd() >= 0)
        environment.emplace_back(StatusReport::kEnvironmentName, reports_.path());
      ASSIGN_OR_RETURN(task.process, StartChild(words, environment));
      TaskProgress progress;
      progress.name = absl::StrCat(task.job, " ", task.index);
      progress.is_worker = task.job == "worker";
      tasks_.push_back(std::move(task));
      progress_.push_back(std::move(progress));
    }
    return absl::OkStatus();
  }

  void WaitForEvents() {
    std::vector<pollfd> waiting = {{signals_, POLLIN, 0}};
    if (reports_.fd() >= 0) waiting.push_back({reports_.fd(), POLLIN, 0});
    for (const Task& task : tasks_)
      if (task.process.output >= 0) waiting.push_back({task.process.output, POLLIN, 0});
    (void)poll(waiting.data(), waiting.size(), 200);
  }

  void ReadReports() {
    char text[4096];
    for (;;) {
      const ssize_t length = reports_.fd() < 0 ? -1 : recv(reports_.fd(), text, sizeof(text), 0);
      if (length <= 0) return;
      const absl::string_view json(text, static_cast<size_t>(length));
      const absl::StatusOr<Json> report = Json::Parse(json);
      const Json* job = report.ok() ? report->Find("job") : nullptr;
      const Json* index = report.ok() ? report->Find("task") : nullptr;
      if (job == nullptr || job->string() == nullptr || index == nullptr ||
          index->number() == nullptr) {
        continue;
      }
      for (size_t i = 0; i < tasks_.size(); ++i) {
        if (tasks_[i].job == *job->string() && tasks_[i].index == *index->number())
          progress_[i].NoteReport(json, absl::Now());
      }
    }
  }

  void ReadOutput(size_t i) {
    Task& task = tasks_[i];
    char text[65536];
    while (task.process.output >= 0) {
      const ssize_t length = read(task.process.output, text, sizeof(text));
      if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (length <= 0) {
        close(task.process.output);
        task.process.output = -1;
        if (!task.partial_line.empty()) PrintLine(i, std::exchange(task.partial_line, ""));
        return;
      }
      for (const char c : absl::string_view(text, static_cast<size_t>(length))) {
        if (c != '\n' && task.partial_line.size() < kMaxLine) {
          task.partial_line.push_back(c);
        } else {
          PrintLine(i, std::exchange(task.partial_line, c == '\n' ? "" : std::string(1, c)));
        }
      }
    }
  }

  void PrintLine(size_t i, const std::string& line) {
    progress_[i].NoteLine(line);
    screen_.PrintLine(static_cast<int>(i), progress_[i].name, line);
  }

  void ReadSignals() {
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
      for (size_t i = 0; i < tasks_.size(); ++i)
        if (!tasks_[i].reaped && progress_[i].is_worker) SignalChild(tasks_[i].process, signal);
    }
  }

  void Reap() {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      Task& task = tasks_[i];
      int how = 0;
      if (task.reaped || waitpid(task.process.pid, &how, WNOHANG) != task.process.pid) continue;
      task.reaped = progress_[i].ended = true;
      task.code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
      ReadOutput(i);  // what is left of it; something it started may keep the pipe open
      if (task.process.output >= 0) {
        SignalChild(task.process, SIGKILL);
        close(task.process.output);
        task.process.output = -1;
      }
      if (task.code == 0 || stopping_) continue;
      failed_ = static_cast<int>(i);
      status_ = task.code;
      screen_.Say(absl::StrCat(progress_[i].name, " failed; the other tasks are stopped"));
      Stop(SIGTERM, absl::Seconds(flags_.stop_seconds));
    }
  }

  // Parameter servers, and workers that only serve others, end with the workers that train.
  void StopWhenDone() {
    if (stopping_) {
      if (absl::Now() > kill_at_) SignalAll(SIGKILL);
      if (interrupted_ && !servers_stopped_ && WorkersEnded()) {
        servers_stopped_ = true;
        SignalAll(SIGTERM);
      }
      return;
    }
    bool one_ended = false;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (!progress_[i].is_worker) continue;
      if (!tasks_[i].reaped && !progress_[i].joined) return;
      one_ended |= tasks_[i].reaped;
    }
    if (one_ended) Stop(SIGTERM, absl::Seconds(flags_.stop_seconds));
  }

  bool WorkersEnded() const {
    for (size_t i = 0; i < tasks_.size(); ++i)
      if (progress_[i].is_worker && !progress_[i].joined && !tasks_[i].reaped) return false;
    return true;
  }

  void Stop(int signal, absl::Duration grace) {
    stopping_ = true;
    kill_at_ = absl::Now() + grace;
    SignalAll(signal);
  }

  void SignalAll(int signal) {
    for (const Task& task : tasks_)
      if (!task.reaped) SignalChild(task.process, signal);
  }

  void ShowProgress() {
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
    screen_.ShowProgress(ProgressLine(progress_, last_step_, now - first_step_at_,
                                      std::max<int64_t>(first_step_, 0)),
                         now);
  }

  void SayFailure() {
    const TaskProgress& task = progress_[static_cast<size_t>(failed_)];
    std::fprintf(stderr, "muster launch: %s ended with status %d; its last lines:\n",
                 task.name.c_str(), status_);
    for (const std::string& line : task.last_lines)
      std::fprintf(stderr, "[%s] %s\n", task.name.c_str(), line.c_str());
  }

  static constexpr size_t kMaxLine = 65536;

  const LaunchFlags flags_;
  const std::string script_;
  const std::vector<std::string> arguments_;
  const std::optional<int64_t> last_step_;
  LaunchScreen screen_;
  ReportSocket reports_;
  int signals_ = -1;
  std::vector<Task> tasks_;
  std::vector<TaskProgress> progress_;  // one for each task
  bool stopping_ = false;
  bool interrupted_ = false;
  bool servers_stopped_ = false;
  absl::Time kill_at_ = absl::InfiniteFuture();
  absl::Time shown_at_ = absl::InfinitePast();
  int64_t first_step_ = -1;
  absl::Time first_step_at_ = absl::Now();
  int failed_ = -1;
  int status_ = 0;
};

}  // namespace

void AddLaunchCommand(CLI::App& app, Command& chosen) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* command = app.add_subcommand(
      "launch",
      "Run a script or a program as a whole cluster on this machine: muster launch --ps 1 "
      "--workers 2 SCRIPT [ARGUMENTS]");
  command->add_option("--ps", flags->ps, "parameter servers (1)")->check(CLI::Range(0, 1000));
  command->add_option("--workers", flags->workers, "workers (1)")->check(CLI::Range(1, 1000));
  command->add_option("--stop_seconds", flags->stop_seconds,
                      "how long tasks have to end before they are killed (5)");
  command->add_flag("--no_colour,--no_color", flags->no_colour, "names of tasks without colours");
  command->add_flag("--no_status", flags->no_status, "no line of progress");
  command->prefix_command();
  command->callback([command, flags, &chosen] {
    std::vector<std::string> words = command->remaining();
    if (words.empty() || absl::StartsWith(words.front(), "-")) {
      const std::string why = words.empty() ? "which script?" : "unknown flag " + words.front();
      chosen = [why] {
        std::fprintf(stderr,
                     "muster launch: %s usage: muster launch [--ps N] [--workers M] SCRIPT "
                     "[ARGUMENTS]\n",
                     why.c_str());
        return 2;
      };
      return;
    }
    const std::string script = words.front();
    words.erase(words.begin());
    chosen = [flags, script, words] { return Launch(*flags, script, words).Run(); };
  });
}

}  // namespace muster
