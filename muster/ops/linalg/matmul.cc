// MatMul, and SparseMatMul done densely.
#include "muster/ops/linalg/matmul.h"

#include <optional>

#include "muster/graph/build/emit.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/linalg/cublas.h"
#include "muster/ops/linalg/small_product.h"
#include "muster/ops/math/float16.h"
#include "muster/ops/op.h"

namespace muster {

absl::Status MatMulShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(c.input(1), 2));
  ASSIGN_OR_RETURN(const bool transpose_a, c.Attr<bool>("transpose_a"));
  ASSIGN_OR_RETURN(const bool transpose_b, c.Attr<bool>("transpose_b"));
  RETURN_IF_ERROR(ShapeContext::MergeDims(a[transpose_a ? 0 : 1], b[transpose_b ? 1 : 0]).status());
  c.SetOutput(0, PartialShape::Matrix(a[transpose_a ? 1 : 0], b[transpose_b ? 0 : 1]));
  return absl::OkStatus();
}

absl::StatusOr<GemmShape> CheckedProduct(const Shape& a, const Shape& b, bool transpose_a,
                                         bool transpose_b) {
  if (!a.is_matrix())
    return InvalidArgument("In[0] is not a matrix. Instead it has shape ", a.ToString());
  if (!b.is_matrix())
    return InvalidArgument("In[1] is not a matrix. Instead it has shape ", b.ToString());
  GemmShape product;
  product.transpose_a = transpose_a;
  product.transpose_b = transpose_b;
  product.m = a[transpose_a ? 1 : 0];
  product.k = a[transpose_a ? 0 : 1];
  product.n = b[transpose_b ? 0 : 1];
  if (product.k != b[transpose_b ? 1 : 0]) {
    return InvalidArgument("Matrix size-incompatible: In[0]: ", a.ToString(),
                           ", In[1]: ", b.ToString());
  }
  return product;
}

absl::StatusOr<Tensor> AsFloat(KernelContext& c, const Tensor& tensor) {
  if (tensor.dtype() == DType::kFloat) return tensor;
  ASSIGN_OR_RETURN(Tensor result, c.AllocateTemporary(DType::kFloat, tensor.shape()));
  float* to = result.data<float>();
  const auto convert = [&]<typename T>() {
    const T* from = tensor.data<T>();
    c.ParallelFor(tensor.num_elements(), 0.3, [&](int64_t begin, int64_t end) {
      ConvertArray(from + begin, end - begin, to + begin);
    });
  };
  if (tensor.dtype() == DType::kHalf) {
    convert.operator()<Half>();
  } else if (tensor.dtype() == DType::kBfloat16) {
    convert.operator()<Bfloat16>();
  } else {
    return Internal("No conversion of ", DTypeName(tensor.dtype()), " to float");
  }
  return result;
}

Output EmitConj(GradientContext& g, Output x) {
  return IsComplex(x.base_dtype()) ? g.Op("Conj", {x}) : x;
}

Output EmitMatMul(GradientContext& g, Output a, Output b, bool adjoint_a, bool adjoint_b) {
  const bool batched = a.shape().rank() != 2 || b.shape().rank() != 2;
  const Scope own = g.scope().NameScope("MatMul");
  if (batched)
    return OpNamed(own, "BatchMatMulV2", {a, b}, {{"adj_x", adjoint_a}, {"adj_y", adjoint_b}});
  const auto conj = [&](Output x) { return IsComplex(x.base_dtype()) ? own.Op("Conj", {x}) : x; };
  if (adjoint_a) a = conj(a);
  if (adjoint_b) b = conj(b);
  return OpNamed(own, "MatMul", {a, b}, {{"transpose_a", adjoint_a}, {"transpose_b", adjoint_b}});
}

