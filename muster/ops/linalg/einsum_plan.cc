#include "muster/ops/linalg/einsum_plan.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace muster {
namespace {

// Axes of an ellipsis have numbers above all letters, counted from the right.
constexpr int kEllipsis = 1000;

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

absl::StatusOr<EinsumEquation> ParseEquation(const Node& node) {
  ASSIGN_OR_RETURN(const std::string text, node.Attr<std::string>("equation"));
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  if (sides.size() != 2)
    return InvalidArgument("Expecting exactly one '->' in einsum equation: ", text);
  EinsumEquation equation{absl::StrSplit(sides[0], ','), sides[1]};
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

using Sizes = absl::flat_hash_map<int, int64_t>;

bool Contains(const std::vector<int>& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}
int EllipsisRank(const std::vector<int>& labels) {
  return static_cast<int>(
      std::count_if(labels.begin(), labels.end(), [](int label) { return label > kEllipsis; }));
}

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

// The step of a label: over the diagonal where it appears twice, none where it is broadcast.
int64_t StrideOf(int label, const std::vector<int>& labels, const Dims& dims) {
  int64_t stride = 1, sum = 0;
  for (int axis = static_cast<int>(labels.size()) - 1; axis >= 0; --axis) {
    if (labels[axis] == label && !(dims[axis] == 1 && label > kEllipsis)) sum += stride;
    stride *= dims[axis];
  }
  return sum;
}

}  // namespace

absl::StatusOr<EinsumEquation> ParseEinsum(const Node& node) {
  ASSIGN_OR_RETURN(EinsumEquation equation, ParseEquation(node));
  if (static_cast<int>(equation.inputs.size()) != node.num_inputs()) {
    return InvalidArgument("Expected ", equation.inputs.size(),
                           " inputs but got: ", node.num_inputs());
  }
  return equation;
}

absl::StatusOr<EinsumPlan> PlanEinsum(const EinsumEquation& equation, const KernelContext& c) {
  const int count = c.num_inputs();
  std::array<std::vector<int>, 2> labels;
  Sizes sizes;
  int ellipsis = 0;
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(labels[i], Labels(equation.inputs[i], c.input(i).rank()));
    RETURN_IF_ERROR(AddSizes(labels[i], c.input(i).shape().dims(), sizes));
    ellipsis = std::max(ellipsis, EllipsisRank(labels[i]));
  }
  const std::vector<int> out = OutputLabels(equation.output, ellipsis);
  Dims out_dims;
  for (const int label : out) out_dims.push_back(sizes.at(label));
  EinsumPlan plan;
  ASSIGN_OR_RETURN(plan.output, Shape::Make(out_dims));

  // Which kind each label is.
  std::vector<int> batch, free[2], inner;
  for (int i = 0; i < count; ++i) {
    for (const int label : labels[i]) {
      const bool other = count == 2 && Contains(labels[1 - i], label);
      std::vector<int>& kind = Contains(out, label) ? (other ? batch : free[i]) : inner;
      if ((Contains(out, label) || other) && !Contains(kind, label)) kind.push_back(label);
    }
  }
  for (int i = 0; i < count; ++i) {
    const Dims dims = c.input(i).shape().dims();
    EinsumPlan::Operand& operand = plan.operands[i];
    operand.num_batch = static_cast<int>(batch.size());
    operand.num_free = static_cast<int>(free[i].size());
    for (const std::vector<int>* const kind : {&batch, &free[i], &inner}) {
      for (const int label : *kind)
        operand.kept.Add(sizes.at(label), StrideOf(label, labels[i], dims));
    }
    for (size_t axis = 0; axis < labels[i].size(); ++axis) {
      const int label = labels[i][axis];
      const bool is_first = std::find(labels[i].begin(), labels[i].end(), label) ==
                            labels[i].begin() + static_cast<ptrdiff_t>(axis);
      if (is_first && !Contains(out, label) && !Contains(inner, label))
        operand.summed.Add(dims[axis], StrideOf(label, labels[i], dims));
    }
  }
  for (const std::vector<int>* const kind : {&batch, &free[0], &free[1]}) {
    for (const int label : *kind) plan.places.Add(sizes.at(label), StrideOf(label, out, out_dims));
  }
  const auto product = [&](const std::vector<int>& of) {
    int64_t size = 1;
    for (const int label : of) size *= sizes.at(label);
    return size;
  };
  plan.batch = product(batch);
  plan.m = product(free[0]);
  plan.n = product(free[1]);
  plan.k = product(inner);
  return plan;
}

absl::Status EinsumShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const EinsumEquation equation, ParseEinsum(c.node()));
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

}  // namespace muster
