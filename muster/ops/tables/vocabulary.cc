// Warm starts: GenerateVocabRemapping compares two vocabulary files, LoadAndRemapMatrix reads a
// matrix from a checkpoint with rows and columns where the new vocabulary has them.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "absl/container/flat_hash_map.h"

#include "muster/checkpoint/bundle_reader.h"
#include "muster/checkpoint/file.h"
#include "muster/ops/file_kernel.h"

namespace muster {
namespace {

absl::StatusOr<std::string> ScalarText(const Tensor& tensor, absl::string_view what) {
  if (tensor.num_elements() != 1)
    return InvalidArgument(what, " should be a single string, but got ", tensor.num_elements());
  if (tensor.scalar<std::string>().empty()) return InvalidArgument(what, " cannot be empty.");
  return tensor.scalar<std::string>();
}

absl::StatusOr<std::vector<std::string>> ReadWords(const std::string& filename, int64_t most) {
  std::ifstream file(LocalPath(filename), std::ios::binary);
  if (!file) {
    const std::string text = absl::StrCat(filename, "; ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::UnknownError(text);
  }
  std::vector<std::string> words;
  std::string word;
  while ((most < 0 || static_cast<int64_t>(words.size()) < most) && std::getline(file, word)) {
    if (!word.empty() && word.back() == '\r') word.pop_back();
    words.push_back(word);
  }
  if (file.bad()) return absl::DataLossError(absl::StrCat("cannot read ", filename));
  return words;
}

struct Remapping {
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(offset, setup.Attr<int64_t>("new_vocab_offset"));
    ASSIGN_OR_RETURN(count, setup.Attr<int64_t>("num_new_vocab"));
    ASSIGN_OR_RETURN(old_size, setup.Attr<int64_t>("old_vocab_size"));
    if (offset < 0 || count < 0 || count > std::numeric_limits<int64_t>::max() - offset)
      return InvalidArgument("new_vocab_offset and num_new_vocab must not be negative");
    return absl::OkStatus();
  }

  absl::Status Run(FileCall& c) const {
    ASSIGN_OR_RETURN(const std::string new_file, ScalarText(c.input(0), "new vocab filename"));
    ASSIGN_OR_RETURN(const std::string old_file, ScalarText(c.input(1), "old vocab filename"));
    ASSIGN_OR_RETURN(const std::vector<std::string> old_words, ReadWords(old_file, old_size));
    absl::flat_hash_map<std::string, int64_t> places;
    for (size_t i = 0; i < old_words.size(); ++i) {
      const auto [found, is_new] = places.emplace(old_words[i], static_cast<int64_t>(i));
      if (!is_new) {
        return absl::FailedPreconditionError(
            absl::StrCat("HashTable has different value for same key. Key ", old_words[i], " has ",
                         found->second, " and trying to add value ", i));
      }
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> words, ReadWords(new_file, offset + count));
    const auto available = static_cast<int64_t>(words.size());
    if (offset + count > available) {
      return InvalidArgument("Must have at least ", offset + count, " lines in ", new_file,
                             ", but it has ", available);
    }
    ASSIGN_OR_RETURN(Tensor* const remapping, c.AllocateOutput(0, Shape({count})));
    int32_t present = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto found = places.find(words[offset + i]);
      present += found != places.end();
      remapping->data<int64_t>()[i] = found == places.end() ? -1 : found->second;
    }
    c.SetOutput(1, Tensor::Scalar<int32_t>(present));
    return absl::OkStatus();
  }

  int64_t offset = 0;
  int64_t count = 0;
  int64_t old_size = -1;
};

struct Load {
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(num_rows, setup.Attr<int64_t>("num_rows"));
    ASSIGN_OR_RETURN(num_columns, setup.Attr<int64_t>("num_cols"));
    return absl::OkStatus();
  }

