#include "muster/ops/control/tensor_array_kernels.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "muster/ops/control/held_elements.h"
#include "muster/ops/control/rows.h"
#include "muster/ops/control/tensor_array.h"
#include "muster/ops/indexing/gpu_mover.h"

namespace muster {
namespace {

std::atomic<int64_t> next_array{0};

Tensor HandleOf(KernelContext& c, const char* container, const RefPtr<TensorArray>& array) {
  ResourceHandle handle;
  handle.device = c.device().name();
  handle.container = container;
  handle.name = array->name();
  handle.type_name = "tensorflow::TensorArray";
  handle.resource = array;
  return Tensor::Scalar<ResourceHandle>(std::move(handle));
}

class TensorArrayKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(options_.dtype, s.Attr<DType>("dtype"));
    ASSIGN_OR_RETURN(options_.element_shape, s.Attr<PartialShape>("element_shape"));
    ASSIGN_OR_RETURN(options_.identical_shapes, s.Attr<bool>("identical_element_shapes"));
    ASSIGN_OR_RETURN(options_.dynamic_size, s.Attr<bool>("dynamic_size"));
    ASSIGN_OR_RETURN(options_.clear_after_read, s.Attr<bool>("clear_after_read"));
    ASSIGN_OR_RETURN(options_.name, s.Attr<std::string>("tensor_array_name"));
    if (options_.name.empty()) options_.name = s.node().name();
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    if (!input.shape().is_scalar()) {
      return InvalidArgument("TensorArray size must be scalar, but had shape: ",
                             input.shape().ToString());
    }
    ASSIGN_OR_RETURN(const int64_t size, ScalarInteger(input, "size"));
    if (size < 0) return InvalidArgument("Size should be >= 0.");
    if (size > TensorArray::kMaxSize) {
      return absl::ResourceExhaustedError(
          absl::StrCat("A TensorArray of ", size, " elements is too long"));
    }
    TensorArray::Options options = options_;
    options.name = absl::StrCat(options_.name, "_", next_array.fetch_add(1));
    const RefPtr<TensorArray> array = MakeRef<TensorArray>(std::move(options), size);
    RETURN_IF_ERROR(c.step().step_resources->Create(TensorArray::kContainer, array->name(), array));
    c.SetOutput(0, HandleOf(c, TensorArray::kContainer, array));
    ASSIGN_OR_RETURN(Tensor flow, Zeros(c, DType::kFloat, Shape()));
    c.SetOutput(1, std::move(flow));
    return absl::OkStatus();
  }

 private:
  TensorArray::Options options_;
};

absl::StatusOr<RefPtr<TensorArray>> FindArray(KernelContext& c) {
  const Tensor& input = c.input(0);
  if (input.num_elements() != 1) {
    return InvalidArgument("TensorArray handle must be a scalar, but had shape: ",
                           input.shape().ToString());
  }
  const ResourceHandle& handle = *input.data<ResourceHandle>();
  RETURN_IF_ERROR(CheckDeviceOf(handle, c));
  if (auto* array = dynamic_cast<TensorArray*>(handle.resource.get()))
    return RefPtr<TensorArray>::Share(array);
  return c.step().step_resources->LookupAs<TensorArray>(handle.container, handle.name);
}

absl::StatusOr<RefPtr<TensorArray>> ArrayToWrite(KernelContext& c, DType dtype) {
  ASSIGN_OR_RETURN(RefPtr<TensorArray> array, FindArray(c));
  if (array->dtype() != dtype) {
    return InvalidArgument("TensorArray dtype is ", DTypeName(array->dtype()),
                           " but Op is trying to write dtype ", DTypeName(dtype), ".");
  }
  return array;
}

absl::StatusOr<RefPtr<TensorArray>> ArrayToRead(KernelContext& c) {
  ASSIGN_OR_RETURN(RefPtr<TensorArray> array, FindArray(c));
  if (array->dtype() != c.output_type(0)) {
    return InvalidArgument("TensorArray dtype is ", DTypeName(array->dtype()),
                           " but Op requested dtype ", DTypeName(c.output_type(0)), ".");
  }
  return array;
}

