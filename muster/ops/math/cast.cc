// Cast: conversion between number types. Plain types convert by one loop per pair; 16-bit floats go
// through float and complex numbers through their real parts, block by block.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

constexpr int64_t kBlock = 1024;

// What x86 conversions give: truncation towards zero, and the lowest value (for narrow types: its
// low bits) where the number does not fit.
template <typename D, typename S>
D FloatToInteger(S x) {
  if constexpr (std::is_same_v<D, int64_t>) {
    const bool fits = x >= S(-9223372036854775808.0) && x < S(9223372036854775808.0);
    const int64_t value = static_cast<int64_t>(fits ? x : S(0));
    return fits ? value : std::numeric_limits<int64_t>::min();
  } else if constexpr (std::is_same_v<D, uint64_t>) {
    const bool fits = x >= S(-9223372036854775808.0) && x < S(18446744073709551616.0);
    const bool upper = x >= S(9223372036854775808.0);
    const S low = upper ? x - S(9223372036854775808.0) : x;
    const uint64_t value = static_cast<uint64_t>(static_cast<int64_t>(fits ? low : S(0)));
    return !fits || upper ? value + (uint64_t{1} << 63) : value;
  } else if constexpr (std::is_same_v<D, uint32_t>) {
    const bool fits = x > S(-2147483649.0) && x < S(4294967296.0);
    const uint32_t value = static_cast<uint32_t>(static_cast<int64_t>(fits ? x : S(0)));
    return fits ? value : uint32_t{1} << 31;
  } else {
    const bool fits = std::is_same_v<S, float> ? x >= S(-2147483648.0) && x < S(2147483648.0)
                                               : x > S(-2147483649.0) && x < S(2147483648.0);
    const int32_t value = static_cast<int32_t>(fits ? x : S(0));
    return static_cast<D>(fits ? value : std::numeric_limits<int32_t>::min());
  }
}

template <typename S, typename D>
D Convert(S x) {
  if constexpr (std::is_same_v<D, bool>)
    return x != S(0);
  else if constexpr (std::is_floating_point_v<S> && std::is_integral_v<D>)
    return FloatToInteger<D>(x);
  else
    return static_cast<D>(x);
}

using CastLoop = void (*)(const void* from, void* to, int64_t count);

template <typename S, typename D>
void CastRun(const void* from, void* to, int64_t count) {
  const S* __restrict x = static_cast<const S*>(from);
  D* __restrict y = static_cast<D*>(to);
  for (int64_t i = 0; i < count; ++i) y[i] = Convert<S, D>(x[i]);
}

// All pairs of these have a loop.
using Core = Types<bool, uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t,
                   float, double>;
constexpr int kCoreCount = 11;

template <typename... Ts>
constexpr int IndexIn(Types<Ts...>, DType dtype) {
  int index = 0;
  int found = -1;
  ((kDTypeOf<Ts> == dtype ? void(found = index) : void(), ++index), ...);
  return found;
}

template <typename S, typename... Ds>
constexpr std::array<CastLoop, kCoreCount> LoopsFrom(Types<Ds...>) {
  return {CastRun<S, Ds>...};
}
template <typename... Ss>
constexpr std::array<std::array<CastLoop, kCoreCount>, kCoreCount> AllLoops(Types<Ss...>) {
  return {LoopsFrom<Ss>(Core())...};
}
constexpr std::array<std::array<CastLoop, kCoreCount>, kCoreCount> kLoops = AllLoops(Core());

// Quantized integers are stored as plain ones.
DType StoredAs(DType dtype) {
  switch (dtype) {
    case DType::kQint8:
      return DType::kInt8;
    case DType::kQuint8:
      return DType::kUint8;
    case DType::kQint16:
      return DType::kInt16;
    case DType::kQuint16:
      return DType::kUint16;
    case DType::kQint32:
      return DType::kInt32;
    default:
      return dtype;
  }
}
// The core type that stands for `dtype` in the loops.
DType CoreOf(DType dtype) {
  if (IsSmallFloat(dtype) || dtype == DType::kComplex64) return DType::kFloat;
  return dtype == DType::kComplex128 ? DType::kDouble : dtype;
}
// Bits of the significand that `dtype` keeps, without the leading one.
int SignificandBits(DType dtype) {
  switch (dtype) {
    case DType::kBfloat16:
      return 7;
    case DType::kHalf:
      return 10;
    case DType::kFloat:
    case DType::kComplex64:
      return 23;
    default:
      return 52;
  }
}

