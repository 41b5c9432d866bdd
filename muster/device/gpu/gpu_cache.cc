#include "muster/device/gpu/gpu_cache.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "muster/base/settings.h"

namespace muster {
namespace {

constexpr char kMagic[] = "muster gpu function 1\n";

// FNV-1a. Collisions do no harm: the file holds its key.
uint64_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string PathOf(const std::string& folder, const std::string& key) {
  return absl::StrCat(folder, "/", absl::StrFormat("%016x", HashOf(key)), ".gpu");
}

bool MakeFolder(const std::string& path) {
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

void AppendPart(std::string& to, absl::string_view part) {
  absl::StrAppend(&to, part.size(), "\n", part);
}

bool TakePart(absl::string_view& from, std::string& part) {
  const size_t end = from.substr(0, 24).find('\n');
  uint64_t size = 0;
  if (end == absl::string_view::npos || !absl::SimpleAtoi(from.substr(0, end), &size)) return false;
  from.remove_prefix(end + 1);
  if (size > from.size()) return false;
  part = std::string(from.substr(0, size));
  from.remove_prefix(size);
  return true;
}

}  // namespace

std::string GpuCacheFolder() {
  std::string folder = EnvironmentVariable("MUSTER_CACHE");
  if (folder.empty()) {
    std::string caches = EnvironmentVariable("XDG_CACHE_HOME");
    if (caches.empty()) {
      const std::string home = EnvironmentVariable("HOME");
      if (home.empty()) return "";
      caches = home + "/.cache";
    }
    if (!MakeFolder(caches)) return "";
    folder = caches + "/muster";
  }
  if (!MakeFolder(folder)) return "";
  // What is in it runs on the card as this user's.
  struct stat found;
  if (stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return "";
  return folder;
}

std::optional<GpuBinary> ReadGpuCache(const std::string& folder, const std::string& key) {
  if (folder.empty()) return std::nullopt;
  std::ifstream file(PathOf(folder, key), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  absl::string_view rest = bytes;
  if (rest.substr(0, sizeof(kMagic) - 1) != kMagic) return std::nullopt;
  rest.remove_prefix(sizeof(kMagic) - 1);
  std::string found_key, sum;
  GpuBinary binary;
  if (!TakePart(rest, found_key) || found_key != key || !TakePart(rest, binary.lowered_name) ||
      !TakePart(rest, binary.cubin) || !TakePart(rest, sum) || !rest.empty())
    return std::nullopt;
  if (sum != absl::StrCat(HashOf(binary.cubin))) return std::nullopt;
  return binary;
}

void WriteGpuCache(const std::string& folder, const std::string& key, const GpuBinary& binary) {
  if (folder.empty()) return;
  std::string bytes = kMagic;
  AppendPart(bytes, key);
  AppendPart(bytes, binary.lowered_name);
  AppendPart(bytes, binary.cubin);
  AppendPart(bytes, absl::StrCat(HashOf(binary.cubin)));
  static std::atomic<int> number{0};
  const std::string path = PathOf(folder, key);
  const std::string fresh = absl::StrCat(path, ".", getpid(), ".", number.fetch_add(1));
  const int file = open(fresh.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return;
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = write(file, bytes.data() + written, bytes.size() - written);
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  close(file);
  if (written != bytes.size() || rename(fresh.c_str(), path.c_str()) != 0) unlink(fresh.c_str());
}

}  // namespace muster
