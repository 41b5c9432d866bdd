// Files as checkpoints need them: written under another name, made durable, then renamed into
// place. Everything that changes the disk goes through FileSystem, so that a test can stop it
// anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"

namespace muster {

// What the system calls a file: names may begin with "file://", as those of TensorFlow do. Whatever
// takes the name of a file here takes such names.
std::string LocalPath(absl::string_view name);
// A status for errno, in TensorFlow's words: "<name>; No such file or directory".
absl::Status FileError(absl::string_view name, int error);

// A file that is being written. Thread-safe but for Close.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  // Announces the final size of the file, so that space can be allocated. A hint.
  virtual void Reserve(uint64_t /*bytes*/) {}
  // Writes the pieces one after the other, from `offset` on.
  virtual absl::Status WriteAt(uint64_t offset, absl::Span<const absl::string_view> pieces) = 0;
  // Returns when what was written would survive a loss of power.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

// Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // A new, empty file; one that was there is emptied.
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& name) = 0;
  // Replaces `to`, in one step as readers see it.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // A second name for the same file; it must not be there yet.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  virtual absl::Status RemoveEmptyDirectory(const std::string& name) = 0;
  // Fine when it is there already.
  virtual absl::Status MakeDirectory(const std::string& name) = 0;
  // Makes names that were added to or taken from a directory durable.
  virtual absl::Status SyncDirectory(const std::string& name) = 0;
};
FileSystem& LocalFiles();

// A file that is being read. Thread-safe.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& name);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }
  // OutOfRange "Read less bytes than requested" when the file ends before.
  absl::Status ReadAt(uint64_t offset, absl::Span<char> into) const;

 private:
  InputFile(std::string name, int descriptor, uint64_t size)
      : name_(std::move(name)), descriptor_(descriptor), size_(size) {}
  std::string name_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

absl::StatusOr<std::string> ReadWholeFile(const std::string& name);
bool FileExists(const std::string& name);
// Names (with their folders) that match a pattern of the shell (*, ?, [...]) in the last component,
// sorted. A folder that cannot be read holds none.
std::vector<std::string> MatchFiles(const std::string& pattern);
// Characters with a meaning in patterns, made to stand for themselves.
std::string EscapePattern(absl::string_view text);
// The folder of a file, "." when its name has none.
std::string DirectoryOf(absl::string_view name);
absl::string_view BaseName(absl::string_view name);

// `name` with a unique ending: "<name>.tempstate<number>".
std::string TemporaryName(absl::string_view name);

// Readers of `name` see the old contents or the new ones, also after a loss of power.
absl::Status WriteFileAtomically(const std::string& name, absl::string_view contents,
                                 FileSystem& files = LocalFiles());

}  // namespace muster
