// Slices picked by index tuples: GatherNd.
#include <algorithm>

#include "absl/strings/str_join.h"

#include "muster/ops/emit.h"
#include "muster/ops/indexing/gpu_gather.h"
#include "muster/ops/indexing/indexing.h"
#include "muster/ops/indexing/nd_indices.h"
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// `gather(plan, output)` does the rest.
template <typename GatherBy>
absl::Status RunPlan(KernelContext& c, GatherBy gather) {
  ASSIGN_OR_RETURN(const GatherNdPlan plan, PlanGatherNd(c.input(0), c.input(1)));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, plan.shape));
  if (plan.count == 0) return absl::OkStatus();
  return gather(plan, *output);
}

absl::Status GatherSlices(const KernelContext& c, int depth, int64_t count, Tensor& output) {
  const Tensor& params = c.input(0);
  ASSIGN_OR_RETURN(const std::vector<int64_t> slices,
                   FlatSlices(c.input(1), params.shape(), "param shape", c.node()));
  const DType dtype = params.dtype();
  const int64_t inner = params.shape().ElementsIn(depth, params.rank());
  const int64_t row_bytes = inner * static_cast<int64_t>(DTypeSize(dtype));
  const char* from = params.raw();
  char* to = output.raw();
  // Tuples that are ignored give zeros.
  if (std::find(slices.begin(), slices.end(), -1) != slices.end()) {
    for (int64_t i = 0; i < count; ++i) {
      if (slices[i] < 0) {
        ZeroElements(dtype, to + i * row_bytes, inner);
      } else {
        CopyElements(dtype, from + slices[i] * row_bytes, to + i * row_bytes, inner);
      }
    }
    return absl::OkStatus();
  }
  c.ParallelFor(count, 4.0 + static_cast<double>(row_bytes) / 16, [&](int64_t begin, int64_t end) {
    if (IsPlainData(dtype)) {
      MoveRows(to + begin * row_bytes, end - begin, row_bytes,
               [&](int64_t i) { return from + slices[begin + i] * row_bytes; });
    } else {
      for (int64_t i = begin; i < end; ++i) {
        CopyElements(dtype, from + slices[i] * row_bytes, to + i * row_bytes, inner);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status RunGatherNd(KernelContext& c) {
  return RunPlan(c, [&c](const GatherNdPlan& plan, Tensor& output) {
    return GatherSlices(c, plan.depth, plan.count, output);
  });
}

class GpuGatherNd : public GpuKernel {
 public:
  GpuGatherNd(DType dtype, DType index) : gatherer_(*this, dtype, index) {}
  absl::Status Compute(KernelContext& c) override {
    return RunPlan(c, [&](const GatherNdPlan& plan, Tensor& output) {
      return gatherer_.Gather(c.input(0), c.input(1), plan, output);
    });
  }

 private:
  const GpuNdGatherer gatherer_;
};

absl::Status GatherNdShape(ShapeContext& c) {
  const PartialShape& params = c.input(0);
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRankAtLeast(c.input(1), 1));
  if (!params.known_rank() || !indices.known_rank() || indices[indices.rank() - 1] < 0) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  const int64_t depth = indices[indices.rank() - 1];
  if (depth > params.rank()) {
    return InvalidArgument("indices.shape[-1] must be <= params.rank, but saw indices shape: ",
                           indices.ToString(), " and params shape: ", params.ToString());
  }
  c.SetOutput(0,
              ShapeContext::Concatenate(ShapeContext::Subshape(indices, 0, indices.rank() - 1),
                                        ShapeContext::Subshape(params, static_cast<int>(depth))));
  return absl::OkStatus();
}

absl::Status GatherNdGradient(GradientContext& c) {
  const Output indices = c.input(1);
  const Output shape = EmitShape(c.scope(), c.input(0), "Shape", indices.base_dtype());
  const PartialShape& known = indices.shape();
  if (known.known_rank() && known.rank() == 2 && known[1] == 1) {
    const Output rows = c.Op("Squeeze", {indices}, {{"squeeze_dims", std::vector<int64_t>{-1}}});
    c.SetDx(0, IndexedSlices{c.dy(), rows, shape});
  } else {
    c.SetDx(0, c.Op("ScatterNd", {indices, c.dy(), shape}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GatherNdPlan> PlanGatherNd(const Tensor& params, const Tensor& indices) {
  if (params.rank() < 1) return InvalidArgument("params must be at least a vector");
  if (indices.rank() < 1) return InvalidArgument("indices must be at least a vector");
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > params.rank()) {
    return InvalidArgument("index innermost dimension length must be <= params rank; saw: ", depth,
                           " vs. ", params.rank());
  }
  GatherNdPlan plan;
  plan.depth = static_cast<int>(depth);
  plan.count = indices.shape().ElementsIn(0, indices.rank() - 1);
  Dims dims(indices.shape().dims().begin(), indices.shape().dims().end() - 1);
  for (int i = plan.depth; i < params.rank(); ++i) dims.push_back(params.dim(i));
  ASSIGN_OR_RETURN(plan.shape, Shape::Make(dims));
  if (plan.count > 0 && params.num_elements() == 0) {
    return InvalidArgument("Requested more than 0 entries, but params is empty.  Params shape: ",
                           params.shape().ToString());
  }
  return plan;
}

absl::StatusOr<std::vector<int64_t>> FlatSlices(const Tensor& indices, const Shape& shape,
                                                absl::string_view what, const Node& node) {
  const absl::StatusOr<std::string> policy = node.Attr<std::string>("bad_indices_policy");
  const bool ignores = policy.ok() && *policy == "IGNORE";
  if (policy.ok() && !ignores && !policy->empty() && *policy != "DEFAULT" && *policy != "ERROR")
    return InvalidArgument("Unknown bad indices handling attribute: ", *policy);
  const int depth = static_cast<int>(indices.dim(indices.rank() - 1));
  Dims strides(depth, 1);
  for (int i = depth - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape.dim(i + 1);
  Dims outer(indices.shape().dims().begin(), indices.shape().dims().end() - 1);
  const Shape outer_shape{absl::MakeConstSpan(outer)};
  std::vector<int64_t> slices(outer_shape.num_elements());
  RETURN_IF_ERROR(WithIndices(indices, [&](const auto* tuples) -> absl::Status {
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto* tuple = tuples + static_cast<int64_t>(i) * depth;
      int64_t slice = 0;
      for (int d = 0; d < depth; ++d) {
        const int64_t index = tuple[d];
        if (index < 0 || index >= shape.dim(d)) {
          if (ignores) {
            slice = -1;
            break;
          }
          return InvalidArgument("indices", PositionText(outer_shape, static_cast<int64_t>(i)),
                                 " = [", absl::StrJoin(absl::MakeConstSpan(tuple, depth), ", "),
                                 "] does not index into ", what, " ", shape.ToString());
        }
        slice += index * strides[d];
      }
      slices[i] = slice;
    }
    return absl::OkStatus();
  }));
  return slices;
}

DEFINE_OP(GatherNd) {
  op.Attr("Tparams: type")
      .Attr("Tindices: {int16, int32, int64}")
      .Attr2x("bad_indices_policy: string = ''")
      .Input("params: Tparams")
      .Input("indices: Tindices")
      .Output("output: Tparams")
      .Doc("Slices of params at index tuples, which are in the last axis of indices.")
      .Shape(GatherNdShape)
      .Gradient(GatherNdGradient)
      .CpuDTypes("Tparams", AllDTypes(), Stateless(RunGatherNd));
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    op.GpuTypes("Tparams",
                {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt32,
                 DType::kInt64, DType::kComplex64, DType::kComplex128},
                [index](DType dtype) {
                  return [=] { return std::make_unique<GpuGatherNd>(dtype, index); };
                },
                {}, {{"Tindices", index}});
  }
}

}  // namespace muster