absl::StatusOr<int64_t> Index(const Tensor& index) {
  if (!index.shape().is_scalar()) {
    return InvalidArgument("TensorArray index must be scalar, but had shape: ",
                           index.shape().ToString());
  }
  return ScalarInteger(index, "index");
}

absl::Status RunWrite(KernelContext& c) {
  ASSIGN_OR_RETURN(const int64_t index, Index(c.input(1)));
  ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, ArrayToWrite(c, c.input(2).dtype()));
  RETURN_IF_ERROR(array->Write(c, index, c.TakeInput(2)));
  c.SetOutput(0, c.TakeInput(3));
  return absl::OkStatus();
}

absl::Status RunRead(KernelContext& c) {
  ASSIGN_OR_RETURN(const int64_t index, Index(c.input(1)));
  ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, ArrayToRead(c));
  ASSIGN_OR_RETURN(Tensor value, array->Read(c, index));
  c.SetOutput(0, std::move(value));
  return absl::OkStatus();
}

// Elements one after the other in the memory of output 0.
absl::Status Join(KernelContext& c, const Mover& mover, const std::vector<Tensor>& values,
                  const Shape& shape) {
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  std::vector<int64_t> counts;
  for (const Tensor& value : values) counts.push_back(value.num_elements());
  return JoinRows(c, mover, values, counts, *output);
}

class Gather {
 public:
  absl::Status Init(KernelSetup& s) {
    ASSIGN_OR_RETURN(element_shape_, s.Attr<PartialShape>("element_shape"));
    return absl::OkStatus();
  }

  absl::Status Run(KernelContext& c, const Mover& mover) const {
    ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, ArrayToRead(c));
    if (!c.input(1).shape().is_vector()) {
      return InvalidArgument("Expected indices to be a vector, but received shape: ",
                             c.input(1).shape().ToString());
    }
    ASSIGN_OR_RETURN(const Dims indices, IntegerVector(c.input(1), "indices"));
    Dims dims = {static_cast<int64_t>(indices.size())};
    std::vector<Tensor> values;
    if (indices.empty()) {
      const std::optional<Shape> element = element_shape_.ToShape();
      if (!element.has_value()) {
        return Unimplemented(
            "TensorArray has size zero, but element shape ", element_shape_.ToString(),
            " is not fully defined. Currently only static shapes are supported when packing ",
            "zero-size TensorArrays.");
      }
      dims.insert(dims.end(), element->dims().begin(), element->dims().end());
    } else {
      ASSIGN_OR_RETURN(values, array->ReadMany(c, indices));
      const Shape& first = values[0].shape();
      if (!element_shape_.CompatibleWith(first)) {
        return InvalidArgument("TensorArray was passed element_shape ", element_shape_.ToString(),
                               " which does not match the Tensor at index 0: ", first.ToString());
      }
      for (size_t i = 1; i < values.size(); ++i) {
        if (values[i].shape() != first) {
          return InvalidArgument(
              "TensorArray has inconsistent shapes.  Index 0 has shape: ", first.ToString(),
              " but index ", i, " has shape: ", values[i].shape().ToString());
        }
      }
      dims.insert(dims.end(), first.dims().begin(), first.dims().end());
    }
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    return Join(c, mover, values, shape);
  }

 private:
  PartialShape element_shape_;
};

class Concat {
 public:
  absl::Status Init(KernelSetup& s) {
    ASSIGN_OR_RETURN(element_shape_, s.Attr<PartialShape>("element_shape_except0"));
    return absl::OkStatus();
  }

