#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "muster/checkpoint/bundle_commit.h"
#include "muster/checkpoint/bundle_reader.h"
#include "muster/checkpoint/bundle_writer.h"
#include "muster/checkpoint/checkpoint_reader.h"
#include "muster/checkpoint/checkpoint_state.h"
#include "muster/checkpoint/checkpoint_test.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/merge.h"
#include "muster/checkpoint/table/table_writer.h"
#include "muster/checkpoint/v1_proto.h"
#include "muster/tensor/untouched_tensor_test.h"

namespace muster {
namespace {

std::string Golden(absl::string_view name) {
  return absl::StrCat(MUSTER_GOLDEN_FILES, "/", name);
}

std::string Contents(const std::string& name) {
  absl::StatusOr<std::string> contents = ReadWholeFile(name);
  EXPECT_TRUE(contents.ok()) << contents.status();
  return contents.value_or("");
}

using Tensors = std::map<std::string, Tensor>;

// A tensor of every type that a checkpoint can hold, with elements that differ.
Tensors EveryType() {
  Tensors tensors;
  for (int number = 1; number < kDTypeCount; ++number) {
    const auto dtype = static_cast<DType>(number);
    if (!IsPlainData(dtype)) continue;
    Tensor tensor(dtype, Shape({2, 3}));
    for (size_t i = 0; i < tensor.size_bytes(); ++i)
      tensor.raw()[i] = static_cast<char>(dtype == DType::kBool ? i % 2 : 17 * i + number);
    tensors[absl::StrCat("m/", DTypeName(dtype))] = tensor;
    tensors[absl::StrCat("empty/", DTypeName(dtype))] = Tensor(dtype, Shape({2, 0, 3}));
  }
  tensors["scalar"] = Tensor::Scalar<double>(1.5);
  tensors["text"] = Tensor::Vector<std::string>({"ab", "", std::string(300, 'x'), "\xff"});
  tensors["text/empty"] = Tensor(DType::kString, Shape({0}));
  tensors["text/scalar"] = Tensor::Scalar<std::string>("one");
  return tensors;
}

absl::Status Write(const std::string& prefix, const Tensors& tensors,
                   BundleWriter::Options options = {}) {
  StoppingFiles quick;
  if (options.files == &LocalFiles()) options.files = &quick;
  BundleWriter writer(prefix, options);
  for (const auto& [name, tensor] : tensors) RETURN_IF_ERROR(writer.Add(name, tensor));
  return writer.Finish();
}

// All tensors, or the first error.
absl::StatusOr<Tensors> ReadEverything(const std::string& prefix) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader, CheckpointReader::Open(prefix));
  Tensors tensors;
  for (const auto& [name, variable] : reader->variables()) {
    ASSIGN_OR_RETURN(tensors[name], reader->GetTensor(name));
  }
  return tensors;
}

void ExpectSame(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_TRUE(SameTensor(actual.at(name), tensor)) << name;
  }
}

bool Same(const Tensors& a, const Tensors& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& entry) {
           const auto other = b.find(entry.first);
           return other != b.end() && SameTensor(entry.second, other->second);
         });
}

