// muster status --target HOST:PORT: the health of the tasks of a cluster.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include <CLI/CLI.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include "muster/base/mutex.h"
#include "muster/cli/commands.h"
#include "muster/cli/security_flags.h"
#include "muster/cli/status_table.h"
#include "muster/server/task_report.h"
#include "muster/transport/api/local_address.h"
#include "muster/transport/api/task_status.h"

namespace muster {
namespace {

struct StatusFlags {
  std::string target;
  SecurityFlags security;
  bool json = false;
  bool watch = false;
  double interval_seconds = 1;
  double timeout_seconds = 5;
};

constexpr char kTask[] = "/job:target/replica:0/task:0";

// What a call brings, for a thread that waits for it.
template <typename Reply>
class Arrival {
 public:
  void Set(absl::StatusOr<Reply> reply) {
    MutexLock lock(mutex_);
    reply_ = std::move(reply);
    done_ = true;
    arrived_.NotifyAll();
  }
  absl::StatusOr<Reply> Wait() {
    MutexLock lock(mutex_);
    while (!done_) arrived_.Wait(mutex_);
    return std::move(reply_);
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<Reply> reply_ ABSL_GUARDED_BY(mutex_) = absl::UnknownError("");
};

class Target {
 public:
  static absl::StatusOr<std::unique_ptr<Target>> Connect(const StatusFlags& flags) {
    auto target = std::make_unique<Target>();
    target->address_ = std::string(absl::StripPrefix(flags.target, "grpc://"));
    const absl::StatusOr<HostPort> parsed = ParseHostPort(target->address_);
    if (!parsed.ok() || parsed->port == 0)
      return InvalidArgument("'", flags.target, "' is not a target: HOST:PORT expected");
    GrpcOptions options;
    options.scheduler = &DefaultScheduler();
    options.role = Caller::Role::kOperator;
    ASSIGN_OR_RETURN(const Settings settings, ReadSettings());
    ASSIGN_OR_RETURN(options.security, SecurityOf(flags.security, settings));
    options.links = settings.links;
    target->transport_ = NewGrpcTransport(std::move(options));
    target->worker_ =
        target->transport_->Connect(ClusterSpec({{"target", {{0, target->address_}}}}), {}, nullptr)
            ->Worker(kTask);
    target->timeout_ = absl::Seconds(flags.timeout_seconds);
    return target;
  }

  const std::string& address() const { return address_; }

  // Stock TensorFlow speaks for the one task only.
  absl::StatusOr<ClusterStatus> Ask() const {
    auto arrival = std::make_shared<Arrival<ClusterStatus>>();
    StatusRequest request;
    request.whole_cluster = true;
    StatusOf(*worker_)->Status(
        Call(), std::move(request),
        [arrival](absl::StatusOr<ClusterStatus> cluster) { arrival->Set(std::move(cluster)); });
    absl::StatusOr<ClusterStatus> cluster = arrival->Wait();
    if (!absl::IsUnimplemented(cluster.status())) return cluster;
    auto devices = std::make_shared<Arrival<std::vector<DeviceAttributes>>>();
    worker_->GetStatus(Call(), [devices](absl::StatusOr<std::vector<DeviceAttributes>> all) {
      devices->Set(std::move(all));
    });
    ASSIGN_OR_RETURN(const std::vector<DeviceAttributes> all, devices->Wait());
    if (all.empty()) return Internal("the task has no devices");
    TaskView view;
    ASSIGN_OR_RETURN(view.status.task, TaskName::Parse(all[0].name));
    view.status.is_muster = false;
    view.status.incarnation = all[0].incarnation;
    view.status.devices = static_cast<int>(all.size());
    view.heard = true;
    view.health = TaskHealth::kHealthy;
    view.explanation = "it does not tell of the others";
    ClusterStatus one;
    one.asked = view.status.task;
    one.tasks.push_back(std::move(view));
    return one;
  }

 private:
  CallOptions Call() const {
    CallOptions call;
    call.timeout = timeout_;
    return call;
  }

  std::string address_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<WorkerApi> worker_;
  absl::Duration timeout_;
};

int Fail(const std::string& target, const absl::Status& status) {
  const std::string message(status.message());
  if (target.empty()) {
    std::fprintf(stderr, "muster status: %s\n", message.c_str());
  } else {
    std::fprintf(stderr, "muster status: %s does not answer: %s\n", target.c_str(),
                 message.c_str());
  }
  return 1;
}

TableSpace SpaceOfTerminal() {
  TableSpace space;
  space.colours = isatty(STDOUT_FILENO) != 0;
  winsize size{};
  if (space.colours && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    space.columns = size.ws_col;
    space.rows = size.ws_row;
  }
  return space;
}

// What a watcher sees: on a terminal each table in the place of the one before it, elsewhere one
// after the other. A target that does not answer is waited for; that is said once, on a terminal
// with the time since then.
class WatchedOutput {
 public:
  WatchedOutput(const std::string& address, bool json)
      : address_(address), json_(json), in_place_(isatty(STDOUT_FILENO) != 0 && !json) {}

