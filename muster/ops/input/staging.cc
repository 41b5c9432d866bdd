// Staging areas: Stage puts a tuple aside, Unstage takes the oldest one.
#include <deque>
#include <memory>

#include "muster/ops/input/wait_list.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

using Tuple = WaitList::Tuple;

int64_t BytesOf(const Tuple& tuple) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tuple) bytes += static_cast<int64_t>(tensor.size_bytes());
  return bytes;
}

class StagingArea : public WaitList {
 public:
  StagingArea(int64_t capacity, int64_t memory_limit)
      : capacity_(capacity), memory_limit_(memory_limit) {}
  std::string Describe() const override { return "StagingArea"; }

  // Waits while the area is full; `done` gets an empty tuple.
  void Put(Tuple tuple, OnWait on_wait, TupleDone done) {
    const int64_t bytes = BytesOf(tuple);
    if (memory_limit_ > 0 && bytes > memory_limit_) {
      return std::move(done)(absl::ResourceExhaustedError(
          absl::StrCat("Attempted to insert tensors with combined size of '", bytes,
                       "' bytes into Staging Area with a memory limit of '", memory_limit_, "'.")));
    }
    Await(
        [this, bytes, tuple = std::make_shared<Tuple>(std::move(tuple))]()
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> std::optional<absl::StatusOr<Tuple>> {
              if (capacity_ > 0 && static_cast<int64_t>(tuples_.size()) >= capacity_)
                return std::nullopt;
              if (memory_limit_ > 0 && bytes_ + bytes > memory_limit_) return std::nullopt;
              bytes_ += bytes;
              tuples_.push_back(std::move(*tuple));
              return Tuple();
            },
        on_wait, std::move(done));
  }
  void Get(OnWait on_wait, TupleDone done) {
    Await(
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> std::optional<absl::StatusOr<Tuple>> {
          if (tuples_.empty()) return std::nullopt;
          Tuple tuple = std::move(tuples_.front());
          tuples_.pop_front();
          bytes_ -= BytesOf(tuple);
          return tuple;
        },
        on_wait, std::move(done));
  }
  void Peek(int64_t index, OnWait on_wait, TupleDone done) {
    Await(
        [this, index]()
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> std::optional<absl::StatusOr<Tuple>> {
              if (index >= static_cast<int64_t>(tuples_.size())) return std::nullopt;
              return tuples_[index];
            },
        on_wait, std::move(done));
  }
  int64_t size() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(tuples_.size());
  }
  void Clear() {
    {
      MutexLock lock(mutex_);
      tuples_.clear();
      bytes_ = 0;
    }
    Flush();
  }

 private:
  const int64_t capacity_;
  const int64_t memory_limit_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Tuple> tuples_ ABSL_GUARDED_BY(mutex_);
};

// The area that a node names; all nodes with that name share it.
class StagingKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(name_, NameResource(setup, /*use_node_name=*/true));
    NameForDevice(name_, setup.device());
    ASSIGN_OR_RETURN(capacity_, setup.Attr<int64_t>("capacity"));
    ASSIGN_OR_RETURN(memory_limit_, setup.Attr<int64_t>("memory_limit"));
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<RefPtr<StagingArea>> Area(const KernelContext& c) const {
    const std::string key = ResourceKey(name_.name, "StagingArea");
    RETURN_IF_ERROR(c.resources()
                        .LookupOrCreate(name_.container, key,
                                        [this]() -> absl::StatusOr<RefPtr<Resource>> {
                                          return RefPtr<Resource>(
                                              MakeRef<StagingArea>(capacity_, memory_limit_));
                                        })
                        .status());
    return c.resources().LookupAs<StagingArea>(name_.container, key);
  }

 private:
  ResourceName name_;
  int64_t capacity_ = 0;
  int64_t memory_limit_ = 0;
};

class WaitingStagingKernel : public StagingKernel {
 public:
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override {
    return Internal("Staging operations run asynchronously");
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    const absl::StatusOr<RefPtr<StagingArea>> area = Area(c);
    if (!area.ok()) return std::move(done)(area.status());
    const StepWait wait(c, *area);
    Start(c, **area, wait.OnWait(),
          wait.Then([&c, done = std::move(done)](absl::StatusOr<Tuple> tuple) mutable {
            std::move(done)(tuple.ok() ? SetOutputs(c, *tuple) : tuple.status());
          }));
  }

