#include "muster/tensor/tensor_proto.h"

#include <cstring>
#include <random>

#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.pb.h"

#include "muster/tensor/message_proto.h"
#include "muster/tensor/untouched_tensor_test.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

tensorflow::TensorProto Proto(DType dtype, std::vector<int64_t> dims) {
  tensorflow::TensorProto proto;
  proto.set_dtype(static_cast<tensorflow::DataType>(dtype));
  for (int64_t size : dims) proto.mutable_tensor_shape()->add_dim()->set_size(size);
  return proto;
}

// Elements 1, 2, 3... as bytes; strings and handles get names.
Tensor Sample(DType dtype, Shape shape) {
  Tensor tensor = Tensor::Zeros(dtype, std::move(shape));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (dtype == DType::kString) {
      tensor.data<std::string>()[i] = std::string(static_cast<size_t>(i) * 100, 'x');
    } else if (dtype == DType::kResource) {
      ResourceHandle& handle = tensor.data<ResourceHandle>()[i];
      handle.device = "/job:worker/replica:0/task:0/device:CPU:0";
      handle.name = absl::StrCat("v", i);
      handle.hash_code = ~uint64_t{0};
      handle.dtypes_and_shapes = {{DType::kFloat, PartialShape({2, -1})},
                                  {DType::kInt64, PartialShape()}};
    } else if (IsPlainData(dtype)) {
      tensor.raw()[static_cast<size_t>(i) * DTypeSize(dtype)] =
          static_cast<char>(dtype == DType::kBool ? i % 2 : i + 1);
    }
  }
  return tensor;
}

TEST(TensorProto, EveryTypeComesBackInBothEncodings) {
  for (int number = 1; number < kDTypeCount; ++number) {
    const DType dtype = static_cast<DType>(number);
    for (const Shape& shape : {Shape(), Shape({0, 3}), Shape({2, 3})}) {
      for (TensorEncoding encoding : {TensorEncoding::kContent, TensorEncoding::kTyped}) {
        SCOPED_TRACE(
            absl::StrCat(DTypeName(dtype), " ", shape.ToString(), " ", static_cast<int>(encoding)));
        const Tensor tensor = Sample(dtype, shape);
        tensorflow::TensorProto proto;
        ASSERT_TRUE(TensorToProto(tensor, encoding, proto).ok());
        tensorflow::TensorProto parsed;
        ASSERT_TRUE(parsed.ParseFromString(proto.SerializeAsString()));
        const auto again = TensorFromProto(parsed);
        ASSERT_TRUE(again.ok()) << again.status();
        if (IsPlainData(dtype) || dtype == DType::kString) {
          EXPECT_TRUE(SameTensor(tensor, *again));
        } else {
          EXPECT_EQ(again->shape(), shape);
        }
        if (dtype == DType::kResource && shape.num_elements() > 0) {
          const ResourceHandle& handle = again->scalar<ResourceHandle>();
          EXPECT_EQ(handle.name, "v0");
          EXPECT_EQ(handle.hash_code, ~uint64_t{0});
          EXPECT_EQ(handle.dtypes_and_shapes.size(), 2u);
        }
      }
    }
  }
}

TEST(TensorProto, TypedFormIsThatOfPython) {
  tensorflow::TensorProto proto;
  ASSERT_TRUE(TensorToProto(Tensor::Scalar(1.5f), TensorEncoding::kTyped, proto).ok());
  EXPECT_EQ(proto.ShortDebugString(), "dtype: DT_FLOAT tensor_shape { } float_val: 1.5");
  ASSERT_TRUE(TensorToProto(Tensor::Vector<int32_t>({1, 2}), TensorEncoding::kTyped, proto).ok());
  EXPECT_EQ(proto.tensor_content().size(), 8u);
  EXPECT_EQ(proto.int_val_size(), 0);
  ASSERT_TRUE(TensorToProto(Sample(DType::kBool, {3}), TensorEncoding::kTyped, proto).ok());
  EXPECT_THAT(proto.bool_val(), ElementsAre(false, true, false));
  ASSERT_TRUE(
      TensorToProto(Tensor::Vector<std::string>({"a", ""}), TensorEncoding::kTyped, proto).ok());
  EXPECT_THAT(proto.string_val(), ElementsAre("a", ""));
}

TEST(TensorProto, ManyBoolsAreContent) {
  auto tensor = Tensor::Make(DType::kBool, Shape({(1 << 20) + 1}));
  ASSERT_TRUE(tensor.ok());
  std::memset(tensor->raw(), 1, tensor->size_bytes());
  tensor->data<bool>()[7] = false;
  tensorflow::TensorProto proto;
  ASSERT_TRUE(TensorToProto(*tensor, TensorEncoding::kTyped, proto).ok());
  EXPECT_EQ(proto.bool_val_size(), 0);
  EXPECT_EQ(proto.tensor_content().size(), tensor->size_bytes());
}

