// Sparse tensors kept on the side under numbers, so that queues can carry them:
// AddSparseToTensorsMap, AddManySparseToTensorsMap, TakeManySparseFromTensorsMap.
#include <algorithm>

#include "absl/container/flat_hash_map.h"

#include "muster/ops/resource_kernel.h"
#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

struct SparseEntry {
  Tensor indices;
  Tensor values;
  std::vector<int64_t> shape;
};

// Thread-safe.
class SparseTensorsMap : public Resource {
 public:
  static constexpr const char* kTypeName = "SparseTensorsMap";
  explicit SparseTensorsMap(std::string name) : name_(std::move(name)) {}
  std::string Describe() const override { return "SparseTensorsMap"; }

  int64_t Add(SparseEntry entry) {
    MutexLock lock(mutex_);
    entries_.emplace(next_, std::move(entry));
    return next_++;
  }
  // If one is missing, those that were found before it are removed too.
  absl::StatusOr<std::vector<SparseEntry>> Take(absl::Span<const int64_t> handles) {
    MutexLock lock(mutex_);
    std::vector<SparseEntry> taken;
    for (const int64_t handle : handles) {
      const auto found = entries_.find(handle);
      if (found == entries_.end())
        return InvalidArgument("Unable to find SparseTensor: ", handle, " in map: ", name_);
      taken.push_back(std::move(found->second));
      entries_.erase(found);
    }
    return taken;
  }

 private:
  const std::string name_;
  Mutex mutex_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<int64_t, SparseEntry> entries_ ABSL_GUARDED_BY(mutex_);
};

// The map that a node names; all nodes with that name share it.
class MapKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(name_, NameResource(setup, /*use_node_name=*/true));
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<RefPtr<SparseTensorsMap>> Map(const KernelContext& c) const {
    const std::string key = ResourceKey(name_.name, SparseTensorsMap::kTypeName);
    RETURN_IF_ERROR(c.resources()
                        .LookupOrCreate(name_.container, key,
                                        [this]() -> absl::StatusOr<RefPtr<Resource>> {
                                          return RefPtr<Resource>(
                                              MakeRef<SparseTensorsMap>(name_.name));
                                        })
                        .status());
    return c.resources().LookupAs<SparseTensorsMap>(name_.container, key);
  }

 private:
  ResourceName name_;
};

// The three inputs, found to belong together.
absl::StatusOr<SparseEntry> ReadEntry(KernelContext& c) {
  RETURN_IF_ERROR(CheckSparse(c.input(0), c.input(1), c.input(2)));
  const absl::Span<const int64_t> dims = c.input(2).values<int64_t>();
  return SparseEntry{KeptTensor(c.input(0)), KeptTensor(c.input(1)),
                     std::vector<int64_t>(dims.begin(), dims.end())};
}

class AddKernel : public MapKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(SparseEntry entry, ReadEntry(c));
    ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Map(c));
    c.SetOutput(0, Tensor::Scalar<int64_t>(map->Add(std::move(entry))));
    return absl::OkStatus();
  }
};

class AddManyKernel : public MapKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const SparseEntry all, ReadEntry(c));
    const auto rank = static_cast<int64_t>(all.shape.size());
    if (rank <= 1)
      return InvalidArgument("Rank of input SparseTensor should be > 1, but saw rank: ", rank);
    const int64_t count = all.shape[0];
    constexpr int64_t kMost = int64_t{1} << 20;
    if (count > kMost) {
      return absl::ResourceExhaustedError(
          absl::StrCat("A batch of ", count, " sparse tensors is larger than ", kMost));
    }
    RETURN_IF_ERROR(CheckIndices(all.indices, all.shape));
    RETURN_IF_ERROR(CheckOrder(all.indices));
    const int64_t* const indices = all.indices.data<int64_t>();
    const int64_t entries = all.values.num_elements();
    std::vector<std::vector<int64_t>> rows(count);  // the entries of each tensor
    for (int64_t i = 0; i < entries; ++i) {
      rows[indices[i * rank]].push_back(i);
    }
    ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Map(c));
    ASSIGN_OR_RETURN(Tensor* const handles, c.AllocateOutput(0, Shape({count})));
    // Those without entries get their numbers last.
    for (const bool is_empty : {false, true}) {
      for (int64_t tensor = 0; tensor < count; ++tensor) {
        if (rows[tensor].empty() != is_empty) continue;
        ASSIGN_OR_RETURN(SparseEntry part, Part(c, all, rows[tensor], rank));
        handles->data<int64_t>()[tensor] = map->Add(std::move(part));
      }
    }
    return absl::OkStatus();
  }

 private:
  // The given entries without their first coordinate.
  static absl::StatusOr<SparseEntry> Part(KernelContext& c, const SparseEntry& all,
                                          const std::vector<int64_t>& rows, int64_t rank) {
    SparseEntry part;
    const auto count = static_cast<int64_t>(rows.size());
    ASSIGN_OR_RETURN(part.indices, c.AllocateTemporary(DType::kInt64, Shape({count, rank - 1})));
    ASSIGN_OR_RETURN(part.values, c.AllocateTemporary(all.values.dtype(), Shape({count})));
    part.shape.assign(all.shape.begin() + 1, all.shape.end());
    const auto size = static_cast<int64_t>(DTypeSize(all.values.dtype()));
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(all.indices.data<int64_t>() + rows[i] * rank + 1, rank - 1,
                  part.indices.data<int64_t>() + i * (rank - 1));
      CopyElements(all.values.dtype(), all.values.raw() + rows[i] * size,
                   part.values.raw() + i * size, 1);
    }
    return part;
  }
};

