#include "muster/cli/remote_task.h"

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/base/json.h"
#include "muster/base/settings.h"
#include "muster/cli/child_process.h"
#include "muster/cli/launcher.h"
#include "muster/cli/report_socket.h"
#include "muster/server/status_report.h"
#include "muster/transport/api/local_address.h"

namespace muster {
namespace {

std::string ShellQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

bool IsCarried(absl::string_view name) {
  for (const char* prefix : {"MUSTER_", "TF_", "PYTHON", "OMP_", "CUDA_", "NVIDIA_", "GRPC_"})
    if (absl::StartsWith(name, prefix)) return name != StatusReport::kEnvironmentName;
  return name == "LD_LIBRARY_PATH" || name == "VIRTUAL_ENV";
}

std::string QuotedList(const std::vector<std::string>& words) {
  return absl::StrCat("[",
                      absl::StrJoin(words, ", ",
                                    [](std::string* out, const std::string& word) {
                                      absl::StrAppend(out, JsonQuoted(word));
                                    }),
                      "]");
}

std::vector<std::string> Strings(const Json* list) {
  std::vector<std::string> strings;
  if (list == nullptr || list->list() == nullptr) return strings;
  for (const Json& item : *list->list())
    if (item.string() != nullptr) strings.push_back(*item.string());
  return strings;
}

void SayToLauncher(const std::string& text) {
  std::printf("%c%s\n", kLineForLauncher, text.c_str());
  std::fflush(stdout);
}

class RemoteTask {
 public:
  explicit RemoteTask(ReservedPort port) : port_(std::move(port)) {}

  int Run() {
    signals_ = OpenSignals();
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    SayToLauncher(absl::StrCat("port ", port_.port()));
    while (!code_) {
      WaitForEvents();
      ReadInput();
      ReadSignals();
      for (std::string report = reports_.Receive(); !report.empty(); report = reports_.Receive())
        SayToLauncher("report " + report);
      ReadOutput();
      Reap();
      if (absl::Now() - heard_at_ > kSilenceTime) End();
      if (absl::Now() > kill_at_) SignalChild(child_, SIGKILL);
    }
    SignalChild(child_, SIGKILL);  // what the task has left behind
    return *code_;
  }

 private:
  void WaitForEvents() {
    std::vector<pollfd> waiting = {{signals_, POLLIN, 0}};
    if (!ending_) waiting.push_back({STDIN_FILENO, POLLIN, 0});
    if (child_.output >= 0) waiting.push_back({child_.output, POLLIN, 0});
    if (reports_.fd() >= 0) waiting.push_back({reports_.fd(), POLLIN, 0});
    (void)poll(waiting.data(), waiting.size(), 200);
  }

  void ReadInput() {
    if (ending_) return;
    const bool open = ReadLines(
        STDIN_FILENO, input_,
        [&](const std::string& line) {
          heard_at_ = absl::Now();
          int signal = 0;
          if (absl::StartsWith(line, "{") && child_.pid < 0) {
            Start(line);
          } else if (absl::StartsWith(line, "signal ") &&
                     absl::SimpleAtoi(line.substr(7), &signal)) {
            if (child_.pid < 0) code_ = 128 + signal;
            SignalChild(child_, signal);
          }
        },
        kMaxOrder);
    if (!open) End();
  }

  void Start(const std::string& line) {
    const absl::StatusOr<Json> order = Json::Parse(line);
    const std::vector<std::string> words = Strings(order.ok() ? order->Find("words") : nullptr);
    std::vector<std::pair<std::string, std::string>> environment;
    for (const std::string& variable : Strings(order.ok() ? order->Find("environment") : nullptr)) {
      const size_t equals = variable.find('=');
      environment.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
    }
    if (reports_.fd() >= 0)
      environment.emplace_back(StatusReport::kEnvironmentName, reports_.path());
    if (const Json* seconds = order.ok() ? order->Find("stop_seconds") : nullptr;
        seconds != nullptr && seconds->number() != nullptr) {
      stop_time_ = absl::Seconds(*seconds->number());
    }
    absl::StatusOr<ChildProcess> child =
        words.empty() ? InvalidArgument("the launcher's order is not understood")
                      : StartChild(words, environment);
    if (child.ok()) {
      child_ = *child;
      return;
    }
    std::printf("%s\n", std::string(child.status().message()).c_str());
    code_ = 2;
  }

