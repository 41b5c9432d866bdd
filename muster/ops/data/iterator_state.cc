// Where an iterator is, as a value that checkpoints hold: SerializeIterator, DeserializeIterator.
// Datasets give the same elements whenever they are read, so a position says it all; going back
// reads what came before it again.
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

#include "muster/ops/data/iterator_resource.h"
#include "muster/ops/resource_kernel.h"
#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

struct IteratorState {
  int64_t position = 0;
};

std::optional<VariantParts> Encode(const Variant& value) {
  const auto* const state = value.get<IteratorState>();
  if (state == nullptr) return std::nullopt;
  VariantParts parts;
  parts.metadata = absl::StrCat("muster:", state->position);
  return parts;
}

absl::StatusOr<Variant> Decode(VariantParts parts) {
  IteratorState state;
  absl::string_view text = parts.metadata;
  if (!absl::ConsumePrefix(&text, "muster:") || !absl::SimpleAtoi(text, &state.position) ||
      state.position < 0) {
    return Unimplemented(
        "The state of an iterator that another system saved cannot be read: it describes the "
        "buffers of that system");
  }
  return Variant(std::make_shared<const IteratorState>(state));
}

[[maybe_unused]] const bool registered =
    RegisterVariantCodec({"tensorflow::Iterator", &Encode, &Decode});

absl::Status Serialize(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                   InputResourceAs<IteratorResource>(c, 0));
  IteratorState state;
  ASSIGN_OR_RETURN(state.position, iterator->Position());
  c.SetOutput(0, Tensor::Scalar(Variant(std::make_shared<const IteratorState>(state))));
  return absl::OkStatus();
}

absl::Status Deserialize(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                   InputResourceAs<IteratorResource>(c, 0));
  const Tensor& serialized = c.input(1);
  if (serialized.rank() != 0) {
    return InvalidArgument("Iterator variant tensor must be a scalar, got shape ",
                           serialized.shape().ToString());
  }
  const auto* const state = serialized.scalar<Variant>().get<IteratorState>();
  if (state == nullptr) return InvalidArgument("Tensor must hold the state of an iterator");
  return iterator->Restore(state->position, *c.step().scheduler);
}

}  // namespace

DEFINE_OP(SerializeIterator) {
  op.Attr2x("external_state_policy: int = 0")
      .Input("resource_handle: resource")
      .Output("serialized: variant")
      .Stateful()
      .Doc("Where an iterator is.")
      .Shape(ScalarShape)
      .NoGradient("an iterator is not a number")
      .Cpu(Serialize);
}

DEFINE_OP(DeserializeIterator) {
  op.Input("resource_handle: resource")
      .Input("serialized: variant")
      .Stateful()
      .Doc("Sends an iterator to where another was.")
      .Shape(NoOutputs)
      .NoGradient("an iterator is not a number")
      .Cpu(Deserialize);
}

}  // namespace muster
