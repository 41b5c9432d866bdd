#include "muster/checkpoint/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "muster/base/check.h"
#include "muster/base/status.h"
#include "muster/checkpoint/file.h"

namespace muster {
namespace {

class FileSource : public ByteSource {
 public:
  FileSource(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~FileSource() override { close(descriptor_); }

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    for (;;) {
      const ssize_t got = read(descriptor_, to, size);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) return FileError(path_, errno);
    }
  }

 private:
  const std::string path_;
  const int descriptor_;
};

class StringSource : public ByteSource {
 public:
  explicit StringSource(absl::string_view bytes) : rest_(bytes) {}
  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    const size_t count = std::min(size, rest_.size());
    if (count > 0) std::memcpy(to, rest_.data(), count);
    rest_.remove_prefix(count);
    return count;
  }

 private:
  absl::string_view rest_;
};

class InflatingSource : public ByteSource {
 public:
  InflatingSource(std::unique_ptr<ByteSource> compressed, RecordCompression compression)
      : compressed_(std::move(compressed)),
        is_gzip_(compression == RecordCompression::kGzip),
        input_(256 << 10) {
    stream_ = {};
    // 16 more than the size of the window asks for gzip's frame.
    CHECK(inflateInit2(&stream_, is_gzip_ ? MAX_WBITS + 16 : MAX_WBITS) == Z_OK);
  }
  ~InflatingSource() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(size, 1 << 30));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted && wanted > 0) {
      if (at_end_) return 0;
      if (stream_.avail_in == 0) {
        ASSIGN_OR_RETURN(const size_t got, compressed_->Read(input_.data(), input_.size()));
        if (got == 0) return 0;
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(got);
      }
      // Bytes after a gzip member start another one.
      if (between_members_) {
        inflateReset(&stream_);
        between_members_ = false;
      }
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        (is_gzip_ ? between_members_ : at_end_) = true;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return absl::DataLossError(
            absl::StrCat("inflate() failed with error ", code,
                         stream_.msg == nullptr ? "" : absl::StrCat(": ", stream_.msg)));
      }
    }
    return wanted - stream_.avail_out;
  }

 private:
  const std::unique_ptr<ByteSource> compressed_;
  const bool is_gzip_;
  std::vector<char> input_;
  z_stream stream_;
  bool between_members_ = false;
  bool at_end_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path) {
  const int descriptor = open(LocalPath(path).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError(path, errno);
  auto file = std::make_unique<FileSource>(path, descriptor);
  struct stat found;
  if (fstat(descriptor, &found) == 0 && S_ISDIR(found.st_mode)) return FileError(path, EISDIR);
  return file;
}

std::unique_ptr<ByteSource> MemorySource(absl::string_view bytes) {
  return std::make_unique<StringSource>(bytes);
}

std::unique_ptr<ByteSource> Decompressed(std::unique_ptr<ByteSource> compressed,
                                         RecordCompression compression) {
  if (compression == RecordCompression::kNone) return compressed;
  return std::make_unique<InflatingSource>(std::move(compressed), compression);
}

}  // namespace muster
