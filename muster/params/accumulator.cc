#include "muster/params/accumulator.h"

#include <algorithm>
#include <utility>

#include "muster/base/log.h"
#include "muster/params/kept_tensor.h"
#include "muster/tensor/clone.h"

namespace muster {
namespace {

// Half and bfloat16 are computed in float and rounded after every operation.
template <typename T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<Half> {
  using type = float;
};
template <>
struct ComputeType<Bfloat16> {
  using type = float;
};

template <typename T>
T Sum(T a, T b) {
  using C = typename ComputeType<T>::type;
  return static_cast<T>(static_cast<C>(a) + static_cast<C>(b));
}

// One pass for what is otherwise two; the same elements.
template <typename T>
void AddTo(const T* a, const T* b, T* sum, int64_t count, int64_t divisor) {
  using C = typename ComputeType<T>::type;
  if (divisor == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) sum[i] = Sum(a[i], b[i]);
    return;
  }
  const C by = static_cast<C>(static_cast<T>(static_cast<C>(divisor)));
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<T>(static_cast<C>(Sum(a[i], b[i])) / by);
}

template <typename T>
void DivideBy(T* values, int64_t count, int64_t divisor) {
  using C = typename ComputeType<T>::type;
  const C by = static_cast<C>(static_cast<T>(static_cast<C>(divisor)));
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<C>(values[i]) / by);
}

// Calls `function` with a null pointer of the element type.
template <typename Function>
absl::Status WithType(DType dtype, Function function) {
  switch (dtype) {
    case DType::kFloat:
      function(static_cast<float*>(nullptr));
      return absl::OkStatus();
    case DType::kDouble:
      function(static_cast<double*>(nullptr));
      return absl::OkStatus();
    case DType::kHalf:
      function(static_cast<Half*>(nullptr));
      return absl::OkStatus();
    case DType::kBfloat16:
      function(static_cast<Bfloat16*>(nullptr));
      return absl::OkStatus();
    default:
      return Unimplemented("Accumulators of type ", DTypeName(dtype));
  }
}

// (a + b) / divisor. `sum` may be one of the others.
absl::Status AddElements(DType dtype, const char* a, const char* b, char* sum, int64_t count,
                         int64_t divisor = 1) {
  return WithType(dtype, [=]<typename T>(T*) {
    AddTo(reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(b), reinterpret_cast<T*>(sum),
          count, divisor);
  });
}

absl::Status DivideElements(DType dtype, char* values, int64_t count, int64_t divisor) {
  if (divisor == 1) return absl::OkStatus();
  return WithType(dtype,
                  [=]<typename T>(T*) { DivideBy(reinterpret_cast<T*>(values), count, divisor); });
}

}  // namespace

absl::Status Accumulator::Accept(int64_t local_step, absl::FunctionRef<absl::Status()> add) {
  std::vector<Finished> finished;
  {
    MutexLock lock(mutex_);
    if (local_step < global_step_) return absl::OkStatus();
    RETURN_IF_ERROR(add());
    ++count_;
    ++epoch_;
    AdvanceLocked(finished);
  }
  for (Finished& f : finished) std::move(f.done)(std::move(f.result));
  return absl::OkStatus();
}

void Accumulator::Take(int64_t required, OnWait on_wait, TakeDone done) {
  if (required <= 0) {
    return std::move(done)(
        InvalidArgument("Argument num_required must be positive, but was ", required));
  }
  std::vector<Finished> finished;
  {
    MutexLock lock(mutex_);
    const Ticket ticket = ++last_ticket_;
    waiting_.push_back({ticket, required, std::move(done)});
    AdvanceLocked(finished);
    // Tickets ascend: the newest take is the last in the queue, or is over.
    if (!waiting_.empty() && waiting_.back().ticket == ticket && !on_wait(ticket)) {
      finished.push_back({std::move(waiting_.back().done),
                          absl::CancelledError("TakeGrad operation was cancelled")});
      waiting_.pop_back();
    }
  }
  for (Finished& f : finished) std::move(f.done)(std::move(f.result));
}

bool Accumulator::Cancel(Ticket ticket) {
  std::list<Attempt> withdrawn;
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [ticket](const Attempt& a) { return a.ticket == ticket; });
    if (found == waiting_.end()) return false;
    withdrawn.splice(withdrawn.end(), waiting_, found);
  }
  std::move(withdrawn.front().done)(absl::CancelledError("TakeGrad operation was cancelled"));
  return true;
}

void Accumulator::Flush() {
  std::vector<Finished> finished;
  {
    MutexLock lock(mutex_);
    AdvanceLocked(finished);
  }
  for (Finished& f : finished) std::move(f.done)(std::move(f.result));
}

