// Tensors, shapes and attributes as messages.
#include "fuzz_input.h"
#include "message_mutator.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/op_def.pb.h"
#include "tensorflow/core/framework/tensor.pb.h"

#include "muster/graph/proto/attr_value_proto.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

enum class Kind : uint8_t { kTensor, kAttr, kShape, kOpDef };
constexpr int kKinds = 4;

// What was read is written and read again, in both encodings.
void TryTensor(const tensorflow::TensorProto& proto) {
  const absl::StatusOr<Tensor> tensor = TensorFromProto(proto);
  if (!tensor.ok()) return;
  for (const TensorEncoding encoding : {TensorEncoding::kContent, TensorEncoding::kTyped}) {
    tensorflow::TensorProto written;
    if (!TensorToProto(*tensor, encoding, written).ok()) continue;
    const absl::StatusOr<Tensor> again = TensorFromProto(written);
    if (absl::IsResourceExhausted(again.status())) continue;  // there is memory for one of them
    FuzzCheck(again.ok(), again.ok() ? "" : again.status().ToString());
    FuzzCheck(again->dtype() == tensor->dtype() && again->shape() == tensor->shape(),
              "the same type and shape again");
  }
}

void TryAttr(const tensorflow::AttrValue& proto) {
  const absl::StatusOr<AttrValue> value = AttrValueFromProto(proto);
  if (!value.ok()) return;
  tensorflow::AttrValue written;
  if (!AttrValueToProto(*value, written).ok()) return;
  const absl::StatusOr<AttrValue> again = AttrValueFromProto(written);
  if (absl::IsResourceExhausted(again.status())) return;  // there is memory for one of them
  FuzzCheck(again.ok(), again.ok() ? "" : again.status().ToString());
}

void TryShape(const tensorflow::TensorShapeProto& proto) {
  if (const auto shape = ShapeFromProto(proto); shape.ok())
    FuzzCheck(shape->num_elements() >= 0, "a size");
  if (const auto shape = PartialShapeFromProto(proto); shape.ok()) {
    tensorflow::TensorShapeProto written;
    PartialShapeToProto(*shape, written);
    FuzzCheck(PartialShapeFromProto(written).ok(), "the same shape again");
  }
}

void TryOpDef(const tensorflow::OpDef& proto) {
  const absl::StatusOr<OpDef> op = OpDefFromProto(proto);
  if (!op.ok()) return;
  (void)SummarizeOpDef(*op);
  tensorflow::OpDef written;
  if (OpDefToProto(*op, written).ok()) FuzzCheck(OpDefFromProto(written).ok(), "the same op again");
}

template <typename Message>
void Try(absl::string_view text, void (*body)(const Message&)) {
  Message message;
  if (message.ParseFromArray(text.data(), static_cast<int>(text.size()))) body(message);
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using muster::Kind;
  muster::FuzzInput input(data, size);
  switch (static_cast<Kind>(input.Byte() % muster::kKinds)) {
    case Kind::kTensor:
      muster::Try<tensorflow::TensorProto>(input.rest(), muster::TryTensor);
      break;
    case Kind::kAttr:
      muster::Try<tensorflow::AttrValue>(input.rest(), muster::TryAttr);
      break;
    case Kind::kShape:
      muster::Try<tensorflow::TensorShapeProto>(input.rest(), muster::TryShape);
      break;
    case Kind::kOpDef:
      muster::Try<tensorflow::OpDef>(input.rest(), muster::TryOpDef);
      break;
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  tensorflow::TensorProto tensor;
  tensorflow::AttrValue attr;
  tensorflow::TensorShapeProto shape;
  tensorflow::OpDef op;
  google::protobuf::Message* const messages[muster::kKinds] = {&tensor, &attr, &shape, &op};
  return muster::MutateInput(data, size, max_size, seed, 1,
                             [&](uint8_t kind) { return messages[kind % muster::kKinds]; });
}
