#include "muster/checkpoint/bundle_reader.h"

#include <algorithm>
#include <bit>

#include "muster/checkpoint/bundle_commit.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/table/coding.h"

namespace muster {
namespace {

constexpr size_t kJobBytes = size_t{1} << 20;
constexpr double kNanosecondsPerByte = 0.4;
constexpr double kNanosecondsPerRead = 1500;

std::string ForTensor(absl::string_view name) {
  return absl::StrCat("; tensor '", name, "'");
}

absl::Status DamagedIndex(const std::string& name, absl::string_view detail,
                          const absl::Status& status) {
  return absl::DataLossError(
      absl::StrCat("Unable to read file (", name,
                   "). Perhaps the file is corrupt or was produced by a newer version of "
                   "TensorFlow with format changes (",
                   detail, "): ", status.message()));
}

template <typename Word>
void SwapWords(char* bytes, size_t size) {
  for (size_t i = 0; i < size; i += sizeof(Word)) std::reverse(bytes + i, bytes + i + sizeof(Word));
}

// Elements of the other byte order; complex numbers are two.
void SwapElements(DType dtype, char* bytes, size_t size) {
  const size_t width = DTypeSize(dtype) / (IsComplex(dtype) ? 2 : 1);
  if (width == 2) SwapWords<uint16_t>(bytes, size);
  if (width == 4) SwapWords<uint32_t>(bytes, size);
  if (width == 8) SwapWords<uint64_t>(bytes, size);
}

// A number in the writer's byte order, as its checksum saw it.
std::string WriterBytes(uint64_t value, size_t width, bool big_endian) {
  std::string bytes;
  AppendFixed64(bytes, value);
  bytes.resize(width);
  if (big_endian) std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

uint32_t DecodeWriter32(absl::string_view bytes, bool big_endian) {
  std::string copy(bytes);
  if (big_endian) std::reverse(copy.begin(), copy.end());
  return DecodeFixed32(copy.data());
}

// Where `piece` begins in the memory of `wanted` if it is contiguous there.
std::optional<int64_t> RunWithin(const TensorSlice& piece, const TensorSlice& wanted) {
  for (size_t d = 1; d < wanted.extents.size(); ++d) {
    if (!(piece.extents[d] == wanted.extents[d])) return std::nullopt;
  }
  if (wanted.extents.empty()) return 0;
  const SliceExtent& rows = piece.extents[0];
  const SliceExtent& all = wanted.extents[0];
  if (rows.start < all.start || rows.start + rows.length > all.start + all.length)
    return std::nullopt;
  int64_t row = 1;
  for (size_t d = 1; d < wanted.extents.size(); ++d) row *= wanted.extents[d].length;
  return (rows.start - all.start) * row;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BundleReader>> BundleReader::Open(const std::string& prefix) {
  const std::string name = IndexFileName(prefix);
  absl::StatusOr<std::unique_ptr<TableReader>> table = TableReader::Open(name);
  if (absl::IsDataLoss(table.status())) {
    return absl::DataLossError(absl::StrCat(table.status().message(), ": ", name));
  }
  RETURN_IF_ERROR(table.status());
  const absl::StatusOr<std::optional<std::string>> bytes = (*table)->Get("");
  if (!bytes.ok()) return DamagedIndex(name, "failed to seek to header entry", bytes.status());
  if (!bytes->has_value()) {
    return DamagedIndex(name, "failed to seek to header entry",
                        absl::DataLossError("empty or no header entry"));
  }
  absl::StatusOr<BundleHeader> header = BundleHeader::Parse(**bytes);
  if (absl::IsDataLoss(header.status()))
    return DamagedIndex(name, "unable to parse header entry", header.status());
  if (!header.ok()) return Suffixed(header.status(), absl::StrCat(": ", name));
  return std::unique_ptr<BundleReader>(
      new BundleReader(prefix, *std::move(table), *std::move(header)));
}

absl::StatusOr<BundleEntry> BundleReader::Find(absl::string_view name) const {
  const absl::StatusOr<std::optional<std::string>> bytes = index_->Get(name);
  if (!bytes.ok()) {
    return Suffixed(DamagedIndex(index_->file_name(), "failed to seek to an entry", bytes.status()),
                    ForTensor(name));
  }
  if (name.empty() || !bytes->has_value())
    return NotFound("Key ", name, " not found in checkpoint");
  absl::StatusOr<BundleEntry> entry = BundleEntry::Parse(**bytes);
  if (!entry.ok()) {
    return Suffixed(DamagedIndex(index_->file_name(), "unable to parse an entry", entry.status()),
                    ForTensor(name));
  }
  return entry;
}

absl::StatusOr<bool> BundleReader::Contains(absl::string_view name) const {
  const absl::Status status = Find(name).status();
  if (absl::IsNotFound(status)) return false;
  RETURN_IF_ERROR(status);
  return true;
}

absl::StatusOr<std::vector<std::pair<std::string, BundleEntry>>> BundleReader::List() const {
  std::vector<std::pair<std::string, BundleEntry>> entries;
  const absl::Status status =
      index_->ForEach([&](absl::string_view key, absl::string_view value) -> absl::Status {
        if (key.empty() || IsSliceKey(key)) return absl::OkStatus();
        absl::StatusOr<BundleEntry> entry = BundleEntry::Parse(value);
        if (!entry.ok()) return Suffixed(entry.status(), ForTensor(key));
        entries.emplace_back(key, *std::move(entry));
        return absl::OkStatus();
      });
  if (!status.ok()) return DamagedIndex(index_->file_name(), "unable to list entries", status);
  return entries;
}

absl::StatusOr<const InputFile*> BundleReader::DataFile(int shard) const {
  MutexLock lock(mutex_);
  std::unique_ptr<InputFile>& file = data_files_[shard];
  if (file == nullptr) {
    ASSIGN_OR_RETURN(InputFile opened,
                     InputFile::Open(DataFileName(prefix_, shard, header_.num_shards)));
    file = std::make_unique<InputFile>(std::move(opened));
  }
  return file.get();
}

absl::StatusOr<const InputFile*> BundleReader::CheckPlace(absl::string_view name,
                                                          const BundleEntry& entry) const {
  if (entry.dtype == DType::kResource)
    return Unimplemented("Resource handles cannot be read from a checkpoint", ForTensor(name));
  const absl::StatusOr<const InputFile*> file = DataFile(entry.shard);
  if (!file.ok()) return Suffixed(file.status(), ForTensor(name));
  const int64_t elements = entry.shape.num_elements();
  const bool plain = IsPlainData(entry.dtype);
  // Strings: a length each and one checksum; variants: a length and a checksum each.
  const std::optional<int64_t> least =
      MultiplyWithoutOverflow(elements, plain ? static_cast<int64_t>(DTypeSize(entry.dtype))
                                              : (entry.dtype == DType::kString ? 1 : 5));
  const bool fits = least && (plain ? entry.size == *least : entry.size >= *least);
  if (!fits) {
    return absl::DataLossError(absl::StrCat(
        "Invalid size in bundle entry: key ", name, "; stored size ", entry.size,
        plain ? "; expected size " : "; expected size is at least ", least.value_or(-1)));
  }
  const uint64_t available = (*file)->size();
  if (static_cast<uint64_t>(entry.offset) > available ||
      static_cast<uint64_t>(entry.size) > available - static_cast<uint64_t>(entry.offset)) {
    return OutOfRange("Read less bytes than requested: ", entry.size, " bytes at ", entry.offset,
                      " of ", (*file)->name(), ", which has ", available, ForTensor(name));
  }
  return file;
}

absl::Status BundleReader::Plan(const Request& request, size_t i, Allocate allocate,
                                std::vector<Piece>& pieces) const {
  ASSIGN_OR_RETURN(const BundleEntry entry, Find(request.name));
  const TensorSlice asked = request.slice.value_or(TensorSlice::Whole(entry.shape.rank()));
  ASSIGN_OR_RETURN(const TensorSlice wanted, asked.Resolved(entry.shape));
  ASSIGN_OR_RETURN(const Shape wanted_shape, wanted.ShapeWithin(entry.shape));

  std::vector<Piece> parts;
  const auto add = [&](const BundleEntry& stored, const TensorSlice& slice) -> absl::Status {
    ASSIGN_OR_RETURN(const InputFile* file, CheckPlace(request.name, stored));
    Piece& piece = parts.emplace_back();
    piece.name = request.name;
    piece.entry = stored;
    piece.file = file;
    piece.piece_slice = slice;
    piece.wanted_slice = wanted;
    return absl::OkStatus();
  };
  if (entry.slices.empty()) {
    ASSIGN_OR_RETURN(const TensorSlice whole,
                     TensorSlice::Whole(entry.shape.rank()).Resolved(entry.shape));
    RETURN_IF_ERROR(add(entry, whole));
  } else {
    std::vector<TensorSlice> stored;
    for (const TensorSlice& slice : entry.slices) {
      absl::StatusOr<TensorSlice> resolved = slice.Resolved(entry.shape);
      if (!resolved.ok()) {
        return absl::DataLossError(
            absl::StrCat(resolved.status().message(), ForTensor(request.name)));
      }
      stored.push_back(*std::move(resolved));
    }
    absl::StatusOr<std::optional<std::vector<size_t>>> cover = Cover(stored, wanted);
    if (!cover.ok()) return Suffixed(cover.status(), ForTensor(request.name));
    if (!cover->has_value()) {
      return InvalidArgument("Does not have sufficient slices for partitioned tensor ",
                             request.name, " to restore in slice_spec: ", asked.ToString());
    }
    for (size_t s : **cover) {
      absl::StatusOr<BundleEntry> part = Find(SliceKey(request.name, entry.slices[s]));
      ASSIGN_OR_RETURN(const Shape part_shape, stored[s].ShapeWithin(entry.shape));
      if (!part.ok() || part->dtype != entry.dtype || !(part->shape == part_shape)) {
        return absl::DataLossError(absl::StrCat("The slice ", entry.slices[s].ToString(),
                                                " is missing, or not what its tensor says",
                                                ForTensor(request.name)));
      }
      RETURN_IF_ERROR(add(*part, stored[s]));
    }
  }

  ASSIGN_OR_RETURN(Tensor * tensor, allocate(i, entry.dtype, wanted_shape));
  for (Piece& piece : parts) {
    piece.wanted = tensor;
    const std::optional<int64_t> run = RunWithin(piece.piece_slice, wanted);
    if (!IsPlainData(entry.dtype)) {
      piece.encoded.resize(static_cast<size_t>(piece.entry.size));  // see ReadAll
    } else if (run) {
      piece.into = tensor->raw() + *run * static_cast<int64_t>(DTypeSize(entry.dtype));
    } else {
      ASSIGN_OR_RETURN(piece.own, Tensor::Make(entry.dtype, piece.entry.shape));
      piece.into = piece.own.raw();
    }
    pieces.push_back(std::move(piece));
  }
  return absl::OkStatus();
}

absl::Status BundleReader::ReadPieces(std::vector<Piece>& pieces, Scheduler* scheduler) const {
  struct Job {
    size_t piece;
    size_t offset, size;  // within the piece
    uint32_t crc;
    absl::Status status;
  };
  std::vector<Job> jobs;
  double total = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto size = static_cast<size_t>(pieces[i].entry.size);
    total += static_cast<double>(size);
    for (size_t offset = 0; offset < size; offset += kJobBytes) {
      jobs.push_back({i, offset, std::min(kJobBytes, size - offset), 0, absl::OkStatus()});
    }
  }
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      Job& job = jobs[j];
      const Piece& piece = pieces[job.piece];
      char* into = piece.into + job.offset;
      job.status = piece.file->ReadAt(static_cast<uint64_t>(piece.entry.offset) + job.offset,
                                      absl::MakeSpan(into, job.size));
      if (job.status.ok() && IsPlainData(piece.entry.dtype))
        job.crc = Crc32c(absl::string_view(into, job.size));
    }
  };
  const auto count = static_cast<int64_t>(jobs.size());
  if (scheduler != nullptr && count > 1) {
    scheduler->ParallelFor(
        count, total / static_cast<double>(count) * kNanosecondsPerByte + kNanosecondsPerRead, run);
  } else {
    run(0, count);
  }
  for (const Job& job : jobs) {
    Piece& piece = pieces[job.piece];
    if (!job.status.ok()) return Suffixed(job.status, ForTensor(piece.name));
    piece.crc = CombineCrc32c(piece.crc, job.crc, job.size);
  }
  return absl::OkStatus();
}

absl::Status BundleReader::ChecksumError(const Piece& piece, uint32_t calculated) const {
  return absl::DataLossError(
      absl::StrCat("TensorBundle at ", prefix_, " shard ", piece.entry.shard, " (",
                   piece.entry.size, " bytes): Checksum does not match: stored ",
                   UnmaskCrc32c(piece.entry.masked_crc), " vs. calculated on the restored bytes ",
                   calculated, ForTensor(piece.name), " in ", piece.file->name()));
}

absl::Status BundleReader::DecodeStrings(const Piece& piece, Tensor& tensor) const {
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat(what, ForTensor(piece.name), " in ", piece.file->name()));
  };
  absl::string_view rest = piece.encoded;
  uint32_t crc = 0;
  std::vector<uint64_t> lengths(static_cast<size_t>(tensor.num_elements()));
  for (uint64_t& length : lengths) {
    const std::optional<uint64_t> stored = TakeVarint64(rest);
    if (!stored) return damaged("The lengths of the strings cannot be read");
    length = *stored;
    crc = ExtendCrc32c(crc, WriterBytes(length, length <= UINT32_MAX ? 4 : 8, header_.big_endian));
  }
  const std::optional<absl::string_view> checksum = TakeBytes(rest, 4);
  if (!checksum) return damaged("The checksum of the lengths is missing");
  const uint32_t expected = UnmaskCrc32c(DecodeWriter32(*checksum, header_.big_endian));
  if (expected != crc) {
    return damaged(absl::StrCat("The length checksum does not match: expected ", expected,
                                " but actual is ", crc));
  }
  crc = ExtendCrc32c(crc, *checksum);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::optional<absl::string_view> text = TakeBytes(rest, lengths[i]);
    if (!text) return damaged("The strings are longer than their entry");
    crc = ExtendCrc32c(crc, *text);
    tensor.data<std::string>()[i].assign(text->data(), text->size());
  }
  if (MaskCrc32c(crc) != piece.entry.masked_crc) return ChecksumError(piece, crc);
  if (!rest.empty()) return damaged("The strings are shorter than their entry");
  return absl::OkStatus();
}

