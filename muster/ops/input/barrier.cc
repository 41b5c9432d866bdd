#include "muster/ops/input/barrier.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/match.h"

#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

QueueOptions ReadyOptions(const std::string& name, const std::vector<DType>& dtypes,
                          const std::vector<PartialShape>& shapes) {
  QueueOptions options;
  options.name = name;
  options.dtypes = {DType::kInt64, DType::kString};
  options.dtypes.insert(options.dtypes.end(), dtypes.begin(), dtypes.end());
  options.shapes = {PartialShape::Scalar(), PartialShape::Scalar()};
  options.shapes.insert(options.shapes.end(), shapes.begin(), shapes.end());
  return options;
}

}  // namespace

Barrier::Barrier(std::string name, std::vector<DType> dtypes, std::vector<PartialShape> shapes)
    : name_(std::move(name)),
      dtypes_(std::move(dtypes)),
      shapes_(std::move(shapes)),
      ready_(NewPriorityQueue(ReadyOptions(name_, dtypes_, shapes_))),
      next_index_(std::numeric_limits<int64_t>::min()) {}

absl::Status Barrier::Insert(int component, const Tensor& keys, const Tensor& values) {
  if (component < 0 || component >= static_cast<int>(dtypes_.size())) {
    return InvalidArgument("The component ID is out of range ", component, " >= num_components",
                           " (= ", dtypes_.size(), ")");
  }
  if (values.dtype() != dtypes_[component]) {
    return InvalidArgument("Component ", component, " of barrier ", name_, " is of type ",
                           DTypeName(dtypes_[component]), ", but got ", DTypeName(values.dtype()));
  }
  if (!keys.shape().is_vector())
    return InvalidArgument("Keys must be a vector, but have shape ", keys.shape().ToString());
  const int64_t rows = keys.num_elements();
  if (rows > 0 && values.num_elements() == 0) {
    return InvalidArgument("Tensors with no elements are not supported ", name_,
                           ": received shape ", values.shape().ToString());
  }
  PartialShape expected({rows});
  for (const int64_t size : shapes_[component].dims()) expected.Append(size);
  if (!expected.CompatibleWith(values.shape())) {
    return InvalidArgument("Shape mismatch: expected ", expected.ToString(), ", got ",
                           values.shape().ToString(), " for component ", component, " of barrier ",
                           name_);
  }
  Shape row_shape = values.shape();
  row_shape.Remove(0);
  std::vector<Queue::Tuple> ready;
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (closed_ && (cancelled_ || (rows > 0 && incomplete_.empty()))) {
      return absl::CancelledError(absl::StrCat(
          "Barrier ", name_, " is closed.  Pending enqueues cancelled: ", cancelled_ ? 1 : 0,
          ".  Number of new insertions: ", rows,
          ".  Number of incomplete keys: ", incomplete_.size(), "."));
    }
    has_new_keys_ = false;
    for (int64_t row = 0; row < rows && status.ok(); ++row) {
      absl::StatusOr<Tensor> value = Tensor::Make(values.dtype(), row_shape);
      if (value.ok()) {
        CopyElements(value->dtype(), values.raw() + static_cast<size_t>(row) * value->size_bytes(),
                     value->raw(), value->num_elements());
        status = InsertOneLocked(component, keys.data<std::string>()[row], row, *std::move(value),
                                 ready);
      } else {
        status = value.status();
      }
    }
    if (has_new_keys_) ++next_index_;
    ++inserting_;
  }
  // The queue of ready keys has no bound: nothing waits here.
  for (Queue::Tuple& tuple : ready) {
    ready_->Enqueue(
        std::move(tuple), [](uint64_t) { return false; }, [](const absl::Status&) {});
  }
  {
    MutexLock lock(mutex_);
    --inserting_;
    if (!closed_ || inserting_ > 0 || !incomplete_.empty()) return status;
  }
  CloseReadyQueue();
  return status;
}

absl::Status Barrier::InsertOneLocked(int component, const std::string& key, int64_t row,
                                      Tensor value, std::vector<Queue::Tuple>& ready) {
  auto found = incomplete_.find(key);
  if (found == incomplete_.end()) {
    if (closed_) {
      return absl::CancelledError(absl::StrCat(
          "Barrier ", name_, " is closed, but attempted to insert a brand new key: ", key,
          ".  Pending enqueues cancelled: ", cancelled_ ? 1 : 0, ".  Insertion index: ", row,
          ".  Number of incomplete keys: ", incomplete_.size(), "."));
    }
    has_new_keys_ = true;
    found = incomplete_.emplace(key, Entry{next_index_, std::vector<Tensor>(dtypes_.size())}).first;
  }
  Entry& entry = found->second;
  if (entry.components[component].valid()) {
    return InvalidArgument("Key ", key, " already has a value for component ", component,
                           " in barrier ", name_);
  }
  entry.components[component] = std::move(value);
  if (!std::all_of(entry.components.begin(), entry.components.end(),
                   [](const Tensor& t) { return t.valid(); })) {
    return absl::OkStatus();
  }
  Queue::Tuple tuple{Tensor::Scalar<int64_t>(entry.index), Tensor::Scalar<std::string>(key)};
  for (Tensor& tensor : entry.components) tuple.push_back(std::move(tensor));
  ready.push_back(std::move(tuple));
  incomplete_.erase(found);
  return absl::OkStatus();
}

