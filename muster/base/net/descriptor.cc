#include "muster/base/net/descriptor.h"

#include <algorithm>

#include <sys/resource.h>
#include <unistd.h>

namespace muster {
namespace {

constexpr rlim_t kMostDescriptors = 1 << 20;

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int DescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int>(std::min(limit.rlim_cur, kMostDescriptors));
}

int RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    const rlim_t wanted = std::min(limit.rlim_max, kMostDescriptors);
    if (limit.rlim_cur < wanted) {
      limit.rlim_cur = wanted;
      setrlimit(RLIMIT_NOFILE, &limit);
    }
  }
  return DescriptorLimit();
}

}  // namespace muster
