// Named state that outlives a step: resources in containers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/params/state.h"
#include "muster/tensor/handles.h"

namespace muster {

// Keeps a state listed while it lives: one that belongs to a kernel and that no other can look up.
// May outlive the manager.
class ListedState {
 public:
  ListedState() = default;
  ListedState(ListedState&& other) noexcept = default;
  ListedState& operator=(ListedState&& other) noexcept;
  ~ListedState();

 private:
  friend class ResourceManager;
  using Key = std::pair<std::string, std::string>;  // container and name
  struct List {
    Mutex mutex;
    std::map<Key, RefPtr<State>> states ABSL_GUARDED_BY(mutex);
  };
  void Release();
  std::shared_ptr<List> list_;
  Key key_;
};

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

  // A state with the names that identify it beside its kind.
  struct NamedState {
    std::string container;
    std::string name;
    RefPtr<State> state;
  };
  // All states there are at this moment, by container and name.
  std::vector<NamedState> States() const;
  // Lists the state of a kernel. A name that is taken, by the same node of another session, gets a
  // number: "dropout/random_uniform#2".
  ListedState List(absl::string_view container, absl::string_view name, RefPtr<State> state);

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
  // Made for the first state: every step has a manager of its own, which lists none.
  std::shared_ptr<ListedState::List> listed_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Container> containers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
