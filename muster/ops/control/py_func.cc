// A Python function inside a graph. It lives in the process that built the graph: elsewhere its
// token is not valid.
#include "muster/ops/control/py_func.h"

#include <utility>

#include "muster/ops/op.h"

namespace muster {
namespace {

CallByToken& FrontEndFunctions() {
  static auto* const call = new CallByToken();
  return *call;
}

class PyFuncKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(token_, setup.Attr<std::string>("token"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    if (!FrontEndFunctions()) {
      return InvalidArgument("callback ", token_, " is not found: this process runs no Python");
    }
    std::vector<Tensor> inputs;
    for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.TakeInput(i));
    ASSIGN_OR_RETURN(std::vector<Tensor> outputs, FrontEndFunctions()(token_, std::move(inputs)));
    if (outputs.size() != static_cast<size_t>(c.num_outputs())) {
      return InvalidArgument(token_, " returns ", outputs.size(), " values, but expects to see ",
                             c.num_outputs(), " values.");
    }
    for (int i = 0; i < c.num_outputs(); ++i) {
      if (outputs[i].dtype() != c.output_type(i)) {
        return InvalidArgument(i, "-th value returned by ", token_, " is ",
                               DTypeName(outputs[i].dtype()), ", but expects ",
                               DTypeName(c.output_type(i)));
      }
      c.SetOutput(i, std::move(outputs[i]));
    }
    return absl::OkStatus();
  }

 private:
  std::string token_;
};

void Define(OpBuilder& op) {
  op.Attr("token: string").Attr("Tin: list(type) >= 0").Attr("Tout: list(type) >= 0");
  op.Input("input: Tin").Output("output: Tout");
  op.Doc("What a Python function of this process makes of the inputs.");
  op.Shape([](ShapeContext& c) {
      for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, PartialShape());
      return absl::OkStatus();
    })
      .NoGradient("a Python function")
      .Cpu(New<PyFuncKernel>());
}

}  // namespace

void SetFrontEndFunctions(CallByToken call) {
  FrontEndFunctions() = std::move(call);
}

DEFINE_OP(PyFunc) {
  Define(op);
  op.Stateful();
}

DEFINE_OP(PyFuncStateless) {
  Define(op);
}

}  // namespace muster
