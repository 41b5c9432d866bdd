// The largest elements of rows: TopK, TopKV2, NthElement.
#include <algorithm>
#include <limits>
#include <numeric>

#include "muster/ops/emit.h"
#include "muster/ops/gpu_kernel.h"

namespace muster {
namespace {

// A total order with NaN below everything: sorting needs one.
template <typename T>
bool Greater(const T& a, const T& b) {
  using A = Compute<T>;
  const A x = static_cast<A>(a);
  const A y = static_cast<A>(b);
  if constexpr (std::is_floating_point_v<A>) {
    if (y != y) return x == x;
  }
  return x > y;
}

template <typename T>
void WriteIndices(const int64_t* order, int64_t count, void* to) {
  for (int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i] = static_cast<T>(order[i]);
}

template <typename T>
void TopOfRows(KernelContext& c, const Tensor& input, int64_t width, int64_t k, Tensor& values,
               Tensor& indices) {
  const int64_t rows = k == 0 ? 0 : values.num_elements() / k;
  c.ParallelFor(rows, 4.0 * static_cast<double>(width), [&](int64_t begin, int64_t end) {
    std::vector<int64_t> order(width);
    for (int64_t row = begin; row < end; ++row) {
      const T* from = input.data<T>() + row * width;
      const auto before = [from](int64_t a, int64_t b) {
        if (Greater(from[a], from[b])) return true;
        return !Greater(from[b], from[a]) && a < b;
      };
      std::iota(order.begin(), order.end(), int64_t{0});
      if (k == 1) {
        order[0] = *std::min_element(order.begin(), order.end(), before);
      } else {
        if (k < width)
          std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), before);
        std::sort(order.begin(), order.begin() + k, before);
      }
      T* to = values.data<T>() + row * k;
      for (int64_t i = 0; i < k; ++i) to[i] = from[order[i]];
      switch (indices.dtype()) {
        case DType::kInt16:
          WriteIndices<int16_t>(order.data(), k, indices.data<int16_t>() + row * k);
          break;
        case DType::kInt32:
          WriteIndices<int32_t>(order.data(), k, indices.data<int32_t>() + row * k);
          break;
        default:
          WriteIndices<int64_t>(order.data(), k, indices.data<int64_t>() + row * k);
          break;
      }
    }
  });
}

int64_t LargestIndex(DType dtype) {
  if (dtype == DType::kInt16) return std::numeric_limits<int16_t>::max();
  if (dtype == DType::kInt32) return std::numeric_limits<int32_t>::max();
  return std::numeric_limits<int64_t>::max();
}

// The scalar k; int16 is allowed here.
absl::StatusOr<int64_t> ReadK(const Tensor& k) {
  if (!k.shape().is_scalar())
    return InvalidArgument("k must be scalar, got shape ", k.shape().ToString());
  if (k.dtype() == DType::kInt16) return int64_t{k.scalar<int16_t>()};
  return ScalarInteger(k, "k");
}

// TopK has it as an attribute, TopKV2 (0 here) as an input.
absl::StatusOr<int64_t> AttrK(const KernelSetup& s) {
  if (s.node().FindAttr("k") == nullptr) return 0;
  return s.Attr<int64_t>("k");
}

absl::StatusOr<int64_t> CheckedK(const KernelContext& c, int64_t k) {
  if (c.num_inputs() == 2) {
    ASSIGN_OR_RETURN(k, ReadK(c.input(1)));
  }
  const Tensor& input = c.input(0);
  if (k < 0) return InvalidArgument("Need k >= 0, got ", k);
  if (input.rank() < 1)
    return InvalidArgument("input must be >= 1-D, got shape ", input.shape().ToString());
  const int64_t width = input.dim(input.rank() - 1);
  if (width < k)
    return InvalidArgument("input must have at least k columns. Had ", width, ", needed ", k);
  if (width - 1 > LargestIndex(c.output_type(1))) {
    return InvalidArgument("rows of ", width, " elements are too long for indices of type ",
                           DTypeName(c.output_type(1)));
  }
  return k;
}

template <typename T>
class TopKKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(k_, AttrK(s));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const int64_t k, CheckedK(c, k_));
    const Tensor& input = c.input(0);
    const int64_t width = input.dim(input.rank() - 1);
    Shape shape = input.shape();
    shape.Set(input.rank() - 1, k);
    ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(0, shape));
    ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(1, shape));
    TopOfRows<T>(c, input, width, k, *values, *indices);
    return absl::OkStatus();
  }

 private:
  int64_t k_ = 0;
};

