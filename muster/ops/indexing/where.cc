// Positions of the elements that are not zero: Where.
#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/moving.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

template <typename T>
bool IsSet(const T& value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return static_cast<float>(value) != 0;
  } else {
    return value != T();
  }
}

absl::Status CheckWhere(const Tensor& input) {
  if (input.rank() == 0) return InvalidArgument("WhereOp : Unhandled input dimensions: 0");
  return absl::OkStatus();
}

template <typename T>
absl::Status RunWhere(KernelContext& c) {
  const Tensor& input = c.input(0);
  RETURN_IF_ERROR(CheckWhere(input));
  const T* values = input.data<T>();
  const int64_t count = input.num_elements();
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += IsSet(values[i]);
  const int rank = input.rank();
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make({found, int64_t{rank}}));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (found == 0) return absl::OkStatus();
  int64_t* row = output->data<int64_t>();
  if (rank == 1) {
    for (int64_t i = 0; i < count; ++i) {
      if (IsSet(values[i])) *row++ = i;
    }
    return absl::OkStatus();
  }
  Dims strides(rank, 1);
  for (int i = rank - 2; i >= 0; --i) strides[i] = strides[i + 1] * input.dim(i + 1);
  for (int64_t i = 0; i < count; ++i) {
    if (!IsSet(values[i])) continue;
    int64_t rest = i;
    for (int d = 0; d < rank; ++d) {
      *row++ = rest / strides[d];
      rest %= strides[d];
    }
  }
  return absl::OkStatus();
}

// Counts first; the result is allocated and written when the host has the number.
class GpuWhere : public GpuKernel {
 public:
  explicit GpuWhere(DType dtype)
      : count_(*this, kFile, absl::StrCat("CountSet<", GpuTypeName(dtype), ">")),
        sum_(*this, kFile, "SumCounts"),
        write_(*this, kFile, absl::StrCat("WritePositions<", GpuTypeName(dtype), ">")) {}
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("Where runs asynchronously"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<Tensor> starts = Count(c);
    if (!starts.ok()) return std::move(done)(starts.status());
    const int64_t chunks = starts->num_elements() - 1;
    const Tensor found = starts->Rows(chunks, chunks + 1);
    c.device().CopyToHost(found, [this, &c, starts = *std::move(starts),
                                  done = std::move(done)](absl::StatusOr<Tensor> count) mutable {
      if (!count.ok()) return std::move(done)(count.status());
      std::move(done)(Write(c, starts, count->scalar<int64_t>()));
    });
  }

 private:
  static constexpr char kFile[] = "indexing/where.cu";
  // Of where.cu.
  static constexpr int kScanThreads = 256;
  static constexpr int64_t kChunk = int64_t{8} * kScanThreads;

  GpuGrid GridFor(int64_t chunks) const { return count_.GridForEach(chunks * kScanThreads); }

  // How many elements that are set come before each chunk, and before the end.
  absl::StatusOr<Tensor> Count(KernelContext& c) const {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(CheckWhere(input));
    RETURN_IF_ERROR(TupleAxesOf(input.shape(), input.rank()).status());
    const int64_t count = input.num_elements(), chunks = (count + kChunk - 1) / kChunk;
    ASSIGN_OR_RETURN(Tensor counts, c.AllocateTemporary(DType::kInt64, Shape({chunks + 1})));
    RETURN_IF_ERROR(count_.Launch(GridFor(chunks), GpuIn(input), count, GpuOut(counts), chunks));
    GpuGrid one_block;
    one_block.threads_x = kScanThreads;
    RETURN_IF_ERROR(sum_.Launch(one_block, GpuOut(counts), chunks));
    return counts;
  }
  absl::Status Write(KernelContext& c, const Tensor& starts, int64_t found) const {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const TupleAxes axes, TupleAxesOf(input.shape(), input.rank()));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({found, int64_t{input.rank()}}));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (found == 0) return absl::OkStatus();
    const int64_t chunks = starts.num_elements() - 1;
    return write_.Launch(GridFor(chunks), GpuIn(input), input.num_elements(), GpuIn(starts), chunks,
                         axes, GpuOut(*output));
  }

  const GpuFunction count_;
  const GpuFunction sum_;
  const GpuFunction write_;
};

absl::Status WhereShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  c.SetOutput(0, PartialShape::Matrix(-1, input.known_rank() ? input.rank() : -1));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Where) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
        "bfloat16, qint16, "
        "quint16, uint16, complex128, half, uint32, uint64, bool} = DT_BOOL")
      .Input("input: T")
      .Output("index: int64")
      .Doc("The positions of the elements that are true or not zero, in row-major order.")
      .Shape(WhereShape)
      .CpuTypes<Join<Numbers, Types<bool>>>("T",
                                            []<typename T>() { return Stateless(RunWhere<T>); })
      .GpuOnHost("T")
      .GpuTypes("T",
                {DType::kBool, DType::kFloat, DType::kDouble, DType::kInt8, DType::kUint8,
                 DType::kInt64, DType::kComplex64, DType::kComplex128},
                [](DType dtype) { return [=] { return std::make_unique<GpuWhere>(dtype); }; });
}

}  // namespace muster
