// Datasets over files: TFRecords, lines, records of fixed length.
#include <filesystem>
#include <system_error>

#include "muster/checkpoint/file.h"
#include "muster/checkpoint/records/record_reader.h"
#include "muster/ops/data/dataset.h"
#include "muster/ops/input/byte_buffer.h"

namespace muster {
namespace {

// The records of one file; no value at its end.
using MaybeRecord = absl::StatusOr<std::optional<std::string>>;
using NextRecord = absl::AnyInvocable<MaybeRecord()>;
using OpenRecords = std::function<absl::StatusOr<NextRecord>(const std::string& filename)>;

absl::StatusOr<std::vector<std::string>> Filenames(const Tensor& tensor) {
  if (tensor.rank() > 1) return InvalidArgument("`filenames` must be a scalar or a vector.");
  const absl::Span<const std::string> names = tensor.values<std::string>();
  return std::vector<std::string>(names.begin(), names.end());
}

absl::Status SetRecords(KernelContext& c, OpenRecords open) {
  ASSIGN_OR_RETURN(const std::vector<std::string> filenames, Filenames(c.input(0)));
  ElementSpec spec{{DType::kString}, {PartialShape::Scalar()}};
  return SetDataset(
      c, std::move(spec),
      [filenames, open = std::move(open)](const DataContext&) -> absl::StatusOr<NextElement> {
        return [filenames, open, file = size_t{0},
                next = NextRecord()](const DataContext&) mutable -> MaybeElement {
          while (file < filenames.size()) {
            if (next == nullptr) {
              ASSIGN_OR_RETURN(next, open(filenames[file]));
            }
            MaybeRecord record = next();
            if (record.ok() && record->has_value())
              return Element{Tensor::Scalar(**std::move(record))};
            next = nullptr;
            ++file;
            RETURN_IF_ERROR(record.status());
          }
          return std::nullopt;
        };
      });
}

absl::StatusOr<RecordCompression> CompressionOf(const Tensor& tensor) {
  ASSIGN_OR_RETURN(const std::string name, ScalarString(tensor, "compression_type"));
  const absl::StatusOr<RecordCompression> compression = ParseRecordCompression(name);
  if (!compression.ok()) return InvalidArgument("Unsupported compression_type.");
  return *compression;
}

absl::Status CheckBufferSize(const Tensor& tensor) {
  ASSIGN_OR_RETURN(const int64_t size, ScalarInteger(tensor, "buffer_size"));
  // -1: as the library thinks best.
  if (size < -1) return InvalidArgument("`buffer_size` must be >= 0 (0 == default)");
  return absl::OkStatus();
}

absl::Status MakeTfRecords(KernelContext& c) {
  ASSIGN_OR_RETURN(const RecordCompression compression, CompressionOf(c.input(1)));
  RETURN_IF_ERROR(CheckBufferSize(c.input(2)));
  return SetRecords(c, [compression](const std::string& name) -> absl::StatusOr<NextRecord> {
    ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> reader, RecordReader::Open(name, compression));
    return [reader = std::move(reader)]() -> MaybeRecord {
      absl::StatusOr<std::string> record = reader->Next();
      if (absl::IsOutOfRange(record.status())) return std::nullopt;
      RETURN_IF_ERROR(record.status());
      return *std::move(record);
    };
  });
}

absl::StatusOr<std::unique_ptr<ByteBuffer>> Open(const std::string& name,
                                                 RecordCompression compression) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> file, OpenFile(name));
  return std::make_unique<ByteBuffer>(Decompressed(std::move(file), compression));
}

MaybeRecord NextLine(ByteBuffer& buffer) {
  size_t searched = 0;
  while (true) {
    absl::string_view line = buffer.ahead();
    const size_t end = line.find('\n', searched);
    size_t consumed = end + 1;
    if (end == absl::string_view::npos) {
      searched = line.size();
      ASSIGN_OR_RETURN(const bool more, buffer.ReadMore());
      if (more) continue;
      line = buffer.ahead();
      if (line.empty()) return std::nullopt;
      consumed = line.size();
    } else {
      line = line.substr(0, end);
    }
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    std::string record(line);
    buffer.Consume(consumed);
    return record;
  }
}

absl::Status MakeLines(KernelContext& c) {
  ASSIGN_OR_RETURN(const RecordCompression compression, CompressionOf(c.input(1)));
  RETURN_IF_ERROR(CheckBufferSize(c.input(2)));
  return SetRecords(c, [compression](const std::string& name) -> absl::StatusOr<NextRecord> {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteBuffer> buffer, Open(name, compression));
    return [buffer = std::move(buffer)]() -> MaybeRecord { return NextLine(*buffer); };
  });
}

struct Layout {
  size_t header = 0;
  size_t record = 0;
  size_t footer = 0;
};