class GpuTopK : public GpuKernel {
 public:
  GpuTopK(DType dtype, DType index)
      : run_(*this, "nn/top_k.cu",
             absl::StrCat("TopK<", GpuTypeName(dtype), ", ", GpuTypeName(index), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(k_, AttrK(setup));
    return GpuKernel::Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const int64_t k, CheckedK(c, k_));
    const Tensor& input = c.input(0);
    const int64_t width = input.dim(input.rank() - 1);
    Shape shape = input.shape();
    shape.Set(input.rank() - 1, k);
    ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(0, shape));
    ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(1, shape));
    if (values->num_elements() == 0) return absl::OkStatus();
    const int64_t rows = values->num_elements() / k;
    GpuGrid grid;
    grid.blocks_x = static_cast<unsigned>(std::min<int64_t>(rows, 1 << 30));
    // The search in long rows needs many; short ones are sorted with a thread for two elements.
    grid.threads_x = width > 256 ? 512 : width > 64 ? 128 : 32;
    return run_.Launch(grid, GpuIn(input), GpuOut(*values), GpuOut(*indices), rows, width, k);
  }

 private:
  GpuFunction run_;
  int64_t k_ = 0;
};

// All types that TensorFlow's GPU kernels have, for each type of the indices.
void AddGpuTopK(OpBuilder& op, const std::vector<DType>& index_types) {
  for (const DType index : index_types) {
    std::vector<std::pair<std::string, DType>> more;
    if (index_types.size() > 1) more = {{"index_type", index}};
    op.GpuTypes(
        "T",
        {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt8, DType::kUint8,
         DType::kInt16, DType::kUint16, DType::kInt32, DType::kInt64},
        [index](DType dtype) -> KernelFactory {
          return [=] { return std::make_unique<GpuTopK>(dtype, index); };
        },
        {}, more);
  }
}

template <typename T>
class NthElementKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(reverse_, s.Attr<bool>("reverse"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    if (!c.input(1).shape().is_scalar())
      return InvalidArgument("N must be scalar but has rank ", c.input(1).rank());
    ASSIGN_OR_RETURN(int64_t n, ScalarInteger(c.input(1), "n"));
    if (n < 0) return InvalidArgument("n must be non-negative but is ", n);
    if (input.rank() < 1)
      return InvalidArgument("Input must be at least rank 1 but is rank ", input.rank());
    const int64_t width = input.dim(input.rank() - 1);
    if (width <= n) return InvalidArgument("Input must have last dimension > n = ", n);
    if (reverse_) n = width - n - 1;
    Shape shape = input.shape();
    shape.Remove(input.rank() - 1);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    std::vector<T> row(width);
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      const T* from = input.data<T>() + i * width;
      std::copy(from, from + width, row.begin());
      std::nth_element(row.begin(), row.begin() + n, row.end(),
                       [](const T& a, const T& b) { return Greater(b, a); });
      output->data<T>()[i] = row[n];
    }
    return absl::OkStatus();
  }

 private:
  bool reverse_ = false;
};

absl::Status TopKShapeWith(ShapeContext& c, std::optional<int64_t> k) {
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(c.input(0), 1));
  if (!input.known_rank()) return UnknownShape(c);
  const int64_t width = input[input.rank() - 1];
  if (k.has_value() && width >= 0 && width < *k) {
    return InvalidArgument("input must have last dimension >= k = ", *k, " but is ", width);
  }
  const PartialShape output = ShapeContext::Concatenate(ShapeContext::Subshape(input, 0, -1),
                                                        PartialShape::Vector(k.value_or(-1)));
  c.SetOutput(0, output);
  c.SetOutput(1, output);
  return absl::OkStatus();
}

absl::Status TopKShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t k, c.Attr<int64_t>("k"));
  return TopKShapeWith(c, k);
}

absl::Status TopKV2Shape(ShapeContext& c) {
  std::optional<int64_t> k;
  if (const std::optional<Tensor> constant = c.ConstantInput(1); constant.has_value()) {
    if (constant->rank() != 0)
      return InvalidArgument("Input must be scalar but has rank ", constant->rank());
    ASSIGN_OR_RETURN(k, ReadK(*constant));
    if (*k < 0) {
      return InvalidArgument(
          "Dimension size, given by scalar input 1, must be non-negative but is ", *k);
    }
  }
  return TopKShapeWith(c, k);
}

absl::Status NthElementShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(c.input(0), 1));
  ASSIGN_OR_RETURN(const std::optional<int64_t> n, c.ScalarInput(1));
  if (n.has_value() && *n < 0) {
    return InvalidArgument("Dimension size, given by scalar input 1, must be non-negative but is ",
                           *n);
  }
  if (!input.known_rank()) return UnknownShape(c);
  const int64_t width = input[input.rank() - 1];
  if (n.has_value() && width >= 0 && width <= *n) {
    return InvalidArgument("Input must have last dimension > n = ", *n, " but is ", width);
  }
  c.SetOutput(0, ShapeContext::Subshape(input, 0, -1));
  return absl::OkStatus();
}

// The size of the last axis, given a shape vector, as int64.
Output LastSize(const Scope& scope, Output shape) {
  const Output wide = EmitCast(scope, shape, DType::kInt64);
  const Output last = EmitBinary(scope, "Sub", "sub", EmitSize(scope, shape), 1);
  return EmitGather(scope, wide, last);
}

