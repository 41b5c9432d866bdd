// Optimizer ops on GPUs. All of an update is queued without waiting: which rows change is known to
// the card only.
#include "absl/strings/str_cat.h"

#include "muster/graph/rewrite/optimize.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/state/apply.h"
#include "muster/ops/state/row_changes.h"

namespace muster {
namespace {

// As in formulas.cuh.
struct GpuApplyArguments {
  void* var = nullptr;
  void* slots[3] = {};
  const void* gradient = nullptr;
  const void* scalars[8] = {};
  const void* global_step = nullptr;
  int64_t count = 0;
  int32_t use_nesterov = 0, update_slots = 0, multiply_linear_by_lr = 0, unused = 0;
};

GpuApplyArguments ArgumentsOf(const ApplyInputs& inputs, const ApplyCall& call) {
  GpuApplyArguments arguments;
  arguments.var = call.variables.value(0).raw();
  for (int i = 1; i < inputs.num_variables(); ++i)
    arguments.slots[i - 1] = call.variables.value(i).raw();
  arguments.gradient = call.gradient.raw();
  for (size_t i = 0; i < call.scalars.size(); ++i) arguments.scalars[i] = call.scalars[i]->raw();
  if (call.global_step != nullptr) arguments.global_step = call.global_step->raw();
  arguments.count = call.gradient.num_elements();
  arguments.use_nesterov = inputs.use_nesterov();
  arguments.update_slots = inputs.update_slots();
  arguments.multiply_linear_by_lr = inputs.multiply_linear_by_lr();
  return arguments;
}

class GpuApplyKernel : public GpuKernel {
 public:
  GpuApplyKernel(const char* formula, DType dtype)
      : apply_(*this, "state/apply.cu",
               absl::StrCat("Apply<", formula, ", ", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return inputs_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    return inputs_.Apply(c, [this](const ApplyCall& call) {
      const GpuApplyArguments arguments = ArgumentsOf(inputs_, call);
      return apply_.LaunchForEach(arguments.count, arguments);
    });
  }

 private:
  ApplyInputs inputs_;
  const GpuFunction apply_;
};

constexpr char kSparseFile[] = "state/sparse_apply.cu";

class GpuSparseApplyKernel : public GpuKernel {
 public:
  GpuSparseApplyKernel(const char* formula, DType dtype, DType index)
      : changes_(*this, dtype, index),
        apply_runs_(*this, kSparseFile,
                    absl::StrCat("ApplyRuns<", formula, ", ", GpuTypeName(dtype), ">")),
        apply_few_(*this, kSparseFile,
                   absl::StrCat("ApplyFew<", formula, ", ", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    if (setup.node().FindAttr(kSumsRepeatedRows) != nullptr) {
      ASSIGN_OR_RETURN(sums_, setup.Attr<bool>(kSumsRepeatedRows));
    }
    return inputs_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    return inputs_.Apply(c, [&](const ApplyCall& call) -> absl::Status {
      const int64_t count = call.indices->num_elements();
      if (count == 0) return absl::OkStatus();
      return count <= kMostFew ? ApplyFew(call) : ApplyOrdered(c, call);
    });
  }

 private:
  absl::Status ApplyFew(const ApplyCall& call) const {
    const FewRows few =
        FewRowsOf(*call.indices, call.variables.value(0).dim(0), call.row_elements, sums_);
    return apply_few_.Launch(GridForFew(few), ArgumentsOf(inputs_, call), few);
  }
  absl::Status ApplyOrdered(KernelContext& c, const ApplyCall& call) const {
    ASSIGN_OR_RETURN(const GpuRowChanges::Ordered ordered,
                     changes_.Order(c, call.gradient, *call.indices, call.variables.value(0).dim(0),
                                    call.row_elements, sums_));
    return apply_runs_.LaunchForEach(ordered.changes.count * ordered.changes.lanes,
                                     ArgumentsOf(inputs_, call), ordered.changes,
                                     ordered.sums_memory(), ordered.sums_of_sums_memory());
  }

  ApplyInputs inputs_;
  bool sums_ = false;
  const GpuRowChanges changes_;
  const GpuFunction apply_runs_;
  const GpuFunction apply_few_;
};

}  // namespace

void AddGpuApply(OpBuilder& op, ApplyForm form, const char* formula,
                 const std::vector<DType>& dtypes) {
  if (!form.sparse) {
    op.GpuTypes("T", dtypes, [formula](DType dtype) -> KernelFactory {
      return [formula, dtype] { return std::make_unique<GpuApplyKernel>(formula, dtype); };
    });
    return;
  }
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto make = [formula, index](DType dtype) -> KernelFactory {
      return [=] { return std::make_unique<GpuSparseApplyKernel>(formula, dtype, index); };
    };
    op.GpuTypes("T", dtypes, make, {}, {{"Tindices", index}});
  }
}

}  // namespace muster
