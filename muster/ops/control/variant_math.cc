#include "muster/ops/control/variant_math.h"

#include <cstring>

#include "muster/ops/control/held_elements.h"
#include "muster/ops/control/optional.h"
#include "muster/ops/control/tensor_list.h"
#include "muster/ops/control/tensor_map.h"
#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

// Lists may hold lists; this bounds the recursion.
constexpr int kMostNested = 64;

// Plain numbers travel as their bytes, under the names that C++ gives their types.
template <typename T>
std::optional<VariantParts> EncodeNumber(const Variant& value) {
  const T* const number = value.get<T>();
  if (number == nullptr) return std::nullopt;
  return VariantParts{std::string(reinterpret_cast<const char*>(number), sizeof(T)), {}};
}
template <typename T>
absl::StatusOr<Variant> DecodeNumber(VariantParts parts) {
  if (parts.metadata.size() != sizeof(T)) {
    return InvalidArgument("A number in a variant has ", parts.metadata.size(), " bytes, not ",
                           sizeof(T));
  }
  T number;
  if constexpr (std::is_same_v<T, bool>) {
    number = parts.metadata[0] != 0;
  } else {
    std::memcpy(&number, parts.metadata.data(), sizeof(T));
  }
  return Variant(std::make_shared<const T>(number));
}
template <typename T>
VariantCodec NumberCodec(const char* name) {
  return {name, &EncodeNumber<T>, &DecodeNumber<T>};
}
[[maybe_unused]] const bool kNumbersRegistered =
    RegisterVariantCodec(NumberCodec<int32_t>("int")) &&
    RegisterVariantCodec(NumberCodec<float>("float")) &&
    RegisterVariantCodec(NumberCodec<double>("double")) &&
    RegisterVariantCodec(NumberCodec<bool>("bool"));

// The sum of two numbers of type T; nothing where they are something else.
template <typename T>
std::optional<Variant> AddNumbers(const Variant& a, const Variant& b) {
  const T* const x = a.get<T>();
  const T* const y = b.get<T>();
  if (x == nullptr || y == nullptr) return std::nullopt;
  using Sum = std::conditional_t<std::is_integral_v<T>, uint32_t, T>;
  return Variant(
      std::make_shared<const T>(static_cast<T>(static_cast<Sum>(*x) + static_cast<Sum>(*y))));
}

// The zero of a number of type T; nothing where it is something else.
template <typename T>
std::optional<Variant> ZeroOf(const Variant& x) {
  if (x.get<T>() == nullptr) return std::nullopt;
  return Variant(std::make_shared<const T>(T(0)));
}

absl::StatusOr<Tensor> ZerosLike(KernelContext& c, const Tensor& x, int depth);

absl::StatusOr<std::vector<Tensor>> ZerosLikeAll(KernelContext& c, std::vector<Tensor> items,
                                                 int depth) {
  for (Tensor& item : items) {
    // Items that were never set stand for zeros already.
    if (!item.valid()) continue;
    ASSIGN_OR_RETURN(item, ZerosLike(c, item, depth));
  }
  return items;
}

absl::StatusOr<Variant> ZerosLike(KernelContext& c, const Variant& x, int depth) {
  if (const TensorList* const list = x.get<TensorList>()) {
    ASSIGN_OR_RETURN(std::vector<Tensor> items, ZerosLikeAll(c, list->items(), depth));
    return Variant(list->WithItems(std::move(items)));
  }
  if (const OptionalValue* const optional = x.get<OptionalValue>()) {
    OptionalValue zeros;
    ASSIGN_OR_RETURN(zeros.components, ZerosLikeAll(c, optional->components, depth));
    return Variant(std::make_shared<const OptionalValue>(std::move(zeros)));
  }
  if (const TensorMap* const map = x.get<TensorMap>()) {
    TensorMap zeros;
    for (const TensorMap::Item& item : map->items) {
      ASSIGN_OR_RETURN(Tensor value, ZerosLike(c, item.value, depth));
      zeros.items.push_back({item.key, std::move(value)});
    }
    return Variant(std::make_shared<const TensorMap>(std::move(zeros)));
  }
  for (const auto zero_of : {&ZeroOf<int32_t>, &ZeroOf<float>, &ZeroOf<double>, &ZeroOf<bool>}) {
    if (std::optional<Variant> zero = zero_of(x)) return *std::move(zero);
  }
  return InvalidArgument(
      "No unary variant unary_op function found for unary variant op enum: ZEROS_LIKE");
}

absl::StatusOr<Tensor> ZerosLike(KernelContext& c, const Tensor& x, int depth) {
  if (depth > kMostNested) return InvalidArgument("Lists are nested too deeply");
  ASSIGN_OR_RETURN(Tensor zeros, Zeros(c, x.dtype(), x.shape()));
  if (x.dtype() != DType::kVariant) return zeros;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    ASSIGN_OR_RETURN(zeros.data<Variant>()[i], ZerosLike(c, x.data<Variant>()[i], depth + 1));
  }
  return zeros;
}

absl::StatusOr<Tensor> Add(KernelContext& c, const Tensor& a, const Tensor& b, int depth);

