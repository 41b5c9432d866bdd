// Sparse tensors set aside under a number, so that they can pass through queues:
// AddSparseToTensorsMap, AddManySparseToTensorsMap and TakeManySparseFromTensorsMap.
#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/ops/resource_kernel.h"
#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

struct Kept {
  Tensor indices;
  Tensor values;
  Tensor shape;
};

class SparseTensorsMap : public Resource {
 public:
  std::string Describe() const override { return "SparseTensorsMap"; }

  int64_t Add(Kept tensor) {
    MutexLock lock(mutex_);
    tensors_.emplace(next_, std::move(tensor));
    return next_++;
  }
  absl::StatusOr<Kept> Take(int64_t handle) {
    MutexLock lock(mutex_);
    const auto found = tensors_.find(handle);
    if (found == tensors_.end())
      return InvalidArgument("Unable to find SparseTensor: ", handle, " in map");
    Kept taken = std::move(found->second);
    tensors_.erase(found);
    return taken;
  }

 private:
  Mutex mutex_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<int64_t, Kept> tensors_ ABSL_GUARDED_BY(mutex_);
};

class MapKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(name_, NameResource(setup, /*use_node_name=*/true));
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<RefPtr<SparseTensorsMap>> Map(const KernelContext& c) const {
    const std::string key = ResourceKey(name_.name, "SparseTensorsMap");
    RETURN_IF_ERROR(c.resources()
                        .LookupOrCreate(name_.container, key,
                                        []() -> absl::StatusOr<RefPtr<Resource>> {
                                          return RefPtr<Resource>(MakeRef<SparseTensorsMap>());
                                        })
                        .status());
    return c.resources().LookupAs<SparseTensorsMap>(name_.container, key);
  }

 private:
  ResourceName name_;
};

class AddKernel : public MapKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckSparse(c.input(0), c.input(1), c.input(2)));
    RETURN_IF_ERROR(CheckIndices(c.input(0), c.input(2).values<int64_t>()));
    ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Map(c));
    const int64_t handle =
        map->Add({KeptTensor(c.input(0)), KeptTensor(c.input(1)), KeptTensor(c.input(2))});
    c.SetOutput(0, Tensor::Scalar<int64_t>(handle));
    return absl::OkStatus();
  }
};

// One handle for every row of the first dimension.
class AddManyKernel : public MapKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& indices = c.input(0);
    const Tensor& values = c.input(1);
    RETURN_IF_ERROR(CheckSparse(indices, values, c.input(2)));
    const absl::Span<const int64_t> shape = c.input(2).values<int64_t>();
    const auto rank = static_cast<int64_t>(shape.size());
    if (rank < 2) {
      return InvalidArgument("Rank of input SparseTensor should be > 1, but saw rank: ", rank);
    }
    RETURN_IF_ERROR(CheckIndices(indices, shape));
    RETURN_IF_ERROR(Shape::Make(shape).status());
    const int64_t rows = shape[0];
    const int64_t* at = indices.data<int64_t>();
    for (int64_t i = 1; i < indices.dim(0); ++i) {
      if (at[i * rank] < at[(i - 1) * rank])
        return InvalidArgument("indices[", i, "] is out of order: the rows must be sorted");
    }
    ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Map(c));
    ASSIGN_OR_RETURN(Tensor* const handles, c.AllocateOutput(0, Shape({rows})));
    const auto size = static_cast<int64_t>(DTypeSize(values.dtype()));
    int64_t begin = 0;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t end = begin;
      while (end < indices.dim(0) && at[end * rank] == row) ++end;
      const int64_t count = end - begin;
      Kept part{Tensor(DType::kInt64, Shape({count, rank - 1})),
                Tensor(values.dtype(), Shape({count})), Tensor::Vector<int64_t>(shape.subspan(1))};
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(at + (begin + i) * rank + 1, rank - 1,
                    part.indices.data<int64_t>() + i * (rank - 1));
      }
      CopyElements(values.dtype(), values.raw() + begin * size, part.values.raw(), count);
      handles->data<int64_t>()[row] = map->Add(std::move(part));
      begin = end;
    }
    return absl::OkStatus();
  }
};

