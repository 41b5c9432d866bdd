// A dataset whose elements three functions make: one begins, one gives the next element, one ends.
#include "muster/ops/data/captured_function.h"

namespace muster {
namespace {

struct GeneratorFunctions {
  CapturedFunctionPtr init;
  CapturedFunctionPtr next;
  CapturedFunctionPtr finalize;
};

class Generation {
 public:
  explicit Generation(GeneratorFunctions functions) : functions_(std::move(functions)) {}

  // Calls the finalize function even if the generator was not read to its end.
  ~Generation() {
    if (!begun_ || ended_) return;
    Cancellation cancellation;
    functions_.finalize->Call(DataContext{&cancellation}, state_).IgnoreError();
  }

  MaybeElement Next(const DataContext& context) {
    if (ended_) return std::nullopt;
    if (!begun_) {
      ASSIGN_OR_RETURN(state_, functions_.init->Call(context, {}));
      begun_ = true;
    }
    absl::StatusOr<Element> element = functions_.next->Call(context, state_);
    if (element.ok()) return *std::move(element);
    if (!absl::IsOutOfRange(element.status())) return element.status();
    ended_ = true;
    RETURN_IF_ERROR(functions_.finalize->Call(context, state_).status());
    return std::nullopt;
  }

 private:
  const GeneratorFunctions functions_;
  Element state_;
  bool begun_ = false;
  bool ended_ = false;
};

absl::Status MakeGenerator(KernelContext& c) {
  GeneratorFunctions functions;
  int first = 0;
  const auto take = [&](const char* attr, const char* types,
                        CapturedFunctionPtr& function) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<Tensor> captured, CapturedInputs(c, first, types));
    first += static_cast<int>(captured.size());
    ASSIGN_OR_RETURN(function, CapturedFunction::Make(c, attr, captured));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(take("init_func", "Tinit_func_args", functions.init));
  RETURN_IF_ERROR(take("next_func", "Tnext_func_args", functions.next));
  RETURN_IF_ERROR(take("finalize_func", "Tfinalize_func_args", functions.finalize));
  return SetDataset(c, [functions](const DataContext&) -> absl::StatusOr<NextElement> {
    return [generation = std::make_unique<Generation>(functions)](const DataContext& context) {
      return generation->Next(context);
    };
  });
}

}  // namespace

DEFINE_OP(GeneratorDataset) {
  op.Attr("init_func: func")
      .Attr("next_func: func")
      .Attr("finalize_func: func")
      .Attr("Tinit_func_args: list(type) >= 0")
      .Attr("Tnext_func_args: list(type) >= 0")
      .Attr("Tfinalize_func_args: list(type) >= 0");
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("init_func_other_args: Tinit_func_args")
      .Input("next_func_other_args: Tnext_func_args")
      .Input("finalize_func_other_args: Tfinalize_func_args")
      .Stateful();
  DefineDataset(op, "What a function gives, call by call, until it says that it is out of range.",
                MakeGenerator);
  op.HostMemory({"handle"}).Gpu(MakeGenerator).GpuIfAsked();
}

}  // namespace muster
