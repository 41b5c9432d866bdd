#include "muster/checkpoint/bundle_writer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "muster/checkpoint/bundle_commit.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/table/coding.h"
#include "muster/checkpoint/table/table_writer.h"

namespace muster {
namespace {

// What one thread checksums and writes at a time: large enough for the disk, small enough to stay
// in its cache from the one to the other.
constexpr size_t kJobBytes = size_t{1} << 20;
constexpr size_t kJobPieces = 512;
constexpr double kNanosecondsPerByte = 0.4;

// Lengths as varints, their checksum, then all the text. The checksum runs over the lengths as
// numbers of 4 bytes (8 where needed), the stored checksum and the text.
std::string EncodeStrings(const Tensor& tensor, uint32_t& crc) {
  std::string out;
  crc = 0;
  size_t total = 0;
  for (const std::string& text : tensor.values<std::string>()) {
    AppendVarint(out, text.size());
    std::string length;
    if (text.size() <= UINT32_MAX) {
      AppendFixed32(length, static_cast<uint32_t>(text.size()));
    } else {
      AppendFixed64(length, text.size());
    }
    crc = ExtendCrc32c(crc, length);
    total += text.size();
  }
  std::string stored;
  AppendFixed32(stored, MaskCrc32c(crc));
  crc = ExtendCrc32c(crc, stored);
  out.reserve(out.size() + stored.size() + total);
  out += stored;
  for (const std::string& text : tensor.values<std::string>()) {
    out += text;
    crc = ExtendCrc32c(crc, text);
  }
  return out;
}

absl::StatusOr<std::string> EncodeVariants(const Tensor& tensor, uint32_t& crc) {
  std::string out;
  crc = 0;
  for (const Variant& value : tensor.values<Variant>()) {
    ASSIGN_OR_RETURN(const std::string bytes, SerializeVariant(value));
    AppendVarint(out, bytes.size());
    std::string length;
    AppendFixed64(length, bytes.size());
    crc = ExtendCrc32c(ExtendCrc32c(crc, length), bytes);
    out += bytes;
    std::string stored;
    AppendFixed32(stored, MaskCrc32c(crc));
    crc = ExtendCrc32c(crc, stored);
    out += stored;
  }
  return out;
}

}  // namespace

absl::Status BundleWriter::Add(const std::string& name, Tensor tensor) {
  static_assert(std::endian::native == std::endian::little, "data is written in host order");
  if (!tensor.valid()) return InvalidArgument("Tensor ", name, " has no value to save");
  if (name.empty()) return InvalidArgument("Adding a tensor without a name");
  if (tensor.dtype() == DType::kResource) {
    return Unimplemented("Resource handles cannot be saved: tensor ", name);
  }
  // Encoded before anything changes: a value that cannot be is refused whole.
  std::string encoded;
  uint32_t crc = 0;
  if (tensor.dtype() == DType::kString) encoded = EncodeStrings(tensor, crc);
  if (tensor.dtype() == DType::kVariant) {
    absl::StatusOr<std::string> bytes = EncodeVariants(tensor, crc);
    if (!bytes.ok()) return Suffixed(bytes.status(), absl::StrCat(": tensor ", name));
    encoded = *std::move(bytes);
  }
  const auto [place, is_new] = entries_.try_emplace(name);
  if (!is_new) return InvalidArgument("Adding duplicate key: ", name);
  BundleEntry& entry = place->second;
  entry.dtype = tensor.dtype();
  entry.shape = tensor.shape();
  entry.offset = size_;
  Piece piece{&entry, {}, !IsPlainData(tensor.dtype())};
  if (piece.has_crc) {
    entry.masked_crc = MaskCrc32c(crc);
    encoded_.push_back(std::move(encoded));
    piece.bytes = encoded_.back();
  } else {
    entry.masked_crc = MaskCrc32c(0);  // of no bytes; what is written changes it
    piece.bytes = absl::string_view(tensor.raw(), tensor.size_bytes());
    held_.push_back(std::move(tensor));
  }
  entry.size = static_cast<int64_t>(piece.bytes.size());
  size_ += entry.size;
  if (!piece.bytes.empty()) pieces_.push_back(piece);
  return absl::OkStatus();
}

absl::Status BundleWriter::AddSlice(const std::string& name, const Shape& full_shape,
                                    const TensorSlice& slice, Tensor tensor) {
  ASSIGN_OR_RETURN(const Shape slice_shape, slice.ShapeWithin(full_shape));
  if (!(slice_shape == tensor.shape())) {
    return InvalidArgument("Slice ", slice.ToString(), " of tensor ", name, " has shape ",
                           slice_shape.ToString(), ", but the given part has ",
                           tensor.shape().ToString());
  }
  if (slice_shape == full_shape) return Add(name, std::move(tensor));
  const auto existing = entries_.find(name);
  if (existing != entries_.end()) {
    const BundleEntry& whole = existing->second;
    if (whole.slices.empty()) return InvalidArgument("Adding duplicate key: ", name);
    if (whole.dtype != tensor.dtype() || !(whole.shape == full_shape)) {
      return InvalidArgument("Slices of tensor ", name, " disagree: ", DTypeName(whole.dtype),
                             whole.shape.ToString(), " and ", DTypeName(tensor.dtype()),
                             full_shape.ToString());
    }
  }
  const DType dtype = tensor.dtype();
  RETURN_IF_ERROR(Add(SliceKey(name, slice), std::move(tensor)));
  BundleEntry& whole = entries_[name];
  whole.dtype = dtype;
  whole.shape = full_shape;
  whole.slices.push_back(slice);
  return absl::OkStatus();
}

absl::Status BundleWriter::WriteData(OutputFile& file) {
  struct Chunk {
    size_t piece;
    absl::string_view bytes;
    uint32_t crc;
  };
  struct Job {
    uint64_t offset;
    size_t begin, end;  // chunks
    absl::Status status;
  };
  std::vector<Chunk> chunks;
  std::vector<Job> jobs;
  uint64_t offset = 0;
  size_t job_bytes = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    absl::string_view rest = pieces_[i].bytes;
    while (!rest.empty()) {
      if (jobs.empty() || job_bytes == kJobBytes ||
          jobs.back().end - jobs.back().begin == kJobPieces) {
        jobs.push_back({offset, chunks.size(), chunks.size(), absl::OkStatus()});
        job_bytes = 0;
      }
      const absl::string_view bytes = rest.substr(0, kJobBytes - job_bytes);
      chunks.push_back({i, bytes, 0});
      ++jobs.back().end;
      job_bytes += bytes.size();
      offset += bytes.size();
      rest.remove_prefix(bytes.size());
    }
  }

  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      Job& job = jobs[j];
      std::vector<absl::string_view> bytes;
      for (size_t c = job.begin; c < job.end; ++c) {
        Chunk& chunk = chunks[c];
        if (!pieces_[chunk.piece].has_crc) chunk.crc = Crc32c(chunk.bytes);
        bytes.push_back(chunk.bytes);
      }
      job.status = file.WriteAt(job.offset, bytes);
    }
  };
  const auto count = static_cast<int64_t>(jobs.size());
  if (options_.scheduler != nullptr && count > 1) {
    const double bytes_per_job = static_cast<double>(size_) / static_cast<double>(count);
    options_.scheduler->ParallelFor(count, bytes_per_job * kNanosecondsPerByte, run);
  } else {
    run(0, count);
  }
  for (const Job& job : jobs) RETURN_IF_ERROR(job.status);
  for (const Chunk& chunk : chunks) {
    const Piece& piece = pieces_[chunk.piece];
    if (piece.has_crc) continue;
    const uint32_t before = UnmaskCrc32c(piece.entry->masked_crc);
    piece.entry->masked_crc = MaskCrc32c(CombineCrc32c(before, chunk.crc, chunk.bytes.size()));
  }
  return absl::OkStatus();
}

absl::Status BundleWriter::Finish() {
  FileSystem& files = *options_.files;
  RETURN_IF_ERROR(files.MakeDirectory(DirectoryOf(prefix_)));
  const std::string data = TemporaryName(DataFileName(prefix_, 0, 1));
  const auto write = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, files.Create(data));
    file->Reserve(static_cast<uint64_t>(size_));
    RETURN_IF_ERROR(WriteData(*file));
    RETURN_IF_ERROR(file->Sync());
    RETURN_IF_ERROR(file->Close());
    const auto make_index = [&](int num_shards) {
      TableWriter table;
      BundleHeader header;
      header.num_shards = num_shards;
      table.Add("", header.Serialize());
      for (const auto& [name, entry] : entries_) table.Add(name, entry.Serialize());
      return std::move(table).Finish();
    };
    return CommitBundle(prefix_, {data}, make_index, files);
  };
  absl::Status status = write();
  if (!status.ok()) files.Remove(data).IgnoreError();  // may be in place already
  pieces_.clear();
  held_.clear();
  return status;
}

}  // namespace muster
