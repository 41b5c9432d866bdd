// BatchMatMul and BatchMatMulV2/V3: products of many matrices at once, the later ones with
// broadcast batches.
#include <atomic>
#include <optional>
#include <utility>

#include "muster/graph/build/emit.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/linalg/cublas.h"
#include "muster/ops/linalg/matmul.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// Sizes of the last two dims, swapped for an adjoint.
struct Matrix {
  int64_t rows;
  int64_t columns;
};
Matrix LastDims(absl::Span<const int64_t> dims, bool adjoint) {
  const int64_t a = dims[dims.size() - 2];
  const int64_t b = dims[dims.size() - 1];
  return adjoint ? Matrix{b, a} : Matrix{a, b};
}

absl::Status ShapeWithBatch(ShapeContext& c, bool broadcast) {
  ASSIGN_OR_RETURN(const PartialShape x, c.WithRankAtLeast(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape y, c.WithRankAtLeast(c.input(1), 2));
  ASSIGN_OR_RETURN(const bool adj_x, c.Attr<bool>("adj_x"));
  ASSIGN_OR_RETURN(const bool adj_y, c.Attr<bool>("adj_y"));
  const Matrix xm = x.known_rank() ? LastDims(x.dims(), adj_x) : Matrix{-1, -1};
  const Matrix ym = y.known_rank() ? LastDims(y.dims(), adj_y) : Matrix{-1, -1};
  PartialShape batch;
  if (broadcast) {
    RETURN_IF_ERROR(ShapeContext::MergeDims(xm.columns, ym.rows).status());
    ASSIGN_OR_RETURN(
        batch, BroadcastShapes(ShapeContext::Subshape(x, 0, -2), ShapeContext::Subshape(y, 0, -2)));
  } else {
    ASSIGN_OR_RETURN(batch, ShapeContext::Merge(ShapeContext::Subshape(x, 0, -2),
                                                ShapeContext::Subshape(y, 0, -2)));
    RETURN_IF_ERROR(ShapeContext::MergeDims(xm.columns, ym.rows).status());
  }
  c.SetOutput(0, ShapeContext::Concatenate(batch, PartialShape::Matrix(xm.rows, ym.columns)));
  return absl::OkStatus();
}

absl::Status EqualBatchShape(ShapeContext& c) {
  return ShapeWithBatch(c, /*broadcast=*/false);
}
absl::Status BroadcastBatchShape(ShapeContext& c) {
  return ShapeWithBatch(c, /*broadcast=*/true);
}

// The batch: its shape, and for each product which matrix of x and of y it takes.
struct Batch {
  Dims dims;
  std::vector<int64_t> x_index;
  std::vector<int64_t> y_index;
  bool y_is_one_matrix = false;
};

absl::Status CheckEqualBatch(const Shape& x, const Shape& y) {
  if (x.rank() != y.rank()) {
    return InvalidArgument("In[0] and In[1] has different ndims: ", x.ToString(), " vs. ",
                           y.ToString());
  }
  if (x.rank() < 2) return InvalidArgument("In[0] and In[1] ndims must be >= 2: ", x.rank());
  for (int i = 0; i + 2 < x.rank(); ++i) {
    if (x[i] == y[i]) continue;
    return InvalidArgument("In[0].dim(", i, ") and In[1].dim(", i,
                           ") must be the same: ", x.ToString(), " vs ", y.ToString());
  }
  return absl::OkStatus();
}

absl::StatusOr<Batch> PlanBatch(const Shape& x, const Shape& y) {
  if (x.rank() < 2) return InvalidArgument("In[0] ndims must be >= 2: ", x.rank());
  if (y.rank() < 2) return InvalidArgument("In[1] ndims must be >= 2: ", y.rank());
  const int rank = std::max(x.rank(), y.rank()) - 2;
  const auto dim = [rank](const Shape& shape, int i) {
    const int at = i - (rank - (shape.rank() - 2));
    return at < 0 ? int64_t{1} : shape[at];
  };
  Batch batch;
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    const int64_t a = dim(x, i);
    const int64_t b = dim(y, i);
    if (a != b && a != 1 && b != 1) {
      return InvalidArgument("In[0] and In[1] must have compatible batch dimensions: ",
                             x.ToString(), " vs. ", y.ToString());
    }
    batch.dims.push_back(a == 1 ? b : a);
    const std::optional<int64_t> product = MultiplyWithoutOverflow(count, batch.dims.back());
    if (!product)
      return InvalidArgument("The batch of ", x.ToString(), " and ", y.ToString(), " is too large");
    count = *product;
  }
  const int64_t y_count = y.ElementsIn(0, y.rank() - 2);
  batch.y_is_one_matrix = y_count == 1;
  if (batch.y_is_one_matrix && x.ElementsIn(0, x.rank() - 2) == count) return batch;
  // Number of the matrix within its tensor, for every product: strides are zero along broadcast
  // dims.
  const auto indices = [&](const Shape& shape) {
    Dims strides(rank, 0);
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dim(shape, i) != 1) strides[i] = stride;
      stride *= dim(shape, i);
    }
    std::vector<int64_t> result(static_cast<size_t>(count));
    Dims at(rank, 0);
    int64_t index = 0;
    for (int64_t& value : result) {
      value = index;
      for (int i = rank - 1; i >= 0; --i) {
        index += strides[i];
        if (++at[i] < batch.dims[i]) break;
        index -= strides[i] * batch.dims[i];
        at[i] = 0;
      }
    }
    return result;
  };
  batch.x_index = indices(x);
  batch.y_index = indices(y);
  return batch;
}

