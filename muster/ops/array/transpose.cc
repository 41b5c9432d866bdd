// Reordering the axes of a tensor.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status TransposeShape(ShapeContext& c) {
  PartialShape input = c.input(0);
  const std::optional<Tensor> perm = c.ConstantInput(1);
  const int64_t length = c.input(1).num_elements();
  if (!input.known_rank() && length < 0 && !perm) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  const int64_t rank =
      input.known_rank() ? input.rank() : (length >= 0 ? length : perm->num_elements());
  if (rank > Shape::kMaxRank) return InvalidArgument("perm has ", rank, " elements");
  // One element could mean a vector or a scalar; both come out as they are.
  if (!input.known_rank() && rank < 2) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(input, c.WithRank(input, static_cast<int>(rank)));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  if (length >= 0 && length != rank)
    return InvalidArgument("Dimension must be ", rank, " but is ", length);
  PartialShape output = PartialShape::OfRank(static_cast<int>(rank));
  if (perm && input.known_rank()) {
    ASSIGN_OR_RETURN(const Dims axes, IntegerValues(*perm));
    for (int i = 0; i < rank; ++i) {
      if (axes[i] >= rank || axes[i] <= -rank) {
        return InvalidArgument("perm dim ", axes[i], " is out of range of input rank ", rank);
      }
      output.Set(i, input.dim(static_cast<int>(axes[i] < 0 ? axes[i] + rank : axes[i])));
    }
  }
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

absl::StatusOr<Dims> CheckedPermutation(const Tensor& perm, int rank) {
  if (perm.rank() != 1)
    return InvalidArgument("perm must be rank 1, got shape ", perm.shape().ToString());
  if (perm.num_elements() != rank) {
    return InvalidArgument("transpose expects a vector of size ", rank,
                           ". But input(1) is a vector of size ", perm.num_elements());
  }
  ASSIGN_OR_RETURN(Dims axes, IntegerValues(perm));
  std::vector<bool> seen(rank, false);
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank)
      return InvalidArgument(axis, " is out of range [0 .. ", rank, ")");
    if (axis < 0) axis += rank;
    seen[axis] = true;
  }
  for (int i = 0; i < rank; ++i) {
    if (!seen[i]) return InvalidArgument(i, " is missing from {", absl::StrJoin(axes, ","), "}.");
  }
  return axes;
}

absl::Status Transpose(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const Dims axes, CheckedPermutation(c.input(1), input.rank()));
  Dims dims;
  for (int64_t axis : axes) dims.push_back(input.dim(static_cast<int>(axis)));
  const Shape shape{absl::Span<const int64_t>(dims)};
  // Axes of size 1 may move without moving any element.
  bool in_order = true;
  int64_t last = -1;
  for (int64_t axis : axes) {
    if (input.dim(static_cast<int>(axis)) == 1) continue;
    in_order = in_order && axis > last;
    last = axis;
  }
  if (in_order) {
    c.SetOutput(0, c.TakeInput(0).Reshaped(shape));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  const Dims from = RowMajorStrides(input.shape().dims()), to = RowMajorStrides(dims);
  StridedBox box;
  for (int i = 0; i < input.rank(); ++i) box.Add(dims[i], from[axes[i]], to[i]);
  return mover.Copy(c, std::move(box), input, *output);
}

absl::StatusOr<Tensor*> TransposedCopy(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const Dims axes, CheckedPermutation(c.input(1), input.rank()));
  Dims dims;
  for (int64_t axis : axes) dims.push_back(input.dim(static_cast<int>(axis)));
  ASSIGN_OR_RETURN(Tensor* const output,
                   c.AllocateOutput(0, Shape(absl::Span<const int64_t>(dims))));
  const Dims from = RowMajorStrides(input.shape().dims()), to = RowMajorStrides(dims);
  StridedBox box;
  for (int i = 0; i < input.rank(); ++i) box.Add(dims[i], from[axes[i]], to[i]);
  RETURN_IF_ERROR(mover.Copy(c, std::move(box), input, *output));
  return output;
}

template <typename T>
absl::Status ConjugateTranspose(KernelContext& c) {
  ASSIGN_OR_RETURN(Tensor* const output, TransposedCopy(c, HostMover()));
  T* const values = output->data<T>();
  c.ParallelFor(output->num_elements(), 1.0, [values](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = std::conj(values[i]);
  });
  return absl::OkStatus();
}

