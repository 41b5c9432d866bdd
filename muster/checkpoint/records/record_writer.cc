#include "muster/checkpoint/records/record_writer.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include "muster/base/status.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/file.h"
#include "muster/checkpoint/table/coding.h"

namespace muster {
namespace {

constexpr size_t kPendingBytes = 256 << 10;

}  // namespace

class RecordWriter::Deflater {
 public:
  ~Deflater() { deflateEnd(&stream_); }

  // Null when zlib does not take the options.
  static std::unique_ptr<Deflater> Make(const RecordWriterOptions& options) {
    auto deflater = std::make_unique<Deflater>();
    const int default_bits =
        options.compression == RecordCompression::kGzip ? MAX_WBITS + 16 : MAX_WBITS;
    const int code = deflateInit2(&deflater->stream_, options.level, options.method,
                                  options.window_bits.value_or(default_bits), options.memory_level,
                                  options.strategy);
    return code == Z_OK ? std::move(deflater) : nullptr;
  }

  void Add(absl::string_view bytes, int flush, std::string& to) {
    // zlib counts in unsigned int.
    constexpr size_t kMost = 1 << 30;
    do {
      const absl::string_view part = bytes.substr(0, kMost);
      bytes.remove_prefix(part.size());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
      stream_.avail_in = static_cast<uInt>(part.size());
      char out[16 << 10];
      do {
        stream_.next_out = reinterpret_cast<Bytef*>(out);
        stream_.avail_out = sizeof(out);
        deflate(&stream_, bytes.empty() ? flush : Z_NO_FLUSH);
        to.append(out, sizeof(out) - stream_.avail_out);
      } while (stream_.avail_out == 0);
    } while (!bytes.empty());
  }

 private:
  z_stream stream_ = {};
};

absl::StatusOr<std::unique_ptr<RecordWriter>> RecordWriter::Open(
    const std::string& path, const RecordWriterOptions& options) {
  std::unique_ptr<Deflater> deflater;
  if (options.compression != RecordCompression::kNone) {
    deflater = Deflater::Make(options);
    if (deflater == nullptr) {
      return InvalidArgument("zlib does not know these options for ", path, ": window_bits ",
                             options.window_bits.value_or(MAX_WBITS), ", level ", options.level,
                             ", method ", options.method, ", mem_level ", options.memory_level,
                             ", strategy ", options.strategy);
    }
  }
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (options.must_be_new ? O_EXCL : O_TRUNC);
  const int descriptor = open(LocalPath(path).c_str(), flags, 0666);
  if (descriptor < 0) return FileError(path, errno);
  return std::unique_ptr<RecordWriter>(new RecordWriter(path, descriptor, std::move(deflater)));
}

RecordWriter::RecordWriter(std::string path, int descriptor, std::unique_ptr<Deflater> deflater)
    : path_(std::move(path)), descriptor_(descriptor), deflater_(std::move(deflater)) {}

RecordWriter::~RecordWriter() {
  (void)Close();
}

void RecordWriter::Append(absl::string_view bytes) {
  if (deflater_ == nullptr) {
    pending_.append(bytes.data(), bytes.size());
  } else {
    deflater_->Add(bytes, Z_NO_FLUSH, pending_);
  }
}

absl::Status RecordWriter::Write(absl::string_view record) {
  if (descriptor_ < 0) return FailedPrecondition("Writer is closed.");
  RETURN_IF_ERROR(status_);
  std::string header;
  AppendFixed64(header, record.size());
  AppendFixed32(header, MaskCrc32c(Crc32c(header)));
  std::string trailer;
  AppendFixed32(trailer, MaskCrc32c(Crc32c(record)));
  for (const absl::string_view part :
       {absl::string_view(header), record, absl::string_view(trailer)}) {
    Append(part);
  }
  return pending_.size() < kPendingBytes ? absl::OkStatus() : WriteOut();
}

absl::Status RecordWriter::WriteOut() {
  RETURN_IF_ERROR(status_);
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t count = write(descriptor_, pending_.data() + done, pending_.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      status_ = FileError(path_, errno);
      // Readers of the file would take half a record for damage.
      if (done > 0 && ftruncate(descriptor_, static_cast<off_t>(file_size_)) != 0) {
        status_ = Suffixed(status_, "; the file may end in half a record");
      }
      return status_;
    }
  }
  file_size_ += done;
  pending_.clear();
  return absl::OkStatus();
}

absl::Status RecordWriter::Flush() {
  if (descriptor_ < 0) return FailedPrecondition("Writer is closed.");
  if (deflater_ != nullptr) deflater_->Add("", Z_SYNC_FLUSH, pending_);
  return WriteOut();
}

absl::Status RecordWriter::Close() {
  if (descriptor_ < 0) return absl::OkStatus();
  if (deflater_ != nullptr) deflater_->Add("", Z_FINISH, pending_);
  absl::Status status = WriteOut();
  if (close(descriptor_) != 0 && status.ok()) status = FileError(path_, errno);
  descriptor_ = -1;
  return status;
}

}  // namespace muster
