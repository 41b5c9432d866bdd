#include "muster/cli/interpreter.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/base/settings.h"
#include "muster/cli/child_process.h"
#include "muster/cli/launch_plan.h"

namespace muster {
namespace {

constexpr absl::Duration kCheckTime = absl::Seconds(20);

// Prints what is missing, without importing it: that would take as long as the start of a script.
constexpr char kCheck[] = R"python(
import importlib.machinery, importlib.util, os, sys
folder = sys.argv[1]
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
built = [os.path.join(folder, "muster", "_muster" + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES]
wanted = ["numpy", "google.protobuf", "ml_dtypes"] if folder else ["muster"]
missing = [name.replace("google.", "") for name in wanted if not there(name)]
if folder and not any(os.path.exists(path) for path in built):
    print("it is Python %d.%d, for which this Muster is not built" % sys.version_info[:2])
elif missing:
    print("it has no " + ", ".join(missing))
else:
    print("ok")
)python";

bool IsExecutable(const std::string& path) {
  std::error_code ignored;
  return access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path, ignored);
}

std::string FromPath(const char* name) {
  for (const absl::string_view folder : absl::StrSplit(EnvironmentVariable("PATH"), ':')) {
    const std::string path = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (IsExecutable(path)) return path;
  }
  return "";
}

// Whether both are the interpreter of one environment: "bin/python" and "bin/python3" are one
// program there.
bool SameEnvironment(const std::string& a, const std::string& b) {
  std::error_code failed;
  return std::filesystem::equivalent(std::filesystem::path(a).parent_path(),
                                     std::filesystem::path(b).parent_path(), failed) &&
         !failed;
}

// What an interpreter lacks to run Muster; "" for nothing.
std::string Lack(const std::string& python, const std::string& package) {
  const absl::StatusOr<ChildProcess> child = StartChild({python, "-c", kCheck, package}, {});
  if (!child.ok()) return std::string(child.status().message());
  const absl::Time deadline = absl::Now() + kCheckTime;
  std::string partial, last;
  bool open = true;
  while (open && absl::Now() < deadline) {
    pollfd waited{child->output, POLLIN, 0};
    (void)poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(deadline - absl::Now())) + 1);
    open = ReadLines(child->output, partial, [&](std::string line) { last = std::move(line); });
  }
  close(child->output);
  SignalChild(*child, SIGKILL);
  (void)waitpid(child->pid, nullptr, 0);
  if (open) return absl::StrCat("it does not answer within ", absl::FormatDuration(kCheckTime));
  return last == "ok" ? "" : last.empty() ? "it prints nothing" : last;
}

class Search {
 public:
  explicit Search(std::string package) : package_(std::move(package)) {}

  absl::StatusOr<std::string> Run() {
    // Set for this process by the command that pip installs; scripts start others.
    std::string own = EnvironmentVariable("MUSTER_INSTALLED_PYTHON");
    unsetenv("MUSTER_INSTALLED_PYTHON");
    if (own.empty()) own = MUSTER_DEFAULT_PYTHON;
    const bool own_is_there = IsExecutable(own);
    if (const std::string environment = EnvironmentVariable("VIRTUAL_ENV"); !environment.empty()) {
      const std::string python = environment + "/bin/python";
      if (own_is_there && SameEnvironment(python, own)) return python;
      if (Works(python, "the activated virtual environment's")) return python;
    }
    if (own_is_there) {
      if (!lacks_.empty()) {
        std::fprintf(stderr, "muster: %s; using %s\n", absl::StrJoin(lacks_, "; ").c_str(),
                     own.c_str());
      }
      return own;
    }
    for (const char* name : {"python3", "python"}) {
      const std::string python = FromPath(name);
      if (!python.empty() && Works(python, "PATH's")) return python;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("no Python can run Muster: ",
                     lacks_.empty() ? "there is none" : absl::StrJoin(lacks_, "; "),
                     ". Install what is missing, or name another one with --python"));
  }

 private:
  bool Works(const std::string& python, const char* whose) {
    const std::string lack =
        IsExecutable(python) ? Lack(python, package_) : std::string("there is no such program");
    if (!lack.empty()) lacks_.push_back(absl::StrCat(whose, " ", python, " cannot: ", lack));
    return lack.empty();
  }

  const std::string package_;
  std::vector<std::string> lacks_;
};

}  // namespace

absl::StatusOr<std::string> FindInterpreter(const std::string& given, const std::string& package) {
  if (!given.empty()) return given;
  if (const std::string named = EnvironmentVariable("MUSTER_PYTHON"); !named.empty()) return named;
  // A launcher asks for every task.
  static const absl::StatusOr<std::string>& found =
      *new absl::StatusOr<std::string>(Search(package).Run());
  return found;
}

}  // namespace muster
