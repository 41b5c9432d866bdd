// Axes and per-axis vectors carried from one data format to another.
#include "absl/container/flat_hash_set.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

// For each axis of the first format where its letter stands in the second.
absl::StatusOr<std::vector<int>> Mapping(absl::string_view source, absl::string_view destination) {
  if (source.size() < 3 || source.size() > 5) {
    return InvalidArgument("Source format must be of length 3, 4 or 5, received src_format = ",
                           source);
  }
  if (destination.size() != source.size()) {
    return InvalidArgument(
        "Destination format must have the length of the source format, received dst_format = ",
        destination, " for src_format = ", source);
  }
  absl::flat_hash_set<char> letters(source.begin(), source.end());
  std::vector<int> mapping;
  for (char letter : source) {
    const size_t at = destination.find(letter);
    if (at == absl::string_view::npos || letters.size() != source.size()) {
      return InvalidArgument("Destination and source format must determine a permutation, got ",
                             source, " and ", destination);
    }
    mapping.push_back(static_cast<int>(at));
  }
  return mapping;
}

class FormatChange : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(source_, setup.Attr<std::string>("src_format"));
    ASSIGN_OR_RETURN(destination_, setup.Attr<std::string>("dst_format"));
    ASSIGN_OR_RETURN(mapping_, Mapping(source_, destination_));
    return absl::OkStatus();
  }

 protected:
  std::string source_;
  std::string destination_;
  std::vector<int> mapping_;
};

template <typename T>
class DimMap : public FormatChange {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, x.shape()));
    const T n = static_cast<T>(mapping_.size());
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      const T axis = x.data<T>()[i];
      if (axis < -n || axis >= n) {
        return InvalidArgument("Dimension index ", axis, " is outside [", -n, ", ", n,
                               ") of format ", source_);
      }
      output->data<T>()[i] =
          static_cast<T>(mapping_[static_cast<size_t>(axis < 0 ? axis + n : axis)]);
    }
    return absl::OkStatus();
  }
};

template <typename T>
class VecPermute : public FormatChange {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() != 1 && x.rank() != 2) {
      return InvalidArgument("Input must be a vector or matrix, but got shape ",
                             x.shape().ToString());
    }
    const int64_t all = static_cast<int64_t>(mapping_.size());
    const int64_t spatial = all - 2;
    const int64_t n = x.dim(0);
    if (n != all && n != spatial) {
      return InvalidArgument("1D input must be of size ", spatial, " or ", all, ", but got shape ",
                             x.shape().ToString());
    }
    if (x.rank() == 2 && x.dim(1) != 2) {
      return InvalidArgument("Second dimension of 2D input must be of size 2, but got shape ",
                             x.shape().ToString());
    }
    // Without batch and channels only the axes of space remain, in their order.
    std::string source = source_;
    std::string destination = destination_;
    if (n == spatial) {
      const auto drop = [](char letter) { return letter == 'N' || letter == 'C'; };
      std::erase_if(source, drop);
      std::erase_if(destination, drop);
      if (static_cast<int64_t>(source.size()) != spatial) {
        return InvalidArgument("Formats ", source_, " and ", destination_,
                               " do not name N and C once each");
      }
    }
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, x.shape()));
    const int64_t width = x.rank() == 2 ? 2 : 1;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = static_cast<int64_t>(destination.find(source[static_cast<size_t>(i)]));
      for (int64_t k = 0; k < width; ++k)
        output->data<T>()[to * width + k] = x.data<T>()[i * width + k];
    }
    return absl::OkStatus();
  }
};

}  // namespace

DEFINE_OP(DataFormatDimMap) {
  op.Attr("T: {int32, int64} = DT_INT32")
      .Attr("src_format: string = 'NHWC'")
      .Attr("dst_format: string = 'NCHW'")
      .Input("x: T")
      .Output("y: T")
      .Doc("Indices of axes of one data format as indices of another.")
      .Shape(UnchangedShape)
      .CpuTypes<Indices>("T", []<typename T>() { return New<DimMap<T>>(); })
      .GpuOnHost("T", {DType::kInt32, DType::kInt64});
}

DEFINE_OP(DataFormatVecPermute) {
  op.Attr("T: {int32, int64} = DT_INT32")
      .Attr("src_format: string = 'NHWC'")
      .Attr("dst_format: string = 'NCHW'")
      .Input("x: T")
      .Output("y: T")
      .Doc("A vector with one element (or pair) per axis, brought into another data format.")
      .Shape(UnchangedShape)
      .CpuTypes<Indices>("T", []<typename T>() { return New<VecPermute<T>>(); })
      .GpuOnHost("T", {DType::kInt32, DType::kInt64});
}

}  // namespace muster
