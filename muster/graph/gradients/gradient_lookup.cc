#include "muster/graph/gradients/gradient_lookup.h"

#include <map>

#include "muster/base/mutex.h"
#include "muster/graph/gradients/function_gradient.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/graph/op_registry.h"

namespace muster {
namespace {

// Gradient functions registered at run time.
struct CustomGradients {
  Mutex mutex;
  std::map<std::string, GradientFunction, std::less<>> functions ABSL_GUARDED_BY(mutex);

  static CustomGradients& Global() {
    static auto& gradients = *std::make_unique<CustomGradients>().release();
    return gradients;
  }
};

}  // namespace

absl::StatusOr<GradientLookup> FindGradient(const Node& node) {
  if (node.num_inputs() == 0) return GradientLookup();
  std::string name = node.op();
  if (const AttrValue* attr = node.FindAttr("_gradient_op_type")) {
    if (const auto* text = attr->get<std::string>()) name = *text;
  }
  {
    CustomGradients& custom = CustomGradients::Global();
    MutexLock lock(custom.mutex);
    const auto found = custom.functions.find(name);
    if (found != custom.functions.end()) return GradientLookup{found->second};
  }
  const OpRegistration* registration = OpRegistry::Global().Find(name);
  if (registration != nullptr) {
    if (registration->gradient) return GradientLookup{registration->gradient};
    if (!registration->no_gradient_reason.empty()) return GradientLookup();
  }
  if (GradientFunction of_call = CallGradient(node)) return GradientLookup{of_call, true};
  return WithErrorKind(
      NotFound("No gradient defined for operation '", node.name(), "' (op type: ", node.op(), ")"),
      kLookupError);
}

absl::Status RegisterGradient(absl::string_view name, GradientFunction function) {
  const OpRegistration* registration = OpRegistry::Global().Find(name);
  const bool built_in = registration != nullptr &&
                        (registration->gradient || !registration->no_gradient_reason.empty());
  CustomGradients& custom = CustomGradients::Global();
  MutexLock lock(custom.mutex);
  if (built_in || !custom.functions.emplace(std::string(name), std::move(function)).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("Registering two gradient with name '", name, "'!"));
  }
  return absl::OkStatus();
}

absl::Status WithErrorKind(absl::Status status, absl::string_view kind) {
  status.SetPayload(kErrorKindUrl, absl::Cord(kind));
  return status;
}

std::string ErrorKind(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrorKindUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace muster
