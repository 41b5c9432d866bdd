#include "muster/ops/fusion/group_function.h"

#include <algorithm>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/device/gpu/gpu.h"
#include "muster/ops/math/elementwise_gpu.h"

namespace muster {
namespace {

constexpr int64_t kPackBytes = 16, kMostInPack = 8;
constexpr unsigned kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 16;

// Dims that all operands can be run along: neighbours that some operand separates are separate.
// Empty: there are none.
std::vector<std::vector<StridedDim>> CommonDims(std::vector<std::vector<StridedDim>> operands) {
  std::vector<std::vector<StridedDim>> common(operands.size());
  std::vector<size_t> at(operands.size(), 0);
  while (at[0] < operands[0].size()) {
    int64_t size = INT64_MAX;
    for (size_t k = 0; k < operands.size(); ++k) {
      if (at[k] >= operands[k].size()) return {};
      size = std::min(size, operands[k][at[k]].size);
    }
    for (size_t k = 0; k < operands.size(); ++k) {
      StridedDim& dim = operands[k][at[k]];
      if (dim.size % size != 0) return {};
      common[k].push_back({size, dim.stride});
      dim.stride *= size;
      dim.size /= size;
      if (dim.size == 1) ++at[k];
    }
  }
  return common;
}

class Bytes {
 public:
  template <typename T>
  void Put(const T& value) {
    Align(alignof(T));
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void Align(size_t bytes) { text_.resize((text_.size() + bytes - 1) / bytes * bytes); }
  std::string Take() && { return std::move(text_); }

 private:
  std::string text_;
};

// The layout of Broadcast in elementwise.cuh.
void PutBroadcast(Bytes& bytes, int64_t count,
                  const std::vector<std::vector<StridedDim>>& operands) {
  const size_t num_dims = operands[0].size();
  bytes.Put(count);
  bytes.Put(GpuDivisor(operands[0][0].size));
  for (const auto& dims : operands) bytes.Put(static_cast<int32_t>(dims[0].stride));
  bytes.Put(static_cast<int32_t>(num_dims - 1));
  bytes.Align(8);
  for (size_t d = 1; d <= GpuBroadcast<1>::kMaxOuter; ++d) {
    bytes.Put(d < num_dims ? GpuDivisor(operands[0][d].size) : GpuDivisor());
    for (const auto& dims : operands) bytes.Put(d < num_dims ? dims[d].stride : int64_t{0});
  }
}

bool HaveSameDims(const std::vector<StridedDim>& a, const std::vector<StridedDim>& b) {
  return absl::c_equal(a, b, [](const StridedDim& x, const StridedDim& y) {
    return x.size == y.size && x.stride == y.stride;
  });
}

// A function that is put together: operands, then steps.
class Builder {
 public:
  explicit Builder(const ElementGroup& group) : group_(group) {
    for (const auto& [number, node] : group.nodes) Add(node);
    for (const ElementWrite& write : group.writes)
      if (!write.is_dead) outs_.emplace_back(&write.to, values_.at(write.range.begin));
  }