  void ReadSignals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof(info)) == sizeof(info))
      if (info.ssi_signo != SIGCHLD) End();
  }

  void ReadOutput() {
    if (child_.output < 0) return;
    const bool open = ReadLines(child_.output, partial_, [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    });
    if (open) return;
    close(child_.output);
    child_.output = -1;
  }

  void Reap() {
    int how = 0;
    if (child_.pid < 0 || waitpid(child_.pid, &how, WNOHANG) != child_.pid) return;
    ReadOutput();
    code_ = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
  }

  // The launcher is gone: no one needs the task any more.
  void End() {
    if (ending_) return;
    ending_ = true;
    if (child_.pid < 0) code_ = 1;
    SignalChild(child_, SIGTERM);
    kill_at_ = absl::Now() + stop_time_;
    heard_at_ = absl::InfiniteFuture();
  }

  static constexpr size_t kMaxOrder = 16 << 20;  // the environment and all addresses

  const ReservedPort port_;
  ReportSocket reports_;
  int signals_ = -1;
  ChildProcess child_;
  std::string input_;
  std::string partial_;
  bool ending_ = false;
  absl::Duration stop_time_ = absl::Seconds(5);
  absl::Time heard_at_ = absl::Now();
  absl::Time kill_at_ = absl::InfiniteFuture();
  std::optional<int> code_;
};

}  // namespace

std::vector<std::string> RemoteCommand(const std::string& ssh, const std::string& host,
                                       const std::string& muster, int port) {
  std::vector<std::string> words = absl::StrSplit(ssh, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  char path[PATH_MAX] = {};
  std::string program = muster;
  if (program.empty() && readlink("/proc/self/exe", path, sizeof(path) - 1) > 0) program = path;
  char folder[PATH_MAX] = ".";
  if (getcwd(folder, sizeof(folder)) == nullptr) folder[0] = '.';
  words.push_back(host);
  words.push_back(absl::StrCat("cd ", ShellQuoted(folder), " && exec ", ShellQuoted(program),
                               " launch-task --port ", port));
  return words;
}

std::string RemoteStart(const std::vector<std::string>& words,
                        const std::vector<std::pair<std::string, std::string>>& given,
                        const std::vector<std::string>& variables, double stop_seconds) {
  const std::map<std::string, std::string> own = WholeEnvironment();
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : own) {
    if (IsCarried(name)) environment[name] = value;
  }
  for (const std::string& variable : variables) {
    const std::string name = variable.substr(0, variable.find('='));
    if (name.size() < variable.size()) {
      environment[name] = variable.substr(name.size() + 1);
    } else if (const auto here = own.find(name); here != own.end()) {
      environment[name] = here->second;
    }
  }
  for (const auto& [name, value] : given) environment[name] = value;
  std::vector<std::string> all;
  for (const auto& [name, value] : environment) all.push_back(absl::StrCat(name, "=", value));
  return absl::StrCat("{\"words\": ", QuotedList(words), ", \"environment\": ", QuotedList(all),
                      ", \"stop_seconds\": ", stop_seconds, "}\n");
}

int RunRemoteTask(int port) {
  absl::StatusOr<ReservedPort> reserved = ReservedPort::Take("", port);
  if (!reserved.ok()) {
    std::fprintf(stderr, "muster launch-task: %s\n",
                 std::string(reserved.status().message()).c_str());
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);  // the end of its input says the same
  return RemoteTask(*std::move(reserved)).Run();
}

}  // namespace muster
