#include "muster/ops/math/elementwise.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "muster/base/mutex.h"
#include "muster/ops/math/float16.h"

namespace muster {
namespace {

// Elements per block where loops go through a float buffer.
constexpr int64_t kBlock = 1024;
// Rows shorter than this are repeated into longer ones where one operand is the same for every row.
constexpr int64_t kShortRow = 64;

absl::Status Incompatible(absl::Span<const Shape* const> operands) {
  return InvalidArgument("Incompatible shapes: ", operands[0]->ToString(), " vs. ",
                         operands[1]->ToString());
}

const char* At(const void* memory, int64_t offset, size_t size) {
  return static_cast<const char*>(memory) + offset * static_cast<int64_t>(size);
}
char* At(void* memory, int64_t offset, size_t size) {
  return static_cast<char*>(memory) + offset * static_cast<int64_t>(size);
}

absl::Status CheckSameSize(const Shape& x, const Shape& y) {
  if (x.num_elements() == y.num_elements()) return absl::OkStatus();
  return InvalidArgument("The two arguments to a cwise op must have same number of elements, got ",
                         x.num_elements(), " and ", y.num_elements());
}

// One contiguous run, through float buffers where the node's elements are 16-bit floats.
bool RunUnaryRun(const UnarySpec& spec, const void* x, void* y, int64_t count) {
  if (!IsSmallFloat(spec.in)) return spec.loop(x, y, count);
  std::array<float, kBlock> buffer;
  const size_t out_size = DTypeSize(spec.out);
  bool ok = true;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    ToFloat(spec.in, At(x, i, 2), buffer.data(), n);
    if (IsSmallFloat(spec.out)) {
      ok &= spec.loop(buffer.data(), buffer.data(), n);
      FromFloat(spec.out, buffer.data(), At(y, i, 2), n);
    } else {
      ok &= spec.loop(buffer.data(), At(y, i, out_size), n);
    }
  }
  return ok;
}

// So that what follows finds the result in the cache.
bool RunInBlocks(const BinarySpec& spec, const void* x, bool x_steps, const void* y, bool y_steps,
                 void* z, int64_t count) {
  const size_t in_size = DTypeSize(spec.in), out_size = DTypeSize(spec.out);
  bool ok = true;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    void* const block = At(z, i, out_size);
    ok &= spec.loop(x_steps ? At(x, i, in_size) : x, x_steps, y_steps ? At(y, i, in_size) : y,
                    y_steps, block, n);
    spec.then(block, block, n);
  }
  return ok;
}

bool RunBinaryRun(const BinarySpec& spec, const void* x, bool x_steps, const void* y, bool y_steps,
                  void* z, int64_t count) {
  if (!IsSmallFloat(spec.in)) {
    if (spec.then == nullptr) return spec.loop(x, x_steps, y, y_steps, z, count);
    return RunInBlocks(spec, x, x_steps, y, y_steps, z, count);
  }
  std::array<float, kBlock> a;
  std::array<float, kBlock> b;
  const size_t out_size = DTypeSize(spec.out);
  bool ok = true;
  if (!x_steps) ToFloat(spec.in, x, a.data(), 1);
  if (!y_steps) ToFloat(spec.in, y, b.data(), 1);
  std::array<float, kBlock> result;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    if (x_steps) ToFloat(spec.in, At(x, i, 2), a.data(), n);
    if (y_steps) ToFloat(spec.in, At(y, i, 2), b.data(), n);
    if (IsSmallFloat(spec.out)) {
      ok &= spec.loop(a.data(), x_steps, b.data(), y_steps, result.data(), n);
      FromFloat(spec.out, result.data(), At(z, i, 2), n);
      if (spec.after_rounding != nullptr) {
        ToFloat(spec.out, At(z, i, 2), result.data(), n);
        spec.after_rounding(result.data(), result.data(), n);
        FromFloat(spec.out, result.data(), At(z, i, 2), n);
      }
    } else {
      ok &= spec.loop(a.data(), x_steps, b.data(), y_steps, At(z, i, out_size), n);
    }
  }
  return ok;
}

// `count` elements of `row` again and again, as many whole rows as fit into about kBlock elements.
Tensor RepeatRow(DType dtype, const char* row, int64_t count, int64_t times) {
  Tensor tile(dtype, Shape({times * count}));
  for (int64_t i = 0; i < times; ++i)
    CopyElements(dtype, row, At(tile.raw(), i * count, DTypeSize(dtype)), count);
  return tile;
}

