// cuDNN on the emulated card: convolutions by its graph API, in plain loops. As strict as the real one: descriptors must be
// finalized before they are used and complete when they are, types of attributes are checked, sizes have to fit, and addresses
// must be in the card's memory and as aligned as was promised.
//
// Its engines are of all kinds: 0 can do everything; 1 needs memory of its own and takes no groups, and is the fastest; 2 never
// works; 3 is not deterministic; 4 rounds floats.
//
// MUSTER_EMULATED_CUDNN=0: it does not start up.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "emulated_gpu.h"

namespace {

using emulated::kOk;

constexpr int kNotInitialized = 1001, kBadParam = 2000, kNotFinalized = 2004, kNotSupported = 3000;
constexpr int kConvolution = 1, kEngine = 2, kConfig = 3, kHeuristic = 4, kPlan = 5, kForward = 10, kBackwardFilter = 11,
              kBackwardData = 12, kGraph = 15, kPack = 16, kTensor = 17;
constexpr int kHandleType = 0, kDataType = 1, kInt64Type = 3, kFloatType = 4, kDoubleType = 5, kPointerType = 6,
              kConvolutionModeType = 7, kHeuristicModeType = 8, kNoteType = 11, kDescriptorType = 15;
constexpr int64_t kWorkspaceBytes = 70'001;

size_t SizeOf(int type) {
  switch (type) {
    case kDataType:
    case kFloatType:
    case kConvolutionModeType:
    case kHeuristicModeType:
    case kNoteType:
      return 4;
    default:
      return 8;
  }
}

struct Descriptor {
  int kind = 0;
  bool is_final = false;
  struct Value {
    int type = 0;
    int64_t count = 0;
    std::vector<char> bytes;
  };
  std::map<int, Value> values;
  int engine = 0;             // of engines and their configurations
  Descriptor* graph = nullptr;  // of configurations

  bool Has(int attribute, int type, int64_t count) const {
    const auto found = values.find(attribute);
    return found != values.end() && found->second.type == type && (count < 0 || found->second.count == count);
  }
  template <typename T>
  std::vector<T> All(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> all(static_cast<size_t>(found->second.count));
    if (!all.empty()) memcpy(all.data(), found->second.bytes.data(), found->second.bytes.size());
    return all;
  }
  template <typename T>
  T One(int attribute) const {
    const std::vector<T> all = All<T>(attribute);
    return all.empty() ? T() : all[0];
  }
};

std::mutex mutex;
std::set<Descriptor*> alive;

// Null unless it is a finalized descriptor of this kind.
Descriptor* Final(Descriptor* descriptor, int kind) {
  if (alive.count(descriptor) == 0 || descriptor->kind != kind || !descriptor->is_final) return nullptr;
  return descriptor;
}
Descriptor* Part(const Descriptor& whole, int attribute, int kind) {
  if (!whole.Has(attribute, kDescriptorType, 1)) return nullptr;
  return Final(whole.One<Descriptor*>(attribute), kind);
}

struct Tensor {
  int dtype = 0;
  std::vector<int64_t> dims, strides;
  int64_t id = 0, alignment = 0;

