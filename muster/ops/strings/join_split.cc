// Strings put together and taken apart: StringJoin, ReduceJoin, StringSplit, StringSplitV2.
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

class JoinKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(separator_, s.Attr<std::string>("separator"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    Shape shape;
    bool found = false;
    for (int i = 0; i < c.num_inputs(); ++i) {
      const Shape& next = c.input(i).shape();
      if (next.is_scalar()) continue;
      if (found && next != shape) {
        return InvalidArgument("Input shapes do not match: ", shape.ToString(), " vs. ",
                               next.ToString());
      }
      shape = next;
      found = true;
    }
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    std::vector<absl::string_view> parts(c.num_inputs());
    for (int64_t i = 0; i < output->num_elements(); ++i) {
      for (int j = 0; j < c.num_inputs(); ++j) {
        const Tensor& input = c.input(j);
        parts[j] = input.data<std::string>()[input.shape().is_scalar() ? 0 : i];
      }
      output->data<std::string>()[i] = absl::StrJoin(parts, separator_);
    }
    return absl::OkStatus();
  }

 private:
  std::string separator_;
};

absl::Status JoinShape(ShapeContext& c) {
  bool all_scalar = true;
  for (int i = 0; i < c.num_inputs(); ++i)
    all_scalar &= c.input(i).known_rank() && c.input(i).rank() == 0;
  PartialShape output = all_scalar ? PartialShape::Scalar() : PartialShape();
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.input(i).known_rank() || c.input(i).rank() == 0) continue;
    ASSIGN_OR_RETURN(output, output.Merge(c.input(i)));
  }
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

class ReduceJoinKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(keep_dims_, s.Attr<bool>("keep_dims"));
    ASSIGN_OR_RETURN(separator_, s.Attr<std::string>("separator"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const int rank = input.rank();
    ASSIGN_OR_RETURN(const Dims numbers, IntegerValues(c.input(1)));
    std::vector<bool> reduced(rank, false);
    std::vector<int> axes;
    for (int64_t number : numbers) {
      if (number < -rank || number >= rank) {
        return OutOfRange("Invalid reduction dimension ", number, " for input with ", rank,
                          " dimension(s)");
      }
      const int axis = static_cast<int>(number < 0 ? number + rank : number);
      if (reduced[axis]) return InvalidArgument("Duplicate reduction dimension ", number);
      reduced[axis] = true;
      axes.push_back(axis);
    }
    if (axes.empty()) {
      c.SetOutput(0, input);
      return absl::OkStatus();
    }
    Dims strides(rank, 1);
    for (int i = rank - 2; i >= 0; --i) strides[i] = strides[i + 1] * input.dim(i + 1);
    Shape shape;
    std::vector<int> kept;
    for (int i = 0; i < rank; ++i) {
      if (!reduced[i]) kept.push_back(i);
      if (!reduced[i] || keep_dims_) shape.Append(reduced[i] ? 1 : input.dim(i));
    }
    // The axis that is named first varies fastest.
    const std::vector<int64_t> offsets = Offsets(input.shape(), strides, axes);
    const std::vector<int64_t> starts =
        Offsets(input.shape(), strides, {kept.rbegin(), kept.rend()});
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    std::vector<absl::string_view> parts(offsets.size());
    for (int64_t i = 0; i < output->num_elements(); ++i) {
      for (size_t j = 0; j < offsets.size(); ++j)
        parts[j] = input.data<std::string>()[starts[i] + offsets[j]];
      output->data<std::string>()[i] = absl::StrJoin(parts, separator_);
    }
    return absl::OkStatus();
  }

 private:
  // Offsets of all positions along `axes`, the first of which varies fastest.
  static std::vector<int64_t> Offsets(const Shape& shape, const Dims& strides,
                                      const std::vector<int>& axes) {
    std::vector<int64_t> offsets = {0};
    for (int axis : axes) {
      std::vector<int64_t> next;
      next.reserve(offsets.size() * shape.dim(axis));
      for (int64_t i = 0; i < shape.dim(axis); ++i) {
        for (int64_t offset : offsets) next.push_back(offset + i * strides[axis]);
      }
      offsets = std::move(next);
    }
    return offsets;
  }

  bool keep_dims_ = false;
  std::string separator_;
};

absl::Status ReduceJoinShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  const std::optional<Tensor> numbers = c.ConstantInput(1);
  ASSIGN_OR_RETURN(const bool keep_dims, c.Attr<bool>("keep_dims"));
  if (!input.known_rank() || !numbers.has_value()) return UnknownShape(c);
  const int rank = input.rank();
  ASSIGN_OR_RETURN(const Dims axes, IntegerValues(*numbers));
  std::vector<bool> reduced(rank, false);
  for (int64_t axis : axes) {
    if (axis < -rank || axis >= rank) {
      return InvalidArgument("Invalid reduction dimension ", axis, " for input with ", rank,
                             " dimensions.");
    }
    const int64_t at = axis < 0 ? axis + rank : axis;
    if (reduced[at]) return InvalidArgument("Duplicate reduction index ", axis);
    reduced[at] = true;
  }
  Dims dims;
  for (int i = 0; i < rank; ++i) {
    if (!reduced[i]) dims.push_back(input[i]);
    if (reduced[i] && keep_dims) dims.push_back(1);
  }
  c.SetOutput(0, PartialShape(std::move(dims)));
  return absl::OkStatus();
}

