// Framing of TFRecord files: exact bytes, every truncation, every flipped bit, compression.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "muster/base/status.h"
#include "muster/checkpoint/records/record_reader.h"
#include "muster/checkpoint/records/record_writer.h"

namespace muster {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string TemporaryPath(const std::string& name) {
  return absl::StrCat(::testing::TempDir(), "/", getpid(), "_", name);
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Written(const std::vector<std::string>& records,
                    RecordCompression compression = RecordCompression::kNone) {
  const std::string path = TemporaryPath("written");
  RecordWriterOptions options;
  options.compression = compression;
  auto writer = RecordWriter::Open(path, options);
  EXPECT_TRUE(writer.ok());
  for (const std::string& record : records) EXPECT_TRUE((*writer)->Write(record).ok());
  EXPECT_TRUE((*writer)->Close().ok());
  std::string bytes = Contents(path);
  unlink(path.c_str());
  return bytes;
}

// The records before the first status that is not OK, and that status.
std::pair<std::vector<std::string>, absl::Status> ReadAll(
    absl::string_view bytes, RecordCompression compression = RecordCompression::kNone) {
  RecordReader reader(Decompressed(MemorySource(bytes), compression));
  std::vector<std::string> records;
  for (;;) {
    auto record = reader.Next();
    if (!record.ok()) return {records, record.status()};
    records.push_back(*std::move(record));
  }
}

TEST(RecordTest, BytesAreTensorFlows) {
  const char expected[] =
      "\x03\0\0\0\0\0\0\0\xb0\x99\x49\x0e"
      "abc\x6e\x57\xf1\x21";
  EXPECT_EQ(Written({"abc"}), std::string(expected, sizeof(expected) - 1));
  EXPECT_EQ(Written({}), "");
}

TEST(RecordTest, EveryTruncationIsSeen) {
  const std::vector<std::string> records = {"abc", "", std::string(300, 'x')};
  const std::string bytes = Written(records);
  const std::vector<size_t> starts = {0, 19, 35, bytes.size()};
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const auto [read, status] = ReadAll(absl::string_view(bytes).substr(0, size));
    size_t whole = 0;
    while (whole < 3 && starts[whole + 1] <= size) ++whole;
    EXPECT_EQ(read.size(), whole) << size;
    if (size - starts[whole] < kRecordHeaderBytes) {
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << size;
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
      EXPECT_EQ(status.message(), absl::StrCat("truncated record at ", starts[whole]));
    }
  }
}

TEST(RecordTest, EveryFlippedBitIsSeen) {
  const std::string bytes = Written({"abc", "defg"});
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const auto [read, status] = ReadAll(damaged);
    const size_t start = bit / 8 < 19 ? 0 : 19;
    EXPECT_EQ(read.size(), start == 0 ? 0u : 1u);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    const bool in_header = bit / 8 - start < kRecordHeaderBytes;
    EXPECT_EQ(status.message(), absl::StrCat("corrupted record at ", start + (in_header ? 0 : 12)));
  }
}

TEST(RecordTest, CompressedFilesAreRead) {
  const std::vector<std::string> records = {"abc", "", std::string(1 << 20, 'x'), "end"};
  for (const RecordCompression compression : {RecordCompression::kZlib, RecordCompression::kGzip}) {
    const std::string bytes = Written(records, compression);
    EXPECT_LT(bytes.size(), 10000u);
    EXPECT_EQ(ReadAll(bytes, compression).first, records);
    EXPECT_EQ(ReadAll(bytes, compression).second.code(), absl::StatusCode::kOutOfRange);
    // A cut file gives what is there and never hangs or claims to be whole.
    const auto [some, status] = ReadAll(bytes.substr(0, bytes.size() / 2), compression);
    EXPECT_LT(some.size(), records.size());
    EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kDataLoss, absl::StatusCode::kOutOfRange));
    EXPECT_EQ(ReadAll("garbage garbage", compression).second.message(),
              "inflate() failed with error -3: incorrect header check");
    EXPECT_THAT(std::string(ReadAll(bytes).second.message()), HasSubstr("corrupted record at 0"));
  }
  const std::string member = Written({"one"}, RecordCompression::kGzip);
  EXPECT_EQ(ReadAll(member + member, RecordCompression::kGzip).first.size(), 2u);
  EXPECT_EQ(Written({}, RecordCompression::kGzip).size(), 20u);
}

TEST(RecordTest, AGrowingFileIsFollowed) {
  const std::string path = TemporaryPath("growing");
  const std::string bytes = Written({"abc", "defg"});
  std::ofstream file(path, std::ios::binary);
  auto reader = RecordReader::Open(path);
  ASSERT_TRUE(reader.ok());
  size_t read = 0;
  for (const char byte : bytes) {
    file.put(byte).flush();
    if ((*reader)->Next().ok()) ++read;
  }
  EXPECT_EQ(read, 2u);
  unlink(path.c_str());
}

TEST(RecordTest, AClosedWriterSaysSo) {
  const std::string path = TemporaryPath("closed");
  auto writer = RecordWriter::Open(path);
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE((*writer)->Write("a").ok());
  EXPECT_TRUE((*writer)->Flush().ok());
  EXPECT_EQ(Contents(path).size(), 17u);
  EXPECT_TRUE((*writer)->Close().ok());
  EXPECT_TRUE((*writer)->Close().ok());
  EXPECT_EQ((*writer)->Write("b").message(), "Writer is closed.");
  EXPECT_EQ((*writer)->Flush().message(), "Writer is closed.");
  unlink(path.c_str());
}

TEST(RecordTest, ErrorsOfFilesNameThem) {
  const std::string path = TemporaryPath("none") + "/file";
  EXPECT_EQ(RecordReader::Open(path).status(),
            absl::NotFoundError(path + "; No such file or directory"));
  EXPECT_EQ(RecordWriter::Open(path).status(),
            absl::NotFoundError(path + "; No such file or directory"));
  EXPECT_EQ(RecordReader::Open(::testing::TempDir()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  RecordWriterOptions options;
  options.compression = RecordCompression::kZlib;
  options.level = 77;
  EXPECT_EQ(RecordWriter::Open(TemporaryPath("x"), options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ParseRecordCompression("BZ2").ok());
}

// Files of this process may not grow beyond `bytes` while it lives, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  void (*signal_)(int);
  rlimit old_;
};

TEST(RecordTest, NoHalfRecordStaysOnAFullDisk) {
  const std::string path = TemporaryPath("limited");
  auto writer = RecordWriter::Open(path);
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE((*writer)->Write(std::string(300, 'x')).ok());
  EXPECT_TRUE((*writer)->Flush().ok());
  {
    FileSizeLimit limit(1000);
    EXPECT_TRUE((*writer)->Write(std::string(2000, 'y')).ok());
    EXPECT_FALSE((*writer)->Flush().ok());
  }
  EXPECT_FALSE((*writer)->Close().ok());
  const auto [records, status] = ReadAll(Contents(path));
  EXPECT_EQ(records, std::vector<std::string>{std::string(300, 'x')});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  unlink(path.c_str());
}

TEST(RecordTest, AFullDiskIsAnErrorThatStays) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  auto writer = RecordWriter::Open("/dev/full");
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE((*writer)->Write("abc").ok());
  EXPECT_FALSE((*writer)->Flush().ok());
  EXPECT_FALSE((*writer)->Write("abc").ok());
  EXPECT_FALSE((*writer)->Close().ok());
}

}  // namespace
}  // namespace muster