TEST(Bundle, KeepsEveryType) {
  TestFolder folder;
  const Tensors tensors = EveryType();
  BundleWriter writer(folder / "new/all");
  for (const auto& [name, tensor] : tensors) ASSERT_TRUE(writer.Add(name, tensor).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const absl::StatusOr<Tensors> read = ReadEverything(folder / "new/all");
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSame(*read, tensors);
  EXPECT_FALSE(Write(folder / "a/b/c", tensors).ok()) << "two levels of folders are missing";
}

TEST(Bundle, WritesAndReadsLargeTensorsInParallel) {
  TestFolder folder;
  const std::unique_ptr<Scheduler> pool = NewThreadPool(3);
  Tensors tensors;
  for (int i = 0; i < 40; ++i) {
    Tensor tensor(DType::kFloat, Shape({i * i * 997 + 1}));
    for (int64_t j = 0; j < tensor.num_elements(); ++j)
      tensor.data<float>()[j] = static_cast<float>(i) + 0.5f * static_cast<float>(j);
    tensors[absl::StrCat("t", i)] = tensor;
  }
  BundleWriter::Options options;
  options.scheduler = pool.get();
  ASSERT_TRUE(Write(folder / "p", tensors, options).ok());
  ASSERT_TRUE(Write(folder / "s", tensors).ok());
  EXPECT_EQ(Contents(folder / "p.index"), Contents(folder / "s.index"));
  EXPECT_EQ(Contents(folder / "p.data-00000-of-00001"), Contents(folder / "s.data-00000-of-00001"));

  std::vector<BundleReader::Request> requests;
  for (const auto& [name, tensor] : tensors) requests.push_back({name, std::nullopt});
  std::vector<Tensor> results(requests.size());
  const absl::StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(folder / "p");
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE((*reader)
                  ->ReadAll(
                      requests,
                      [&](size_t i, DType dtype, const Shape& shape) -> absl::StatusOr<Tensor*> {
                        results[i] = Tensor(dtype, shape);
                        return &results[i];
                      },
                      pool.get())
                  .ok());
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_TRUE(SameTensor(results[i], tensors[requests[i].name]));
}

TEST(Bundle, ReadsSlicesInOtherPartsThanTheyWereWritten) {
  TestFolder folder;
  const Shape shape({6, 4});
  for (DType dtype : {DType::kInt32, DType::kString}) {
    Tensor whole(dtype, shape);
    for (int i = 0; i < 24; ++i) {
      if (dtype == DType::kString) {
        whole.data<std::string>()[i] = std::string(static_cast<size_t>(i), 'a');
      } else {
        whole.data<int32_t>()[i] = i;
      }
    }
    const TensorSlice all = *TensorSlice::Whole(2).Resolved(shape);
    const auto part = [&](const TensorSlice& slice) {
      Tensor piece(dtype, *slice.ShapeWithin(shape));
      CopyOverlap(whole, all, *slice.Resolved(shape), piece);
      return piece;
    };
    BundleWriter writer(folder / "w");
    // The rows below first: order of saving is not order of place.
    for (const char* spec : {"4,2:-", "0,4:2,2", "0,4:0,2"}) {
      const TensorSlice slice = *TensorSlice::Parse(spec);
      ASSERT_TRUE(writer.AddSlice("w", shape, slice, part(slice)).ok());
    }
    ASSERT_TRUE(writer.Finish().ok());
    const absl::StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(folder / "w");
    ASSERT_TRUE(reader.ok());
    EXPECT_TRUE(SameTensor(*(*reader)->Read("w"), whole));
    for (const char* spec : {"4,2:-", "0,2:-", "2,3:1,2", "5,1:3,1", "0,4:2,2", "0,6:0,4"}) {
      const TensorSlice slice = *TensorSlice::Parse(spec);
      EXPECT_TRUE(SameTensor(*(*reader)->ReadSlice("w", slice), part(slice))) << spec;
    }
    EXPECT_EQ((*reader)->List()->size(), 1u);
  }
}

TEST(Bundle, RefusesWhatDoesNotFitTogether) {
  TestFolder folder;
  const Tensor two = Tensor::Vector<float>({1, 2});
  BundleWriter writer(folder / "w");
  const auto add = [&](const char* spec, const Shape& shape) {
    return writer.AddSlice("w", shape, *TensorSlice::Parse(spec), two);
  };
  EXPECT_TRUE(add("0,2", Shape({4})).ok());
  EXPECT_EQ(add("0,2", Shape({4})).code(), absl::StatusCode::kInvalidArgument) << "twice";
  EXPECT_EQ(add("2,2", Shape({5})).code(), absl::StatusCode::kInvalidArgument) << "another shape";
  EXPECT_EQ(add("2,3", Shape({5})).code(), absl::StatusCode::kInvalidArgument) << "wrong size";
  EXPECT_EQ(writer.Add("w", two).message(), "Adding duplicate key: w");
  EXPECT_EQ(writer.Add("r", Tensor(DType::kResource, Shape())).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_FALSE(writer.Add("", two).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const absl::StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(folder / "w");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->Read("w").status().message(),
            "Does not have sufficient slices for partitioned tensor w to restore in slice_spec: -");
  EXPECT_TRUE((*reader)->ReadSlice("w", *TensorSlice::Parse("1,1")).ok());
  EXPECT_EQ((*reader)->Read("x").status().message(), "Key x not found in checkpoint");
}

TEST(Bundle, ReadsTheOtherByteOrder) {
  TestFolder folder;
  const std::string data(
      "\x3f\xf8\0\0\0\0\0\0"
      "\x01\x02"
      "\x3f\x80\0\0\x40\0\0\0",
      18);
  WriteQuickly(folder / "b.data-00000-of-00001", data);
  TableWriter table;
  BundleHeader header;
  header.big_endian = true;
  table.Add("", header.Serialize());
  const auto add = [&](const char* name, DType dtype, int64_t offset, int64_t size) {
    BundleEntry entry;
    entry.dtype = dtype;
    entry.offset = offset;
    entry.size = size;
    entry.masked_crc = MaskCrc32c(Crc32c(data.substr(offset, size)));
    table.Add(name, entry.Serialize());
  };
  add("complex", DType::kComplex64, 10, 8);
  add("double", DType::kDouble, 0, 8);
  add("short", DType::kInt16, 8, 2);
  WriteQuickly(folder / "b.index", std::move(table).Finish());
  const absl::StatusOr<Tensors> read = ReadEverything(folder / "b");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at("double").scalar<double>(), 1.5);
  EXPECT_EQ(read->at("short").scalar<int16_t>(), 0x0102);
  EXPECT_EQ(read->at("complex").scalar<Complex64>(), Complex64(1, 2));
}

// --- TensorFlow's own files.

// Writes the tensors of a TensorFlow checkpoint again, shard by shard, and merges the shards.
void WriteAnew(const std::string& original, const std::string& copy) {
  const absl::StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(original);
  ASSERT_TRUE(reader.ok()) << reader.status();
  struct Part {
    BundleEntry entry;
    std::string name;
    std::optional<TensorSlice> slice;
    Shape full_shape;
  };
  std::vector<Part> parts;
  const auto entries = (*reader)->List();
  ASSERT_TRUE(entries.ok()) << entries.status();
  for (const auto& [name, entry] : *entries) {
    if (entry.slices.empty()) parts.push_back({entry, name, std::nullopt, entry.shape});
    for (const TensorSlice& slice : entry.slices)
      parts.push_back({*(*reader)->Find(SliceKey(name, slice)), name, slice, entry.shape});
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.entry.shard, a.entry.offset) < std::pair(b.entry.shard, b.entry.offset);
  });
  const int shards = (*reader)->header().num_shards;
  std::vector<std::string> prefixes;
  for (int shard = 0; shard < shards; ++shard) {
    prefixes.push_back(shards == 1 ? copy : absl::StrCat(copy, "_temp/part-", shard));
    BundleWriter writer(prefixes.back());
    for (const Part& part : parts) {
      if (part.entry.shard != shard) continue;
      const TensorSlice slice = part.slice.value_or(TensorSlice::Whole(part.full_shape.rank()));
      const absl::StatusOr<Tensor> tensor = (*reader)->ReadSlice(part.name, slice);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      ASSERT_TRUE(writer.AddSlice(part.name, part.full_shape, slice, *tensor).ok());
    }
    ASSERT_TRUE(writer.Finish().ok());
  }
  if (shards > 1) {
    ASSERT_TRUE(MergeCheckpoints(prefixes, copy).ok());
    EXPECT_FALSE(FileExists(absl::StrCat(copy, "_temp"))) << "the shards' folder is removed";
  }
}

