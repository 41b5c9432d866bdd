// How many elements datasets have, as far as that is known before they are read.
#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"

#include "muster/ops/data/dataset.h"

namespace muster {
namespace {

using Rule = int64_t (*)(const KernelContext& c);

bool IsKnown(int64_t count) {
  return count >= 0;
}

// The cardinality of the dataset in input i.
int64_t Input(const KernelContext& c, int i) {
  if (i >= c.num_inputs()) return kUnknownCardinality;
  const absl::StatusOr<DatasetPtr> input = InputDataset(c, i);
  return input.ok() ? (*input)->cardinality() : kUnknownCardinality;
}

int64_t Number(const KernelContext& c, int i, int64_t otherwise) {
  if (i >= c.num_inputs()) return otherwise;
  return ScalarInteger(c.input(i), "").value_or(otherwise);
}

bool Flag(const KernelContext& c, int i) {
  return i < c.num_inputs() && ScalarBool(c.input(i), "").value_or(false);
}

int64_t Same(const KernelContext& c) {
  return Input(c, 0);
}
int64_t One(const KernelContext&) {
  return 1;
}
int64_t Infinite(const KernelContext&) {
  return kInfiniteCardinality;
}

// Applying a function, or grouping by a key, makes an endless sequence from an endless one.
int64_t EndlessOrUnknown(const KernelContext& c) {
  return Input(c, 0) == kInfiniteCardinality ? kInfiniteCardinality : kUnknownCardinality;
}

int64_t Promised(const KernelContext& c) {
  return Number(c, 1, kUnknownCardinality);
}

int64_t Slices(const KernelContext& c) {
  return c.num_inputs() > 0 && c.input(0).rank() > 0 ? c.input(0).dim(0) : kUnknownCardinality;
}

int64_t SparseSlices(const KernelContext& c) {
  const Tensor& shape = c.input(2);
  return shape.num_elements() > 0 ? shape.data<int64_t>()[0] : kUnknownCardinality;
}

int64_t Range(const KernelContext& c) {
  const int64_t start = Number(c, 0, 0);
  const int64_t stop = Number(c, 1, 0);
  const int64_t step = Number(c, 2, 1);
  const __int128 distance =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  if (distance <= 0 || step == 0) return 0;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  return static_cast<int64_t>(
      std::min<__int128>((distance + stride - 1) / stride, std::numeric_limits<int64_t>::max()));
}

int64_t Times(int64_t n, int64_t count) {
  if (count < 0) return n == 0 ? 0 : kInfiniteCardinality;
  if (count == 0) return 0;
  if (!IsKnown(n)) return n;
  int64_t product = 0;
  return __builtin_mul_overflow(n, count, &product) ? kUnknownCardinality : product;
}
int64_t Repeat(const KernelContext& c) {
  return Times(Input(c, 0), Number(c, 1, 1));
}
int64_t ShuffleAndRepeat(const KernelContext& c) {
  return Times(Input(c, 0), Number(c, 4, 1));
}

int64_t Take(const KernelContext& c) {
  const int64_t n = Input(c, 0);
  const int64_t count = Number(c, 1, -1);
  if (n == kUnknownCardinality) return count == 0 ? 0 : n;
  if (count < 0) return n;
  return n == kInfiniteCardinality ? count : std::min(n, count);
}

int64_t Skip(const KernelContext& c) {
  const int64_t n = Input(c, 0);
  const int64_t count = Number(c, 1, 0);
  if (count < 0) return 0;
  return IsKnown(n) ? std::max<int64_t>(0, n - count) : n;
}

int64_t Concatenate(const KernelContext& c) {
  const int64_t a = Input(c, 0);
  const int64_t b = Input(c, 1);
  if (a == kInfiniteCardinality || b == kInfiniteCardinality) return kInfiniteCardinality;
  return IsKnown(a) && IsKnown(b) ? a + b : kUnknownCardinality;
}

int64_t Zip(const KernelContext& c) {
  int64_t least = kInfiniteCardinality;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const int64_t n = Input(c, i);
    if (n == kUnknownCardinality) return n;
    if (IsKnown(n) && (!IsKnown(least) || n < least)) least = n;
  }
  return least;
}

int64_t Shard(const KernelContext& c) {
  const int64_t n = Input(c, 0);
  const int64_t shards = Number(c, 1, 1);
  if (!IsKnown(n) || shards <= 0) return n;
  return n / shards + (Number(c, 2, 0) < n % shards ? 1 : 0);
}

int64_t Batches(int64_t n, int64_t size, bool drop) {
  if (!IsKnown(n) || size <= 0) return n;
  return n / size + (n % size == 0 || drop ? 0 : 1);
}
int64_t Batch(const KernelContext& c) {
  return Batches(Input(c, 0), Number(c, 1, 1), Flag(c, 2));
}
int64_t ParallelBatch(const KernelContext& c) {
  return Batches(Input(c, 0), Number(c, 1, 1), Flag(c, 3));
}
int64_t PaddedBatch(const KernelContext& c) {
  return Batches(Input(c, 0), Number(c, 1, 1), Flag(c, c.num_inputs() - 1));
}

int64_t Window(const KernelContext& c) {
  const int64_t n = Input(c, 0);
  const int64_t size = Number(c, 1, 1);
  const int64_t shift = Number(c, 2, 1);
  const int64_t stride = Number(c, 3, 1);
  if (!IsKnown(n) || size <= 0 || shift <= 0 || stride <= 0) return n;
  if (!Flag(c, 4)) return n / shift + (n % shift == 0 ? 0 : 1);
  int64_t span = 0;
  if (__builtin_mul_overflow(size - 1, stride, &span)) return 0;
  const int64_t rest = n - 1 - span;
  return rest < 0 ? 0 : rest / shift + 1;
}

// Every function call may end the sequence, unless the graph promises otherwise.
int64_t Mapped(const KernelContext& c) {
  return c.node().Attr<bool>("preserve_cardinality").value_or(false) ? Input(c, 0)
                                                                     : kUnknownCardinality;
}

int64_t Unbatched(const KernelContext& c) {
  const int64_t n = Input(c, 0);
  if (n <= 0) return n;
  const absl::StatusOr<DatasetPtr> input = InputDataset(c, 0);
  if (!input.ok()) return kUnknownCardinality;
  for (const PartialShape& shape : (*input)->spec().shapes) {
    if (shape.known_rank() && shape.rank() > 0 && shape.dim(0) > 0) return Times(n, shape.dim(0));
  }
  return kUnknownCardinality;
}

const absl::flat_hash_map<absl::string_view, Rule>& Rules() {
  static const absl::flat_hash_map<absl::string_view, Rule> rules({
      {"TensorDataset", One},
      {"TensorSliceDataset", Slices},
      {"SparseTensorSliceDataset", SparseSlices},
      {"RangeDataset", Range},
      {"RandomDataset", Infinite},
      {"RepeatDataset", Repeat},
      {"TakeDataset", Take},
      {"SkipDataset", Skip},
      {"ConcatenateDataset", Concatenate},
      {"ZipDataset", Zip},
      {"ShardDataset", Shard},
      {"BatchDataset", Batch},
      {"BatchDatasetV2", Batch},
      {"ParallelBatchDataset", ParallelBatch},
      {"PaddedBatchDataset", PaddedBatch},
      {"PaddedBatchDatasetV2", PaddedBatch},
      {"WindowDataset", Window},
      {"MapDataset", Mapped},
      {"ParallelMapDataset", Mapped},
      {"ParallelMapDatasetV2", Mapped},
      {"ScanDataset", Mapped},
      {"UnbatchDataset", Unbatched},
      {"FlatMapDataset", EndlessOrUnknown},
      {"InterleaveDataset", EndlessOrUnknown},
      {"ParallelInterleaveDatasetV2", EndlessOrUnknown},
      {"ParallelInterleaveDatasetV4", EndlessOrUnknown},
      {"GroupByWindowDataset", EndlessOrUnknown},
      {"RewriteDataset", Same},
      {"AssertCardinalityDataset", Promised},
      {"ShuffleDataset", Same},
      {"ShuffleDatasetV3", Same},
      {"ShuffleAndRepeatDataset", ShuffleAndRepeat},
      {"GlobalShuffleDataset", Same},
      {"PrefetchDataset", Same},
      {"CacheDataset", Same},
      {"OptimizeDataset", Same},
      {"ModelDataset", Same},
      {"OptionsDataset", Same},
  });
  return rules;
}

absl::Status RunCardinality(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr dataset, InputDataset(c, 0));
  c.SetOutput(0, Tensor::Scalar(dataset->cardinality()));
  return absl::OkStatus();
}

}  // namespace

int64_t CardinalityOf(const KernelContext& c) {
  const auto rule = Rules().find(c.node().op());
  return rule == Rules().end() ? kUnknownCardinality : rule->second(c);
}

DEFINE_OP(DatasetCardinality) {
  op.Attr("cardinality_options: string = ''")
      .Input("input_dataset: variant")
      .Output("cardinality: int64")
      .Doc("How many elements a dataset has: -1 without end, -2 when that is not known.")
      .Shape(ScalarShape)
      .NoGradient("a dataset is not a number")
      .Cpu(RunCardinality);
}

}  // namespace muster
