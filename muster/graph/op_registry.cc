#include "muster/graph/op_registry.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

#include "muster/base/status.h"

namespace muster {
namespace {
OpEntry* first_entry = nullptr;  // constant-initialised: usable by every static constructor
}

OpEntry::OpEntry(const char* op_name, void (*define_op)(const char*))
    : name(op_name), define(define_op), next(first_entry) {
  first_entry = this;
}

OpRegistry& OpRegistry::Global() {
  static OpRegistry* registry = nullptr;
  // Definitions call Global() to add themselves, so the object exists before they run.
  static const bool built = [] {
    registry = new OpRegistry;
    registry->RunDefinitions();
    return true;
  }();
  (void)built;
  return *registry;
}

void OpRegistry::RunDefinitions() {
  building_ = this;
  for (OpEntry* entry = first_entry; entry != nullptr; entry = entry->next)
    entry->define(entry->name);
  building_ = nullptr;
}

OpRegistry* OpRegistry::building_ = nullptr;

void OpRegistry::Add(OpRegistration registration) {
  const std::string name = registration.def.name;
  auto [at, added] = ops_.emplace(name, std::make_unique<OpRegistration>(std::move(registration)));
  if (!added) {
    std::fprintf(stderr, "op %s is defined twice\n", name.c_str());
    std::abort();
  }
}

const OpRegistration* OpRegistry::Find(absl::string_view op) const {
  const auto found = ops_.find(op);
  return found == ops_.end() ? nullptr : found->second.get();
}

absl::StatusOr<const OpRegistration*> OpRegistry::Lookup(absl::string_view op) const {
  if (const OpRegistration* found = Find(op)) return found;
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return NotFound(
      "Op type not registered '", op, "' in binary running on ", host,
      ". Make sure the Op and Kernel are registered in the binary running in this process. Note "
      "that if "
      "you are loading a saved graph which used ops from tf.contrib, accessing (e.g.) "
      "`tf.contrib.resampler` should be done before importing the graph, as contrib ops are lazily "
      "registered when the module is first accessed.");
}

std::vector<const OpRegistration*> OpRegistry::All() const {
  std::vector<const OpRegistration*> all;
  for (const auto& [name, registration] : ops_) all.push_back(registration.get());
  std::sort(all.begin(), all.end(),
            [](const auto* a, const auto* b) { return a->def.name < b->def.name; });
  return all;
}

}  // namespace muster
