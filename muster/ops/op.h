// For authors of ops. One op, or one family that differs in a scalar function only, is one file:
//
//   DEFINE_OP(Softmax) {
//     op.Attr("T: {half, bfloat16, float, double}").Input("logits: T").Output("softmax: T")
//         .Doc("Exponentials of the logits, normalised to sum to one over the last axis.")
//         .Shape(InferShape)
//         .Gradient(Differentiate)
//         .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Run<T>); });
//   }
//
// Attributes come before the arguments that use them. A kernel with attributes is a class derived
// from Kernel:
// `.Cpu(New<Abort>())`, or `[]<typename T>() { return New<OneHot<T>>(); }`.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/status.h"
#include "muster/graph/op_registry.h"
#include "muster/runtime/kernel.h"
#include "muster/tensor/clone.h"

namespace muster {

template <typename... Ts>
struct Types {};

using Floats = Types<Half, Bfloat16, float, double>;
using Complexes = Types<Complex64, Complex128>;
using Integers = Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using SignedIntegers = Types<int8_t, int16_t, int32_t, int64_t>;
using Indices = Types<int32_t, int64_t>;

template <typename A, typename B>
struct JoinTypes;
template <typename... As, typename... Bs>
struct JoinTypes<Types<As...>, Types<Bs...>> {
  using type = Types<As..., Bs...>;
};
template <typename A, typename B>
using Join = typename JoinTypes<A, B>::type;
using Reals = Join<Floats, Integers>;
using Numbers = Join<Reals, Complexes>;

class OpBuilder {
 public:
  explicit OpBuilder(const char* name);

  OpBuilder& Attr(absl::string_view text);
  // An attribute that TensorFlow 1.15 does not know.
  OpBuilder& Attr2x(absl::string_view text);
  OpBuilder& Input(absl::string_view text);
  OpBuilder& Output(absl::string_view text);
  OpBuilder& Doc(absl::string_view text);
  OpBuilder& Stateful();
  OpBuilder& Commutative();
  OpBuilder& Aggregate();
  OpBuilder& AllowsUninitializedInput();
  OpBuilder& DistributedCommunication();
  OpBuilder& Deprecated(int version, absl::string_view text);
  OpBuilder& Shape(ShapeFunction shape);
  OpBuilder& Gradient(GradientFunction gradient);
  // Not differentiable: its gradient is None. Without Gradient or NoGradient, differentiating is a
  // LookupError.
  OpBuilder& NoGradient(absl::string_view reason);
  // These arguments stay in host memory on every device.
  OpBuilder& HostMemory(std::initializer_list<const char*> args);

