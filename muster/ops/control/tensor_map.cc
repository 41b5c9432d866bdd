#include "muster/ops/control/tensor_map.h"

#include <algorithm>
#include <cstring>

#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

bool SameKey(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() == DType::kString) return a.values<std::string>() == b.values<std::string>();
  return a.num_elements() == 0 ||
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.size_bytes())) == 0;
}

std::optional<VariantParts> Encode(const Variant& value) {
  const auto* const map = value.get<TensorMap>();
  if (map == nullptr) return std::nullopt;
  VariantParts parts;
  for (const TensorMap::Item& item : map->items) {
    parts.tensors.push_back(item.key);
    parts.tensors.push_back(item.value);
  }
  return parts;
}

absl::StatusOr<Variant> Decode(VariantParts parts) {
  if (parts.tensors.size() % 2 != 0) return InvalidArgument("A tensorflow::TensorMap is cut off");
  auto map = std::make_shared<TensorMap>();
  for (size_t i = 0; i < parts.tensors.size(); i += 2) {
    map->items.push_back({std::move(parts.tensors[i]), std::move(parts.tensors[i + 1])});
  }
  return Variant(std::shared_ptr<const TensorMap>(std::move(map)));
}

[[maybe_unused]] const bool registered =
    RegisterVariantCodec({"tensorflow::TensorMap", &Encode, &Decode});

absl::StatusOr<const TensorMap*> MapIn(const KernelContext& c) {
  const Tensor& handle = c.input(0);
  if (handle.rank() != 0) {
    return InvalidArgument("Input map must be a scalar. Saw: ", handle.shape().ToString());
  }
  const auto* const map = handle.scalar<Variant>().get<TensorMap>();
  if (map == nullptr) return InvalidArgument("Input handle is not a map.");
  return map;
}

absl::StatusOr<const Tensor*> KeyIn(const KernelContext& c) {
  const DType type = c.input(1).dtype();
  if (type == DType::kVariant || type == DType::kResource) {
    return Unimplemented("Maps with keys of type ", DTypeName(type));
  }
  return &c.input(1);
}

void SetMap(KernelContext& c, TensorMap map) {
  c.SetOutput(0, Tensor::Scalar(Variant(std::make_shared<const TensorMap>(std::move(map)))));
}

absl::Status RunEmpty(KernelContext& c) {
  SetMap(c, TensorMap());
  return absl::OkStatus();
}

absl::Status RunSize(KernelContext& c) {
  ASSIGN_OR_RETURN(const TensorMap* const map, MapIn(c));
  c.SetOutput(0, Tensor::Scalar(static_cast<int32_t>(map->items.size())));
  return absl::OkStatus();
}

absl::Status RunInsert(KernelContext& c) {
  ASSIGN_OR_RETURN(const TensorMap* const map, MapIn(c));
  ASSIGN_OR_RETURN(const Tensor* const key, KeyIn(c));
  TensorMap changed = *map;
  changed.Set(*key, c.input(2));
  SetMap(c, std::move(changed));
  return absl::OkStatus();
}

absl::Status RunLookup(KernelContext& c) {
  ASSIGN_OR_RETURN(const TensorMap* const map, MapIn(c));
  ASSIGN_OR_RETURN(const Tensor* const key, KeyIn(c));
  const TensorMap::Item* const item = map->Find(*key);
  if (item == nullptr) return InvalidArgument("Trying to lookup non-existent key.");
  if (item->value.dtype() != c.output_type(0)) {
    return InvalidArgument(
        "Key does not match requested dtype. Expected: ", DTypeName(c.output_type(0)),
        " Actual: ", DTypeName(item->value.dtype()));
  }
  c.SetOutput(0, item->value);
  return absl::OkStatus();
}

absl::Status RunErase(KernelContext& c) {
  ASSIGN_OR_RETURN(const TensorMap* const map, MapIn(c));
  ASSIGN_OR_RETURN(const Tensor* const key, KeyIn(c));
  const TensorMap::Item* const item = map->Find(*key);
  if (item == nullptr) return InvalidArgument("Trying to erase non-existent item.");
  TensorMap changed = *map;
  changed.items.erase(changed.items.begin() + (item - map->items.data()));
  SetMap(c, std::move(changed));
  return absl::OkStatus();
}

