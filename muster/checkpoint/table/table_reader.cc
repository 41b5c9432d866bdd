#include "muster/checkpoint/table/table_reader.h"

#include <algorithm>

#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/table/coding.h"
#include "muster/checkpoint/table/snappy.h"

namespace muster {
namespace {

constexpr size_t kTrailerSize = 5;  // type, checksum
// More than a block can hold: one entry with a message of the largest size.
constexpr uint64_t kMaxBlockSize = uint64_t{1} << 32;

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(what);
}

// Entries of a block whose checksum was right; all numbers in it are checked nevertheless.
absl::Status ParseEntries(absl::string_view contents,
                          std::vector<std::pair<std::string, absl::string_view>>& entries) {
  if (contents.size() < 4) return Damaged("bad block contents");
  const uint64_t restarts = DecodeFixed32(contents.data() + contents.size() - 4);
  if (restarts > (contents.size() - 4) / 4) return Damaged("bad block contents");
  absl::string_view rest = contents.substr(0, contents.size() - 4 - 4 * restarts);
  std::string key;
  while (!rest.empty()) {
    const std::optional<uint32_t> shared = TakeVarint32(rest);
    const std::optional<uint32_t> unshared = shared ? TakeVarint32(rest) : std::nullopt;
    const std::optional<uint32_t> length = unshared ? TakeVarint32(rest) : std::nullopt;
    if (!length || *shared > key.size()) return Damaged("bad entry in block");
    const std::optional<absl::string_view> end = TakeBytes(rest, *unshared);
    const std::optional<absl::string_view> value = end ? TakeBytes(rest, *length) : std::nullopt;
    if (!value) return Damaged("bad entry in block");
    key.resize(*shared);
    key.append(end->data(), end->size());
    entries.emplace_back(key, *value);
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<TableReader::Handle> TableReader::TakeHandle(absl::string_view& in) {
  const std::optional<uint64_t> offset = TakeVarint64(in);
  const std::optional<uint64_t> size = offset ? TakeVarint64(in) : std::nullopt;
  if (!size) return std::nullopt;
  return Handle{*offset, *size};
}

absl::StatusOr<std::unique_ptr<TableReader>> TableReader::Open(const std::string& name) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(name));
  if (file.size() < kTableFooterSize) return Damaged("file is too short to be an sstable");
  char footer[kTableFooterSize];
  RETURN_IF_ERROR(file.ReadAt(file.size() - kTableFooterSize, absl::MakeSpan(footer)));
  if (DecodeFixed64(footer + kTableFooterSize - 8) != kTableMagic)
    return Damaged("not an sstable (bad magic number)");
  absl::string_view handles(footer, kTableFooterSize - 8);
  const std::optional<Handle> meta_index = TakeHandle(handles);
  const std::optional<Handle> index = meta_index ? TakeHandle(handles) : std::nullopt;
  if (!index) return Damaged("bad block handle");

  std::unique_ptr<TableReader> table(new TableReader(std::move(file)));
  ASSIGN_OR_RETURN(const std::unique_ptr<Block> block, table->Read(*index));
  for (auto& [key, value] : block->entries) {
    absl::string_view encoded = value;
    const std::optional<Handle> handle = TakeHandle(encoded);
    if (!handle) return Damaged("bad block handle");
    table->index_.emplace_back(key, *handle);
  }
  return table;
}

absl::StatusOr<std::unique_ptr<TableReader::Block>> TableReader::Read(const Handle& handle) const {
  const uint64_t available = file_.size();
  if (handle.size > kMaxBlockSize || handle.offset > available ||
      handle.size + kTrailerSize > available - handle.offset) {
    return Damaged("truncated block read");
  }
  std::string contents(handle.size + kTrailerSize, '\0');
  RETURN_IF_ERROR(file_.ReadAt(handle.offset, absl::MakeSpan(contents)));
  const absl::string_view checked = absl::string_view(contents).substr(0, handle.size + 1);
  if (UnmaskCrc32c(DecodeFixed32(contents.data() + handle.size + 1)) != Crc32c(checked))
    return Damaged("block checksum mismatch");
  const char type = contents[handle.size];
  contents.resize(handle.size);
  auto block = std::make_unique<Block>();
  if (type == kRawBlock) {
    block->contents = std::move(contents);
  } else if (type == kSnappyBlock) {
    std::optional<std::string> text = UncompressSnappy(contents, kMaxBlockSize);
    if (!text) return Damaged("corrupted compressed block contents");
    block->contents = *std::move(text);
  } else {
    return Damaged("bad block type");
  }
  RETURN_IF_ERROR(ParseEntries(block->contents, block->entries));
  return block;
}

absl::StatusOr<std::shared_ptr<const TableReader::Block>> TableReader::DataBlock(size_t i) const {
  {
    MutexLock lock(mutex_);
    if (kept_ != nullptr && kept_index_ == i) return kept_;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const Block> block, Read(index_[i].second));
  MutexLock lock(mutex_);
  kept_ = block;
  kept_index_ = i;
  return block;
}

absl::StatusOr<std::optional<std::string>> TableReader::Get(absl::string_view key) const {
  const auto by_key = [](const auto& entry, absl::string_view wanted) {
    return absl::string_view(entry.first) < wanted;
  };
  const auto place = std::lower_bound(index_.begin(), index_.end(), key, by_key);
  if (place == index_.end()) return std::nullopt;
  ASSIGN_OR_RETURN(const std::shared_ptr<const Block> block,
                   DataBlock(static_cast<size_t>(place - index_.begin())));
  const auto entry = std::lower_bound(block->entries.begin(), block->entries.end(), key, by_key);
  if (entry == block->entries.end() || entry->first != key) return std::nullopt;
  return std::string(entry->second);
}

absl::Status TableReader::ForEach(
    absl::FunctionRef<absl::Status(absl::string_view, absl::string_view)> visit) const {
  for (size_t i = 0; i < index_.size(); ++i) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Block> block, DataBlock(i));
    for (const auto& [key, value] : block->entries) RETURN_IF_ERROR(visit(key, value));
  }
  return absl::OkStatus();
}

}  // namespace muster
