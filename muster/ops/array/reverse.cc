// Reversing and rotating along axes.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/indexing/moving.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status CopyReversed(KernelContext& c, const Mover& mover, const Tensor& input,
                          const std::vector<bool>& reversed) {
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
  const Dims strides = RowMajorStrides(input.shape().dims());
  StridedBox box;
  for (int i = 0; i < input.rank(); ++i) {
    box.Add(input.dim(i), reversed[i] ? -strides[i] : strides[i], strides[i]);
    if (reversed[i]) box.from_offset += (input.dim(i) - 1) * strides[i];
  }
  return mover.Copy(c, std::move(box), input, *output);
}

absl::Status ReverseV2Shape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape axes_shape, c.WithRank(c.input(1), 1));
  const PartialShape& input = c.input(0);
  const std::optional<Tensor> axes_tensor = c.ConstantInput(1);
  if (axes_tensor && input.known_rank()) {
    ASSIGN_OR_RETURN(const Dims axes, IntegerValues(*axes_tensor));
    std::vector<bool> seen(input.rank(), false);
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t axis = axes[i];
      const int64_t canonical = axis < 0 ? axis + input.rank() : axis;
      if (canonical < 0 || canonical >= input.rank()) {
        return InvalidArgument("'axis'[", i, "] = ", axis, " is out of valid range [", 0, ", ",
                               input.rank() - 1);
      }
      if (seen[canonical]) return InvalidArgument("axis ", canonical, " specified more than once.");
      seen[canonical] = true;
    }
  }
  c.SetOutput(0, input);
  return absl::OkStatus();
}

absl::Status ReverseV2(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  const Tensor& axes_tensor = c.input(1);
  if (axes_tensor.rank() != 1) {
    return InvalidArgument("'dims' must be 1-dimension, not ", axes_tensor.rank());
  }
  ASSIGN_OR_RETURN(const Dims axes, IntegerValues(axes_tensor));
  std::vector<bool> reversed(input.rank(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + input.rank() : axes[i];
    if (axis < 0 || axis >= input.rank()) {
      return InvalidArgument("'axis'[", i, "] = ", axes[i], " is out of valid range [", 0, ", ",
                             input.rank() - 1);
    }
    if (reversed[axis]) return InvalidArgument("axis ", axis, " specified more than once.");
    reversed[axis] = true;
  }
  return CopyReversed(c, mover, input, reversed);
}

absl::Status ReverseShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape dims, c.WithRank(c.input(1), 1));
  PartialShape input = c.input(0);
  if (dims.known_rank() && dims.dim(0) >= 0) {
    if (dims.dim(0) > Shape::kMaxRank)
      return InvalidArgument("dims has ", dims.dim(0), " elements");
    ASSIGN_OR_RETURN(input, c.WithRank(input, static_cast<int>(dims.dim(0))));
  }
  c.SetOutput(0, std::move(input));
  return absl::OkStatus();
}

absl::Status Reverse(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  const Tensor& dims = c.input(1);
  if (dims.rank() != 1) return InvalidArgument("'dims' must be 1-dimension, not ", dims.rank());
  if (dims.num_elements() != input.rank()) {
    return InvalidArgument(
        "'dims' must have the same number of values as 'input' has dimensions. 'input' has ",
        input.rank(), "'dims' has ", dims.num_elements(), " values");
  }
  // As TensorFlow, and unlike ReverseV2.
  if (input.rank() > 0 && input.dim(0) == 0)
    return InvalidArgument("Invalid input first dimension. Found 0.");
  const absl::Span<const bool> flags = dims.values<bool>();
  return CopyReversed(c, mover, input, std::vector<bool>(flags.begin(), flags.end()));
}

absl::Status ReverseV2Gradient(GradientContext& c) {
  c.SetDx(0, c.Op("ReverseV2", {c.dy(), c.input(1)}));
  return absl::OkStatus();
}

absl::Status ReverseGradient(GradientContext& c) {
  c.SetDx(0, c.Op("Reverse", {c.dy(), c.input(1)}));
  return absl::OkStatus();
}

// --- ReverseSequence ---------------------------------------------------------------------------

