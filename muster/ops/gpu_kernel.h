// For authors of ops with functions for GPUs. They are in x.cu beside x.cc and start with
// #include "muster/ops/gpu.cuh":
//
//   template <typename F, typename T>
//   __global__ void Unary(const T* x, T* y, int64 count) {
//     FOR_EACH_ELEMENT(i, count) Store(y, i, F::Apply(Load(x, i)));
//   }
//
// x.cc has a kernel that launches them, as a class whose functions are members:
//
//   class GpuUnary : public GpuKernel {
//    public:
//     explicit GpuUnary(const char* op, DType dtype)
//         : run_(*this, "math/unary_arithmetic.cu",
//                absl::StrCat("Unary<", op, ", ", GpuTypeName(dtype), ">")) {}
//     absl::Status Compute(KernelContext& c) override {
//       const Tensor& x = c.input(0);
//       ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, x.shape()));
//       return run_.LaunchForEach(x.num_elements(), GpuIn(x), GpuOut(*y), x.num_elements());
//     }
//   };
//
// and registers it: op.GpuTypes("T", {DType::kHalf, ...}, [](DType dtype) { ... }).
//
// A launch only puts work on the card's stream: the kernel returns before it is done. Memory of the
// device needs no care, since what reuses it comes later in the same order. Elements in device
// memory cannot be read by the kernel; arguments whose values decide about shapes are in host
// memory (the same ones as in TensorFlow: tests/golden/gpu). Each buffer that a function uses must be
// seen in its arguments, as a pointer or in a struct, and what is only read is a const pointer:
// replays are put together by that (device/gpu/gpu_rewriter.h).
#pragma once

#include <array>
#include <string>
#include <type_traits>
#include <vector>

#include "muster/device/gpu/gpu.h"
#include "muster/ops/op.h"

namespace muster {

class GpuKernel;

// As many threads as there are elements, within what the card can hold at once: for functions that
// use FOR_EACH_ELEMENT.
GpuGrid GpuGridForEach(const Gpu& gpu, int64_t count);

// One function of a .cu file for one choice of template arguments: a member of the kernel that
// launches it. Compiled when the kernel is set up.
class GpuFunction {
 public:
  // `file` is below muster/ops; `expression` names the function, with all template arguments.
  GpuFunction(GpuKernel& kernel, const char* file, std::string expression);
  GpuFunction(const GpuFunction&) = delete;
  GpuFunction& operator=(const GpuFunction&) = delete;

  const char* file() const { return file_; }
  const std::string& expression() const { return expression_; }

  // The arguments must have exactly the types of the function's parameters: pointers, numbers and
  // plain structs. Nothing happens with a grid of no blocks.
  template <typename... Args>
  absl::Status Launch(const GpuGrid& grid, const Args&... arguments) const {
    static_assert((std::is_trivially_copyable_v<Args> && ...));
    return LaunchWith(grid, {GpuArgument{&arguments, sizeof(arguments), KindOf<Args>()}...});
  }
  // See GpuGridForEach.
  template <typename... Args>
  absl::Status LaunchForEach(int64_t count, const Args&... arguments) const {
    return Launch(GridForEach(count), arguments...);
  }
  GpuGrid GridForEach(int64_t count) const { return GpuGridForEach(*gpu_, count); }
  Gpu& gpu() const { return *gpu_; }

 private:
  friend class GpuKernel;
  template <typename T>
  static constexpr GpuArgument::Kind KindOf() {
    if constexpr (!std::is_pointer_v<T>)
      return GpuArgument::Kind::kValue;
    else if constexpr (std::is_const_v<std::remove_pointer_t<T>>)
      return GpuArgument::Kind::kReads;
    else
      return GpuArgument::Kind::kWrites;
  }
  absl::Status LaunchWith(const GpuGrid& grid, absl::Span<const GpuArgument> arguments) const;

  const char* const file_;
  const std::string expression_;
  Gpu* gpu_ = nullptr;
  GpuProgram* program_ = nullptr;
};

// A kernel that works on a card. Confined like every kernel; many executions may run at once.
class GpuKernel : public Kernel {
 public:
  // Starts to compile its functions; classes that read attributes call it from their own Init.
  absl::Status Init(KernelSetup& setup) override;
  const std::vector<GpuFunction*>& functions() const { return functions_; }

 protected:
  Gpu& gpu() const { return *gpu_; }

 private:
  friend class GpuFunction;
  std::vector<GpuFunction*> functions_;
  Gpu* gpu_ = nullptr;
};

// The name of the type in .cu files: "Half", "Bfloat16", "float", "int32", "bool", "Complex64", ...
// Requires: it has one.
const char* GpuTypeName(DType dtype);

// The elements of a tensor in device memory as a function takes them: `const T*` or `T*`. On the
// host all pointers look alike.
inline const void* GpuIn(const Tensor& tensor) {
  return tensor.raw();
}
inline void* GpuOut(Tensor& tensor) {
  return tensor.raw();
}

}  // namespace muster
