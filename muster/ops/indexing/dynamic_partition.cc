// Rows dealt out to outputs and put together again: DynamicPartition, DynamicStitch,
// ParallelDynamicStitch.
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/emit.h"
#include "muster/ops/indexing/gpu_gather.h"
#include "muster/ops/indexing/indexing.h"
#include "muster/ops/indexing/moving.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

bool StartsWith(const Shape& shape, const Shape& prefix) {
  if (shape.rank() < prefix.rank()) return false;
  for (int i = 0; i < prefix.rank(); ++i) {
    if (shape.dim(i) != prefix.dim(i)) return false;
  }
  return true;
}

absl::Status CheckPartition(const Tensor& data, const Tensor& partitions) {
  if (!StartsWith(data.shape(), partitions.shape())) {
    return InvalidArgument(
        "data.shape must start with partitions.shape, got data.shape = ", data.shape().ToString(),
        ", partitions.shape = ", partitions.shape().ToString());
  }
  return absl::OkStatus();
}

// Of a part with `rows` of the rows.
absl::StatusOr<Shape> PartShape(const Tensor& data, const Tensor& partitions, int64_t rows) {
  Dims dims(data.shape().dims().begin() + partitions.rank(), data.shape().dims().end());
  dims.insert(dims.begin(), rows);
  return Shape::Make(dims);
}

absl::Status RunPartition(KernelContext& c) {
  const Tensor& data = c.input(0);
  const Tensor& partitions = c.input(1);
  const int outputs = c.num_outputs();
  RETURN_IF_ERROR(CheckPartition(data, partitions));
  const int32_t* numbers = partitions.data<int32_t>();
  const int64_t rows = partitions.num_elements();
  std::vector<int64_t> sizes(outputs, 0);
  for (int64_t i = 0; i < rows; ++i) {
    if (numbers[i] < 0 || numbers[i] >= outputs) {
      return InvalidArgument("partitions", PositionText(partitions.shape(), i), " = ", numbers[i],
                             " is not in [0, ", outputs, ")");
    }
    ++sizes[numbers[i]];
  }
  const int64_t inner = data.shape().ElementsIn(partitions.rank(), data.rank());
  const int64_t row_bytes = inner * static_cast<int64_t>(DTypeSize(data.dtype()));
  std::vector<char*> next(outputs);
  for (int i = 0; i < outputs; ++i) {
    ASSIGN_OR_RETURN(const Shape shape, PartShape(data, partitions, sizes[i]));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(i, shape));
    next[i] = output->raw();
  }
  if (row_bytes == 0) return absl::OkStatus();
  for (int64_t i = 0; i < rows; ++i) {
    CopyElements(data.dtype(), data.raw() + i * row_bytes, next[numbers[i]], inner);
    next[numbers[i]] += row_bytes;
  }
  return absl::OkStatus();
}

// Orders the rows by their partition; the outputs are allocated and gathered when the host has
// their sizes. Rows of other partitions are left out, as in TensorFlow.
class GpuPartition : public GpuKernel {
 public:
  explicit GpuPartition(DType dtype)
      : count_(*this, kFile, "CountRows"),
        sum_(*this, kFile, "SumRows"),
        order_(*this, kFile, "OrderRows"),
        gatherer_(*this, dtype, DType::kInt64) {}
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override {
    return Internal("DynamicPartition runs asynchronously");
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<Ordered> ordered = Order(c);
    if (!ordered.ok()) return std::move(done)(ordered.status());
    c.device().CopyToHost(ordered->starts,
                          [this, &c, order = std::move(ordered->order),
                           done = std::move(done)](absl::StatusOr<Tensor> starts) mutable {
                            if (!starts.ok()) return std::move(done)(starts.status());
                            std::move(done)(Write(c, order, starts->values<int64_t>()));
                          });
  }

 private:
  static constexpr char kFile[] = "indexing/dynamic_partition.cu";
  static constexpr int64_t kScanThreads = 256;
  // A thread deals with at least as many rows; there are at most so many counts.
  static constexpr int64_t kLeastRows = 64;
  static constexpr int64_t kMostCounts = int64_t{1} << 20;

  // The struct of dynamic_partition.cu.
  struct Stretches {
    int64_t rows, length, count;
    int64_t partitions;
  };
  // Rows in the order of partitions, and where partitions begin.
  struct Ordered {
    Tensor order;
    Tensor starts;
  };

