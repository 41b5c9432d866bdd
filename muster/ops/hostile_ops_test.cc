// Every op of the registry on inputs that make no sense: types, ranks, sizes, indices and
// attributes drawn from a seed. Whatever happens is a status or a value, never a crash.
//
//   MUSTER_HOSTILE_SEED, MUSTER_HOSTILE_ROUNDS   another seed, more rounds
//   MUSTER_HOSTILE_OP                            one op only
//   MUSTER_HOSTILE_TRACE                         prints each case before it runs
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "muster/base/address_sanitizer.h"
#include "muster/base/log.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/graph/op_registry.h"

// A tensor that would take more is refused, as on a machine with little memory; LittleMemory is for
// builds without the sanitizer.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}

namespace muster {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  int64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

// While it exists, the process can allocate about a gigabyte more than it has.
class LittleMemory {
 public:
  LittleMemory() {
    if (kHasAddressSanitizer) return;
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min<rlim_t>(pages * 4096 + (rlim_t{1} << 30), before_.rlim_max);
    setrlimit(RLIMIT_AS, &limit);
  }
  ~LittleMemory() {
    if (!kHasAddressSanitizer) setrlimit(RLIMIT_AS, &before_);
  }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;

 private:
  rlimit before_{};
};

// While it lives, what is written without a path goes to a folder of its own, which must be empty
// in the end.
class ScratchFolder {
 public:
  ScratchFolder() : before_(std::filesystem::current_path()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "hostile_ops_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::filesystem::current_path(folder_);
  }
  ~ScratchFolder() {
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      ADD_FAILURE() << "an op has written " << entry.path().filename();
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

 private:
  const std::filesystem::path before_;
  std::filesystem::path folder_;
};

// They end the process, touch files, print, or wait for another task.
bool IsLeftOut(absl::string_view op) {
  constexpr std::array<absl::string_view, 16> kLeftOut = {
      "Abort", "WriteFile",  "ReadFile", "MatchingFiles", "Print",     "PrintV2",
      "_Recv", "_HostRecv",  "_Send",    "SaveV2",        "RestoreV2", "MergeV2Checkpoints",
      "Save",  "SaveSlices", "Restore",  "RestoreSlice"};
  return std::find(kLeftOut.begin(), kLeftOut.end(), op) != kLeftOut.end();
}

// One node with its inputs, drawn at random.
class HostileCase {
 public:
  HostileCase(const OpDef& def, uint64_t seed) : def_(def), random_(seed) {}

  // How far it came.
  enum class Reached { kNothing, kGraph, kKernel, kValue };
  Reached Try() {
    shapes_ = {RandomShape()};
    AttrMap attrs = Attrs();
    const auto types = ArgTypes(def_.inputs, attrs);
    if (!types.ok() || types->size() > 40) return Reached::kNothing;
    NodeSpec spec;
    spec.name = "hostile";
    spec.op = def_.name;
    spec.flat_inputs.emplace();
    for (const DType type : *types) {
      const Output input = Input(type);
      if (!input) return Reached::kNothing;
      spec.flat_inputs->push_back(input);
    }
    spec.attrs = std::move(attrs);
    Trace(spec);
    const auto added = graph_.AddNode(std::move(spec));
    if (!added.ok()) return Reached::kGraph;
    Node& node = **added;
    std::vector<Node*> targets = {&node};
    AddGradients(node, targets);
    SessionOptions options;
    options.optimize_graph = Draw(2) == 0;
    options.operation_timeout = absl::Milliseconds(200);
    const auto session = Session::Create(graph_, options);
    if (!session.ok()) return Reached::kGraph;
    if (!init_.empty() && !(*session)->Run(feeds_, {}, init_).ok()) return Reached::kGraph;
    std::vector<Output> fetches;
    for (int i = 0; i < node.num_outputs(); ++i) fetches.push_back(node.output(i));
    if (!(*session)->Run(feeds_, {}, targets).ok()) return Reached::kKernel;
    return (*session)->Run(feeds_, fetches, {}).ok() ? Reached::kValue : Reached::kKernel;
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }

  int64_t Number() {
    constexpr std::array<int64_t, 12> kExtremes = {std::numeric_limits<int64_t>::max(),
                                                   std::numeric_limits<int64_t>::min(),
                                                   std::numeric_limits<int32_t>::max(),
                                                   std::numeric_limits<int32_t>::min(),
                                                   int64_t{1} << 62,
                                                   -(int64_t{1} << 62),
                                                   int64_t{1} << 40,
                                                   int64_t{1} << 31,
                                                   1000,
                                                   -1000,
                                                   64,
                                                   255};
    if (Draw(12) == 0) return kExtremes[Draw(kExtremes.size())];
    return Draw(5) == 0 ? static_cast<int64_t>(Draw(8)) - 3 : static_cast<int64_t>(Draw(5));
  }

