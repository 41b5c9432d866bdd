// Slices written or added at index tuples into a new tensor: ScatterNd, TensorScatter*,
// ScatterNdNonAliasingAdd.
#include "muster/ops/emit.h"
#include "muster/ops/indexing/gpu_scatter_nd.h"
#include "muster/ops/indexing/indexing.h"
#include "muster/ops/indexing/nd_indices.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

enum class Combine { kUpdate, kAdd, kSubtract, kMin, kMax };

template <typename T>
T CombineValues(T a, T b, bool subtract) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_integral_v<T>) {
    // Wraps around.
    const auto x = static_cast<std::make_unsigned_t<T>>(a);
    const auto y = static_cast<std::make_unsigned_t<T>>(b);
    return static_cast<T>(subtract ? x - y : x + y);
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    const float x = static_cast<float>(a);
    const float y = static_cast<float>(b);
    return T(subtract ? x - y : x + y);
  } else {
    return subtract ? a - b : a + b;
  }
}

template <typename T>
void CombineRows(char* output, const char* updates, absl::Span<const int64_t> slices, int64_t inner,
                 Combine combine) {
  T* to = reinterpret_cast<T*>(output);
  const T* from = reinterpret_cast<const T*>(updates);
  for (size_t i = 0; i < slices.size(); ++i) {
    if (slices[i] < 0) continue;
    T* row = to + slices[i] * inner;
    const T* update = from + static_cast<int64_t>(i) * inner;
    for (int64_t j = 0; j < inner; ++j) {
      if constexpr (std::is_same_v<T, std::string>) {
        row[j] += update[j];
      } else {
        row[j] = CombineValues(row[j], update[j], combine == Combine::kSubtract);
      }
    }
  }
}

template <typename T>
void LimitRows(char* output, const char* updates, absl::Span<const int64_t> slices, int64_t inner,
               Combine combine) {
  T* to = reinterpret_cast<T*>(output);
  const T* from = reinterpret_cast<const T*>(updates);
  for (size_t i = 0; i < slices.size(); ++i) {
    if (slices[i] < 0) continue;
    T* row = to + slices[i] * inner;
    const T* update = from + static_cast<int64_t>(i) * inner;
    for (int64_t j = 0; j < inner; ++j) {
      const auto old = static_cast<Compute<T>>(row[j]);
      const auto given = static_cast<Compute<T>>(update[j]);
      if (combine == Combine::kMin ? given < old : given > old) row[j] = update[j];
    }
  }
}

using CombineFunction = void (*)(char*, const char*, absl::Span<const int64_t>, int64_t, Combine);

void Scatter(Combine combine, CombineFunction add, Tensor& output, const Tensor& updates,
             absl::Span<const int64_t> slices, int64_t inner) {
  if (combine != Combine::kUpdate) {
    add(output.raw(), updates.raw(), slices, inner, combine);
    return;
  }
  const int64_t row_bytes = inner * static_cast<int64_t>(DTypeSize(output.dtype()));
  for (size_t i = 0; i < slices.size(); ++i) {
    if (slices[i] < 0) continue;
    CopyElements(output.dtype(), updates.raw() + static_cast<int64_t>(i) * row_bytes,
                 output.raw() + slices[i] * row_bytes, inner);
  }
}

// How ScatterNd and TensorScatter* say that shapes do not fit.
absl::Status OuterMismatch(const Tensor& indices, const Tensor& updates, bool into_tensor) {
  const std::string indices_text = indices.shape().ToString();
  const std::string updates_text = updates.shape().ToString();
  if (into_tensor) {
    return InvalidArgument("Outer dimensions of indices and update must match. Indices shape: ",
                           indices_text, ", updates shape:", updates_text);
  }
  const int outer = indices.rank() - 1;
  return InvalidArgument("Dimensions [0,", outer, ") of indices[shape=", indices_text,
                         "] must match dimensions [0,", outer, ") of updates[shape=", updates_text,
                         "]");
}

