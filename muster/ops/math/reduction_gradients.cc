#include "muster/ops/math/reduction_gradients.h"

#include <algorithm>
#include <numeric>

#include "muster/graph/build/build_state.h"
#include "muster/graph/build/emit.h"
#include "muster/graph/shape_context.h"
#include "muster/ops/linalg/matmul.h"

namespace muster {
namespace {

Tensor Int32Vector(absl::Span<const int64_t> values) {
  const std::vector<int32_t> narrow(values.begin(), values.end());
  return Tensor::Vector<int32_t>(narrow);
}

// cast(values, int32) of a Python tuple.
Output EmitCastConstant(const Scope& scope, Tensor values) {
  const Scope own = scope.NameScope("Cast");
  const DType dtype = values.dtype();
  const Output x = own.Const(std::move(values), "x");
  return dtype == DType::kInt32 ? x : OpNamed(own, "Cast", {x}, {{"DstT", DType::kInt32}});
}

Output EmitRange(const Scope& scope, Output limit) {
  const Scope own = scope.NameScope("range");
  const Output start = own.ConstScalar<int32_t>(0, "start");
  const Output delta = own.ConstScalar<int32_t>(1, "delta");
  return OpNamed(own, "Range", {start, limit, delta});
}

// x // max(y, 1)
Output EmitSafeDiv(const Scope& scope, Output x, Output y) {
  const Scope own = scope.NameScope("Maximum");
  const Output one = own.ConstScalar<int32_t>(1, "y");
  const Output divisor = OpNamed(own, "Maximum", {y, one});
  return scope.Op("FloorDiv", {x, divisor}, {}, "floordiv");
}

// reduce_prod(vector)
Output EmitVectorProd(const Scope& scope, Output vector) {
  const Output axes = scope.ConstVector({0});
  return scope.Op("Prod", {vector, axes});
}

// The reduction of a tensor of known shape over known axes: how many times each dim of the gradient
// is repeated.
struct StaticReduction {
  Dims kept;  // sizes with reduced dims as 1
  Dims multiples;
};

absl::StatusOr<StaticReduction> ReduceStatically(const Shape& shape,
                                                 absl::Span<const int64_t> axes) {
  StaticReduction result;
  result.kept = shape.dims();
  for (const int64_t axis : axes) {
    if (axis < -shape.rank() || axis >= shape.rank()) {
      return InvalidArgument("Invalid reduction dimension ", axis, " for input with ", shape.rank(),
                             " dimensions.");
    }
    result.kept[axis < 0 ? axis + shape.rank() : axis] = 1;
  }
  for (int i = 0; i < shape.rank(); ++i)
    result.multiples.push_back(shape[i] / std::max<int64_t>(result.kept[i], 1));
  return result;
}

// TensorFlow computes the constants with nodes that stay in the graph, once per graph, shape and
// axes.
void EmitStaticReduction(const Scope& scope, const Shape& shape, const Tensor& axes,
                         absl::Span<const int64_t> values, const StaticReduction& reduction) {
  auto& seen = scope.graph().build_state().reduced_shapes;
  if (!seen.emplace(std::vector<int64_t>(shape.dims().begin(), shape.dims().end()),
                    std::vector<int64_t>(values.begin(), values.end()))
           .second) {
    return;
  }
  const Output input_shape = EmitCastConstant(scope, Int32Vector(shape.dims()));
  // An empty Python tuple converts to floats.
  Tensor axes_value = values.empty() ? Tensor(DType::kFloat, Shape({0}))
                                     : axes.Reshaped(Shape({axes.num_elements()}));
  const Output axes_node = EmitCastConstant(scope, std::move(axes_value));
  EmitReducedShape(scope, input_shape, axes_node);
  const Scope maximum = scope.NameScope("Maximum");
  const Output kept = maximum.Const(Int32Vector(reduction.kept), "x");
  const Output one = maximum.ConstScalar<int32_t>(1, "y");
  const Output divisor = OpNamed(maximum, "Maximum", {kept, one});
  const Scope division = scope.NameScope("floordiv");
  const Output sizes = division.Const(Int32Vector(shape.dims()), "x");
  OpNamed(division, "FloorDiv", {sizes, divisor});
}

absl::StatusOr<Output> SumGradient(GradientContext& g) {
  const Scope& scope = g.scope();
  const Output x = g.input(0);
  const Output dy = g.dy();
  const PartialShape shape = x.shape();
  const std::optional<Shape> known = shape.ToShape();
  const std::optional<Tensor> axes = shape.known_rank() ? ConstantValue(g.input(1)) : std::nullopt;
  if (axes) {
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(*axes));
    Dims all(shape.rank());
    std::iota(all.begin(), all.end(), 0);
    if (axes->rank() == 1 && values == all) {
      const Output reshaped = EmitReshape(scope, dy, Dims(shape.rank(), 1));
      const Output multiples = known ? scope.Const(Int32Vector(known->dims())) : g.ShapeOf(x);
      return g.Op("Tile", {reshaped, multiples});
    }
    if (known) {
      ASSIGN_OR_RETURN(const StaticReduction reduction, ReduceStatically(*known, values));
      EmitStaticReduction(scope, *known, *axes, values, reduction);
      const Output reshaped = EmitReshape(scope, dy, reduction.kept);
      const Scope own = scope.NameScope("Tile");
      const Output multiples = own.Const(Int32Vector(reduction.multiples), "multiples");
      return OpNamed(own, "Tile", {reshaped, multiples});
    }
  }
  const Output input_shape = g.ShapeOf(x);
  if (!input_shape) return scope.status();
  const Scope colocated = scope.ColocatedWith(*input_shape.node);
  const Output kept = EmitReducedShape(colocated, input_shape, g.input(1));
  const Output multiples = EmitSafeDiv(colocated, input_shape, kept);
  const Output reshaped = g.Op("Reshape", {dy, kept});
  return g.Op("Tile", {reshaped, multiples});
}

}  // namespace