  absl::StatusOr<Ordered> Order(KernelContext& c) const {
    const Tensor& partitions = c.input(1);
    RETURN_IF_ERROR(CheckPartition(c.input(0), partitions));
    Stretches stretches{};
    stretches.rows = partitions.num_elements();
    stretches.partitions = c.num_outputs();
    stretches.length =
        std::max(kLeastRows, stretches.rows * stretches.partitions / kMostCounts + 1);
    stretches.count = (stretches.rows + stretches.length - 1) / stretches.length;
    ASSIGN_OR_RETURN(
        Tensor counts,
        c.AllocateTemporary(DType::kInt64, Shape({stretches.partitions * stretches.count + 1})));
    Ordered ordered;
    ASSIGN_OR_RETURN(ordered.starts,
                     c.AllocateTemporary(DType::kInt64, Shape({stretches.partitions + 1})));
    ASSIGN_OR_RETURN(ordered.order, c.AllocateTemporary(DType::kInt64, Shape({stretches.rows})));
    RETURN_IF_ERROR(gpu().Fill(counts.raw(), 0, counts.size_bytes()));
    RETURN_IF_ERROR(
        count_.LaunchForEach(stretches.count, GpuIn(partitions), GpuOut(counts), stretches));
    GpuGrid one_block;
    one_block.threads_x = kScanThreads;
    RETURN_IF_ERROR(sum_.Launch(one_block, GpuOut(counts), GpuOut(ordered.starts), stretches));
    RETURN_IF_ERROR(order_.LaunchForEach(stretches.count, GpuIn(partitions), GpuOut(counts),
                                         GpuOut(ordered.order), stretches));
    return ordered;
  }
  absl::Status Write(KernelContext& c, const Tensor& order,
                     absl::Span<const int64_t> starts) const {
    const Tensor& data = c.input(0);
    const Tensor& partitions = c.input(1);
    GatherSizes sizes;
    sizes.rows = partitions.num_elements();
    sizes.inner = data.shape().ElementsIn(partitions.rank(), data.rank());
    for (int i = 0; i < c.num_outputs(); ++i) {
      sizes.indices = starts[i + 1] - starts[i];
      ASSIGN_OR_RETURN(const Shape shape, PartShape(data, partitions, sizes.indices));
      ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(i, shape));
      RETURN_IF_ERROR(gatherer_.Gather(data, order.Rows(starts[i], starts[i + 1]), sizes, *output));
    }
    return absl::OkStatus();
  }

  const GpuFunction count_;
  const GpuFunction sum_;
  const GpuFunction order_;
  const GpuGatherer gatherer_;
};

// Rows that no index names are filled with zeros; many of them are a sign of a wrong index.
absl::Status CheckRows(int64_t rows, int64_t given, int64_t row_bytes) {
  constexpr double kMostZeros = 1 << 30;
  if (rows > std::numeric_limits<int32_t>::max())
    return InvalidArgument("Index ", rows - 1, " is too large: the result may have up to ",
                           std::numeric_limits<int32_t>::max(), " rows");
  if (rows <= given ||
      static_cast<double>(rows - given) * static_cast<double>(row_bytes) <= kMostZeros)
    return absl::OkStatus();
  return InvalidArgument("Index ", rows - 1, " asks for ", rows, " rows, but only ", given,
                         " are given");
}

// `stitch(row_bytes, output)` does the rest.
template <typename StitchBy>
absl::Status PlanStitch(KernelContext& c, StitchBy stitch) {
  const int count = c.num_inputs() / 2;
  int64_t given = 0;
  const Shape& first_indices = c.input(0).shape();
  const Shape& first_data = c.input(count).shape();
  int64_t rows = 0;
  for (int i = 0; i < count; ++i) {
    const Tensor& indices = c.input(i);
    const Shape& data = c.input(count + i).shape();
    if (!StartsWith(data, indices.shape())) {
      return InvalidArgument("data[", i, "].shape = ", data.ToString(),
                             " does not start with indices[", i,
                             "].shape = ", indices.shape().ToString());
    }
    if (!std::equal(data.dims().begin() + indices.rank(), data.dims().end(),
                    first_data.dims().begin() + first_indices.rank(), first_data.dims().end())) {
      return InvalidArgument(
          "Need data[0].shape[", first_indices.rank(), ":] = data[", i, "].shape[", indices.rank(),
          ":], got data[0].shape = ", first_data.ToString(), ", data[", i,
          "].shape = ", data.ToString(), ", indices[0].shape = ", first_indices.ToString(),
          ", indices[", i, "].shape = ", indices.shape().ToString());
    }
    for (int32_t index : indices.values<int32_t>())
      rows = std::max<int64_t>(rows, int64_t{index} + 1);
    given += indices.num_elements();
  }
  const int64_t inner = first_data.ElementsIn(first_indices.rank(), first_data.rank());
  const int64_t row_bytes = inner * static_cast<int64_t>(DTypeSize(c.output_type(0)));
  RETURN_IF_ERROR(CheckRows(rows, given, row_bytes));
  Dims dims(first_data.dims().begin() + first_indices.rank(), first_data.dims().end());
  dims.insert(dims.begin(), rows);
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  for (int i = 0; i < count; ++i) {
    const absl::Span<const int32_t> indices = c.input(i).values<int32_t>();
    for (size_t j = 0; j < indices.size(); ++j) {
      if (indices[j] < 0) return InvalidArgument("indices[", j, "] is out of range");
    }
  }
  return row_bytes == 0 ? absl::OkStatus() : stitch(row_bytes, *output);
}

