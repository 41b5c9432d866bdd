// What a rewrite puts in the place of Unique and UnsortedSegmentSum on GPUs (graph/rewrite).
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/op.h"
#include "muster/ops/state/row_changes.h"

namespace muster {
namespace {

constexpr char kSumRowsFile[] = "state/sum_rows.cu";
// Which variable the rows are of is not known: rows beyond those that can be sorted are beyond all
// variables, too.
constexpr int64_t kMostRows = std::numeric_limits<uint32_t>::max() - 1;

// As in sum_rows.cu.
struct SummedRows {
  void* sums;
  void* rows;
};

class GpuSumRows : public GpuKernel {
 public:
  GpuSumRows(DType dtype, DType index)
      : changes_(*this, dtype, index),
        sum_ordered_(*this, kSumRowsFile, absl::StrCat("SumOrdered<", GpuTypeName(dtype), ">")),
        sum_few_(*this, kSumRowsFile, absl::StrCat("SumFew<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& values = c.input(0);
    const Tensor& indices = c.input(1);
    if (!indices.shape().is_vector())
      return InvalidArgument("indices are no vector: ", indices.shape().ToString());
    if (values.rank() < 1 || values.dim(0) != indices.dim(0)) {
      return InvalidArgument("values ", values.shape().ToString(), " do not have as many rows as ",
                             "there are indices: ", indices.shape().ToString());
    }
    ASSIGN_OR_RETURN(Tensor* const sums, c.AllocateOutput(0, values.shape()));
    ASSIGN_OR_RETURN(Tensor* const rows, c.AllocateOutput(1, indices.shape()));
    const int64_t count = indices.num_elements();
    if (count == 0) return absl::OkStatus();
    const int64_t elements = values.shape().ElementsIn(1, values.rank());
    const SummedRows out = {sums->raw(), rows->raw()};
    if (count <= kMostFew) {
      const FewRows few = FewRowsOf(indices, kMostRows, elements, true);
      return sum_few_.Launch(GridForFew(few), GpuIn(values), few, out);
    }
    ASSIGN_OR_RETURN(const GpuRowChanges::Ordered ordered,
                     changes_.Order(c, values, indices, kMostRows, elements, true));
    const int32_t is_wide = indices.dtype() == DType::kInt64;
    return sum_ordered_.LaunchForEach(count * ordered.changes.lanes, GpuIn(values), ordered.changes,
                                      ordered.sums_memory(), ordered.sums_of_sums_memory(), out,
                                      is_wide);
  }

 private:
  const GpuRowChanges changes_;
  const GpuFunction sum_ordered_;
  const GpuFunction sum_few_;
};

absl::Status InferShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape values, c.WithRankAtLeast(c.input(0), 1));
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(1), 1));
  c.SetOutput(0, values);
  c.SetOutput(1, indices);
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(MusterSumRows) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("Tindices: {int32, int64}")
      .Input("values: T")
      .Input("indices: Tindices")
      .Output("sums: T")
      .Output("rows: Tindices")
      .Doc(
          "Where an index occurs first, the sum of its rows and the index; elsewhere zeros and -1. "
          "As many as there are indices, so that no shape depends on them.")
      .Shape(InferShape);
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto make = [index](DType dtype) -> KernelFactory {
      return [=] { return std::make_unique<GpuSumRows>(dtype, index); };
    };
    op.GpuTypes("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble}, make, {},
                {{"Tindices", index}});
  }
}

}  // namespace muster