  double Real() {
    constexpr std::array<double, 9> kExtremes = {std::numeric_limits<double>::quiet_NaN(),
                                                 std::numeric_limits<double>::infinity(),
                                                 -std::numeric_limits<double>::infinity(),
                                                 -0.0,
                                                 1e300,
                                                 -1e300,
                                                 1e-310,
                                                 9.3e18,
                                                 -3e9};
    if (Draw(10) == 0) return kExtremes[Draw(kExtremes.size())];
    return static_cast<double>(Draw(4000)) / 1000 - 1;
  }

  Shape RandomShape() {
    constexpr std::array<int64_t, 10> kSizes = {0, 1, 1, 2, 2, 3, 3, 4, 5, 8};
    const int rank = Draw(12) == 0 ? static_cast<int>(Draw(10)) : static_cast<int>(Draw(5));
    Shape shape;
    for (int i = 0; i < rank && shape.num_elements() < 4000; ++i) {
      shape.Append(kSizes[Draw(kSizes.size())]);
    }
    return shape;
  }
  // Often one that fits another input, so that the first check is not the only one reached.
  Shape NextShape() {
    const uint64_t choice = Draw(6);
    if (choice == 0) return Shape();
    if (choice == 1) return Shape({static_cast<int64_t>(Draw(5))});
    if (choice < 4) return shapes_[Draw(shapes_.size())];
    shapes_.push_back(RandomShape());
    return shapes_.back();
  }

  template <typename T>
  void Fill(Tensor& tensor) {
    T* values = tensor.data<T>();
    const bool constant = Draw(4) == 0;
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (constant && i > 0) {
        values[i] = values[0];
      } else if constexpr (std::is_same_v<T, std::string>) {
        values[i] = Text();
      } else if constexpr (std::is_same_v<T, bool>) {
        values[i] = Draw(2) == 0;
      } else if constexpr (std::is_integral_v<T>) {
        values[i] = static_cast<T>(Number());
      } else if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>) {
        values[i] = T(static_cast<typename T::value_type>(Real()),
                      static_cast<typename T::value_type>(Real()));
      } else {
        values[i] = T(static_cast<float>(Real()));
      }
    }
  }

  std::string Text() {
    constexpr std::array<absl::string_view, 14> kTexts = {
        "",         "a",       "abc", "SAME",  "VALID",  "NHWC",         "NCHW",
        "EXPLICIT", "1.5e400", "-7",  "%s {}", "(a(b)*", "\xff\x00\x80", "ij,jk->ik"};
    if (Draw(6) == 0) return std::string(Draw(100), 'x');
    return std::string(kTexts[Draw(kTexts.size())]);
  }

  Tensor Value(DType type) {
    Tensor tensor = Tensor::Zeros(type, NextShape());
    switch (type) {
      case DType::kFloat:
        Fill<float>(tensor);
        break;
      case DType::kDouble:
        Fill<double>(tensor);
        break;
      case DType::kInt32:
        Fill<int32_t>(tensor);
        break;
      case DType::kInt64:
        Fill<int64_t>(tensor);
        break;
      case DType::kInt16:
        Fill<int16_t>(tensor);
        break;
      case DType::kInt8:
        Fill<int8_t>(tensor);
        break;
      case DType::kUint8:
        Fill<uint8_t>(tensor);
        break;
      case DType::kUint16:
        Fill<uint16_t>(tensor);
        break;
      case DType::kUint32:
        Fill<uint32_t>(tensor);
        break;
      case DType::kUint64:
        Fill<uint64_t>(tensor);
        break;
      case DType::kBool:
        Fill<bool>(tensor);
        break;
      case DType::kHalf:
        Fill<Half>(tensor);
        break;
      case DType::kBfloat16:
        Fill<Bfloat16>(tensor);
        break;
      case DType::kComplex64:
        Fill<Complex64>(tensor);
        break;
      case DType::kComplex128:
        Fill<Complex128>(tensor);
        break;
      case DType::kString:
        Fill<std::string>(tensor);
        break;
      default:
        break;  // quantized ones stay zero
    }
    return tensor;
  }

  // A constant, which shape rules see, or a value of which they know nothing.
  Output Plain(DType type) {
    Tensor value = Value(type);
    if (Draw(2) == 0) return scope_.Const(std::move(value));
    const Output placeholder = scope_.Op("Placeholder", {}, {{"dtype", type}});
    feeds_.emplace_back(placeholder, std::move(value));
    return placeholder;
  }