absl::Status ReverseSequenceShape(ShapeContext& c) {
  PartialShape input = c.input(0);
  ASSIGN_OR_RETURN(const PartialShape lengths, c.WithRank(c.input(1), 1));
  ASSIGN_OR_RETURN(const int64_t seq_dim, c.Attr<int64_t>("seq_dim"));
  ASSIGN_OR_RETURN(const int64_t batch_dim, c.Attr<int64_t>("batch_dim"));
  if (input.known_rank()) {
    if (batch_dim >= input.rank()) {
      return InvalidArgument("batch_dim must be < input rank: ", batch_dim, " vs. ", input.rank());
    }
    if (seq_dim >= input.rank()) {
      return InvalidArgument("seq_dim must be < input rank: ", seq_dim, " vs. ", input.rank());
    }
    const int64_t count = lengths.known_rank() ? lengths.dim(0) : -1;
    if (batch_dim >= 0) {  // otherwise the kernel refuses it
      ASSIGN_OR_RETURN(const int64_t batch,
                       c.MergeDims(input.dim(static_cast<int>(batch_dim)), count));
      input.Set(static_cast<int>(batch_dim), batch);
    }
  }
  c.SetOutput(0, std::move(input));
  return absl::OkStatus();
}

// Attributes, and the checks that need no lengths.
class SequencePlan {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(seq_dim_, setup.Attr<int64_t>("seq_dim"));
    ASSIGN_OR_RETURN(batch_dim_, setup.Attr<int64_t>("batch_dim"));
    return absl::OkStatus();
  }
  absl::Status Check(const Tensor& input, const Tensor& lengths_tensor) const {
    const int rank = input.rank();
    if (lengths_tensor.rank() != 1) {
      return InvalidArgument("seq_lengths must be 1-dim, not ", lengths_tensor.rank());
    }
    if (batch_dim_ == seq_dim_) return InvalidArgument("batch_dim == seq_dim == ", seq_dim_);
    if (seq_dim_ < 0) return InvalidArgument("Invalid seq_dim ", seq_dim_);
    if (batch_dim_ < 0) return InvalidArgument("Invalid batch_dim ", batch_dim_);
    if (seq_dim_ >= rank)
      return InvalidArgument("seq_dim must be < input rank ( ", seq_dim_, " vs. ", rank, ")");
    if (batch_dim_ >= rank)
      return InvalidArgument("batch_dim must be < input rank ( ", batch_dim_, " vs. ", rank, ")");
    if (lengths_tensor.num_elements() != input.dim(batch())) {
      return InvalidArgument("Length of seq_lengths != input.dims(", batch(), "), (",
                             lengths_tensor.num_elements(), " vs. ", input.dim(batch()), ")");
    }
    return absl::OkStatus();
  }
  // Axes of the input, once it is checked.
  int seq() const { return static_cast<int>(seq_dim_); }
  int batch() const { return static_cast<int>(batch_dim_); }

 private:
  int64_t seq_dim_ = 0;
  int64_t batch_dim_ = 0;
};

class ReverseSequenceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return plan_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    RETURN_IF_ERROR(plan_.Check(input, c.input(1)));
    const int rank = input.rank(), seq = plan_.seq(), batch = plan_.batch();
    ASSIGN_OR_RETURN(const Dims lengths, IntegerValues(c.input(1)));
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i] < 0) return InvalidArgument("seq_lens(", i, ") < 0");
      if (lengths[i] > input.dim(seq))
        return InvalidArgument("seq_lens(", i, ") > input.dims(", seq, ")");
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    const Dims strides = RowMajorStrides(input.shape().dims());
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) * strides[batch];
      StridedBox reversed, straight;
      for (int k = 0; k < rank; ++k) {
        if (k == batch) continue;
        reversed.Add(k == seq ? lengths[i] : input.dim(k), k == seq ? -strides[k] : strides[k],
                     strides[k]);
        straight.Add(k == seq ? input.dim(k) - lengths[i] : input.dim(k), strides[k], strides[k]);
      }
      reversed.from_offset = row + (lengths[i] - 1) * strides[seq];
      reversed.to_offset = row;
      straight.from_offset = straight.to_offset = row + lengths[i] * strides[seq];
      CopyBox(c, input.dtype(), std::move(reversed), input.raw(), output->raw());
      CopyBox(c, input.dtype(), std::move(straight), input.raw(), output->raw());
    }
    return absl::OkStatus();
  }

 private:
  SequencePlan plan_;
};