void Accumulator::AdvanceLocked(std::vector<Finished>& finished) {
  while (!waiting_.empty() && count_ >= waiting_.front().required) {
    finished.push_back({std::move(waiting_.front().done), ReduceLocked()});
    waiting_.pop_front();
    count_ = 0;
    ++global_step_;
    ++epoch_;
  }
}

int64_t Accumulator::num_accumulated() const {
  MutexLock lock(mutex_);
  return count_;
}

int64_t Accumulator::global_step() const {
  MutexLock lock(mutex_);
  return global_step_;
}

void Accumulator::SetGlobalStep(int64_t step) {
  MutexLock lock(mutex_);
  if (global_step_ > step) {
    LOG(WARNING) << "Attempt to set current_global_step_ to smaller value: current_global_step_ = "
                 << global_step_ << " >= " << step << " = new_global_step.";
  }
  global_step_ = step;
  ++epoch_;
}

absl::Status DenseAccumulator::Apply(int64_t local_step, Tensor gradient) {
  return Accept(local_step, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    if (count_ > 0 && sum_.shape() != gradient.shape()) {
      return InvalidArgument("Shape mismatch: expected ", sum_.shape().ToString(), ", got ",
                             gradient.shape().ToString());
    }
    if (!shape_.CompatibleWith(gradient.shape())) {
      return InvalidArgument("Shape mismatch: expected ", shape_.ToString(), ", got ",
                             gradient.shape().ToString());
    }
    if (count_ == 0) {
      sum_ = KeptTensor(std::move(gradient));
      return absl::OkStatus();
    }
    return AddLocked(std::move(gradient));
  });
}

absl::Status DenseAccumulator::AddLocked(Tensor gradient) {
  Tensor target;
  if (sum_.exclusive()) {
    target = sum_;
  } else if (gradient.exclusive()) {
    target = gradient;
  } else {
    ASSIGN_OR_RETURN(target, Tensor::Make(dtype_, sum_.shape()));
  }
  const bool divides = reduction_ == Reduction::kMean && IsLastLocked();
  RETURN_IF_ERROR(AddElements(dtype_, sum_.raw(), gradient.raw(), target.raw(),
                              target.num_elements(), divides ? count_ + 1 : 1));
  sum_ = std::move(target);
  is_mean_ = divides;
  return absl::OkStatus();
}

// A sum of several gradients is exclusive, unless a snapshot has it: Apply has made it.
absl::StatusOr<Accumulator::Tuple> DenseAccumulator::ReduceLocked() {
  Tensor result = std::move(sum_);
  sum_ = Tensor();
  if (reduction_ == Reduction::kMean && !std::exchange(is_mean_, false)) {
    if (count_ > 1 && !result.exclusive()) {
      ASSIGN_OR_RETURN(result, TryClone(result));
    }
    RETURN_IF_ERROR(DivideElements(dtype_, result.raw(), result.num_elements(), count_));
  }
  Tuple taken;
  taken.push_back(std::move(result));
  return taken;
}

absl::Status SparseAccumulator::Apply(int64_t local_step, bool has_known_shape,
                                      const SparseGradient& gradient) {
  return Accept(local_step, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    RETURN_IF_ERROR(CheckLocked(has_known_shape, gradient));
    return MergeLocked(gradient);
  });
}

absl::Status SparseAccumulator::CheckLocked(bool has_known_shape,
                                            const SparseGradient& gradient) const {
  const Shape& indices = gradient.indices.shape();
  const Shape& values = gradient.values.shape();
  if (!indices.is_vector()) {
    return InvalidArgument("Input indices should be vector but received shape: ",
                           indices.ToString());
  }
  if (values.rank() == 0) return InvalidArgument("Values cannot be 0-dimensional.");
  if (indices.dim(0) != values.dim(0)) {
    return InvalidArgument("Expected ", indices.dim(0), " non-empty input values, got ",
                           values.dim(0));
  }
  if (has_known_shape) {
    const int64_t given = gradient.dense_shape.num_elements();
    if (shape_.rank() > given) {
      return InvalidArgument("Shape mismatch: expected shape rank at least ", shape_.rank(),
                             ", got ", given);
    }
    for (int i = 0; i < shape_.rank(); ++i) {
      const int64_t size = gradient.dense_shape.data<int64_t>()[i];
      if (shape_[i] >= 0 && shape_[i] != size) {
        return InvalidArgument("Shape mismatch: expected shape dim ", i, " to be ", shape_[i],
                               ", got ", size);
      }
    }
  }
  if (shape_.rank() > 0 && shape_[0] >= 0) {
    const int64_t* index = gradient.indices.data<int64_t>();
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      if (index[i] < shape_[0]) continue;
      return InvalidArgument("Shape mismatch: index of slice ", i,
                             " exceeded limits of shape; index is ", index[i], " exceeded ",
                             shape_[0]);
    }
  }
  PartialShape expected = shape_;
  if (count_ > 0) {
    expected = values_.shape();
    if (expected.rank() != values.rank()) {
      return InvalidArgument("Shape mismatch: expected values rank ", expected.rank(), ", got ",
                             values.rank());
    }
  } else if (shape_.rank() > values.rank()) {
    return InvalidArgument("Shape mismatch: expected values rank at least ", shape_.rank(),
                           ", got ", values.rank());
  }
  for (int i = 1; i < expected.rank(); ++i) {
    if (expected[i] < 0 || expected[i] == values.dim(i)) continue;
    return InvalidArgument("Shape mismatch: expected values dim ", i, " to be ", expected[i],
                           ", got ", values.dim(i));
  }
  return absl::OkStatus();
}

