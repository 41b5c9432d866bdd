// Cross entropy of logits and labels, fused with softmax; the second output is the gradient of the
// logits.
#include "muster/graph/rewrite/optimize.h"
#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/rows.h"
#include "muster/ops/nn/softmax_row.h"

namespace muster {
namespace {

// Numpy broadcasting of two shapes of rank 2 at most; nothing when they do not fit.
std::optional<Shape> BroadcastPair(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Dims dims(rank);
  for (int i = 0; i < rank; ++i) {
    const int from_a = i - (rank - a.rank());
    const int from_b = i - (rank - b.rank());
    const int64_t x = from_a < 0 ? 1 : a.dim(from_a);
    const int64_t y = from_b < 0 ? 1 : b.dim(from_b);
    if (x != y && x != 1 && y != 1) return std::nullopt;
    dims[i] = x == 1 ? y : x;
  }
  auto shape = Shape::Make(dims);
  if (!shape.ok()) return std::nullopt;
  return *std::move(shape);
}

// How to walk through an argument that is broadcast to [rows, classes].
struct Strides {
  int64_t row;
  int64_t column;
};
Strides StridesOf(const Shape& shape) {
  const int rank = shape.rank();
  const int64_t columns = rank >= 1 ? shape.dim(rank - 1) : 1;
  const int64_t rows = rank >= 2 ? shape.dim(rank - 2) : 1;
  return {rows == 1 ? 0 : columns, columns == 1 ? 0 : 1};
}

absl::StatusOr<Shape> CheckedDense(const Shape& logits, const Shape& labels) {
  auto shape = BroadcastPair(logits, labels);
  if (!shape) {
    return InvalidArgument("logits and labels must be broadcastable: logits_size=",
                           logits.ToString(), " labels_size=", labels.ToString());
  }
  if (shape->rank() != 2) {
    return InvalidArgument(
        "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional");
  }
  return *std::move(shape);
}

template <typename T>
absl::Status Dense(KernelContext& c) {
  using V = Compute<T>;
  const Tensor logits = c.input(0);
  const Tensor labels = c.input(1);
  ASSIGN_OR_RETURN(const Shape shape, CheckedDense(logits.shape(), labels.shape()));
  const int64_t rows = shape.dim(0);
  const int64_t n = shape.dim(1);
  ASSIGN_OR_RETURN(Tensor * loss, c.AllocateOutput(0, Shape({rows})));
  ASSIGN_OR_RETURN(Tensor * backprop, c.AllocateOutput(1, shape));
  T* const losses = loss->data<T>();
  if (n == 0) {
    std::fill(losses, losses + rows, static_cast<T>(0.0f));
    return absl::OkStatus();
  }
  T* const back = backprop->data<T>();
  const T* const x = logits.data<T>();
  const T* const p = labels.data<T>();
  const Strides sx = StridesOf(logits.shape());
  const Strides sp = StridesOf(labels.shape());
  c.ParallelFor(rows, 5.0 * static_cast<double>(n), [=](int64_t begin, int64_t end) {
    std::vector<T> row(static_cast<size_t>(n));
    std::vector<V> e(static_cast<size_t>(n));
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t i = 0; i < n; ++i) row[i] = x[r * sx.row + i * sx.column];
      const V maximum = RowMaximum(row.data(), n);
      const V sum = RowExponentials(row.data(), n, maximum, e.data());
      const V log_sum = std::log(sum);
      const V scale = V(1) / sum;
      V total = V(0);
      for (int64_t i = 0; i < n; ++i) {
        const V label = static_cast<V>(p[r * sp.row + i * sp.column]);
        // A label of zero adds nothing, even where its logarithm is infinite.
        total += label == V(0) ? V(0) : label * (log_sum - (static_cast<V>(row[i]) - maximum));
        back[r * n + i] = static_cast<T>(e[i] * scale - label);
      }
      losses[r] = static_cast<T>(total);
    }
  });
  return absl::OkStatus();
}

class GpuCrossEntropy : public GpuKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    if (setup.node().FindAttr(kBackpropScale) != nullptr) {
      ASSIGN_OR_RETURN(const float scale, setup.Attr<float>(kBackpropScale));
      scale_ = scale;
    }
    return GpuKernel::Init(setup);
  }

 protected:
  double scale_ = 1;  // of the gradient
};

