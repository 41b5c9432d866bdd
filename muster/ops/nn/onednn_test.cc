#include "muster/ops/nn/onednn.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(OneDnn, IsFoundWhereItWasBuiltAgainst) {
  const OneDnn* const dnn = LoadOneDnn();
  ASSERT_NE(dnn, nullptr);
  EXPECT_EQ(LoadOneDnn(), dnn);
  dnnl_engine_t engine = nullptr;
  EXPECT_EQ(dnn->engine_create(&engine, dnnl_cpu, 0), dnnl_success);
  EXPECT_NE(engine, nullptr);
}

}  // namespace
}  // namespace muster
