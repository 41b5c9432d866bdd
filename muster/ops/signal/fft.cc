// FFT, IFFT, RFFT, IRFFT over the last one, two or three dims.
#include "muster/ops/signal/fft.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "muster/graph/build/emit.h"
#include "muster/ops/signal/fourier.h"

namespace muster {
namespace {

using Value = FourierPlan::Value;
using Kind = FourierKind;

void Load(const Tensor& from, int64_t at, int64_t count, Value* to) {
  const auto copy = [&](const auto* values) {
    for (int64_t i = 0; i < count; ++i) to[i] = Value(values[at + i]);
  };
  switch (from.dtype()) {
    case DType::kFloat:
      return copy(from.data<float>());
    case DType::kDouble:
      return copy(from.data<double>());
    case DType::kComplex64:
      return copy(from.data<Complex64>());
    default:
      return copy(from.data<Complex128>());
  }
}

void Store(const Value* from, double scale, Tensor& to, int64_t at, int64_t count) {
  switch (to.dtype()) {
    case DType::kFloat:
      for (int64_t i = 0; i < count; ++i) {
        to.data<float>()[at + i] = static_cast<float>(from[i].real() * scale);
      }
      return;
    case DType::kDouble:
      for (int64_t i = 0; i < count; ++i) to.data<double>()[at + i] = from[i].real() * scale;
      return;
    case DType::kComplex64:
      for (int64_t i = 0; i < count; ++i) to.data<Complex64>()[at + i] = Complex64(from[i] * scale);
      return;
    default:
      for (int64_t i = 0; i < count; ++i) to.data<Complex128>()[at + i] = from[i] * scale;
  }
}

// One block of up to three dims. `held` are the dims of the block in memory, `plans` the transforms
// along them; the inner length of a half spectrum differs from that of its transform.
void AlongAxis(std::vector<Value>& block, const Dims& held, int axis, const FourierPlan& plan,
               std::vector<Value>& line, std::vector<Value>& workspace) {
  int64_t inner = 1;
  for (int i = axis + 1; i < static_cast<int>(held.size()); ++i) inner *= held[i];
  const int64_t length = held[axis];
  const int64_t outer = static_cast<int64_t>(block.size()) / (inner * length);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      Value* const first = block.data() + o * length * inner + i;
      if (inner == 1) {
        plan.Run(first, workspace);
        continue;
      }
      line.resize(static_cast<size_t>(length));
      for (int64_t k = 0; k < length; ++k) line[k] = first[k * inner];
      plan.Run(line.data(), workspace);
      for (int64_t k = 0; k < length; ++k) first[k * inner] = line[k];
    }
  }
}

absl::Status ReadLengths(KernelContext& c, const FourierOp& op, FourierSizes& sizes) {
  const Tensor& given = c.input(1);
  if (given.rank() != 1 || given.dim(0) != op.rank)
    return InvalidArgument("fft_length must have shape [", op.rank, "]");
  const int first_axis = c.input(0).rank() - op.rank;
  for (int i = 0; i < op.rank; ++i) {
    const int64_t length = given.data<int32_t>()[i];
    if (length < 0) return InvalidArgument("fft_length[", i, "] must >= 0, but got: ", length);
    const bool inner = i == op.rank - 1;
    const int64_t needed = !op.is_forward && inner ? length / 2 + 1 : length;
    if (sizes.in_dims[i] != 0 && sizes.in_dims[i] < needed) {
      return InvalidArgument("Input dimension ", first_axis + i, " must have length of at least ",
                             needed, " but got: ", sizes.in_dims[i]);
    }
    sizes.lengths[i] = length;
    sizes.out_dims[i] = op.is_forward && inner && length != 0 ? length / 2 + 1 : length;
  }
  return absl::OkStatus();
}