// The products of two tensors, checked.
struct BatchPlan {
  Batch batch;
  GemmShape product;
  Shape shape;  // of the result
};

absl::StatusOr<BatchPlan> PlanProducts(const Shape& x, const Shape& y, bool adj_x, bool adj_y,
                                       bool broadcast) {
  if (!broadcast) RETURN_IF_ERROR(CheckEqualBatch(x, y));
  BatchPlan plan;
  ASSIGN_OR_RETURN(plan.batch, PlanBatch(x, y));
  const Matrix xm = LastDims(x.dims(), adj_x);
  const Matrix ym = LastDims(y.dims(), adj_y);
  if (xm.columns != ym.rows) {
    return InvalidArgument("In[0] mismatch In[1] shape: ", xm.columns, " vs. ", ym.rows, ": ",
                           x.ToString(), " ", y.ToString(), " ", adj_x ? 1 : 0, " ",
                           adj_y ? 1 : 0);
  }
  Dims dims = plan.batch.dims;
  dims.push_back(xm.rows);
  dims.push_back(ym.columns);
  ASSIGN_OR_RETURN(plan.shape, Shape::Make(dims));
  plan.product.m = xm.rows;
  plan.product.k = xm.columns;
  plan.product.n = ym.columns;
  plan.product.transpose_a = plan.product.conjugate_a = adj_x;
  plan.product.transpose_b = plan.product.conjugate_b = adj_y;
  return plan;
}

template <typename T, bool kBroadcast>
class BatchMatMul : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(adj_x_, setup.Attr<bool>("adj_x"));
    ASSIGN_OR_RETURN(adj_y_, setup.Attr<bool>("adj_y"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override { return Multiply(c, c.input(0), c.input(1)); }

 protected:
  absl::Status Multiply(KernelContext& c, const Tensor& left, const Tensor& right) const {
    ASSIGN_OR_RETURN(BatchPlan plan,
                     PlanProducts(left.shape(), right.shape(), adj_x_, adj_y_, kBroadcast));
    const Batch& batch = plan.batch;
    GemmShape& product = plan.product;
    const Shape& shape = plan.shape;
    ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const T* const x_data = left.data<T>();
    const T* const y_data = right.data<T>();
    T* const out_data = out->data<T>();
    const int64_t count = shape.num_elements() / (product.m * product.n);
    if (count == 1) return Gemm(product, x_data, y_data, out_data, Threads(c));
    if (batch.x_index.empty() && !adj_x_) {
      // One matrix on the right: all rows on the left are one tall matrix.
      product.m *= count;
      return Gemm(product, x_data, y_data, out_data, Threads(c));
    }
    const auto multiply = [&](int64_t i, ParallelRunner parallel) {
      const int64_t x_at = batch.x_index.empty() ? i : batch.x_index[i];
      const int64_t y_at = batch.y_index.empty() ? 0 : batch.y_index[i];
      return Gemm(product, x_data + x_at * product.m * product.k,
                  y_data + y_at * product.k * product.n, out_data + i * product.m * product.n,
                  parallel);
    };
    const double cost = GemmCostNs<T>(product.m, product.n, product.k);
    if (count < 8 && cost > 1e6) {
      for (int64_t i = 0; i < count; ++i) RETURN_IF_ERROR(multiply(i, Threads(c)));
      return absl::OkStatus();
    }
    std::atomic<bool> failed = false;
    c.ParallelFor(count, cost + 100, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (!multiply(i, RunSerially).ok()) failed = true;
      }
    });
    return failed ? absl::ResourceExhaustedError("No memory for batched matrix products")
                  : absl::OkStatus();
  }

 private:
  bool adj_x_ = false;
  bool adj_y_ = false;
};

