// What tests of this layer share: a folder of their own, and a disk that can stop.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/base/mutex.h"
#include "muster/checkpoint/file.h"

namespace muster {

// Removed with everything in it.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = ::testing::TempDir() + "/muster_checkpoint_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(absl::string_view name) const { return absl::StrCat(path_, "/", name); }

 private:
  std::string path_;
};

// Writes a file without fsync: tests need not survive a loss of power.
inline void WriteQuickly(const std::string& name, absl::string_view contents) {
  LocalFiles().Remove(name).IgnoreError();  // ext4 flushes files that are truncated and rewritten
  const absl::StatusOr<std::unique_ptr<OutputFile>> file = LocalFiles().Create(name);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->WriteAt(0, {contents}).ok());
}

// The local disk, until `operations` have changed it: after that nothing happens any more, as after
// a crash. The operation that stops may have been half done.
class StoppingFiles : public FileSystem {
 public:
  explicit StoppingFiles(int operations = 1 << 30) : left_(operations) {}
  bool stopped() const {
    MutexLock lock(mutex_);
    return left_ < 0;
  }

  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& name) override {
    RETURN_IF_ERROR(Count());
    ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, LocalFiles().Create(name));
    MutexLock lock(mutex_);
    not_durable_.insert(name);
    return std::unique_ptr<OutputFile>(std::make_unique<File>(*this, name, std::move(file)));
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    RETURN_IF_ERROR(Count());
    {
      MutexLock lock(mutex_);
      EXPECT_FALSE(not_durable_.contains(from)) << from;
    }
    return LocalFiles().Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    RETURN_IF_ERROR(Count());
    return LocalFiles().Link(from, to);
  }
  absl::Status Remove(const std::string& name) override {
    RETURN_IF_ERROR(Count());
    return LocalFiles().Remove(name);
  }
  absl::Status RemoveEmptyDirectory(const std::string& name) override {
    RETURN_IF_ERROR(Count());
    return LocalFiles().RemoveEmptyDirectory(name);
  }
  absl::Status MakeDirectory(const std::string& name) override {
    RETURN_IF_ERROR(Count());
    return LocalFiles().MakeDirectory(name);
  }
  absl::Status SyncDirectory(const std::string& name) override {
    return FileExists(name) ? Count() : absl::NotFoundError(name);
  }

 private:
  class File : public OutputFile {
   public:
    File(StoppingFiles& disk, std::string name, std::unique_ptr<OutputFile> file)
        : disk_(disk), name_(std::move(name)), file_(std::move(file)) {}
    absl::Status WriteAt(uint64_t offset, absl::Span<const absl::string_view> pieces) override {
      if (absl::Status status = disk_.Count(); !status.ok()) {
        // Half of the first piece has come to the disk.
        if (!pieces.empty())
          file_->WriteAt(offset, {pieces[0].substr(0, pieces[0].size() / 2)}).IgnoreError();
        return status;
      }
      return file_->WriteAt(offset, pieces);
    }
    absl::Status Sync() override {
      RETURN_IF_ERROR(disk_.Count());
      MutexLock lock(disk_.mutex_);
      disk_.not_durable_.erase(name_);
      return absl::OkStatus();  // the machine goes on; waiting for its disk would show nothing
    }
    absl::Status Close() override {
      RETURN_IF_ERROR(disk_.Count());
      return file_->Close();
    }

   private:
    StoppingFiles& disk_;
    const std::string name_;
    std::unique_ptr<OutputFile> file_;
  };

  absl::Status Count() {
    MutexLock lock(mutex_);
    if (left_ > 0) {
      --left_;
      return absl::OkStatus();
    }
    left_ = -1;
    return absl::UnknownError("the disk has stopped");
  }

  mutable Mutex mutex_;
  int left_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> not_durable_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