class UnaryKernel final : public Kernel {
 public:
  explicit UnaryKernel(const UnarySpec& spec) : spec_(spec) {}
  absl::Status Compute(KernelContext& c) override { return RunUnary(c, spec_); }

 private:
  const UnarySpec spec_;
};

class BinaryKernel final : public Kernel {
 public:
  explicit BinaryKernel(const BinarySpec& spec) : spec_(spec) {}
  absl::Status Compute(KernelContext& c) override { return RunBinary(c, spec_); }

 private:
  const BinarySpec spec_;
};

class EqualityKernel final : public Kernel {
 public:
  EqualityKernel(const BinarySpec& spec, bool mismatch) : spec_(spec), mismatch_(mismatch) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(shape_error_, setup.Attr<bool>("incompatible_shape_error"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    if (!shape_error_ && !BroadcastShape(c.input(0).shape(), c.input(1).shape()).ok()) {
      c.SetOutput(0, Tensor::Scalar<bool>(mismatch_));
      return absl::OkStatus();
    }
    return RunBinary(c, spec_);
  }

 private:
  const BinarySpec spec_;
  const bool mismatch_;
  bool shape_error_ = true;
};

template <typename Spec>
class Loops {
 public:
  static Loops& Global() {
    static auto* loops = new Loops;
    return *loops;
  }
  void Remember(const std::string& op, const Spec& spec) {
    MutexLock lock(mutex_);
    by_op_[{op, spec.in}] = spec;
  }
  const Spec* Find(const std::string& op, DType dtype) {
    OpRegistry::Global().Find(op);  // its definition has run
    MutexLock lock(mutex_);
    const auto found = by_op_.find({op, dtype});
    return found == by_op_.end() ? nullptr : &found->second;
  }