absl::Status BundleReader::DecodeVariants(const Piece& piece, Tensor& tensor) const {
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat(what, ForTensor(piece.name), " in ", piece.file->name()));
  };
  absl::string_view rest = piece.encoded;
  uint32_t crc = 0;
  std::vector<absl::string_view> values;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const std::optional<uint64_t> length = TakeVarint64(rest);
    const std::optional<absl::string_view> bytes = length ? TakeBytes(rest, *length) : std::nullopt;
    const std::optional<absl::string_view> checksum = bytes ? TakeBytes(rest, 4) : std::nullopt;
    if (!checksum) return damaged("The variants are longer than their entry");
    crc = ExtendCrc32c(ExtendCrc32c(crc, WriterBytes(*length, 8, header_.big_endian)), *bytes);
    if (UnmaskCrc32c(DecodeWriter32(*checksum, header_.big_endian)) != crc)
      return damaged(absl::StrCat("The checksum of variant ", i, " does not match"));
    crc = ExtendCrc32c(crc, *checksum);
    values.push_back(*bytes);
  }
  if (MaskCrc32c(crc) != piece.entry.masked_crc) return ChecksumError(piece, crc);
  if (!rest.empty()) return damaged("The variants are shorter than their entry");
  for (size_t i = 0; i < values.size(); ++i) {
    absl::StatusOr<Variant> value = ParseVariant(values[i]);
    if (!value.ok()) return Suffixed(value.status(), ForTensor(piece.name));
    tensor.data<Variant>()[i] = *std::move(value);
  }
  return absl::OkStatus();
}

