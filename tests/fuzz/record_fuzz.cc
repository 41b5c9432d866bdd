// A byte for the compression, then a TFRecord file. What is read and written again is the same.
#include "fuzz_input.h"
#include <stdlib.h>
#include <unistd.h>

#include "muster/checkpoint/records/record_reader.h"
#include "muster/checkpoint/records/record_writer.h"

namespace muster {
namespace {

std::vector<std::string> ReadAll(RecordReader& reader, absl::Status& end) {
  std::vector<std::string> records;
  for (;;) {
    absl::StatusOr<std::string> record = reader.Next();
    if (!record.ok()) {
      end = record.status();
      return records;
    }
    records.push_back(*std::move(record));
  }
}

void TryRecords(absl::string_view file, RecordCompression compression) {
  RecordReader reader(Decompressed(MemorySource(file), compression));
  absl::Status end;
  const std::vector<std::string> records = ReadAll(reader, end);
  FuzzCheck(absl::IsOutOfRange(end) || absl::IsDataLoss(end), "an end that has a reason");
  FuzzCheck(reader.Next().status() == end || compression != RecordCompression::kNone,
            "the same end again");
  if (records.empty()) return;

  static const std::string path = [] {
    char name[] = "/dev/shm/muster_record_fuzz_XXXXXX";
    const int descriptor = mkstemp(name);
    if (descriptor >= 0) close(descriptor);
    return std::string(name);
  }();
  RecordWriterOptions options;
  options.compression = compression;
  absl::StatusOr<std::unique_ptr<RecordWriter>> writer = RecordWriter::Open(path, options);
  if (!writer.ok()) return;
  for (const std::string& record : records) FuzzCheck((*writer)->Write(record).ok(), "a write");
  FuzzCheck((*writer)->Close().ok(), "a file that can be closed");
  absl::StatusOr<std::unique_ptr<RecordReader>> again = RecordReader::Open(path, compression);
  FuzzCheck(again.ok(), "a file that can be opened");
  FuzzCheck(ReadAll(**again, end) == records && absl::IsOutOfRange(end), "the same records again");
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
  muster::TryRecords(file, static_cast<muster::RecordCompression>(data[0] % 3));
  return 0;
}
