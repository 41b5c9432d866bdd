#include "muster/runtime/resource_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/params/variable.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

class Other : public Resource {
 public:
  std::string Describe() const override { return "Other"; }
};

RefPtr<Resource> NewVariable(const char* name) {
  return MakeRef<Variable>(name, DType::kFloat, PartialShape());
}

TEST(ResourceManagerTest, FindsByContainerAndName) {
  ResourceManager manager("localhost");
  ASSERT_TRUE(manager.Create("", "v", NewVariable("v")).ok());
  EXPECT_TRUE(manager.LookupAs<Variable>("localhost", "v").ok());
  EXPECT_EQ(manager.Create("localhost", "v", NewVariable("v")).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(manager.Lookup("a", "v").status().message(),
            "Container a does not exist. (Could not find resource: a/v)");
  EXPECT_EQ(manager.Lookup("", "w").status().code(), absl::StatusCode::kNotFound);
}

TEST(ResourceManagerTest, AnotherTypeIsAnError) {
  ResourceManager manager;
  ASSERT_TRUE(manager.Create("", "o", MakeRef<Other>()).ok());
  EXPECT_EQ(manager.LookupAs<Variable>("", "o").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ResourceManagerTest, ClearingDropsOneContainer) {
  ResourceManager manager;
  ASSERT_TRUE(manager.Create("a", "v", NewVariable("v")).ok());
  ASSERT_TRUE(manager.Create("b", "v", NewVariable("v")).ok());
  const RefPtr<Resource> held = manager.Lookup("a", "v").value();
  manager.ClearContainer("a");
  EXPECT_FALSE(manager.Lookup("a", "v").ok());
  EXPECT_TRUE(manager.Lookup("b", "v").ok());
  EXPECT_EQ(held->Describe(), "Var");  // a holder keeps it alive
}

TEST(ResourceManagerTest, LookupOrCreateMakesOne) {
  ResourceManager manager;
  int made = 0;
  const auto make = [&]() -> absl::StatusOr<RefPtr<Resource>> {
    ++made;
    return NewVariable("v");
  };
  const RefPtr<Resource> first = manager.LookupOrCreate("", "v", make).value();
  EXPECT_EQ(manager.LookupOrCreate("", "v", make)->get(), first.get());
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(manager.Delete("", "v").ok());
  EXPECT_FALSE(manager.Delete("", "v").ok());
}

std::vector<std::string> NamesOf(const ResourceManager& manager) {
  std::vector<std::string> names;
  for (const ResourceManager::NamedState& state : manager.States()) {
    EXPECT_EQ(state.state->state_kind(), "variable");
    names.push_back(state.container + "/" + state.name);
  }
  return names;
}

RefPtr<State> NewState(const char* name) {
  return MakeRef<Variable>(name, DType::kFloat, PartialShape());
}

TEST(ResourceManagerTest, ListsStates) {
  ResourceManager manager;
  ASSERT_TRUE(manager.Create("", "w", NewVariable("w")).ok());
  ASSERT_TRUE(manager.Create("a", "v", NewVariable("v")).ok());
  ASSERT_TRUE(manager.Create("", "o", MakeRef<Other>()).ok());
  EXPECT_THAT(NamesOf(manager), ElementsAre("a/v", "localhost/w"));
  manager.ClearContainer("a");
  EXPECT_THAT(NamesOf(manager), ElementsAre("localhost/w"));
}

TEST(ResourceManagerTest, ListsTheStatesOfKernelsWhileTheyLive) {
  ListedState outlives;
  {
    ResourceManager manager;
    ListedState first = manager.List("", "random", NewState("random"));
    {
      const ListedState second = manager.List("", "random", NewState("random"));
      EXPECT_THAT(NamesOf(manager), ElementsAre("localhost/random", "localhost/random#2"));
    }
    EXPECT_THAT(NamesOf(manager), ElementsAre("localhost/random"));
    first = ListedState();
    EXPECT_THAT(NamesOf(manager), ElementsAre());
    outlives = manager.List("c", "random", NewState("random"));
    EXPECT_THAT(NamesOf(manager), ElementsAre("c/random"));
  }
}

}  // namespace
}  // namespace muster
