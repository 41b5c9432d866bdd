#include "muster/graph/op_registry.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/container/node_hash_map.h"
#include <unistd.h>

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/graph/op_names.h"

namespace muster {
namespace {
OpEntry* first_entry = nullptr;  // constant-initialised: usable by every static constructor
}

OpEntry::OpEntry(const char* op_name, void (*define_op)(const char*))
    : name(op_name), define(define_op), next(first_entry) {
  first_entry = this;
}

namespace {

// One op that is linked in; its definition runs at the first lookup. Most programs use few ops, and
// running all definitions would touch every page of the library.
struct Slot {
  const OpEntry* entry = nullptr;
  std::atomic<const OpRegistration*> registration{nullptr};
};
using Slots = absl::node_hash_map<absl::string_view, Slot>;

[[noreturn]] void DefinedTwice(absl::string_view name) {
  std::fprintf(stderr, "op %.*s is defined twice\n", static_cast<int>(name.size()), name.data());
  std::abort();
}

// All ops; immutable once built.
Slots& AllSlots() {
  static Slots* const slots = [] {
    auto* made = new Slots;
    for (const OpEntry* entry = first_entry; entry != nullptr; entry = entry->next) {
      const auto [slot, added] = made->try_emplace(entry->name);
      if (!added) DefinedTwice(entry->name);
      slot->second.entry = entry;
    }
    return made;
  }();
  return *slots;
}

Mutex& DefinitionMutex() {
  static auto* mutex = new Mutex;
  return *mutex;
}

}  // namespace

std::vector<std::string> OpNames() {
  std::vector<std::string> names;
  for (const auto& [name, slot] : AllSlots()) names.emplace_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

OpRegistry& OpRegistry::Global() {
  static OpRegistry* const registry = building_ = new OpRegistry;
  return *registry;
}

OpRegistry* OpRegistry::building_ = nullptr;

// Called by a definition that Find runs.
void OpRegistry::Add(OpRegistration registration) {
  const std::string name = registration.def.name;
  if (!ops_.emplace(name, std::make_unique<OpRegistration>(std::move(registration))).second)
    DefinedTwice(name);
}

const OpRegistration* OpRegistry::Find(absl::string_view op) const {
  Slots& slots = AllSlots();
  const auto found = slots.find(op);
  if (found == slots.end()) return nullptr;
  Slot& slot = found->second;
  if (const OpRegistration* defined = slot.registration.load(std::memory_order_acquire))
    return defined;
  MutexLock lock(DefinitionMutex());
  const OpRegistration* defined = slot.registration.load(std::memory_order_relaxed);
  if (defined == nullptr) {
    slot.entry->define(slot.entry->name);
    defined = ops_.find(op)->second.get();
    slot.registration.store(defined, std::memory_order_release);
  }
  return defined;
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
  for (const std::string& name : OpNames()) all.push_back(Find(name));
  return all;
}

}  // namespace muster
