#include "muster/ops/fusion/fusion_nodes.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "muster/ops/math/elementwise_gpu.h"

namespace muster {
namespace {

bool GivesBool(absl::string_view function) {
  static const auto* const names = new absl::flat_hash_set<absl::string_view>{
      "Equal",   "NotEqual",     "Less",  "LessEqual", "Greater",
      "GreaterEqual", "IsNan", "IsInf", "IsFinite"};
  return names->contains(function);
}

std::vector<StridedDim> Merged(std::vector<StridedDim> dims) {
  std::vector<StridedDim> merged;
  for (const StridedDim& dim : dims) {
    if (dim.size == 1) continue;
    if (!merged.empty() && dim.stride == merged.back().stride * merged.back().size) {
      merged.back().size *= dim.size;
    } else {
      merged.push_back(dim);
    }
  }
  if (merged.empty()) merged.push_back({1, 1});
  return merged;
}

// --- Reading calls

template <typename T>
T Argument(const GpuCall& call, size_t i) {
  T value{};
  if (i < call.arguments.size() && call.arguments[i].bytes == sizeof(T))
    std::memcpy(&value, call.arguments[i].value, sizeof(T));
  return value;
}

ElementOperand StridedOperand(const char* pointer, absl::string_view type,
                              std::vector<StridedDim> dims) {
  ElementOperand operand;
  operand.pointer = pointer;
  operand.type = std::string(type);
  operand.dims = Merged(std::move(dims));
  return operand;
}

template <int operands>
std::vector<ElementOperand> Broadcasted(const GpuCall& call, const GpuBroadcast<operands>& broadcast,
                                 std::initializer_list<absl::string_view> types) {
  std::vector<ElementOperand> list;
  for (int k = 0; k < operands; ++k) {
    std::vector<StridedDim> dims = {{broadcast.inner.size, broadcast.steps[k]}};
    if (broadcast.outer == 0) dims[0].size = broadcast.count;
    for (int d = 0; d < broadcast.outer; ++d)
      dims.push_back({broadcast.dims[d].size.size, broadcast.dims[d].strides[k]});
    list.push_back(StridedOperand(Argument<const char*>(call, static_cast<size_t>(k)),
                                  types.begin()[k], std::move(dims)));
  }
  return list;
}

// The layout of the struct in add_n.cu.
struct AddNInputs {
  const char* at[32];
  int64_t count;
};

std::optional<ElementNode> Read(const GpuCall& call, absl::string_view kernel,
                                const std::vector<absl::string_view>& names) {
  ElementNode node;
  const auto pointer = [&](size_t i) { return Argument<const char*>(call, i); };
  const auto number = [&](size_t i) { return Argument<int64_t>(call, i); };
  const auto alpha = [&](size_t i) { return absl::StrCat(Argument<uint32_t>(call, i), "u"); };
  const auto type_of = [&](size_t i) { return std::string(i < names.size() ? names[i] : ""); };
  if (kernel == "Unary" && names.size() == 2) {
    node.step = "One";
    node.count = number(2);
    node.operands = {FlatOperand(pointer(0), names[1], node.count)};
    node.out = pointer(1);
    node.before = absl::StrCat(names[0], ", ", names[1]);
    node.out_type = GivesBool(names[0]) ? "bool" : type_of(1);
  } else if (kernel == "Binary" && names.size() == 2) {
    const auto broadcast = Argument<GpuBroadcast<2>>(call, 3);
    node.step = "Two";
    node.count = broadcast.count;
    node.operands = Broadcasted<2>(call, broadcast, {names[1], names[1]});
    node.out = pointer(2);
    node.before = absl::StrCat(names[0], ", ", names[1]);
    node.out_type = GivesBool(names[0]) ? "bool" : type_of(1);
  } else if (kernel == "Ternary" && names.size() == 3) {
    const auto broadcast = Argument<GpuBroadcast<3>>(call, 4);
    node.step = "Three";
    node.count = broadcast.count;
    node.operands = Broadcasted<3>(call, broadcast, {names[1], names[2], names[2]});
    node.out = pointer(3);
    node.before = absl::StrCat(names[0], ", ", names[2]);
    node.out_type = type_of(2);
  } else if (kernel == "Cast" && names.size() == 2) {
    node.step = "Converted";
    node.count = number(2);
    node.operands = {FlatOperand(pointer(0), names[0], node.count)};
    node.out = pointer(1);
    node.before = absl::StrCat(names[0], ", ", names[1], ", ", Argument<int32_t>(call, 3));
    node.out_type = type_of(1);
  } else if (kernel == "Activate" && names.size() == 2) {
    node.step = "Activation";
    node.count = number(2);
    node.operands = {FlatOperand(pointer(0), names[1], node.count)};
    node.out = pointer(1);
    node.before = absl::StrCat(names[0], ", ", names[1], ", ", alpha(3));
    node.out_type = type_of(1);
  } else if (kernel == "ActivateGrad" && names.size() == 2) {
    node.step = "ActivationGrad";
    node.count = number(3);
    node.operands = {FlatOperand(pointer(0), names[1], node.count),
                     FlatOperand(pointer(1), names[1], node.count)};
    node.out = pointer(2);
    node.before = absl::StrCat(names[0], ", ", names[1], ", ", alpha(4));
    node.out_type = type_of(1);
  } else if (kernel == "BiasAdd" && names.size() == 1) {
    const int64_t channels = number(4), inner = number(5);
    node.count = number(3);
    if (channels <= 0 || inner <= 0) return std::nullopt;
    node.step = "Two";
    node.operands = {
        FlatOperand(pointer(0), names[0], node.count),
        StridedOperand(pointer(1), names[0],
                       {{inner, 0}, {channels, 1}, {node.count / (channels * inner), 0}})};
    node.out = pointer(2);
    node.before = absl::StrCat("Add, ", names[0]);
    node.out_type = type_of(0);
  } else if (kernel == "AddN" && names.size() == 1) {
    const auto inputs = Argument<AddNInputs>(call, 0);
    node.count = number(2);
    node.step = "Total";
    for (int64_t i = 0; i < std::min<int64_t>(inputs.count, 32); ++i)
      node.operands.push_back(FlatOperand(inputs.at[i], names[0], node.count));
    if (node.operands.empty()) return std::nullopt;
    node.out = pointer(1);
    node.before = type_of(0);
    node.out_type = type_of(0);
  } else if (kernel == "Change" && names.size() == 2) {
    if (names[0] != "Add" && names[0] != "Sub" && names[0] != "Mul") return std::nullopt;
    node.count = number(2);
    node.step = "Two";
    node.operands = {FlatOperand(pointer(0), names[1], node.count),
                     FlatOperand(pointer(1), names[1], node.count)};
    node.out = pointer(0);
    node.before = absl::StrCat(names[0], ", ", names[1]);
    node.out_type = type_of(1);
  } else {
    return std::nullopt;
  }
  const auto is_known = [](absl::string_view type) { return SizeOfGpuType(type) > 0; };
  if (node.count <= 0 || node.out == nullptr || !is_known(node.out_type)) return std::nullopt;
  for (const ElementOperand& operand : node.operands) {
    if (operand.pointer == nullptr || !is_known(operand.type)) return std::nullopt;
  }
  return node;
}

}  // namespace

int64_t SizeOfGpuType(absl::string_view type) {
  static const auto* const sizes = new absl::flat_hash_map<absl::string_view, int64_t>{
      {"bool", 1},  {"int8", 1},   {"uint8", 1}, {"int16", 2}, {"uint16", 2}, {"Half", 2},
      {"Bfloat16", 2}, {"int32", 4},  {"uint32", 4}, {"float", 4}, {"int64", 8},  {"uint64", 8},
      {"double", 8}};
  const auto found = sizes->find(type);
  return found == sizes->end() ? 0 : found->second;
}

GpuRange ElementOperand::range() const {
  int64_t last = 0;
  for (const StridedDim& dim : dims) last += (dim.size - 1) * dim.stride;
  return {pointer, pointer + (last + 1) * SizeOfGpuType(type)};
}

ElementOperand FlatOperand(const char* pointer, absl::string_view type, int64_t count) {
  ElementOperand operand;
  operand.pointer = pointer;
  operand.type = std::string(type);
  operand.dims = {{count, 1}};
  return operand;
}

std::optional<ElementNode> ReadElementNode(const GpuCall& call, absl::string_view name) {
  const size_t colon = name.find(": "), open = name.find('<');
  if (colon == name.npos || open == name.npos || name.back() != '>') return std::nullopt;
  const absl::string_view kernel = name.substr(colon + 2, open - colon - 2);
  // Other files have functions of these names too, whose structs fused.cu does not know.
  static const auto* const files = new absl::flat_hash_map<absl::string_view, absl::string_view>{
      {"Unary", "math/unary.cu"},         {"Binary", "math/binary.cu"},
      {"Ternary", "math/binary.cu"},      {"Cast", "math/cast.cu"},
      {"AddN", "math/add_n.cu"},          {"Activate", "nn/activations.cu"},
      {"ActivateGrad", "nn/activations.cu"}, {"BiasAdd", "nn/bias.cu"},
      {"Change", "state/change.cu"}};
  const auto file = files->find(kernel);
  if (file == files->end() || file->second != name.substr(0, colon)) return std::nullopt;
  const absl::string_view arguments = name.substr(open + 1, name.size() - open - 2);
  // Functions with template arguments of their own are not joined.
  if (arguments.find('<') != arguments.npos) return std::nullopt;
  return Read(call, kernel, absl::StrSplit(arguments, ", "));
}

}  // namespace muster
