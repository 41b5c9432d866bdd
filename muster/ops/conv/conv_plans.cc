#include "muster/ops/conv/conv_plans.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

#include "muster/base/log.h"
#include "muster/base/settings.h"

namespace muster {
namespace {

using cudnn::Attribute;
using cudnn::Descriptor;
using cudnn::Type;

// As many as PyTorch times.
constexpr size_t kMostCandidates = 10;
// Some engines are compiled when their plan is made; so it takes no more of them then.
constexpr absl::Duration kLongBuilding = absl::Seconds(1);
constexpr int kTimedRuns = 3;
// More kinds of convolutions than this: the plans are found again.
constexpr size_t kMostChoices = 4096;
constexpr int64_t kImagesId = 1, kFilterId = 2, kOutputId = 3;

bool IsOn(absl::string_view variable) {
  const std::string value = EnvironmentVariable(variable);
  return value == "1" || value == "true";
}

struct CudnnChoices {
  bool times_plans = true;
  bool only_deterministic = false;
  bool no_tf32 = false;
  int64_t most_workspace_bytes = int64_t{4096} << 20;
};

const CudnnChoices& CudnnSettings() {
  static const auto* const settings = [] {
    auto* const made = new CudnnChoices;
    const std::string autotune = EnvironmentVariable("TF_CUDNN_USE_AUTOTUNE");
    made->only_deterministic = IsOn("TF_DETERMINISTIC_OPS") || IsOn("TF_CUDNN_DETERMINISTIC");
    // Which one is the fastest may differ from run to run.
    made->times_plans = autotune != "0" && autotune != "false" && !made->only_deterministic;
    made->no_tf32 = EnvironmentVariable("NVIDIA_TF32_OVERRIDE") == "0";
    int64_t megabytes = 0;
    if (absl::SimpleAtoi(EnvironmentVariable("TF_CUDNN_WORKSPACE_LIMIT_IN_MB"), &megabytes) &&
        megabytes >= 0 && megabytes < (int64_t{1} << 40))
      made->most_workspace_bytes = megabytes << 20;
    return made;
  }();
  return *settings;
}

int DataType(DType dtype) {
  switch (dtype) {
    case DType::kDouble:
      return cudnn::kDoubleData;
    case DType::kHalf:
      return cudnn::kHalfData;
    case DType::kBfloat16:
      return cudnn::kBfloat16Data;
    default:
      return cudnn::kFloatData;
  }
}

// Batch and channels, or outputs and channels of a filter, come first in cuDNN's dims in every
// layout; the strides say what the layout is.
absl::StatusOr<Descriptor> MakeTensor(const cudnn::Api& api, const CudnnConvolution& c, int64_t id,
                                      int64_t first, int64_t channels,
                                      const CudnnConvolution::Space& sizes) {
  std::vector<int64_t> dims = {first, channels};
  dims.insert(dims.end(), sizes.begin(), sizes.begin() + c.space);
  std::vector<int64_t> strides(dims.size());
  int64_t stride = c.channels_last != 0 ? channels : 1;
  for (size_t i = dims.size(); i-- > 2;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[1] = c.channels_last != 0 ? 1 : stride;
  strides[0] = c.channels_last != 0 ? stride : stride * channels;
  Descriptor tensor(api, cudnn::Kind::kTensor);
  tensor.SetEnum(Attribute::kTensorDataType, Type::kDataType, DataType(static_cast<DType>(c.dtype)))
      .SetInts(Attribute::kTensorDims, dims)
      .SetInts(Attribute::kTensorStrides, strides)
      .SetInt(Attribute::kTensorId, id)
      .SetInt(Attribute::kTensorAlignment, kCudnnAlignment);
  RETURN_IF_ERROR(tensor.Finalize());
  return tensor;
}

absl::StatusOr<Descriptor> MakeConvolution(const cudnn::Api& api, const CudnnConvolution& c,
                                           bool in_double) {
  const auto ints = [&](const CudnnConvolution::Space& values) {
    return absl::MakeConstSpan(values.data(), static_cast<size_t>(c.space));
  };
  Descriptor convolution(api, cudnn::Kind::kConvolution);
  convolution
      .SetEnum(Attribute::kConvolutionComputeType, Type::kDataType,
               in_double ? cudnn::kDoubleData : cudnn::kFloatData)
      .SetEnum(Attribute::kConvolutionMode, Type::kConvolutionMode, cudnn::kCrossCorrelation)
      .SetInt(Attribute::kConvolutionSpaceDims, c.space)
      .SetInts(Attribute::kConvolutionPaddingsBefore, ints(c.pad))
      .SetInts(Attribute::kConvolutionPaddingsAfter, ints(c.pad))
      .SetInts(Attribute::kConvolutionDilations, ints(c.dilation))
      .SetInts(Attribute::kConvolutionStrides, ints(c.stride));
  RETURN_IF_ERROR(convolution.Finalize());
  return convolution;
}

struct OperationNames {
  cudnn::Kind kind;
  Attribute alpha, beta, convolution, images, filter, output;
};

OperationNames NamesOf(int64_t kind) {
  switch (kind) {
    case CudnnConvolution::kForward:
      return {cudnn::Kind::kForward,          Attribute::kForwardAlpha,  Attribute::kForwardBeta,
              Attribute::kForwardConvolution, Attribute::kForwardImages, Attribute::kForwardFilter,
              Attribute::kForwardOutput};
    case CudnnConvolution::kBackwardInput:
      return {cudnn::Kind::kBackwardData,     Attribute::kBackwardDataAlpha,
              Attribute::kBackwardDataBeta,   Attribute::kBackwardDataConvolution,
              Attribute::kBackwardDataImages, Attribute::kBackwardDataFilter,
              Attribute::kBackwardDataOutput};
    default:
      return {cudnn::Kind::kBackwardFilter,     Attribute::kBackwardFilterAlpha,
              Attribute::kBackwardFilterBeta,   Attribute::kBackwardFilterConvolution,
              Attribute::kBackwardFilterImages, Attribute::kBackwardFilterFilter,
              Attribute::kBackwardFilterOutput};
  }
}

// The graph of this one operation, and behind it what it is made of.
absl::StatusOr<std::vector<Descriptor>> MakeGraph(const cudnn::Api& api, cudnn::Handle handle,
                                                  const CudnnConvolution& c) {
  const bool in_double = static_cast<DType>(c.dtype) == DType::kDouble;
  ASSIGN_OR_RETURN(Descriptor images, MakeTensor(api, c, kImagesId, c.batch, c.channels, c.size));
  ASSIGN_OR_RETURN(Descriptor filter,
                   MakeTensor(api, c, kFilterId, c.out_channels, c.filter_channels, c.window));
  ASSIGN_OR_RETURN(Descriptor output,
                   MakeTensor(api, c, kOutputId, c.batch, c.out_channels, c.out));
  ASSIGN_OR_RETURN(Descriptor convolution, MakeConvolution(api, c, in_double));
  static constexpr double kOne = 1, kZero = 0;
  static constexpr float kFloatOne = 1, kFloatZero = 0;
  const Type number = in_double ? Type::kDouble : Type::kFloat;
  const OperationNames names = NamesOf(c.kind);
  Descriptor operation(api, names.kind);
  operation.SetPart(names.convolution, convolution)
      .SetPart(names.images, images)
      .SetPart(names.filter, filter)
      .SetPart(names.output, output)
      .Set(names.alpha, number, 1, in_double ? static_cast<const void*>(&kOne) : &kFloatOne)
      .Set(names.beta, number, 1, in_double ? static_cast<const void*>(&kZero) : &kFloatZero);
  RETURN_IF_ERROR(operation.Finalize());
  Descriptor graph(api, cudnn::Kind::kGraph);
  graph.SetPart(Attribute::kGraphOperations, operation)
      .Set(Attribute::kGraphHandle, Type::kHandle, 1, &handle);
  RETURN_IF_ERROR(graph.Finalize());
  std::vector<Descriptor> parts;
  parts.push_back(std::move(graph));
  for (Descriptor* const part : {&operation, &convolution, &output, &filter, &images})
    parts.push_back(std::move(*part));
  return parts;
}

absl::StatusOr<std::vector<Descriptor>> AskHeuristic(const cudnn::Api& api, const Descriptor& graph,
                                                     int mode) {
  Descriptor heuristic(api, cudnn::Kind::kHeuristic);
  heuristic.SetPart(Attribute::kHeuristicGraph, graph)
      .SetEnum(Attribute::kHeuristicMode, Type::kHeuristicMode, mode);
  RETURN_IF_ERROR(heuristic.Finalize());
  return heuristic.GetParts(Attribute::kHeuristicResults, cudnn::Kind::kEngineConfig);
}

// As PyTorch: floats are never rounded to 16 bits.
absl::StatusOr<bool> IsWanted(const Descriptor& config, DType dtype) {
  ASSIGN_OR_RETURN(const std::vector<Descriptor> engine,
                   config.GetParts(Attribute::kConfigEngine, cudnn::Kind::kEngine));
  if (engine.empty()) return false;
  ASSIGN_OR_RETURN(
      const std::vector<int> notes,
      engine[0].GetEnums(Attribute::kEngineNumericalNotes, Type::kNumericalNote, cudnn::kNumNotes));
  const auto has = [&](int note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  if (CudnnSettings().only_deterministic && has(cudnn::kNotDeterministic)) return false;
  if (dtype != DType::kFloat) return true;
  return !has(cudnn::kRoundsInputs) && !(CudnnSettings().no_tf32 && has(cudnn::kUsesTensorCores));
}

int64_t NextSerial() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

// For the log.
std::string TextOf(const CudnnConvolution& c) {
  const auto sizes = [&](const CudnnConvolution::Space& values) {
    return absl::StrJoin(values.begin(), values.begin() + c.space, "x");
  };
  return absl::StrCat("a convolution of ", DTypeName(static_cast<DType>(c.dtype)), ", kind ",
                      c.kind, ", ", c.batch, " images of ", c.channels, " times ", sizes(c.size),
                      c.channels_last != 0 ? ", channels last, " : ", channels second, ",
                      c.out_channels, " outputs, windows of ", c.filter_channels, " times ",
                      sizes(c.window));
}

std::string KeyOf(const CudnnConvolution& convolution) {
  static_assert(sizeof(CudnnConvolution) % sizeof(int64_t) == 0);
  return {reinterpret_cast<const char*>(&convolution), sizeof(convolution)};
}

}  // namespace

ConvPlan::ConvPlan(std::shared_ptr<const std::vector<Descriptor>> graph, Descriptor config,
                   Descriptor plan, int64_t workspace_bytes)
    : serial_(NextSerial()),
      workspace_bytes_(workspace_bytes),
      graph_(std::move(graph)),
      config_(std::move(config)),
      plan_(std::move(plan)) {}

absl::StatusOr<std::unique_ptr<ConvPlans>> ConvPlans::Start(Gpu& gpu) {
  ASSIGN_OR_RETURN(const cudnn::Api* const api, cudnn::Load());
  RETURN_IF_ERROR(gpu.MakeCurrent());
  cudnn::Handle handle = nullptr;
  RETURN_IF_ERROR(cudnn::Check(*api, api->Create(&handle), "cudnnCreate"));
  RETURN_IF_ERROR(
      cudnn::Check(*api, api->SetStream(handle, gpu.stream_handle()), "cudnnSetStream"));
  return std::unique_ptr<ConvPlans>(new ConvPlans(gpu, *api, handle));
}

absl::StatusOr<ConvPlans*> ConvPlans::Of(Gpu& gpu) {
  static auto* const mutex = new Mutex;
  static auto* const all = new std::map<int, absl::StatusOr<std::unique_ptr<ConvPlans>>>;
  MutexLock lock(*mutex);
  auto found = all->find(gpu.ordinal());
  if (found == all->end()) {
    found = all->emplace(gpu.ordinal(), Start(gpu)).first;
    if (!found->second.ok()) {
      LOG(WARNING) << gpu.name() << ": convolutions are matrix products, which are slower: "
                   << found->second.status().message();
    }
  }
  RETURN_IF_ERROR(found->second.status());
  return found->second->get();
}

std::optional<ConvChoice> ConvPlans::FindKnown(const std::string& key) const {
  MutexLock lock(mutex_);
  const auto found = choices_.find(key);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<ConvChoice> ConvPlans::Find(const CudnnConvolution& convolution,
                                           const CudnnTensors& tensors) {
  const std::string key = KeyOf(convolution);
  if (std::optional<ConvChoice> known = FindKnown(key)) return *std::move(known);
  MutexLock timing(timing_mutex_);
  if (std::optional<ConvChoice> known = FindKnown(key)) return *std::move(known);
  RETURN_IF_ERROR(gpu_.MakeCurrent());
  ConvChoice choice;
  absl::StatusOr<Candidates> candidates = Build(convolution);
  if (candidates.ok()) {
    ASSIGN_OR_RETURN(choice, Choose(*std::move(candidates), tensors));
  } else {
    choice.why = candidates.status();
  }
  if (choice.fastest == nullptr) {
    LOG(WARNING) << "cuDNN has no plan for " << TextOf(convolution) << ": " << choice.why.message();
  }
  MutexLock lock(mutex_);
  if (choices_.size() >= kMostChoices) choices_.clear();
  choices_[key] = choice;
  return choice;
}

absl::StatusOr<ConvPlans::Candidates> ConvPlans::Build(const CudnnConvolution& convolution) const {
  const CudnnChoices& settings = CudnnSettings();
  const absl::Time begin = absl::Now();
  Candidates candidates;
  absl::Status why = FailedPrecondition("no engine takes it");
  MutexLock lock(handle_mutex_);
  ASSIGN_OR_RETURN(std::vector<Descriptor> made_of, MakeGraph(api_, handle_, convolution));
  const auto graph = std::make_shared<const std::vector<Descriptor>>(std::move(made_of));
  for (const int mode : {cudnn::kHeuristicInstant, cudnn::kHeuristicFallback}) {
    absl::StatusOr<std::vector<Descriptor>> configs = AskHeuristic(api_, graph->front(), mode);
    if (!configs.ok()) {
      why = configs.status();
      continue;
    }
    for (Descriptor& config : *configs) {
      const size_t most = settings.times_plans ? kMostCandidates : 1;
      const bool is_enough =
          candidates.size() >= most || (!candidates.empty() && absl::Now() - begin > kLongBuilding);
      if (is_enough) return candidates;
      const absl::StatusOr<bool> wanted = IsWanted(config, static_cast<DType>(convolution.dtype));
      if (!wanted.ok() || !*wanted) continue;
      Descriptor plan(api_, cudnn::Kind::kPlan);
      plan.Set(Attribute::kPlanHandle, Type::kHandle, 1, &handle_)
          .SetPart(Attribute::kPlanConfig, config);
      if (const absl::Status made = plan.Finalize(); !made.ok()) {
        why = made;  // not every engine takes every shape
        continue;
      }
      const absl::StatusOr<int64_t> workspace = plan.GetInt(Attribute::kPlanWorkspace);
      if (!workspace.ok() || *workspace > settings.most_workspace_bytes) continue;
      candidates.push_back(std::make_shared<ConvPlan>(graph, std::move(config), std::move(plan),
                                                      std::max<int64_t>(*workspace, 0)));
    }
  }
  if (candidates.empty()) return why;
  return candidates;
}

absl::StatusOr<ConvChoice> ConvPlans::Choose(Candidates candidates, const CudnnTensors& tensors) {
  const auto needs_less = [](const auto& a, const auto& b) {
    return a->workspace_bytes() < b->workspace_bytes();
  };
  ConvChoice choice = {candidates.front(), candidates.front(), absl::OkStatus()};
  if (!CudnnSettings().times_plans) return choice;
  // Where memory is short, those that need much of it take no part.
  Buffer workspace;
  for (;;) {
    const auto most = std::max_element(candidates.begin(), candidates.end(), needs_less);
    const auto bytes = static_cast<size_t>((*most)->workspace_bytes());
    if (bytes == 0) break;
    workspace = gpu_.memory().Allocate(bytes);
    if (workspace) break;
    candidates.erase(most);
    if (candidates.empty()) return choice;
  }
  GpuTimer& timer = timer_;
  ConvChoice timed;
  RETURN_IF_ERROR(gpu_.RunNow([&]() -> absl::Status {
    float least = 0;
    for (const auto& candidate : candidates) {
      const absl::StatusOr<float> time = Time(*candidate, tensors, workspace.data(), timer);
      if (!time.ok()) {
        timed.why = time.status();
        continue;
      }
      if (timed.smallest == nullptr || needs_less(candidate, timed.smallest))
        timed.smallest = candidate;
      // Among equals the one that the heuristic prefers.
      if (timed.fastest != nullptr && *time > least * 0.98F) continue;
      timed.fastest = candidate;
      timed.fastest_ms = least = *time;
    }
    return absl::OkStatus();
  }));
  return timed;
}

absl::StatusOr<float> ConvPlans::Time(const ConvPlan& plan, const CudnnTensors& tensors,
                                      void* workspace, GpuTimer& timer) const {
  RETURN_IF_ERROR(Execute(plan, tensors, workspace));
  RETURN_IF_ERROR(timer.Begin());
  for (int i = 0; i < kTimedRuns; ++i) RETURN_IF_ERROR(Execute(plan, tensors, workspace));
  return timer.End();
}

absl::StatusOr<bool> ConvPlans::IsFasterOtherwise(const CudnnConvolution& convolution,
                                                  absl::FunctionRef<absl::Status()> otherwise) {
  using Otherwise = ConvChoice::Otherwise;
  const std::string key = KeyOf(convolution);
  const auto known = [&]() -> std::optional<bool> {
    const std::optional<ConvChoice> choice = FindKnown(key);
    if (!choice || choice->fastest_ms <= 0) return false;
    if (choice->otherwise == Otherwise::kUnknown) return std::nullopt;
    return choice->otherwise == Otherwise::kFaster;
  };
  if (const std::optional<bool> is_faster = known()) return *is_faster;
  MutexLock timing(timing_mutex_);
  if (const std::optional<bool> is_faster = known()) return *is_faster;
  RETURN_IF_ERROR(gpu_.MakeCurrent());
  GpuTimer& timer = timer_;
  RETURN_IF_ERROR(otherwise());
  RETURN_IF_ERROR(gpu_.RunNow([&] { return timer.Begin(); }));
  for (int i = 0; i < kTimedRuns; ++i) RETURN_IF_ERROR(otherwise());
  float milliseconds = 0;
  RETURN_IF_ERROR(gpu_.RunNow([&]() -> absl::Status {
    ASSIGN_OR_RETURN(milliseconds, timer.End());
    return absl::OkStatus();
  }));
  MutexLock lock(mutex_);
  const auto choice = choices_.find(key);
  if (choice == choices_.end()) return false;
  const bool is_faster = milliseconds < choice->second.fastest_ms;
  choice->second.otherwise = is_faster ? Otherwise::kFaster : Otherwise::kSlower;
  return is_faster;
}

absl::Status ConvPlans::Execute(const ConvPlan& plan, const CudnnTensors& tensors,
                                void* workspace) const {
  const std::array<int64_t, 3> ids = {kImagesId, kFilterId, kOutputId};
  const std::array<const void*, 3> pointers = {tensors.images, tensors.filter, tensors.output};
  Descriptor pack(api_, cudnn::Kind::kVariantPack);
  pack.SetInts(Attribute::kPackIds, ids)
      .Set(Attribute::kPackPointers, Type::kPointer, 3, pointers.data())
      .Set(Attribute::kPackWorkspace, Type::kPointer, 1, &workspace);
  RETURN_IF_ERROR(pack.Finalize());
  MutexLock lock(handle_mutex_);
  return cudnn::Check(api_, api_.Execute(handle_, plan.plan_.get(), pack.get()),
                      "cudnnBackendExecute");
}

absl::Status ConvPlans::Run(std::shared_ptr<const ConvPlan> plan, const CudnnTensors& tensors,
                            void* workspace) {
  const struct {
    char kind[8];
    int64_t serial;
    CudnnTensors tensors;
    void* workspace;
  } key = {"cudnn", plan->serial_, tensors, workspace};
  // Which of the tensors is written depends on the plan.
  const auto pointer = [](const void* tensor) { return const_cast<void*>(tensor); };
  void* const writes[] = {pointer(tensors.images), pointer(tensors.filter), pointer(tensors.output),
                          workspace};
  return gpu_.AddLibraryCall(absl::MakeConstSpan(reinterpret_cast<const char*>(&key), sizeof(key)),
                             GpuAccesses{{}, writes},
                             [this, plan = std::move(plan), tensors, workspace] {
                               return Execute(*plan, tensors, workspace);
                             });
}

}  // namespace muster
