// Reads sorted tables (see table_writer.h) from files that may hold anything.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/checkpoint/file.h"

namespace muster {

inline constexpr size_t kTableFooterSize = 48;
inline constexpr uint64_t kTableMagic = 0xdb4775248b80fb57u;
inline constexpr char kRawBlock = 0;
inline constexpr char kSnappyBlock = 1;

// Thread-safe. Blocks are read when a key in them is wanted; the last one is kept.
class TableReader {
 public:
  // DataLoss "not an sstable (bad magic number)" and its kin, in TensorFlow's words.
  static absl::StatusOr<std::unique_ptr<TableReader>> Open(const std::string& name);

  // The value of a key, or nothing; an error only when the block that would hold it is damaged.
  absl::StatusOr<std::optional<std::string>> Get(absl::string_view key) const;
  // All entries in order, until one is not taken.
  absl::Status ForEach(
      absl::FunctionRef<absl::Status(absl::string_view key, absl::string_view value)> visit) const;
  const std::string& file_name() const { return file_.name(); }

 private:
  struct Handle {
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  struct Block {
    std::string contents;
    std::vector<std::pair<std::string, absl::string_view>> entries;  // values point into `contents`
  };

  explicit TableReader(InputFile file) : file_(std::move(file)) {}
  static std::optional<Handle> TakeHandle(absl::string_view& in);
  absl::StatusOr<std::unique_ptr<Block>> Read(const Handle& handle) const;
  absl::StatusOr<std::shared_ptr<const Block>> DataBlock(size_t i) const;

  const InputFile file_;
  std::vector<std::pair<std::string, Handle>> index_;  // by the last key a block may hold
  mutable Mutex mutex_;
  mutable size_t kept_index_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::shared_ptr<const Block> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
