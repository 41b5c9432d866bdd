// Tensors that stay with the task between steps: GetSessionHandle keeps one and names it, the
// others take the name.
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

// Thread-safe. Of the whole process: names are unique, and a session's tensors go with its
// kernels.
class KeptTensors {
 public:
  static KeptTensors& Global() {
    static auto* tensors = new KeptTensors;
    return *tensors;
  }
  // "name;number;device", TensorFlow's form.
  std::string Add(absl::string_view name, absl::string_view device, Tensor tensor) {
    MutexLock lock(mutex_);
    std::string handle = absl::StrCat(name, ";", next_++, ";", device);
    tensors_.emplace(handle, std::move(tensor));
    return handle;
  }
  absl::StatusOr<Tensor> Get(const std::string& handle) const {
    MutexLock lock(mutex_);
    const auto found = tensors_.find(handle);
    if (found == tensors_.end())
      return InvalidArgument("The tensor with handle '", handle, "' is not in the session store.");
    return found->second;
  }
  absl::Status Delete(const std::string& handle) {
    Tensor dropped;  // freed without the lock
    MutexLock lock(mutex_);
    const auto found = tensors_.find(handle);
    if (found == tensors_.end()) {
      return InvalidArgument("Failed to delete a tensor with handle '", handle,
                             "' in the session store.");
    }
    dropped = std::move(found->second);
    tensors_.erase(found);
    return absl::OkStatus();
  }

 private:
  mutable Mutex mutex_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, Tensor> tensors_ ABSL_GUARDED_BY(mutex_);
};

class KeepKernel : public Kernel {
 public:
  ~KeepKernel() override {
    MutexLock lock(mutex_);
    // Some are deleted already.
    for (const std::string& handle : handles_) (void)KeptTensors::Global().Delete(handle);
  }
  absl::Status Init(KernelSetup& setup) override {
    name_ = setup.node().name();
    device_ = setup.device().name();
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    std::string handle = KeptTensors::Global().Add(name_, device_, KeptTensor(c.TakeInput(0)));
    {
      MutexLock lock(mutex_);
      handles_.push_back(handle);
    }
    if (c.output_type(0) == DType::kResource) {
      ResourceHandle resource;
      resource.device = device_;
      resource.container = "TensorHandle";
      resource.name = std::move(handle);
      c.SetOutput(0, Tensor::Scalar<ResourceHandle>(std::move(resource)));
    } else {
      c.SetOutput(0, Tensor::Scalar<std::string>(std::move(handle)));
    }
    return absl::OkStatus();
  }

 private:
  std::string name_;
  std::string device_;
  Mutex mutex_;
  std::vector<std::string> handles_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::string> HandleOf(const KernelContext& c) {
  if (c.input(0).num_elements() != 1) {
    return InvalidArgument("A tensor handle must be a scalar, but has shape ",
                           c.input(0).shape().ToString());
  }
  return c.input(0).scalar<std::string>();
}

absl::Status Get(KernelContext& c) {
  ASSIGN_OR_RETURN(const std::string handle, HandleOf(c));
  ASSIGN_OR_RETURN(Tensor tensor, KeptTensors::Global().Get(handle));
  if (tensor.dtype() != c.output_type(0)) {
    return InvalidArgument("The tensor with handle '", handle, "' is of type ",
                           DTypeName(tensor.dtype()), ", not ", DTypeName(c.output_type(0)));
  }
  if (c.device().has_own_memory() && !IsInDeviceMemory(tensor)) {
    ASSIGN_OR_RETURN(tensor, c.device().CopyFromHost(tensor));
  } else if (!c.device().has_own_memory() && IsInDeviceMemory(tensor)) {
    return InvalidArgument("The tensor with handle '", handle, "' is not in the memory of ",
                           c.device().name());
  }
  c.SetOutput(0, std::move(tensor));
  return absl::OkStatus();
}

std::vector<DType> GpuKeptTypes() {
  return {DType::kBool,   DType::kInt8,      DType::kInt16,     DType::kInt32,    DType::kInt64,
          DType::kUint8,  DType::kUint16,    DType::kHalf,      DType::kBfloat16, DType::kFloat,
          DType::kDouble, DType::kComplex64, DType::kComplex128};
}

absl::Status Delete(KernelContext& c) {
  ASSIGN_OR_RETURN(const std::string handle, HandleOf(c));
  return KeptTensors::Global().Delete(handle);
}

absl::Status HandleInputShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  return UnknownShape(c);
}

}  // namespace

DEFINE_OP(GetSessionHandle) {
  op.Attr("T: type")
      .Input("value: T")
      .Output("handle: string")
      .Stateful()
      .Doc("Keeps a tensor beyond its step and names it.")
      .Shape(ScalarShape)
      .NoGradient("a name is not a function of the value")
      .HostMemory({"handle"})
      .Cpu(New<KeepKernel>())
      .GpuDTypes("T", GpuKeptTypes(), New<KeepKernel>());
}
DEFINE_OP(GetSessionHandleV2) {
  op.Attr("T: type")
      .Input("value: T")
      .Output("handle: resource")
      .Stateful()
      .Doc("Keeps a tensor beyond its step and names it.")
      .Shape(ScalarShape)
      .NoGradient("a name is not a function of the value")
      .HostMemory({"handle"})
      .Cpu(New<KeepKernel>())
      .GpuDTypes("T", GpuKeptTypes(), New<KeepKernel>());
}
DEFINE_OP(GetSessionTensor) {
  op.Attr("dtype: type")
      .Input("handle: string")
      .Output("value: dtype")
      .Stateful()
      .Doc("The tensor that was kept under a name.")
      .Shape(HandleInputShape)
      .NoGradient("a name is not a function of the value")
      .HostMemory({"handle"})
      .Cpu(Get)
      .GpuDTypes("dtype", GpuKeptTypes(), Stateless(Get));
}
DEFINE_OP(DeleteSessionTensor) {
  op.Input("handle: string")
      .Stateful()
      .Doc("Drops the tensor that was kept under a name.")
      .Shape(NoOutputs)
      .NoGradient("a name is not a function of the value")
      .HostMemory({"handle"})
      .Cpu(Delete)
      .Gpu(Delete);
}

}  // namespace muster
