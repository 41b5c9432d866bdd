#include "muster/cli/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "muster/base/settings.h"

namespace muster {
namespace {

std::vector<std::string> FullEnvironment(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::map<std::string, std::string> environment = WholeEnvironment();
  for (const auto& [name, value] : added) environment[name] = value;
  std::vector<std::string> all;
  for (const auto& [name, value] : environment) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<ChildProcess> StartChild(
    const std::vector<std::string>& words,
    const std::vector<std::pair<std::string, std::string>>& environment, bool with_input) {
  int out[2];
  int in[2] = {-1, -1};
  if (pipe2(out, O_CLOEXEC) != 0)
    return absl::UnknownError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  if (with_input && pipe2(in, O_CLOEXEC) != 0) {
    close(out[0]);
    close(out[1]);
    return absl::UnknownError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  // Everything that allocates comes before the fork.
  std::vector<std::string> variables = FullEnvironment(environment);
  std::vector<std::string> arguments = words;
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(variables);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    for (const int fd : {out[0], out[1], in[0], in[1]})
      if (fd >= 0) close(fd);
    return absl::UnknownError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
  }
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    dup2(with_input ? in[0] : open("/dev/null", O_RDONLY), 0);
    dup2(out[1], 1);
    dup2(out[1], 2);
    execvpe(argv[0], argv.data(), envp.data());
    static constexpr char kMessage[] = "cannot be started: no such program\n";
    (void)!write(2, kMessage, sizeof(kMessage) - 1);
    _exit(127);
  }
  setpgid(pid, pid);  // whichever of the two is first
  close(out[1]);
  if (with_input) close(in[0]);
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  return ChildProcess{pid, out[0], in[1]};
}

bool ReadLines(int fd, std::string& partial, absl::FunctionRef<void(std::string)> line,
               size_t max_line) {
  char text[65536];
  for (;;) {
    const ssize_t length = read(fd, text, sizeof(text));
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (length <= 0) {
      if (!partial.empty()) line(std::exchange(partial, ""));
      return false;
    }
    for (const char c : absl::string_view(text, static_cast<size_t>(length))) {
      if (c != '\n' && partial.size() < max_line) {
        partial.push_back(c);
      } else {
        line(std::exchange(partial, c == '\n' ? "" : std::string(1, c)));
      }
    }
  }
}

void SignalChild(const ChildProcess& child, int signal) {
  if (child.pid > 0) kill(-child.pid, signal);
}

}  // namespace muster