absl::Status RunStitch(KernelContext& c) {
  return PlanStitch(c, [&c](int64_t row_bytes, Tensor& output) {
    if (output.num_elements() > 0 && IsPlainData(output.dtype())) {
      // Rows that no index names must not show old memory.
      std::memset(output.raw(), 0, output.size_bytes());
    }
    const int count = c.num_inputs() / 2;
    const int64_t inner = row_bytes / static_cast<int64_t>(DTypeSize(output.dtype()));
    for (int i = 0; i < count; ++i) {
      const char* from = c.input(count + i).raw();
      const absl::Span<const int32_t> indices = c.input(i).values<int32_t>();
      for (size_t j = 0; j < indices.size(); ++j) {
        CopyElements(output.dtype(), from + static_cast<int64_t>(j) * row_bytes,
                     output.raw() + indices[j] * row_bytes, inner);
      }
    }
    return absl::OkStatus();
  });
}

// The indices are on the host, which finds out where each row of the result comes from.
class GpuStitch : public GpuKernel {
 public:
  explicit GpuStitch(DType dtype)
      : stitch_{{{*this, kFile, Expression(DTypeSize(dtype))},
                 {*this, kFile, Expression(sizeof(Word16))}}} {}
  absl::Status Compute(KernelContext& c) override {
    return PlanStitch(
        c, [&](int64_t row_bytes, Tensor& output) { return Stitch(c, row_bytes, output); });
  }

 private:
  static constexpr char kFile[] = "indexing/dynamic_partition.cu";
  static std::string Expression(size_t bytes) {
    return absl::StrCat("Stitch<", GpuWordName(bytes), ">");
  }

  absl::Status Stitch(KernelContext& c, int64_t row_bytes, Tensor& output) const {
    const int64_t rows = output.dim(0);
    ASSIGN_OR_RETURN(Tensor sources, Tensor::Make(DType::kUint64, Shape({rows}), gpu().pinned()));
    uint64_t* const from = sources.data<uint64_t>();
    std::fill_n(from, rows, 0);
    const int count = c.num_inputs() / 2;
    bool wide = RowsAreWide(output.raw(), nullptr, row_bytes);
    for (int i = 0; i < count; ++i) {
      const char* const data = c.input(count + i).raw();
      const absl::Span<const int32_t> indices = c.input(i).values<int32_t>();
      for (size_t j = 0; j < indices.size(); ++j) {
        from[indices[j]] = reinterpret_cast<uintptr_t>(data + static_cast<int64_t>(j) * row_bytes);
      }
      wide = wide && RowsAreWide(data, nullptr, row_bytes);
    }
    ASSIGN_OR_RETURN(const Tensor on_device, c.device().CopyFromHost(sources));
    const int64_t inner =
        row_bytes / static_cast<int64_t>(wide ? sizeof(Word16) : DTypeSize(output.dtype()));
    return stitch_[wide].Launch(GridForRows(stitch_[wide], rows, inner), GpuIn(on_device),
                                GpuOut(output), rows, inner);
  }

  // By element, and by 16 bytes.
  const std::array<const GpuFunction, 2> stitch_;
};

// `shape` must begin with `prefix`; "Dimensions must be equal, but are 2 and 1".
absl::Status MergePrefix(ShapeContext& c, const PartialShape& shape, const PartialShape& prefix) {
  if (!shape.known_rank() || !prefix.known_rank()) return absl::OkStatus();
  RETURN_IF_ERROR(c.WithRankAtLeast(shape, prefix.rank()).status());
  for (int i = 0; i < prefix.rank(); ++i)
    RETURN_IF_ERROR(ShapeContext::MergeDims(shape[i], prefix[i]).status());
  return absl::OkStatus();
}