// Scatters dy to the flat positions of the elements that were taken.
absl::Status TopKGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const Output in_shape = EmitShape(scope, c.input(0));
  const Output indices_shape = EmitShape(scope, c.output(1));
  const Output k = LastSize(scope, indices_shape);
  const NamedOp stack(scope, "stack");
  const Output any_rows = stack.inner().ConstScalar<int64_t>(-1, "0");
  const Output flat_shape = stack.Op("Pack", {std::vector<Output>{any_rows, k}});
  const Output rows_of_indices = c.Op("Reshape", {c.output(1), flat_shape});
  const Output width = LastSize(scope, in_shape);
  if (!rows_of_indices) return scope.status();
  const Output rows = EmitElement(scope, EmitShape(scope, rows_of_indices), 0);
  const Output limit = c.Op("Mul", {EmitCast(scope, rows, DType::kInt64), width}, {}, "mul");
  const NamedOp range(scope, "range");
  const Output start =
      EmitCast(range.inner(), range.inner().ConstScalar<int32_t>(0, "start"), DType::kInt64);
  const Output starts = range.Op("Range", {start, limit, width});
  const Output offsets = EmitCast(scope, EmitExpandDims(scope, starts, -1), DType::kInt32);
  const Output positions =
      EmitReshape(scope, c.Op("AddV2", {rows_of_indices, offsets}, {}, "add"), {-1});
  const Output tuples = EmitExpandDims(scope, positions, -1);
  const Output updates = EmitReshape(scope, c.dy(0), {-1});
  const Output size = EmitProd(scope, in_shape);
  const NamedOp scatter(scope, "ScatterNd");
  const Output scatter_shape = scatter.inner().Op("Pack", {std::vector<Output>{size}}, {}, "shape");
  const Output flat = scatter.Op("ScatterNd", {tuples, updates, scatter_shape});
  c.SetDx(0, c.Op("Reshape", {flat, in_shape}));
  const Output zero = scope.ConstScalar<int32_t>(0, "zeros");
  if (c.num_inputs() == 2) c.SetDx(1, zero);
  return absl::OkStatus();
}

absl::Status NthElementGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const Output equal = c.Op("Equal", {EmitExpandDims(scope, c.output(), -1), c.input(0)});
  const Output indicators = EmitCast(scope, equal, c.dy().base_dtype());
  const Output dy = EmitExpandDims(scope, c.dy(), -1);
  const NamedOp sum(scope, "Sum");
  const Output axis = sum.inner().ConstScalar<int32_t>(-1, "reduction_indices");
  const Output selected =
      EmitExpandDims(scope, sum.Op("Sum", {indicators, axis}, {{"keep_dims", false}}), -1);
  const Output share = c.Op("RealDiv", {indicators, selected}, {}, "truediv");
  c.SetDx(0, c.Op("Mul", {share, dy}, {}, "mul"));
  return absl::OkStatus();
}

constexpr const char* kRealTypes =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";

}  // namespace

DEFINE_OP(TopK) {
  op.Attr("k: int >= 0")
      .Attr("sorted: bool = true")
      .Attr(kRealTypes)
      .Input("input: T")
      .Output("values: T")
      .Output("indices: int32")
      .Deprecated(7, "Use TopKV2 instead")
      .Doc("The k largest elements of every row and their places.")
      .Shape(TopKShape)
      .Gradient(TopKGradient)
      .CpuTypes<Reals>("T", []<typename T>() { return New<TopKKernel<T>>(); });
  AddGpuTopK(op, {DType::kInt32});
}

DEFINE_OP(TopKV2) {
  op.Attr("sorted: bool = true")
      .Attr(kRealTypes)
      .Attr2x("Tk: {int16, int32, int64} = DT_INT32")
      .Attr2x("index_type: {int16, int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("k: Tk")
      .Output("values: T")
      .Output("indices: index_type")
      .Doc(
          "The k largest elements of every row, largest first, and their places; of equal ones the "
          "earlier first.")
      .Shape(TopKV2Shape)
      .Gradient(TopKGradient)
      .HostMemory({"k"})
      .CpuTypes<Reals>("T", []<typename T>() { return New<TopKKernel<T>>(); });
  AddGpuTopK(op, {DType::kInt16, DType::kInt32, DType::kInt64});
}

DEFINE_OP(NthElement) {
  op.Attr("reverse: bool = false")
      .Attr(kRealTypes)
      .Input("input: T")
      .Input("n: int32")
      .Output("values: T")
      .Doc("The element of every row that would stand at place n if the row were sorted.")
      .Shape(NthElementShape)
      .Gradient(NthElementGradient)
      .HostMemory({"n"})
      .CpuTypes<Reals>("T", []<typename T>() { return New<NthElementKernel<T>>(); });
}

}  // namespace muster