  Output Input(DType type) {
    const DType base = BaseType(type);
    if (!IsValidDType(static_cast<int>(base)) || DTypeSize(base) == 0) return Output();
    if (IsRef(type)) {
      const Tensor value = Value(base);
      const Output variable =
          scope_.Op("VariableV2", {}, {{"dtype", base}, {"shape", value.shape()}});
      if (Draw(8) != 0) Initialize("Assign", variable, value);
      return variable;
    }
    if (base == DType::kResource) return Resource();
    if (base == DType::kVariant) return VariantInput();
    return Plain(base);
  }

  Output Resource() {
    constexpr std::array<DType, 5> kTypes = {DType::kFloat, DType::kInt32, DType::kHalf,
                                             DType::kInt64, DType::kString};
    // Mostly the type that the node talks about.
    const DType type =
        resource_type_ != DType::kInvalid && Draw(8) != 0 ? resource_type_ : kTypes[Draw(5)];
    switch (Draw(10)) {
      case 0: {  // nothing of the kind
        const Output handle = scope_.Op("Placeholder", {}, {{"dtype", DType::kResource}});
        feeds_.emplace_back(handle, Tensor::Zeros(DType::kResource, NextShape()));
        return handle;
      }
      case 1:
        return scope_.Op("TensorArrayV3", {Plain(DType::kInt32)}, {{"dtype", type}});
      default: {
        const Tensor value = Value(type);
        const Output handle = scope_.Op("VarHandleOp", {},
                                        {{"dtype", type},
                                         {"shape", value.shape()},
                                         {"shared_name", absl::StrCat("v", graph_.num_nodes())}});
        if (Draw(8) != 0) Initialize("AssignVariableOp", handle, value);
        return handle;
      }
    }
  }

  Output VariantInput() {
    if (Draw(3) == 0) {
      const Output nothing = scope_.Op("Placeholder", {}, {{"dtype", DType::kVariant}});
      feeds_.emplace_back(nothing, Tensor::Zeros(DType::kVariant, NextShape()));
      return nothing;
    }
    return scope_.Op("TensorListFromTensor", {Plain(DType::kFloat), Plain(DType::kInt32)});
  }

  void Initialize(absl::string_view op, Output variable, const Tensor& value) {
    Node* node = scope_.Add(op, {variable, scope_.Const(value)});
    if (node != nullptr) init_.push_back(node);
  }

  DType RandomType(const std::vector<DType>& allowed) {
    if (!allowed.empty()) return allowed[Draw(allowed.size())];
    constexpr std::array<DType, 16> kTypes = {
        DType::kFloat,     DType::kFloat,      DType::kFloat,  DType::kDouble,
        DType::kInt32,     DType::kInt64,      DType::kHalf,   DType::kBfloat16,
        DType::kComplex64, DType::kComplex128, DType::kString, DType::kBool,
        DType::kUint8,     DType::kInt8,       DType::kUint16, DType::kVariant};
    return kTypes[Draw(kTypes.size())];
  }

  template <typename T, typename Make>
  std::vector<T> List(const AttrDef& attr, Make make) {
    const auto least = static_cast<uint64_t>(std::clamp<int64_t>(attr.minimum.value_or(0), 0, 6));
    std::vector<T> list;
    for (uint64_t count = least + Draw(5); count > 0; --count) list.push_back(make());
    return list;
  }
  PartialShape AttrShape() {
    switch (Draw(4)) {
      case 0:
        return PartialShape();
      case 1:
        return PartialShape::OfRank(static_cast<int>(Draw(4)));
      default:
        return NextShape();
    }
  }
  int64_t AttrNumber(const AttrDef& attr) {
    const int64_t number = Number();
    return attr.minimum && number < *attr.minimum && Draw(4) != 0 ? *attr.minimum : number;
  }
  std::string AttrText(const AttrDef& attr) {
    if (attr.allowed_strings.empty() || Draw(20) == 0) return Text();
    return attr.allowed_strings[Draw(attr.allowed_strings.size())];
  }

  AttrMap Attrs() {
    AttrMap attrs;
    for (const AttrDef& attr : def_.attrs) {
      if (attr.default_value && attr.type != "type" && Draw(2) == 0) continue;
      AttrValue value = Attr(attr);
      if (value.has_value()) attrs.emplace(attr.name, std::move(value));
    }
    // Ops on lists of inputs: few of them.
    for (const ArgDef& input : def_.inputs) {
      if (!input.number_attr.empty() && Draw(10) != 0) {
        attrs.insert_or_assign(input.number_attr, static_cast<int64_t>(1 + Draw(4)));
      }
    }
    return attrs;
  }

