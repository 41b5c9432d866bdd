// Einsum: sums of products over named axes, of one or two tensors. Operands are brought into the
// form [batch, free, summed], multiplied as matrices, and the product is laid out as asked.
#include <algorithm>
#include <array>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

#include "muster/ops/linalg/matmul.h"

namespace muster {
namespace {

// Axes of an ellipsis have numbers above all letters, counted from the right.
constexpr int kEllipsis = 1000;

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

bool HasEllipsis(const std::string& subscript) {
  return subscript.find("...") != std::string::npos;
}

absl::Status CheckSubscript(const std::string& subscript) {
  bool seen = false;
  for (size_t i = 0; i < subscript.size(); ++i) {
    if (absl::ascii_isalpha(static_cast<unsigned char>(subscript[i]))) continue;
    if (subscript.compare(i, 3, "...") == 0 && !seen) {
      seen = true;
      i += 2;
      continue;
    }
    if (subscript[i] == '.' && seen)
      return InvalidArgument("Periods found in subscript \"", subscript, "\" outside of ellipsis");
    return InvalidArgument("Invalid character '", subscript.substr(i, 1),
                           "' found in einsum subscript \"", subscript, "\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<Equation> ParseEquation(const Node& node) {
  ASSIGN_OR_RETURN(const std::string text, node.Attr<std::string>("equation"));
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  if (sides.size() != 2)
    return InvalidArgument("Expecting exactly one '->' in einsum equation: ", text);
  Equation equation{absl::StrSplit(sides[0], ','), sides[1]};
  if (equation.inputs.size() != 1 && equation.inputs.size() != 2) {
    return InvalidArgument("Expecting 1 or 2 input subscripts in equation '", text,
                           "' but got: ", equation.inputs.size());
  }
  bool ellipsis = false;
  for (const std::string& input : equation.inputs) {
    RETURN_IF_ERROR(CheckSubscript(input));
    ellipsis |= HasEllipsis(input);
  }
  RETURN_IF_ERROR(CheckSubscript(equation.output));
  // An ellipsis that no input has stands for no axes.
  if (HasEllipsis(equation.output) && !ellipsis) {
    equation.output.erase(equation.output.find("..."), 3);
  }
  for (const char label : equation.output) {
    if (label == '.') continue;
    const bool known = std::any_of(
        equation.inputs.begin(), equation.inputs.end(),
        [label](const std::string& input) { return input.find(label) != std::string::npos; });
    if (!known) {
      return InvalidArgument("Label '", std::string(1, label),
                             "' appears in the output subscript but in no input: ", text);
    }
  }
  return equation;
}

// The label of every axis of a tensor of this rank.
absl::StatusOr<std::vector<int>> Labels(const std::string& subscript, int rank) {
  std::vector<int> labels;
  const int named = static_cast<int>(
      std::count_if(subscript.begin(), subscript.end(), [](char label) { return label != '.'; }));
  if (HasEllipsis(subscript) ? rank < named : rank != named) {
    return InvalidArgument("Expected input to have rank ",
                           HasEllipsis(subscript) ? "at least " : "", named, " but got: ", rank);
  }
  for (size_t i = 0; i < subscript.size(); ++i) {
    if (subscript[i] != '.') {
      labels.push_back(static_cast<unsigned char>(subscript[i]));
      continue;
    }
    for (int axis = rank - named; axis > 0; --axis) labels.push_back(kEllipsis + axis);
    i += 2;
  }
  return labels;
}

// Axes of the ellipsis in the output: as many as the longest of the inputs has.
std::vector<int> OutputLabels(const std::string& subscript, int ellipsis_rank) {
  std::vector<int> labels;
  for (size_t i = 0; i < subscript.size(); ++i) {
    if (subscript[i] != '.') {
      labels.push_back(static_cast<unsigned char>(subscript[i]));
      continue;
    }
    for (int axis = ellipsis_rank; axis > 0; --axis) labels.push_back(kEllipsis + axis);
    i += 2;
  }
  return labels;
}

bool Contains(const std::vector<int>& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}
int EllipsisRank(const std::vector<int>& labels) {
  return static_cast<int>(
      std::count_if(labels.begin(), labels.end(), [](int label) { return label > kEllipsis; }));
}

using Sizes = absl::flat_hash_map<int, int64_t>;

// Adds the sizes of one operand's axes; those of an ellipsis may be broadcast. -1 is unknown.
absl::Status AddSizes(const std::vector<int>& labels, absl::Span<const int64_t> dims,
                      Sizes& sizes) {
  for (size_t axis = 0; axis < labels.size(); ++axis) {
    const auto [found, is_new] = sizes.emplace(labels[axis], dims[axis]);
    if (is_new || found->second == dims[axis] || dims[axis] < 0) continue;
    if (found->second < 0 || (labels[axis] > kEllipsis && found->second == 1)) {
      found->second = dims[axis];
    } else if (labels[axis] <= kEllipsis || dims[axis] != 1) {
      return InvalidArgument("Expected dimension ", found->second, " at axis ", axis,
                             " of the input but got dimension ", dims[axis]);
    }
  }
  return absl::OkStatus();
}

// Axes to go through: sizes, and the steps that each means in one tensor.
struct Axes {
  Dims sizes;
  Dims strides;

  void Add(int64_t size, int64_t stride) {
    sizes.push_back(size);
    strides.push_back(stride);
  }
  int64_t count() const {
    int64_t product = 1;
    for (const int64_t size : sizes) product *= size;
    return product;
  }
  // Calls visit(offset) for every place in row-major order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    if (count() == 0) return;
    const int rank = static_cast<int>(sizes.size());
    Dims at(rank, 0);
    int64_t offset = 0;
    while (true) {
      visit(offset);
      int axis = rank - 1;
      for (; axis >= 0; --axis) {
        offset += strides[axis];
        if (++at[axis] < sizes[axis]) break;
        offset -= strides[axis] * sizes[axis];
        at[axis] = 0;
      }
      if (axis < 0) return;
    }
  }
};

// The step of a label: over the diagonal where it appears twice, none where it is broadcast.
int64_t StrideOf(int label, const std::vector<int>& labels, const Dims& dims) {
  int64_t stride = 1, sum = 0;
  for (int axis = static_cast<int>(labels.size()) - 1; axis >= 0; --axis) {
    if (labels[axis] == label && !(dims[axis] == 1 && label > kEllipsis)) sum += stride;
    stride *= dims[axis];
  }
  return sum;
}

template <typename T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<Half> {
  using type = float;
};
template <>
struct SumOf<Bfloat16> {
  using type = float;
};
template <>
struct SumOf<int32_t> {
  using type = uint32_t;
};
template <>
struct SumOf<int64_t> {
  using type = uint64_t;
};

template <typename T>
absl::StatusOr<Tensor> Packed(KernelContext& c, const Tensor& from, const Axes& kept,
                              const Axes& summed) {
  ASSIGN_OR_RETURN(Tensor packed, c.AllocateTemporary(from.dtype(), Shape({kept.count()})));
  T* to = packed.data<T>();
  const T* const data = from.data<T>();
  using Sum = typename SumOf<T>::type;
  kept.ForEach([&](int64_t place) {
    if (summed.sizes.empty()) {
      *to++ = data[place];
      return;
    }
    Sum sum = Sum();
    summed.ForEach([&](int64_t more) { sum += static_cast<Sum>(data[place + more]); });
    *to++ = static_cast<T>(sum);
  });
  return packed;
}

template <typename T>
class EinsumKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(equation_, ParseEquation(setup.node()));
    if (static_cast<int>(equation_.inputs.size()) != setup.node().num_inputs()) {
      return InvalidArgument("Expected ", equation_.inputs.size(),
                             " inputs but got: ", setup.node().num_inputs());
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const int count = c.num_inputs();
    std::array<std::vector<int>, 2> labels;
    Sizes sizes;
    int ellipsis = 0;
    for (int i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(labels[i], Labels(equation_.inputs[i], c.input(i).rank()));
      RETURN_IF_ERROR(AddSizes(labels[i], c.input(i).shape().dims(), sizes));
      ellipsis = std::max(ellipsis, EllipsisRank(labels[i]));
    }
    const std::vector<int> out = OutputLabels(equation_.output, ellipsis);
    Dims out_dims;
    for (const int label : out) out_dims.push_back(sizes.at(label));
    ASSIGN_OR_RETURN(const Shape out_shape, Shape::Make(out_dims));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, out_shape));
    std::fill_n(output->data<T>(), output->num_elements(), T());
    if (output->num_elements() == 0) return absl::OkStatus();