namespace {

template <typename T>
class MatMul : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(transpose_a_, setup.Attr<bool>("transpose_a"));
    ASSIGN_OR_RETURN(transpose_b_, setup.Attr<bool>("transpose_b"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& a = c.input(0);
    const Tensor& b = c.input(1);
    ASSIGN_OR_RETURN(const GemmShape product,
                     CheckedProduct(a.shape(), b.shape(), transpose_a_, transpose_b_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({product.m, product.n}));
    ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    return Gemm(product, a.data<T>(), b.data<T>(), out->data<T>(), Threads(c));
  }

 private:
  bool transpose_a_ = false;
  bool transpose_b_ = false;
};

class GpuMatMul : public GpuKernel {
 public:
  explicit GpuMatMul(DType dtype) {
    if (dtype == DType::kFloat) small_.emplace(*this);
  }
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(transpose_a_, setup.Attr<bool>("transpose_a"));
    ASSIGN_OR_RETURN(transpose_b_, setup.Attr<bool>("transpose_b"));
    return PrepareGpuProducts(gpu());
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& a = c.input(0);
    const Tensor& b = c.input(1);
    GpuProducts products;
    ASSIGN_OR_RETURN(products.shape,
                     CheckedProduct(a.shape(), b.shape(), transpose_a_, transpose_b_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({products.shape.m, products.shape.n}));
    ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (small_ && GpuSmallProduct::Takes(products.shape))
      return small_->Multiply(products.shape, a.raw(), b.raw(), nullptr, out->raw(), false);
    products.a = a.raw();
    products.b = b.raw();
    products.c = out->raw();
    return MultiplyOnGpu(gpu(), a.dtype(), products);
  }

 private:
  std::optional<GpuSmallProduct> small_;
  bool transpose_a_ = false;
  bool transpose_b_ = false;
};

// A small product, and the sums of the columns of its second operand.
class GpuProductAndColumns : public GpuKernel {
 public:
  GpuProductAndColumns() : small_(*this) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(transpose_a_, setup.Attr<bool>("transpose_a"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& a = c.input(0);
    const Tensor& b = c.input(1);
    ASSIGN_OR_RETURN(const GemmShape product,
                     CheckedProduct(a.shape(), b.shape(), transpose_a_, false));
    if (!GpuSmallProduct::Takes(product)) {
      return InvalidArgument("the product of ", a.shape().ToString(), " and ", b.shape().ToString(),
                             " is not small");
    }
    ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(0, Shape({product.m, product.n})));
    ASSIGN_OR_RETURN(Tensor* const columns, c.AllocateOutput(1, Shape({product.n})));
    return small_.Multiply(product, a.raw(), b.raw(), nullptr, out->raw(), false, columns->raw());
  }

 private:
  GpuSmallProduct small_;
  bool transpose_a_ = false;
};

absl::Status InferProductAndColumns(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(c.input(1), 2));
  ASSIGN_OR_RETURN(const bool transpose_a, c.Attr<bool>("transpose_a"));
  c.SetOutput(0, PartialShape::Matrix(a[transpose_a ? 1 : 0], b[1]));
  c.SetOutput(1, PartialShape::Vector(b[1]));
  return absl::OkStatus();
}

// The hints that an operand holds many zeros are not needed for the result; dense code is as quick
// in most cases.
class SparseMatMul : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(transpose_a_, setup.Attr<bool>("transpose_a"));
    ASSIGN_OR_RETURN(transpose_b_, setup.Attr<bool>("transpose_b"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Shape& a_shape = c.input(0).shape();
    const Shape& b_shape = c.input(1).shape();
    if (!a_shape.is_matrix()) return InvalidArgument("a is not a matrix");
    if (!b_shape.is_matrix()) return InvalidArgument("b is not a matrix");
    const absl::StatusOr<GemmShape> product =
        CheckedProduct(a_shape, b_shape, transpose_a_, transpose_b_);
    if (!product.ok()) {
      return InvalidArgument("Matrix size incompatible: a: ", a_shape.ToString(),
                             ", b: ", b_shape.ToString());
    }
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({product->m, product->n}));
    ASSIGN_OR_RETURN(const Tensor a, AsFloat(c, c.input(0)));
    ASSIGN_OR_RETURN(const Tensor b, AsFloat(c, c.input(1)));
    ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    return Gemm(*product, a.data<float>(), b.data<float>(), out->data<float>(), Threads(c));
  }

 private:
  bool transpose_a_ = false;
  bool transpose_b_ = false;
};

absl::Status DifferentiateMatMul(GradientContext& g) {
  const bool ta = g.Attr<bool>("transpose_a");
  const bool tb = g.Attr<bool>("transpose_b");
  const Output dy = g.dy();
  const Output a = EmitConj(g, g.input(0));
  const Output b = EmitConj(g, g.input(1));
  const auto multiply = [&](Output x, Output y, bool transpose_x, bool transpose_y) {
    return g.Op("MatMul", {x, y}, {{"transpose_a", transpose_x}, {"transpose_b", transpose_y}});
  };
  g.SetDx(0, ta ? multiply(b, dy, tb, true) : multiply(dy, b, false, !tb));
  g.SetDx(1, tb ? multiply(dy, a, true, ta) : multiply(a, dy, !ta, false));
  return absl::OkStatus();
}

