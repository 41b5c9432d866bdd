// What every function for GPUs starts with: element types, loops over elements, and arithmetic that
// is the same as on the CPU. Compiled by NVRTC at run time, and by a C++ compiler where a test runs
// the functions without a GPU; so no header of CUDA's is included.
#pragma once

using int8 = signed char;
using uint8 = unsigned char;
using int16 = short;
using uint16 = unsigned short;
using int32 = int;
using uint32 = unsigned int;
using int64 = long long;
using uint64 = unsigned long long;

template <typename To, typename From>
__device__ __forceinline__ To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From), "of equal size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// --- 16-bit floats: stored so, computed in float
struct Half {
  uint16 bits;
  Half() = default;
  __device__ __forceinline__ explicit Half(float value);
  __device__ __forceinline__ operator float() const;
};
struct Bfloat16 {
  uint16 bits;
  Bfloat16() = default;
  __device__ __forceinline__ explicit Bfloat16(float value) {
    const uint32 word = BitCast<uint32>(value);
    bits = value != value ? uint16((word >> 16) | 0x40)
                          : uint16((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
  }
  __device__ __forceinline__ operator float() const { return BitCast<float>(uint32(bits) << 16); }
};
#ifdef MUSTER_EMULATED_GPU
__device__ __forceinline__ Half::Half(float value) {
  const _Float16 half = (_Float16)value;
  memcpy(&bits, &half, 2);
}
__device__ __forceinline__ Half::operator float() const {
  _Float16 half;
  memcpy(&half, &bits, 2);
  return (float)half;
}
#else
__device__ __forceinline__ Half::Half(float value) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
}
__device__ __forceinline__ Half::operator float() const {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#endif

// --- Complex numbers
template <typename R>
struct Complex {
  R re, im;
  Complex() = default;
  __device__ __forceinline__ Complex(R real, R imaginary = R(0)) : re(real), im(imaginary) {}
};
using Complex64 = Complex<float>;
using Complex128 = Complex<double>;
template <typename R>
__device__ __forceinline__ Complex<R> operator+(Complex<R> a, Complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename R>
__device__ __forceinline__ Complex<R> operator-(Complex<R> a, Complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename R>
__device__ __forceinline__ Complex<R> operator-(Complex<R> a) {
  return {-a.re, -a.im};
}
template <typename R>
__device__ __forceinline__ Complex<R> operator*(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
// Without squares, which may be too large (Smith).
template <typename R>
__device__ __forceinline__ Complex<R> operator/(Complex<R> a, Complex<R> b) {
  if (fabs(b.re) >= fabs(b.im)) {
    const R ratio = b.re == R(0) ? R(0) : b.im / b.re, scale = b.re + b.im * ratio;
    return {(a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale};
  }
  const R ratio = b.re / b.im, scale = b.re * ratio + b.im;
  return {(a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale};
}
template <typename R>
__device__ __forceinline__ Complex<R>& operator+=(Complex<R>& a, Complex<R> b) {
  return a = a + b;
}
template <typename R>
__device__ __forceinline__ bool operator==(Complex<R> a, Complex<R> b) {
  return a.re == b.re && a.im == b.im;
}
template <typename R>
__device__ __forceinline__ bool operator!=(Complex<R> a, Complex<R> b) {
  return !(a == b);
}

// --- What is asked of types
template <typename A, typename B>
struct IsSameType {
  static constexpr bool value = false;
};
template <typename A>
struct IsSameType<A, A> {
  static constexpr bool value = true;
};
template <typename A, typename B>
constexpr bool kSame = IsSameType<A, B>::value;

// The type that elements T are computed in.
template <typename T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<Half> {
  using type = float;
};
template <>
struct ComputeOf<Bfloat16> {
  using type = float;
};
template <typename T>
using Compute = typename ComputeOf<T>::type;

template <typename T>
constexpr bool kIsComplex = false;
template <typename R>
constexpr bool kIsComplex<Complex<R>> = true;
template <typename T>
constexpr bool kIsFloat = kSame<T, float> || kSame<T, double> || kSame<T, Half> ||
                          kSame<T, Bfloat16>;

// Integers that wrap around are computed as unsigned ones; the result of small ones is cut off.
template <typename T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<int8> {
  using type = uint32;
};
template <>
struct UnsignedOf<uint8> {
  using type = uint32;
};
template <>
struct UnsignedOf<int16> {
  using type = uint32;
};
template <>
struct UnsignedOf<uint16> {
  using type = uint32;
};
template <>
struct UnsignedOf<int32> {
  using type = uint32;
};
template <>
struct UnsignedOf<int64> {
  using type = uint64;
};

// Element i, ready to compute with, and back.
template <typename T>
__device__ __forceinline__ Compute<T> Load(const T* from, int64 i) {
  return Compute<T>(from[i]);
}
template <typename T, typename C>
__device__ __forceinline__ void Store(T* to, int64 i, C value) {
  to[i] = T(value);
}

// --- Which element a thread works on
// for (int64 i : each of `count`): threads of the whole grid take turns.
#define FOR_EACH_ELEMENT(i, count)                                              \
  for (int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x,                  \
             muster_step_##i = int64(gridDim.x) * blockDim.x;                   \
       i < (count); i += muster_step_##i)

// --- Sums and the like over the threads of a block. All of them call it; thread 0 gets the result.
// `Op::Join(a, b)` joins two values, `Op::template None<C>()` is the value that changes nothing.
constexpr int kWarp = 32;
template <typename C>
__device__ __forceinline__ C ShuffleDown(C value, int offset) {
  if constexpr (sizeof(C) == 4) {
    return BitCast<C>(__shfl_down_sync(0xFFFFFFFFu, BitCast<uint32>(value), offset));
  } else {
    static_assert(sizeof(C) % 8 == 0, "made of words of 8 bytes");
    uint64 words[sizeof(C) / 8];
    memcpy(words, &value, sizeof(C));
    for (uint64& word : words) word = __shfl_down_sync(0xFFFFFFFFu, word, offset);
    memcpy(&value, words, sizeof(C));
    return value;
  }
}
template <typename Op, typename C>
__device__ C ReduceBlock(C value) {
  alignas(16) __shared__ unsigned char muster_memory[32 * sizeof(C)];
  C* const warps = reinterpret_cast<C*>(muster_memory);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = Op::Join(value, ShuffleDown(value, offset));
  __syncthreads();
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  if (warp == 0) {
    const int num_warps = (blockDim.x + kWarp - 1) / kWarp;
    value = lane < num_warps ? warps[lane] : Op::template None<C>();
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      value = Op::Join(value, ShuffleDown(value, offset));
  }
  return value;
}
// --- Limits of types, as std::numeric_limits has them
template <typename T>
__device__ __forceinline__ T Lowest();
template <typename T>
__device__ __forceinline__ T Highest();
#define MUSTER_LIMITS(T, least, most)                                      \
  template <>                                                              \
  __device__ __forceinline__ T Lowest<T>() { return least; }               \
  template <>                                                              \
  __device__ __forceinline__ T Highest<T>() { return most; }
MUSTER_LIMITS(float, BitCast<float>(0xFF7FFFFFu), BitCast<float>(0x7F7FFFFFu))
MUSTER_LIMITS(double, BitCast<double>(0xFFEFFFFFFFFFFFFFull), BitCast<double>(0x7FEFFFFFFFFFFFFFull))
MUSTER_LIMITS(int8, -128, 127)
MUSTER_LIMITS(uint8, 0, 255)
MUSTER_LIMITS(int16, -32768, 32767)
MUSTER_LIMITS(uint16, 0, 65535)
MUSTER_LIMITS(int32, -2147483647 - 1, 2147483647)
MUSTER_LIMITS(uint32, 0, 4294967295u)
MUSTER_LIMITS(int64, -9223372036854775807ll - 1, 9223372036854775807ll)
MUSTER_LIMITS(uint64, 0, 18446744073709551615ull)
#undef MUSTER_LIMITS
template <typename T>
__device__ __forceinline__ T Infinity() {
  if constexpr (kSame<T, double>)
    return BitCast<double>(0x7FF0000000000000ull);
  else
    return BitCast<float>(0x7F800000u);
}

// --- Adding to memory that other threads add to as well
template <int size>
struct UnsignedBits;
template <>
struct UnsignedBits<1> {
  using type = uint8;
};
template <>
struct UnsignedBits<2> {
  using type = uint16;
};
template <typename T>
__device__ __forceinline__ void AtomicAdd(T* to, T value) {
  if constexpr (kSame<T, float> || kSame<T, double> || kSame<T, int32> || kSame<T, uint32> ||
                kSame<T, uint64>) {
    atomicAdd(to, value);
  } else if constexpr (kSame<T, int64>) {
    atomicAdd(reinterpret_cast<uint64*>(to), uint64(value));
  } else if constexpr (kIsComplex<T>) {
    atomicAdd(&to->re, value.re);
    atomicAdd(&to->im, value.im);
  } else {
    // Elements smaller than a word: the word that they are in is replaced as a whole.
    static_assert(sizeof(T) <= 2, "one or two bytes");
    const auto address = reinterpret_cast<uint64>(to);
    auto* const word = reinterpret_cast<uint32*>(address & ~uint64(3));
    const int shift = int(address & 3) * 8;
    const uint32 mask = ((1u << (8 * sizeof(T))) - 1) << shift;
    uint32 before = *word, expected;
    do {
      expected = before;
      using Bits = typename UnsignedBits<sizeof(T)>::type;
      const T sum = T(Compute<T>(BitCast<T>(Bits((expected & mask) >> shift))) + Compute<T>(value));
      before = atomicCAS(word, expected, (expected & ~mask) | (uint32(BitCast<Bits>(sum)) << shift));
    } while (before != expected);
  }
}