// The step from each index to the next, where all are alike.
std::optional<int64_t> StepOf(const std::vector<int64_t>& indices, int64_t without) {
  if (indices.empty()) return without;
  if (indices.size() == 1) return 0;
  const int64_t step = indices[1] - indices[0];
  for (size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] - indices[i - 1] != step) return std::nullopt;
  }
  return step;
}

template <bool kBroadcast>
class GpuBatchMatMul : public GpuKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(adj_x_, setup.Attr<bool>("adj_x"));
    ASSIGN_OR_RETURN(adj_y_, setup.Attr<bool>("adj_y"));
    return PrepareGpuProducts(gpu());
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const Tensor& y = c.input(1);
    ASSIGN_OR_RETURN(const BatchPlan plan,
                     PlanProducts(x.shape(), y.shape(), adj_x_, adj_y_, kBroadcast));
    ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.shape));
    if (plan.shape.num_elements() == 0) return absl::OkStatus();
    const GemmShape& product = plan.product;
    GpuProducts products;
    products.shape = product;
    products.count = plan.shape.num_elements() / (product.m * product.n);
    products.a = x.raw();
    products.b = y.raw();
    products.c = out->raw();
    products.stride_c = product.m * product.n;
    const int64_t x_size = product.m * product.k, y_size = product.k * product.n;
    const std::vector<int64_t>& x_index = plan.batch.x_index;
    const std::vector<int64_t>& y_index = plan.batch.y_index;
    if (x_index.empty() && !adj_x_) {
      // One matrix on the right: all rows on the left are one tall matrix.
      products.shape.m *= products.count;
      products.count = 1;
      return MultiplyOnGpu(gpu(), x.dtype(), products);
    }
    const std::optional<int64_t> x_step = StepOf(x_index, 1), y_step = StepOf(y_index, 0);
    if (x_step && y_step) {
      products.stride_a = *x_step * x_size;
      products.stride_b = *y_step * y_size;
      return MultiplyOnGpu(gpu(), x.dtype(), products);
    }
    const auto bytes = static_cast<int64_t>(DTypeSize(x.dtype()));
    const int64_t count = std::exchange(products.count, 1);
    for (int64_t i = 0; i < count; ++i) {
      products.a = x.raw() + x_index[i] * x_size * bytes;
      products.b = y.raw() + y_index[i] * y_size * bytes;
      products.c = out->raw() + i * products.stride_c * bytes;
      RETURN_IF_ERROR(MultiplyOnGpu(gpu(), x.dtype(), products));
    }
    return absl::OkStatus();
  }

 private:
  bool adj_x_ = false;
  bool adj_y_ = false;
};

template <typename T>
absl::StatusOr<Tensor> Converted(KernelContext& c, const Tensor& from) {
  if (from.dtype() == kDTypeOf<T>) return from;
  ASSIGN_OR_RETURN(Tensor to, c.AllocateTemporary(kDTypeOf<T>, from.shape()));
  const auto convert = [&](const auto* values) {
    for (int64_t i = 0; i < from.num_elements(); ++i) {
      to.data<T>()[i] = static_cast<T>(static_cast<Compute<T>>(values[i]));
    }
  };
  if (from.dtype() == DType::kInt8) {
    convert(from.data<int8_t>());
  } else if (from.dtype() == DType::kUint8) {
    convert(from.data<uint8_t>());
  } else {
    return Unimplemented("Products of ", DTypeName(from.dtype()), " as ", DTypeName(kDTypeOf<T>));
  }
  return to;
}

// Small integers are multiplied as the type of the result.
template <typename T>
class MixedBatchMatMul : public BatchMatMul<T, true> {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Tensor x, Converted<T>(c, c.input(0)));
    ASSIGN_OR_RETURN(const Tensor y, Converted<T>(c, c.input(1)));
    return this->Multiply(c, x, y);
  }
};

absl::Status Differentiate(GradientContext& g) {
  const bool adj_x = g.Attr<bool>("adj_x");
  const bool adj_y = g.Attr<bool>("adj_y");
  const Output x = g.input(0);
  const Output y = g.input(1);
  const Output dy = g.dy();
  g.SetDx(0, adj_x ? EmitMatMul(g, y, dy, adj_y, true) : EmitMatMul(g, dy, y, false, !adj_y));
  g.SetDx(1, adj_y ? EmitMatMul(g, dy, x, true, adj_x) : EmitMatMul(g, x, dy, !adj_x, false));
  return absl::OkStatus();
}