template <Kind kKind, bool kForward, int kRank>
class FourierTransform : public Kernel {
 public:
  static constexpr FourierOp kOp = {kKind, kForward, kRank};

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const FourierSizes sizes, MeasureFourier(c, kOp));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, sizes.output));
    RETURN_IF_ERROR(CheckFourierTypes(kOp, input.dtype(), output->dtype()));
    if (sizes.output.num_elements() == 0) return absl::OkStatus();
    if (input.num_elements() == 0) {
      std::memset(output->raw(), 0, static_cast<size_t>(output->size_bytes()));
      return absl::OkStatus();
    }

    std::vector<std::unique_ptr<FourierPlan>> plans;
    for (const int64_t length : sizes.lengths) {
      plans.push_back(std::make_unique<FourierPlan>(length, !kForward));
    }
    const int64_t in_size = sizes.in_size();
    const int64_t out_size = sizes.out_size();
    const double scale = kForward ? 1.0 : 1.0 / static_cast<double>(sizes.points());
    const auto cost = static_cast<double>(sizes.points()) * 30;
    const Dims taken = sizes.TakenDims(kKind);
    c.ParallelFor(sizes.batch, cost, [&](int64_t begin, int64_t end) {
      std::vector<Value> block;
      std::vector<Value> line;
      std::vector<Value> workspace;
      for (int64_t b = begin; b < end; ++b) {
        LoadBlock(input, b * in_size, sizes.in_dims, taken, block);
        Transform(block, sizes.lengths, taken, plans, line, workspace);
        if (kKind == Kind::kFromReal) KeepHalf(sizes.lengths.back(), sizes.out_dims.back(), block);
        Store(block.data(), scale, *output, b * out_size, out_size);
      }
    });
    return absl::OkStatus();
  }

 private:
  // The corner of the input that the transform takes.
  static void LoadBlock(const Tensor& input, int64_t at, const Dims& in_dims, const Dims& held,
                        std::vector<Value>& block) {
    int64_t count = 1;
    for (const int64_t dim : held) count *= dim;
    block.resize(static_cast<size_t>(count));
    const int64_t row = held.back();
    Dims index(kRank - 1, 0);
    for (int64_t to = 0; to < static_cast<int64_t>(block.size()); to += row) {
      int64_t from = 0;
      for (int i = 0; i + 1 < kRank; ++i) from = (from + index[i]) * in_dims[i + 1];
      Load(input, at + from, row, block.data() + to);
      for (int i = kRank - 2; i >= 0; --i) {
        if (++index[i] < held[i]) break;
        index[i] = 0;
      }
    }
  }

  static void Transform(std::vector<Value>& block, const Dims& lengths, const Dims& held,
                        const std::vector<std::unique_ptr<FourierPlan>>& plans,
                        std::vector<Value>& line, std::vector<Value>& workspace) {
    for (int axis = 0; axis + 1 < kRank; ++axis) {
      AlongAxis(block, held, axis, *plans[axis], line, workspace);
    }
    if (kKind == Kind::kToReal) Mirror(lengths.back(), block);
    AlongAxis(block, lengths, kRank - 1, *plans[kRank - 1], line, workspace);
  }

  // The second half of a spectrum of real numbers is the first one's conjugate, backwards.
  static void Mirror(int64_t length, std::vector<Value>& block) {
    const int64_t half = length / 2 + 1;
    const int64_t rows = static_cast<int64_t>(block.size()) / half;
    std::vector<Value> full(static_cast<size_t>(rows * length));
    for (int64_t r = 0; r < rows; ++r) {
      const Value* const from = block.data() + r * half;
      Value* const to = full.data() + r * length;
      to[0] = from[0].real();
      for (int64_t k = 1; k < half && k < length; ++k) {
        to[k] = 2 * k == length ? Value(from[k].real()) : from[k];
        to[length - k] = std::conj(to[k]);
      }
    }
    block = std::move(full);
  }

  static void KeepHalf(int64_t length, int64_t half, std::vector<Value>& block) {
    const int64_t rows = static_cast<int64_t>(block.size()) / length;
    for (int64_t r = 1; r < rows; ++r) {
      std::copy_n(block.begin() + r * length, half, block.begin() + r * half);
    }
  }
};

}  // namespace

int64_t FourierSizes::Product(const Dims& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

Dims FourierSizes::TakenDims(FourierKind kind) const {
  Dims dims = lengths;
  if (kind == FourierKind::kToReal) dims.back() = dims.back() / 2 + 1;
  return dims;
}

absl::StatusOr<FourierSizes> MeasureFourier(KernelContext& c, const FourierOp& op) {
  const Shape& input = c.input(0).shape();
  if (input.rank() < op.rank) {
    return InvalidArgument("Input must have rank of at least ", op.rank,
                           " but got: ", input.ToString());
  }
  const int batch_rank = input.rank() - op.rank;
  FourierSizes sizes;
  sizes.batch = input.ElementsIn(0, batch_rank);
  sizes.in_dims.assign(input.dims().begin() + batch_rank, input.dims().end());
  sizes.lengths = sizes.out_dims = sizes.in_dims;
  if (op.kind != FourierKind::kComplex) RETURN_IF_ERROR(ReadLengths(c, op, sizes));
  Dims dims(input.dims().begin(), input.dims().begin() + batch_rank);
  dims.insert(dims.end(), sizes.out_dims.begin(), sizes.out_dims.end());
  ASSIGN_OR_RETURN(sizes.output, Shape::Make(dims));
  return sizes;
}

absl::Status CheckFourierTypes(const FourierOp& op, DType in, DType out) {
  if (op.kind == FourierKind::kComplex) return absl::OkStatus();
  const DType real = op.is_forward ? in : out;
  const DType complex = op.is_forward ? out : in;
  if ((real == DType::kDouble) == (complex == DType::kComplex128)) return absl::OkStatus();
  return InvalidArgument("Wrong types for ", op.is_forward ? "forward" : "backward",
                         " real FFT: in=", DTypeName(in), " out=", DTypeName(out));
}

namespace {

template <int kRank>
absl::Status ComplexShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), kRank));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