  std::optional<GpuReplacement> Build(Gpu& gpu) {
    if (ins_.empty() || outs_.empty()) return std::nullopt;
    const bool has_rows = group_.rows.size > 0;
    std::vector<std::string> parts;
    for (size_t i = 0; i < ins_.size(); ++i)
      parts.push_back(absl::StrCat(has_rows ? "RowIn<" : "In<", i, ", ", ins_[i].type, ", ",
                                   PlaceOf(ins_[i]), ">"));
    for (const Step& step : steps_) {
      std::string part = absl::StrCat(step.head);
      for (const Value& value : step.from) absl::StrAppend(&part, ", ", NumberOf(value));
      parts.push_back(absl::StrCat(part, ">"));
    }
    if (has_rows) parts.push_back("AllLoaded");
    for (size_t i = 0; i < outs_.size(); ++i) {
      const auto& [to, value] = outs_[i];
      parts.push_back(absl::StrCat(has_rows ? "RowOut<" : "Out<", i, ", ", NumberOf(value), ", ",
                                   PlaceOf(*to), ">"));
    }
    const std::vector<std::vector<StridedDim>> dims = Dims();
    if (dims.empty() || dims[0].size() > GpuBroadcast<1>::kMaxOuter + 1) return std::nullopt;
    Bytes bytes;
    for (const ElementOperand& operand : ins_) bytes.Put(operand.pointer);
    for (const auto& [to, value] : outs_) bytes.Put(to->pointer);
    PutBroadcast(bytes, group_.count, dims);
    GpuReplacement replacement;
    replacement.argument = std::move(bytes).Take();
    const std::string rest = absl::StrCat("FusedArguments<", ins_.size(), ", ", outs_.size(), ", ",
                                          dims.size(), ">, ", absl::StrJoin(parts, ", "), ">");
    const bool is_made = has_rows ? MakeOfRows(gpu, dims, rest, replacement)
                                  : MakeFlat(gpu, dims, rest, replacement);
    if (!is_made) return std::nullopt;
    return replacement;
  }

 private:
  struct Value {
    bool is_loaded;
    size_t number;  // of `ins_`, or of `steps_`
    std::string type;
  };
  struct Step {
    std::string head;  // without the values that it takes
    std::vector<Value> from;
  };

  void Add(const ElementNode& node) {
    std::vector<Value> from;
    for (const ElementOperand& operand : node.operands) {
      Value value = operand.is_value ? values_.at(operand.pointer) : Loaded(operand);
      if (!node.is_copy() && value.type != operand.type) {
        steps_.push_back({absl::StrCat("As<", operand.type), {value}});
        value = {false, steps_.size() - 1, operand.type};
      }
      from.push_back(std::move(value));
    }
    if (!node.is_copy()) {
      steps_.push_back({absl::StrCat(node.step, "<", node.before), std::move(from)});
      from = {{false, steps_.size() - 1, node.out.type}};
    }
    widest_ = std::max(widest_, SizeOfGpuType(node.out.type));
    values_[node.out.pointer] = from[0];
  }

  Value Loaded(const ElementOperand& operand) {
    size_t i = 0;
    while (i < ins_.size() &&
           !(ins_[i].pointer == operand.pointer && ins_[i].type == operand.type &&
             HaveSameDims(ins_[i].dims, operand.dims)))
      ++i;
    if (i == ins_.size()) ins_.push_back(operand);
    widest_ = std::max(widest_, SizeOfGpuType(operand.type));
    return {true, i, operand.type};
  }

  size_t NumberOf(const Value& value) const {
    return value.is_loaded ? value.number : ins_.size() + value.number;
  }

  bool IsOfEachRow(const ElementOperand& operand) const {
    if (group_.rows.size == 0) return false;
    return IsOfRows(group_.rows, group_.count, operand) ||
           (operand.is_flat() && operand.dims[0].size * group_.rows.size == group_.count);
  }

  // Where the elements are, as the function's arguments name it.
  std::string PlaceOf(const ElementOperand& operand) {
    if (operand.is_scalar()) return "kScalar";
    if (IsOfEachRow(operand)) return "kOfRow";
    if (operand.is_flat()) return "kFlat";
    size_t i = 0;
    while (i < patterns_.size() && !HaveSameDims(patterns_[i], operand.dims)) ++i;
    if (i == patterns_.size()) patterns_.push_back(operand.dims);
    return absl::StrCat(i);
  }

  // Of all patterns alike. Empty: there are none.
  std::vector<std::vector<StridedDim>> Dims() const {
    std::vector<std::vector<StridedDim>> dims = patterns_;
    if (group_.rows.size > 0)  // no dim crosses the end of a row
      dims.push_back({{group_.rows.size, 0}, {group_.count / group_.rows.size, 1}});
    if (dims.empty()) return {{{group_.count, 1}}};
    dims = CommonDims(std::move(dims));
    // The functions know innermost dims along which elements are neighbours, or the same.
    const bool has_steps = absl::c_any_of(dims, [](const std::vector<StridedDim>& strided) {
      return !strided.empty() && strided[0].stride > 1;
    });
    for (std::vector<StridedDim>& strided : dims)
      if (has_steps) strided.insert(strided.begin(), {1, 0});
    return dims;
  }

