#include "muster/ops/fusion/fusion_nodes.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "muster/ops/indexing/boxes.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/reduce_gpu.h"

namespace muster {
namespace {

bool GivesBool(absl::string_view function) {
  static const auto* const names = new absl::flat_hash_set<absl::string_view>{
      "Equal",        "NotEqual", "Less",  "LessEqual", "Greater",
      "GreaterEqual", "IsNan",    "IsInf", "IsFinite"};
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

// Larger elements of copies are taken for so large ones, which most values are made of.
constexpr int64_t kWordBytes = 4;

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
std::vector<ElementOperand> Broadcasted(const GpuCall& call,
                                        const GpuBroadcast<operands>& broadcast,
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
    node.out.pointer = pointer(1);
    node.before = absl::StrCat(names[0], ", ", names[1]);
    node.out.type = GivesBool(names[0]) ? "bool" : type_of(1);
  } else if (kernel == "Binary" && names.size() == 2) {
    const auto broadcast = Argument<GpuBroadcast<2>>(call, 3);
    node.step = "Two";
    node.count = broadcast.count;
    node.operands = Broadcasted<2>(call, broadcast, {names[1], names[1]});
    node.out.pointer = pointer(2);
    node.before = absl::StrCat(names[0], ", ", names[1]);
    node.out.type = GivesBool(names[0]) ? "bool" : type_of(1);
  } else if (kernel == "Ternary" && names.size() == 3) {
    const auto broadcast = Argument<GpuBroadcast<3>>(call, 4);
    node.step = "Three";
    node.count = broadcast.count;
    node.operands = Broadcasted<3>(call, broadcast, {names[1], names[2], names[2]});
    node.out.pointer = pointer(3);
    node.before = absl::StrCat(names[0], ", ", names[2]);
    node.out.type = type_of(2);
  } else if (kernel == "Cast" && names.size() == 2) {
    node.step = "Converted";
    node.count = number(2);
    node.operands = {FlatOperand(pointer(0), names[0], node.count)};
    node.out.pointer = pointer(1);
    node.before = absl::StrCat(names[0], ", ", names[1], ", ", Argument<int32_t>(call, 3));
    node.out.type = type_of(1);
  } else if (kernel == "Activate" && names.size() == 2) {
    node.step = "Activation";
    node.count = number(2);
    node.operands = {FlatOperand(pointer(0), names[1], node.count)};
    node.out.pointer = pointer(1);
    node.before = absl::StrCat(names[0], ", ", names[1], ", ", alpha(3));
    node.out.type = type_of(1);
  } else if (kernel == "ActivateGrad" && names.size() == 2) {
    node.step = "ActivationGrad";
    node.count = number(3);
    node.operands = {FlatOperand(pointer(0), names[1], node.count),
                     FlatOperand(pointer(1), names[1], node.count)};
    node.out.pointer = pointer(2);
    node.before = absl::StrCat(names[0], ", ", names[1], ", ", alpha(4));
    node.out.type = type_of(1);
  } else if (kernel == "BiasAdd" && names.size() == 1) {
    const int64_t channels = number(4), inner = number(5);
    node.count = number(3);
    if (channels <= 0 || inner <= 0) return std::nullopt;
    node.step = "Two";
    node.operands = {
        FlatOperand(pointer(0), names[0], node.count),
        StridedOperand(pointer(1), names[0],
                       {{inner, 0}, {channels, 1}, {node.count / (channels * inner), 0}})};
    node.out.pointer = pointer(2);
    node.before = absl::StrCat("Add, ", names[0]);
    node.out.type = type_of(0);
  } else if (kernel == "AddN" && names.size() == 1) {
    const auto inputs = Argument<AddNInputs>(call, 0);
    node.count = number(2);
    node.step = "Total";
    for (int64_t i = 0; i < std::min<int64_t>(inputs.count, 32); ++i)
      node.operands.push_back(FlatOperand(inputs.at[i], names[0], node.count));
    if (node.operands.empty()) return std::nullopt;
    node.out.pointer = pointer(1);
    node.before = type_of(0);
    node.out.type = type_of(0);
  } else if (kernel == "Change" && names.size() == 2) {
    if (names[0] != "Add" && names[0] != "Sub" && names[0] != "Mul") return std::nullopt;
    node.count = number(2);
    node.step = "Two";
    node.operands = {FlatOperand(pointer(0), names[1], node.count),
                     FlatOperand(pointer(1), names[1], node.count)};
    node.out.pointer = pointer(0);
    node.before = absl::StrCat(names[0], ", ", names[1]);
    node.out.type = type_of(1);
  } else {
    return std::nullopt;
  }
  const auto is_known = [](absl::string_view type) { return SizeOfGpuType(type) > 0; };
  if (node.count <= 0 || node.out.pointer == nullptr || !is_known(node.out.type))
    return std::nullopt;
  node.out.dims = {{node.count, 1}};
  for (const ElementOperand& operand : node.operands) {
    if (operand.pointer == nullptr || !is_known(operand.type)) return std::nullopt;
  }
  return node;
}

// --- Sums and the like over rows
constexpr int64_t kShortestRow = 16;
constexpr int64_t kMostInLane = 32;  // elements of a row
constexpr int64_t kMostLanes = 512;

// `op` is "Mean<float>".
std::vector<ElementNode> ReadReduction(const GpuCall& call, absl::string_view op) {
  static const auto* const ops =
      new absl::flat_hash_set<absl::string_view>{"Sum", "Mean", "Max", "Min", "Prod"};
  static const auto* const types =
      new absl::flat_hash_set<absl::string_view>{"float", "Half", "Bfloat16", "double"};
  const size_t open = op.find('<');
  if (open == op.npos || op.back() != '>' || !ops->contains(op.substr(0, open))) return {};
  const absl::string_view type = op.substr(open + 1, op.size() - open - 2);
  if (!types->contains(type)) return {};
  const auto plan = Argument<GpuReducePlan>(call, 2);
  const bool has_rows = plan.by_rows != 0 && plan.reduced.dims == 1 && plan.kept.dims == 1 &&
                        plan.reduced.strides[0] == 1 && plan.kept.strides[0] == plan.terms &&
                        plan.finish_terms == plan.terms && plan.piece >= plan.terms &&
                        call.grid.blocks_y == 1 && plan.outputs > 1;
  if (!has_rows) return {};
  ElementNode node;
  node.rows = {plan.terms, plan.lanes, plan.packed != 0 ? 16 / SizeOfGpuType(type) : 1};
  const int64_t at_once = node.rows.lanes * node.rows.pack;
  if (plan.terms < kShortestRow || plan.lanes > kMostLanes ||
      (plan.terms + at_once - 1) / at_once * node.rows.pack > kMostInLane)
    return {};
  node.step = "Reduced";
  node.before = std::string(op);
  node.count = plan.outputs;
  node.operands = {FlatOperand(Argument<const char*>(call, 0), type, plan.outputs * plan.terms)};
  node.out = FlatOperand(Argument<const char*>(call, 1), type, plan.outputs);
  if (node.operands[0].pointer == nullptr || node.out.pointer == nullptr) return {};
  return {node};
}

// `arguments` are "float, false, 32": the type, whether it is the logarithm, and the threads of a
// row.
std::vector<ElementNode> ReadSoftmax(const GpuCall& call, absl::string_view arguments) {
  const std::vector<absl::string_view> names = absl::StrSplit(arguments, ", ");
  const auto rows = Argument<int64_t>(call, 2), size = Argument<int64_t>(call, 3);
  // A warp for each row; thread k takes elements k, k + 32, ... (nn/rows.cuh)
  constexpr int64_t kLanes = 32;
  if (names.size() != 3 || names[2] != "32" || SizeOfGpuType(names[0]) == 0 || rows < 2 ||
      size < kShortestRow || size > kLanes * kMostInLane)
    return {};
  ElementNode node;
  node.rows = {size, kLanes, 1};
  node.gives_rows = true;
  node.step = "Softmaxed";
  node.before = absl::StrCat(names[0], ", ", names[1]);
  node.count = rows * size;
  node.operands = {FlatOperand(Argument<const char*>(call, 0), names[0], node.count)};
  node.out = FlatOperand(Argument<const char*>(call, 1), names[0], node.count);
  if (node.operands[0].pointer == nullptr || node.out.pointer == nullptr) return {};
  return {node};
}

// --- Copies of boxes
int64_t WordBytes(absl::string_view word) {
  return word == "Word16" ? int64_t{sizeof(Word16)} : SizeOfGpuType(word);
}

template <int most>
std::optional<ElementNode> ReadBox(const GpuBox<most>& box, absl::string_view word) {
  if (box.rank < 0 || box.rank > most || box.count == 0) return std::nullopt;
  ElementNode node;
  node.count = box.count;
  std::vector<StridedDim> from, to;
  for (int i = box.rank - 1; i >= 0; --i) {
    from.push_back({box.axes[i].size.divisor, box.axes[i].from_stride});
    to.push_back({box.axes[i].size.divisor, box.axes[i].to_stride});
  }
  node.operands = {StridedOperand(static_cast<const char*>(box.from), word, std::move(from))};
  node.out = StridedOperand(static_cast<const char*>(box.to), word, std::move(to));
  if (WordBytes(word) > kWordBytes) node = WithElementsOf(std::move(node), kWordBytes);
  if (SizeOfGpuType(node.out.type) == 0) return std::nullopt;
  for (const ElementOperand* const side : {&node.operands[0], &node.out}) {
    for (const StridedDim& dim : side->dims)
      if (dim.stride < 0) return std::nullopt;
  }
  return node;
}

template <typename T>
const T* StructOf(const GpuCall& call) {
  return call.arguments.size() == 1 && call.arguments[0].bytes == sizeof(T)
             ? static_cast<const T*>(call.arguments[0].value)
             : nullptr;
}

std::vector<ElementNode> ReadBoxes(const GpuCall& call, absl::string_view kernel,
                                   absl::string_view word) {
  std::vector<ElementNode> nodes;
  size_t wanted = 0;
  const auto take = [&](const auto& box) {
    ++wanted;
    if (std::optional<ElementNode> node = ReadBox(box, word)) nodes.push_back(*std::move(node));
  };
  if (kernel == "CopyBox") {
    if (const auto* const box = StructOf<GpuBox<kMostBoxAxes>>(call)) take(*box);
  } else if (const auto* const boxes = StructOf<GpuBoxList>(call)) {
    for (unsigned i = 0; i < std::min<unsigned>(call.grid.blocks_y, kMostBoxes); ++i)
      take(boxes->list[i]);
  }
  if (nodes.size() != wanted) nodes.clear();
  return nodes;
}

}  // namespace

int64_t SizeOfGpuType(absl::string_view type) {
  static const auto* const sizes = new absl::flat_hash_map<absl::string_view, int64_t>{
      {"bool", 1},  {"int8", 1},     {"uint8", 1}, {"int16", 2},  {"uint16", 2},
      {"Half", 2},  {"Bfloat16", 2}, {"int32", 4}, {"uint32", 4}, {"float", 4},
      {"int64", 8}, {"uint64", 8},   {"double", 8}};
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

bool ElementOperand::IsApartFrom(const ElementOperand& other) const {
  const GpuRange own = range(), others = other.range();
  if (!own.Overlaps(others)) return true;
  const auto has_rows = [](const ElementOperand& operand) {
    return operand.dims.size() == 2 && operand.dims[0].stride == 1 &&
           operand.dims[1].stride >= operand.dims[0].size;
  };
  const int64_t bytes = SizeOfGpuType(type);
  if (!has_rows(*this) || !has_rows(other) || SizeOfGpuType(other.type) != bytes ||
      dims[1].stride != other.dims[1].stride)
    return false;
  const ElementOperand& first = own.begin <= others.begin ? *this : other;
  const ElementOperand& second = own.begin <= others.begin ? other : *this;
  const int64_t stride = dims[1].stride * bytes;
  const int64_t column = (second.pointer - first.pointer) % stride;
  return first.dims[0].size * bytes <= column && column + second.dims[0].size * bytes <= stride;
}

ElementNode WithElementsOf(ElementNode copy, int64_t bytes) {
  static const auto* const words = new absl::flat_hash_map<int64_t, absl::string_view>{
      {1, "uint8"}, {2, "uint16"}, {4, "uint32"}, {8, "uint64"}};
  const int64_t own = WordBytes(copy.out.type);
  const auto word = words->find(bytes);
  if (!copy.is_copy() || word == words->end() || own <= bytes || own % bytes != 0) return copy;
  const int64_t ratio = own / bytes;
  for (ElementOperand* const side : {&copy.operands[0], &copy.out}) {
    side->type = std::string(word->second);
    std::vector<StridedDim> dims = {{ratio, 1}};
    for (const StridedDim& dim : side->dims) dims.push_back({dim.size, dim.stride * ratio});
    side->dims = Merged(std::move(dims));
  }
  copy.count *= ratio;
  return copy;
}

std::optional<ElementOperand> PartOf(const ElementOperand& operand, const char* whole,
                                     const ElementOperand& part) {
  const int64_t bytes = SizeOfGpuType(part.type);
  int64_t offset = (part.pointer - whole) / bytes;
  ElementOperand result = operand;
  std::vector<int64_t> at, below;  // of each dim: where the part begins, elements of those within
  int64_t size = 1;
  for (const StridedDim& dim : operand.dims) {
    at.push_back(offset % dim.size);
    below.push_back(size);
    result.pointer += at.back() * dim.stride * SizeOfGpuType(operand.type);
    offset /= dim.size;
    size *= dim.size;
  }
  if (offset != 0) return std::nullopt;
  std::vector<StridedDim> dims;
  for (const StridedDim& step : part.dims) {
    // It must lead along one dim.
    size_t d = operand.dims.size();
    while (d > 0 && (step.stride % below[d - 1] != 0 || step.stride < below[d - 1])) --d;
    if (d == 0) return std::nullopt;
    const int64_t times = step.stride / below[d - 1];
    at[d - 1] += times * (step.size - 1);
    if (at[d - 1] >= operand.dims[d - 1].size) return std::nullopt;
    dims.push_back({step.size, times * operand.dims[d - 1].stride});
  }
  result.dims = Merged(std::move(dims));
  return result;
}

std::vector<ElementNode> ReadElementNodes(const GpuCall& call, absl::string_view name) {
  const size_t colon = name.find(": "), open = name.find('<');
  if (colon == name.npos || open == name.npos || name.back() != '>') return {};
  const absl::string_view kernel = name.substr(colon + 2, open - colon - 2);
  // Other files have functions of these names too, whose structs fused.cu does not know.
  static const auto* const files = new absl::flat_hash_map<absl::string_view, absl::string_view>{
      {"Unary", "math/unary.cu"},
      {"Binary", "math/binary.cu"},
      {"Ternary", "math/binary.cu"},
      {"Cast", "math/cast.cu"},
      {"AddN", "math/add_n.cu"},
      {"Activate", "nn/activations.cu"},
      {"ActivateGrad", "nn/activations.cu"},
      {"BiasAdd", "nn/bias.cu"},
      {"Change", "state/change.cu"},
      {"Reduce", "math/reduction.cu"},
      {"Softmax", "nn/softmax.cu"},
      {"CopyBox", "indexing/strided_copy.cu"},
      {"CopyBoxes", "indexing/strided_copy.cu"}};
  const auto file = files->find(kernel);
  if (file == files->end() || file->second != name.substr(0, colon)) return {};
  const absl::string_view arguments = name.substr(open + 1, name.size() - open - 2);
  if (kernel == "Reduce") return ReadReduction(call, arguments);
  // Functions with template arguments of their own are not joined.
  if (arguments.find('<') != arguments.npos) return {};
  if (kernel == "Softmax") return ReadSoftmax(call, arguments);
  if (file->second == "indexing/strided_copy.cu") return ReadBoxes(call, kernel, arguments);
  std::optional<ElementNode> node = Read(call, kernel, absl::StrSplit(arguments, ", "));
  if (!node) return {};
  return {*std::move(node)};
}

}  // namespace muster
