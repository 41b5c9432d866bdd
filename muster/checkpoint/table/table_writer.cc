#include "muster/checkpoint/table/table_writer.h"

#include <algorithm>
#include <utility>

#include "muster/base/check.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/table/coding.h"
#include "muster/checkpoint/table/table_reader.h"

namespace muster {
namespace {

constexpr size_t kBlockSize = 262144;

size_t SharedPrefix(absl::string_view a, absl::string_view b) {
  const size_t length = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(length), b.begin()).first -
      a.begin());
}

// A short string in [low, high).
std::string Separator(absl::string_view low, absl::string_view high) {
  const size_t at = SharedPrefix(low, high);
  if (at < std::min(low.size(), high.size())) {
    const auto byte = static_cast<unsigned char>(low[at]);
    if (byte + 1 < static_cast<unsigned char>(high[at])) {
      return absl::StrCat(low.substr(0, at), std::string(1, static_cast<char>(byte + 1)));
    }
  }
  return std::string(low);
}

// A short string that is not below `key`.
std::string Successor(absl::string_view key) {
  const size_t at = key.find_first_not_of('\xff');
  if (at == absl::string_view::npos) return std::string(key);
  return absl::StrCat(key.substr(0, at), std::string(1, static_cast<char>(key[at] + 1)));
}

}  // namespace

void TableWriter::Block::Add(absl::string_view key, absl::string_view value) {
  size_t shared = 0;
  if (since_restart_ == restart_interval_) {
    restarts_.push_back(static_cast<uint32_t>(contents_.size()));
    since_restart_ = 0;
  } else {
    shared = SharedPrefix(last_key_, key);
  }
  AppendVarint(contents_, shared);
  AppendVarint(contents_, key.size() - shared);
  AppendVarint(contents_, value.size());
  contents_.append(key.data() + shared, key.size() - shared);
  contents_.append(value.data(), value.size());
  last_key_.assign(key.data(), key.size());
  ++since_restart_;
}

std::string TableWriter::Block::Take() {
  for (uint32_t restart : restarts_) AppendFixed32(contents_, restart);
  AppendFixed32(contents_, static_cast<uint32_t>(restarts_.size()));
  restarts_ = {0};
  since_restart_ = 0;
  last_key_.clear();
  return std::exchange(contents_, {});
}

std::string TableWriter::Write(std::string block) {
  std::string handle;
  AppendVarint(handle, file_.size());
  AppendVarint(handle, block.size());
  block.push_back(kRawBlock);
  AppendFixed32(block, MaskCrc32c(Crc32c(block)));
  file_ += block;
  return handle;
}

void TableWriter::CloseDataBlock() {
  if (!data_.empty()) waiting_handle_ = Write(data_.Take());
}

void TableWriter::Add(absl::string_view key, absl::string_view value) {
  if (key.size() + value.size() >= 2 * kBlockSize) CloseDataBlock();
  if (!waiting_handle_.empty()) {
    index_.Add(Separator(last_key_, key), waiting_handle_);
    waiting_handle_.clear();
  }
  DCHECK(file_.empty() || key > last_key_);
  last_key_.assign(key.data(), key.size());
  data_.Add(key, value);
  if (data_.EstimatedSize() >= kBlockSize) CloseDataBlock();
}

std::string TableWriter::Finish() && {
  CloseDataBlock();
  std::string footer = Write(Block(1).Take());  // the meta index, which is empty
  if (!waiting_handle_.empty()) index_.Add(Successor(last_key_), waiting_handle_);
  footer += Write(index_.Take());
  footer.resize(kTableFooterSize - 8, '\0');
  AppendFixed64(footer, kTableMagic);
  file_ += footer;
  return std::move(file_);
}

}  // namespace muster
