#include "muster/worker/variable_names.h"

#include "muster/params/variable.h"

namespace muster {
namespace {

bool IsVariable(absl::string_view op) {
  return op == "VariableV2" || op == "VarHandleOp" || op == "Variable";
}

// From the declaration where that says it: a snapshot would make the next update copy.
int64_t SizeOf(const Variable& variable) {
  if (IsPlainData(variable.dtype()) && variable.declared_shape().fully_known()) {
    return variable.declared_shape().num_elements() *
           static_cast<int64_t>(DTypeSize(variable.dtype()));
  }
  const Tensor value = variable.Snapshot();
  return value.valid() ? static_cast<int64_t>(value.size_bytes()) : 0;
}

}  // namespace

void VariableNames::Note(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (!IsVariable(node->op())) continue;
    std::string name = node->Attr<std::string>("shared_name").value_or("");
    if (name.empty()) name = node->name();
    std::string container = node->Attr<std::string>("container").value_or("");
    MutexLock lock(mutex_);
    if (names_.size() < kMaxNames) names_.emplace(std::move(container), std::move(name));
  }
}

VariableNames::Totals VariableNames::Count(const ResourceManager& resources) {
  std::vector<std::pair<std::string, std::string>> names;
  bool is_full;
  {
    MutexLock lock(mutex_);
    names.assign(names_.begin(), names_.end());
    is_full = names_.size() >= kMaxNames;
  }
  Totals totals;
  std::vector<std::pair<std::string, std::string>> gone;
  for (auto& name : names) {
    const absl::StatusOr<RefPtr<Variable>> variable =
        resources.LookupAs<Variable>(name.first, name.second);
    if (!variable.ok()) {
      if (is_full) gone.push_back(std::move(name));
      continue;
    }
    if (!(*variable)->initialized()) continue;
    ++totals.variables;
    totals.bytes += SizeOf(**variable);
  }
  MutexLock lock(mutex_);
  for (const auto& name : gone) names_.erase(name);
  return totals;
}

}  // namespace muster
