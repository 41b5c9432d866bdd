// Optimizer ops on GPUs. All of an update is queued without waiting: which rows change is known to
// the card only.
#include <bit>

#include "absl/strings/str_cat.h"

#include "muster/graph/rewrite/optimize.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/state/apply.h"
#include "muster/ops/state/row_order.h"

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

// --- As in sparse_apply.cu
constexpr int64_t kChunk = 32;
constexpr int64_t kChunks = 32;
constexpr int64_t kFewThreads = 128;
constexpr int64_t kMostFew = 32 * kFewThreads;
struct RowChanges {
  const void* rows;
  const void* positions;
  int64_t count;
  int64_t num_rows;
  int64_t elements;
  int32_t lanes, sums;
};
struct FewRows {
  const void* indices;
  int64_t count;
  int64_t num_rows;
  int64_t elements;
  int32_t lanes, sums;
  int32_t has_wide_indices, unused;
};

constexpr char kSparseFile[] = "state/sparse_apply.cu";

class GpuSparseApplyKernel : public GpuKernel {
 public:
  GpuSparseApplyKernel(const char* formula, DType dtype, DType index)
      : order_(*this, index),
        sum_chunks_(*this, kSparseFile, absl::StrCat("SumChunks<", GpuTypeName(dtype), ">")),
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
  // Threads that share a row.
  static int32_t LanesFor(int64_t elements) {
    return static_cast<int32_t>(
        std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(elements, 32))));
  }

  absl::Status ApplyFew(const ApplyCall& call) const {
    FewRows few = {};
    few.indices = call.indices->raw();
    few.count = call.indices->num_elements();
    few.num_rows = call.variables.value(0).dim(0);
    few.elements = call.row_elements;
    few.lanes = LanesFor(call.row_elements);
    few.sums = sums_;
    few.has_wide_indices = call.indices->dtype() == DType::kInt64;
    GpuGrid grid;
    grid.threads_x = kFewThreads;
    grid.blocks_x = static_cast<unsigned>(few.count);
    return apply_few_.Launch(grid, ArgumentsOf(inputs_, call), few);
  }

  absl::Status ApplyOrdered(KernelContext& c, const ApplyCall& call) const {
    const int64_t count = call.indices->num_elements(), elements = call.row_elements;
    const int64_t num_rows = call.variables.value(0).dim(0);
    ASSIGN_OR_RETURN(const GpuRowOrder::Order order, order_.Sort(c, *call.indices, num_rows));
    const RowChanges changes = {order.rows.raw(), order.positions.raw(), count, num_rows,
                                elements,         LanesFor(elements),    sums_};
    Tensor sums, sums_of_sums;
    if (sums_) {
      const DType dtype = call.gradient.dtype() == DType::kDouble ? DType::kDouble : DType::kFloat;
      const int64_t blocks = (count + kChunk * kChunks - 1) / (kChunk * kChunks);
      ASSIGN_OR_RETURN(sums, c.AllocateTemporary(dtype, Shape({blocks * kChunks, elements})));
      ASSIGN_OR_RETURN(sums_of_sums, c.AllocateTemporary(dtype, Shape({blocks, elements})));
      GpuGrid grid;
      grid.blocks_x = static_cast<unsigned>(blocks);
      RETURN_IF_ERROR(sum_chunks_.Launch(grid, GpuIn(call.gradient), changes, GpuOut(sums),
                                         GpuOut(sums_of_sums)));
    }
    const void* const parts = sums_ ? sums.raw() : nullptr;
    const void* const more = sums_ ? sums_of_sums.raw() : nullptr;
    return apply_runs_.LaunchForEach(count * changes.lanes, ArgumentsOf(inputs_, call), changes,
                                     parts, more);
  }

  ApplyInputs inputs_;
  bool sums_ = false;
  const GpuRowOrder order_;
  const GpuFunction sum_chunks_;
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
