// Files of checkpoints. Random bytes hardly ever have the right checksum, so most kinds put the
// input into a table whose checksums are right.
#include <filesystem>
#include <fstream>

#include "fuzz_input.h"
#include <unistd.h>

#include "muster/checkpoint/bundle_proto.h"
#include "muster/checkpoint/checkpoint_reader.h"
#include "muster/checkpoint/checkpoint_state.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/table/coding.h"
#include "muster/checkpoint/table/snappy.h"
#include "muster/checkpoint/table/table_writer.h"

namespace muster {
namespace {

// One folder for all inputs of this process.
const std::string& Folder() {
  static const std::string folder = [] {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "checkpoint_fuzz_XXXXXX").string();
    FuzzCheck(::mkdtemp(pattern.data()) != nullptr, "a folder");
    return pattern;
  }();
  return folder;
}

void Write(const std::string& name, absl::string_view contents) {
  std::filesystem::remove(name);  // ext4 flushes files that are truncated and rewritten
  std::ofstream(name, std::ios::binary | std::ios::trunc)
      .write(contents.data(), static_cast<std::streamsize>(contents.size()));
}

// A table with one data block, stored as it is given.
std::string TableOf(absl::string_view block, char type) {
  std::string file;
  const auto add = [&](std::string contents, char block_type) {
    std::string handle;
    AppendVarint(handle, file.size());
    AppendVarint(handle, contents.size());
    contents.push_back(block_type);
    AppendFixed32(contents, MaskCrc32c(Crc32c(contents)));
    file += contents;
    return handle;
  };
  const std::string data = add(std::string(block), type);
  std::string index("\0\2", 2);
  AppendVarint(index, data.size());
  index += "\xff\xff" + data;
  AppendFixed32(index, 0);
  AppendFixed32(index, 1);
  std::string footer = data + add(index, kRawBlock);
  footer.resize(kTableFooterSize - 8, '\0');
  AppendFixed64(footer, kTableMagic);
  return file + footer;
}

void ReadAll(const std::string& prefix) {
  const absl::StatusOr<std::unique_ptr<CheckpointReader>> reader = CheckpointReader::Open(prefix);
  if (!reader.ok()) {
    FuzzCheck(!reader.status().message().empty(), "a reason");
    return;
  }
  (void)(*reader)->DebugString();
  for (const auto& [name, variable] : (*reader)->variables()) {
    const absl::StatusOr<Tensor> tensor = (*reader)->GetTensor(name);
    if (!tensor.ok()) continue;
    FuzzCheck(tensor->dtype() == variable.dtype && tensor->shape() == variable.shape,
              "the tensor that was described");
  }
}

// Entries of a whole tensor and of two slices, each after a byte with its length; data at the end.
void TryEntries(FuzzInput& input) {
  std::string entries[3];
  size_t lengths[3];
  for (size_t& length : lengths) length = input.Byte();
  absl::string_view rest = input.rest();
  for (int i = 0; i < 3; ++i) {
    entries[i] = std::string(rest.substr(0, lengths[i]));
    rest.remove_prefix(entries[i].size());
  }
  TableWriter table;
  table.Add("", BundleHeader().Serialize());
  table.Add(SliceKey("t", TensorSlice{{{0, 1}}}), entries[1]);
  table.Add(SliceKey("t", TensorSlice{{{1, 1}}}), entries[2]);
  table.Add("t", entries[0]);
  Write(Folder() + "/e.index", std::move(table).Finish());
  Write(Folder() + "/e.data-00000-of-00001", rest);
  ReadAll(Folder() + "/e");
}

// The description of a V1 file, after a byte with its length, and one slice.
void TryV1(FuzzInput& input) {
  const size_t length = input.Byte();
  const absl::string_view meta = input.rest().substr(0, length);
  TableWriter table;
  table.Add("", meta);
  table.Add(SliceKey("a", TensorSlice::Whole(2)), input.rest().substr(meta.size()));
  Write(Folder() + "/v1", std::move(table).Finish());
  ReadAll(Folder() + "/v1");
}

void TryState(absl::string_view text) {
  const absl::StatusOr<CheckpointState> state = CheckpointStateFromText(text);
  if (!state.ok()) return;
  const absl::StatusOr<CheckpointState> again =
      CheckpointStateFromText(CheckpointStateToText(*state));
  FuzzCheck(again.ok(), "the same state again");
  FuzzCheck(again->all_model_checkpoint_paths == state->all_model_checkpoint_paths, "its paths");
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::FuzzInput input(data, size);
  const std::string prefix = muster::Folder() + "/b";
  switch (input.Byte() % 7) {
    case 0:
      muster::Write(prefix + ".index", input.rest());
      muster::ReadAll(prefix);
      break;
    case 1:
      muster::Write(prefix + ".index", muster::TableOf(input.rest(), muster::kRawBlock));
      muster::ReadAll(prefix);
      break;
    case 2:
      muster::Write(prefix + ".index", muster::TableOf(input.rest(), muster::kSnappyBlock));
      muster::ReadAll(prefix);
      break;
    case 3:
      muster::TryEntries(input);
      break;
    case 4:
      muster::TryV1(input);
      break;
    case 5:
      muster::TryState(input.rest());
      break;
    case 6:
      (void)muster::ParseShapeAndSlice(input.rest()).ok();
      break;
  }
  return 0;
}
