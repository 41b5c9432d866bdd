// What the kernels of Fourier transforms for CPUs and GPUs share.
#pragma once

#include "muster/ops/op.h"
#include "muster/ops/signal/cufft.h"

namespace muster {

// One op: FFT2D is {kComplex, true, 2}.
struct FourierOp {
  FourierKind kind = FourierKind::kComplex;
  bool is_forward = true;
  int rank = 1;
};

// The sizes of one run, of blocks of `rank` dims.
struct FourierSizes {
  int64_t batch = 0;
  Dims in_dims, lengths, out_dims;
  Shape output;

  int64_t in_size() const { return Product(in_dims); }
  int64_t out_size() const { return Product(out_dims); }
  // The numbers of one transform.
  int64_t points() const { return Product(lengths); }
  // The dims of what the transform takes of a block: half of the inner one before a transform to
  // real numbers.
  Dims TakenDims(FourierKind kind) const;

 private:
  static int64_t Product(const Dims& dims);
};
absl::StatusOr<FourierSizes> MeasureFourier(KernelContext& c, const FourierOp& op);
// Whether real and complex numbers are of one width.
absl::Status CheckFourierTypes(const FourierOp& op, DType in, DType out);

// Kernels for GPUs (fft_gpu.cc).
void AddGpuFourier(OpBuilder& op, const FourierOp& fourier);

}  // namespace muster
