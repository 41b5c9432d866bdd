// Staging areas with keys: parts of a tuple may come, and go, one by one.
#include <algorithm>
#include <map>
#include <memory>

#include "muster/ops/input/wait_list.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

using Tuple = WaitList::Tuple;
using Result = std::optional<absl::StatusOr<Tuple>>;

// Keys are kept in order, which the unordered ops do not promise but may have.
class StagingMap : public WaitList {
 public:
  StagingMap(int64_t capacity, int64_t memory_limit)
      : capacity_(capacity), memory_limit_(memory_limit) {}
  std::string Describe() const override { return "StagingMap"; }

  // values[i] becomes component indices[i] of the `components` that `key` will have. Waits while
  // the area is full, when the tuple becomes complete by it.
  void Put(int64_t key, size_t components, Dims indices, Tuple values, OnWait on_wait,
           TupleDone done) {
    absl::Status valid = CheckPut(components, indices, values.size());
    if (!valid.ok()) return std::move(done)(valid);
    Await([this, key, components, indices = std::move(indices),
           values = std::make_shared<Tuple>(std::move(values))]()
              ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                  mutex_) { return TryPut(key, components, indices, *values); },
          on_wait, std::move(done));
  }
  // Components of the tuple with that key, which are gone afterwards when `removes`.
  void Get(int64_t key, Dims indices, bool removes, OnWait on_wait, TupleDone done) {
    Await(
        [this, key, indices = std::move(indices), removes]()
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> Result {
              const auto found = complete_.find(key);
              if (found == complete_.end()) return std::nullopt;
              return Extract(found, indices, removes);
            },
        on_wait, std::move(done));
  }
  // The same for the first key, which comes before the components.
  void GetFirst(Dims indices, OnWait on_wait, TupleDone done) {
    Await(
        [this, indices = std::move(indices)]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> Result {
          if (complete_.empty()) return std::nullopt;
          const int64_t key = complete_.begin()->first;
          absl::StatusOr<Tuple> tuple = Extract(complete_.begin(), indices, true);
          if (tuple.ok()) tuple->insert(tuple->begin(), Tensor::Scalar<int64_t>(key));
          return tuple;
        },
        on_wait, std::move(done));
  }
  int64_t size() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(complete_.size());
  }
  int64_t incomplete_size() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(incomplete_.size());
  }
  void Clear() {
    {
      MutexLock lock(mutex_);
      complete_.clear();
      incomplete_.clear();
      bytes_ = 0;
    }
    Flush();
  }

 private:
  // Absent components are invalid tensors.
  using Map = std::map<int64_t, Tuple>;

  static absl::Status CheckIndices(size_t components, const Dims& indices) {
    for (const int64_t index : indices) {
      if (index < 0 || index >= static_cast<int64_t>(components)) {
        return InvalidArgument("Index '", index, "' is out of bounds '0' <= '", index, "' < '",
                               components, "'");
      }
    }
    return absl::OkStatus();
  }
  static absl::Status CheckPut(size_t components, const Dims& indices, size_t values) {
    if (indices.size() != values) {
      return InvalidArgument("Number of indices ", indices.size(),
                             " doesn't match number of values ", values);
    }
    for (size_t i = 1; i < indices.size(); ++i) {
      if (indices[i - 1] >= indices[i]) return InvalidArgument("Indices are not strictly ordered");
    }
    return CheckIndices(components, indices);
  }

  Result TryPut(int64_t key, size_t components, const Dims& indices, Tuple& values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int64_t bytes = 0;
    for (const Tensor& value : values) bytes += static_cast<int64_t>(value.size_bytes());
    if (memory_limit_ > 0 && bytes > memory_limit_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("Attempted to insert tensors with combined size of '", bytes,
                       "' bytes into Staging Area with a memory limit of '", memory_limit_, "'."));
    }
    const auto old = incomplete_.find(key);
    if (old != incomplete_.end() && old->second.size() != components) {
      return InvalidArgument("Key '", key, "' has ", old->second.size(), " components, not ",
                             components);
    }
    size_t present = indices.size();
    if (old != incomplete_.end() && indices.size() < components) {
      for (const int64_t index : indices) {
        if (!old->second[index].valid()) continue;
        return InvalidArgument("The tensor for index '", index, "' for key '", key,
                               "' was already initialized '", components, "'.");
      }
      for (const Tensor& tensor : old->second) present += tensor.valid() ? 1 : 0;
    }
    const bool completes = present == components;
    if (completes && capacity_ > 0 && static_cast<int64_t>(complete_.size()) >= capacity_)
      return std::nullopt;
    if (memory_limit_ > 0 && bytes_ + bytes > memory_limit_) return std::nullopt;
    Tuple tuple(components);
    if (old != incomplete_.end() && indices.size() < components) {
      tuple = std::move(old->second);
      incomplete_.erase(old);
    }
    for (size_t i = 0; i < indices.size(); ++i) tuple[indices[i]] = std::move(values[i]);
    // A key that is there already keeps what it has.
    const bool added = (completes ? complete_ : incomplete_).emplace(key, std::move(tuple)).second;
    if (added || !completes) bytes_ += bytes;
    return Tuple();
  }

  absl::StatusOr<Tuple> Extract(Map::iterator found, const Dims& indices, bool removes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Tuple& stored = found->second;
    RETURN_IF_ERROR(CheckIndices(stored.size(), indices));
    for (const int64_t index : indices) {
      if (stored[index].valid()) continue;
      return InvalidArgument("Tensor at index '", index, "' for key '", found->first,
                             "' has already been removed.");
    }
    Tuple tuple;
    for (const int64_t index : indices) tuple.push_back(stored[index]);
    if (!removes) return tuple;
    for (const int64_t index : indices) {
      bytes_ -= static_cast<int64_t>(stored[index].size_bytes());
      stored[index] = Tensor();
    }
    bool empty = true;
    for (const Tensor& tensor : stored) empty = empty && !tensor.valid();
    if (empty) complete_.erase(found);
    return tuple;
  }

  const int64_t capacity_;
  const int64_t memory_limit_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Map complete_ ABSL_GUARDED_BY(mutex_);
  Map incomplete_ ABSL_GUARDED_BY(mutex_);
};

class MapKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(name_, NameResource(setup, /*use_node_name=*/true));
    NameForDevice(name_, setup.device());
    ASSIGN_OR_RETURN(capacity_, setup.Attr<int64_t>("capacity"));
    ASSIGN_OR_RETURN(memory_limit_, setup.Attr<int64_t>("memory_limit"));
    ASSIGN_OR_RETURN(const std::vector<DType> dtypes, setup.Attr<std::vector<DType>>("dtypes"));
    components_ = dtypes;
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<RefPtr<StagingMap>> Area(const KernelContext& c) const {
    const std::string key = ResourceKey(name_.name, "StagingMap");
    RETURN_IF_ERROR(c.resources()
                        .LookupOrCreate(name_.container, key,
                                        [this]() -> absl::StatusOr<RefPtr<Resource>> {
                                          return RefPtr<Resource>(
                                              MakeRef<StagingMap>(capacity_, memory_limit_));
                                        })
                        .status());
    return c.resources().LookupAs<StagingMap>(name_.container, key);
  }
  // The types of a whole tuple.
  const std::vector<DType>& components() const { return components_; }

 private:
  ResourceName name_;
  int64_t capacity_ = 0;
  int64_t memory_limit_ = 0;
  std::vector<DType> components_;
};

enum class Access { kPut, kGet, kPeek, kGetFirst };

template <Access kAccess>
class WaitingMapKernel : public MapKernel {
 public:
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override {
    return Internal("Staging operations run asynchronously");
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::Status status = Start(c, done);
    if (!status.ok()) std::move(done)(std::move(status));
  }

 private:
  // Takes `done` over when it succeeds.
  absl::Status Start(KernelContext& c, Done& done) {
    ASSIGN_OR_RETURN(const RefPtr<StagingMap> area, Area(c));
    int at = 0;
    int64_t key = 0;
    if (kAccess != Access::kGetFirst) {
      const Tensor& given = c.input(at);
      if (given.num_elements() != 1 || (kAccess != Access::kPut && given.rank() != 0)) {
        return InvalidArgument("key must be an int64 scalar: ", given.shape().ToString());
      }
      key = c.input(at++).scalar<int64_t>();
    }
    ASSIGN_OR_RETURN(Dims indices, IntegerVector(c.input(at++), "indices"));
    if (kAccess == Access::kPut) RETURN_IF_ERROR(CheckTypes(c, at, indices));
    const StepWait wait(c, area);
    WaitList::TupleDone ended =
        wait.Then([&c, done = std::move(done)](absl::StatusOr<Tuple> tuple) mutable {
          std::move(done)(tuple.ok() ? SetOutputs(c, *tuple) : tuple.status());
        });
    const auto on_wait = wait.OnWait();
    if (kAccess == Access::kPut) {
      Tuple values;
      for (; at < c.num_inputs(); ++at) values.push_back(KeptTensor(c.TakeInput(at)));
      area->Put(key, components().size(), std::move(indices), std::move(values), on_wait,
                std::move(ended));
    } else if (kAccess == Access::kGetFirst) {
      area->GetFirst(std::move(indices), on_wait, std::move(ended));
    } else {
      area->Get(key, std::move(indices), kAccess == Access::kGet, on_wait, std::move(ended));
    }
    return absl::OkStatus();
  }

  // Counts and bounds are checked by the area.
  absl::Status CheckTypes(const KernelContext& c, int first, const Dims& indices) const {
    const auto values = static_cast<size_t>(c.num_inputs() - first);
    for (size_t i = 0; i < std::min(values, indices.size()); ++i) {
      if (indices[i] < 0 || indices[i] >= static_cast<int64_t>(components().size())) continue;
      const DType given = c.input_type(first + static_cast<int>(i));
      const DType wanted = components()[indices[i]];
      if (given == wanted) continue;
      return InvalidArgument("values[", i, "] is of type ", DTypeName(given), ", but component ",
                             indices[i], " of the area is of type ", DTypeName(wanted));
    }
    return absl::OkStatus();
  }