class GpuConjugateTranspose : public GpuKernel {
 public:
  explicit GpuConjugateTranspose(DType dtype)
      : mover_(*this, dtype),
        conjugate_(*this, "array/transpose.cu",
                   absl::StrCat("Conjugate<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(Tensor* const output, TransposedCopy(c, mover_));
    const int64_t count = output->num_elements();
    return conjugate_.LaunchForEach(count, GpuOut(*output), count);
  }

 private:
  const GpuMover mover_;
  const GpuFunction conjugate_;
};

std::vector<DType> GpuTransposeDTypes() {
  return GpuFloatsAnd({DType::kBool, DType::kInt8, DType::kUint8, DType::kInt16, DType::kUint16,
                       DType::kInt32, DType::kInt64});
}

absl::Status TransposeGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Output inverse = c.Op("InvertPermutation", {c.input(1)});
  c.SetDx(0, c.Op("Transpose", {dy, inverse}, {}, "transpose"));
  return absl::OkStatus();
}

// Conjugation is left out where there is nothing to conjugate.
absl::Status ConjugateTransposeGradient(GradientContext& c) {
  const Output dy = c.dy();
  const bool conjugate = IsComplex(c.input(0).base_dtype());
  const Output inverse = c.Op("InvertPermutation", {c.input(1)});
  c.SetDx(0, c.Op(conjugate ? "ConjugateTranspose" : "Transpose", {dy, inverse}, {}, "transpose"));
  return absl::OkStatus();
}

absl::Status VectorShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(c.input(0), 1));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

template <typename T>
absl::Status InvertPermutation(KernelContext& c) {
  const Tensor& input = c.input(0);
  if (input.rank() != 1) return InvalidArgument("invert_permutation expects a 1D vector.");
  const int64_t count = input.num_elements();
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
  T* const inverse = output->data<T>();
  std::fill_n(inverse, count, T{-1});
  for (int64_t i = 0; i < count; ++i) {
    const T value = input.data<T>()[i];
    if (value < 0 || value >= count) return InvalidArgument(value, " is not between 0 and ", count);
    if (inverse[value] != -1) return InvalidArgument(value, " is duplicated in the input.");
    inverse[value] = static_cast<T>(i);
  }
  return absl::OkStatus();
}

std::vector<DType> NotComplexDTypes() {
  std::vector<DType> dtypes = AllDTypes();
  std::erase_if(dtypes, IsComplex);
  return dtypes;
}

DEFINE_OP(Transpose) {
  op.Attr("T: type")
      .Attr("Tperm: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Input("perm: Tperm")
      .Output("y: T")
      .Doc("A tensor with its axes reordered: axis i of the result is axis perm[i] of `x`.")
      .Shape(TransposeShape)
      .Gradient(TransposeGradient)
      .HostMemory({"perm"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Transpose>>())
      .GpuTypes("T", GpuTransposeDTypes(), MovesOnGpu<MoveBy<Transpose>>)
      .GpuTypes("T", {DType::kComplex64, DType::kComplex128}, MovesOnGpu<MoveBy<Transpose>>);
}

DEFINE_OP(ConjugateTranspose) {
  op.Attr("T: type")
      .Attr("Tperm: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Input("perm: Tperm")
      .Output("y: T")
      .Doc("A tensor with its axes reordered and its elements conjugated.")
      .Shape(TransposeShape)
      .Gradient(ConjugateTransposeGradient)
      .HostMemory({"perm"})
      .CpuDTypes("T", NotComplexDTypes(), MovesOnHost<MoveBy<Transpose>>())
      .CpuTypes<Complexes>("T", []<typename T>() { return Stateless(ConjugateTranspose<T>); })
      .GpuTypes("T", GpuTransposeDTypes(), MovesOnGpu<MoveBy<Transpose>>)
      .GpuTypes("T", {DType::kComplex64, DType::kComplex128}, [](DType dtype) {
        return [dtype] { return std::make_unique<GpuConjugateTranspose>(dtype); };
      });
}

DEFINE_OP(InvertPermutation) {
  op.Attr("T: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Output("y: T")
      .Doc("The permutation that undoes `x`: y[x[i]] = i.")
      .Shape(VectorShape)
      .NoGradient("indices have no gradient")
      .HostMemory({"x", "y"})
      .CpuTypes<Indices>("T", []<typename T>() { return Stateless(InvertPermutation<T>); })
      .GpuOnHost("T", {DType::kInt32, DType::kInt64});
}

}  // namespace
}  // namespace muster
