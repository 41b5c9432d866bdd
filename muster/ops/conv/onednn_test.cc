#include "muster/ops/conv/onednn.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(OneDnn, IsFoundWhereItWasBuiltAgainst) {
  const OneDnn* const dnn = LoadOneDnn();
  ASSERT_NE(dnn, nullptr);
  EXPECT_EQ(LoadOneDnn(), dnn);
}

}  // namespace
}  // namespace muster
