// The messages in the index of a checkpoint, and the elements of variant tensors as checkpoints
// hold them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/checkpoint/tensor_slice.h"
#include "muster/tensor/handles.h"

namespace tensorflow {
class TensorProto;
class TensorSliceProto;
}  // namespace tensorflow

namespace muster {

struct BundleHeader {
  int num_shards = 1;
  bool big_endian = false;
  int producer = 1;
  int min_consumer = 0;

  std::string Serialize() const;
  // InvalidArgument for a file that only readers of a later format can read.
  static absl::StatusOr<BundleHeader> Parse(absl::string_view bytes);
};

// Where a tensor is in the data files; for a tensor stored in slices, the list of these.
struct BundleEntry {
  DType dtype = DType::kInvalid;
  Shape shape;
  int shard = 0;
  int64_t offset = 0;
  int64_t size = 0;
  uint32_t masked_crc = 0;
  std::vector<TensorSlice> slices;

  std::string Serialize() const;
  static absl::StatusOr<BundleEntry> Parse(absl::string_view bytes);
};

void SliceToProto(const TensorSlice& slice, tensorflow::TensorSliceProto& proto);
TensorSlice SliceFromProto(const tensorflow::TensorSliceProto& proto);

// The elements in the field of their type, one value each; neither type nor shape. Unimplemented
// for types without a field, InvalidArgument where they may be more than a message can have.
absl::Status ElementsToProto(const Tensor& tensor, tensorflow::TensorProto& proto);

// An upper bound on its bytes, by the type alone where it is not text.
int64_t MostElementBytes(const Tensor& tensor);

// One element of a variant tensor.
absl::StatusOr<std::string> SerializeVariant(const Variant& value);
absl::StatusOr<Variant> ParseVariant(absl::string_view bytes);

}  // namespace muster