  absl::Status Run(FileCall& c) const {
    const Tensor& rows = c.input(2);
    const Tensor& columns = c.input(3);
    if (rows.rank() != 1 || rows.num_elements() != num_rows) {
      return InvalidArgument("Size of row_remapping is ", rows.num_elements(),
                             " instead of being equal to num_rows=", num_rows);
    }
    const bool remaps_columns = columns.num_elements() != 0;
    if (remaps_columns && (columns.rank() != 1 || columns.num_elements() != num_columns)) {
      return InvalidArgument("Provided col_remapping, but its size is ", columns.num_elements(),
                             " instead of being equal to num_cols=", num_columns);
    }
    ASSIGN_OR_RETURN(const std::string path, ScalarText(c.input(0), "The `ckpt_path` tensor"));
    ASSIGN_OR_RETURN(const std::string name,
                     ScalarText(c.input(1), "The `old_tensor_name` tensor"));
    ASSIGN_OR_RETURN(const Tensor old, LoadMatrix(path, name));
    if (!remaps_columns && old.dim(1) != num_columns) {
      return InvalidArgument("num_cols=", num_columns, " does not match the number of columns ",
                             old.dim(1), " of the old matrix");
    }
    RETURN_IF_ERROR(CheckIds(rows, old.dim(0)));
    if (remaps_columns) RETURN_IF_ERROR(CheckIds(columns, old.dim(1)));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({num_rows, num_columns}));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    const absl::Span<const float> fresh = c.input(4).values<float>();
    size_t used = 0;
    for (int64_t i = 0; i < num_rows; ++i) {
      const int64_t row = rows.values<int64_t>()[i];
      for (int64_t j = 0; j < num_columns; ++j) {
        const int64_t column = remaps_columns ? columns.values<int64_t>()[j] : j;
        float& value = output->data<float>()[i * num_columns + j];
        if (row >= 0 && column >= 0) {
          value = old.data<float>()[row * old.dim(1) + column];
        } else if (used < fresh.size()) {
          value = fresh[used++];
        } else {
          return InvalidArgument("initializing_values contained ", fresh.size(),
                                 " elements, but more missing values remain.");
        }
      }
    }
    if (used != fresh.size()) {
      return InvalidArgument("initializing_values contained ", fresh.size(), " elements, but only ",
                             used, " elements were used to fill in missing values.");
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<Tensor> LoadMatrix(const std::string& path, const std::string& name) {
    ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(path));
    ASSIGN_OR_RETURN(const BundleEntry entry, reader->Find(name));
    if (entry.dtype != DType::kFloat)
      return InvalidArgument("Tensor ", name, " has invalid type ", DTypeName(entry.dtype), ".");
    ASSIGN_OR_RETURN(Tensor old, reader->Read(name));
    if (old.rank() != 2) {
      return InvalidArgument("Old tensor ", name, " must be a matrix, but has shape ",
                             old.shape().ToString());
    }
    return old;
  }

  // Every row or column of the old matrix is used once at most; -1 has none.
  static absl::Status CheckIds(const Tensor& ids, int64_t size) {
    absl::flat_hash_map<int64_t, int64_t> seen;
    for (int64_t i = 0; i < ids.num_elements(); ++i) {
      const int64_t id = ids.values<int64_t>()[i];
      if (id < 0) continue;
      if (id >= size)
        return InvalidArgument("Old id ", id, " is not in the old matrix, which has ", size);
      const auto [found, is_new] = seen.emplace(id, i);
      if (!is_new) {
        return absl::UnimplementedError(absl::StrCat("Old ID ", id, " is mapped to both new ID ",
                                                     found->second, " and ", i,
                                                     ", which is not currently supported."));
      }
    }
    return absl::OkStatus();
  }

  int64_t num_rows = 0;
  int64_t num_columns = 0;
};

absl::Status RemappingShapes(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  ASSIGN_OR_RETURN(const int64_t count, c.Attr<int64_t>("num_new_vocab"));
  c.SetOutput(0, PartialShape::Vector(count));
  c.SetOutput(1, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status LoadShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(2), 1).status());
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(3), 1).status());
  ASSIGN_OR_RETURN(const int64_t rows, c.Attr<int64_t>("num_rows"));
  ASSIGN_OR_RETURN(const int64_t columns, c.Attr<int64_t>("num_cols"));
  c.SetOutput(0, PartialShape::Matrix(rows, columns));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(GenerateVocabRemapping) {
  op.Attr("new_vocab_offset: int >= 0")
      .Attr("num_new_vocab: int >= 0")
      .Attr("old_vocab_size: int >= -1 = -1")
      .Input("new_vocab_file: string")
      .Input("old_vocab_file: string")
      .Output("remapping: int64")
      .Output("num_present: int32")
      .Doc("For every word of a vocabulary its line in an older one, or -1.")
      .Shape(RemappingShapes)
      .NoGradient("integers")
      .Cpu(New<FileKernel<Remapping>>());
}

DEFINE_OP(LoadAndRemapMatrix) {
  op.Attr("num_rows: int >= 0")
      .Attr("num_cols: int >= 1")
      .Attr("max_rows_in_memory: int = -1")
      .Input("ckpt_path: string")
      .Input("old_tensor_name: string")
      .Input("row_remapping: int64")
      .Input("col_remapping: int64")
      .Input("initializing_values: float")
      .Output("output_matrix: float")
      .Stateful()
      .Doc("A matrix of a checkpoint with its rows and columns in another order.")
      .Shape(LoadShape)
      .NoGradient("read from a file")
      .Cpu(New<FileKernel<Load>>());
}

}  // namespace muster
