#include "muster/runtime/resource_manager.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace muster {

absl::Status ResourceManager::Create(absl::string_view container, absl::string_view name,
                                     RefPtr<Resource> resource) {
  MutexLock lock(mutex_);
  const std::string key = Named(std::string(container));
  const bool added = containers_[key].emplace(std::string(name), std::move(resource)).second;
  if (!added)
    return absl::AlreadyExistsError(absl::StrCat("Resource ", key, "/", name, " exists already"));
  return absl::OkStatus();
}

absl::StatusOr<RefPtr<Resource>> ResourceManager::Lookup(absl::string_view container,
                                                         absl::string_view name) const {
  MutexLock lock(mutex_);
  const std::string key = Named(std::string(container));
  const auto box = containers_.find(key);
  if (box == containers_.end()) {
    return NotFound("Container ", key, " does not exist. (Could not find resource: ", key, "/",
                    name, ")");
  }
  const auto found = box->second.find(name);
  if (found == box->second.end()) return NotFound("Resource ", key, "/", name, " does not exist.");
  return found->second;
}

absl::StatusOr<RefPtr<Resource>> ResourceManager::LookupOrCreate(
    absl::string_view container, absl::string_view name,
    absl::FunctionRef<absl::StatusOr<RefPtr<Resource>>()> make) {
  MutexLock lock(mutex_);
  Container& box = containers_[Named(std::string(container))];
  const auto found = box.find(name);
  if (found != box.end()) return found->second;
  ASSIGN_OR_RETURN(RefPtr<Resource> made, make());
  box.emplace(std::string(name), made);
  return made;
}

absl::Status ResourceManager::Delete(absl::string_view container, absl::string_view name) {
  RefPtr<Resource> dropped;  // destroyed outside the lock
  MutexLock lock(mutex_);
  const std::string key = Named(std::string(container));
  const auto box = containers_.find(key);
  if (box == containers_.end()) {
    return NotFound("Container ", key, " does not exist. (Could not find resource: ", key, "/",
                    name, ")");
  }
  const auto found = box->second.find(name);
  if (found == box->second.end()) return NotFound("Resource ", key, "/", name, " does not exist.");
  dropped = std::move(found->second);
  box->second.erase(found);
  return absl::OkStatus();
}

void ResourceManager::ClearContainer(absl::string_view container) {
  Container dropped;
  MutexLock lock(mutex_);
  const auto box = containers_.find(Named(std::string(container)));
  if (box == containers_.end()) return;
  dropped.swap(box->second);
  containers_.erase(box);
}

void ResourceManager::Clear() {
  absl::flat_hash_map<std::string, Container> dropped;
  MutexLock lock(mutex_);
  dropped.swap(containers_);
}

std::vector<ResourceManager::NamedState> ResourceManager::States() const {
  std::vector<NamedState> states;
  {
    MutexLock lock(mutex_);
    for (const auto& [container, box] : containers_) {
      for (const auto& [name, resource] : box) {
        auto* const state = dynamic_cast<State*>(resource.get());
        if (state != nullptr) states.push_back({container, name, RefPtr<State>::Share(state)});
      }
    }
    if (listed_ != nullptr) {
      MutexLock list_lock(listed_->mutex);
      for (const auto& [key, state] : listed_->states)
        states.push_back({key.first, key.second, state});
    }
  }
  std::sort(states.begin(), states.end(), [](const NamedState& a, const NamedState& b) {
    return std::tie(a.container, a.name) < std::tie(b.container, b.name);
  });
  return states;
}

ListedState ResourceManager::List(absl::string_view container, absl::string_view name,
                                  RefPtr<State> state) {
  ListedState listed;
  listed.key_.first = Named(std::string(container));
  listed.key_.second = std::string(name);
  {
    MutexLock lock(mutex_);
    if (listed_ == nullptr) listed_ = std::make_shared<ListedState::List>();
    listed.list_ = listed_;
  }
  MutexLock lock(listed.list_->mutex);
  for (int number = 2; !listed.list_->states.emplace(listed.key_, state).second; ++number)
    listed.key_.second = absl::StrCat(name, "#", number);
  return listed;
}

ListedState& ListedState::operator=(ListedState&& other) noexcept {
  if (this == &other) return *this;
  Release();
  list_ = std::move(other.list_);
  key_ = std::move(other.key_);
  return *this;
}

ListedState::~ListedState() {
  Release();
}

void ListedState::Release() {
  if (list_ == nullptr) return;
  RefPtr<State> released;  // destroyed outside the lock
  {
    MutexLock lock(list_->mutex);
    const auto found = list_->states.find(key_);
    released = std::move(found->second);
    list_->states.erase(found);
  }
  list_ = nullptr;
}

absl::Status ResourceManager::WrongType(absl::string_view container, absl::string_view name,
                                        const Resource& resource) const {
  return InvalidArgument("Trying to access resource ", name, " in container ", container,
                         " which is a ", resource.Describe(), " as something else");
}

}  // namespace muster