class GpuDenseCrossEntropy : public GpuCrossEntropy {
 public:
  explicit GpuDenseCrossEntropy(DType dtype)
      : run_(*this, "nn/cross_entropy.cu", absl::StrCat("DenseCrossEntropy<", GpuTypeName(dtype))) {
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& logits = c.input(0);
    const Tensor& labels = c.input(1);
    ASSIGN_OR_RETURN(const Shape shape, CheckedDense(logits.shape(), labels.shape()));
    const int64_t rows = shape.dim(0);
    ASSIGN_OR_RETURN(Tensor* const losses, c.AllocateOutput(0, Shape({rows})));
    ASSIGN_OR_RETURN(Tensor* const backprop, c.AllocateOutput(1, shape));
    if (shape.dim(1) == 0) {
      return gpu().Fill(losses->raw(), 0, static_cast<size_t>(rows) * DTypeSize(losses->dtype()));
    }
    return run_.Launch(rows, shape.dim(1), GpuIn(logits), StridesOf(logits.shape()), GpuIn(labels),
                       StridesOf(labels.shape()), GpuOut(*losses), GpuOut(*backprop), rows,
                       shape.dim(1), scale_);
  }

 private:
  GpuRowFunction run_;
};

std::string JoinValues(const Tensor& labels) {
  std::string text;
  const absl::StatusOr<Dims> values = IntegerValues(labels);
  for (int64_t value : *values) absl::StrAppend(&text, text.empty() ? "" : " ", value);
  return text;
}

absl::Status CheckSparse(const Shape& logits, const Shape& labels) {
  if (logits.rank() != 2)
    return InvalidArgument("logits must be 2-D, but got shape ", logits.ToString());
  if (labels.rank() != 1)
    return InvalidArgument("labels must be 1-D, but got shape ", labels.ToString());
  if (logits.dim(0) != labels.dim(0)) {
    return InvalidArgument(
        "logits and labels must have the same first dimension, got logits shape ",
        logits.ToString(), " and labels shape ", labels.ToString());
  }
  if (logits.dim(1) <= 0) {
    return InvalidArgument("Must have at least one class, but got logits shape ",
                           logits.ToString());
  }
  return absl::OkStatus();
}

template <typename T, typename Index>
absl::Status Sparse(KernelContext& c) {
  using V = Compute<T>;
  const Tensor logits = c.input(0);
  const Tensor labels = c.input(1);
  RETURN_IF_ERROR(CheckSparse(logits.shape(), labels.shape()));
  const int64_t rows = logits.dim(0);
  const int64_t n = logits.dim(1);
  const Index* const classes = labels.data<Index>();
  for (int64_t r = 0; r < rows; ++r) {
    if (classes[r] < 0 || classes[r] >= n) {
      return InvalidArgument("Received a label value of ", classes[r],
                             " which is outside the valid range of [0, ", n,
                             ").  Label values: ", JoinValues(labels));
    }
  }
  ASSIGN_OR_RETURN(Tensor * loss, c.AllocateOutput(0, Shape({rows})));
  ASSIGN_OR_RETURN(Tensor * backprop, c.AllocateOutput(1, logits.shape()));
  T* const losses = loss->data<T>();
  T* const back = backprop->data<T>();
  const T* const x = logits.data<T>();
  c.ParallelFor(rows, 3.0 * static_cast<double>(n), [=](int64_t begin, int64_t end) {
    std::vector<V> scratch(static_cast<size_t>(n));
    V* const e = scratch.data();
    for (int64_t r = begin; r < end; ++r) {
      const T* const row = x + r * n;
      const V maximum = RowMaximum(row, n);
      const V sum = RowExponentials(row, n, maximum, e);
      const V scale = V(1) / sum;
      const int64_t label = classes[r];
      losses[r] = static_cast<T>(std::log(sum) - (static_cast<V>(row[label]) - maximum));
      T* const to = back + r * n;
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(e[i] * scale);
      to[label] = static_cast<T>(e[label] * scale - V(1));
    }
  });
  return absl::OkStatus();
}

// Labels outside of the classes give NaN, as on TensorFlow's GPUs: they cannot be read here.
class GpuSparseCrossEntropy : public GpuCrossEntropy {
 public:
  GpuSparseCrossEntropy(DType dtype, DType labels)
      : run_(*this, "nn/cross_entropy.cu",
             absl::StrCat("SparseCrossEntropy<", GpuTypeName(dtype), ", ", GpuTypeName(labels))) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& logits = c.input(0);
    const Tensor& labels = c.input(1);
    RETURN_IF_ERROR(CheckSparse(logits.shape(), labels.shape()));
    const int64_t rows = logits.dim(0), size = logits.dim(1);
    ASSIGN_OR_RETURN(Tensor* const losses, c.AllocateOutput(0, Shape({rows})));
    ASSIGN_OR_RETURN(Tensor* const backprop, c.AllocateOutput(1, logits.shape()));
    return run_.Launch(rows, size, GpuIn(logits), GpuIn(labels), GpuOut(*losses), GpuOut(*backprop),
                       rows, size, scale_);
  }

 private:
  GpuRowFunction run_;
};
KernelFactory MakeGpuSparse(DType dtype, DType labels) {
  return [=] { return std::make_unique<GpuSparseCrossEntropy>(dtype, labels); };
}

