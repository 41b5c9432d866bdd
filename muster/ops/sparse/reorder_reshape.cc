// SparseReorder and SparseReshape.
#include <algorithm>
#include <numeric>

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/emit.h"
#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

absl::Status RunReorder(KernelContext& c) {
  const Tensor& indices = c.input(0);
  const Tensor& values = c.input(1);
  RETURN_IF_ERROR(CheckSparse(indices, values, c.input(2)));
  const absl::Span<const int64_t> shape = c.input(2).values<int64_t>();
  RETURN_IF_ERROR(CheckIndices(indices, shape));
  const int64_t count = indices.dim(0);
  const int64_t rank = indices.dim(1);
  const int64_t* at = indices.data<int64_t>();
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(at + a * rank, at + (a + 1) * rank, at + b * rank,
                                        at + (b + 1) * rank);
  });
  ASSIGN_OR_RETURN(Tensor* const sorted, c.AllocateOutput(0, indices.shape()));
  ASSIGN_OR_RETURN(Tensor* const moved, c.AllocateOutput(1, values.shape()));
  const auto size = static_cast<int64_t>(DTypeSize(values.dtype()));
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(at + order[i] * rank, rank, sorted->data<int64_t>() + i * rank);
    CopyElements(values.dtype(), values.raw() + order[i] * size, moved->raw() + i * size, 1);
  }
  return absl::OkStatus();
}

absl::Status ReorderShape(ShapeContext& c) {
  // Whether they belong together is for the kernel to say.
  ASSIGN_OR_RETURN(PartialShape indices, c.WithRank(c.input(0), 2));
  ASSIGN_OR_RETURN(PartialShape values, c.WithRank(c.input(1), 1));
  RETURN_IF_ERROR(c.WithRank(c.input(2), 1).status());
  c.SetOutput(0, std::move(indices));
  c.SetOutput(1, std::move(values));
  return absl::OkStatus();
}

// Numbers the entries, sorts them the same way and turns the permutation round.
absl::Status ReorderGradient(GradientContext& c) {
  if (!c.has_dy(1)) return absl::OkStatus();
  const Scope& s = c.scope();
  const Output count = EmitElement(s, c.ShapeOf(c.input(0)), 0);
  const Output numbers = EmitRange(s, 0, count);
  const Output ordered = Output(c.Op("SparseReorder", {c.input(0), numbers, c.input(2)}).node, 1);
  const Output inverse = c.Op("InvertPermutation", {ordered});
  c.SetDx(1, EmitGather(s, c.dy(1), inverse));
  return absl::OkStatus();
}

// The target shape with its -1 filled in. InvalidArgument when the counts of elements differ.
absl::StatusOr<Dims> ResolveTarget(const Shape& input, absl::Span<const int64_t> target) {
  Dims to(target.begin(), target.end());
  int64_t product = 1;
  int unknown = -1;
  for (size_t d = 0; d < to.size(); ++d) {
    if (to[d] == -1) {
      if (unknown >= 0) {
        return InvalidArgument("only one output dimension may be -1, not both ", unknown, " and ",
                               d);
      }
      unknown = static_cast<int>(d);
      continue;
    }
    if (to[d] < 0) return InvalidArgument("size ", d, " must be non-negative, not ", to[d]);
    const std::optional<int64_t> next = MultiplyWithoutOverflow(product, to[d]);
    if (!next) return InvalidArgument("target shape has too many elements");
    product = *next;
  }
  const int64_t elements = input.num_elements();
  const std::string shapes = absl::StrCat(". input_shape=", input.ToString(),
                                          " output_shape=", PartialShape(to).ToString());
  if (unknown >= 0) {
    if (product <= 0) {
      return InvalidArgument(
          "reshape cannot infer the missing input size for an empty tensor unless all specified "
          "input sizes are non-zero");
    }
    if (elements % product != 0) {
      return InvalidArgument("Input to reshape is a SparseTensor with ", elements,
                             " dense values, but the requested shape requires a multiple of ",
                             product, shapes);
    }
    to[unknown] = elements / product;
  } else if (product != elements) {
    return InvalidArgument("Input to reshape is a tensor with ", elements,
                           " dense values, but the requested shape has ", product, shapes);
  }
  return to;
}

absl::Status RunReshape(KernelContext& c) {
  const Tensor& indices = c.input(0);
  if (indices.rank() != 2) {
    return InvalidArgument("Input indices should be a matrix but received shape ",
                           indices.shape().ToString());
  }
  if (c.input(1).rank() != 1) {
    return InvalidArgument("Input shape should be a vector but received shape ",
                           c.input(1).shape().ToString());
  }
  if (c.input(2).rank() != 1) {
    return InvalidArgument("Target shape should be a vector but received shape ",
                           c.input(2).shape().ToString());
  }
  const absl::Span<const int64_t> from = c.input(1).values<int64_t>();
  if (static_cast<int64_t>(from.size()) != indices.dim(1))
    return InvalidArgument("Input tensor rank must match input shape length.");
  ASSIGN_OR_RETURN(const Shape input, Shape::Make(from));
  ASSIGN_OR_RETURN(const Dims to, ResolveTarget(input, c.input(2).values<int64_t>()));
  RETURN_IF_ERROR(CheckIndices(indices, from));
  const auto rank = static_cast<int64_t>(to.size());
  ASSIGN_OR_RETURN(Tensor* const result, c.AllocateOutput(0, Shape({indices.dim(0), rank})));
  const int64_t* at = indices.data<int64_t>();
  int64_t* out = result->data<int64_t>();
  for (int64_t i = 0; i < indices.dim(0); ++i, out += rank) {
    int64_t flat = 0;
    for (const int64_t size : from) flat = flat * size + *at++;
    for (int64_t d = rank - 1; d >= 0; --d) {
      out[d] = flat % to[d];
      flat /= to[d];
    }
  }
  c.SetOutput(1, Tensor::Vector<int64_t>(to));
  return absl::OkStatus();
}

absl::Status ReshapeShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(0), 2));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  ASSIGN_OR_RETURN(const PartialShape target, c.WithRank(c.input(2), 1));
  c.SetOutput(0, PartialShape::Matrix(indices.dim(0), target.dim(0)));
  c.SetOutput(1, target);
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(SparseReorder) {
  op.Attr("T: type")
      .Input("input_indices: int64")
      .Input("input_values: T")
      .Input("input_shape: int64")
      .Output("output_indices: int64")
      .Output("output_values: T")
      .Doc("The entries in row-major order.")
      .Shape(ReorderShape)
      .Gradient(ReorderGradient)
      .CpuDTypes("T", AllDTypes(), Stateless(RunReorder));
}

DEFINE_OP(SparseReshape) {
  op.Input("input_indices: int64")
      .Input("input_shape: int64")
      .Input("new_shape: int64")
      .Output("output_indices: int64")
      .Output("output_shape: int64")
      .Doc("The same entries in a tensor of another shape.")
      .Shape(ReshapeShape)
      .Cpu(RunReshape);
}

}  // namespace muster
