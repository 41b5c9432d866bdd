#include "muster/device/device_copies.h"

#include <atomic>

#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

// Lists may hold lists; this bounds the recursion.
constexpr int kMostNested = 64;

using Change = absl::FunctionRef<absl::StatusOr<Tensor>(const Tensor&)>;

absl::StatusOr<Tensor> ChangeHeld(const Tensor& tensor, int depth, Change change);

// The value with what `change` makes of the tensors that it holds, in their order.
absl::StatusOr<Variant> ChangeHeld(const Variant& value, int depth, Change change) {
  if (value.empty()) return value;
  for (const VariantCodec& codec : VariantCodecs()) {
    std::optional<VariantParts> parts = codec.encode(value);
    if (!parts) continue;
    if (parts->tensors.empty()) return value;
    for (Tensor& held : parts->tensors) {
      ASSIGN_OR_RETURN(held, ChangeHeld(held, depth + 1, change));
    }
    return codec.decode(*std::move(parts));
  }
  return value;
}

absl::StatusOr<Tensor> ChangeHeld(const Tensor& tensor, int depth, Change change) {
  if (depth > kMostNested) return InvalidArgument("Lists are nested too deeply");
  if (IsPlainData(tensor.dtype())) return change(tensor);
  if (tensor.dtype() != DType::kVariant) return tensor;
  ASSIGN_OR_RETURN(Tensor changed, Tensor::Make(tensor.dtype(), tensor.shape()));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    ASSIGN_OR_RETURN(changed.data<Variant>()[i],
                     ChangeHeld(tensor.data<Variant>()[i], depth, change));
  }
  return changed;
}

// Copies of all tensors that the values of a tensor of variants hold on a device, under way.
struct HeldCopies {
  Tensor from;
  Device::CopyDone done;
  std::vector<Tensor> copies;  // element i is written by the callback of copy i
  std::atomic<size_t> left{1};
  Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);

  void End(const absl::Status& of_copy) {
    if (!of_copy.ok()) {
      MutexLock lock(mutex);
      if (status.ok()) status = of_copy;
    }
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) std::move(done)(Result());
  }

 private:
  absl::StatusOr<Tensor> Result() {
    {
      MutexLock lock(mutex);
      RETURN_IF_ERROR(status);
    }
    size_t next = 0;
    return ChangeHeld(from, 0, [&](const Tensor& held) -> absl::StatusOr<Tensor> {
      return IsInDeviceMemory(held) ? copies[next++] : held;
    });
  }
};

void CopyVariantsToHost(Device& device, const Tensor& tensor, Device::CopyDone done) {
  auto state = std::make_shared<HeldCopies>();
  state->from = tensor;
  state->done = std::move(done);
  std::vector<Tensor> held;
  const absl::Status found = ChangeHeld(tensor, 0, [&](const Tensor& one) {
                               if (IsInDeviceMemory(one)) held.push_back(one);
                               return absl::StatusOr<Tensor>(one);
                             }).status();
  if (!found.ok()) return state->End(found);
  state->copies.resize(held.size());
  state->left += held.size();
  for (size_t i = 0; i < held.size(); ++i) {
    device.CopyToHost(held[i], [state, i](absl::StatusOr<Tensor> copy) {
      if (copy.ok()) state->copies[i] = *copy;
      state->End(copy.status());
    });
  }
  state->End(absl::OkStatus());
}

// Several tensors that are copied to the host, under way.
struct Copies {
  std::vector<Tensor> tensors;  // element i is replaced by the callback of copy i
  AllCopied done;
  std::atomic<size_t> left{0};
  Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);

  void End(size_t i, absl::StatusOr<Tensor> copy) {
    if (copy.ok()) {
      tensors[i] = *std::move(copy);
    } else {
      MutexLock lock(mutex);
      if (status.ok()) status = copy.status();
    }
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) std::move(done)(Result());
  }

 private:
  absl::StatusOr<std::vector<Tensor>> Result() {
    MutexLock lock(mutex);
    RETURN_IF_ERROR(status);
    return std::move(tensors);
  }
};

absl::StatusOr<std::vector<Tensor>> AllFromHost(Device& to, std::vector<Tensor> tensors) {
  for (Tensor& tensor : tensors) {
    ASSIGN_OR_RETURN(tensor, CopyFromHost(to, tensor));
  }
  return tensors;
}

}  // namespace

bool StaysOnHost(DType dtype) {
  return !IsPlainData(dtype) && dtype != DType::kVariant;
}

void CopyToHost(Device& device, const Tensor& tensor, Device::CopyDone done) {
  if (IsPlainData(tensor.dtype())) return device.CopyToHost(tensor, std::move(done));
  if (tensor.dtype() == DType::kVariant && device.has_own_memory())
    return CopyVariantsToHost(device, tensor, std::move(done));
  std::move(done)(tensor);
}

absl::StatusOr<Tensor> CopyFromHost(Device& device, const Tensor& tensor) {
  if (IsPlainData(tensor.dtype())) return device.CopyFromHost(tensor);
  if (tensor.dtype() != DType::kVariant || !device.has_own_memory()) return tensor;
  return ChangeHeld(tensor, 0, [&](const Tensor& held) -> absl::StatusOr<Tensor> {
    if (IsInDeviceMemory(held)) return held;
    return device.CopyFromHost(held);
  });
}

void CopyBetween(Device& from, Device& to, std::vector<Tensor> tensors, AllCopied done) {
  // Devices that are one card have one memory and one order of work.
  if (from.name() == to.name() || (from.gpu() != nullptr && from.gpu() == to.gpu()))
    return std::move(done)(std::move(tensors));
  if (!from.has_own_memory() || tensors.empty())
    return std::move(done)(AllFromHost(to, std::move(tensors)));
  auto copies = std::make_shared<Copies>();
  copies->tensors = tensors;
  copies->left = tensors.size();
  copies->done = [&to,
                  done = std::move(done)](absl::StatusOr<std::vector<Tensor>> on_host) mutable {
    if (!on_host.ok()) return std::move(done)(on_host.status());
    std::move(done)(AllFromHost(to, *std::move(on_host)));
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (IsPlainData(tensors[i].dtype()) && !IsInDeviceMemory(tensors[i])) {
      copies->End(i, tensors[i]);
      continue;
    }
    CopyToHost(from, tensors[i],
               [copies, i](absl::StatusOr<Tensor> copy) { copies->End(i, std::move(copy)); });
  }
}

}  // namespace muster