  static absl::Status SetOutputs(KernelContext& c, Tuple& tuple) {
    if (static_cast<int>(tuple.size()) != c.num_outputs()) {
      return InvalidArgument("The number of indices does not fit the outputs: ", tuple.size(),
                             " vs. ", c.num_outputs());
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

template <bool kIncomplete>
class MapSizeKernel : public MapKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<StagingMap> area, Area(c));
    const int64_t size = kIncomplete ? area->incomplete_size() : area->size();
    c.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(size)));
    return absl::OkStatus();
  }
};

class MapClearKernel : public MapKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<StagingMap> area, Area(c));
    area->Clear();
    return absl::OkStatus();
  }
};

OpBuilder& Area(OpBuilder& op, const char* dtypes, const char* more = nullptr) {
  op.Attr("capacity: int >= 0 = 0").Attr("memory_limit: int >= 0 = 0").Attr(dtypes);
  if (more != nullptr) op.Attr(more);
  return op.Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Stateful()
      .NoGradient("staging areas carry values from step to step");
}
constexpr const char* kSome = "dtypes: list(type) >= 1";
constexpr const char* kAny = "dtypes: list(type)";

void Put(OpBuilder& op) {
  Area(op, kAny, "fake_dtypes: list(type) >= 1")
      .Input("key: int64")
      .Input("indices: int32")
      .Input("values: fake_dtypes")
      .Doc("Puts components of the tuple with a key into a staging area.")
      .Shape(NoOutputs)
      .HostMemory({"key", "indices"})
      .Cpu(New<WaitingMapKernel<Access::kPut>>())
      .Gpu(New<WaitingMapKernel<Access::kPut>>());
}
void Get(OpBuilder& op) {
  Area(op, kSome)
      .Input("key: int64")
      .Input("indices: int32")
      .Output("values: dtypes")
      .Doc("Takes components of the tuple with a key; waits for it.")
      .Shape(UnknownShape)
      .HostMemory({"key", "indices"})
      .Cpu(New<WaitingMapKernel<Access::kGet>>())
      .Gpu(New<WaitingMapKernel<Access::kGet>>());
}
void Peek(OpBuilder& op) {
  Area(op, kSome)
      .Input("key: int64")
      .Input("indices: int32")
      .Output("values: dtypes")
      .Doc("Reads components of the tuple with a key; waits for it.")
      .Shape(UnknownShape)
      .HostMemory({"key", "indices"})
      .Cpu(New<WaitingMapKernel<Access::kPeek>>())
      .Gpu(New<WaitingMapKernel<Access::kPeek>>());
}
void GetFirst(OpBuilder& op) {
  Area(op, kSome)
      .Input("indices: int32")
      .Output("key: int64")
      .Output("values: dtypes")
      .Doc("Takes components of the tuple with some key; waits for one.")
      .Shape(UnknownShape)
      .HostMemory({"key", "indices"})
      .Cpu(New<WaitingMapKernel<Access::kGetFirst>>())
      .Gpu(New<WaitingMapKernel<Access::kGetFirst>>());
}
void Size(OpBuilder& op) {
  Area(op, kAny)
      .Output("size: int32")
      .Doc("The number of complete tuples.")
      .Shape(ScalarShape)
      .HostMemory({"size"})
      .Cpu(New<MapSizeKernel<false>>())
      .Gpu(New<MapSizeKernel<false>>());
}
void IncompleteSize(OpBuilder& op) {
  Area(op, kAny)
      .Output("size: int32")
      .Doc("The number of tuples that lack components.")
      .Shape(ScalarShape)
      .HostMemory({"size"})
      .Cpu(New<MapSizeKernel<true>>())
      .Gpu(New<MapSizeKernel<true>>());
}
void Clear(OpBuilder& op) {
  Area(op, kAny)
      .Doc("Empties a staging area with keys.")
      .Shape(NoOutputs)
      .Cpu(New<MapClearKernel>())
      .Gpu(New<MapClearKernel>());
}

}  // namespace

DEFINE_OP(MapStage) {
  Put(op);
}
DEFINE_OP(OrderedMapStage) {
  Put(op);
}
DEFINE_OP(MapUnstage) {
  Get(op);
}
DEFINE_OP(OrderedMapUnstage) {
  Get(op);
}
DEFINE_OP(MapPeek) {
  Peek(op);
}
DEFINE_OP(OrderedMapPeek) {
  Peek(op);
}
DEFINE_OP(MapUnstageNoKey) {
  GetFirst(op);
}
DEFINE_OP(OrderedMapUnstageNoKey) {
  GetFirst(op);
}
DEFINE_OP(MapSize) {
  Size(op);
}
DEFINE_OP(OrderedMapSize) {
  Size(op);
}
DEFINE_OP(MapIncompleteSize) {
  IncompleteSize(op);
}
DEFINE_OP(OrderedMapIncompleteSize) {
  IncompleteSize(op);
}
DEFINE_OP(MapClear) {
  Clear(op);
}
DEFINE_OP(OrderedMapClear) {
  Clear(op);
}

}  // namespace muster
