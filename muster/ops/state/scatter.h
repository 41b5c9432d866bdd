// What the scatter ops on variables share: a kernel that finds the variable and works under its
// lock.
#pragma once

#include "muster/ops/op.h"
#include "muster/ops/state/access.h"
#include "muster/ops/state/arithmetic.h"

namespace muster {

// The variable of a scatter op, whose type the updates (input 2) have.
inline absl::StatusOr<RefPtr<Variable>> ScatterVariable(const KernelContext& c) {
  ASSIGN_OR_RETURN(RefPtr<Variable> variable, InputVariable(c, 0));
  if (variable->dtype() == c.input(2).dtype()) return variable;
  return InvalidArgument("Variable and updates dtypes don't match; respectively, ",
                         DTypeName(variable->dtype()), " and ", DTypeName(c.input(2).dtype()));
}

// Inputs: variable (reference or resource), indices, updates. A reference is passed on as output.
class ScatterKernel : public Kernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<Variable> variable, ScatterVariable(c));
    const Tensor& updates = c.input(2);
    RETURN_IF_ERROR(variable->UpdateRows([&](Tensor& params, TouchedRows& touched) {
      return Scatter(c, params, touched, c.input(1), updates);
    }));
    if (c.input_is_reference(0)) c.SetOutputReference(0, c.input_reference(0));
    return absl::OkStatus();
  }

 protected:
  // Notes the rows of `params` that it changes.
  virtual absl::Status Scatter(const KernelContext& c, Tensor& params, TouchedRows& touched,
                               const Tensor& indices, const Tensor& updates) = 0;
};

// Changes one slice of a variable: `from` points to as many elements, or to a single one for all.
struct SliceUpdate {
  // Replaces elements of any type.
  struct Assign {
    DType dtype;
    absl::Status Check(const Tensor&) const { return absl::OkStatus(); }
    void operator()(char* to, const char* from, bool from_is_scalar, int64_t count) const {
      if (!from_is_scalar) return CopyElements(dtype, from, to, count);
      const size_t size = DTypeSize(dtype);
      for (int64_t i = 0; i < count; ++i) CopyElements(dtype, from, to + i * size, 1);
    }
  };
  template <Change kChange, typename T>
  struct Arithmetic {
    DType dtype;
    absl::Status Check(const Tensor& updates) const {
      if constexpr (kChange == Change::kDiv && std::is_integral_v<T>) {
        for (T value : updates.values<T>()) {
          if (value == 0) return InvalidArgument("Integer division by zero");
        }
      }
      return absl::OkStatus();
    }
    void operator()(char* to, const char* from, bool from_is_scalar, int64_t count) const {
      T* target = reinterpret_cast<T*>(to);
      const T* source = reinterpret_cast<const T*>(from);
      if (from_is_scalar) {
        CombineScalar<kChange>(target, *source, count);
      } else {
        CombineElements<kChange>(target, source, count);
      }
    }
  };
};

}  // namespace muster