void Barrier::Take(int64_t count, bool allow_fewer, Queue::OnWait on_wait, Queue::TupleDone done) {
  const auto too_few = [this](int64_t wanted, int64_t available) {
    return OutOfRange("Barrier '", name_, "' is closed and has insufficient elements (requested ",
                      wanted, ", total size ", available, ")");
  };
  std::optional<int64_t> available;
  {
    MutexLock lock(mutex_);
    if (closed_) {
      // No new keys come any more: a take that allows fewer gets what is ready, others wait for the
      // keys that are not complete yet.
      const int64_t ready = ready_->size();
      available = allow_fewer ? ready : ready + static_cast<int64_t>(incomplete_.size());
      if (allow_fewer) count = std::min(count, ready);
      if (inserting_ > 0) {
        count = std::max<int64_t>(count, 1);
        available.reset();
      }
    }
  }
  if (available && *available < std::max<int64_t>(count, 1))
    return std::move(done)(too_few(count, *available));
  ready_->DequeueMany(count, allow_fewer, on_wait,
                      [this, count, allow_fewer, too_few,
                       done = std::move(done)](absl::StatusOr<Queue::Tuple> taken) mutable {
                        if (absl::IsOutOfRange(taken.status())) {
                          const int64_t size = ready_->size();
                          taken = too_few(allow_fewer ? std::min(count, size) : count, size);
                        }
                        std::move(done)(std::move(taken));
                      });
}

absl::Status Barrier::Close(bool cancel_pending_enqueues) {
  {
    MutexLock lock(mutex_);
    // Closing twice is allowed when only the second time cancels.
    if (closed_ && (cancelled_ || !cancel_pending_enqueues))
      return absl::CancelledError(absl::StrCat("Barrier '", name_, "' is already closed."));
    closed_ = true;
    cancelled_ = cancel_pending_enqueues;
    if (cancelled_) incomplete_.clear();
    if (!incomplete_.empty() || inserting_ > 0) return absl::OkStatus();
  }
  CloseReadyQueue();
  return absl::OkStatus();
}

void Barrier::CloseReadyQueue() {
  ready_->Close(/*cancel_pending_enqueues=*/true, [](uint64_t) { return false; },
                [](const absl::Status&) {});
}

int64_t Barrier::incomplete_size() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(incomplete_.size());
}

namespace {

class BarrierKernel : public ResourceKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(ResourceKernel::Init(setup));
    ASSIGN_OR_RETURN(const int64_t capacity, setup.Attr<int64_t>("capacity"));
    ASSIGN_OR_RETURN(dtypes_, setup.Attr<std::vector<DType>>("component_types"));
    ASSIGN_OR_RETURN(shapes_, setup.Attr<std::vector<PartialShape>>("shapes"));
    if (shapes_.size() != dtypes_.size())
      return InvalidArgument("All of the component shapes must be specified");
    for (PartialShape& shape : shapes_) {
      // As in TensorFlow, unknown shapes are taken for scalars.
      if (!shape.known_rank()) shape = PartialShape::Scalar();
      if (!shape.fully_known())
        return InvalidArgument("Shape ", shape.ToString(), " is not fully defined");
    }
    if (capacity >= 0) {
      return InvalidArgument(
          "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to "
          "enforce a limited capacity.");
    }
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<RefPtr<Resource>> Make(const std::string& name) override {
    return RefPtr<Resource>(MakeRef<Barrier>(name, dtypes_, shapes_));
  }
  absl::Status Verify(Resource& resource) override {
    auto* barrier = dynamic_cast<Barrier*>(&resource);
    if (barrier == nullptr)
      return InvalidArgument("Expected a barrier, found a ", resource.Describe());
    if (barrier->dtypes() != dtypes_) {
      return InvalidArgument("Shared barrier '", barrier->name(), "' has component types ",
                             DTypeList(barrier->dtypes()), " but requested component types were ",
                             DTypeList(dtypes_));
    }
    if (barrier->shapes() != shapes_) {
      return InvalidArgument("Shared barrier '", barrier->name(), "' has component shapes ",
                             ShapeList(barrier->shapes()), " but requested component shapes were ",
                             ShapeList(shapes_));
    }
    return absl::OkStatus();
  }
  std::string type_name() const override { return Barrier::kTypeName; }

 private:
  std::vector<DType> dtypes_;
  std::vector<PartialShape> shapes_;
};

class InsertKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(component_, setup.Attr<int64_t>("component_index"));
    if (component_ < 0 || component_ > std::numeric_limits<int>::max())
      return InvalidArgument("component_index must be at least 0, but is ", component_);
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<Barrier> barrier, InputResourceAs<Barrier>(c, 0));
    return barrier->Insert(static_cast<int>(component_), c.input(1), c.input(2));
  }

 private:
  int64_t component_ = 0;
};

class TakeManyKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const int64_t timeout_ms, setup.Attr<int64_t>("timeout_ms"));
    if (timeout_ms != -1) return InvalidArgument("Timeout not supported yet.");
    ASSIGN_OR_RETURN(allow_fewer_, setup.Attr<bool>("allow_small_batch"));
    return absl::OkStatus();
  }
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("Takes run asynchronously"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<RefPtr<Barrier>> barrier = Find(c);
    if (!barrier.ok()) return std::move(done)(barrier.status());
    const absl::StatusOr<int64_t> count = ScalarInteger(c.input(1), "num_elements");
    if (!count.ok()) return std::move(done)(count.status());
    if (*count < 0)
      return std::move(done)(InvalidArgument("num_elements must be at least 0, but is ", *count));
    const StepWait wait(c, *barrier);
    (*barrier)->Take(
        *count, allow_fewer_, wait.OnWait(),
        wait.Then([&c, done = std::move(done)](absl::StatusOr<Queue::Tuple> taken) mutable {
          if (taken.ok()) {
            for (size_t i = 0; i < taken->size(); ++i)
              c.SetOutput(static_cast<int>(i), std::move((*taken)[i]));
          }
          std::move(done)(taken.status());
        }));
  }

 private:
  static absl::StatusOr<RefPtr<Barrier>> Find(const KernelContext& c) {
    ASSIGN_OR_RETURN(RefPtr<Barrier> barrier, InputResourceAs<Barrier>(c, 0));
    std::vector<DType> out{DType::kInt64, DType::kString};
    out.insert(out.end(), barrier->dtypes().begin(), barrier->dtypes().end());
    if (out != c.node().output_types()) {
      return InvalidArgument("Signature mismatch, have: ", DTypeList(c.node().input_types()), "->",
                             DTypeList(c.node().output_types()),
                             " expected: ", DTypeList(c.node().input_types()), "->",
                             DTypeList(out));
    }
    return barrier;
  }

  bool allow_fewer_ = false;
};

class CloseKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(cancel_, setup.Attr<bool>("cancel_pending_enqueues"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<Barrier> barrier, InputResourceAs<Barrier>(c, 0));
    return barrier->Close(cancel_);
  }

 private:
  bool cancel_ = false;
};

absl::Status ReadySize(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Barrier> barrier, InputResourceAs<Barrier>(c, 0));
  c.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(barrier->ready_size())));
  return absl::OkStatus();
}

absl::Status IncompleteSize(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Barrier> barrier, InputResourceAs<Barrier>(c, 0));
  c.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(barrier->incomplete_size())));
  return absl::OkStatus();
}

absl::Status InsertShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  return c.WithRankAtLeast(c.input(2), 1).status();
}

}  // namespace

DEFINE_OP(Barrier) {
  op.Attr("component_types: list(type) >= 1")
      .Attr("shapes: list(shape) >= 0 = []")
      .Attr("capacity: int = -1")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Output("handle: Ref(string)")
      .Stateful()
      .Doc("Collects components by key until each key has all of them.")
      .Shape(HandleOutputShape)
      .NoGradient("a barrier is not a function of its inputs")
      .Cpu(New<BarrierKernel>());
}
DEFINE_OP(BarrierInsertMany) {
  op.Attr("T: type")
      .Attr("component_index: int")
      .Input("handle: Ref(string)")
      .Input("keys: string")
      .Input("values: T")
      .Doc("Gives keys of a barrier one of their components.")
      .Shape(InsertShape)
      .Cpu(New<InsertKernel>());
}
DEFINE_OP(BarrierTakeMany) {
  op.Attr("component_types: list(type) >= 1")
      .Attr("allow_small_batch: bool = false")
      .Attr("wait_for_incomplete: bool = false")
      .Attr("timeout_ms: int = -1")
      .Input("handle: Ref(string)")
      .Input("num_elements: int32")
      .Output("indices: int64")
      .Output("keys: string")
      .Output("values: component_types")
      .Doc("Waits for keys with all components and takes them out of a barrier.")
      .Shape(UnknownShape)
      .Cpu(New<TakeManyKernel>());
}
DEFINE_OP(BarrierClose) {
  op.Attr("cancel_pending_enqueues: bool = false")
      .Input("handle: Ref(string)")
      .Doc("Says that a barrier gets no new keys.")
      .Shape(NoOutputs)
      .Cpu(New<CloseKernel>());
}
DEFINE_OP(BarrierReadySize) {
  op.Input("handle: Ref(string)")
      .Output("size: int32")
      .Doc("The number of keys with all components.")
      .Shape(ScalarShape)
      .Cpu(ReadySize);
}
DEFINE_OP(BarrierIncompleteSize) {
  op.Input("handle: Ref(string)")
      .Output("size: int32")
      .Doc("The number of keys that lack components.")
      .Shape(ScalarShape)
      .Cpu(IncompleteSize);
}

}  // namespace muster