  AttrValue Attr(const AttrDef& attr) {
    const auto type = [&] {
      const DType drawn = RandomType(attr.allowed_types);
      if (resource_type_ == DType::kInvalid && drawn != DType::kVariant) resource_type_ = drawn;
      return drawn;
    };
    const std::string& kind = attr.type;
    if (kind == "type") return type();
    if (kind == "int") return AttrNumber(attr);
    if (kind == "float") return static_cast<float>(Real());
    if (kind == "bool") return Draw(2) == 0;
    if (kind == "string") return AttrText(attr);
    if (kind == "shape") return AttrShape();
    if (kind == "tensor")
      return Value(resource_type_ == DType::kInvalid ? DType::kFloat : resource_type_);
    if (kind == "list(type)") return List<DType>(attr, type);
    if (kind == "list(int)") return List<int64_t>(attr, [&] { return Number(); });
    if (kind == "list(float)") return List<float>(attr, [&] { return static_cast<float>(Real()); });
    if (kind == "list(bool)") return List<bool>(attr, [&] { return Draw(2) == 0; });
    if (kind == "list(string)") return List<std::string>(attr, [&] { return AttrText(attr); });
    if (kind == "list(shape)") return List<PartialShape>(attr, [&] { return AttrShape(); });
    if (kind == "func") return FunctionRef{"nowhere", {}};
    return AttrValue();
  }

  // Gradient functions see the same sizes; what they build runs too.
  void AddGradients(Node& node, std::vector<Node*>& targets) {
    if (Draw(4) != 0) return;
    std::vector<Output> xs;
    for (const Output& input : node.inputs()) {
      if (IsFloating(input.dtype())) xs.push_back(input);
    }
    for (int i = 0; i < node.num_outputs() && !xs.empty(); ++i) {
      if (!IsFloating(node.output(i).dtype())) continue;
      const auto gradients = Gradients(scope_, {node.output(i)}, xs);
      if (!gradients.ok()) return;
      for (const Gradient& gradient : *gradients) {
        if (const auto* output = std::get_if<Output>(&gradient)) targets.push_back(output->node);
      }
      return;
    }
  }

  void Trace(const NodeSpec& spec) const {
    static const bool shown = std::getenv("MUSTER_HOSTILE_TRACE") != nullptr;
    if (!shown) return;
    std::string text = absl::StrCat(spec.op, "(");
    for (const Output& input : *spec.flat_inputs) {
      absl::StrAppend(&text, input.node->op(), " ", DTypeName(input.dtype()),
                      input.shape().ToString(), ", ");
    }
    for (const auto& [name, value] : spec.attrs) {
      absl::StrAppend(&text, name, "=", value.ToString(), ", ");
    }
    for (const auto& [output, value] : feeds_) {
      absl::StrAppend(&text, "\n    ", output.name(), " = ", value.ToString());
    }
    std::fprintf(stderr, "%s)\n", text.c_str());
  }

  const OpDef& def_;
  std::mt19937_64 random_;
  Graph graph_;
  Scope scope_{graph_};
  std::vector<std::pair<Output, Tensor>> feeds_;
  std::vector<Node*> init_;
  std::vector<Shape> shapes_;
  DType resource_type_ = DType::kInvalid;
};

TEST(HostileOpsTest, AStatusOrAValueNeverACrash) {
  SetLogLevel(static_cast<LogLevel>(3));
  const ScratchFolder scratch;
  const LittleMemory little;
  const int64_t seed = FromEnvironment("MUSTER_HOSTILE_SEED", 1);
  const int64_t rounds = FromEnvironment("MUSTER_HOSTILE_ROUNDS", 4);
  const char* only = std::getenv("MUSTER_HOSTILE_OP");
  std::array<int64_t, 4> reached = {};
  std::map<std::string, bool> gave_values;
  for (int64_t round = 0; round < rounds; ++round) {
    uint64_t number = 0;
    for (const OpRegistration* op : OpRegistry::Global().All()) {
      ++number;
      if (IsLeftOut(op->def.name) || (only != nullptr && op->def.name != only)) continue;
      HostileCase hostile(op->def, static_cast<uint64_t>(seed + round) * 100003 + number);
      const auto how_far = hostile.Try();
      ++reached[static_cast<int>(how_far)];
      gave_values[op->def.name] |= how_far == HostileCase::Reached::kValue;
    }
  }
  const auto with_values = std::count_if(gave_values.begin(), gave_values.end(),
                                         [](const auto& entry) { return entry.second; });
  std::printf(
      "%zu ops: %d have given values; cases refused by attributes %d, by the graph %d, by a "
      "kernel %d, with values %d\n",
      gave_values.size(), static_cast<int>(with_values), static_cast<int>(reached[0]),
      static_cast<int>(reached[1]), static_cast<int>(reached[2]), static_cast<int>(reached[3]));
  // The cases must not all be so bad that no kernel sees them.
  if (only == nullptr) {
    EXPECT_GT(with_values, static_cast<int64_t>(gave_values.size()) / 5);
  }
}

}  // namespace
}  // namespace muster