absl::Status SparseAccumulator::MergeLocked(const SparseGradient& gradient) {
  const absl::Span<const int64_t> coming = gradient.indices.values<int64_t>();
  if (count_ == 0) {
    indices_.assign(coming.begin(), coming.end());
    counts_.assign(coming.size(), 1);
    values_ = gradient.values;
    return absl::OkStatus();
  }
  // Where each row of the result comes from: a stored row, an incoming one, or both.
  struct Source {
    int64_t stored = -1;
    int64_t coming = -1;
  };
  std::vector<Source> sources;
  size_t i = 0;
  size_t j = 0;
  while (i < indices_.size() || j < coming.size()) {
    Source source;
    const bool stored_left = i < indices_.size();
    const bool coming_left = j < coming.size();
    if (stored_left && (!coming_left || indices_[i] <= coming[j]))
      source.stored = static_cast<int64_t>(i);
    if (coming_left && (!stored_left || coming[j] <= indices_[i]))
      source.coming = static_cast<int64_t>(j);
    if (source.stored >= 0) ++i;
    if (source.coming >= 0) ++j;
    sources.push_back(source);
  }
  Shape shape = values_.shape();
  const int64_t row = shape.ElementsIn(1, shape.rank());
  shape.Set(0, static_cast<int64_t>(sources.size()));
  ASSIGN_OR_RETURN(Tensor merged, Tensor::Make(dtype_, shape));
  const size_t row_bytes = static_cast<size_t>(row) * DTypeSize(dtype_);
  std::vector<int64_t> indices;
  std::vector<int64_t> counts;
  for (const Source& source : sources) {
    const char* stored =
        values_.raw() + static_cast<size_t>(std::max<int64_t>(source.stored, 0)) * row_bytes;
    const char* other = gradient.values.raw() +
                        static_cast<size_t>(std::max<int64_t>(source.coming, 0)) * row_bytes;
    char* to = merged.raw() + indices.size() * row_bytes;
    if (source.stored >= 0 && source.coming >= 0) {
      RETURN_IF_ERROR(AddElements(dtype_, stored, other, to, row));
    } else {
      std::copy_n(source.stored >= 0 ? stored : other, row_bytes, to);
    }
    indices.push_back(source.stored >= 0 ? indices_[source.stored] : coming[source.coming]);
    counts.push_back(source.stored < 0 ? 1 : counts_[source.stored] + (source.coming >= 0 ? 1 : 0));
  }
  indices_ = std::move(indices);
  counts_ = std::move(counts);
  values_ = std::move(merged);
  return absl::OkStatus();
}

absl::StatusOr<Accumulator::Tuple> SparseAccumulator::ReduceLocked() {
  const Shape& shape = values_.shape();
  const int64_t row = shape.ElementsIn(1, shape.rank());
  const bool divides = reduction_ == Reduction::kMean &&
                       std::any_of(counts_.begin(), counts_.end(), [](int64_t n) { return n > 1; });
  if (divides) {
    const size_t row_bytes = static_cast<size_t>(row) * DTypeSize(dtype_);
    if (!values_.exclusive()) values_ = values_.Clone();
    for (size_t i = 0; i < counts_.size(); ++i)
      RETURN_IF_ERROR(DivideElements(dtype_, values_.raw() + i * row_bytes, row, counts_[i]));
  }
  std::vector<int64_t> dense(shape.dims().begin(), shape.dims().end());
  dense[0] = shape_.rank() > 0 ? shape_[0] : -1;
  Tuple taken;
  taken.push_back(Tensor::Vector<int64_t>(indices_));
  taken.push_back(std::move(values_));
  taken.push_back(Tensor::Vector<int64_t>(dense));
  indices_.clear();
  counts_.clear();
  values_ = Tensor();
  return taken;
}

}  // namespace muster