// The struct of reverse.cu.
struct SequenceSizes {
  int64_t outer, first, middle, second, inner;
  bool batch_is_first;
};

class GpuReverseSequence : public GpuKernel {
 public:
  GpuReverseSequence(DType dtype, DType length)
      : run_(*this, "array/reverse.cu",
             absl::StrCat("ReverseSequence<", GpuWordName(DTypeSize(dtype)), ", ",
                          GpuTypeName(length), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return plan_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(plan_.Check(input, c.input(1)));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    const int first = std::min(plan_.batch(), plan_.seq());
    const int second = std::max(plan_.batch(), plan_.seq());
    const Shape& shape = input.shape();
    SequenceSizes sizes{};
    sizes.outer = shape.ElementsIn(0, first);
    sizes.first = shape.dim(first);
    sizes.middle = shape.ElementsIn(first + 1, second);
    sizes.second = shape.dim(second);
    sizes.inner = shape.ElementsIn(second + 1, shape.rank());
    sizes.batch_is_first = plan_.batch() == first;
    if (shape.num_elements() == 0) return absl::OkStatus();
    return run_.Launch(GridForRows(run_, shape.ElementsIn(0, second + 1), sizes.inner),
                       GpuIn(input), GpuIn(c.input(1)), GpuOut(*output), sizes);
  }

 private:
  SequencePlan plan_;
  const GpuFunction run_;
};

absl::Status ReverseSequenceGradient(GradientContext& c) {
  c.SetDx(0, c.Op("ReverseSequence", {c.dy(), c.input(1)},
                  {{"seq_dim", c.Attr<int64_t>("seq_dim")},
                   {"batch_dim", c.Attr<int64_t>("batch_dim")}}));
  return absl::OkStatus();
}

// --- Roll --------------------------------------------------------------------------------------

absl::Status RollShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRankAtLeast(c.input(0), 1).status());
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(1), 1).status());
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(2), 1).status());
  RETURN_IF_ERROR(c.Merge(c.input(1), c.input(2)).status());
  c.SetOutput(0, c.input(0));
  return absl::OkStatus();
}

absl::Status Roll(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  const Tensor& shift_tensor = c.input(1);
  const Tensor& axis_tensor = c.input(2);
  const int rank = input.rank();
  if (rank < 1) return InvalidArgument("input must be 1-D or higher");
  if (shift_tensor.rank() > 1) {
    return InvalidArgument("shift must be a scalar or a 1-D vector. Found: ",
                           shift_tensor.shape().ToString());
  }
  if (axis_tensor.rank() > 1) {
    return InvalidArgument("axis must be a scalar or a 1-D vector. Found: ",
                           axis_tensor.shape().ToString());
  }
  if (shift_tensor.shape() != axis_tensor.shape()) {
    return InvalidArgument("shift and axis must have the same size");
  }
  ASSIGN_OR_RETURN(const Dims shifts, IntegerValues(shift_tensor));
  ASSIGN_OR_RETURN(const Dims axes, IntegerValues(axis_tensor));
  // Shifts along the same axis add up.
  Dims total(rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank) return InvalidArgument("axis ", axes[i], " is out of range");
    const int64_t size = std::max<int64_t>(input.dim(static_cast<int>(axis)), 1);
    total[axis] = (total[axis] + (shifts[i] % size + size) % size) % size;
  }
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
  if (input.num_elements() == 0) return absl::OkStatus();
  const Dims strides = RowMajorStrides(input.shape().dims());
  Dims rolled;
  for (int i = 0; i < rank; ++i) {
    if (total[i] != 0) rolled.push_back(i);
  }
  if (rolled.size() > 20) return InvalidArgument("Roll along ", rolled.size(), " axes");
  // Each rolled axis falls into two parts that change places: one box per combination.
  std::vector<BoxCopy> copies;
  for (uint64_t parts = 0; parts < (uint64_t{1} << rolled.size()); ++parts) {
    StridedBox box;
    size_t next = 0;
    for (int i = 0; i < rank; ++i) {
      int64_t size = input.dim(i);
      if (total[i] != 0) {
        const bool wraps = ((parts >> next++) & 1) != 0;
        const int64_t head = input.dim(i) - total[i];
        size = wraps ? total[i] : head;
        box.from_offset += (wraps ? head : 0) * strides[i];
        box.to_offset += (wraps ? 0 : total[i]) * strides[i];
      }
      box.Add(size, strides[i], strides[i]);
    }
    copies.push_back({std::move(box), input.raw(), output->raw()});
  }
  return mover.Copy(c, input.dtype(), std::move(copies));
}