    // Which kind each label is.
    std::vector<int> batch, free[2], inner;
    for (int i = 0; i < count; ++i) {
      for (const int label : labels[i]) {
        const bool other = count == 2 && Contains(labels[1 - i], label);
        std::vector<int>& kind = Contains(out, label) ? (other ? batch : free[i]) : inner;
        if ((Contains(out, label) || other) && !Contains(kind, label)) kind.push_back(label);
      }
    }
    std::array<Tensor, 2> packed;
    for (int i = 0; i < count; ++i) {
      const Dims dims = c.input(i).shape().dims();
      Axes kept, summed;
      for (const std::vector<int>* const kind : {&batch, &free[i], &inner}) {
        for (const int label : *kind) kept.Add(sizes.at(label), StrideOf(label, labels[i], dims));
      }
      for (size_t axis = 0; axis < labels[i].size(); ++axis) {
        const int label = labels[i][axis];
        const bool is_first = std::find(labels[i].begin(), labels[i].end(), label) ==
                              labels[i].begin() + static_cast<ptrdiff_t>(axis);
        if (is_first && !Contains(out, label) && !Contains(inner, label))
          summed.Add(dims[axis], StrideOf(label, labels[i], dims));
      }
      ASSIGN_OR_RETURN(packed[i], Packed<T>(c, c.input(i), kept, summed));
    }
    Axes places;  // of the product's elements in the output
    for (const std::vector<int>* const kind : {&batch, &free[0], &free[1]}) {
      for (const int label : *kind) places.Add(sizes.at(label), StrideOf(label, out, out_dims));
    }
    if (count == 2) {
      ASSIGN_OR_RETURN(packed[0], Multiply(c, packed, batch, free, inner, sizes));
    }
    const T* product = packed[0].data<T>();
    T* const to = output->data<T>();
    places.ForEach([&](int64_t place) { to[place] = *product++; });
    return absl::OkStatus();
  }