// How many low bits of the source's significands are cleared where casts are to truncate.
int ClearedBits(DType source, DType target) {
  const auto is_real = [](DType dtype) { return IsFloating(dtype) || IsComplex(dtype); };
  if (!is_real(source) || !is_real(target)) return 0;
  return std::max(0, (CoreOf(source) == DType::kDouble ? 52 : 23) - SignificandBits(target));
}

template <typename R>
void RealParts(const void* from, void* to, int64_t count) {
  const std::complex<R>* x = static_cast<const std::complex<R>*>(from);
  R* y = static_cast<R*>(to);
  for (int64_t i = 0; i < count; ++i) y[i] = x[i].real();
}
template <typename R>
void FromReals(const void* from, void* to, int64_t count) {
  const R* x = static_cast<const R*>(from);
  std::complex<R>* y = static_cast<std::complex<R>*>(to);
  for (int64_t i = 0; i < count; ++i) y[i] = std::complex<R>(x[i]);
}
template <typename S, typename D>
void ComplexRun(const void* from, void* to, int64_t count) {
  const std::complex<S>* x = static_cast<const std::complex<S>*>(from);
  std::complex<D>* y = static_cast<std::complex<D>*>(to);
  for (int64_t i = 0; i < count; ++i)
    y[i] = std::complex<D>(static_cast<D>(x[i].real()), static_cast<D>(x[i].imag()));
}
// Clears the low bits of significands, so that the rounding that follows has nothing to round.
template <typename Word>
void ClearLowBits(void* memory, int64_t count, int bits) {
  Word* words = static_cast<Word*>(memory);
  const Word mask = ~((Word{1} << bits) - 1);
  for (int64_t i = 0; i < count; ++i) words[i] &= mask;
}

class Cast final : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    const DType source = setup.input_type(0);
    const DType target = setup.output_type(0);
    ASSIGN_OR_RETURN(const bool truncate, setup.Attr<bool>("Truncate"));
    same_ = source == target;
    if (same_) return absl::OkStatus();
    source_ = StoredAs(source);
    target_ = StoredAs(target);
    const int from = IndexIn(Core(), CoreOf(source_));
    const int to = IndexIn(Core(), CoreOf(target_));
    if (from < 0 || to < 0) {
      return Unimplemented("Cast ", DTypeName(source), " to ", DTypeName(target),
                           " is not supported");
    }
    loop_ = kLoops[from][to];
    if (truncate) cleared_bits_ = ClearedBits(source_, target_);
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    if (same_) {
      c.SetOutput(0, c.input(0));
      return absl::OkStatus();
    }
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, x.shape()));
    const char* from = x.raw();
    char* to = y->raw();
    const int64_t from_size = static_cast<int64_t>(DTypeSize(source_));
    const int64_t to_size = static_cast<int64_t>(DTypeSize(target_));
    const bool direct =
        CoreOf(source_) == source_ && CoreOf(target_) == target_ && cleared_bits_ == 0;
    c.ParallelFor(x.num_elements(), 0.5, [&](int64_t begin, int64_t end) {
      if (direct) return loop_(from + begin * from_size, to + begin * to_size, end - begin);
      for (int64_t i = begin; i < end; i += kBlock) {
        CastBlock(from + i * from_size, to + i * to_size, std::min(kBlock, end - i));
      }
    });
    return absl::OkStatus();
  }

 private:
  void CastBlock(const void* from, void* to, int64_t count) const {
    if (source_ == DType::kComplex64 && target_ == DType::kComplex128)
      return ComplexRun<float, double>(from, to, count);
    if (source_ == DType::kComplex128 && target_ == DType::kComplex64)
      return ComplexRun<double, float>(from, to, count);
    alignas(64) std::array<double, kBlock> read;
    alignas(64) std::array<double, kBlock> converted;
    const void* source = from;
    if (source_ != CoreOf(source_)) {
      if (IsSmallFloat(source_))
        ToFloat(source_, from, reinterpret_cast<float*>(read.data()), count);
      else if (source_ == DType::kComplex64)
        RealParts<float>(from, read.data(), count);
      else
        RealParts<double>(from, read.data(), count);
      source = read.data();
    } else if (cleared_bits_ > 0) {
      std::memcpy(read.data(), from, static_cast<size_t>(count) * DTypeSize(source_));
      source = read.data();
    }
    if (cleared_bits_ > 0) {
      if (CoreOf(source_) == DType::kDouble)
        ClearLowBits<uint64_t>(read.data(), count, cleared_bits_);
      else
        ClearLowBits<uint32_t>(read.data(), count, cleared_bits_);
    }
    if (target_ == CoreOf(target_)) return loop_(source, to, count);
    loop_(source, converted.data(), count);
    if (IsSmallFloat(target_))
      FromFloat(target_, reinterpret_cast<const float*>(converted.data()), to, count);
    else if (target_ == DType::kComplex64)
      FromReals<float>(converted.data(), to, count);
    else
      FromReals<double>(converted.data(), to, count);
  }

  bool same_ = false;
  DType source_ = DType::kInvalid;
  DType target_ = DType::kInvalid;
  CastLoop loop_ = nullptr;
  int cleared_bits_ = 0;
};