class TakeManyKernel : public MapKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor handles = c.input(0);
    if (handles.rank() != 1) {
      return InvalidArgument("sparse_handles should be a vector but received shape ",
                             handles.shape().ToString());
    }
    if (handles.num_elements() == 0) {
      return InvalidArgument(
          "Must have at least 1 serialized SparseTensor, but input matrix has 0 rows");
    }
    ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Map(c));
    ASSIGN_OR_RETURN(const std::vector<SparseEntry> taken, map->Take(handles.values<int64_t>()));
    const auto rank = static_cast<int64_t>(taken[0].shape.size());
    std::vector<int64_t> shape(rank + 1, 0);
    shape[0] = handles.num_elements();
    int64_t total = 0;
    for (size_t i = 0; i < taken.size(); ++i) {
      const SparseEntry& entry = taken[i];
      if (entry.values.dtype() != c.output_type(1)) {
        return InvalidArgument("Requested SparseTensor of type ", DTypeName(c.output_type(1)),
                               " but SparseTensor[", i,
                               "].values.dtype() == ", DTypeName(entry.values.dtype()));
      }
      if (static_cast<int64_t>(entry.shape.size()) != rank) {
        return InvalidArgument(
            "Inconsistent rank across SparseTensors: rank prior to SparseTensor[", i,
            "] was: ", rank + 1, " but rank of SparseTensor[", i, "] is: ", entry.shape.size() + 1);
      }
      for (int64_t d = 0; d < rank; ++d) shape[d + 1] = std::max(shape[d + 1], entry.shape[d]);
      total += entry.values.num_elements();
    }
    ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(0, Shape({total, rank + 1})));
    ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, Shape({total})));
    int64_t* place = indices->data<int64_t>();
    char* value = values->raw();
    for (size_t i = 0; i < taken.size(); ++i) {
      const int64_t count = taken[i].values.num_elements();
      const int64_t* from = taken[i].indices.data<int64_t>();
      for (int64_t k = 0; k < count; ++k, from += rank, place += rank + 1) {
        place[0] = static_cast<int64_t>(i);
        std::copy_n(from, rank, place + 1);
      }
      CopyElements(values->dtype(), taken[i].values.raw(), value, count);
      value += count * static_cast<int64_t>(DTypeSize(values->dtype()));
    }
    c.SetOutput(2, Tensor::Vector<int64_t>(shape));
    return absl::OkStatus();
  }
};

absl::Status AddShape(ShapeContext& c) {
  RETURN_IF_ERROR(InferSparse(c).status());
  c.SetOutput(0, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status AddManyShape(ShapeContext& c) {
  RETURN_IF_ERROR(InferSparse(c).status());
  c.SetOutput(0, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status TakeManyShapes(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
  c.SetOutput(0, PartialShape::Matrix(-1, -1));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(-1));
  return absl::OkStatus();
}

OpBuilder& Add(OpBuilder& op) {
  return op.Attr("T: type")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Input("sparse_indices: int64")
      .Input("sparse_values: T")
      .Input("sparse_shape: int64")
      .Stateful()
      .NoGradient("numbers of sparse tensors");
}

}  // namespace

DEFINE_OP(AddSparseToTensorsMap) {
  Add(op)
      .Output("sparse_handle: int64")
      .Doc("Keeps a sparse tensor and gives the number under which it can be taken.")
      .Shape(AddShape)
      .Cpu(New<AddKernel>());
}

DEFINE_OP(AddManySparseToTensorsMap) {
  Add(op)
      .Output("sparse_handles: int64")
      .Doc("Keeps the rows of a sparse tensor, each as a sparse tensor of its own.")
      .Shape(AddManyShape)
      .Cpu(New<AddManyKernel>());
}

DEFINE_OP(TakeManySparseFromTensorsMap) {
  op.Attr("dtype: type")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Input("sparse_handles: int64")
      .Output("sparse_indices: int64")
      .Output("sparse_values: dtype")
      .Output("sparse_shape: int64")
      .Stateful()
      .NoGradient("sparse tensors that were kept")
      .Doc("Takes sparse tensors by their numbers, as the rows of one.")
      .Shape(TakeManyShapes)
      .Cpu(New<TakeManyKernel>());
}

}  // namespace muster
