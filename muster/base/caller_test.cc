#include "muster/base/caller.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

Caller Introduced(const std::string& introduction) {
  Caller caller;
  caller.name = "10.0.0.3:4711";
  caller.Introduce(introduction);
  return caller;
}

TEST(CallerTest, IsWhatItSays) {
  for (const char* said : {"client", "operator", "/job:ps/replica:0/task:1"})
    EXPECT_EQ(Introduced(said).Introduction(), said);
  EXPECT_EQ(Introduced("client").role, Caller::Role::kClient);
  EXPECT_EQ(Introduced("operator").role, Caller::Role::kOperator);
  EXPECT_EQ(Introduced("/job:ps/replica:0/task:1").role, Caller::Role::kTask);
  for (const std::string& other :
       {std::string(), std::string("1"), std::string("task"), "/job:" + std::string(10'000, 'x')})
    EXPECT_EQ(Introduced(other).role, Caller::Role::kUnknown) << other;
}

TEST(CallerTest, HasAName) {
  EXPECT_EQ(Introduced("").ToString(), "caller 10.0.0.3:4711");
  EXPECT_EQ(Introduced("client").ToString(), "client 10.0.0.3:4711");
  EXPECT_EQ(Introduced("/job:ps/replica:0/task:1").ToString(),
            "task /job:ps/replica:0/task:1 at 10.0.0.3:4711");
  Caller known = Introduced("client");
  known.subject = "CN=ada";
  EXPECT_EQ(known.ToString(), "client 10.0.0.3:4711 (CN=ada)");
  EXPECT_EQ(OrThisProcess(nullptr)->name, "this process");
  const auto held = std::make_shared<const Caller>(known);
  EXPECT_EQ(OrThisProcess(held.get()), held);
}

}  // namespace
}  // namespace muster
