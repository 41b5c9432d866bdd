#include "muster/ops/control/held_elements.h"

#include <type_traits>

#include "absl/strings/match.h"

#include "muster/device/gpu/gpu.h"
#include "muster/ops/control/gpu_sum.h"
#include "muster/ops/indexing/strided_copy.h"

namespace muster {
namespace {

template <typename T>
void AddElements(const T* a, const T* b, T* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
      sum[i] = T(static_cast<float>(a[i]) + static_cast<float>(b[i]));
    } else if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      sum[i] = static_cast<T>(static_cast<U>(a[i]) + static_cast<U>(b[i]));
    } else {
      sum[i] = a[i] + b[i];
    }
  }
}

template <typename... Ts>
void AddTyped(Types<Ts...>, const Tensor& a, const Tensor& b, Tensor& sum) {
  const int64_t count = sum.num_elements();
  ((a.dtype() == kDTypeOf<Ts> ? AddElements<Ts>(a.data<Ts>(), b.data<Ts>(), sum.data<Ts>(), count)
                              : void()),
   ...);
}

template <typename... Ts>
bool IsOneOf(Types<Ts...>, DType dtype) {
  return ((dtype == kDTypeOf<Ts>) || ...);
}

absl::Status Add(KernelContext& c, const Tensor& a, const Tensor& b, Tensor& sum) {
  if (sum.num_elements() == 0) return absl::OkStatus();
  const bool on_card = IsInDeviceMemory(sum);
  if (IsInDeviceMemory(a) != on_card || IsInDeviceMemory(b) != on_card)
    return Internal("values to add are not in the memory of ", c.device().name());
  Gpu* const gpu = c.device().gpu();
  if (gpu != nullptr && on_card) return GpuSum(*gpu, a, b, sum);
  AddTyped(Numbers(), a, b, sum);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tensor> Zeros(KernelContext& c, DType dtype, const Shape& shape) {
  ASSIGN_OR_RETURN(Tensor zeros, c.AllocateTemporary(dtype, shape));
  Gpu* const gpu = c.device().gpu();
  if (gpu != nullptr && IsInDeviceMemory(zeros)) {
    RETURN_IF_ERROR(gpu->Fill(zeros.raw(), 0, zeros.size_bytes()));
  } else {
    ZeroElements(dtype, zeros.raw(), zeros.num_elements());
  }
  return zeros;
}

bool CanBeAdded(DType dtype) {
  return IsOneOf(Numbers(), dtype);
}

absl::Status AddTo(KernelContext& c, Tensor& sum, const Tensor& value) {
  return Add(c, sum, value, sum);
}

absl::StatusOr<Tensor> Sum(KernelContext& c, const Tensor& a, const Tensor& b) {
  ASSIGN_OR_RETURN(Tensor sum, c.AllocateTemporary(a.dtype(), a.shape()));
  RETURN_IF_ERROR(Add(c, a, b, sum));
  return sum;
}

absl::Status CheckDeviceOf(const ResourceHandle& handle, const KernelContext& c) {
  if (handle.device.empty() || handle.device == c.device().name()) return absl::OkStatus();
  const bool is_gpu = absl::StrContains(handle.device, "device:GPU:");
  if (!is_gpu && !c.device().has_own_memory()) return absl::OkStatus();
  return InvalidArgument("'", handle.name, "' is on ", handle.device, ", but '", c.node().name(),
                         "' runs on ", c.device().name());
}

}  // namespace muster