absl::Status BundleReader::Finish(Piece& piece) const {
  const DType dtype = piece.entry.dtype;
  if (IsPlainData(dtype)) {
    if (MaskCrc32c(piece.crc) != piece.entry.masked_crc) return ChecksumError(piece, piece.crc);
    const bool host_is_big = std::endian::native == std::endian::big;
    if (header_.big_endian != host_is_big)
      SwapElements(dtype, piece.into, static_cast<size_t>(piece.entry.size));
    if (piece.own.valid())
      CopyOverlap(piece.own, piece.piece_slice, piece.wanted_slice, *piece.wanted);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Tensor decoded, Tensor::Make(dtype, piece.entry.shape));
  RETURN_IF_ERROR(dtype == DType::kString ? DecodeStrings(piece, decoded)
                                          : DecodeVariants(piece, decoded));
  CopyOverlap(decoded, piece.piece_slice, piece.wanted_slice, *piece.wanted);
  return absl::OkStatus();
}

absl::Status BundleReader::ReadAll(absl::Span<const Request> requests, Allocate allocate,
                                   Scheduler* scheduler) const {
  std::vector<Piece> pieces;
  pieces.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i)
    RETURN_IF_ERROR(Plan(requests[i], i, allocate, pieces));
  // Only now: short strings are stored inside their pieces, which moved while the list grew.
  for (Piece& piece : pieces) {
    if (!piece.encoded.empty()) piece.into = piece.encoded.data();
  }
  RETURN_IF_ERROR(ReadPieces(pieces, scheduler));
  for (Piece& piece : pieces) RETURN_IF_ERROR(Finish(piece));
  return absl::OkStatus();
}

absl::StatusOr<Tensor> BundleReader::ReadSlice(const std::string& name,
                                               const TensorSlice& slice) const {
  Tensor result;
  const Request request{name, slice};
  RETURN_IF_ERROR(ReadAll(
      {request},
      [&](size_t, DType dtype, const Shape& shape) -> absl::StatusOr<Tensor*> {
        ASSIGN_OR_RETURN(result, Tensor::Make(dtype, shape));
        return &result;
      },
      nullptr));
  return result;
}

absl::StatusOr<Tensor> BundleReader::Read(const std::string& name) const {
  ASSIGN_OR_RETURN(const BundleEntry entry, Find(name));
  return ReadSlice(name, TensorSlice::Whole(entry.shape.rank()));
}

}  // namespace muster