absl::Status InnerMismatch(const Tensor& indices, const Tensor& updates, const Shape& shape,
                           bool into_tensor) {
  const std::string updates_text = updates.shape().ToString();
  if (into_tensor) {
    return InvalidArgument(
        "Inner dimensions of output shape must match inner dimensions of updates shape. Output: ",
        shape.ToString(), " updates: ", updates_text);
  }
  const int outer = indices.rank() - 1;
  return InvalidArgument("Dimensions [", indices.dim(outer), ",", shape.rank(),
                         ") of input[shape=", shape.ToString(), "] must match dimensions [", outer,
                         ",", updates.rank(), ") of updates[shape=", updates_text, "]");
}

// The ranks and sizes of indices and updates against the output; gives the elements per slice.
absl::StatusOr<int64_t> CheckScatter(const Tensor& indices, const Tensor& updates,
                                     const Shape& shape, bool into_tensor) {
  if (indices.rank() < 1) {
    return InvalidArgument("Indices shape must have rank at least one. Found:",
                           indices.shape().ToString());
  }
  if (updates.rank() < 1) {
    return InvalidArgument("Updates shape must have rank at least one. Found:",
                           updates.shape().ToString());
  }
  const int outer = indices.rank() - 1;
  for (int i = 0; i < outer; ++i) {
    if (i >= updates.rank() || updates.dim(i) != indices.dim(i))
      return OuterMismatch(indices, updates, into_tensor);
  }
  const int64_t depth = indices.dim(outer);
  bool fits = depth <= shape.rank() && shape.rank() - depth == updates.rank() - outer;
  for (int i = 0; fits && i < shape.rank() - depth; ++i) {
    fits = updates.dim(outer + i) == shape.dim(static_cast<int>(depth) + i);
  }
  if (!fits) return InnerMismatch(indices, updates, shape, into_tensor);
  if (shape.num_elements() == 0 && (indices.num_elements() > 0 || updates.num_elements() > 0)) {
    return InvalidArgument("Indices and updates specified for empty output.  indices shape: ",
                           indices.shape().ToString());
  }
  return shape.ElementsIn(static_cast<int>(depth), shape.rank());
}

struct NewScatter {
  Shape shape;
  int64_t inner;  // elements per slice
};
absl::StatusOr<NewScatter> CheckScatterNd(const KernelContext& c) {
  const Tensor& indices = c.input(0);
  const Tensor& updates = c.input(1);
  if (!c.input(2).shape().is_vector()) return InvalidArgument("Shape must be a vector");
  ASSIGN_OR_RETURN(const Dims dims, IntegerVector(c.input(2), "shape"));
  for (int64_t dim : dims) {
    if (dim < 0) return InvalidArgument("Dimension ", dim, " must be >= 0");
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(const int64_t inner,
                   CheckScatter(indices, updates, shape, /*into_tensor=*/false));
  return NewScatter{shape, inner};
}

template <typename T>
absl::Status RunScatterNd(KernelContext& c) {
  const Tensor& indices = c.input(0);
  const Tensor& updates = c.input(1);
  ASSIGN_OR_RETURN(const NewScatter scatter, CheckScatterNd(c));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, scatter.shape));
  if constexpr (!std::is_same_v<T, std::string>) {
    if (output->size_bytes() > 0) std::memset(output->raw(), 0, output->size_bytes());
  }
  if (indices.num_elements() == 0 && updates.num_elements() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> slices,
                   FlatSlices(indices, scatter.shape, "shape", c.node()));
  Scatter(Combine::kAdd, CombineRows<T>, *output, updates, slices, scatter.inner);
  return absl::OkStatus();
}

