#include "muster/train/saving/save_leftovers.h"

#include <algorithm>
#include <set>

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include <sys/stat.h>
#include <unistd.h>

#include "muster/base/mutex.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/file.h"
#include "muster/train/loop/notice.h"
#include "muster/transport/api/peer.h"

namespace muster {
namespace {

constexpr absl::string_view kMark = "_temp_";
constexpr absl::string_view kFileMark = ".tempstate";
constexpr size_t kIdDigits = 32;
constexpr absl::Duration kAbandoned = absl::Hours(1);

struct Process {
  uint32_t machine = 0;  // zero: unknown
  uint32_t pid = 0;
  uint32_t started = 0;
  friend bool operator==(const Process&, const Process&) = default;
};

// Machines, or what counts as one: processes that see each other by the same numbers.
uint32_t ThisMachine() {
  const std::string& boot = LocalPeer().boot_id;
  char pids[64];
  const ssize_t length = readlink("/proc/self/ns/pid", pids, sizeof(pids));
  if (boot.empty() || length <= 0) return 0;
  return Crc32c(absl::StrCat(boot, " ", absl::string_view(pids, static_cast<size_t>(length))));
}

// When a process was started; zero: there is none.
uint32_t StartOf(uint32_t pid) {
  const absl::StatusOr<std::string> stat = ReadWholeFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) return 0;
  // The name before the last bracket may have spaces. The 22nd field is what is wanted.
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(*stat).substr(stat->rfind(')') + 1), ' ');
  uint64_t ticks = 0;
  if (fields.size() < 21 || !absl::SimpleAtoi(fields[20], &ticks)) return 0;
  return static_cast<uint32_t>(ticks);
}

const Process& ThisProcess() {
  static const Process process = [] {
    const auto pid = static_cast<uint32_t>(getpid());
    return Process{ThisMachine(), pid, StartOf(pid)};
  }();
  return process;
}

uint32_t Number(absl::string_view hex) {
  uint32_t number = 0;
  return absl::SimpleHexAtoi(hex, &number) ? number : 0;
}
Process ProcessOf(absl::string_view id) {
  return {Number(id.substr(8, 8)), Number(id.substr(16, 8)), Number(id.substr(24, 8))};
}

struct UnderWay {
  Mutex mutex;
  std::multiset<std::string> prefixes ABSL_GUARDED_BY(mutex);
};
UnderWay& Saves() {
  static auto* const saves = new UnderWay;
  return *saves;
}

absl::Time ChangeOf(const std::string& name) {
  struct stat found;
  return lstat(name.c_str(), &found) == 0 ? absl::FromTimeT(found.st_mtime)
                                          : absl::InfiniteFuture();
}

bool IsUnderWay(absl::string_view prefix) {
  MutexLock lock(Saves().mutex);
  return Saves().prefixes.contains(std::string(prefix));
}

// Whether a save may be writing to the folder of `prefix`.
bool MayLive(absl::string_view prefix, absl::string_view id, const std::string& folder,
             const std::vector<std::string>& files) {
  const Process process = ProcessOf(id);
  const Process& self = ThisProcess();
  if (IsUnderWay(prefix)) return true;
  if (process.machine != 0 && process.machine == self.machine)
    return process != self && StartOf(process.pid) == process.started;
  absl::Time changed = ChangeOf(folder);
  for (const std::string& file : files) changed = std::max(changed, ChangeOf(file));
  return changed > absl::Now() - kAbandoned;
}

bool IsFolder(const std::string& name) {
  struct stat found;
  return lstat(name.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

absl::string_view WithoutStep(absl::string_view path) {
  const size_t dash = path.rfind('-');
  if (dash == absl::string_view::npos) return path;
  return IsNumber(path.substr(dash + 1)) ? path.substr(0, dash) : path;
}

void Tell(const std::string& name, const absl::Status& removed) {
  if (removed.ok()) {
    NoticeInfo("Removed ", name, ", which an interrupted save has left.");
  } else {
    NoticeWarning("Ignoring: ", removed.message());
  }
}

void RemoveFolders(const std::string& family) {
  for (const std::string& folder :
       MatchFiles(absl::StrCat(EscapePattern(family), "*", kMark, "*"))) {
    const size_t mark = absl::string_view(folder).rfind(kMark);
    const absl::string_view prefix = absl::string_view(folder).substr(0, mark);
    const absl::string_view id = absl::string_view(folder).substr(mark + kMark.size());
    if (WithoutStep(prefix) != family || id.size() != kIdDigits ||
        !std::all_of(id.begin(), id.end(), absl::ascii_isxdigit) || !IsFolder(folder)) {
      continue;
    }
    const std::vector<std::string> files = MatchFiles(absl::StrCat(EscapePattern(folder), "/*"));
    const bool is_ours = std::all_of(files.begin(), files.end(), [](const std::string& file) {
      return absl::StartsWith(BaseName(file), "part") && !IsFolder(file);
    });
    if (!is_ours || MayLive(prefix, id, folder, files)) continue;
    absl::Status removed;
    for (const std::string& file : files) removed.Update(LocalFiles().Remove(file));
    removed.Update(LocalFiles().RemoveEmptyDirectory(folder));
    Tell(folder, removed);
  }
}

void RemoveFiles(const std::string& family) {
  for (const std::string& file :
       MatchFiles(absl::StrCat(EscapePattern(family), "*", kFileMark, "*"))) {
    const size_t mark = absl::string_view(file).rfind(kFileMark);
    const absl::string_view number = absl::string_view(file).substr(mark + kFileMark.size());
    const absl::string_view whole = absl::string_view(file).substr(0, mark);
    const absl::string_view prefix = whole.substr(0, whole.rfind('.'));
    if (WithoutStep(prefix) != family || !IsNumber(number) || IsFolder(file) ||
        IsUnderWay(prefix) || ChangeOf(file) > absl::Now() - kAbandoned) {
      continue;
    }
    Tell(file, LocalFiles().Remove(file));
  }
}

}  // namespace

std::string NewSaveId() {
  absl::BitGen random;
  const Process& self = ThisProcess();
  return absl::StrFormat("%08x%08x%08x%08x", absl::Uniform<uint32_t>(random), self.machine,
                         self.pid, self.started);
}

SaveUnderWay::SaveUnderWay(std::string prefix) : prefix_(std::move(prefix)) {
  MutexLock lock(Saves().mutex);
  Saves().prefixes.insert(prefix_);
}

SaveUnderWay::~SaveUnderWay() {
  MutexLock lock(Saves().mutex);
  Saves().prefixes.erase(Saves().prefixes.find(prefix_));
}

void RemoveSaveLeftovers(const std::string& path) {
  const std::string family(WithoutStep(path));
  RemoveFolders(family);
  RemoveFiles(family);
}

}  // namespace muster
