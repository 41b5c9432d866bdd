// Named state that outlives a step: resources in containers.
#pragma once

#include <string>
#include <typeinfo>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/tensor/handles.h"

namespace muster {

// Thread-safe.
class ResourceManager {
 public:
  // The container used for an empty name ("localhost" for local sessions, the job's name on a
  // server).
  explicit ResourceManager(std::string default_container = "localhost")
      : default_container_(std::move(default_container)) {}

  const std::string& default_container() const { return default_container_; }
  // AlreadyExists when the name is taken.
  absl::Status Create(absl::string_view container, absl::string_view name,
                      RefPtr<Resource> resource);
  // NotFound in TensorFlow's words.
  absl::StatusOr<RefPtr<Resource>> Lookup(absl::string_view container,
                                          absl::string_view name) const;
  absl::StatusOr<RefPtr<Resource>> LookupOrCreate(
      absl::string_view container, absl::string_view name,
      absl::FunctionRef<absl::StatusOr<RefPtr<Resource>>()> make);
  absl::Status Delete(absl::string_view container, absl::string_view name);
  // Drops all of a container; an empty name means the default one.
  void ClearContainer(absl::string_view container);
  void Clear();

  // The resource as T; InvalidArgument naming both types when it is another kind.
  template <typename T>
  absl::StatusOr<RefPtr<T>> LookupAs(absl::string_view container, absl::string_view name) const {
    absl::StatusOr<RefPtr<Resource>> found = Lookup(container, name);
    if (!found.ok()) return found.status();
    T* typed = dynamic_cast<T*>(found->get());
    if (typed == nullptr) return WrongType(container, name, **found);
    return RefPtr<T>::Share(typed);
  }

 private:
  absl::Status WrongType(absl::string_view container, absl::string_view name,
                         const Resource& resource) const;
  const std::string& Named(const std::string& container) const {
    return container.empty() ? default_container_ : container;
  }
  using Container = absl::flat_hash_map<std::string, RefPtr<Resource>>;
  const std::string default_container_;
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Container> containers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