// Into a copy of input 0, or into its own memory where it has no other owner.
absl::Status RunTensorScatter(KernelContext& c, Combine combine, CombineFunction add) {
  const Tensor indices = c.input(1);
  const Tensor updates = c.input(2);
  const Shape shape = c.input(0).shape();
  ASSIGN_OR_RETURN(const int64_t inner,
                   CheckScatter(indices, updates, shape, /*into_tensor=*/true));
  std::vector<int64_t> slices;
  if (indices.num_elements() > 0 || updates.num_elements() > 0) {
    ASSIGN_OR_RETURN(slices, FlatSlices(indices, shape, "shape", c.node()));
  }
  Tensor output = c.TakeInput(0);
  if (!output.exclusive()) {
    Tensor copy;
    ASSIGN_OR_RETURN(copy, c.AllocateTemporary(output.dtype(), shape));
    CopyElements(output.dtype(), output.raw(), copy.raw(), output.num_elements());
    output = std::move(copy);
  }
  Scatter(combine, add, output, updates, slices, inner);
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

absl::Status RunTensorUpdate(KernelContext& c) {
  return RunTensorScatter(c, Combine::kUpdate, nullptr);
}
template <typename T>
absl::Status RunTensorAdd(KernelContext& c) {
  return RunTensorScatter(c, Combine::kAdd, CombineRows<T>);
}
template <typename T>
absl::Status RunTensorSub(KernelContext& c) {
  return RunTensorScatter(c, Combine::kSubtract, CombineRows<T>);
}

template <typename T>
absl::Status RunTensorMin(KernelContext& c) {
  return RunTensorScatter(c, Combine::kMin, LimitRows<T>);
}
template <typename T>
absl::Status RunTensorMax(KernelContext& c) {
  return RunTensorScatter(c, Combine::kMax, LimitRows<T>);
}

class GpuScatterNd : public GpuKernel {
 public:
  GpuScatterNd(DType dtype, DType index) : scatterer_(*this, "ScatterAdd", dtype, index) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const NewScatter scatter, CheckScatterNd(c));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, scatter.shape));
    RETURN_IF_ERROR(gpu().Fill(output->raw(), 0, output->size_bytes()));
    return scatterer_.Scatter(c.input(0), c.input(1), scatter.inner, *output);
  }

 private:
  const GpuNdScatterer scatterer_;
};

class GpuTensorScatter : public GpuKernel {
 public:
  GpuTensorScatter(const char* how, DType dtype, DType index)
      : scatterer_(*this, how, dtype, index) {}
  absl::Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    ASSIGN_OR_RETURN(const int64_t inner,
                     CheckScatter(c.input(1), c.input(2), shape, /*into_tensor=*/true));
    Tensor output = c.TakeInput(0);
    if (!output.exclusive()) {
      ASSIGN_OR_RETURN(Tensor copy, c.AllocateTemporary(output.dtype(), shape));
      RETURN_IF_ERROR(gpu().CopyWithin(copy.raw(), output.raw(), output.size_bytes()));
      output = std::move(copy);
    }
    RETURN_IF_ERROR(scatterer_.Scatter(c.input(1), c.input(2), inner, output));
    c.SetOutput(0, std::move(output));
    return absl::OkStatus();
  }

 private:
  const GpuNdScatterer scatterer_;
};

// `make(dtype, index)` gives a kernel.
template <typename Make>
void DefineScatterOnGpu(OpBuilder& op, const std::vector<DType>& dtypes, Make make) {
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    op.GpuTypes("T", dtypes, [=](DType dtype) { return [=] { return make(dtype, index); }; }, {},
                {{"Tindices", index}});
  }
}

void DefineTensorScatterOnGpu(OpBuilder& op, const char* how, const std::vector<DType>& dtypes) {
  DefineScatterOnGpu(op, dtypes, [how](DType dtype, DType index) {
    return std::make_unique<GpuTensorScatter>(how, dtype, index);
  });
}

std::vector<DType> GpuScatterDTypes() {
  return {DType::kHalf,  DType::kBfloat16,  DType::kFloat,     DType::kDouble,
          DType::kInt32, DType::kComplex64, DType::kComplex128};
}

