#include "muster/base/system_memory.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include <unistd.h>

namespace muster {
namespace {

constexpr int64_t kMega = int64_t{1} << 20;

// The files of a system.
class FakeSystem : public testing::Test {
 protected:
  FakeSystem() {
    std::string pattern = testing::TempDir() + "/muster_system_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    Write("/proc/meminfo",
          "MemTotal:       8192000 kB\nMemFree: 1 kB\nMemAvailable:  4096000 kB\nSwapFree: 0 kB\n");
  }
  ~FakeSystem() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void WriteGroup2(const std::string& folder, const std::string& max, int64_t current,
                   int64_t file = 0) {
    Write(folder + "/memory.max", max + "\n");
    Write(folder + "/memory.current", absl::StrCat(current, "\n"));
    Write(folder + "/memory.stat", absl::StrCat("anon 7\nfile 99\ninactive_file ", file / 2,
                                                "\nactive_file ", file / 2, "\n"));
  }
  SystemMemory::Room Available() { return SystemMemory(root_).Available(); }

  std::string root_;
};

TEST_F(FakeSystem, TheMachineCountsWithItsSwap) {
  EXPECT_EQ(Available().available_bytes, int64_t{4096000} * 1024);
  EXPECT_EQ(Available().limit_bytes, int64_t{8192000} * 1024);
  EXPECT_EQ(Available().holder, "the machine");
  Write("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 10 kB\nSwapFree: 5 kB\n");
  EXPECT_EQ(Available().available_bytes, 15 * 1024);
}

TEST_F(FakeSystem, TheInnermostGroupOfVersion2Counts) {
  Write("/proc/self/cgroup", "0::/kube/pod/task\n");
  Write("/proc/self/mountinfo",
        "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  WriteGroup2("/sys/fs/cgroup/kube/pod/task", absl::StrCat(1000 * kMega), 600 * kMega, 100 * kMega);
  EXPECT_EQ(Available().available_bytes, 500 * kMega);
  EXPECT_EQ(Available().limit_bytes, 1000 * kMega);
  EXPECT_EQ(Available().holder, "the cgroup /sys/fs/cgroup/kube/pod/task");
  // More than it may have, as after its limit was lowered.
  WriteGroup2("/sys/fs/cgroup/kube/pod/task", "1000", 600 * kMega);
  EXPECT_EQ(Available().available_bytes, 0);
}

TEST_F(FakeSystem, GroupsOnTheWayUpCount) {
  Write("/proc/self/cgroup", "0::/kube/pod/task\n");
  Write("/proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  WriteGroup2("/sys/fs/cgroup/kube/pod/task", "max", 600 * kMega);
  WriteGroup2("/sys/fs/cgroup/kube/pod", absl::StrCat(900 * kMega), 800 * kMega);
  WriteGroup2("/sys/fs/cgroup/kube", absl::StrCat(2000 * kMega), 800 * kMega);
  EXPECT_EQ(Available().available_bytes, 100 * kMega);
  EXPECT_EQ(Available().holder, "the cgroup /sys/fs/cgroup/kube/pod");
}

TEST_F(FakeSystem, Version1CountsBesideVersion2) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
  Write("/proc/self/mountinfo",
        "34 31 0:31 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  const std::string folder = "/sys/fs/cgroup/memory/docker/abc";
  Write(folder + "/memory.limit_in_bytes", absl::StrCat(1000 * kMega, "\n"));
  Write(folder + "/memory.usage_in_bytes", absl::StrCat(900 * kMega, "\n"));
  Write(folder + "/memory.stat", absl::StrCat("inactive_file 1\ntotal_inactive_file ", 20 * kMega,
                                              "\ntotal_active_file ", 30 * kMega, "\n"));
  // As version 1 says that there is no limit.
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  EXPECT_EQ(Available().available_bytes, 150 * kMega);
}

TEST_F(FakeSystem, AContainerSeesItsPartOnly) {
  Write("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
  Write("/proc/self/mountinfo",
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  Write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", absl::StrCat(10 * kMega));
  Write("/sys/fs/cgroup/memory/inner/memory.usage_in_bytes", absl::StrCat(kMega));
  EXPECT_EQ(Available().available_bytes, 9 * kMega);
  // A path that is not mounted here: the limits of the visible part hold.
  Write("/proc/self/cgroup", "4:memory:/elsewhere\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", absl::StrCat(5 * kMega));
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", absl::StrCat(kMega));
  EXPECT_EQ(Available().available_bytes, 4 * kMega);
}

TEST_F(FakeSystem, NonsenseIsNoLimit) {
  Write("/proc/meminfo", "nothing\n");
  Write("/proc/self/cgroup", "0:\n:::\n0::/x\n");
  Write("/proc/self/mountinfo", "29 - cgroup2\n- -\n1 2 3 / /g rw - cgroup2 a b\n");
  WriteGroup2("/g/x", "many", 1);
  EXPECT_EQ(Available().available_bytes, INT64_MAX);
}

TEST(SystemMemory, ThisMachineHasSome) {
  EXPECT_GT(SystemMemory().Available().available_bytes, 0);
}

}  // namespace
}  // namespace muster