class GoldenBundle : public testing::TestWithParam<const char*> {};

TEST_P(GoldenBundle, IsWrittenByteForByte) {
  TestFolder folder;
  const std::string original = Golden(GetParam());
  WriteAnew(original, folder / "copy");
  if (HasFatalFailure()) return;
  EXPECT_EQ(Contents(IndexFileName(folder / "copy")), Contents(IndexFileName(original)));
  const std::vector<std::string> data = MatchFiles(DataFilePattern(original));
  EXPECT_EQ(MatchFiles(DataFilePattern(folder / "copy")).size(), data.size());
  for (const std::string& name : data)
    EXPECT_EQ(Contents(folder / ("copy" + name.substr(original.size()))), Contents(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenBundle,
                         testing::Values("ckpt_min/scalar", "ckpt_min/slices",
                                         "ckpt_min/slices_dash", "ckpt_min/slice_missing",
                                         "ckpt_min/strings", "ckpt_min/slice_numbers",
                                         "ckpt_min/binary_names", "ckpt_min/merged",
                                         "ckpt_min/variant", "ckpt_dtypes/model.ckpt-7",
                                         "ckpt_rawsave/raw", "ckpt_parts/model.ckpt",
                                         "ckpt_sharded/model.ckpt-1", "ckpt_slots/model.ckpt-3"));

TEST(GoldenFiles, SnappyHoldsTheSameTensors) {
  const absl::StatusOr<Tensors> plain = ReadEverything(Golden("ckpt_slots/model.ckpt-3"));
  const absl::StatusOr<Tensors> compressed = ReadEverything(Golden("ckpt_snappy/model.ckpt-3"));
  ASSERT_TRUE(plain.ok() && compressed.ok()) << plain.status() << compressed.status();
  ExpectSame(*compressed, *plain);
}

TEST(GoldenFiles, V1IsReadAndWrittenByteForByte) {
  TestFolder folder;
  const std::string original = Golden("ckpt_v1/model.ckpt-1");
  const absl::StatusOr<std::unique_ptr<V1Reader>> reader = V1Reader::Open(original);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(SameTensor(*(*reader)->Read("a"), Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, 4})));
  EXPECT_TRUE(SameTensor(*(*reader)->Read("p"), Tensor::Vector<float>({2.5, 2.5, 2.5, 2.5})));
  EXPECT_TRUE(SameTensor(*(*reader)->Read("s"), Tensor::Vector<std::string>({"x", "yz"})));
  V1Writer writer(folder / "v1");
  for (const auto& [name, stored] : (*reader)->tensors()) {
    for (const auto& [slice, file] : stored.slices) {
      const absl::StatusOr<Tensor> tensor = (*reader)->ReadSlice(name, slice);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      ASSERT_TRUE(writer.Add(name, stored.shape, slice, *tensor).ok());
    }
  }
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(Contents(folder / "v1"), Contents(original));
}

