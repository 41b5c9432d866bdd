// cuDNN's graph API, loaded at run time: what of it convolutions need. cuDNN's older functions with
// algorithms reach only some of its kernels for Hopper; a graph of one operation reaches all, which
// its heuristics order from the one that it expects to be the fastest.
#pragma once

#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/device/gpu/cuda_api.h"

namespace muster::cudnn {

using Handle = struct HandleRecord*;
using RawDescriptor = void*;

// Those of cuDNN's enumerations that are used, with its numbers.
enum class Kind : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristic = 4,
  kPlan = 5,
  kForward = 10,
  kBackwardFilter = 11,
  kBackwardData = 12,
  kGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};
enum class Type : int {
  kHandle = 0,
  kDataType = 1,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kPointer = 6,
  kConvolutionMode = 7,
  kHeuristicMode = 8,
  kNumericalNote = 11,
  kDescriptor = 15,
};
enum class Attribute : int {
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPaddingsAfter = 104,
  kConvolutionPaddingsBefore = 105,
  kConvolutionSpaceDims = 106,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardFilter = 703,
  kForwardImages = 704,
  kForwardOutput = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataFilter = 709,
  kBackwardDataImages = 710,
  kBackwardDataOutput = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvolution = 714,
  kBackwardFilterFilter = 715,
  kBackwardFilterImages = 716,
  kBackwardFilterOutput = 717,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorDims = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNotes = 1303,
};
inline constexpr int kFloatData = 0, kDoubleData = 1, kHalfData = 2, kBfloat16Data = 9;
inline constexpr int kCrossCorrelation = 1;
inline constexpr int kUsesTensorCores = 0, kRoundsInputs = 1, kNotDeterministic = 4;
inline constexpr int kNumNotes = 10;
inline constexpr int kHeuristicInstant = 0, kHeuristicFallback = 2;

struct Api {
  const char* (*GetErrorString)(int status);
  int (*Create)(Handle* handle);
  int (*SetStream)(Handle handle, cuda::StreamHandle stream);
  int (*CreateDescriptor)(int kind, RawDescriptor* descriptor);
  int (*DestroyDescriptor)(RawDescriptor descriptor);
  int (*Finalize)(RawDescriptor descriptor);
  int (*SetAttribute)(RawDescriptor descriptor, int attribute, int type, int64_t count,
                      const void* values);
  int (*GetAttribute)(RawDescriptor descriptor, int attribute, int type, int64_t asked,
                      int64_t* count, void* values);
  int (*Execute)(Handle handle, RawDescriptor plan, RawDescriptor pack);
};
// Loaded once for the process. NotFound where cuDNN 9 is missing.
absl::StatusOr<const Api*> Load();

// Internal naming what was done and why it failed; OK for 0.
absl::Status Check(const Api& api, int status, const char* what);

// A descriptor of cuDNN's. The first error of all its calls is kept for Finalize.
class Descriptor {
 public:
  Descriptor(const Api& api, Kind kind);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  RawDescriptor get() const { return descriptor_; }
  Descriptor& Set(Attribute attribute, Type type, int64_t count, const void* values);
  Descriptor& SetInts(Attribute attribute, absl::Span<const int64_t> values);
  Descriptor& SetInt(Attribute attribute, int64_t value) { return SetInts(attribute, {value}); }
  Descriptor& SetEnum(Attribute attribute, Type type, int value) {
    return Set(attribute, type, 1, &value);
  }
  Descriptor& SetPart(Attribute attribute, const Descriptor& part) {
    return Set(attribute, Type::kDescriptor, 1, &part.descriptor_);
  }
  absl::Status Finalize();

  absl::StatusOr<int64_t> GetInt(Attribute attribute) const;
  // The numbers of an enumeration, at most `most`.
  absl::StatusOr<std::vector<int>> GetEnums(Attribute attribute, Type type, int64_t most) const;
  // All descriptors of `kind`.
  absl::StatusOr<std::vector<Descriptor>> GetParts(Attribute attribute, Kind kind) const;

 private:
  const Api* api_;
  RawDescriptor descriptor_ = nullptr;
  absl::Status status_;
};

}  // namespace muster::cudnn