absl::Status InferDense(ShapeContext& c) {
  if (auto logits = c.WithRank(c.input(0), 2); logits.ok()) {
    if (auto merged = logits->Merge(c.input(1)); merged.ok()) {
      c.SetOutput(0, PartialShape::Vector(merged->dim(0)));
      c.SetOutput(1, *std::move(merged));
      return absl::OkStatus();
    }
  }
  ASSIGN_OR_RETURN(PartialShape shape, BroadcastShapes(c.input(0), c.input(1)));
  if (!shape.known_rank()) shape = PartialShape::OfRank(2);
  if (shape.rank() != 2) {
    return InvalidArgument("Shape must be broadcasted with rank 2, but is rank ", shape.rank());
  }
  c.SetOutput(0, PartialShape::Vector(shape.dim(0)));
  c.SetOutput(1, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferSparse(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape features, c.WithRank(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape labels, c.WithRank(c.input(1), 1));
  ASSIGN_OR_RETURN(const int64_t rows, ShapeContext::MergeDims(features.dim(0), labels.dim(0)));
  features.Set(0, rows);
  c.SetOutput(0, PartialShape::Vector(rows));
  c.SetOutput(1, std::move(features));
  return absl::OkStatus();
}

// Each row of `matrix` times its element of `vector`.
Output ScaleRows(GradientContext& c, Output vector, Output matrix) {
  return c.Op("Mul", {ExpandDims(c, vector, -1), matrix}, {}, "mul");
}

// Whether a gradient is known to be zero while the graph is built.
bool IsZero(Output gradient) {
  if (!gradient) return true;  // an error is already recorded
  const std::string& op = gradient.node->op();
  if (op == "ZerosLike") return true;
  const auto value = ConstantValue(gradient);
  return value && SameTensor(*value, Tensor::Zeros(value->dtype(), value->shape()));
}

absl::Status DifferentiateDense(GradientContext& c) {
  const Output logits = c.input(0);
  Output gradient = ScaleRows(c, c.dy(0), c.output(1));
  if (c.has_dy(1) && !IsZero(c.dy(1))) {
    // The gradient of the gradient is that of softmax.
    const Output ddy = c.dy(1);
    const Output softmax = c.Op("Softmax", {logits});
    const Output row = ExpandDims(c, ddy, 1);
    const Output column = ExpandDims(c, softmax, 2);
    const Output product =
        c.Op("BatchMatMulV2", {row, column}, {{"adj_x", false}, {"adj_y", false}}, "MatMul");
    const Output inner = c.Op("Squeeze", {product}, {{"squeeze_dims", std::vector<int64_t>{1}}});
    const Output centred = c.Op("Sub", {ddy, inner}, {}, "sub");
    const Output second = c.Op("Mul", {centred, softmax}, {}, "mul");
    gradient = c.Op("AddV2", {gradient, second}, {}, "add");
  }
  c.SetDx(0, gradient);
  const Output log_softmax = c.Op("LogSoftmax", {logits});
  const Output negative = c.Op("Neg", {log_softmax});
  c.SetDx(1, ScaleRows(c, c.dy(0), negative));
  return absl::OkStatus();
}

absl::Status DifferentiateSparse(GradientContext& c) {
  const Output backprop = c.Op("PreventGradient", {c.output(1)},
                               {{"message",
                                 "Currently there is no way to take the second derivative of "
                                 "sparse_softmax_cross_entropy_with_logits due "
                                 "to the fused implementation's interaction with tf.gradients()"}});
  c.SetDx(0, ScaleRows(c, c.dy(0), backprop));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(SoftmaxCrossEntropyWithLogits) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("features: T")
      .Input("labels: T")
      .Output("loss: T")
      .Output("backprop: T")
      .Doc(
          "Cross entropy between rows of probabilities and the softmax of the features, and its "
          "gradient.")
      .Shape(InferDense)
      .Gradient(DifferentiateDense)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Dense<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpu<GpuDenseCrossEntropy>);
}

DEFINE_OP(SparseSoftmaxCrossEntropyWithLogits) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("Tlabels: {int32, int64} = DT_INT64")
      .Input("features: T")
      .Input("labels: Tlabels")
      .Output("loss: T")
      .Output("backprop: T")
      .Doc(
          "Cross entropy between one class per row and the softmax of the features, and its "
          "gradient.")
      .Shape(InferSparse)
      .Gradient(DifferentiateSparse)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Sparse<T, int32_t>); },
                        {{"Tlabels", DType::kInt32}})
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Sparse<T, int64_t>); },
                        {{"Tlabels", DType::kInt64}})
      .GpuTypes("T", GpuShortFloats(),
                [](DType dtype) { return MakeGpuSparse(dtype, DType::kInt32); }, {},
                {{"Tlabels", DType::kInt32}})
      .GpuTypes("T", GpuShortFloats(),
                [](DType dtype) { return MakeGpuSparse(dtype, DType::kInt64); }, {},
                {{"Tlabels", DType::kInt64}});
}

}  // namespace muster