absl::StatusOr<Variant> AddLists(KernelContext& c, const TensorList& a, const TensorList& b,
                                 int depth) {
  if (a.dtype() != b.dtype()) {
    return InvalidArgument("Trying to add two lists of tensors of different dtypes. One is ",
                           DTypeName(a.dtype()), " and the other is ", DTypeName(b.dtype()));
  }
  absl::StatusOr<PartialShape> shape = a.shape().Merge(b.shape());
  if (!shape.ok()) {
    return InvalidArgument(
        "Trying to add two lists of tensors with incompatible element shapes. One is ",
        a.shape().ToString(), " and the other is ", b.shape().ToString());
  }
  if (a.size() != b.size()) {
    return InvalidArgument("Trying to add two lists of tensors with different lengths. One is ",
                           a.size(), " and the other is ", b.size());
  }
  std::vector<Tensor> sums = a.items();
  const std::vector<Tensor> others = b.items();
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!others[i].valid()) continue;
    if (!sums[i].valid()) {
      sums[i] = others[i];
      continue;
    }
    ASSIGN_OR_RETURN(sums[i], Add(c, sums[i], others[i], depth));
  }
  return Variant(std::make_shared<const TensorList>(a.dtype(), *std::move(shape), a.max_size(),
                                                    std::move(sums)));
}

// An item that only one of them has counts as zeros in the other.
absl::StatusOr<Variant> AddMaps(KernelContext& c, const TensorMap& a, const TensorMap& b,
                                int depth) {
  TensorMap sum = a;
  for (const TensorMap::Item& item : b.items) {
    const TensorMap::Item* const other = a.Find(item.key);
    Tensor value = item.value;
    if (other != nullptr) {
      ASSIGN_OR_RETURN(value, Add(c, other->value, item.value, depth));
    }
    sum.Set(item.key, std::move(value));
  }
  return Variant(std::make_shared<const TensorMap>(std::move(sum)));
}

absl::StatusOr<Variant> AddOptionals(KernelContext& c, const OptionalValue& a,
                                     const OptionalValue& b, int depth) {
  if (a.components.empty() != b.components.empty()) {
    return InvalidArgument("Cannot add optionals because one has a value and the other doesn't.");
  }
  if (a.components.size() != b.components.size()) {
    return InvalidArgument(
        "Cannot add optionals because they have different numbers of components (",
        a.components.size(), " vs. ", b.components.size(), ").");
  }
  OptionalValue sum;
  for (size_t i = 0; i < a.components.size(); ++i) {
    ASSIGN_OR_RETURN(sum.components.emplace_back(),
                     Add(c, a.components[i], b.components[i], depth));
  }
  return Variant(std::make_shared<const OptionalValue>(std::move(sum)));
}

absl::StatusOr<Variant> Add(KernelContext& c, const Variant& a, const Variant& b, int depth) {
  const TensorList* const list_a = a.get<TensorList>();
  const TensorList* const list_b = b.get<TensorList>();
  if (list_a != nullptr && list_b != nullptr) return AddLists(c, *list_a, *list_b, depth);
  const TensorMap* const map_a = a.get<TensorMap>();
  const TensorMap* const map_b = b.get<TensorMap>();
  if (map_a != nullptr && map_b != nullptr) return AddMaps(c, *map_a, *map_b, depth);
  const OptionalValue* const optional_a = a.get<OptionalValue>();
  const OptionalValue* const optional_b = b.get<OptionalValue>();
  if (optional_a != nullptr && optional_b != nullptr)
    return AddOptionals(c, *optional_a, *optional_b, depth);
  for (const auto add : {&AddNumbers<int32_t>, &AddNumbers<float>, &AddNumbers<double>}) {
    if (std::optional<Variant> sum = add(a, b)) return *std::move(sum);
  }
  return InvalidArgument(
      "Variants that are to be added must both hold a list, an optional or a number");
}

absl::StatusOr<Tensor> Add(KernelContext& c, const Tensor& a, const Tensor& b, int depth) {
  if (depth > kMostNested) return InvalidArgument("Lists are nested too deeply");
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) {
    return InvalidArgument("Trying to add two tensors with incompatible element types or shapes: ",
                           DTypeName(a.dtype()), a.shape().ToString(), " and ",
                           DTypeName(b.dtype()), b.shape().ToString());
  }
  if (a.dtype() == DType::kVariant) {
    ASSIGN_OR_RETURN(Tensor sum, c.AllocateTemporary(a.dtype(), a.shape()));
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      ASSIGN_OR_RETURN(sum.data<Variant>()[i],
                       Add(c, a.data<Variant>()[i], b.data<Variant>()[i], depth + 1));
    }
    return sum;
  }
  if (!CanBeAdded(a.dtype()))
    return InvalidArgument("Trying to add unsupported dtype ", DTypeName(a.dtype()));
  return Sum(c, a, b);
}

}  // namespace

absl::Status ZerosLikeVariants(KernelContext& c) {
  ASSIGN_OR_RETURN(Tensor zeros, ZerosLike(c, c.input(0), 0));
  c.SetOutput(0, std::move(zeros));
  return absl::OkStatus();
}

absl::Status ConjVariants(KernelContext& c) {
  if (c.input(0).num_elements() > 0) {
    return InvalidArgument(
        "No unary variant unary_op function found for unary variant op enum: CONJ");
  }
  c.SetOutput(0, c.input(0));
  return absl::OkStatus();
}

absl::Status AddVariants(KernelContext& c) {
  Tensor sum = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!(c.input(i).shape() == sum.shape())) {
      return InvalidArgument(
          "Inputs to operation ", c.node().name(), " of type ", c.node().op(),
          " must have the same size and shape.  Input 0: ", sum.shape().ToString(), " != input ", i,
          ": ", c.input(i).shape().ToString());
    }
    ASSIGN_OR_RETURN(sum, Add(c, sum, c.input(i), 0));
  }
  c.SetOutput(0, std::move(sum));
  return absl::OkStatus();
}

}  // namespace muster