Output EmitReducedShape(const Scope& scope, Output input_shape, Output axes) {
  if (!input_shape || !axes) return Output();
  if (axes.base_dtype() != DType::kInt32)
    axes = scope.Op("Cast", {axes}, {{"DstT", DType::kInt32}});
  const int64_t rank = input_shape.shape().num_elements();
  const Output size = rank >= 0 ? scope.ConstScalar<int32_t>(static_cast<int32_t>(rank), "Size")
                                : scope.Op("Size", {input_shape});
  const Output sum = scope.Op("AddV2", {axes, size}, {}, "add");
  const Output positive = scope.Op("FloorMod", {sum, size}, {}, "mod");
  const Output axes_shape = EmitShape(scope, positive);
  const Output range = EmitRange(scope, size);
  const Scope own = scope.NameScope("Fill");
  const Output one = own.ConstScalar<int32_t>(1, "value");
  const Output ones = OpNamed(own, "Fill", {axes_shape, one});
  if (!ones) return Output();
  return scope.Op("DynamicStitch",
                  {std::vector<Output>{range, positive}, std::vector<Output>{input_shape, ones}});
}

absl::Status DifferentiateSum(GradientContext& g) {
  ASSIGN_OR_RETURN(const Output dx, SumGradient(g));
  g.SetDx(0, dx);
  return absl::OkStatus();
}

absl::Status DifferentiateMean(GradientContext& g) {
  ASSIGN_OR_RETURN(const Output sum, SumGradient(g));
  if (!sum) return g.scope().status();
  const int64_t inputs = g.input(0).shape().num_elements();
  const int64_t outputs = g.output().shape().num_elements();
  Output factor;
  if (inputs >= 0 && outputs >= 0) {
    factor = EmitScalar(g.scope(), sum.base_dtype(),
                        static_cast<double>(inputs / std::max<int64_t>(outputs, 1)));
  } else {
    const Output input_shape = g.ShapeOf(g.input(0));
    const Output output_shape = g.ShapeOf(g.output());
    const Output input_size = EmitVectorProd(g.scope(), input_shape);
    const Output output_size = EmitVectorProd(g.scope(), output_shape);
    factor = g.Op("Cast", {EmitSafeDiv(g.scope(), input_size, output_size)},
                  {{"DstT", sum.base_dtype()}});
  }
  g.SetDx(0, g.Op("RealDiv", {sum, factor}, {}, "truediv"));
  return absl::OkStatus();
}

absl::Status DifferentiateExtreme(GradientContext& g) {
  const Output x = g.input(0);
  const Output dy = g.dy();
  const Output input_shape = g.ShapeOf(x);
  const Output kept = EmitReducedShape(g.scope(), input_shape, g.input(1));
  const Output y = g.Op("Reshape", {g.output(), kept});
  const Output gradient = g.Op("Reshape", {dy, kept});
  const Output equal = g.Op("Equal", {y, x});
  const Output selected = g.Op("Cast", {equal}, {{"DstT", dy.base_dtype()}});
  const Output sum = g.Op("Sum", {selected, g.input(1)});
  const Output count = g.Op("Reshape", {sum, kept});
  const Output share = g.Op("RealDiv", {selected, count}, {}, "truediv");
  g.SetDx(0, g.Op("Mul", {share, gradient}, {}, "mul"));
  return absl::OkStatus();
}

