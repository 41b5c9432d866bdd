#include "muster/device/gpu/gpu_history.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "muster/device/gpu/gpu_programs.h"

namespace muster {
namespace {

// Steps that are under way at once are few.
constexpr size_t kMostKept = 64;
constexpr size_t kMostNamed = 12;
constexpr size_t kLongestName = 160;

}  // namespace

void GpuHistory::Add(GpuFunctions functions) {
  MutexLock lock(mutex_);
  added_.push_back({++last_, std::move(functions)});
  if (added_.size() > kMostKept) added_.pop_front();
}

uint64_t GpuHistory::last() const {
  MutexLock lock(mutex_);
  return last_;
}

void GpuHistory::NoteDone(uint64_t last) {
  MutexLock lock(mutex_);
  while (!added_.empty() && added_.front().number <= last) added_.pop_front();
}

std::string GpuHistory::Candidates(const GpuPrograms& programs) const {
  std::vector<cuda::Function> functions;
  {
    MutexLock lock(mutex_);
    for (const Added& added : added_) {
      for (const cuda::Function function : *added.functions) {
        if (std::find(functions.begin(), functions.end(), function) == functions.end())
          functions.push_back(function);
      }
    }
  }
  if (functions.empty()) return "Nothing is known to have run.";
  std::string text;
  const size_t named = std::min(functions.size(), kMostNamed);
  for (size_t i = 0; i < named; ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ",
                    functions[i] == nullptr
                        ? "a call of a library"
                        : programs.NameOf(functions[i]).substr(0, kLongestName));
  if (functions.size() == 1) return absl::StrCat("It comes from ", text, ".");
  if (named < functions.size())
    absl::StrAppend(&text, " and ", functions.size() - named, " others");
  return absl::StrCat("It comes from one of: ", text, "; MUSTER_GPU_WAIT=1 finds out which.");
}

}  // namespace muster