TEST(TensorProto, OneValueOverAndOverIsWrittenOnce) {
  tensorflow::TensorProto proto;
  const auto written = [&proto](const Tensor& tensor) {
    EXPECT_TRUE(TensorToProto(tensor, TensorEncoding::kTyped, proto).ok());
    const auto read = TensorFromProto(proto);
    EXPECT_TRUE(read.ok() && read->shape() == tensor.shape());
    EXPECT_TRUE(tensor.dtype() == DType::kString ||
                std::memcmp(read->raw(), tensor.raw(), tensor.size_bytes()) == 0);
    return proto.tensor_content().empty();
  };
  EXPECT_TRUE(written(Tensor::Vector<float>({0.1f, 0.1f, 0.1f})));
  EXPECT_EQ(proto.float_val_size(), 1);
  EXPECT_TRUE(written(Tensor::Vector<int64_t>(std::vector<int64_t>(9, -4))));
  EXPECT_EQ(proto.int64_val_size(), 1);
  EXPECT_TRUE(written(Tensor::Vector<std::string>({"ab", "ab"})));
  EXPECT_EQ(proto.string_val_size(), 1);
  EXPECT_TRUE(written(Tensor::Vector<Complex64>({{1, 2}, {1, 2}})));
  EXPECT_EQ(proto.scomplex_val_size(), 2);
  EXPECT_FALSE(written(Tensor::Vector<float>({0.0f, -0.0f})));
  EXPECT_FALSE(written(Tensor::Vector<int32_t>({2, 2})));  // a list, most likely
  // What travels by RPC is content.
  EXPECT_TRUE(TensorToProto(Tensor::Vector<float>({1, 1}), TensorEncoding::kContent, proto).ok());
  EXPECT_EQ(proto.tensor_content().size(), 8u);
}