  explicit Tensor(const Descriptor& d)
      : dtype(d.One<int>(901)), dims(d.All<int64_t>(902)), strides(d.All<int64_t>(903)), id(d.One<int64_t>(906)),
        alignment(d.One<int64_t>(900)) {}
  int64_t count() const {
    int64_t product = 1;
    for (const int64_t dim : dims) product *= dim;
    return product;
  }
  size_t element_bytes() const { return dtype == 1 ? 8 : dtype == 0 ? 4 : 2; }
};

int FinalizeTensor(const Descriptor& d) {
  if (!d.Has(901, kDataType, 1) || !d.Has(902, kInt64Type, -1) || !d.Has(903, kInt64Type, -1) || !d.Has(906, kInt64Type, 1) ||
      !d.Has(900, kInt64Type, 1))
    return kBadParam;
  const Tensor t(d);
  if (t.dims.size() != t.strides.size() || t.dims.size() < 4 || t.dims.size() > 5) return kBadParam;
  if (t.dtype != 0 && t.dtype != 1 && t.dtype != 2 && t.dtype != 9) return kBadParam;
  if (*std::min_element(t.dims.begin(), t.dims.end()) <= 0 || *std::min_element(t.strides.begin(), t.strides.end()) <= 0)
    return kBadParam;
  if (t.alignment <= 0 || (t.alignment & (t.alignment - 1)) != 0 || t.alignment < static_cast<int64_t>(t.element_bytes()))
    return kBadParam;
  // Without gaps, with the channels last or second.
  const auto last = t.dims.size() - 1;
  int64_t stride = t.strides[1] == 1 && t.dims[1] > 1 ? t.dims[1] : t.strides[last];
  for (size_t i = last; i >= 2; --i) {
    if (t.strides[i] != stride && t.dims[i] > 1) return kNotSupported;
    stride *= t.dims[i];
  }
  return kOk;
}

// A convolution, with three axes of space: those that are missing come first and have one cell.
struct Convolution {
  int kind = 0;
  std::vector<Tensor> tensors;  // images, filter, output
  std::array<int64_t, 3> stride{1, 1, 1}, dilation{1, 1, 1}, pad{0, 0, 0};
  std::array<std::array<int64_t, 5>, 3> dims{}, strides{};
  int64_t groups = 1;
};

int Understand(const Descriptor& operation, Convolution& c) {
  const int first = operation.kind == kForward ? 700 : operation.kind == kBackwardData ? 706 : 712;
  // In cuDNN's order: alpha, beta, convolution, then the tensors.
  const int images = operation.kind == kForward ? 704 : operation.kind == kBackwardData ? 710 : 716;
  const int filter = operation.kind == kForward ? 703 : operation.kind == kBackwardData ? 709 : 715;
  const int output = operation.kind == kForward ? 705 : operation.kind == kBackwardData ? 711 : 717;
  const Descriptor* const conv = Part(operation, first + 2, kConvolution);
  if (conv == nullptr) return kNotFinalized;
  for (const int attribute : {images, filter, output}) {
    const Descriptor* const part = Part(operation, attribute, kTensor);
    if (part == nullptr) return kNotFinalized;
    c.tensors.emplace_back(*part);
  }
  c.kind = operation.kind;
  const int number = c.tensors[0].dtype == 1 ? kDoubleType : kFloatType;
  if (!operation.Has(first, number, 1) || !operation.Has(first + 1, number, 1)) return kBadParam;
  if (conv->One<int>(100) != (c.tensors[0].dtype == 1 ? 1 : 0)) return kNotSupported;
  const auto space = static_cast<size_t>(conv->One<int64_t>(106));
  std::set<int64_t> ids;
  for (int t = 0; t < 3; ++t) {
    const Tensor& tensor = c.tensors[t];
    if (tensor.dims.size() != space + 2 || tensor.dtype != c.tensors[0].dtype) return kBadParam;
    ids.insert(tensor.id);
    c.dims[t].fill(1);
    for (size_t i = 0; i < tensor.dims.size(); ++i) {
      const size_t at = i < 2 ? i : i + 3 - space;
      c.dims[t][at] = tensor.dims[i];
      c.strides[t][at] = tensor.strides[i];
    }
  }
  if (ids.size() != 3) return kBadParam;
  for (size_t i = 0; i < space; ++i) {
    const size_t at = i + 3 - space;
    c.stride[at] = conv->All<int64_t>(103)[i];
    c.dilation[at] = conv->All<int64_t>(102)[i];
    c.pad[at] = conv->All<int64_t>(105)[i];
    if (conv->All<int64_t>(104)[i] != c.pad[at]) return kNotSupported;
  }
  const auto& [x, w, y] = c.dims;
  if (x[0] != y[0] || y[1] != w[0] || x[1] % w[1] != 0) return kBadParam;
  c.groups = x[1] / w[1];
  if (w[0] % c.groups != 0) return kBadParam;
  for (int i = 0; i < 3; ++i) {
    const int64_t reach = (w[i + 2] - 1) * c.dilation[i] + 1, room = x[i + 2] + 2 * c.pad[i] - reach;
    if (room < 0 || y[i + 2] != room / c.stride[i] + 1) return kBadParam;
  }
  return kOk;
}

int FinalizeConvolution(const Descriptor& d) {
  if (!d.Has(100, kDataType, 1) || !d.Has(101, kConvolutionModeType, 1) || !d.Has(106, kInt64Type, 1)) return kBadParam;
  const auto space = d.One<int64_t>(106);
  if (space < 2 || space > 3 || d.One<int>(101) != 1) return kBadParam;
  for (const int attribute : {102, 103, 104, 105}) {
    if (!d.Has(attribute, kInt64Type, space)) return kBadParam;
    for (const int64_t value : d.All<int64_t>(attribute)) {
      if (value < (attribute < 104 ? 1 : 0)) return kBadParam;
    }
  }
  return kOk;
}

int Finalize(Descriptor& d) {
  Convolution convolution;
  switch (d.kind) {
    case kTensor:
      return FinalizeTensor(d);
    case kConvolution:
      return FinalizeConvolution(d);
    case kForward:
    case kBackwardFilter:
    case kBackwardData:
      return Understand(d, convolution);
    case kGraph: {
      if (d.One<void*>(800) != emulated::CardsStream() || !d.Has(801, kDescriptorType, 1)) return kBadParam;
      auto* const operation = d.One<Descriptor*>(801);
      return alive.count(operation) != 0 && operation->is_final ? kOk : kNotFinalized;
    }
    case kHeuristic: {
      const int mode = d.One<int>(200);
      if (!d.Has(200, kHeuristicModeType, 1) || (mode != 0 && mode != 2)) return kBadParam;
      return Part(d, 201, kGraph) == nullptr ? kNotFinalized : kOk;
    }
    case kPlan: {
      const Descriptor* const config = Part(d, 401, kConfig);
      if (config == nullptr || d.One<void*>(400) != emulated::CardsStream()) return kBadParam;
      d.engine = config->engine;
      d.graph = Final(config->graph, kGraph);
      if (d.graph == nullptr) return kNotFinalized;
      if (Understand(*d.graph->One<Descriptor*>(801), convolution) != kOk) return kBadParam;
      return d.engine == 2 || (d.engine == 1 && convolution.groups > 1) ? kNotSupported : kOk;
    }
    case kPack: {
      const bool is_whole = d.Has(1000, kInt64Type, 3) && d.Has(1001, kPointerType, 3) && d.Has(1003, kPointerType, 1);
      return is_whole ? kOk : kBadParam;
    }
    default:
      return kBadParam;
  }
}

double Load(const void* from, int dtype, int64_t i) {
  switch (dtype) {
    case 0:
      return static_cast<const float*>(from)[i];
    case 1:
      return static_cast<const double*>(from)[i];
    case 2:
      return emulated::FromHalf(static_cast<const uint16_t*>(from)[i]);
    default:
      return emulated::FromBfloat16(static_cast<const uint16_t*>(from)[i]);
  }
}
void Store(void* to, int dtype, int64_t i, double value) {
  switch (dtype) {
    case 0:
      static_cast<float*>(to)[i] = static_cast<float>(value);
      return;
    case 1:
      static_cast<double*>(to)[i] = value;
      return;
    case 2:
      static_cast<uint16_t*>(to)[i] = emulated::ToHalf(static_cast<float>(value));
      return;
    default:
      static_cast<uint16_t*>(to)[i] = emulated::ToBfloat16(static_cast<float>(value));
  }
}

// Every product goes to the sum of one element of the tensor that is written.
void Run(const Convolution& c, const std::array<void*, 3>& at) {
  const int written = c.kind == kForward ? 2 : c.kind == kBackwardData ? 0 : 1;
  const int a = written == 0 ? 1 : 0, b = written == 2 ? 1 : 2;
  std::vector<double> sums(static_cast<size_t>(c.tensors[written].count())), read[2];
  for (int t = 0; t < 2; ++t) {
    const Tensor& from = c.tensors[t == 0 ? a : b];
    for (int64_t i = 0; i < from.count(); ++i) read[t].push_back(Load(at[t == 0 ? a : b], from.dtype, i));
  }
  const auto& [x, w, y] = c.dims;
  const int64_t outputs_in_group = w[0] / c.groups;
  for (int64_t n = 0; n < y[0]; ++n) {
    for (int64_t k = 0; k < y[1]; ++k) {
      const int64_t first_channel = k / outputs_in_group * w[1];
      for (int64_t cell = 0; cell < y[2] * y[3] * y[4]; ++cell) {
        const int64_t out[] = {cell / (y[3] * y[4]), cell / y[4] % y[3], cell % y[4]};
        for (int64_t tap = 0; tap < w[2] * w[3] * w[4]; ++tap) {
          const int64_t under[] = {tap / (w[3] * w[4]), tap / w[4] % w[3], tap % w[4]};
          int64_t offsets[] = {n * c.strides[0][0] + first_channel * c.strides[0][1], k * c.strides[1][0],
                               n * c.strides[2][0] + k * c.strides[2][1]};
          bool is_inside = true;
          for (int i = 0; i < 3; ++i) {
            const int64_t in = out[i] * c.stride[i] - c.pad[i] + under[i] * c.dilation[i];
            is_inside = is_inside && in >= 0 && in < x[i + 2];
            offsets[0] += in * c.strides[0][i + 2];
            offsets[1] += under[i] * c.strides[1][i + 2];
            offsets[2] += out[i] * c.strides[2][i + 2];
          }
          if (!is_inside) continue;
          for (int64_t channel = 0; channel < w[1]; ++channel) {
            sums[offsets[written]] += read[0][offsets[a]] * read[1][offsets[b]];
            offsets[0] += c.strides[0][1];
            offsets[1] += c.strides[1][1];
          }
        }
      }
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) Store(at[written], c.tensors[written].dtype, static_cast<int64_t>(i), sums[i]);
}

}  // namespace

EXPORT const char* cudnnGetErrorString(int status) {
  return status == kNotSupported ? "CUDNN_STATUS_NOT_SUPPORTED" : "an error of the emulated cuDNN";
}
EXPORT int cudnnCreate(void** handle) {
  if (emulated::NumberFrom("MUSTER_EMULATED_CUDNN", 1) == 0) return kNotInitialized;
  *handle = emulated::CardsStream();
  return kOk;
}
EXPORT int cudnnSetStream(void*, void* stream) {
  return stream == emulated::CardsStream() ? kOk : kBadParam;
}
EXPORT int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  const std::lock_guard lock(mutex);
  auto* const made = new Descriptor;
  made->kind = kind;
  alive.insert(made);
  *descriptor = made;
  return kOk;
}
EXPORT int cudnnBackendDestroyDescriptor(void* descriptor) {
  const std::lock_guard lock(mutex);
  auto* const known = static_cast<Descriptor*>(descriptor);
  if (alive.erase(known) == 0) return kBadParam;
  delete known;
  return kOk;
}
EXPORT int cudnnBackendFinalize(void* descriptor) {
  const std::lock_guard lock(mutex);
  auto* const known = static_cast<Descriptor*>(descriptor);
  if (alive.count(known) == 0 || known->is_final) return kBadParam;
  const int status = Finalize(*known);
  known->is_final = status == kOk;
  return status;
}
EXPORT int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count, const void* values) {
  const std::lock_guard lock(mutex);
  auto* const known = static_cast<Descriptor*>(descriptor);
  if (alive.count(known) == 0 || known->is_final || count <= 0 || values == nullptr) return kBadParam;
  // The thousands or hundreds of attributes go by kinds of descriptors.
  const std::map<int, std::pair<int, int>> ranges = {
      {kTensor, {900, 999}},        {kConvolution, {100, 199}}, {kForward, {700, 705}}, {kBackwardData, {706, 711}},
      {kBackwardFilter, {712, 717}}, {kGraph, {800, 899}},       {kHeuristic, {200, 299}}, {kPlan, {400, 499}},
      {kPack, {1000, 1099}}};
  const auto range = ranges.find(known->kind);
  if (range == ranges.end() || attribute < range->second.first || attribute > range->second.second) return kBadParam;
  Descriptor::Value& value = known->values[attribute];
  value = {type, count, {}};
  const auto* const bytes = static_cast<const char*>(values);
  value.bytes.assign(bytes, bytes + static_cast<size_t>(count) * SizeOf(type));
  return kOk;
}
EXPORT int cudnnBackendGetAttribute(void* descriptor, int attribute, int type, int64_t asked, int64_t* count, void* values) {
  const std::lock_guard lock(mutex);
  auto* const known = static_cast<Descriptor*>(descriptor);
  if (alive.count(known) == 0 || !known->is_final) return kNotFinalized;
  if (known->kind == kHeuristic && attribute == 202 && type == kDescriptorType) {
    const std::vector<int> engines = known->One<int>(200) == 0 ? std::vector<int>{2, 4, 3, 1} : std::vector<int>{0};
    *count = static_cast<int64_t>(engines.size());
    for (int64_t i = 0; i < std::min(asked, *count); ++i) {
      auto* const config = static_cast<Descriptor**>(values)[i];
      if (alive.count(config) == 0 || config->kind != kConfig || config->is_final) return kBadParam;
      config->engine = engines[static_cast<size_t>(i)];
      config->graph = Part(*known, 201, kGraph);
      config->is_final = true;
    }
    return kOk;
  }
  if (known->kind == kConfig && attribute == 300 && type == kDescriptorType) {
    *count = 1;
    if (asked == 0) return kOk;
    auto* const engine = static_cast<Descriptor**>(values)[0];
    if (alive.count(engine) == 0 || engine->kind != kEngine || engine->is_final) return kBadParam;
    engine->engine = known->engine;
    engine->is_final = true;
    return kOk;
  }
  if (known->kind == kEngine && attribute == 1303 && type == kNoteType) {
    const std::vector<int> notes = known->engine == 1   ? std::vector<int>{0}
                                   : known->engine == 3 ? std::vector<int>{4}
                                   : known->engine == 4 ? std::vector<int>{0, 1}
                                                        : std::vector<int>{};
    *count = static_cast<int64_t>(notes.size());
    std::copy_n(notes.begin(), std::min<size_t>(notes.size(), static_cast<size_t>(asked)), static_cast<int*>(values));
    return kOk;
  }
  if (known->kind == kPlan && attribute == 402 && type == kInt64Type && asked == 1) {
    *count = 1;
    *static_cast<int64_t*>(values) = known->engine == 1 ? kWorkspaceBytes : 0;
    return kOk;
  }
  return kBadParam;
}
EXPORT int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  const std::lock_guard lock(mutex);
  const Descriptor* const known = Final(static_cast<Descriptor*>(plan), kPlan);
  const Descriptor* const given = Final(static_cast<Descriptor*>(pack), kPack);
  if (handle != emulated::CardsStream() || known == nullptr || given == nullptr) return kBadParam;
  if (Final(known->graph, kGraph) == nullptr) return kNotFinalized;
  Convolution convolution;
  if (Understand(*known->graph->One<Descriptor*>(801), convolution) != kOk) return kBadParam;
  std::array<void*, 3> at{};
  const std::vector<int64_t> ids = given->All<int64_t>(1000);
  const std::vector<void*> pointers = given->All<void*>(1001);
  for (int t = 0; t < 3; ++t) {
    const Tensor& tensor = convolution.tensors[t];
    const auto found = std::find(ids.begin(), ids.end(), tensor.id);
    if (found == ids.end()) return kBadParam;
    at[t] = pointers[static_cast<size_t>(found - ids.begin())];
    if (!emulated::IsOnCard(at[t], static_cast<size_t>(tensor.count()) * tensor.element_bytes())) return kBadParam;
    if (reinterpret_cast<uintptr_t>(at[t]) % static_cast<uintptr_t>(tensor.alignment) != 0) return kBadParam;
  }
  auto* const workspace = given->One<void*>(1003);
  const bool needs_workspace = known->engine == 1;
  if (needs_workspace && !emulated::IsOnCard(workspace, kWorkspaceBytes)) return kBadParam;
  // Longer than the others on the stream.
  static const size_t more = emulated::NumberFrom("MUSTER_EMULATED_CUDNN_CALLS", 0);
  for (size_t i = 0; i < more + (known->engine == 1 ? 0 : 2); ++i) emulated::PutOnStream([] { return kOk; });
  return emulated::PutOnStream([=] {
    if (needs_workspace) memset(workspace, 0xAB, kWorkspaceBytes);
    Run(convolution, at);
    return kOk;
  });
}
