// Assertions and output: Assert, Abort, Print, PrintV2.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "muster/base/log.h"
#include "muster/ops/file_kernel.h"

namespace muster {
namespace {

// The text of a Print op goes to the stream it names, not to the log.
void Write(const std::string& text, std::FILE* stream) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

class AssertKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(summarize_, s.Attr<int64_t>("summarize"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& condition = c.input(0);
    if (condition.rank() != 0) {
      return InvalidArgument("In[0] should be a scalar: ", condition.shape().ToString());
    }
    if (condition.scalar<bool>()) return absl::OkStatus();
    std::string text = "assertion failed:";
    for (int i = 1; i < c.num_inputs(); ++i)
      absl::StrAppend(&text, " [", c.input(i).SummarizeValues(summarize_), "]");
    return InvalidArgument(text);
  }

 private:
  int64_t summarize_ = 3;
};

class AbortKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(message_, s.Attr<std::string>("error_msg"));
    ASSIGN_OR_RETURN(without_error_, s.Attr<bool>("exit_without_error"));
    return absl::OkStatus();
  }

  // Ends the process: that is what the op is for.
  absl::Status Compute(KernelContext&) override {
    if (without_error_) std::exit(0);
    LOG(ERROR) << "Abort_op intentional failure; " << message_;
    std::abort();
  }

 private:
  std::string message_;
  bool without_error_ = false;
};

class PrintKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(message_, s.Attr<std::string>("message"));
    ASSIGN_OR_RETURN(first_n_, s.Attr<int64_t>("first_n"));
    ASSIGN_OR_RETURN(summarize_, s.Attr<int64_t>("summarize"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    if (CountCall()) {
      std::string text = message_;
      for (int i = 1; i < c.num_inputs(); ++i)
        absl::StrAppend(&text, "[", c.input(i).SummarizeValues(summarize_), "]");
      absl::StrAppend(&text, "\n");
      Write(text, stderr);
    }
    c.SetOutput(0, c.TakeInput(0));
    return absl::OkStatus();
  }

 private:
  // Whether this call is among the first n.
  bool CountCall() {
    if (first_n_ < 0) return true;
    MutexLock lock(mutex_);
    if (calls_ >= first_n_) return false;
    ++calls_;
    return true;
  }

  std::string message_;
  int64_t first_n_ = -1;
  int64_t summarize_ = 3;
  Mutex mutex_;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

absl::StatusOr<std::string> PrintedText(const Tensor& input, absl::string_view end) {
  if (input.shape().is_scalar()) return absl::StrCat(input.scalar<std::string>(), end);
  return InvalidArgument("Input is expected to be scalar, but got ", input.shape().ToString());
}

class PrintV2Kernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(stream_, s.Attr<std::string>("output_stream"));
    ASSIGN_OR_RETURN(end_, s.Attr<std::string>("end"));
    is_file_ = absl::StartsWith(stream_, "file://");
    if (is_file_) return absl::OkStatus();
    const std::vector<std::string> known = {"stdout", "stderr", "log(info)", "log(warning)",
                                            "log(error)"};
    if (std::find(known.begin(), known.end(), stream_) != known.end()) return absl::OkStatus();
    return InvalidArgument("Unknown output stream: ", stream_,
                           ", Valid streams are: ", absl::StrJoin(known, " "));
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const std::string text, PrintedText(c.input(0), end_));
    if (stream_ == "stdout") {
      Write(text, stdout);
    } else if (stream_ == "stderr") {
      Write(text, stderr);
    } else if (stream_ == "log(info)") {
      LOG(INFO) << text;
    } else if (stream_ == "log(warning)") {
      LOG(WARNING) << text;
    } else {
      LOG(ERROR) << text;
    }
    return absl::OkStatus();
  }

  bool is_async() const override { return is_file_; }
  void ComputeAsync(KernelContext& c, Done done) override {
    FileCall::Start(
        c, [stream = stream_, end = end_](FileCall& call) { return Append(call, stream, end); },
        std::move(done));
  }

 private:
  static absl::Status Append(const FileCall& c, const std::string& stream, const std::string& end) {
    ASSIGN_OR_RETURN(const std::string text, PrintedText(c.input(0), end));
    std::ofstream file(std::string(absl::StripPrefix(stream, "file://")), std::ios::app);
    if (!file || !(file << text)) return InvalidArgument("Failed to write to ", stream);
    return absl::OkStatus();
  }

  std::string stream_;
  std::string end_;
  bool is_file_ = false;
};

absl::Status PrintGradient(GradientContext& c) {
  c.SetDx(0, c.gradient(0));
  return absl::OkStatus();
}

absl::Status PrintV2Shape(ShapeContext& c) {
  return c.WithRank(c.input(0), 0).status();
}

}  // namespace

DEFINE_OP(Assert) {
  op.Attr("T: list(type) >= 1")
      .Attr("summarize: int = 3")
      .Input("condition: bool")
      .Input("data: T")
      .Stateful()
      .Doc("Fails with the data in its message unless the condition holds.")
      .Shape(NoOutputs)
      .Cpu(New<AssertKernel>());
}

DEFINE_OP(Abort) {
  op.Attr("error_msg: string = ''")
      .Attr("exit_without_error: bool = false")
      .Doc("Ends the process.")
      .Shape(NoOutputs)
      .Cpu(New<AbortKernel>());
}

DEFINE_OP(Print) {
  op.Attr("T: type")
      .Attr("U: list(type) >= 0")
      .Attr("message: string = ''")
      .Attr("first_n: int = -1")
      .Attr("summarize: int = 3")
      .Input("input: T")
      .Input("data: U")
      .Output("output: T")
      .Stateful()
      .Doc("Writes the data to the error stream and gives the input on.")
      .Shape(UnchangedShape)
      .Gradient(PrintGradient)
      .Cpu(New<PrintKernel>());
}

DEFINE_OP(PrintV2) {
  op.Attr("output_stream: string = 'stderr'")
      .Attr("end: string = '\\n'")
      .Input("input: string")
      .Stateful()
      .Doc("Writes a string to a stream, the log or a file.")
      .Shape(PrintV2Shape)
      .Cpu(New<PrintV2Kernel>());
}

}  // namespace muster
