#include "muster/checkpoint/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/strip.h"
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace muster {
namespace {

// Larger than any number of pieces a caller hands over at once would need; the system's own limit.
constexpr size_t kMaxPieces = IOV_MAX;
// Smaller writes are left to the system to gather.
constexpr uint64_t kWriteBehindBytes = 256 << 10;

class LocalOutputFile : public OutputFile {
 public:
  LocalOutputFile(std::string name, int descriptor)
      : name_(std::move(name)), descriptor_(descriptor) {}
  ~LocalOutputFile() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  absl::Status WriteAt(uint64_t offset, absl::Span<const absl::string_view> pieces) override {
    std::vector<iovec> parts;
    parts.reserve(pieces.size());
    for (absl::string_view piece : pieces) {
      if (!piece.empty()) parts.push_back({const_cast<char*>(piece.data()), piece.size()});
    }
    const uint64_t begin = offset;
    size_t next = 0;
    while (next < parts.size()) {
      const auto count = static_cast<int>(std::min(parts.size() - next, kMaxPieces));
      const ssize_t wrote = ::pwritev(descriptor_, &parts[next], count, static_cast<off_t>(offset));
      if (wrote < 0) {
        if (errno == EINTR) continue;
        return FileError(name_, errno);
      }
      offset += static_cast<uint64_t>(wrote);
      auto rest = static_cast<size_t>(wrote);
      while (next < parts.size() && rest >= parts[next].iov_len) rest -= parts[next++].iov_len;
      if (rest > 0) {
        parts[next].iov_base = static_cast<char*>(parts[next].iov_base) + rest;
        parts[next].iov_len -= rest;
      }
    }
    // The disk begins now, so that Sync finds little left to wait for. A hint: errors of the disk
    // are Sync's to report.
    if (offset - begin >= kWriteBehindBytes) {
      static_cast<void>(::sync_file_range(descriptor_, static_cast<off_t>(begin),
                                          static_cast<off_t>(offset - begin),
                                          SYNC_FILE_RANGE_WRITE));
    }
    return absl::OkStatus();
  }

  // Without room for the whole file the system grows it piece by piece. A file system that cannot
  // make room, or has none, reports it when the bytes are written.
  void Reserve(uint64_t bytes) override {
    if (bytes > 0) static_cast<void>(::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)));
  }

  absl::Status Sync() override {
    return ::fsync(descriptor_) == 0 ? absl::OkStatus() : FileError(name_, errno);
  }

  absl::Status Close() override {
    const int descriptor = std::exchange(descriptor_, -1);
    return ::close(descriptor) == 0 ? absl::OkStatus() : FileError(name_, errno);
  }

 private:
  const std::string name_;
  int descriptor_;
};

absl::Status StatusOf(int result, absl::string_view name) {
  return result == 0 ? absl::OkStatus() : FileError(name, errno);
}

class LocalFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& name) override {
    const int descriptor =
        ::open(LocalPath(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) return FileError(name, errno);
    return std::unique_ptr<OutputFile>(std::make_unique<LocalOutputFile>(name, descriptor));
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return StatusOf(std::rename(LocalPath(from).c_str(), LocalPath(to).c_str()), from);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return StatusOf(::link(LocalPath(from).c_str(), LocalPath(to).c_str()), to);
  }
  absl::Status Remove(const std::string& name) override {
    return StatusOf(::unlink(LocalPath(name).c_str()), name);
  }
  absl::Status RemoveEmptyDirectory(const std::string& name) override {
    return StatusOf(::rmdir(LocalPath(name).c_str()), name);
  }
  absl::Status MakeDirectory(const std::string& name) override {
    // A file of that name: creating something in it reports the error.
    if (::mkdir(LocalPath(name).c_str(), 0777) == 0 || errno == EEXIST) return absl::OkStatus();
    return FileError(name, errno);
  }
  absl::Status SyncDirectory(const std::string& name) override {
    const int descriptor = ::open(LocalPath(name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return FileError(name, errno);
    const int result = ::fsync(descriptor);
    const int error = errno;
    ::close(descriptor);
    // Some file systems cannot do it for directories; then there is nothing to wait for.
    if (result != 0 && error != EINVAL && error != ENOTSUP) return FileError(name, error);
    return absl::OkStatus();
  }
};

}  // namespace

std::string LocalPath(absl::string_view name) {
  return std::string(absl::StripPrefix(name, "file://"));
}

absl::Status FileError(absl::string_view name, int error) {
  const std::string text = absl::StrCat(name, "; ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text);
    case EEXIST:
      return absl::AlreadyExistsError(text);
    case EISDIR:
    case ENOTDIR:
    case ENOTEMPTY:
      return absl::FailedPreconditionError(text);
    case ENAMETOOLONG:
    case EINVAL:
      return absl::InvalidArgumentError(text);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::UnknownError(text);
  }
}

FileSystem& LocalFiles() {
  static LocalFileSystem files;
  return files;
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& name) {
  const int descriptor = ::open(LocalPath(name).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError(name, errno);
  InputFile file(name, descriptor, 0);
  struct stat about;
  if (::fstat(descriptor, &about) != 0) return FileError(name, errno);
  if (S_ISDIR(about.st_mode)) return FileError(name, EISDIR);
  file.size_ = static_cast<uint64_t>(about.st_size);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : name_(std::move(other.name_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status InputFile::ReadAt(uint64_t offset, absl::Span<char> into) const {
  // Also keeps offsets that a signed number could not hold away from the system.
  if (offset > size_ || into.size() > size_ - offset) {
    return OutOfRange("Read less bytes than requested: ", into.size(), " bytes at ", offset, " of ",
                      name_, ", which has ", size_);
  }
  while (!into.empty()) {
    const ssize_t got = ::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      return FileError(name_, errno);
    }
    if (got == 0) return OutOfRange("Read less bytes than requested: ", name_, " became shorter");
    into.remove_prefix(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& name) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(name));
  std::string contents(file.size(), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(contents)));
  return contents;
}

bool FileExists(const std::string& name) {
  struct stat about;
  return ::stat(LocalPath(name).c_str(), &about) == 0;
}

std::vector<std::string> MatchFiles(const std::string& pattern) {
  const size_t slash = pattern.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : pattern.substr(0, slash + 1);
  const std::string last = pattern.substr(folder.size());
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : LocalPath(folder), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (::fnmatch(last.c_str(), name.c_str(), 0) == 0) found.push_back(folder + name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string EscapePattern(absl::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (absl::string_view("*?[\\").find(c) != absl::string_view::npos) escaped.push_back('\\');
    escaped.push_back(c);
  }
  return escaped;
}

std::string DirectoryOf(absl::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(name.substr(0, std::max<size_t>(slash, 1)));
}

absl::string_view BaseName(absl::string_view name) {
  const size_t slash = name.rfind('/');
  return slash == absl::string_view::npos ? name : name.substr(slash + 1);
}

std::string TemporaryName(absl::string_view name) {
  // Several processes may write side by side on shared storage: each starts at a random number.
  static std::atomic<uint64_t> next = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) ^ device();
  }();
  return absl::StrCat(name, ".tempstate", next.fetch_add(0x9e3779b97f4a7c15u));
}

absl::Status WriteFileAtomically(const std::string& name, absl::string_view contents,
                                 FileSystem& files) {
  const std::string temporary = TemporaryName(name);
  const auto write = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, files.Create(temporary));
    RETURN_IF_ERROR(file->WriteAt(0, {contents}));
    RETURN_IF_ERROR(file->Sync());
    RETURN_IF_ERROR(file->Close());
    return files.Rename(temporary, name);
  };
  if (absl::Status status = write(); !status.ok()) {
    files.Remove(temporary).IgnoreError();  // the first error tells more
    return status;
  }
  return files.SyncDirectory(DirectoryOf(name));
}

}  // namespace muster
