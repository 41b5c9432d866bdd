// cuFFT on the emulated card: the sums of the definition. As strict as the real one: a plan is made once and needs its
// workspace, and addresses must be in the card's memory and aligned to complex numbers. Transforms to real numbers destroy what
// they are given.
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "emulated_gpu.h"

namespace {

using emulated::kOk;
using Value = std::complex<double>;

constexpr int kInvalidPlan = 1, kInvalidType = 3, kInvalidValue = 4, kInvalidSize = 8, kNoWorkspace = 14;
constexpr int kC2C = 0x29, kR2C = 0x2a, kC2R = 0x2c, kZ2Z = 0x69, kD2Z = 0x6a, kZ2D = 0x6c;
constexpr size_t kWorkspaceBytes = 4096;

struct Plan {
  int type = 0;
  std::vector<int64_t> lengths;
  int64_t batch = 0;
  bool allocates = true, has_stream = false;
  void* workspace = nullptr;

  int64_t points(bool half) const {
    int64_t product = 1;
    for (size_t i = 0; i < lengths.size(); ++i) product *= half && i + 1 == lengths.size() ? lengths[i] / 2 + 1 : lengths[i];
    return product;
  }
};
std::mutex mutex;
std::map<int, Plan> plans;
int last_plan = 0;

template <typename R>
void LoadComplex(const void* from, int64_t at, std::vector<Value>& block) {
  for (size_t i = 0; i < block.size(); ++i) block[i] = Value(static_cast<const std::complex<R>*>(from)[at + static_cast<int64_t>(i)]);
}

// One line of `length` numbers, `stride` apart.
void TransformLine(Value* first, int64_t length, int64_t stride, int direction) {
  std::vector<Value> sums(static_cast<size_t>(length));
  for (int64_t k = 0; k < length; ++k) {
    for (int64_t j = 0; j < length; ++j) {
      const double angle = direction * 2 * M_PI * static_cast<double>(k * j % length) / static_cast<double>(length);
      sums[static_cast<size_t>(k)] += first[j * stride] * Value(std::cos(angle), std::sin(angle));
    }
  }
  for (int64_t k = 0; k < length; ++k) first[k * stride] = sums[static_cast<size_t>(k)];
}
void TransformAxis(std::vector<Value>& block, const std::vector<int64_t>& dims, size_t axis, int direction) {
  int64_t stride = 1;
  for (size_t i = axis + 1; i < dims.size(); ++i) stride *= dims[i];
  const auto count = static_cast<int64_t>(block.size());
  for (int64_t i = 0; i < count; ++i) {
    if (i / stride % dims[axis] == 0) TransformLine(block.data() + i, dims[axis], stride, direction);
  }
}

template <typename R>
void Run(const Plan& p, void* in, void* out, int direction) {
  const bool from_real = p.type == kR2C || p.type == kD2Z, to_real = p.type == kC2R || p.type == kZ2D;
  std::vector<int64_t> dims = p.lengths;
  if (to_real) dims.back() = dims.back() / 2 + 1;
  const int64_t length = p.lengths.back(), half = length / 2 + 1;
  for (int64_t b = 0; b < p.batch; ++b) {
    std::vector<Value> block(static_cast<size_t>(p.points(to_real)));
    const int64_t at = b * static_cast<int64_t>(block.size());
    if (from_real) {
      for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<const R*>(in)[at + static_cast<int64_t>(i)];
    } else {
      LoadComplex<R>(in, at, block);
    }
    for (size_t axis = 0; axis + 1 < dims.size(); ++axis) TransformAxis(block, dims, axis, direction);
    if (to_real) {
      // The other half of each line is this one's conjugate, backwards.
      std::vector<Value> whole;
      for (size_t line = 0; line < block.size(); line += static_cast<size_t>(half)) {
        for (int64_t k = 0; k < length; ++k) {
          Value value = k < half ? block[line + static_cast<size_t>(k)] : std::conj(block[line + static_cast<size_t>(length - k)]);
          whole.push_back(k == 0 || 2 * k == length ? Value(value.real()) : value);
        }
      }
      block = std::move(whole);
    }
    TransformAxis(block, p.lengths, dims.size() - 1, direction);
    const auto count = static_cast<int64_t>(block.size());
    if (to_real) {
      for (int64_t i = 0; i < count; ++i) static_cast<R*>(out)[b * count + i] = static_cast<R>(block[static_cast<size_t>(i)].real());
      continue;
    }
    auto* const to = static_cast<std::complex<R>*>(out) + b * p.points(from_real);
    for (int64_t i = 0, k = 0; i < count; ++i) {
      if (!from_real || i % length < half) to[k++] = std::complex<R>(block[static_cast<size_t>(i)]);
    }
  }
  if (to_real) memset(in, 0x7F, static_cast<size_t>(p.batch * p.points(true)) * sizeof(std::complex<R>));
}

int Execute(int plan, int type, void* in, void* out, int direction) {
  const std::lock_guard lock(mutex);
  const auto found = plans.find(plan);
  if (found == plans.end()) return kInvalidPlan;
  const Plan& p = found->second;
  if (p.type != type) return kInvalidType;
  if (!p.has_stream || (direction != 1 && direction != -1)) return kInvalidValue;
  if (!emulated::IsOnCard(p.workspace, kWorkspaceBytes)) return kNoWorkspace;
  const bool in_double = type == kZ2Z || type == kD2Z || type == kZ2D;
  const size_t real_bytes = in_double ? 8 : 4;
  const bool from_real = type == kR2C || type == kD2Z, to_real = type == kC2R || type == kZ2D;
  const auto bytes = [&](bool is_real, bool is_half) {
    return static_cast<size_t>(p.batch * p.points(is_half)) * real_bytes * (is_real ? 1 : 2);
  };
  if (!emulated::IsOnCard(in, bytes(from_real, to_real)) || !emulated::IsOnCard(out, bytes(to_real, from_real))) return kInvalidValue;
  for (const void* const at : {in, out}) {
    if (reinterpret_cast<uintptr_t>(at) % (2 * real_bytes) != 0) return kInvalidValue;
  }
  return emulated::PutOnStream([=] {
    memset(p.workspace, 0xAB, kWorkspaceBytes);
    in_double ? Run<double>(p, in, out, direction) : Run<float>(p, in, out, direction);
    return kOk;
  });
}

template <typename Change>
int Change1(int plan, Change change) {
  const std::lock_guard lock(mutex);
  const auto found = plans.find(plan);
  if (found == plans.end()) return kInvalidPlan;
  return change(found->second);
}

}  // namespace

