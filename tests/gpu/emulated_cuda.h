// What a .cu file finds when g++ compiles it for the card of emulated_functions.cc, in the place of what NVRTC knows by itself.
// One thread of the card runs at a time; __syncthreads and its kin hand over to the others.
#pragma once

#include <math.h>
#include <string.h>

#include <cmath>

namespace emulated {

struct Dim3 {
  unsigned x, y, z;
};

// Shared with emulated_functions.cc.
struct Machine {
  Dim3 thread_idx, block_idx, block_dim, grid_dim;
  void (*wait)(bool whole_block);  // until all threads of the block, or of the warp, have come here
  alignas(16) unsigned char exchanged[1024][16];  // by thread of the block, within a warp
};
static Machine* machine;

inline unsigned ThreadInBlock() {
  const Dim3& size = machine->block_dim;
  const Dim3& at = machine->thread_idx;
  return at.x + size.x * (at.y + size.y * at.z);
}
inline unsigned ThreadsInBlock() {
  return machine->block_dim.x * machine->block_dim.y * machine->block_dim.z;
}

// The value that thread `lane` of this thread's warp hands in; its own where there is no such thread.
template <typename T>
T Exchange(T value, int lane, bool is_in_range) {
  static_assert(sizeof(T) <= 16);
  const unsigned own = ThreadInBlock();
  memcpy(machine->exchanged[own], &value, sizeof(T));
  machine->wait(false);
  const unsigned from = own / 32 * 32 + static_cast<unsigned>(lane);
  if (is_in_range && from < ThreadsInBlock()) memcpy(&value, machine->exchanged[from], sizeof(T));
  machine->wait(false);
  return value;
}

}  // namespace emulated

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __constant__ static const
#define __grid_constant__
#define __launch_bounds__(...)

#define threadIdx (emulated::machine->thread_idx)
#define blockIdx (emulated::machine->block_idx)
#define blockDim (emulated::machine->block_dim)
#define gridDim (emulated::machine->grid_dim)

inline void __syncthreads() { emulated::machine->wait(true); }
inline void __syncwarp(unsigned = 0xFFFFFFFFu) { emulated::machine->wait(false); }
inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T>
T __shfl_sync(unsigned, T value, int lane, int = 32) {
  return emulated::Exchange(value, lane & 31, true);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned offset, int width = 32) {
  const int own = static_cast<int>(emulated::ThreadInBlock() % 32);
  const int lane = own + static_cast<int>(offset);
  return emulated::Exchange(value, lane, lane / width == own / width);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned offset, int width = 32) {
  const int own = static_cast<int>(emulated::ThreadInBlock() % 32);
  const int lane = own - static_cast<int>(offset);
  return emulated::Exchange(value, lane, lane >= 0 && lane / width == own / width);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
  const int own = static_cast<int>(emulated::ThreadInBlock() % 32);
  return emulated::Exchange(value, own ^ mask, true);
}
inline unsigned __ballot_sync(unsigned, int is_set) {
  const unsigned own = emulated::ThreadInBlock();
  const unsigned first = own / 32 * 32;
  memcpy(emulated::machine->exchanged[own], &is_set, sizeof(is_set));
  emulated::machine->wait(false);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32 && first + lane < emulated::ThreadsInBlock(); ++lane) {
    int other = 0;
    memcpy(&other, emulated::machine->exchanged[first + lane], sizeof(other));
    if (other != 0) ballot |= 1u << lane;
  }
  emulated::machine->wait(false);
  return ballot;
}
inline int __any_sync(unsigned mask, int is_set) { return __ballot_sync(mask, is_set) != 0; }
inline int __all_sync(unsigned mask, int is_set) { return __ballot_sync(mask, !is_set) == 0; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __clzll(long long bits) { return bits == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(bits)); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}

#define MUSTER_ATOMIC(name, result)              \
  template <typename T, typename V>              \
  inline T name(T* to, V value) {                \
    const T before = *to;                        \
    const T given = static_cast<T>(value);       \
    *to = static_cast<T>(result);                \
    return before;                               \
  }