 protected:
  virtual void Start(KernelContext& c, StagingArea& area, WaitList::OnWait on_wait,
                     WaitList::TupleDone done) = 0;

 private:
  static absl::Status SetOutputs(KernelContext& c, Tuple& tuple) {
    if (static_cast<int>(tuple.size()) != c.num_outputs()) {
      return InvalidArgument("Mismatch stage/unstage: ", tuple.size(), " vs. ", c.num_outputs());
    }
    for (int i = 0; i < c.num_outputs(); ++i) {
      if (tuple[i].dtype() != c.output_type(i)) {
        return InvalidArgument("Output ", i, " of type ", DTypeName(tuple[i].dtype()),
                               " does not match declared output type ", DTypeName(c.output_type(i)),
                               " for node ", c.node().name());
      }
      c.SetOutput(i, std::move(tuple[i]));
    }
    return absl::OkStatus();
  }
};

class StageKernel : public WaitingStagingKernel {
 protected:
  void Start(KernelContext& c, StagingArea& area, WaitList::OnWait on_wait,
             WaitList::TupleDone done) override {
    Tuple tuple;
    for (int i = 0; i < c.num_inputs(); ++i) tuple.push_back(KeptTensor(c.TakeInput(i)));
    area.Put(std::move(tuple), on_wait, std::move(done));
  }
};

class UnstageKernel : public WaitingStagingKernel {
 protected:
  void Start(KernelContext&, StagingArea& area, WaitList::OnWait on_wait,
             WaitList::TupleDone done) override {
    area.Get(on_wait, std::move(done));
  }
};

class PeekKernel : public WaitingStagingKernel {
 protected:
  void Start(KernelContext& c, StagingArea& area, WaitList::OnWait on_wait,
             WaitList::TupleDone done) override {
    if (c.input(0).rank() != 0) return std::move(done)(InvalidArgument("index must be scalar"));
    const absl::StatusOr<int64_t> index = ScalarInteger(c.input(0), "index");
    if (!index.ok()) return std::move(done)(index.status());
    if (*index < 0)
      return std::move(done)(InvalidArgument("index must be at least 0, but is ", *index));
    area.Peek(*index, on_wait, std::move(done));
  }
};

class SizeKernel : public StagingKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<StagingArea> area, Area(c));
    c.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(area->size())));
    return absl::OkStatus();
  }
};

class ClearKernel : public StagingKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<StagingArea> area, Area(c));
    area->Clear();
    return absl::OkStatus();
  }
};

OpBuilder& Area(OpBuilder& op, const char* dtypes) {
  return op.Attr("capacity: int >= 0 = 0")
      .Attr("memory_limit: int >= 0 = 0")
      .Attr(dtypes)
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Stateful()
      .NoGradient("staging areas carry values from step to step");
}
constexpr const char* kSome = "dtypes: list(type) >= 1";
constexpr const char* kAny = "dtypes: list(type)";

}  // namespace

DEFINE_OP(Stage) {
  Area(op, kSome)
      .Input("values: dtypes")
      .Doc("Puts a tuple into a staging area; waits while it is full.")
      .Shape(NoOutputs)
      .Cpu(New<StageKernel>())
      .Gpu(New<StageKernel>());
}
DEFINE_OP(Unstage) {
  Area(op, kSome)
      .Output("values: dtypes")
      .Doc("Takes the oldest tuple out of a staging area; waits for one.")
      .Shape(UnknownShape)
      .Cpu(New<UnstageKernel>())
      .Gpu(New<UnstageKernel>());
}
DEFINE_OP(StagePeek) {
  Area(op, kSome)
      .Input("index: int32")
      .Output("values: dtypes")
      .Doc("Reads a tuple of a staging area without taking it.")
      .Shape(UnknownShape)
      .HostMemory({"index"})
      .Cpu(New<PeekKernel>())
      .Gpu(New<PeekKernel>());
}
DEFINE_OP(StageSize) {
  Area(op, kAny)
      .Output("size: int32")
      .Doc("The number of tuples in a staging area.")
      .Shape(ScalarShape)
      .HostMemory({"size"})
      .Cpu(New<SizeKernel>())
      .Gpu(New<SizeKernel>());
}
DEFINE_OP(StageClear) {
  Area(op, kAny)
      .Doc("Empties a staging area.")
      .Shape(NoOutputs)
      .Cpu(New<ClearKernel>())
      .Gpu(New<ClearKernel>());
}

}  // namespace muster