absl::Status RunHasKey(KernelContext& c) {
  ASSIGN_OR_RETURN(const TensorMap* const map, MapIn(c));
  ASSIGN_OR_RETURN(const Tensor* const key, KeyIn(c));
  c.SetOutput(0, Tensor::Scalar(map->Find(*key) != nullptr));
  return absl::OkStatus();
}

absl::Status RunStackKeys(KernelContext& c) {
  ASSIGN_OR_RETURN(const TensorMap* const map, MapIn(c));
  if (map->items.empty()) {
    return InvalidArgument("TensorMapStackKeys cannot be called on empty map.");
  }
  const Tensor& first = map->items[0].key;
  for (const TensorMap::Item& item : map->items) {
    if (item.key.dtype() != c.output_type(0)) {
      return InvalidArgument("Key does not match requested dtype.");
    }
    if (item.key.shape() != first.shape()) {
      return InvalidArgument("Keys must all have the same shape.");
    }
  }
  Dims dims = first.shape().dims();
  dims.insert(dims.begin(), static_cast<int64_t>(map->items.size()));
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const keys, c.AllocateOutput(0, shape));
  char* to = keys->raw();
  for (const TensorMap::Item& item : map->items) {
    if (first.num_elements() == 0) break;
    CopyElements(first.dtype(), item.key.raw(), to, first.num_elements());
    to += first.size_bytes();
  }
  return absl::OkStatus();
}

absl::Status StackKeysShape(ShapeContext& c) {
  c.SetOutput(0, PartialShape());
  return absl::OkStatus();
}

}  // namespace

const TensorMap::Item* TensorMap::Find(const Tensor& key) const {
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Item& item) { return SameKey(item.key, key); });
  return found == items.end() ? nullptr : &*found;
}

void TensorMap::Set(const Tensor& key, Tensor value) {
  for (Item& item : items) {
    if (!SameKey(item.key, key)) continue;
    item.value = std::move(value);
    return;
  }
  items.push_back({key, std::move(value)});
}

DEFINE_OP(EmptyTensorMap) {
  op.Output("handle: variant").Doc("A map without items.").Shape(ScalarShape).Cpu(RunEmpty);
}

DEFINE_OP(TensorMapSize) {
  op.Input("input_handle: variant")
      .Output("size: int32")
      .Doc("How many items a map has.")
      .Shape(ScalarShape)
      .Cpu(RunSize);
}

DEFINE_OP(TensorMapInsert) {
  op.Attr("key_dtype: type")
      .Attr("value_dtype: type")
      .Input("input_handle: variant")
      .Input("key: key_dtype")
      .Input("value: value_dtype")
      .Output("output_handle: variant")
      .Doc("A map with one more item, or another value for a key.")
      .Shape(ScalarShape)
      .Cpu(RunInsert);
}

DEFINE_OP(TensorMapLookup) {
  op.Attr("key_dtype: type")
      .Attr("value_dtype: type")
      .Input("input_handle: variant")
      .Input("key: key_dtype")
      .Output("value: value_dtype")
      .Doc("The value of a key.")
      .Shape(UnknownShape)
      .Cpu(RunLookup);
}

DEFINE_OP(TensorMapErase) {
  op.Attr("key_dtype: type")
      .Attr("value_dtype: type")
      .Input("input_handle: variant")
      .Input("key: key_dtype")
      .Output("output_handle: variant")
      .Doc("A map without one of its items.")
      .Shape(ScalarShape)
      .Cpu(RunErase);
}

DEFINE_OP(TensorMapHasKey) {
  op.Attr("key_dtype: type")
      .Input("input_handle: variant")
      .Input("key: key_dtype")
      .Output("has_key: bool")
      .Doc("Whether a map has an item for a key.")
      .Shape(ScalarShape)
      .Cpu(RunHasKey);
}

DEFINE_OP(TensorMapStackKeys) {
  op.Attr("key_dtype: type")
      .Input("input_handle: variant")
      .Output("keys: key_dtype")
      .Doc("The keys of a map, stacked.")
      .Shape(StackKeysShape)
      .Cpu(RunStackKeys);
}

}  // namespace muster