class GpuCast final : public GpuKernel {
 public:
  GpuCast(DType source, DType target) {
    if (source != target) {
      run_.emplace(*this, "math/cast.cu",
                   absl::StrCat("Cast<", GpuTypeName(source), ", ", GpuTypeName(target), ">"));
    }
  }
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(const bool truncate, setup.Attr<bool>("Truncate"));
    if (truncate) cleared_bits_ = ClearedBits(setup.input_type(0), setup.output_type(0));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (!run_.has_value()) {
      c.SetOutput(0, x);
      return absl::OkStatus();
    }
    const int64_t count = x.num_elements();
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, x.shape()));
    return run_->LaunchForEach(GpuPacks(count, WiderOf(x.dtype(), y->dtype())), GpuIn(x),
                               GpuOut(*y), count, cleared_bits_);
  }

 private:
  std::optional<GpuFunction> run_;  // none where the types are the same
  int32_t cleared_bits_ = 0;
};

absl::Status CastGradient(GradientContext& c) {
  const auto differentiable = [](DType dtype) { return IsFloating(dtype) || IsComplex(dtype); };
  const DType source = c.input(0).base_dtype();
  const auto* slices = std::get_if<IndexedSlices>(&c.gradient(0));
  const Output dy = slices != nullptr ? slices->values : c.dy();
  RETURN_IF_ERROR(c.scope().status());
  if (!differentiable(source) || !differentiable(dy.base_dtype())) return absl::OkStatus();
  Output dx = dy;
  if (dy.base_dtype() != source) dx = c.Op("Cast", {dy}, {{"DstT", source}});
  if (slices != nullptr)
    c.SetDx(0, IndexedSlices{dx, slices->indices, slices->dense_shape});
  else
    c.SetDx(0, dx);
  return c.scope().status();
}

OpBuilder& CastDef(OpBuilder& op) {
  return op.Attr("SrcT: type")
      .Attr("DstT: type")
      .Attr("Truncate: bool = false")
      .Input("x: SrcT")
      .Output("y: DstT")
      .Shape(UnchangedShape)
      .Cpu(New<Cast>());
}

DEFINE_OP(Cast) {
  CastDef(op)
      .Doc(
          "The same numbers as another type; reals are cut to integers, complex numbers to their "
          "real parts.")
      .Gradient(CastGradient);
  const std::vector<DType> types = With(With(kGpuFields, kGpuIntegers), {DType::kBool});
  for (const DType source : types) {
    const auto make = [source](DType target) -> KernelFactory {
      return [=] { return std::make_unique<GpuCast>(source, target); };
    };
    op.GpuTypes("DstT", types, make, {}, {{"SrcT", source}});
  }
}
DEFINE_OP(_HostCast) {
  CastDef(op).Doc("Cast that stays in host memory.").HostMemory({"x", "y"});
}

}  // namespace
}  // namespace muster