// Of a file that is not compressed, whose length is known before it is read.
absl::Status CheckLength(const std::string& name, const Layout& layout) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(LocalPath(name), error);
  if (error) return absl::OkStatus();  // opening it says why
  const uint64_t around = layout.header + layout.footer;
  if (size < around) {
    return InvalidArgument("Input file \"", name, "\" has ", size,
                           " bytes, fewer than its header and footer (", around, ")");
  }
  if ((size - around) % layout.record == 0) return absl::OkStatus();
  return InvalidArgument(
      "Excluding the header (", layout.header, " bytes) and footer (", layout.footer,
      " bytes), input file \"", name, "\" has body length ", size - around,
      " bytes, which is not an exact multiple of the record length (", layout.record, " bytes).");
}

absl::StatusOr<NextRecord> OpenFixed(const std::string& name, RecordCompression compression,
                                     const Layout& layout) {
  if (compression == RecordCompression::kNone) RETURN_IF_ERROR(CheckLength(name, layout));
  ASSIGN_OR_RETURN(std::unique_ptr<ByteBuffer> buffer, Open(name, compression));
  struct State {
    std::unique_ptr<ByteBuffer> buffer;
    bool begun = false;
  };
  return [layout, state = State{std::move(buffer)}]() mutable -> MaybeRecord {
    if (!state.begun) {
      state.begun = true;
      RETURN_IF_ERROR(state.buffer->Skip(layout.header).status());
    }
    // A record that would reach into the footer does not count.
    const size_t needed = layout.record + layout.footer;
    ASSIGN_OR_RETURN(const absl::string_view bytes, state.buffer->Peek(needed));
    if (bytes.size() < needed) return std::nullopt;
    std::string record(bytes.substr(0, layout.record));
    state.buffer->Consume(layout.record);
    return record;
  };
}

absl::StatusOr<size_t> Bytes(const Tensor& tensor, const char* what, int64_t least,
                             const char* rule) {
  ASSIGN_OR_RETURN(const int64_t bytes, ScalarInteger(tensor, what));
  // What one element can be at most; a larger one could not be held.
  constexpr int64_t kMost = int64_t{1} << 40;
  if (bytes < least) return InvalidArgument("`", what, "` must be ", rule);
  if (bytes > kMost) return InvalidArgument("`", what, "` is ", bytes, ", at most ", kMost);
  return static_cast<size_t>(bytes);
}

absl::Status MakeFixedLength(KernelContext& c) {
  Layout layout;
  ASSIGN_OR_RETURN(layout.header, Bytes(c.input(1), "header_bytes", 0, ">= 0"));
  ASSIGN_OR_RETURN(layout.record, Bytes(c.input(2), "record_bytes", 1, "> 0"));
  ASSIGN_OR_RETURN(layout.footer, Bytes(c.input(3), "footer_bytes", 0, ">= 0"));
  RETURN_IF_ERROR(CheckBufferSize(c.input(4)));
  auto compression = RecordCompression::kNone;
  if (c.num_inputs() > 5) {
    ASSIGN_OR_RETURN(compression, CompressionOf(c.input(5)));
  }
  return SetRecords(c, [compression, layout](const std::string& name) {
    return OpenFixed(name, compression, layout);
  });
}

}  // namespace

DEFINE_OP(TFRecordDataset) {
  op.Attr2x("metadata: string = ''")
      .Input("filenames: string")
      .Input("compression_type: string")
      .Input("buffer_size: int64")
      .Stateful();
  DefineDataset(op, "The records of TFRecord files.", MakeTfRecords);
}

DEFINE_OP(TextLineDataset) {
  op.Attr2x("metadata: string = ''")
      .Input("filenames: string")
      .Input("compression_type: string")
      .Input("buffer_size: int64")
      .Stateful();
  DefineDataset(op, "The lines of files, without their ends.", MakeLines);
}

DEFINE_OP(FixedLengthRecordDataset) {
  op.Attr("metadata: string = ''")
      .Input("filenames: string")
      .Input("header_bytes: int64")
      .Input("record_bytes: int64")
      .Input("footer_bytes: int64")
      .Input("buffer_size: int64")
      .Stateful();
  DefineDataset(op, "Records of equal length from files.", MakeFixedLength);
}

DEFINE_OP(FixedLengthRecordDatasetV2) {
  op.Attr2x("metadata: string = ''")
      .Input("filenames: string")
      .Input("header_bytes: int64")
      .Input("record_bytes: int64")
      .Input("footer_bytes: int64")
      .Input("buffer_size: int64")
      .Input("compression_type: string")
      .Stateful();
  DefineDataset(op, "Records of equal length from files, perhaps compressed.", MakeFixedLength);
}

}  // namespace muster