TEST(V1, TensorsLargerThanAMessageAreRefused) {
  // The limits per type, and the error texts, are TensorFlow's.
  const struct {
    DType dtype;
    int64_t elements;
    const char* estimate;
  } kCases[] = {{DType::kFloat, 536870655, "2147483651 bytes"},
                {DType::kBool, int64_t{1} << 32, "4294968327 bytes"},
                {DType::kInt8, 214748400, "2147485031 bytes"},
                {DType::kComplex64, int64_t{1} << 31, "17179870215 bytes"}};
  for (const auto& [dtype, elements, estimate] : kCases) {
    TestFolder folder;
    V1Writer writer(folder / "v1");
    const Tensor tensor = UntouchedTensor(dtype, Shape({elements}));
    const absl::Status status =
        writer.Add("x", tensor.shape(), TensorSlice::Whole(tensor.rank()), tensor);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              absl::StrCat("Tensor slice is too large to serialize (conservative estimate: ",
                           estimate, "); tensor 'x'"));
  }
}

// --- Damage.

// Every single byte changed in two ways, and every truncation: an error or the right tensors.
void DamageEverywhere(const std::string& prefix, const std::vector<std::string>& files,
                      const Tensors& expected) {
  int errors = 0;
  for (const std::string& file : files) {
    const std::string original = Contents(file);
    const auto try_with = [&](const std::string& contents) {
      WriteQuickly(file, contents);
      const absl::StatusOr<Tensors> read = ReadEverything(prefix);
      if (read.ok()) {
        EXPECT_TRUE(Same(*read, expected));
      } else {
        EXPECT_FALSE(read.status().message().empty());
        ++errors;
      }
    };
    for (size_t at = 0; at < original.size(); ++at) {
      for (char change : {'\x01', '\xff'}) {
        std::string changed = original;
        changed[at] = static_cast<char>(changed[at] ^ change);
        try_with(changed);
      }
      try_with(original.substr(0, at));
    }
    try_with(original + "x");
    WriteQuickly(file, original);
  }
  EXPECT_GT(errors, 100);
}