absl::Status CheckStatic(const PartialShape& input, const PartialShape& indices,
                         const PartialShape& updates) {
  if (!input.known_rank() || !indices.known_rank() || !updates.known_rank() || indices.rank() < 1) {
    return absl::OkStatus();
  }
  const int outer = indices.rank() - 1;
  const PartialShape outer_indices = ShapeContext::Subshape(indices, 0, outer);
  if (updates.rank() < outer) {
    return InvalidArgument("Dimensions [0,", outer, ") of indices[shape=", indices.ToString(),
                           "] = ", outer_indices.ToString(), " must match dimensions [0,", outer,
                           ") of updates[shape=", updates.ToString(), "]");
  }
  const PartialShape outer_updates = ShapeContext::Subshape(updates, 0, outer);
  if (auto merged = outer_indices.Merge(outer_updates); !merged.ok()) {
    return InvalidArgument("Dimensions [0,", outer, ") of indices[shape=", indices.ToString(),
                           "] = ", outer_indices.ToString(), " must match dimensions [0,", outer,
                           ") of updates[shape=", updates.ToString(),
                           "] = ", outer_updates.ToString(), ": ", merged.status().message());
  }
  const int64_t depth = indices[outer];
  if (depth < 0 || depth > input.rank()) return absl::OkStatus();
  const PartialShape inner_input = ShapeContext::Subshape(input, static_cast<int>(depth));
  const PartialShape inner_updates = ShapeContext::Subshape(updates, outer);
  if (auto merged = inner_input.Merge(inner_updates); !merged.ok()) {
    return InvalidArgument("Dimensions [", depth, ",", input.rank(),
                           ") of input[shape=", input.ToString(), "] = ", inner_input.ToString(),
                           " must match dimensions [", outer, ",", updates.rank(),
                           ") of updates[shape=", updates.ToString(),
                           "] = ", inner_updates.ToString(), ": ", merged.status().message());
  }
  return absl::OkStatus();
}

absl::Status ScatterNdShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRankAtLeast(c.input(0), 1));
  ASSIGN_OR_RETURN(const PartialShape updates, c.WithRankAtLeast(c.input(1), 1));
  ASSIGN_OR_RETURN(const PartialShape output, c.InputAsShape(2));
  RETURN_IF_ERROR(CheckStatic(output, indices, updates));
  c.SetOutput(0, output);
  return absl::OkStatus();
}

absl::Status TensorScatterShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRankAtLeast(c.input(1), 1));
  ASSIGN_OR_RETURN(const PartialShape updates, c.WithRankAtLeast(c.input(2), 1));
  RETURN_IF_ERROR(CheckStatic(c.input(0), indices, updates));
  c.SetOutput(0, c.input(0));
  return absl::OkStatus();
}

absl::Status ScatterNdGradient(GradientContext& c) {
  c.SetDx(1, c.Op("GatherNd", {c.dy(), c.input(0)}));
  return absl::OkStatus();
}

absl::Status UpdateGradient(GradientContext& c) {
  c.SetDx(2, c.Op("GatherNd", {c.dy(), c.input(1)}));
  const Output kept = c.Op("Identity", {c.dy()});
  c.SetDx(0, c.Op("TensorScatterUpdate", {kept, c.input(1), EmitZerosLike(c.scope(), c.input(2))}));
  return absl::OkStatus();
}

absl::Status AddGradient(GradientContext& c) {
  c.SetDx(2, c.Op("GatherNd", {c.dy(), c.input(1)}));
  c.SetDx(0, c.Op("Identity", {c.dy()}));
  return absl::OkStatus();
}

absl::Status SubtractGradient(GradientContext& c) {
  const Output updates = c.Op("GatherNd", {c.dy(), c.input(1)});
  c.SetDx(0, c.Op("Identity", {c.dy()}));
  c.SetDx(2, c.Op("Neg", {updates}));
  return absl::OkStatus();
}

