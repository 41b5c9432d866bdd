// EditDistance: how many insertions, deletions and replacements turn one row into another.
#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/container/btree_map.h"

#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

template <typename T>
using Rows = absl::btree_map<Dims, std::vector<T>>;

// Rows of the sparse tensor in inputs first .. first + 2, in the order of their entries.
template <typename T>
absl::StatusOr<Rows<T>> ReadRows(const KernelContext& c, int first, absl::string_view what) {
  const Tensor& indices = c.input(first);
  const Tensor& values = c.input(first + 1);
  const Tensor& shape = c.input(first + 2);
  if (indices.rank() != 2) {
    return InvalidArgument(
        what, "_indices should be a matrix, but got shape: ", indices.shape().ToString());
  }
  if (values.rank() != 1) {
    return InvalidArgument(
        what, "_values should be a vector, but got shape: ", values.shape().ToString());
  }
  if (shape.rank() != 1) {
    return InvalidArgument(what,
                           "_shape should be a vector, but got shape: ", shape.shape().ToString());
  }
  if (values.num_elements() != indices.dim(0)) {
    return InvalidArgument("Expected ", what, "_values.NumElements == #rows(", what,
                           "_indices), their shapes are: ", values.shape().ToString(), " and ",
                           indices.shape().ToString());
  }
  if (shape.num_elements() != indices.dim(1)) {
    return InvalidArgument("Expected ", what, "_shape.NumElements == #cols(", what,
                           "_indices), their shapes are: ", shape.shape().ToString(), " and ",
                           indices.shape().ToString());
  }
  if (shape.num_elements() < 1) {
    return InvalidArgument("Input SparseTensors must have rank at least 1, but ", what,
                           "_shape rank is: ", shape.num_elements());
  }
  for (const int64_t size : shape.values<int64_t>()) {
    if (size < 0) return InvalidArgument("Dimension ", size, " must be >= 0");
  }
  const int64_t rank = indices.dim(1);
  Rows<T> rows;
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    const int64_t* const place = indices.data<int64_t>() + i * rank;
    rows[Dims(place, place + rank - 1)].push_back(values.values<T>()[i]);
  }
  return rows;
}

template <typename T>
bool Same(const T& a, const T& b) {
  return a == b;
}
bool Same(Half a, Half b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
bool Same(Bfloat16 a, Bfloat16 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}

template <typename T>
int64_t Distance(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t corner = row[0];  // the cell above and to the left
    row[0] = static_cast<int64_t>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t replaced =
          corner + (Same(static_cast<const T&>(a[i]), static_cast<const T&>(b[j])) ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

template <typename T>
class EditDistanceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(normalize_, setup.Attr<bool>("normalize"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Rows<T> hypothesis, ReadRows<T>(c, 0, "hypothesis"));
    ASSIGN_OR_RETURN(const Rows<T> truth, ReadRows<T>(c, 3, "truth"));
    const absl::Span<const int64_t> a = c.input(2).values<int64_t>();
    const absl::Span<const int64_t> b = c.input(5).values<int64_t>();
    if (a.size() != b.size()) {
      return InvalidArgument("truth_shape and hypothesis_shape should have the same length, got ",
                             b.size(), " and ", a.size());
    }
    Dims dims;
    for (size_t d = 0; d + 1 < a.size(); ++d) dims.push_back(std::max(a[d], b[d]));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    float* const out = output->data<float>();
    std::fill_n(out, output->num_elements(), 0.0f);
    const std::vector<T> none;
    const auto set = [&](const Dims& row, const std::vector<T>& first,
                         const std::vector<T>& second) -> absl::Status {
      // Places inside a row may be anything: only their order counts. As in TensorFlow, so may the
      // row's own as long as they lead to an element.
      __int128 place = 0;
      for (size_t d = 0; d < row.size(); ++d) {
        place = std::clamp<__int128>(place * dims[d] + row[d], std::numeric_limits<int64_t>::min(),
                                     std::numeric_limits<int64_t>::max());
      }
      if (place < 0 || place >= output->num_elements()) {
        return Internal("Got an inner product ", static_cast<int64_t>(place),
                        " which would require writing to outside of the buffer for the output "
                        "tensor (max elements ",
                        output->num_elements(), ")");
      }
      auto distance = static_cast<float>(Distance(first, second));
      if (normalize_) {
        distance = !second.empty() ? distance / static_cast<float>(second.size())
                   : distance != 0 ? std::numeric_limits<float>::infinity()
                                   : 0.0f;
      }
      out[static_cast<int64_t>(place)] = distance;
      return absl::OkStatus();
    };
    for (const auto& [row, values] : hypothesis) {
      const auto other = truth.find(row);
      RETURN_IF_ERROR(set(row, values, other == truth.end() ? none : other->second));
    }
    for (const auto& [row, values] : truth) {
      if (!hypothesis.contains(row)) RETURN_IF_ERROR(set(row, none, values));
    }
    return absl::OkStatus();
  }

 private:
  bool normalize_ = true;
};

// Whether indices, values and shape of a sparse tensor fit, as far as their sizes are known.
absl::Status CheckSizes(const PartialShape& indices, const PartialShape& values,
                        const PartialShape& shape) {
  const auto size = [](const PartialShape& of, int i) { return of.known_rank() ? of.dim(i) : -1; };
  const int64_t rows = size(indices, 0), count = size(values, 0);
  if (rows >= 0 && count >= 0 && rows != count) {
    return InvalidArgument("Number of elements in index (", rows, ") and values (", count,
                           ") do not match.");
  }
  const int64_t columns = size(indices, 1), rank = size(shape, 0);
  if (columns >= 0 && rank >= 0 && columns != rank) {
    return InvalidArgument("Index rank (", columns, ") and shape rank (", rank, ") do not match.");
  }
  return absl::OkStatus();
}

absl::Status EditDistanceShape(ShapeContext& c) {
  for (const int first : {0, 3}) {
    RETURN_IF_ERROR(c.WithRank(c.input(first), 2).status());
    RETURN_IF_ERROR(c.WithRank(c.input(first + 1), 1).status());
    RETURN_IF_ERROR(c.WithRank(c.input(first + 2), 1).status());
    RETURN_IF_ERROR(CheckSizes(c.input(first), c.input(first + 1), c.input(first + 2)));
  }
  const std::optional<Tensor> a = c.ConstantInput(2);
  const std::optional<Tensor> b = c.ConstantInput(5);
  if (!a || !b) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  if (a->num_elements() != b->num_elements()) {
    return InvalidArgument("Num elements of hypothesis_shape does not match truth_shape: ",
                           a->num_elements(), " vs. ", b->num_elements());
  }
  Dims dims;
  for (int64_t d = 0; d + 1 < a->num_elements(); ++d)
    dims.push_back(std::max(a->values<int64_t>()[d], b->values<int64_t>()[d]));
  c.SetOutput(0, PartialShape(dims));
  return absl::OkStatus();
}

DEFINE_OP(EditDistance) {
  op.Attr("normalize: bool = true")
      .Attr("T: type")
      .Input("hypothesis_indices: int64")
      .Input("hypothesis_values: T")
      .Input("hypothesis_shape: int64")
      .Input("truth_indices: int64")
      .Input("truth_values: T")
      .Input("truth_shape: int64")
      .Output("output: float")
      .Doc("Levenshtein distances between the rows of two sparse tensors.")
      .Shape(EditDistanceShape)
      .NoGradient("counts");
  op.CpuTypes<Join<Numbers, Types<bool, std::string>>>(
      "T", []<typename T>() { return New<EditDistanceKernel<T>>(); });
}

}  // namespace
}  // namespace muster