// x[:-2] of a shape vector.
Output BatchDims(GradientContext& g, Output shape) {
  const Scope own = g.scope().NameScope("strided_slice");
  const Output begin = own.ConstVector({0}, "stack");
  const Output end = own.ConstVector({-2}, "stack_1");
  const Output step = own.ConstVector({1}, "stack_2");
  return OpNamed(own, "StridedSlice", {shape, begin, end, step}, {{"begin_mask", 1}});
}

absl::Status DifferentiateBroadcast(GradientContext& g) {
  RETURN_IF_ERROR(Differentiate(g));
  const PartialShape& x = g.input(0).shape();
  if (x.known_rank() && x.fully_known() && x == g.input(1).shape()) return absl::OkStatus();
  const Output x_shape = g.ShapeOf(g.input(0));
  const Output y_shape = g.ShapeOf(g.input(1));
  const Output x_batch = BatchDims(g, x_shape);
  const Output y_batch = BatchDims(g, y_shape);
  Node* const axes = g.scope().Add("BroadcastGradientArgs", {x_batch, y_batch});
  if (axes == nullptr) return g.scope().status();
  for (int i = 0; i < 2; ++i) {
    const Output sum = g.Op("Sum", {std::get<Output>(g.input_gradients()[i]), Output(axes, i)});
    g.SetDx(i, g.Op("Reshape", {sum, i == 0 ? x_shape : y_shape}));
  }
  return absl::OkStatus();
}

DEFINE_OP(BatchMatMul) {
  op.Attr("T: {bfloat16, half, float, double, int32, int64, complex64, complex128}")
      .Attr("adj_x: bool = false")
      .Attr("adj_y: bool = false")
      .Attr2x("grad_x: bool = false")
      .Attr2x("grad_y: bool = false")
      .Input("x: T")
      .Input("y: T")
      .Output("output: T")
      .Doc("Products of the matrices in the last two dims; the other dims must be alike.")
      .Shape(EqualBatchShape)
      .Gradient(Differentiate)
      .CpuTypes<ProductTypes>("T", []<typename T>() { return New<BatchMatMul<T, false>>(); })
      .GpuTypes("T", GpuProductTypes(), [](DType) { return New<GpuBatchMatMul<false>>(); });
}

DEFINE_OP(BatchMatMulV2) {
  op.Attr(
        "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, "
        "complex64, complex128}")
      .Attr("adj_x: bool = false")
      .Attr("adj_y: bool = false")
      .Attr2x("grad_x: bool = false")
      .Attr2x("grad_y: bool = false")
      .Input("x: T")
      .Input("y: T")
      .Output("output: T")
      .Doc("Products of the matrices in the last two dims; the other dims broadcast.")
      .Shape(BroadcastBatchShape)
      .Gradient(DifferentiateBroadcast)
      .CpuTypes<Join<ProductTypes, Types<int16_t>>>(
          "T", []<typename T>() { return New<BatchMatMul<T, true>>(); })
      .GpuTypes("T", GpuProductTypes(), [](DType) { return New<GpuBatchMatMul<true>>(); });
}

DEFINE_OP(BatchMatMulV3) {
  op.Attr(
        "Ta: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
        "complex128}")
      .Attr(
          "Tb: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
          "complex128}")
      .Attr("Tout: {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}")
      .Attr("adj_x: bool = false")
      .Attr("adj_y: bool = false")
      .Attr("grad_x: bool = false")
      .Attr("grad_y: bool = false")
      .Input("x: Ta")
      .Input("y: Tb")
      .Output("output: Tout")
      .Doc("BatchMatMulV2 with a type of its own for the result.")
      .Shape(BroadcastBatchShape)
      .Gradient(DifferentiateBroadcast);
  const auto same = [&op]<typename... Ts>(Types<Ts...>) {
    (op.Cpu(New<MixedBatchMatMul<Ts>>(),
            {{"Ta", kDTypeOf<Ts>}, {"Tb", kDTypeOf<Ts>}, {"Tout", kDTypeOf<Ts>}}),
     ...);
  };
  same(Join<ProductTypes, Types<int16_t>>());
  for (const DType a : {DType::kInt8, DType::kUint8}) {
    for (const DType b : {DType::kInt8, DType::kUint8}) {
      op.Cpu(New<MixedBatchMatMul<int32_t>>(), {{"Ta", a}, {"Tb", b}, {"Tout", DType::kInt32}});
    }
    op.Cpu(New<MixedBatchMatMul<Bfloat16>>(),
           {{"Ta", a}, {"Tb", DType::kBfloat16}, {"Tout", DType::kBfloat16}});
    op.Cpu(New<MixedBatchMatMul<Bfloat16>>(),
           {{"Ta", DType::kBfloat16}, {"Tb", a}, {"Tout", DType::kBfloat16}});
  }
}

}  // namespace
}  // namespace muster