MUSTER_ATOMIC(atomicAdd, before + given)
MUSTER_ATOMIC(atomicSub, before - given)
MUSTER_ATOMIC(atomicExch, given)
MUSTER_ATOMIC(atomicMax, before < given ? given : before)
MUSTER_ATOMIC(atomicMin, given < before ? given : before)
MUSTER_ATOMIC(atomicOr, before | given)
MUSTER_ATOMIC(atomicAnd, before & given)
MUSTER_ATOMIC(atomicInc, before >= given ? T(0) : before + 1)
#undef MUSTER_ATOMIC
template <typename T>
inline T atomicCAS(T* to, T expected, T value) {
  const T before = *to;
  if (before == expected) *to = value;
  return before;
}

// Vectors of CUDA that NVRTC knows without a header.
#define MUSTER_VECTOR(T, name, align)                                                                \
  struct alignas(align) name##2 { T x, y; };                                                         \
  struct alignas(align * 2 > 16 ? 16 : align * 2) name##4 { T x, y, z, w; };                         \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                         \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
MUSTER_VECTOR(float, float, 8)
MUSTER_VECTOR(double, double, 16)
MUSTER_VECTOR(int, int, 8)
MUSTER_VECTOR(unsigned, uint, 8)
MUSTER_VECTOR(short, short, 4)
MUSTER_VECTOR(unsigned short, ushort, 4)
MUSTER_VECTOR(signed char, char, 2)
MUSTER_VECTOR(unsigned char, uchar, 2)
MUSTER_VECTOR(long long, longlong, 16)
MUSTER_VECTOR(unsigned long long, ulonglong, 16)
#undef MUSTER_VECTOR

// Functions that CUDA has and C++ lacks, or has under other names.
template <typename A, typename B>
constexpr auto min(A a, B b) { return b < a ? b : a; }
template <typename A, typename B>
constexpr auto max(A a, B b) { return a < b ? b : a; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dmul_rn(double a, double b) {
  volatile double product = a * b;
  return product;
}
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits;
}
inline int __float_as_int(float value) { return static_cast<int>(__float_as_uint(value)); }
inline double __longlong_as_double(long long bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}
inline long long __double_as_longlong(double value) {
  long long bits;
  memcpy(&bits, &value, 8);
  return bits;
}
template <typename T>
inline T __ldg(const T* from) { return *from; }

namespace emulated {

template <unsigned long... at>
struct Positions {};
template <unsigned long count, unsigned long... at>
struct MakePositions : MakePositions<count - 1, count - 1, at...> {};
template <unsigned long... at>
struct MakePositions<0, at...> {
  using type = Positions<at...>;
};

// The parameters of a function, as they lie in the memory that a launch hands over.
template <typename Function>
struct Parameters;
template <typename... Args>
struct Parameters<void (*)(Args...)> {
  static constexpr unsigned long kCount = sizeof...(Args);
  static constexpr unsigned long kSizes[] = {sizeof(Args)..., 0};
  template <unsigned long... at>
  static void Call(void (*function)(Args...), void** arguments, Positions<at...>) {
    function(*static_cast<Args*>(arguments[at])...);
  }
};

}  // namespace emulated

// What emulated_functions.cc finds in a compiled function.
#define MUSTER_EMULATED_FUNCTION(...)                                                          \
  using EmulatedParameters = emulated::Parameters<decltype(&__VA_ARGS__)>;                     \
  extern "C" void muster_use(emulated::Machine* machine) { emulated::machine = machine; }      \
  extern "C" unsigned long muster_num_parameters() { return EmulatedParameters::kCount; }      \
  extern "C" const unsigned long* muster_sizes() { return EmulatedParameters::kSizes; }        \
  extern "C" void muster_run(void** arguments) {                                               \
    EmulatedParameters::Call(&__VA_ARGS__, arguments,                                          \
                             typename emulated::MakePositions<EmulatedParameters::kCount>::type()); \
  }
