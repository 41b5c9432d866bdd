#include <optional>

#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/indexing.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/segments/sparse_segment.h"

namespace muster {
namespace {

constexpr char kSparseSegmentFile[] = "segments/sparse_segment.cu";

// As in sparse_segment.cu.
struct SparseSegments {
  const void* indices = nullptr;
  const void* ids = nullptr;
  int64_t count = 0;
  int64_t rows = 0;
  int64_t segments = 0;
  int64_t elements = 0;
  int32_t has_wide_indices = 0, has_wide_ids = 0;
  int32_t how = 0;
  int32_t unused = 0;
};

SparseSegments SegmentsOf(const KernelContext& c, SegmentOp how) {
  SparseSegments segments;
  segments.indices = c.input(1).raw();
  segments.ids = c.input(2).raw();
  segments.count = c.input(2).num_elements();
  segments.elements = c.input(0).shape().ElementsIn(1, c.input(0).rank());
  segments.has_wide_indices = c.input(1).dtype() == DType::kInt64;
  segments.has_wide_ids = c.input(2).dtype() == DType::kInt64;
  segments.how = how == SegmentOp::kSum ? 0 : how == SegmentOp::kMean ? 1 : 2;
  return segments;
}

class GpuSparseSegment final : public GpuKernel {
 public:
  GpuSparseSegment(SegmentOp how, bool has_count, DType dtype)
      : how_(how),
        has_count_(has_count),
        reduce_(*this, kSparseSegmentFile,
                absl::StrCat("ReduceSegments<", GpuTypeName(dtype), ">")) {}
  // Without a count the last id tells: the host waits for it.
  bool is_async() const override { return !has_count_; }
  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckSparseSegments(c));
    return Reduce(c, -1);
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    if (const absl::Status status = CheckSparseSegments(c); !status.ok())
      return std::move(done)(status);
    const Tensor& ids = c.input(2);
    const int64_t count = ids.num_elements();
    if (count == 0) return std::move(done)(Reduce(c, -1));
    c.device().CopyToHost(ids.Rows(count - 1, count), [this, &c, done = std::move(done)](
                                                          absl::StatusOr<Tensor> last) mutable {
      std::move(done)(last.ok() ? Reduce(c, WideIndices(*last)[0]) : last.status());
    });
  }

 private:
  absl::Status Reduce(KernelContext& c, int64_t last) const {
    SparseSegments segments = SegmentsOf(c, how_);
    ASSIGN_OR_RETURN(segments.segments, CountSparseSegments(c, last));
    segments.rows = c.input(0).dim(0);
    ASSIGN_OR_RETURN(const Shape shape, RowsLikeInput(c, segments.segments));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    return reduce_.LaunchForEach(shape.num_elements(), GpuIn(c.input(0)), GpuOut(*output),
                                 segments);
  }

  const SegmentOp how_;
  const bool has_count_;
  const GpuFunction reduce_;
};

class GpuSparseSegmentGradient final : public GpuKernel {
 public:
  GpuSparseSegmentGradient(SegmentOp how, DType dtype)
      : how_(how),
        add_(*this, kSparseSegmentFile,
             absl::StrCat("AddSegmentGradients<", GpuTypeName(dtype), ">")) {
    if (IsSmallFloat(dtype))
      round_.emplace(*this, "math/cast.cu", absl::StrCat("Cast<float, ", GpuTypeName(dtype), ">"));
  }
  absl::Status Compute(KernelContext& c) override {
    SparseSegments segments = SegmentsOf(c, how_);
    ASSIGN_OR_RETURN(segments.rows, CheckSparseSegmentGradient(c));
    segments.segments = c.input(0).dim(0);
    ASSIGN_OR_RETURN(const Shape shape, RowsLikeInput(c, segments.rows));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    const int64_t count = shape.num_elements();
    if (count == 0) return absl::OkStatus();
    Tensor sums = *output;
    if (round_.has_value()) {
      ASSIGN_OR_RETURN(sums, c.AllocateTemporary(DType::kFloat, shape));
    }
    RETURN_IF_ERROR(gpu().Fill(sums.raw(), 0, sums.size_bytes()));
    RETURN_IF_ERROR(add_.LaunchForEach(segments.count * segments.elements, GpuIn(c.input(0)),
                                       GpuOut(sums), segments));
    if (!round_.has_value()) return absl::OkStatus();
    return round_->LaunchForEach(GpuPacks(count, DType::kFloat), GpuIn(sums), GpuOut(*output),
                                 count, int32_t{0});
  }

 private:
  const SegmentOp how_;
  const GpuFunction add_;
  std::optional<GpuFunction> round_;  // 16-bit floats are summed in float and rounded once
};

}  // namespace

void AddSparseSegmentsOnGpu(OpBuilder& op, SegmentOp how, bool has_count) {
  op.GpuTypes("T", kGpuFloats, [=](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuSparseSegment>(how, has_count, dtype); };
  });
}

void AddSparseSegmentGradientOnGpu(OpBuilder& op, SegmentOp how) {
  op.GpuTypes("T", kGpuFloats, [=](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuSparseSegmentGradient>(how, dtype); };
  });
}

}  // namespace muster
