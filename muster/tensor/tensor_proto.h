// Tensors and shapes as TensorFlow's messages. Input may be anything; nothing is allocated before
// the check.
#pragma once

#include "absl/status/statusor.h"

#include "muster/tensor/handles.h"
#include "muster/tensor/shape.h"
#include "muster/tensor/tensor.h"

namespace tensorflow {
class ResourceHandleProto;
class TensorProto;
class TensorShapeProto;
}  // namespace tensorflow

namespace muster {

// InvalidArgument for unknown ranks or dims, negative sizes, too many dims and products that
// overflow.
absl::StatusOr<Shape> ShapeFromProto(const tensorflow::TensorShapeProto& proto);
absl::StatusOr<PartialShape> PartialShapeFromProto(const tensorflow::TensorShapeProto& proto);
void ShapeToProto(const Shape& shape, tensorflow::TensorShapeProto& proto);
void PartialShapeToProto(const PartialShape& shape, tensorflow::TensorShapeProto& proto);

absl::StatusOr<ResourceHandle> ResourceHandleFromProto(
    const tensorflow::ResourceHandleProto& proto);
void ResourceHandleToProto(const ResourceHandle& handle, tensorflow::ResourceHandleProto& proto);

// Reads both encodings. In the typed one the last value repeats, so a short message may describe a
// large tensor: one that repeats values and takes more than 2 GiB (more than any message could
// carry) is ResourceExhausted.
absl::StatusOr<Tensor> TensorFromProto(const tensorflow::TensorProto& proto);

enum class TensorEncoding {
  kContent,  // tensor_content, as everything that travels by RPC
  kTyped,    // as TensorFlow's Python writes attributes: typed fields for single elements, strings,
             // bools, complex numbers (up to a million) and one value over and over, else content
};
// Replaces what `proto` holds. Unimplemented for variants that hold a value, InvalidArgument for an
// invalid tensor and for one of more than kMaxMessageBytes.
absl::Status TensorToProto(const Tensor& tensor, TensorEncoding encoding,
                           tensorflow::TensorProto& proto);

}  // namespace muster