  bool MakeFlat(Gpu& gpu, const std::vector<std::vector<StridedDim>>& dims, const std::string& rest,
                GpuReplacement& replacement) const {
    const int64_t pack = PackOf(dims);
    replacement.program =
        &gpu.programs().Get("fusion/fused.cu", absl::StrCat("Fused<", pack, ", ", rest));
    const int64_t wanted = ((group_.count + pack - 1) / pack + kThreads - 1) / kThreads;
    replacement.grid.threads_x = kThreads;
    replacement.grid.blocks_x = BlocksFor(gpu, wanted);
    return true;
  }

  // False where rows cannot be read as their division wants it.
  bool MakeOfRows(Gpu& gpu, const std::vector<std::vector<StridedDim>>& dims,
                  const std::string& rest, GpuReplacement& replacement) const {
    const RowShape& rows = group_.rows;
    if (dims[0][0].size != rows.size || !Allow(rows.pack, dims)) return false;
    replacement.program = &gpu.programs().Get(
        "fusion/fused_rows.cu",
        absl::StrCat("FusedRows<Rows<", rows.size, ", ", rows.lanes, ", ", rows.pack, ">, ", rest));
    const int64_t threads = std::max<int64_t>(kThreads, rows.lanes);
    const int64_t at_once = threads / rows.lanes, count = group_.count / rows.size;
    replacement.grid.threads_x = static_cast<unsigned>(threads);
    replacement.grid.blocks_x = BlocksFor(gpu, (count + at_once - 1) / at_once);
    return true;
  }

  static unsigned BlocksFor(const Gpu& gpu, int64_t wanted) {
    return static_cast<unsigned>(
        std::min<int64_t>(wanted, gpu.multiprocessors() * kBlocksPerMultiprocessor));
  }

  // As many elements at once as all addresses allow.
  int64_t PackOf(const std::vector<std::vector<StridedDim>>& dims) const {
    int64_t pack = std::min(kPackBytes / widest_, kMostInPack);
    // Rows that are no multiple are run through one by one.
    while (pack > 1 && (!Allow(pack, dims) || (!patterns_.empty() && dims[0][0].size % pack != 0)))
      pack /= 2;
    return pack;
  }

  bool Allow(int64_t pack, const std::vector<std::vector<StridedDim>>& dims) const {
    const auto allows = [&](const ElementOperand& operand) {
      if (operand.is_scalar() || IsOfEachRow(operand)) return true;
      const int64_t bytes = SizeOfGpuType(operand.type) * pack;
      return reinterpret_cast<uintptr_t>(operand.pointer) % static_cast<uintptr_t>(bytes) == 0;
    };
    return absl::c_all_of(ins_, allows) &&
           absl::c_all_of(outs_, [&](const auto& out) { return allows(*out.first); }) &&
           absl::c_all_of(dims, [&](const std::vector<StridedDim>& strided) {
             return strided[0].stride == 0 ||
                    std::all_of(strided.begin() + 1, strided.end(),
                                [&](const StridedDim& dim) { return dim.stride % pack == 0; });
           });
  }

  const ElementGroup& group_;
  std::vector<ElementOperand> ins_;
  std::vector<Step> steps_;
  std::map<const char*, Value> values_;  // so far, by where they would be in memory
  std::vector<std::pair<const ElementOperand*, Value>> outs_;
  std::vector<std::vector<StridedDim>> patterns_;  // in which elements are neither flat nor one
  int64_t widest_ = 1;
};

}  // namespace

std::optional<GpuReplacement> FunctionFor(Gpu& gpu, const ElementGroup& group) {
  return Builder(group).Build(gpu);
}

}  // namespace muster