TEST(Damage, OfABundleIsFoundWhereverItIs) {
  TestFolder folder;
  Tensors tensors;
  tensors["layer/weights"] = Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, 4});
  tensors["text"] = Tensor::Vector<std::string>({"some", "text"});
  BundleWriter writer(folder / "d");
  for (const auto& [name, tensor] : tensors) ASSERT_TRUE(writer.Add(name, tensor).ok());
  for (const char* spec : {"0,1", "1,1"}) {
    ASSERT_TRUE(writer
                    .AddSlice("parts", Shape({2}), *TensorSlice::Parse(spec),
                              Tensor::Vector<int32_t>({spec[0] - '0'}))
                    .ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
  tensors["parts"] = Tensor::Vector<int32_t>({0, 1});
  DamageEverywhere(folder / "d", {folder / "d.index", folder / "d.data-00000-of-00001"}, tensors);
}

TEST(Damage, OfAV1CheckpointIsFoundWhereverItIs) {
  TestFolder folder;
  const std::string copy = folder / "v1";
  WriteQuickly(copy, Contents(Golden("ckpt_v1/model.ckpt-1")));
  const absl::StatusOr<Tensors> tensors = ReadEverything(copy);
  ASSERT_TRUE(tensors.ok());
  DamageEverywhere(copy, {copy}, *tensors);
}

TEST(Damage, OfASnappyIndexIsFoundWhereverItIs) {
  TestFolder folder;
  const std::string original = Golden("ckpt_snappy/model.ckpt-3");
  for (const char* ending : {".index", ".data-00000-of-00001"})
    WriteQuickly(folder / "c" + ending, Contents(original + ending));
  const absl::StatusOr<Tensors> tensors = ReadEverything(folder / "c");
  ASSERT_TRUE(tensors.ok());
  DamageEverywhere(folder / "c", {folder / "c.index"}, *tensors);
}

TEST(Damage, IsReportedWithTheTensor) {
  TestFolder folder;
  const Tensors tensors = {{"good", Tensor::Scalar<float>(1)},
                           {"hurt", Tensor::Vector<float>({1, 2})}};
  ASSERT_TRUE(Write(folder / "d", tensors).ok());
  const std::string data = folder / "d.data-00000-of-00001";
  std::string bytes = Contents(data);
  bytes[6] ^= 4;
  WriteQuickly(data, bytes);
  const absl::StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(folder / "d");
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE((*reader)->Read("good").ok());
  const absl::Status status = (*reader)->Read("hurt").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("'hurt'"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find(data), absl::string_view::npos) << status;

  WriteQuickly(data, bytes.substr(0, 9));
  const absl::StatusOr<Tensors> cut = ReadEverything(folder / "d");
  EXPECT_EQ(cut.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(cut.status().message().find("'hurt'"), absl::string_view::npos) << cut.status();
}

// --- Crashes. `save` is stopped at every operation; after each, `check` looks at what is left.

void CrashEverywhere(const std::function<void()>& prepare,
                     const std::function<absl::Status(FileSystem&)>& save,
                     const std::function<void(bool saved)>& check) {
  for (int operations = 0;; ++operations) {
    SCOPED_TRACE(absl::StrCat("stopped after ", operations, " operations"));
    ASSERT_LT(operations, 1000);
    prepare();
    StoppingFiles files(operations);
    const bool saved = save(files).ok();
    check(saved);
    if (!files.stopped()) {
      EXPECT_TRUE(saved);
      EXPECT_GT(operations, 5);
      return;
    }
  }
}

absl::Status WriteThrough(const std::string& prefix, const Tensors& tensors, FileSystem& files) {
  BundleWriter::Options options;
  options.files = &files;
  return Write(prefix, tensors, options);
}

void Clear(const TestFolder& folder) {
  std::filesystem::remove_all(folder.path());
  std::filesystem::create_directory(folder.path());
}

const Tensors& OldTensors() {
  static const Tensors tensors = {{"v", Tensor::Vector<float>({1, 2, 3})},
                                  {"step", Tensor::Scalar<int64_t>(1)}};
  return tensors;
}
const Tensors& NewTensors() {
  static const Tensors tensors = {{"v", Tensor::Vector<float>({4, 5, 6})},
                                  {"step", Tensor::Scalar<int64_t>(2)}};
  return tensors;
}

TEST(Crash, LeavesThePreviousCheckpointTheLatest) {
  TestFolder folder;
  CrashEverywhere(
      [&] {
        Clear(folder);
        ASSERT_TRUE(Write(folder / "m-1", OldTensors()).ok());
        ASSERT_TRUE(
            WriteCheckpointState(folder.path(), *MakeCheckpointState(folder.path(), folder / "m-1"))
                .ok());
      },
      [&](FileSystem& files) -> absl::Status {
        RETURN_IF_ERROR(WriteThrough(folder / "m-2", NewTensors(), files));
        const auto state = MakeCheckpointState(folder.path(), folder / "m-2", {folder / "m-1"});
        RETURN_IF_ERROR(WriteCheckpointState(folder.path(), *state, "", files));
        return RemoveCheckpoint(folder / "m-1", "meta", files);
      },
      [&](bool saved) {
        const std::string latest = LatestCheckpoint(folder.path());
        ASSERT_NE(latest, "");
        EXPECT_TRUE(!saved || latest == folder / "m-2");
        const absl::StatusOr<Tensors> read = ReadEverything(latest);
        ASSERT_TRUE(read.ok()) << read.status();
        ExpectSame(*read, latest == folder / "m-1" ? OldTensors() : NewTensors());
      });
}

TEST(Crash, LeavesAPrefixThatIsSavedOverReadable) {
  TestFolder folder;
  CrashEverywhere(
      [&] {
        Clear(folder);
        ASSERT_TRUE(Write(folder / "m", OldTensors()).ok());
      },
      [&](FileSystem& files) { return WriteThrough(folder / "m", NewTensors(), files); },
      [&](bool saved) {
        const absl::StatusOr<Tensors> read = ReadEverything(folder / "m");
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_TRUE(Same(*read, NewTensors()) || (!saved && Same(*read, OldTensors())));
        // Whatever the crash left behind, the next save works.
        ASSERT_TRUE(Write(folder / "m", OldTensors()).ok());
        ExpectSame(*ReadEverything(folder / "m"), OldTensors());
        EXPECT_TRUE(FileExists(folder / "m.data-00000-of-00001"));
        EXPECT_EQ(BundleReader::Open(folder / "m").value()->header().num_shards, 1);
      });
}

TEST(Crash, LeavesAMergedPrefixReadable) {
  TestFolder folder;
  const Tensors first = {{"v", NewTensors().at("v")}};
  const Tensors second = {{"step", NewTensors().at("step")}};
  CrashEverywhere(
      [&] {
        Clear(folder);
        // Three shards before, two after.
        ASSERT_TRUE(Write(folder / "old-0", {{"v", OldTensors().at("v")}}).ok());
        ASSERT_TRUE(Write(folder / "old-1", {{"step", OldTensors().at("step")}}).ok());
        ASSERT_TRUE(Write(folder / "old-2", {{"more", OldTensors().at("step")}}).ok());
        ASSERT_TRUE(
            MergeCheckpoints({folder / "old-0", folder / "old-1", folder / "old-2"}, folder / "m")
                .ok());
        ASSERT_TRUE(Write(folder / "m_temp/part-0", first).ok());
        ASSERT_TRUE(Write(folder / "m_temp/part-1", second).ok());
      },
      [&](FileSystem& files) {
        MergeOptions options;
        options.files = &files;
        return MergeCheckpoints({folder / "m_temp/part-0", folder / "m_temp/part-1"}, folder / "m",
                                options);
      },
      [&](bool saved) {
        const absl::StatusOr<Tensors> read = ReadEverything(folder / "m");
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_TRUE(Same(*read, NewTensors()) || (!saved && read->contains("more")));
      });
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    left.insert(entry.path().filename().string());
  EXPECT_EQ(left,
            (std::set<std::string>{"m.data-00000-of-00002", "m.data-00001-of-00002", "m.index"}));
}

TEST(Crash, OfAFailedSaveLeavesNothing) {
  TestFolder folder;
  // The disk fails once, but goes on working: partial files are removed.
  class FullDisk : public StoppingFiles {
   public:
    FullDisk() : StoppingFiles(2) {}
    absl::Status Remove(const std::string& name) override { return LocalFiles().Remove(name); }
  };
  FullDisk files;
  EXPECT_FALSE(WriteThrough(folder / "m", NewTensors(), files).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace muster