// The tokens of all strings as a sparse matrix.
absl::Status WriteTokens(KernelContext& c,
                         const std::vector<std::vector<absl::string_view>>& rows) {
  int64_t total = 0;
  int64_t widest = 0;
  for (const auto& row : rows) {
    total += static_cast<int64_t>(row.size());
    widest = std::max(widest, static_cast<int64_t>(row.size()));
  }
  ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(0, Shape({total, 2})));
  ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, Shape({total})));
  ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(2, Shape({2})));
  shape->data<int64_t>()[0] = static_cast<int64_t>(rows.size());
  shape->data<int64_t>()[1] = widest;
  int64_t next = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < rows[i].size(); ++j, ++next) {
      indices->data<int64_t>()[2 * next] = static_cast<int64_t>(i);
      indices->data<int64_t>()[2 * next + 1] = static_cast<int64_t>(j);
      values->data<std::string>()[next] = std::string(rows[i][j]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSplit(KernelContext& c, absl::string_view separator) {
  if (!c.input(0).shape().is_vector()) {
    return InvalidArgument("input must be a vector, got shape: ", c.input(0).shape().ToString());
  }
  if (!c.input(1).shape().is_scalar()) {
    return InvalidArgument(separator,
                           " must be a scalar, got shape: ", c.input(1).shape().ToString());
  }
  return absl::OkStatus();
}

class SplitKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(skip_empty_, s.Attr<bool>("skip_empty"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckSplit(c, "delimiter"));
    const std::string& delimiters = c.input(1).scalar<std::string>();
    std::vector<std::vector<absl::string_view>> rows;
    for (const std::string& text : c.input(0).values<std::string>())
      rows.push_back(Split(text, delimiters));
    return WriteTokens(c, rows);
  }

 private:
  // Every character of `delimiters` separates; without any, every character is a token.
  std::vector<absl::string_view> Split(absl::string_view text,
                                       const std::string& delimiters) const {
    std::vector<absl::string_view> tokens;
    if (text.empty()) return tokens;
    if (delimiters.empty()) {
      for (size_t i = 0; i < text.size(); ++i) tokens.push_back(text.substr(i, 1));
      return tokens;
    }
    if (skip_empty_) return absl::StrSplit(text, absl::ByAnyChar(delimiters), absl::SkipEmpty());
    return absl::StrSplit(text, absl::ByAnyChar(delimiters));
  }

  bool skip_empty_ = true;
};

class SplitV2Kernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(max_, s.Attr<int64_t>("maxsplit"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckSplit(c, "sep"));
    const std::string& separator = c.input(1).scalar<std::string>();
    std::vector<std::vector<absl::string_view>> rows;
    for (const std::string& text : c.input(0).values<std::string>()) {
      if (max_ == 0) {
        rows.push_back({text});
      } else {
        rows.push_back(separator.empty() ? SplitAtSpace(text) : SplitAt(text, separator));
      }
    }
    return WriteTokens(c, rows);
  }

 private:
  // As Python's str.split: runs of white space separate.
  std::vector<absl::string_view> SplitAtSpace(absl::string_view text) const {
    std::vector<absl::string_view> tokens;
    text = absl::StripLeadingAsciiWhitespace(text);
    while (!text.empty()) {
      size_t end = 0;
      while (end < text.size() && !absl::ascii_isspace(static_cast<unsigned char>(text[end])))
        ++end;
      tokens.push_back(text.substr(0, end));
      text = absl::StripLeadingAsciiWhitespace(text.substr(end));
      if (static_cast<int64_t>(tokens.size()) == max_) {
        tokens.push_back(text);
        break;
      }
    }
    return tokens;
  }

  std::vector<absl::string_view> SplitAt(absl::string_view text,
                                         absl::string_view separator) const {
    std::vector<absl::string_view> tokens;
    for (size_t at; (at = text.find(separator)) != absl::string_view::npos;) {
      if (max_ > 0 && static_cast<int64_t>(tokens.size()) == max_) break;
      tokens.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
    }
    tokens.push_back(text);
    return tokens;
  }

  int64_t max_ = -1;
};

absl::Status SplitShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  c.SetOutput(0, PartialShape::Matrix(-1, 2));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(2));
  return absl::OkStatus();
}

constexpr const char* kReason = "Strings have no gradient.";

}  // namespace

DEFINE_OP(StringJoin) {
  op.Attr("N: int >= 0")
      .Attr("separator: string = ''")
      .Input("inputs: N * string")
      .Output("output: string")
      .Doc("The strings of all inputs, element by element, with a separator between them.")
      .Shape(JoinShape)
      .NoGradient(kReason)
      .Cpu(New<JoinKernel>());
}

DEFINE_OP(ReduceJoin) {
  op.Attr("keep_dims: bool = false")
      .Attr("separator: string = ''")
      .Input("inputs: string")
      .Input("reduction_indices: int32")
      .Output("output: string")
      .Doc("Strings joined along the given axes, in the order in which the axes are named.")
      .Shape(ReduceJoinShape)
      .NoGradient(kReason)
      .Cpu(New<ReduceJoinKernel>());
}

DEFINE_OP(StringSplit) {
  op.Attr("skip_empty: bool = true")
      .Input("input: string")
      .Input("delimiter: string")
      .Output("indices: int64")
      .Output("values: string")
      .Output("shape: int64")
      .Doc(
          "The tokens of every string, cut at each character of the delimiter, as a sparse matrix.")
      .Shape(SplitShape)
      .NoGradient(kReason)
      .Cpu(New<SplitKernel>());
}

DEFINE_OP(StringSplitV2) {
  op.Attr("maxsplit: int = -1")
      .Input("input: string")
      .Input("sep: string")
      .Output("indices: int64")
      .Output("values: string")
      .Output("shape: int64")
      .Doc(
          "The tokens of every string, cut at the separator or at white space, as a sparse matrix.")
      .Shape(SplitShape)
      .Cpu(New<SplitV2Kernel>());
}

}  // namespace muster
