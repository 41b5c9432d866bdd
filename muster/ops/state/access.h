// How ops reach variables: through reference edges (VariableV2) or resource handles (VarHandleOp).
#pragma once

#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/graph/shape_context.h"
#include "muster/ops/indexing/indexing.h"
#include "muster/runtime/kernel.h"

namespace muster {

// The handle in resource input i; InvalidArgument when the tensor is not a scalar.
absl::StatusOr<const ResourceHandle*> InputHandle(const KernelContext& c, int i);
// The variable that resource input i points to; NotFound while nothing was assigned to it.
absl::StatusOr<RefPtr<Variable>> HandleVariable(const KernelContext& c,
                                                const ResourceHandle& handle);
// The variable of input i, whichever way it comes.
absl::StatusOr<RefPtr<Variable>> InputVariable(const KernelContext& c, int i);

// The value of the variable that resource input i points to, which has this type.
// FailedPrecondition, in the words of TensorFlow, where there is none.
absl::StatusOr<Tensor> ReadHandleAs(KernelContext& c, int i, DType dtype);

// The name under which the resources of a task keep a variable: where a device has memory of its
// own, a variable there is another one than that of the same name in the memory of the host.
std::string VariableName(absl::string_view name, absl::string_view device);

// Types of variables on a GPU: those of TensorFlow and bfloat16. Behind resource handles there are
// more of them than behind references.
std::vector<DType> GpuVariableTypes();
std::vector<DType> GpuResourceVariableTypes();

// A tensor that a variable may keep: memory that others may write, such as a fed array, is copied.
Tensor OwnedByVariable(Tensor value);
// Gives the variable this value, whose type fits. On a GPU the variable keeps its memory: work that
// repeats is recognized by its addresses.
absl::Status AssignValue(const KernelContext& c, Variable& variable, Tensor value);

// Gives a variable a value of its type.
absl::Status AssignValue(const KernelContext& c, Variable& variable, Tensor value);

// Static shape of the variable at input i, whichever way it comes.
PartialShape InputVariableShape(const ShapeContext& c, int i);

// Shape rule of ops that put input 1 into the variable behind handle 0: type and shape must agree.
absl::Status AssignedHandleShape(ShapeContext& c);

// Integer indices as int64, each in [0, limit). InvalidArgument "indices[0] = 5 is not in [0, 2)".
absl::StatusOr<std::vector<int64_t>> CheckedIndices(const Tensor& indices, int64_t limit);

}  // namespace muster