absl::Status RollGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Output back = c.Op("Neg", {c.input(1)});
  c.SetDx(0, c.Op("Roll", {dy, back, c.input(2)}));
  return absl::OkStatus();
}

std::vector<DType> GpuReverseDTypes() {
  return GpuFloatsAnd(
      {DType::kBool, DType::kInt8, DType::kUint8, DType::kComplex64, DType::kComplex128});
}

DEFINE_OP(ReverseV2) {
  op.Attr("Tidx: {int32, int64} = DT_INT32")
      .Attr(
          "T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, half, "
          "float, double, "
          "complex64, complex128, string}")
      .Input("tensor: T")
      .Input("axis: Tidx")
      .Output("output: T")
      .Doc("A tensor reversed along the given axes.")
      .Shape(ReverseV2Shape)
      .Gradient(ReverseV2Gradient)
      .HostMemory({"axis"})
      .Cpu(MovesOnHost<MoveBy<ReverseV2>>())
      .Gpu(MovesOnHost<MoveBy<ReverseV2>>(), {{"T", DType::kInt32}}, {"tensor", "output"})
      .GpuTypes("T", GpuReverseDTypes(), MovesOnGpu<MoveBy<ReverseV2>>);
}

DEFINE_OP(Reverse) {
  op.Attr(
        "T: {uint8, int8, uint16, int16, uint32, int32, uint64, int64, bool, bfloat16, half, "
        "float, double, "
        "complex64, complex128, string}")
      .Input("tensor: T")
      .Input("dims: bool")
      .Output("output: T")
      .Doc("A tensor reversed along the axes whose flag is set.")
      .Shape(ReverseShape)
      .Gradient(ReverseGradient)
      .HostMemory({"dims"})
      .Cpu(MovesOnHost<MoveBy<Reverse>>())
      .Gpu(MovesOnHost<MoveBy<Reverse>>(), {{"T", DType::kInt32}}, {"tensor", "output"})
      .GpuTypes("T", GpuReverseDTypes(), MovesOnGpu<MoveBy<Reverse>>);
}

DEFINE_OP(ReverseSequence) {
  op.Attr("seq_dim: int")
      .Attr("batch_dim: int = 0")
      .Attr("T: type")
      .Attr("Tlen: {int32, int64} = DT_INT64")
      .Input("input: T")
      .Input("seq_lengths: Tlen")
      .Output("output: T")
      .Doc("Sequences of different lengths, each reversed up to its own length.")
      .Shape(ReverseSequenceShape)
      .Gradient(ReverseSequenceGradient)
      .CpuDTypes("T", AllDTypes(), New<ReverseSequenceKernel>());
  for (const DType length : {DType::kInt32, DType::kInt64}) {
    op.GpuTypes("T", GpuFloatsAnd({DType::kBool}),
                [length](DType dtype) {
                  return [=] { return std::make_unique<GpuReverseSequence>(dtype, length); };
                },
                {}, {{"Tlen", length}});
  }
}

DEFINE_OP(Roll) {
  op.Attr("T: type")
      .Attr("Tshift: {int32, int64}")
      .Attr("Taxis: {int32, int64}")
      .Input("input: T")
      .Input("shift: Tshift")
      .Input("axis: Taxis")
      .Output("output: T")
      .Doc("A tensor rotated along the given axes.")
      .Shape(RollShape)
      .Gradient(RollGradient)
      .HostMemory({"shift", "axis"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Roll>>())
      .GpuTypes("T",
                GpuFloatsAnd({DType::kInt32, DType::kInt64, DType::kComplex64, DType::kComplex128}),
                MovesOnGpu<MoveBy<Roll>>);
}

}  // namespace
}  // namespace muster