  absl::Status Run(KernelContext& c, const Mover& mover) const {
    ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, ArrayToRead(c));
    ASSIGN_OR_RETURN(const int64_t size, array->ConcatSize());
    ASSIGN_OR_RETURN(Tensor * lengths, c.AllocateOutput(1, Shape({size})));
    Dims dims = {0};
    std::vector<Tensor> values;
    if (size == 0) {
      const std::optional<Shape> rest = element_shape_.ToShape();
      if (!rest.has_value()) {
        return Unimplemented(
            "TensorArray has size zero, but element_shape_except0 ", element_shape_.ToString(),
            " is not fully defined. Currently only static shapes are supported when concatenating ",
            "zero-size TensorArrays.");
      }
      dims.insert(dims.end(), rest->dims().begin(), rest->dims().end());
    } else {
      std::vector<int64_t> indices(size);
      for (int64_t i = 0; i < size; ++i) indices[i] = i;
      ASSIGN_OR_RETURN(values, array->ReadMany(c, indices));
      RETURN_IF_ERROR(CheckParts(values, dims, *lengths));
    }
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    return Join(c, mover, values, shape);
  }

 private:
  absl::Status CheckParts(const std::vector<Tensor>& values, Dims& dims, Tensor& lengths) const {
    Shape first;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].rank() < 1) {
        return InvalidArgument("Concat saw a scalar shape at index ", i,
                               " but requires at least vectors.  Did you mean to call pack?");
      }
      Shape rest = values[i].shape();
      rest.Remove(0);
      if (!element_shape_.CompatibleWith(rest)) {
        return InvalidArgument("TensorArray was passed element_shape_except0 ",
                               element_shape_.ToString(), " but index ", i,
                               " has (excepting dimension 0) shape: ", rest.ToString(),
                               " which does not match.");
      }
      if (i == 0) {
        first = rest;
        dims.insert(dims.end(), rest.dims().begin(), rest.dims().end());
      } else if (rest != first) {
        return InvalidArgument(
            "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: ",
            first.ToString(), " but index ", i,
            " has (excepting dimension 0) shape: ", rest.ToString());
      }
      lengths.data<int64_t>()[i] = values[i].dim(0);
      dims[0] += values[i].dim(0);
    }
    return absl::OkStatus();
  }

  PartialShape element_shape_;
};

absl::Status Scatter(KernelContext& c, const Mover& mover) {
  const Tensor& value = c.input(2);
  ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, ArrayToWrite(c, value.dtype()));
  if (value.rank() < 1) {
    return InvalidArgument("Input value for unpack must be at least a vector but received shape: ",
                           value.shape().ToString());
  }
  if (!c.input(1).shape().is_vector()) {
    return InvalidArgument("Expected indices to be a vector, but received shape: ",
                           c.input(1).shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims indices, IntegerVector(c.input(1), "indices"));
  if (static_cast<int64_t>(indices.size()) != value.dim(0)) {
    return InvalidArgument("Expected len(indices) == values.shape[0], but saw: ", indices.size(),
                           " vs. ", value.dim(0));
  }
  ASSIGN_OR_RETURN(int64_t size, array->Size());
  const int64_t largest = indices.empty() ? -1 : *std::max_element(indices.begin(), indices.end());
  if (!array->dynamic_size() && largest >= size) {
    return InvalidArgument("Max scatter index must be < array size (", largest, " vs. ", size, ")");
  }
  size = std::max(size, largest + 1);
  Shape element = value.shape();
  element.Remove(0);
  const std::vector<Shape> shapes(indices.size(), element);
  ASSIGN_OR_RETURN(std::vector<Tensor> parts, CutRows(c, mover, value, shapes));
  RETURN_IF_ERROR(array->WriteMany(c, indices, std::move(parts)));
  array->SetMarkedSize(size);
  c.SetOutput(0, c.TakeInput(3));
  return absl::OkStatus();
}

