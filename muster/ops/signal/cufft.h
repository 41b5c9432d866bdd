// Fourier transforms on a card by cuFFT, which is loaded when the first kernel of one is set up.
#pragma once

#include <memory>

#include "muster/base/status.h"
#include "muster/device/gpu/gpu.h"

namespace muster {

enum class FourierKind : int64_t { kComplex, kFromReal, kToReal };

// `batch` transforms of dense blocks of up to three dims.
struct CufftTransform {
  FourierKind kind = FourierKind::kComplex;
  int64_t in_double = 0;
  int64_t inverse = 0;  // of complex numbers; not scaled
  int64_t rank = 1;
  int64_t lengths[3] = {};
  int64_t batch = 1;
};

// A plan of cuFFT's, which has tables in the card's memory.
class CufftPlan;

// NotFound, naming the library, where cuFFT is missing.
absl::Status PrepareCufft();
// The plan of a transform, whose batch may be any; the ones used last are kept.
absl::StatusOr<std::shared_ptr<const CufftPlan>> FindCufftPlan(Gpu& gpu,
                                                               const CufftTransform& transform);
int64_t WorkspaceBytes(const CufftPlan& plan);
// Adds the transform to the work of the card. Transforms to real numbers use `in` for what is
// between.
absl::Status RunCufft(Gpu& gpu, std::shared_ptr<const CufftPlan> plan, void* in, void* out,
                      void* workspace);

}  // namespace muster