  void Show(const absl::StatusOr<ClusterStatus>& cluster) {
    const absl::Time now = absl::Now();
    const TableSpace space = SpaceOfTerminal();
    if (!cluster.ok()) {
      const bool is_new = silent_since_ == absl::InfiniteFuture();
      if (is_new) silent_since_ = now;
      const std::string message(cluster.status().message());
      if (in_place_) {
        Replace(FittedLine(absl::StrCat(address_, " does not answer for ", SecondsSince(now), ": ",
                                        message),
                           space.columns) +
                    "\n",
                space);
      } else if (is_new) {
        Say(absl::StrCat(address_, " does not answer: ", message));
      }
      return;
    }
    if (silent_since_ != absl::InfiniteFuture() && !in_place_)
      Say(absl::StrCat(address_, " answers again after ", SecondsSince(now)));
    silent_since_ = absl::InfiniteFuture();
    if (in_place_) {
      Replace(StatusTable(*cluster, address_, space), space);
    } else {
      Print(json_ ? ClusterJson(*cluster, address_) + "\n" : StatusTable(*cluster, address_, {}));
    }
  }

 private:
  std::string SecondsSince(absl::Time now) const {
    return absl::StrCat(absl::ToInt64Seconds(now - silent_since_), " s");
  }

  static void Print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  // Lines of JSON are read by programs: what is said besides goes elsewhere.
  void Say(const std::string& text) const {
    if (json_) {
      std::fprintf(stderr, "muster status: %s\n", text.c_str());
    } else {
      Print(text + "\n");
    }
  }

  // Up over what was shown last; all below is erased. Where the terminal has another size since
  // then, its lines wrap differently: the screen is cleared.
  void Replace(const std::string& text, const TableSpace& space) {
    const bool resized = space.columns != last_.columns || space.rows != last_.rows;
    std::string up;
    if (lines_ > 0) up = resized ? "\033[2J\033[H" : absl::StrCat("\033[", lines_, "A");
    Print(absl::StrCat(up, "\r\033[J", text));
    lines_ = std::count(text.begin(), text.end(), '\n');
    last_ = space;
  }

  const std::string address_;
  const bool json_, in_place_;
  absl::Time silent_since_ = absl::InfiniteFuture();
  std::ptrdiff_t lines_ = 0;
  TableSpace last_;
};

volatile std::sig_atomic_t stopped = 0;

// Until a signal.
int Watch(const Target& target, const StatusFlags& flags) {
  std::signal(SIGINT, [](int) { stopped = 1; });
  std::signal(SIGTERM, [](int) { stopped = 1; });
  WatchedOutput output(target.address(), flags.json);
  while (stopped == 0) {
    const absl::Time begun = absl::Now();
    output.Show(target.Ask());
    const absl::Time next = begun + absl::Seconds(flags.interval_seconds);
    while (stopped == 0 && absl::Now() < next)
      absl::SleepFor(std::min(next - absl::Now(), absl::Milliseconds(100)));
  }
  return 0;
}

int Run(const StatusFlags& flags) {
  const absl::StatusOr<std::unique_ptr<Target>> target = Target::Connect(flags);
  if (!target.ok()) return Fail("", target.status());
  if (flags.watch) return Watch(**target, flags);
  const absl::StatusOr<ClusterStatus> cluster = (*target)->Ask();
  if (!cluster.ok()) return Fail((*target)->address(), cluster.status());
  TableSpace space = SpaceOfTerminal();
  space.rows = 0;  // one table: the terminal scrolls
  const std::string text = flags.json ? ClusterJson(*cluster, (*target)->address()) + "\n"
                                      : StatusTable(*cluster, (*target)->address(), space);
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

void AddStatusCommand(CLI::App& app, Command& chosen) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* command =
      app.add_subcommand("status", "Show the tasks of a running cluster: health, speed, memory");
  command->add_option("--target", flags->target, "One of its tasks, HOST:PORT")->required();
  command->add_flag("--json", flags->json, "One JSON object (a line for each, with --watch)");
  command->add_flag("--watch", flags->watch, "Again and again, until Ctrl-C");
  command->add_option("--interval", flags->interval_seconds, "Seconds between, with --watch (1)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--timeout", flags->timeout_seconds, "Seconds that the target has to answer (5)")
      ->check(CLI::PositiveNumber);
  AddSecurityFlags(*command, flags->security);
  command->callback([flags, &chosen] { chosen = [flags] { return Run(*flags); }; });
}

}  // namespace muster
