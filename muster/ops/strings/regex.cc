// Regular expressions: RegexReplace, RegexFullMatch and their forms with patterns as attributes.
#include <re2/re2.h>

#include "muster/ops/op.h"

namespace muster {
namespace {

absl::StatusOr<std::unique_ptr<RE2>> Compile(const std::string& pattern) {
  auto regex = std::make_unique<RE2>(pattern, RE2::Quiet);
  if (!regex->ok()) {
    return InvalidArgument("Invalid pattern: ", pattern, ", error: ", regex->error());
  }
  return regex;
}

absl::StatusOr<std::string> ScalarString(const Tensor& tensor, absl::string_view what) {
  if (tensor.rank() != 0) {
    return InvalidArgument(what, " must be scalar, but received ", tensor.shape().ToString());
  }
  return tensor.scalar<std::string>();
}

absl::Status Replace(KernelContext& c, const RE2& regex, const std::string& rewrite, bool global) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
  for (int64_t i = 0; i < input.num_elements(); ++i) {
    std::string& text = output->data<std::string>()[i];
    text = input.data<std::string>()[i];
    if (global) {
      RE2::GlobalReplace(&text, regex, rewrite);
    } else {
      RE2::Replace(&text, regex, rewrite);
    }
  }
  return absl::OkStatus();
}

absl::Status FullMatch(KernelContext& c, const RE2& regex) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
  for (int64_t i = 0; i < input.num_elements(); ++i) {
    output->data<bool>()[i] = RE2::FullMatch(input.data<std::string>()[i], regex);
  }
  return absl::OkStatus();
}

class ReplaceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(global_, setup.Attr<bool>("replace_global"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const std::string pattern, ScalarString(c.input(1), "Pattern"));
    ASSIGN_OR_RETURN(const std::string rewrite, ScalarString(c.input(2), "Rewrite"));
    ASSIGN_OR_RETURN(const std::unique_ptr<RE2> regex, Compile(pattern));
    return Replace(c, *regex, rewrite, global_);
  }

 private:
  bool global_ = true;
};

class StaticReplaceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string pattern, setup.Attr<std::string>("pattern"));
    ASSIGN_OR_RETURN(rewrite_, setup.Attr<std::string>("rewrite"));
    ASSIGN_OR_RETURN(global_, setup.Attr<bool>("replace_global"));
    ASSIGN_OR_RETURN(regex_, Compile(pattern));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override { return Replace(c, *regex_, rewrite_, global_); }

 private:
  std::unique_ptr<RE2> regex_;
  std::string rewrite_;
  bool global_ = true;
};

absl::Status RunFullMatch(KernelContext& c) {
  ASSIGN_OR_RETURN(const std::string pattern, ScalarString(c.input(1), "Pattern"));
  ASSIGN_OR_RETURN(const std::unique_ptr<RE2> regex, Compile(pattern));
  return FullMatch(c, *regex);
}

class StaticFullMatchKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string pattern, setup.Attr<std::string>("pattern"));
    ASSIGN_OR_RETURN(regex_, Compile(pattern));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override { return FullMatch(c, *regex_); }

 private:
  std::unique_ptr<RE2> regex_;
};

// As the first input; the others are scalars.
absl::Status InferShape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) RETURN_IF_ERROR(c.WithRank(c.input(i), 0).status());
  return UnchangedShape(c);
}

DEFINE_OP(RegexReplace) {
  op.Attr("replace_global: bool = true")
      .Input("input: string")
      .Input("pattern: string")
      .Input("rewrite: string")
      .Output("output: string")
      .Doc("The strings with matches of a pattern rewritten: all of them, or the first.")
      .Shape(InferShape)
      .NoGradient("strings")
      .Cpu(New<ReplaceKernel>());
}

DEFINE_OP(StaticRegexReplace) {
  op.Attr("pattern: string")
      .Attr("rewrite: string")
      .Attr("replace_global: bool = true")
      .Input("input: string")
      .Output("output: string")
      .Doc("RegexReplace with a pattern that does not change.")
      .Shape(InferShape)
      .Cpu(New<StaticReplaceKernel>());
}

DEFINE_OP(RegexFullMatch) {
  op.Input("input: string")
      .Input("pattern: string")
      .Output("output: bool")
      .Doc("Whether a pattern matches each string from its beginning to its end.")
      .Shape(InferShape)
      .Cpu(RunFullMatch);
}

DEFINE_OP(StaticRegexFullMatch) {
  op.Attr("pattern: string")
      .Input("input: string")
      .Output("output: bool")
      .Doc("RegexFullMatch with a pattern that does not change.")
      .Shape(InferShape)
      .Cpu(New<StaticFullMatchKernel>());
}

}  // namespace
}  // namespace muster