 private:
  Mutex mutex_;
  std::map<std::pair<std::string, DType>, Spec> by_op_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<Shape> BroadcastShape(const Shape& x, const Shape& y) {
  const std::array<const Shape*, 2> operands = {&x, &y};
  ASSIGN_OR_RETURN(BroadcastPlan plan, BroadcastPlan::Make(operands));
  return plan.output();
}

absl::StatusOr<BroadcastPlan> BroadcastPlan::Make(absl::Span<const Shape* const> operands) {
  CHECK(operands.size() <= kMaxBroadcastOperands);
  const int count = static_cast<int>(operands.size());
  int rank = 0;
  for (const Shape* shape : operands) rank = std::max(rank, shape->rank());

  // Innermost first.
  BroadcastPlan plan;
  Dims dims(rank);
  absl::InlinedVector<Dim, 4> merged;
  BroadcastOffsets extents = {1, 1, 1};  // elements of each operand inside the current dim
  for (int i = 0; i < rank; ++i) {
    std::array<int64_t, kMaxBroadcastOperands> sizes = {1, 1, 1};
    int64_t size = 1;
    for (int k = 0; k < count; ++k) {
      const int at = operands[k]->rank() - 1 - i;
      if (at >= 0) sizes[k] = operands[k]->dim(at);
      if (sizes[k] != 1) size = sizes[k];
    }
    for (int k = 0; k < count; ++k) {
      if (sizes[k] != 1 && sizes[k] != size) return Incompatible(operands);
    }
    dims[rank - 1 - i] = size;
    if (size == 1) continue;
    Dim dim{size, {}};
    for (int k = 0; k < count; ++k) {
      dim.strides[k] = sizes[k] == 1 ? 0 : extents[k];
      extents[k] *= sizes[k];
    }
    if (!merged.empty()) {
      Dim& last = merged.back();
      bool alike = true;
      for (int k = 0; k < count; ++k) {
        alike &= (last.strides[k] == 0) == (dim.strides[k] == 0);
      }
      if (alike) {
        last.size *= size;
        continue;
      }
    }
    merged.push_back(dim);
  }
  ASSIGN_OR_RETURN(plan.output_, Shape::Make(dims));

  for (int k = 0; k < count; ++k) plan.steps_[k] = true;  // a single element: nothing to repeat
  if (!merged.empty()) {
    plan.inner_ = merged[0].size;
    for (int k = 0; k < count; ++k) plan.steps_[k] = merged[0].strides[k] != 0;
    for (size_t i = merged.size(); i > 1; --i) plan.outer_.push_back(merged[i - 1]);
  }
  for (const Dim& dim : plan.outer_) plan.rows_ *= dim.size;
  if (plan.output_.num_elements() == 0) plan.rows_ = 0;
  return plan;
}

void BroadcastPlan::ForEachRow(
    int64_t begin, int64_t end,
    absl::FunctionRef<void(int64_t, const BroadcastOffsets&)> body) const {
  if (begin >= end) return;  // an empty output may have dims of size zero
  const int depth = static_cast<int>(outer_.size());
  absl::InlinedVector<int64_t, 4> index(depth, 0);
  BroadcastOffsets offsets = {};
  int64_t rest = begin;
  for (int d = depth - 1; d >= 0; --d) {
    index[d] = rest % outer_[d].size;
    rest /= outer_[d].size;
    for (int k = 0; k < kMaxBroadcastOperands; ++k) offsets[k] += index[d] * outer_[d].strides[k];
  }
  for (int64_t row = begin; row < end; ++row) {
    body(row * inner_, offsets);
    for (int d = depth - 1; d >= 0; --d) {
      for (int k = 0; k < kMaxBroadcastOperands; ++k) offsets[k] += outer_[d].strides[k];
      if (++index[d] < outer_[d].size) break;
      for (int k = 0; k < kMaxBroadcastOperands; ++k)
        offsets[k] -= outer_[d].size * outer_[d].strides[k];
      index[d] = 0;
    }
  }
}

absl::StatusOr<BroadcastPlan> PlanBinary(const Shape& x, const Shape& y, bool broadcasts) {
  if (!broadcasts) RETURN_IF_ERROR(CheckSameSize(x, y));
  const std::array<const Shape*, 2> operands = {&x, broadcasts ? &y : &x};
  return BroadcastPlan::Make(operands);
}

absl::Status RunUnary(KernelContext& c, const UnarySpec& spec) {
  // No copy of the tensor itself: its memory is only reused while it has no other owner.
  const size_t in_size = DTypeSize(spec.in);
  const size_t out_size = DTypeSize(spec.out);
  const void* from = c.input(0).raw();
  const Shape shape = c.input(0).shape();
  const int64_t count = shape.num_elements();
  ASSIGN_OR_RETURN(Tensor * y, c.ForwardOrAllocate({0}, 0, shape));
  void* to = y->raw();
  c.ParallelFor(count, spec.cost_ns, [&](int64_t begin, int64_t end) {
    RunUnaryRun(spec, At(from, begin, in_size), At(to, begin, out_size), end - begin);
  });
  return absl::OkStatus();
}

absl::Status RunBinary(KernelContext& c, const BinarySpec& spec) {
  const Shape x_shape = c.input(0).shape();
  const Shape y_shape = c.input(1).shape();
  const char* x = c.input(0).raw();
  const char* y = c.input(1).raw();
  const size_t in_size = DTypeSize(spec.in);
  const size_t out_size = DTypeSize(spec.out);
  std::atomic<bool> ok = true;

  const bool same_shape = x_shape == y_shape;
  if (same_shape || !spec.broadcasts) {
    RETURN_IF_ERROR(CheckSameSize(x_shape, y_shape));
    ASSIGN_OR_RETURN(Tensor * z, c.ForwardOrAllocate({0, 1}, 0, x_shape));
    char* to = z->raw();
    c.ParallelFor(x_shape.num_elements(), spec.cost_ns, [&](int64_t begin, int64_t end) {
      if (!RunBinaryRun(spec, At(x, begin, in_size), true, At(y, begin, in_size), true,
                        At(to, begin, out_size), end - begin)) {
        ok = false;
      }
    });
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(spec.error);
  }

  if (x_shape.is_scalar() || y_shape.is_scalar()) {
    const Shape& shape = x_shape.is_scalar() ? y_shape : x_shape;
    const bool x_runs = !x_shape.is_scalar();
    ASSIGN_OR_RETURN(Tensor * z, c.ForwardOrAllocate({0, 1}, 0, shape));
    char* to = z->raw();
    c.ParallelFor(shape.num_elements(), spec.cost_ns, [&](int64_t begin, int64_t end) {
      if (!RunBinaryRun(spec, x_runs ? At(x, begin, in_size) : x, x_runs,
                        x_runs ? y : At(y, begin, in_size), !x_runs, At(to, begin, out_size),
                        end - begin)) {
        ok = false;
      }
    });
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(spec.error);
  }

  const std::array<const Shape*, 2> operands = {&x_shape, &y_shape};
  ASSIGN_OR_RETURN(const BroadcastPlan plan, BroadcastPlan::Make(operands));
  ASSIGN_OR_RETURN(Tensor * z, c.ForwardOrAllocate({0, 1}, 0, plan.output()));
  char* to = z->raw();
  const bool x_steps = plan.steps(0);
  const bool y_steps = plan.steps(1);
  const int64_t inner = plan.inner();

  if (plan.rows() == 1) {
    c.ParallelFor(inner, spec.cost_ns, [&](int64_t begin, int64_t end) {
      if (!RunBinaryRun(spec, x_steps ? At(x, begin, in_size) : x, x_steps,
                        y_steps ? At(y, begin, in_size) : y, y_steps, At(to, begin, out_size),
                        end - begin)) {
        ok = false;
      }
    });
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(spec.error);
  }

  // A short row added to every row of a matrix (biases): repeat it, so that runs are long.
  const int64_t total = plan.output().num_elements();
  const bool x_is_row =
      x_shape.num_elements() == inner && y_shape.num_elements() == total && x_steps && y_steps;
  const bool y_is_row =
      y_shape.num_elements() == inner && x_shape.num_elements() == total && x_steps && y_steps;
  if (inner < kShortRow && total >= 2 * kBlock && (x_is_row || y_is_row)) {
    const int64_t times = kBlock / inner;
    const Tensor tile = RepeatRow(spec.in, x_is_row ? x : y, inner, times);
    c.ParallelFor(plan.rows(), spec.cost_ns * static_cast<double>(inner),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; row += times) {
                      const int64_t n = std::min(times, end - row) * inner;
                      const int64_t at = row * inner;
                      if (!RunBinaryRun(spec, x_is_row ? tile.raw() : At(x, at, in_size), true,
                                        x_is_row ? At(y, at, in_size) : tile.raw(), true,
                                        At(to, at, out_size), n)) {
                        ok = false;
                      }
                    }
                  });
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(spec.error);
  }