template <int kRank, bool kForward>
absl::Status RealShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(c.input(0), kRank));
  ASSIGN_OR_RETURN(const PartialShape lengths, c.WithRank(c.input(1), 1));
  if (lengths.dim(0) >= 0 && lengths.dim(0) != kRank) {
    return InvalidArgument("Dimension must be ", kRank, " but is ", lengths.dim(0));
  }
  if (!input.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  const std::optional<Tensor> known = c.ConstantInput(1);
  Dims dims(input.dims().begin(), input.dims().end());
  for (int i = 0; i < kRank; ++i) {
    int64_t dim = -1;
    if (known.has_value() && known->num_elements() == kRank) {
      dim = known->data<int32_t>()[i];
      if (dim < 0) {
        return InvalidArgument("fft_length[", i, "] must >= 0, but got: ", dim);
      }
      if (kForward && i == kRank - 1 && dim != 0) dim = dim / 2 + 1;
    }
    dims[dims.size() - kRank + i] = dim;
  }
  c.SetOutput(0, PartialShape(dims));
  return absl::OkStatus();
}

// The transform is its own transpose: the gradient is the other direction, scaled.
template <int kRank, bool kForward>
absl::Status Differentiate(GradientContext& g) {
  static constexpr const char* kNames[2][3] = {{"IFFT", "IFFT2D", "IFFT3D"},
                                               {"FFT", "FFT2D", "FFT3D"}};
  const Output dy = g.dy();
  const Output shape = g.ShapeOf(dy);
  Output size;
  for (int i = 0; i < kRank; ++i) {
    const Output dim = EmitElement(g.scope(), shape, -1 - i);
    size = i == 0 ? dim : g.Op("Mul", {size, dim});
  }
  const DType type = dy.base_dtype();
  Output factor = g.Op("Cast", {size}, {{"DstT", type}});
  if (!kForward) factor = g.Op("Reciprocal", {factor});
  const Output back = g.Op(kNames[kForward ? 0 : 1][kRank - 1], {dy});
  g.SetDx(0, g.Op("Mul", {back, factor}));
  return g.scope().status();
}

template <int kRank, bool kForward>
void DefineComplex(OpBuilder& op, const char* doc) {
  op.Attr("Tcomplex: {complex64, complex128} = DT_COMPLEX64")
      .Input("input: Tcomplex")
      .Output("output: Tcomplex")
      .Doc(doc)
      .Shape(ComplexShape<kRank>)
      .Gradient(Differentiate<kRank, kForward>)
      .Cpu(New<FourierTransform<Kind::kComplex, kForward, kRank>>());
  AddGpuFourier(op, {Kind::kComplex, kForward, kRank});
}

template <int kRank, bool kForward>
void DefineReal(OpBuilder& op, const char* doc) {
  op.Attr("Treal: {float, double} = DT_FLOAT")
      .Attr("Tcomplex: {complex64, complex128} = DT_COMPLEX64")
      .Input(kForward ? "input: Treal" : "input: Tcomplex")
      .Input("fft_length: int32")
      .Output(kForward ? "output: Tcomplex" : "output: Treal")
      .Doc(doc)
      .Shape(RealShape<kRank, kForward>)
      .HostMemory({"fft_length"})
      .Cpu(New<FourierTransform<kForward ? Kind::kFromReal : Kind::kToReal, kForward, kRank>>());
  AddGpuFourier(op, {kForward ? Kind::kFromReal : Kind::kToReal, kForward, kRank});
}

}  // namespace

DEFINE_OP(FFT) {
  DefineComplex<1, true>(op, "The discrete Fourier transform over the last dim.");
}
DEFINE_OP(IFFT) {
  DefineComplex<1, false>(op, "The inverse of FFT.");
}
DEFINE_OP(FFT2D) {
  DefineComplex<2, true>(op, "The discrete Fourier transform over the last two dims.");
}
DEFINE_OP(IFFT2D) {
  DefineComplex<2, false>(op, "The inverse of FFT2D.");
}
DEFINE_OP(FFT3D) {
  DefineComplex<3, true>(op, "The discrete Fourier transform over the last three dims.");
}
DEFINE_OP(IFFT3D) {
  DefineComplex<3, false>(op, "The inverse of FFT3D.");
}
DEFINE_OP(RFFT) {
  DefineReal<1, true>(op, "FFT of real numbers: the first half of the spectrum.");
}
DEFINE_OP(IRFFT) {
  DefineReal<1, false>(op, "Real numbers from the first half of their spectrum.");
}
DEFINE_OP(RFFT2D) {
  DefineReal<2, true>(op, "FFT2D of real numbers: the first half of the spectrum.");
}
DEFINE_OP(IRFFT2D) {
  DefineReal<2, false>(op, "Real matrices from the first half of their spectrum.");
}
DEFINE_OP(RFFT3D) {
  DefineReal<3, true>(op, "FFT3D of real numbers: the first half of the spectrum.");
}
DEFINE_OP(IRFFT3D) {
  DefineReal<3, false>(op, "Real volumes from the first half of their spectrum.");
}

}  // namespace muster
