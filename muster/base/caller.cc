#include "muster/base/caller.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster {
namespace {

absl::string_view RoleName(Caller::Role role) {
  switch (role) {
    case Caller::Role::kClient:
      return "client";
    case Caller::Role::kTask:
      return "task";
    case Caller::Role::kOperator:
      return "operator";
    case Caller::Role::kUnknown:
      break;
  }
  return "caller";
}

// Longer ones are not names of tasks.
constexpr size_t kLongestTask = 256;

}  // namespace

std::string Caller::ToString() const {
  std::string text = absl::StrCat(RoleName(role), " ", task.empty() ? name : task);
  if (!task.empty() && task != name) absl::StrAppend(&text, " at ", name);
  if (!subject.empty()) absl::StrAppend(&text, " (", subject, ")");
  return text;
}

std::string Caller::Introduction() const {
  return role == Role::kTask ? task : std::string(RoleName(role));
}

void Caller::Introduce(const std::string& introduction) {
  for (const Role known : {Role::kClient, Role::kOperator})
    if (introduction == RoleName(known)) role = known;
  if (!absl::StartsWith(introduction, "/job:") || introduction.size() > kLongestTask) return;
  role = Role::kTask;
  task = introduction;
}

std::shared_ptr<const Caller> OrThisProcess(const Caller* caller) {
  if (caller != nullptr) return caller->shared_from_this();
  // Never destroyed: threads may run until the process ends.
  static const auto& here = *[] {
    auto made = std::make_shared<Caller>();
    made->name = "this process";
    made->host = made->name;
    return std::make_unique<std::shared_ptr<const Caller>>(std::move(made)).release();
  }();
  return here;
}

}  // namespace muster