  c.ParallelFor(
      plan.rows(), spec.cost_ns * static_cast<double>(inner) + 5, [&](int64_t begin, int64_t end) {
        plan.ForEachRow(begin, end, [&](int64_t at, const BroadcastOffsets& offsets) {
          if (!RunBinaryRun(spec, At(x, offsets[0], in_size), x_steps, At(y, offsets[1], in_size),
                            y_steps, At(to, at, out_size), inner)) {
            ok = false;
          }
        });
      });
  return ok ? absl::OkStatus() : absl::InvalidArgumentError(spec.error);
}

KernelFactory ElementwiseKernel(UnarySpec spec) {
  return [spec] { return std::make_unique<UnaryKernel>(spec); };
}
KernelFactory ElementwiseKernel(BinarySpec spec) {
  return [spec] { return std::make_unique<BinaryKernel>(spec); };
}
KernelFactory ComparisonKernel(BinarySpec spec, bool mismatch) {
  return [spec, mismatch] { return std::make_unique<EqualityKernel>(spec, mismatch); };
}

void RememberUnaryLoop(const std::string& op, const UnarySpec& spec) {
  Loops<UnarySpec>::Global().Remember(op, spec);
}
const UnarySpec* FindUnaryLoop(const std::string& op, DType dtype) {
  return Loops<UnarySpec>::Global().Find(op, dtype);
}
void RememberBinaryLoop(const std::string& op, const BinarySpec& spec) {
  Loops<BinarySpec>::Global().Remember(op, spec);
}
const BinarySpec* FindBinaryLoop(const std::string& op, DType dtype) {
  return Loops<BinarySpec>::Global().Find(op, dtype);
}

void ToFloat(DType dtype, const void* from, float* to, int64_t count) {
  if (dtype == DType::kBfloat16)
    ConvertArray(static_cast<const Bfloat16*>(from), count, to);
  else
    ConvertArray(static_cast<const Half*>(from), count, to);
}

void FromFloat(DType dtype, const float* from, void* to, int64_t count) {
  if (dtype == DType::kBfloat16)
    ConvertArray(from, count, static_cast<Bfloat16*>(to));
  else
    ConvertArray(from, count, static_cast<Half*>(to));
}

}  // namespace muster
