#include "muster/runtime/resource_manager.h"

#include <gtest/gtest.h>

#include "muster/params/variable.h"

namespace muster {
namespace {

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
  EXPECT_EQ(held->Describe(), "Var");  // whoever holds it keeps it
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

}  // namespace
}  // namespace muster