absl::Status DifferentiateNorm(GradientContext& g) {
  const bool keeps_dims = g.Attr<bool>("keep_dims");
  Output y = g.output();
  Output dy = g.dy();
  if (!keeps_dims) {
    const Output kept = EmitReducedShape(g.scope(), g.ShapeOf(g.input(0)), g.input(1));
    y = g.Op("Reshape", {y, kept});
    dy = g.Op("Reshape", {dy, kept});
  }
  const Output share = g.Op("RealDiv", {y, dy}, {}, "truediv");
  g.SetDx(0, g.Op("RealDiv", {g.input(0), share}, {}, "truediv"));
  return absl::OkStatus();
}

// Products of all other elements: exclusive cumulative products from both ends, with the reduced
// dims brought to the front and made one.
absl::Status DifferentiateProd(GradientContext& g) {
  const Scope& scope = g.scope();
  const Output x = g.input(0);
  const Output input_shape = g.ShapeOf(x);
  const Output axes = EmitReshape(scope, g.input(1), {-1});
  const Output kept = EmitReducedShape(scope, input_shape, g.input(1));
  const Output multiples = EmitSafeDiv(scope, input_shape, kept);
  const Output reshaped_dy = g.Op("Reshape", {g.dy(), kept});
  const Output dy = g.Op("Tile", {reshaped_dy, multiples});

  const Scope cpu = scope.WithDevice("/cpu:0");
  const int rank = x.shape().rank();
  const Output rank_node = rank >= 0 ? cpu.ConstScalar<int32_t>(rank, "Rank") : cpu.Op("Rank", {x});
  const Output sum = cpu.Op("AddV2", {axes, rank_node}, {}, "add");
  Output reduced = cpu.Op("FloorMod", {sum, rank_node}, {}, "mod");
  if (!reduced) return scope.status();
  if (reduced.base_dtype() != DType::kInt32)
    reduced = cpu.Op("Cast", {reduced}, {{"DstT", DType::kInt32}});
  const Output all = EmitRange(cpu, rank_node);
  const Output other = cpu.Op("ListDiff", {all, reduced}, {{"out_idx", DType::kInt32}});
  const Output perm = EmitConcat(cpu, {reduced, other});
  const auto size_of = [&](Output dims) {
    const Scope own = cpu.NameScope("GatherV2");
    const Output axis = own.ConstScalar<int32_t>(0, "axis");
    return EmitVectorProd(cpu, OpNamed(own, "GatherV2", {input_shape, dims, axis}));
  };
  const Output reduced_size = size_of(reduced);
  const Output other_size = size_of(other);

  const Output permuted = g.Op("Transpose", {x, perm}, {}, "transpose");
  const Output permuted_shape = g.ShapeOf(permuted);
  const Scope reshape = scope.NameScope("Reshape");
  const Output matrix_shape =
      reshape.Op("Pack", {std::vector<Output>{reduced_size, other_size}}, {{"axis", 0}}, "shape");
  const Output matrix = OpNamed(reshape, "Reshape", {permuted, matrix_shape});
  const auto cumulate = [&](bool reverse) {
    const Scope own = scope.NameScope("Cumprod");
    const Output axis = own.ConstScalar<int32_t>(0, "axis");
    return OpNamed(own, "Cumprod", {matrix, axis}, {{"exclusive", true}, {"reverse", reverse}});
  };
  const Output left = cumulate(false);
  const Output right = cumulate(true);
  if (!left || !right) return scope.status();
  const Output left_conj = EmitConj(g, left);
  const Output right_conj = EmitConj(g, right);
  const Output others = g.Op("Mul", {left_conj, right_conj}, {}, "mul");
  const Output back = g.Op("Reshape", {others, permuted_shape});
  const Output inverse = g.Op("InvertPermutation", {perm});
  const Output transposed = g.Op("Transpose", {back, inverse}, {}, "transpose");
  const Output product = g.Op("Mul", {dy, transposed}, {}, "mul");
  g.SetDx(0, g.Op("Reshape", {product, input_shape}));
  return absl::OkStatus();
}

}  // namespace muster