// The tensors behind the handles, one above the other; the shape is the largest of theirs.
class TakeManyKernel : public MapKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& handles = c.input(0);
    if (handles.rank() != 1) {
      return InvalidArgument("sparse_handles should be a vector but received shape ",
                             handles.shape().ToString());
    }
    ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Map(c));
    std::vector<Kept> parts;
    for (const int64_t handle : handles.values<int64_t>()) {
      ASSIGN_OR_RETURN(Kept part, map->Take(handle));
      parts.push_back(std::move(part));
    }
    if (parts.empty())
      return InvalidArgument(
          "Must have at least 1 serialized SparseTensor, but input matrix has 0 "
          "rows");
    return Join(c, parts);
  }

 private:
  static absl::Status Join(KernelContext& c, const std::vector<Kept>& parts) {
    const int64_t rank = parts[0].shape.num_elements();
    std::vector<int64_t> shape(static_cast<size_t>(rank) + 1, 0);
    shape[0] = static_cast<int64_t>(parts.size());
    int64_t count = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (parts[p].shape.num_elements() != rank) {
        return InvalidArgument(
            "Inconsistent rank across SparseTensors: rank prior to "
            "SparseTensor[",
            p, "] was: ", rank, " but rank of SparseTensor[", p,
            "] is: ", parts[p].shape.num_elements());
      }
      if (parts[p].values.dtype() != c.output_type(1)) {
        return InvalidArgument("Requested SparseTensor of type ", DTypeName(c.output_type(1)),
                               " but SparseTensor[", p,
                               "].values.dtype() == ", DTypeName(parts[p].values.dtype()));
      }
      for (int64_t d = 0; d < rank; ++d)
        shape[d + 1] = std::max(shape[d + 1], parts[p].shape.values<int64_t>()[d]);
      count += parts[p].values.num_elements();
    }
    ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(0, Shape({count, rank + 1})));
    ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, Shape({count})));
    const auto size = static_cast<int64_t>(DTypeSize(values->dtype()));
    int64_t done = 0;
    int64_t* to = indices->data<int64_t>();
    for (size_t p = 0; p < parts.size(); ++p) {
      const int64_t n = parts[p].values.num_elements();
      const int64_t* from = parts[p].indices.data<int64_t>();
      for (int64_t i = 0; i < n; ++i, from += rank, to += rank + 1) {
        to[0] = static_cast<int64_t>(p);
        std::copy_n(from, rank, to + 1);
      }
      CopyElements(values->dtype(), parts[p].values.raw(), values->raw() + done * size, n);
      done += n;
    }
    c.SetOutput(2, Tensor::Vector<int64_t>(shape));
    return absl::OkStatus();
  }
};

OpBuilder& Added(OpBuilder& op, const char* output) {
  return op.Attr("T: type")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Input("sparse_indices: int64")
      .Input("sparse_values: T")
      .Input("sparse_shape: int64")
      .Output(output)
      .Stateful()
      .NoGradient("handles are no numbers");
}

}  // namespace

DEFINE_OP(AddSparseToTensorsMap) {
  Added(op, "sparse_handle: int64")
      .Doc("Sets a sparse tensor aside and gives its number.")
      .Shape([](ShapeContext& c) {
        RETURN_IF_ERROR(InferSparse(c).status());
        c.SetOutput(0, PartialShape::Scalar());
        return absl::OkStatus();
      })
      .Cpu(New<AddKernel>());
}

DEFINE_OP(AddManySparseToTensorsMap) {
  Added(op, "sparse_handles: int64")
      .Doc("Sets the rows of a sparse tensor aside and gives their numbers.")
      .Shape([](ShapeContext& c) {
        RETURN_IF_ERROR(InferSparse(c).status());
        c.SetOutput(0, PartialShape::Vector(-1));
        return absl::OkStatus();
      })
      .CpuDTypes("T", AllDTypes(), New<AddManyKernel>());
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
      .Doc("The sparse tensors with these numbers as one, a dimension more.")
      .Shape([](ShapeContext& c) {
        RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
        c.SetOutput(0, PartialShape::Matrix(-1, -1));
        c.SetOutput(1, PartialShape::Vector(-1));
        c.SetOutput(2, PartialShape::Vector(-1));
        return absl::OkStatus();
      })
      .NoGradient("handles are no numbers")
      .CpuDTypes("dtype", AllDTypes(), New<TakeManyKernel>());
}

}  // namespace muster