  OpBuilder& Cpu(KernelFactory factory, std::vector<std::pair<std::string, DType>> types = {});
  OpBuilder& Cpu(KernelFunction function, std::vector<std::pair<std::string, DType>> types = {}) {
    return Cpu(Stateless(function), std::move(types));
  }
  // One kernel per type of the list: `make.operator()<T>()` gives the factory. `more` are further
  // constraints.
  template <typename List, typename Make>
  OpBuilder& CpuTypes(const char* attr, Make make,
                      std::vector<std::pair<std::string, DType>> more = {}) {
    return EachType(List(), attr, make, more);
  }
  // For GPUs. `host_memory` are arguments that are in host memory beside those of HostMemory.
  OpBuilder& Gpu(KernelFactory factory, std::vector<std::pair<std::string, DType>> types = {},
                 std::vector<std::string> host_memory = {});
  OpBuilder& Gpu(KernelFunction function, std::vector<std::pair<std::string, DType>> types = {},
                 std::vector<std::string> host_memory = {}) {
    return Gpu(Stateless(function), std::move(types), std::move(host_memory));
  }
  // The same factory for each of the types of `attr`.
  OpBuilder& GpuDTypes(const char* attr, const std::vector<DType>& dtypes,
                       const KernelFactory& factory,
                       const std::vector<std::string>& host_memory = {});
  // One kernel for each of the types of `attr`, made by `make(dtype)`, for which an attribute more
  // than the type may be named.
  OpBuilder& GpuTypes(const char* attr, const std::vector<DType>& dtypes,
                      const std::function<KernelFactory(DType)>& make,
                      const std::vector<std::string>& host_memory = {},
                      const std::vector<std::pair<std::string, DType>>& more = {});
  // For ops without such an attribute.
  OpBuilder& GpuUntyped(KernelFactory factory, std::vector<std::string> host_memory = {});
  OpBuilder& GpuUntyped(KernelFunction function, std::vector<std::string> host_memory = {}) {
    return GpuUntyped(Stateless(function), std::move(host_memory));
  }
  // The kernels for GPUs so far are for nodes that ask for one; others run on a CPU.
  OpBuilder& GpuIfAsked();
  // For ops that call functions (CallSiteOf): int32 is in host memory.
  OpBuilder& GpuCalls(KernelFactory factory, std::vector<std::string> host_memory = {});
  // The kernels for the CPU of these types serve GPUs as well, with every argument in host memory:
  // what TensorFlow does for int32, which counts and shapes are made of. After Cpu and CpuTypes.
  OpBuilder& GpuOnHost(const char* attr, const std::vector<DType>& dtypes = {DType::kInt32});
  // For ops that hand tensors on without looking at their elements: `factory` serves GPUs too. As
  // in TensorFlow, `args` are in host memory where the type `attr` is one of `host_types`.
  OpBuilder& GpuForwards(KernelFactory factory, const char* attr,
                         const std::vector<std::string>& args,
                         const std::vector<DType>& host_types = {DType::kInt32});
  OpBuilder& GpuForwards(KernelFunction function, const char* attr,
                         const std::vector<std::string>& args,
                         const std::vector<DType>& host_types = {DType::kInt32}) {
    return GpuForwards(Stateless(function), attr, args, host_types);
  }
  // For ops that only move bytes: one factory for all the given types.
  OpBuilder& CpuDTypes(const char* attr, std::vector<DType> dtypes, KernelFactory factory);

  // Hands everything to the registries; DEFINE_OP calls it.
  void Register();

 private:
  template <typename... Ts, typename Make>
  OpBuilder& EachType(Types<Ts...>, const char* attr, Make make,
                      const std::vector<std::pair<std::string, DType>>& more) {
    (AddTyped(attr, kDTypeOf<Ts>, make.template operator()<Ts>(), more), ...);
    return *this;
  }
  void AddTyped(const char* attr, DType dtype, KernelFactory factory,
                std::vector<std::pair<std::string, DType>> more);
  void Fail(const absl::Status& status);

  OpRegistration registration_;
  std::vector<KernelRegistration> kernels_;
  std::vector<std::string> host_memory_;
};

#define DEFINE_OP(Name)                                                       \
  static void MusterDefine_##Name(::muster::OpBuilder& op);                   \
  static void MusterRegister_##Name(const char* name) {                       \
    ::muster::OpBuilder op(name);                                             \
    MusterDefine_##Name(op);                                                  \
    op.Register();                                                            \
  }                                                                           \
  static ::muster::OpEntry muster_entry_##Name(#Name, MusterRegister_##Name); \
  static void MusterDefine_##Name([[maybe_unused]] ::muster::OpBuilder& op)

// --- Small things that many kernels need
// ---------------------------------------------------------------------------

// The scalar in input i (int32 or int64); InvalidArgument naming `what` when it is not a scalar.
absl::StatusOr<int64_t> ScalarInteger(const Tensor& tensor, absl::string_view what);
// The elements of an integer vector; InvalidArgument naming `what` when it is not one.
absl::StatusOr<Dims> IntegerVector(const Tensor& tensor, absl::string_view what);
// `axis` in [-rank, rank) made non-negative; InvalidArgument naming `what` otherwise.
absl::StatusOr<int> CanonicalAxis(int64_t axis, int rank, absl::string_view what);
// All types whose elements the runtime can hold and copy (strings, resources and variants
// included).
std::vector<DType> AllDTypes();
// Those whose elements are plain bytes.
std::vector<DType> PlainDTypes();

}  // namespace muster