absl::Status PartitionShape(ShapeContext& c) {
  const PartialShape& data = c.input(0);
  const PartialShape& partitions = c.input(1);
  if (!partitions.known_rank()) return UnknownShape(c);
  RETURN_IF_ERROR(MergePrefix(c, data, partitions));
  PartialShape output;
  if (data.known_rank()) {
    output = ShapeContext::Concatenate(PartialShape::Vector(-1),
                                       ShapeContext::Subshape(data, partitions.rank()));
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, output);
  return absl::OkStatus();
}

absl::Status StitchShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t count, c.Attr<int64_t>("N"));
  bool all_constant = true;
  int64_t rows = 0;
  PartialShape extra;
  for (int i = 0; i < count; ++i) {
    const std::optional<Tensor> constant = c.ConstantInput(i);
    if (constant.has_value() && constant->dtype() == DType::kInt32) {
      for (int32_t index : constant->values<int32_t>())
        rows = std::max<int64_t>(rows, int64_t{index} + 1);
    } else {
      all_constant = false;
    }
    const PartialShape& indices = c.input(i);
    if (!indices.known_rank()) continue;
    const PartialShape& data = c.input(static_cast<int>(count) + i);
    RETURN_IF_ERROR(MergePrefix(c, data, indices));
    if (!data.known_rank()) continue;
    ASSIGN_OR_RETURN(extra, extra.Merge(ShapeContext::Subshape(data, indices.rank())));
  }
  c.SetOutput(0, ShapeContext::Concatenate(PartialShape::Vector(all_constant ? rows : -1), extra));
  return absl::OkStatus();
}

absl::Status PartitionGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const int64_t count = c.Attr<int64_t>("num_partitions");
  const Output prefix = EmitShape(scope, c.input(1));
  const Output range = EmitRange(scope, 0, EmitProd(scope, prefix));
  const Output original = c.Op("Reshape", {range, prefix});
  Node* dealt = scope.Add("DynamicPartition", {original, c.input(1)}, {{"num_partitions", count}});
  if (dealt == nullptr) return scope.status();
  std::vector<Output> indices;
  std::vector<Output> gradients;
  for (int i = 0; i < count; ++i) {
    indices.push_back(dealt->output(i));
    gradients.push_back(c.dy(i));
  }
  const Output stitched = c.Op("ParallelDynamicStitch", {indices, gradients});
  c.SetDx(0, c.Op("Reshape", {stitched, EmitShape(scope, c.input(0))}));
  return absl::OkStatus();
}

absl::Status StitchGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const int count = c.num_inputs() / 2;
  Output gradient;
  if (const IndexedSlices* sparse = std::get_if<IndexedSlices>(&c.gradient(0))) {
    const Output rows = EmitElement(scope, EmitShape(scope, c.output()), 0);
    gradient = c.Op("UnsortedSegmentSum", {sparse->values, sparse->indices, rows});
  } else {
    gradient = c.dy();
  }
  for (int i = 0; i < count; ++i) c.SetDx(count + i, EmitGather(scope, gradient, c.input(i)));
  return absl::OkStatus();
}

void DefineStitch(OpBuilder& op) {
  op.Attr("N: int >= 1")
      .Attr("T: type")
      .Input("indices: N * int32")
      .Input("data: N * T")
      .Output("merged: T")
      .Shape(StitchShape)
      .Gradient(StitchGradient)
      .CpuDTypes("T", AllDTypes(), Stateless(RunStitch));
}

}  // namespace

DEFINE_OP(DynamicPartition) {
  op.Attr("num_partitions: int >= 1")
      .Attr("T: type")
      .Input("data: T")
      .Input("partitions: int32")
      .Output("outputs: num_partitions * T")
      .Doc("Output i holds the rows of data whose partition is i, in their order.")
      .Shape(PartitionShape)
      .Gradient(PartitionGradient)
      .CpuDTypes("T", AllDTypes(), Stateless(RunPartition))
      .GpuTypes("T",
                {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kComplex64,
                 DType::kComplex128},
                [](DType dtype) { return [=] { return std::make_unique<GpuPartition>(dtype); }; });
}

DEFINE_OP(DynamicStitch) {
  DefineStitch(op);
  op.Doc("Rows of all data put at their indices; of rows with one index the last wins.")
      .GpuTypes("T",
                {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt32,
                 DType::kInt64, DType::kComplex64, DType::kComplex128},
                [](DType dtype) { return [=] { return std::make_unique<GpuStitch>(dtype); }; },
                {"indices"});
}

DEFINE_OP(ParallelDynamicStitch) {
  DefineStitch(op);
  op.Doc("DynamicStitch without a promise about rows that share an index.")
      .GpuOnHost("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt32,
                       DType::kInt64, DType::kComplex64, DType::kComplex128});
}

}  // namespace muster
