#include "muster/ops/input/reader.h"

#include <exception>
#include <memory>
#include <new>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Its records are larger than the memory that there is, and so is the work unit "large".
class TooLarge : public RecordSource {
 public:
  absl::Status Start(const std::string& work) override {
    if (work == "large") std::rethrow_exception(failure_);
    return absl::OkStatus();
  }
  absl::StatusOr<Next> Read() override { std::rethrow_exception(failure_); }

 private:
  const std::exception_ptr failure_ = std::make_exception_ptr(std::bad_alloc());
};

TEST(ReaderTest, ARecordThatFindsNoMemoryIsAnError) {
  Reader reader("reader", std::make_unique<TooLarge>());
  EXPECT_TRUE(absl::IsResourceExhausted(reader.StartWork("large")));
  EXPECT_FALSE(reader.working());
  ASSERT_TRUE(reader.StartWork("file").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(reader.ReadRecord().status()));
  EXPECT_TRUE(reader.working());
  EXPECT_EQ(reader.records_produced(), 0);
}

}  // namespace
}  // namespace muster
