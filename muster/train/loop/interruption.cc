#include "muster/train/loop/interruption.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "muster/base/mutex.h"

namespace muster {
namespace {

struct Signal {
  int number;
  const char* name;     // in the payload of the error
  const char* message;  // of the error, as in Python
};
constexpr Signal kSignals[] = {{SIGINT, "SIGINT", "Interrupted"},
                               {SIGTERM, "SIGTERM", "Terminated"}};
// A payload that marks an interruption.
constexpr char kSignalUrl[] = "muster/signal";

// The signal that has interrupted the program, or 0. Handlers may only touch what is lock-free.
std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free);
thread_local int uninterrupted_depth = 0;

using Handler = void (*)(int);

// Replaces the action of those signals that have the action `from`. Async-signal-safe.
void Replace(Handler from, Handler to) {
  for (const Signal& signal : kSignals) {
    struct sigaction action = {};
    if (sigaction(signal.number, nullptr, &action) != 0 || action.sa_handler != from) continue;
    action = {};
    action.sa_handler = to;
    action.sa_flags = SA_RESTART;  // system calls of the program do not see it
    for (const Signal& other : kSignals) sigaddset(&action.sa_mask, other.number);
    sigaction(signal.number, &action, nullptr);
  }
}

void Catch(int number) {
  const int error = errno;
  int none = 0;
  caught.compare_exchange_strong(none, number);
  Replace(Catch, SIG_DFL);
  errno = error;
}

// The handlers are there as long as one of these is.
class Catcher {
 public:
  Catcher() {
    MutexLock lock(Catchers().mutex);
    if (Catchers().count++ > 0) return;
    Replace(SIG_DFL, Catch);
    // A signal between the two has restored the action of one only.
    if (caught != 0) Replace(Catch, SIG_DFL);
  }
  ~Catcher() {
    MutexLock lock(Catchers().mutex);
    if (--Catchers().count > 0) return;
    Replace(Catch, SIG_DFL);
    caught = 0;
  }
  Catcher(const Catcher&) = delete;
  Catcher& operator=(const Catcher&) = delete;

 private:
  struct All {
    Mutex mutex;
    int count ABSL_GUARDED_BY(mutex) = 0;
  };
  static All& Catchers() {
    static auto* all = new All;  // functions may go while the process ends
    return *all;
  }
};

absl::Status Interruption(const Signal& signal) {
  absl::Status status = absl::CancelledError(signal.message);
  status.SetPayload(kSignalUrl, absl::Cord(signal.name));
  return status;
}

absl::Status Pending() {
  const int number = caught;
  for (const Signal& signal : kSignals)
    if (signal.number == number) return Interruption(signal);
  return absl::OkStatus();
}

const Signal* SignalOf(const absl::Status& status) {
  const auto name = status.GetPayload(kSignalUrl);
  if (!name.has_value()) return nullptr;
  for (const Signal& signal : kSignals)
    if (*name == signal.name) return &signal;
  return nullptr;
}

// The first line of an error that says something; errors of tasks begin with a line that names the
// task.
std::string FirstSentence(const absl::Status& error) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(error.message(), '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.find_first_not_of(" =") == absl::string_view::npos) continue;
    lines.emplace_back(line);
    if (lines.size() == 2 || line.back() != ':') break;
  }
  return lines.empty() ? absl::StatusCodeToString(error.code()) : absl::StrJoin(lines, " ");
}

}  // namespace

Interrupted CatchInterruptions() {
  return [catcher = std::make_shared<Catcher>()] {
    return uninterrupted_depth > 0 ? absl::OkStatus() : Pending();
  };
}

bool IsInterruption(const absl::Status& status) {
  return SignalOf(status) != nullptr;
}

int ExitStatus(const absl::Status& status) {
  if (const Signal* const signal = SignalOf(status)) return 128 + signal->number;
  return status.ok() ? 0 : 1;
}

Uninterrupted::Uninterrupted() {
  ++uninterrupted_depth;
}

Uninterrupted::~Uninterrupted() {
  --uninterrupted_depth;
}

absl::Status InterruptionOf(const absl::Status& error, const Interrupted& interrupted) {
  if (const Signal* const signal = SignalOf(error)) return Interruption(*signal);
  const bool clean = error.ok() || absl::IsOutOfRange(error);
  // What `interrupted` does is not known: Python's would raise what is pending.
  return clean && interrupted ? Pending() : absl::OkStatus();
}

absl::Status InterruptionWith(const absl::Status& interruption,
                              const absl::StatusOr<std::vector<std::string>>& saved) {
  if (!saved.ok())
    return Suffixed(interruption, absl::StrCat("; not saved: ", FirstSentence(saved.status())));
  if (saved->empty()) return interruption;
  return Suffixed(interruption, absl::StrCat("; saved ", absl::StrJoin(*saved, ", ")));
}

}  // namespace muster