 private:
  static int64_t Product(const std::vector<int>& labels, const Sizes& sizes) {
    int64_t product = 1;
    for (const int label : labels) product *= sizes.at(label);
    return product;
  }

  static absl::StatusOr<Tensor> Multiply(KernelContext& c, const std::array<Tensor, 2>& packed,
                                         const std::vector<int>& batch,
                                         const std::vector<int> (&free)[2],
                                         const std::vector<int>& inner, const Sizes& sizes) {
    GemmShape shape;
    shape.m = Product(free[0], sizes);
    shape.n = Product(free[1], sizes);
    shape.k = Product(inner, sizes);
    shape.transpose_b = true;
    const int64_t count = Product(batch, sizes);
    ASSIGN_OR_RETURN(Tensor product,
                     c.AllocateTemporary(kDTypeOf<T>, Shape({count, shape.m, shape.n})));
    for (int64_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(Gemm<T>(shape, packed[0].data<T>() + i * shape.m * shape.k,
                              packed[1].data<T>() + i * shape.n * shape.k,
                              product.data<T>() + i * shape.m * shape.n, Threads(c)));
    }
    return product;
  }

  Equation equation_;
};

absl::Status EinsumShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const Equation equation, ParseEquation(c.node()));
  if (static_cast<int>(equation.inputs.size()) != c.num_inputs()) {
    return InvalidArgument("Expected ", equation.inputs.size(),
                           " inputs but got: ", c.num_inputs());
  }
  Sizes sizes;
  int ellipsis = 0;
  bool known = true;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.input(i).known_rank()) {
      known = false;
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<int> labels, Labels(equation.inputs[i], c.input(i).rank()));
    RETURN_IF_ERROR(AddSizes(labels, c.input(i).dims(), sizes));
    ellipsis = std::max(ellipsis, EllipsisRank(labels));
  }
  if (!known && HasEllipsis(equation.output)) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  Dims dims;
  for (const int label : OutputLabels(equation.output, ellipsis)) {
    const auto found = sizes.find(label);
    dims.push_back(found == sizes.end() ? -1 : found->second);
  }
  c.SetOutput(0, PartialShape(dims));
  return absl::OkStatus();
}

DEFINE_OP(Einsum) {
  op.Attr("equation: string")
      .Attr("N: int >= 1")
      .Attr("T: type")
      .Input("inputs: N * T")
      .Output("output: T")
      .Doc("Sums of products over named axes.")
      .Shape(EinsumShape);
  op.CpuTypes<ProductTypes>("T", []<typename T>() { return New<EinsumKernel<T>>(); });
}

}  // namespace
}  // namespace muster