absl::Status NonAliasingAddGradient(GradientContext& c) {
  c.SetDx(2, c.Op("GatherNd", {c.dy(), c.input(1)}));
  c.SetDx(0, c.dy());
  return absl::OkStatus();
}

void DefineTensorScatter(OpBuilder& op, const char* indices) {
  op.Attr("T: type")
      .Attr(indices)
      .Attr("bad_indices_policy: string = ''")
      .Input("tensor: T")
      .Input("indices: Tindices")
      .Input("updates: T")
      .Output("output: T")
      .Shape(TensorScatterShape);
}

}  // namespace

DEFINE_OP(ScatterNd) {
  op.Attr("T: type")
      .Attr("Tindices: {int16, int32, int64}")
      .Attr2x("bad_indices_policy: string = ''")
      .Input("indices: Tindices")
      .Input("updates: T")
      .Input("shape: Tindices")
      .Output("output: T")
      .Doc("Zeros with the updates added at index tuples; repeated tuples accumulate.")
      .Shape(ScatterNdShape)
      .Gradient(ScatterNdGradient)
      .HostMemory({"shape"})
      .CpuTypes<Join<Numbers, Types<bool, std::string>>>(
          "T", []<typename T>() { return Stateless(RunScatterNd<T>); });
  DefineScatterOnGpu(op, GpuScatterDTypes(), [](DType dtype, DType index) {
    return std::make_unique<GpuScatterNd>(dtype, index);
  });
}

DEFINE_OP(TensorScatterUpdate) {
  DefineTensorScatter(op, "Tindices: {int16, int32, int64, uint16}");
  op.Doc("The tensor with slices at index tuples replaced by the updates.")
      .Gradient(UpdateGradient)
      .CpuDTypes("T", AllDTypes(), Stateless(RunTensorUpdate));
  DefineTensorScatterOnGpu(op, "ScatterUpdate", {DType::kFloat, DType::kDouble});
}

DEFINE_OP(TensorScatterAdd) {
  DefineTensorScatter(op, "Tindices: {int32, int64}");
  op.Doc("The tensor with the updates added to slices at index tuples.")
      .Gradient(AddGradient)
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunTensorAdd<T>); });
  DefineTensorScatterOnGpu(op, "ScatterAdd", {DType::kFloat, DType::kDouble});
}

DEFINE_OP(TensorScatterSub) {
  DefineTensorScatter(op, "Tindices: {int32, int64}");
  op.Doc("The tensor with the updates subtracted from slices at index tuples.")
      .Gradient(SubtractGradient)
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunTensorSub<T>); });
  DefineTensorScatterOnGpu(op, "ScatterSub", {DType::kFloat, DType::kDouble});
}

DEFINE_OP(TensorScatterMin) {
  DefineTensorScatter(op, "Tindices: {int32, int64}");
  op.Doc("The tensor with slices at index tuples made no greater than the updates.")
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(RunTensorMin<T>); });
}

DEFINE_OP(TensorScatterMax) {
  DefineTensorScatter(op, "Tindices: {int32, int64}");
  op.Doc("The tensor with slices at index tuples made no less than the updates.")
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(RunTensorMax<T>); });
}

DEFINE_OP(ScatterNdNonAliasingAdd) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
        "bfloat16, qint16, quint16, "
        "uint16, complex128, half, uint32, uint64, bool}")
      .Attr("Tindices: {int32, int64}")
      .Attr("bad_indices_policy: string = ''")
      .Input("input: T")
      .Input("indices: Tindices")
      .Input("updates: T")
      .Output("output: T")
      .Doc("The input with the updates added to slices at index tuples.")
      .Shape(TensorScatterShape)
      .Gradient(NonAliasingAddGradient)
      .CpuTypes<Join<Numbers, Types<bool>>>(
          "T", []<typename T>() { return Stateless(RunTensorAdd<T>); });
  DefineTensorScatterOnGpu(op, "ScatterAdd", GpuScatterDTypes());
}

}  // namespace muster
