#include "tensorflow/core/framework/tensor.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/ops/control/tensor_list.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

using testing::HasSubstr;

TEST(TensorListProto, ListsComeBack) {
  const Tensor inner = HandleOf(std::make_shared<const TensorList>(
      DType::kString, PartialShape(), 3, std::vector<Tensor>{Tensor::Scalar<std::string>("a")}));
  for (const TensorEncoding encoding : {TensorEncoding::kContent, TensorEncoding::kTyped}) {
    tensorflow::TensorProto proto;
    const auto list = std::make_shared<const TensorList>(
        DType::kVariant, PartialShape({-1, 2}), -1, std::vector<Tensor>{inner, Tensor(), inner});
    ASSERT_TRUE(TensorToProto(HandleOf(list), encoding, proto).ok());
    const auto tensor = TensorFromProto(proto);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    const auto again = ListIn(*tensor);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ((*again)->size(), 3);
    EXPECT_EQ((*again)->dtype(), DType::kVariant);
    EXPECT_EQ((*again)->shape(), PartialShape({-1, 2}));
    EXPECT_EQ((*again)->max_size(), -1);
    EXPECT_FALSE((*again)->item(1).valid());
    const auto nested = ListIn((*again)->item(2));
    ASSERT_TRUE(nested.ok()) << nested.status();
    EXPECT_EQ((*nested)->max_size(), 3);
    EXPECT_EQ((*nested)->item(0).scalar<std::string>(), "a");
  }
}

TEST(TensorListProto, BadMetadataIsRefused) {
  const auto read = [](absl::string_view metadata, int items) {
    tensorflow::TensorProto proto;
    proto.set_dtype(tensorflow::DT_VARIANT);
    auto& value = *proto.add_variant_val();
    value.set_type_name("tensorflow::TensorList");
    value.set_metadata(std::string(metadata));
    for (int i = 0; i < items; ++i) {
      EXPECT_TRUE(
          TensorToProto(Tensor::Scalar<float>(1), TensorEncoding::kContent, *value.add_tensors())
              .ok());
    }
    return TensorFromProto(proto).status();
  };
  EXPECT_TRUE(read(absl::string_view("\0\1\5", 3), 1).ok());
  EXPECT_THAT(read("", 0).message(), HasSubstr("cut off"));
  EXPECT_THAT(read("\x7f", 0).message(), HasSubstr("cut off"));
  EXPECT_THAT(read("\2\1\1\1\1", 0).message(), HasSubstr("wrong index"));
  EXPECT_THAT(read("\1\3\1\1", 0).message(), HasSubstr("wrong index"));
  EXPECT_THAT(read(absl::string_view("\0\x63\1", 3), 0).message(), HasSubstr("element type"));
  EXPECT_THAT(read(absl::string_view("\0\3\1", 3), 1).message(), HasSubstr("another type"));
  EXPECT_THAT(read(absl::string_view("\0\1\1\xff", 4), 1).message(), HasSubstr("shape"));
}

}  // namespace
}  // namespace muster