TEST(TensorProto, RepeatedTextCountsAgainstTheBound) {
  auto proto = Proto(DType::kString, {1 << 22});
  proto.add_string_val(std::string(1000, 'x'));
  EXPECT_EQ(TensorFromProto(proto).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(TensorProto, LastValueRepeats) {
  auto proto = Proto(DType::kInt16, {4});
  proto.add_int_val(-3);
  proto.add_int_val(70000);  // the low bits count
  const auto tensor = TensorFromProto(proto);
  ASSERT_TRUE(tensor.ok());
  EXPECT_THAT(tensor->values<int16_t>(), ElementsAre(-3, 4464, 4464, 4464));

  auto none = Proto(DType::kString, {2});
  EXPECT_THAT(TensorFromProto(none)->values<std::string>(), ElementsAre("", ""));
  auto many = Proto(DType::kDouble, {1});
  many.add_double_val(1);
  many.add_double_val(2);
  EXPECT_THAT(TensorFromProto(many)->values<double>(), ElementsAre(1));
  auto complex = Proto(DType::kComplex64, {2});
  complex.add_scomplex_val(1);
  complex.add_scomplex_val(2);
  complex.add_scomplex_val(3);  // without an imaginary part
  EXPECT_THAT(TensorFromProto(complex)->values<Complex64>(),
              ElementsAre(Complex64(1, 2), Complex64(1, 2)));
}

TEST(TensorProto, BytesOfBoolsAreMadeBools) {
  auto proto = Proto(DType::kBool, {3});
  proto.set_tensor_content(std::string("\0\1\7", 3));
  EXPECT_THAT(TensorFromProto(proto)->values<bool>(), ElementsAre(false, true, true));
}

TEST(TensorProto, BadMessagesAreRefused) {
  const auto expect = [](const tensorflow::TensorProto& proto, absl::StatusCode code,
                         const char* text) {
    const auto tensor = TensorFromProto(proto);
    ASSERT_FALSE(tensor.ok()) << proto.ShortDebugString();
    EXPECT_EQ(tensor.status().code(), code) << tensor.status();
    EXPECT_THAT(std::string(tensor.status().message()), HasSubstr(text));
  };
  using enum absl::StatusCode;
  expect(Proto(DType::kInvalid, {}), kInvalidArgument, "data type");
  expect(Proto(static_cast<DType>(99), {}), kInvalidArgument, "number 99");
  expect(Proto(static_cast<DType>(-5), {}), kInvalidArgument, "number -5");
  expect(Proto(static_cast<DType>(101), {}), kInvalidArgument, "float_ref");
  expect(Proto(DType::kFloat, {-1}), kInvalidArgument, "Dimension -1");
  expect(Proto(DType::kFloat, {int64_t{1} << 62, 4}), kInvalidArgument, "2**63");
  expect(Proto(DType::kFloat, std::vector<int64_t>(255, 1)), kInvalidArgument, "255 dimensions");
  expect(Proto(DType::kFloat, {int64_t{1} << 40}), kResourceExhausted, "repeats values");
  expect(Proto(DType::kDouble, {int64_t{1} << 62}), kResourceExhausted, "repeats values");
  expect(Proto(DType::kString, {int64_t{1} << 40}), kResourceExhausted, "repeats values");
  auto unknown = Proto(DType::kFloat, {});
  unknown.mutable_tensor_shape()->set_unknown_rank(true);
  expect(unknown, kInvalidArgument, "not fully defined");
  auto short_content = Proto(DType::kFloat, {2});
  short_content.set_tensor_content("abcdefg");
  expect(short_content, kInvalidArgument, "7 bytes");
  auto strings = Proto(DType::kString, {2});
  for (const char* content : {"\x01",
                              "\x01\x05"
                              "abc",
                              "\x01\x01"
                              "abc",
                              "\xff\xff\xff\xff\xff\xff"}) {
    strings.set_tensor_content(content);
    expect(strings, kInvalidArgument, "tensor_content");
  }
  auto handles = Proto(DType::kResource, {});
  handles.set_tensor_content("\x02\xff\xff");
  expect(handles, kInvalidArgument, "ResourceHandleProto");
  auto variant = Proto(DType::kVariant, {});
  variant.add_variant_val()->set_type_name("nobody::Knows");
  expect(variant, kUnimplemented, "nobody::Knows");
}

TEST(ShapeProto, PartialShapesComeBack) {
  for (const PartialShape& shape :
       {PartialShape(), PartialShape::Scalar(), PartialShape({-1, 3, 0})}) {
    tensorflow::TensorShapeProto proto;
    PartialShapeToProto(shape, proto);
    const auto again = PartialShapeFromProto(proto);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, shape);
  }
  tensorflow::TensorShapeProto bad;
  bad.add_dim()->set_size(-5);
  EXPECT_THAT(std::string(PartialShapeFromProto(bad).status().message()),
              HasSubstr("values below -1"));
  bad.set_unknown_rank(true);
  EXPECT_FALSE(PartialShapeFromProto(bad).ok());
}

TEST(TensorProto, DamagedBytesNeverCrash) {
  const uint32_t seed = 20240611;
  std::mt19937 random(seed);
  google::protobuf::LogSilencer silencer;  // it reports every bad string
  for (int i = 0; i < 4000; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", i));
    const DType dtype = static_cast<DType>(1 + random() % (kDTypeCount - 1));
    tensorflow::TensorProto proto;
    const auto encoding = random() % 2 ? TensorEncoding::kContent : TensorEncoding::kTyped;
    ASSERT_TRUE(TensorToProto(Sample(dtype, {2, 3}), encoding, proto).ok());
    std::string bytes = proto.SerializeAsString();
    for (uint32_t k = 0; k <= random() % 3; ++k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    tensorflow::TensorProto damaged;
    if (!damaged.ParseFromString(bytes)) continue;
    const auto tensor = TensorFromProto(damaged);
    if (!tensor.ok() || tensor->num_elements() > 1000) continue;
    ASSERT_TRUE(TensorToProto(*tensor, TensorEncoding::kContent, proto).ok());
    EXPECT_TRUE(TensorFromProto(proto).ok());
  }
}

TEST(TensorProto, LargerThanAMessageIsRefused) {
  tensorflow::TensorProto proto;
  const Tensor large = UntouchedTensor(DType::kFloat, Shape({int64_t{1} << 29, 2}));
  const absl::Status status = TensorToProto(large, TensorEncoding::kContent, proto);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("4294967296 bytes"));
  EXPECT_THAT(status.message(), testing::HasSubstr("[536870912,2]"));
}

TEST(TensorProto, BytesOfNoMessageAreNoMessage) {
  // As an int the length would be that of an empty message.
  tensorflow::TensorProto proto;
  const Tensor large = UntouchedTensor(DType::kUint8, Shape({int64_t{1} << 32}));
  EXPECT_FALSE(MessageFromBytes({large.raw(), large.size_bytes()}, proto));
  EXPECT_TRUE(MessageFromBytes("", proto));
  proto.set_dtype(tensorflow::DT_FLOAT);
  EXPECT_EQ(*MessageToBytes(proto), proto.SerializeAsString());
}

}  // namespace
}  // namespace muster