absl::Status Split(KernelContext& c, const Mover& mover) {
  const Tensor& value = c.input(1);
  ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, ArrayToWrite(c, value.dtype()));
  if (!c.input(2).shape().is_vector()) {
    return InvalidArgument("Expected lengths to be a vector, received shape: ",
                           c.input(2).shape().ToString());
  }
  if (value.rank() < 1) {
    return InvalidArgument("Expected value to be at least a vector, but received shape: ",
                           value.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims lengths, IntegerVector(c.input(2), "lengths"));
  int64_t total = 0;
  for (int64_t length : lengths) {
    if (length < 0)
      return InvalidArgument("Invalid value in lengths: ", length, " must be non-negative");
    if (length > std::numeric_limits<int64_t>::max() - total)
      return InvalidArgument("The sum of lengths overflows");
    total += length;
  }
  if (total != value.dim(0)) {
    return InvalidArgument(
        "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is ", total,
        " and value's shape is: ", value.shape().ToString());
  }
  ASSIGN_OR_RETURN(int64_t size, array->Size());
  const int64_t count = static_cast<int64_t>(lengths.size());
  if (!array->dynamic_size() && size != count) {
    return InvalidArgument("TensorArray's size is not equal to the size of lengths (", size,
                           " vs. ", count,
                           "), and the TensorArray is not marked as dynamically resizeable");
  }
  size = std::max(size, count);
  std::vector<Shape> shapes(count, value.shape());
  std::vector<int64_t> indices(count);
  for (int64_t i = 0; i < count; ++i) {
    shapes[i].Set(0, lengths[i]);
    indices[i] = i;
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> parts, CutRows(c, mover, value, shapes));
  RETURN_IF_ERROR(array->WriteMany(c, indices, std::move(parts)));
  array->SetMarkedSize(size);
  c.SetOutput(0, c.TakeInput(3));
  return absl::OkStatus();
}

absl::Status RunSize(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, FindArray(c));
  ASSIGN_OR_RETURN(const int64_t size, array->Size());
  c.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(size)));
  return absl::OkStatus();
}

absl::Status RunClose(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, FindArray(c));
  array->Close();
  return absl::OkStatus();
}

// The gradient array of (array, source); made by the first request.
class GradKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(source_, s.Attr<std::string>("source"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<TensorArray> array, FindArray(c));
    if (array->is_gradient()) {
      return InvalidArgument("Wrong input container. ", TensorArray::kGradientContainer,
                             array->name());
    }
    Dims prepended;
    if (c.num_inputs() == 3) {
      ASSIGN_OR_RETURN(prepended, IntegerVector(c.input(2), "shape_to_prepend"));
    }
    const std::string name = absl::StrCat(array->name(), "@", source_);
    ASSIGN_OR_RETURN(
        const RefPtr<Resource> found,
        c.step().step_resources->LookupOrCreate(
            TensorArray::kGradientContainer, name, [&]() -> absl::StatusOr<RefPtr<Resource>> {
              ASSIGN_OR_RETURN(RefPtr<TensorArray> made, array->MakeGradient(name, prepended));
              return RefPtr<Resource>(made);
            }));
    auto* gradient = dynamic_cast<TensorArray*>(found.get());
    if (gradient == nullptr) return Internal(name, " is not a TensorArray");
    c.SetOutput(0,
                HandleOf(c, TensorArray::kGradientContainer, RefPtr<TensorArray>::Share(gradient)));
    c.SetOutput(1, c.TakeInput(1));
    return absl::OkStatus();
  }

 private:
  std::string source_;
};

}  // namespace

KernelFactory TensorArrayNew() {
  return New<TensorArrayKernel>();
}
KernelFactory TensorArrayWrite() {
  return Stateless(RunWrite);
}
KernelFactory TensorArrayRead() {
  return Stateless(RunRead);
}
KernelFactory TensorArrayGather() {
  return MovesOnHost<Gather>();
}
KernelFactory TensorArrayGatherOnGpu(DType dtype) {
  return MovesOnGpu<Gather>(dtype);
}
KernelFactory TensorArrayScatter() {
  return MovesOnHost<MoveBy<Scatter>>();
}
KernelFactory TensorArrayScatterOnGpu(DType dtype) {
  return MovesOnGpu<MoveBy<Scatter>>(dtype);
}
KernelFactory TensorArrayConcat() {
  return MovesOnHost<Concat>();
}
KernelFactory TensorArrayConcatOnGpu(DType dtype) {
  return MovesOnGpu<Concat>(dtype);
}
KernelFactory TensorArraySplit() {
  return MovesOnHost<MoveBy<Split>>();
}
KernelFactory TensorArraySplitOnGpu(DType dtype) {
  return MovesOnGpu<MoveBy<Split>>(dtype);
}
KernelFactory TensorArraySize() {
  return Stateless(RunSize);
}
KernelFactory TensorArrayGradient() {
  return New<GradKernel>();
}
KernelFactory TensorArrayClose() {
  return Stateless(RunClose);
}

}  // namespace muster
