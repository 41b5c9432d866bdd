#include "idx_reader.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include <zlib.h>

namespace {

using muster::DType;
using muster::Shape;
using muster::Tensor;

absl::StatusOr<std::vector<unsigned char>> ReadAll(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");  // plain files are read as they are
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::vector<unsigned char> bytes;
  std::vector<unsigned char> chunk(1 << 20);
  int got;
  while ((got = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()))) > 0) {
    bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + got);
  }
  gzclose(file);
  if (got < 0) return absl::DataLossError(absl::StrCat(path, " is damaged"));
  return bytes;
}

uint32_t BigEndian(const unsigned char* p) {
  return uint32_t{p[0]} << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

// The dims of a file with this magic number, checked against its length.
absl::StatusOr<std::vector<int64_t>> Header(const std::vector<unsigned char>& bytes, uint32_t magic,
                                            const std::string& path) {
  const size_t rank = magic & 0xFF;
  if (bytes.size() < 4 + 4 * rank || BigEndian(bytes.data()) != magic) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not an IDX file with magic number ", magic));
  }
  std::vector<int64_t> dims;
  size_t count = 1;
  for (size_t i = 0; i < rank; ++i) {
    dims.push_back(BigEndian(bytes.data() + 4 + 4 * i));
    count *= static_cast<size_t>(dims.back());
  }
  if (bytes.size() - 4 - 4 * rank < count)
    return absl::DataLossError(absl::StrCat(path, " is truncated"));
  return dims;
}

}  // namespace

absl::StatusOr<Tensor> ReadImages(const std::string& path) {
  absl::StatusOr<std::vector<unsigned char>> bytes = ReadAll(path);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<std::vector<int64_t>> dims = Header(*bytes, 2051, path);
  if (!dims.ok()) return dims.status();
  Tensor images(DType::kFloat, Shape({(*dims)[0], (*dims)[1] * (*dims)[2]}));
  for (int64_t i = 0; i < images.num_elements(); ++i)
    images.data<float>()[i] = static_cast<float>((*bytes)[16 + i]) / 255.0f;
  return images;
}

absl::StatusOr<Tensor> ReadLabels(const std::string& path) {
  absl::StatusOr<std::vector<unsigned char>> bytes = ReadAll(path);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<std::vector<int64_t>> dims = Header(*bytes, 2049, path);
  if (!dims.ok()) return dims.status();
  Tensor labels = Tensor::Zeros(DType::kFloat, Shape({(*dims)[0], 10}));
  for (int64_t i = 0; i < (*dims)[0]; ++i) {
    const unsigned char label = (*bytes)[8 + i];
    if (label > 9)
      return absl::InvalidArgumentError(absl::StrCat(path, ": label ", label, " is not a digit"));
    labels.data<float>()[10 * i + label] = 1;
  }
  return labels;
}