EXPORT int cufftCreate(int* plan) {
  const std::lock_guard lock(mutex);
  *plan = ++last_plan;
  plans[*plan] = Plan();
  return kOk;
}
EXPORT int cufftDestroy(int plan) {
  const std::lock_guard lock(mutex);
  return plans.erase(plan) == 1 ? kOk : kInvalidPlan;
}
EXPORT int cufftSetAutoAllocation(int plan, int allocates) {
  return Change1(plan, [&](Plan& p) {
    p.allocates = allocates != 0;
    return kOk;
  });
}
EXPORT int cufftSetStream(int plan, void* stream) {
  return Change1(plan, [&](Plan& p) {
    p.has_stream = stream == emulated::CardsStream();
    return p.has_stream ? kOk : kInvalidValue;
  });
}
EXPORT int cufftSetWorkArea(int plan, void* memory) {
  return Change1(plan, [&](Plan& p) {
    p.workspace = memory;
    return kOk;
  });
}
EXPORT int cufftMakePlanMany64(int plan, int rank, long long* lengths, long long* in_embed, long long, long long,
                               long long* out_embed, long long, long long, int type, long long batch, size_t* workspace_bytes) {
  return Change1(plan, [&](Plan& p) {
    const bool is_known = type == kC2C || type == kR2C || type == kC2R || type == kZ2Z || type == kD2Z || type == kZ2D;
    if (!is_known || !p.lengths.empty() || p.allocates) return kInvalidType;
    if (rank < 1 || rank > 3 || batch < 1 || in_embed != nullptr || out_embed != nullptr) return kInvalidSize;
    for (int i = 0; i < rank; ++i) {
      if (lengths[i] < 1) return kInvalidSize;
    }
    p.lengths.assign(lengths, lengths + rank);
    p.type = type;
    p.batch = batch;
    *workspace_bytes = kWorkspaceBytes;
    return kOk;
  });
}
EXPORT int cufftExecC2C(int plan, void* in, void* out, int direction) {
  return Execute(plan, kC2C, in, out, direction);
}
EXPORT int cufftExecZ2Z(int plan, void* in, void* out, int direction) {
  return Execute(plan, kZ2Z, in, out, direction);
}
EXPORT int cufftExecR2C(int plan, void* in, void* out) {
  return Execute(plan, kR2C, in, out, -1);
}
EXPORT int cufftExecD2Z(int plan, void* in, void* out) {
  return Execute(plan, kD2Z, in, out, -1);
}
EXPORT int cufftExecC2R(int plan, void* in, void* out) {
  return Execute(plan, kC2R, in, out, 1);
}
EXPORT int cufftExecZ2D(int plan, void* in, void* out) {
  return Execute(plan, kZ2D, in, out, 1);
}