absl::Status DifferentiateSparseMatMul(GradientContext& g) {
  const bool ta = g.Attr<bool>("transpose_a");
  const bool tb = g.Attr<bool>("transpose_b");
  const Output a = g.input(0);
  const Output b = g.input(1);
  const Output dy = g.dy();
  const auto is_sparse = [&](Output x) {
    if (x == dy) return x.node != nullptr && x.node->op() == "ReluGrad";
    return x == b ? g.Attr<bool>("b_is_sparse") : g.Attr<bool>("a_is_sparse");
  };
  const auto multiply = [&](Output x, Output y, DType type, bool transpose_x, bool transpose_y) {
    const bool x_sparse = is_sparse(x);
    const bool y_sparse = is_sparse(y);
    if (transpose_y) {
      const Scope own = g.scope().NameScope("transpose");
      const Output perm = own.ConstVector({1, 0}, "perm");
      y = OpNamed(own, "Transpose", {y, perm});
    }
    const Scope own = g.scope().NameScope("MatMul");
    if (!x_sparse && !y_sparse && x.base_dtype() == y.base_dtype()) {
      return OpNamed(own, "MatMul", {x, y}, {{"transpose_a", transpose_x}, {"transpose_b", false}});
    }
    const bool both_short =
        x.base_dtype() == DType::kBfloat16 && y.base_dtype() == DType::kBfloat16;
    Output product = OpNamed(own, "SparseMatMul", {x, y},
                             {{"transpose_a", transpose_x},
                              {"transpose_b", false},
                              {"a_is_sparse", x_sparse},
                              {"b_is_sparse", y_sparse}});
    if (both_short) product = own.Op("Cast", {product}, {{"DstT", DType::kBfloat16}});
    if (product.base_dtype() != type) product = g.Op("Cast", {product}, {{"DstT", type}});
    return product;
  };
  const DType type_a = a.base_dtype();
  const DType type_b = b.base_dtype();
  g.SetDx(0, ta ? multiply(b, dy, type_a, tb, true) : multiply(dy, b, type_a, false, !tb));
  g.SetDx(1, tb ? multiply(dy, a, type_b, true, ta) : multiply(a, dy, type_b, !ta, false));
  return absl::OkStatus();
}

DEFINE_OP(MatMul) {
  op.Attr("transpose_a: bool = false")
      .Attr("transpose_b: bool = false")
      .Attr(
          "T: {bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, "
          "complex64, complex128}")
      .Attr2x("grad_a: bool = false")
      .Attr2x("grad_b: bool = false")
      .Input("a: T")
      .Input("b: T")
      .Output("product: T")
      .Doc("The product of two matrices, each transposed first where asked.")
      .Shape(MatMulShape)
      .Gradient(DifferentiateMatMul)
      .CpuTypes<ProductTypes>("T", []<typename T>() { return New<MatMul<T>>(); })
      .GpuTypes("T", GpuProductTypes(), [](DType dtype) -> KernelFactory {
        return [dtype] { return std::make_unique<GpuMatMul>(dtype); };
      });
}

// What a rewrite puts in the place of MatMul and BiasAddGrad on GPUs (graph/rewrite).
DEFINE_OP(MusterProductAndColumns) {
  op.Attr("transpose_a: bool = false")
      .Attr("T: {float}")
      .Input("a: T")
      .Input("b: T")
      .Output("product: T")
      .Output("columns: T")
      .Doc("The product of two small matrices, and the sums of the columns of the second one.")
      .Shape(InferProductAndColumns)
      .GpuTypes("T", {DType::kFloat}, [](DType) { return New<GpuProductAndColumns>(); });
}

DEFINE_OP(SparseMatMul) {
  op.Attr("transpose_a: bool = false")
      .Attr("transpose_b: bool = false")
      .Attr("a_is_sparse: bool = false")
      .Attr("b_is_sparse: bool = false")
      .Attr("Ta: {float, bfloat16} = DT_FLOAT")
      .Attr("Tb: {float, bfloat16} = DT_FLOAT")
      .Input("a: Ta")
      .Input("b: Tb")
      .Output("product: float")
      .Doc(
          "The product of two matrices in float; the attributes say which of them hold many zeros.")
      .Shape(MatMulShape)
      .Gradient(DifferentiateSparseMatMul)
      .Cpu(New<SparseMatMul>());
}

}  // namespace
}  // namespace muster
