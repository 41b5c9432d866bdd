#include <cstdlib>
#include <cstring>

#include "muster/client/session.h"
#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

// Values of all kinds, the same ones every time.
Tensor Varied(const Shape& shape, uint32_t seed) {
  Tensor tensor(DType::kFloat, shape);
  uint32_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    tensor.data<float>()[i] = static_cast<float>(static_cast<int32_t>(state)) / 1e9f;
  }
  return tensor;
}

int64_t Ulps(float a, float b) {
  int32_t x;
  int32_t y;
  std::memcpy(&x, &a, sizeof(x));
  std::memcpy(&y, &b, sizeof(y));
  const auto ordered = [](int32_t bits) {
    return bits < 0 ? -static_cast<int64_t>(bits & 0x7FFFFFFF) : int64_t{bits};
  };
  return std::abs(ordered(x) - ordered(y));
}

class FuseTest : public PassTest {
 protected:
  FuseTest() : x_(Floats("x", {-1, 5})), w_(Floats("w", {5, 7})), b_(Floats("b", {7})) {}

  // Without and with rewriting.
  std::vector<Tensor> Results(const std::vector<std::pair<Output, Tensor>>& feeds, Output fetch) {
    std::vector<Tensor> results;
    for (bool optimize : {false, true}) {
      SessionOptions options;
      options.optimize_graph = optimize;
      auto session = Session::Create(graph_, options);
      EXPECT_EQ(session.status(), absl::OkStatus());
      auto values = (*session)->Run(feeds, {fetch});
      EXPECT_EQ(values.status(), absl::OkStatus());
      results.push_back((*values)[0]);
    }
    return results;
  }
  void ExpectSameBits(const std::vector<std::pair<Output, Tensor>>& feeds, Output fetch) {
    const std::vector<Tensor> results = Results(feeds, fetch);
    EXPECT_TRUE(SameTensor(results[0], results[1])) << fetch.name();
  }
  // To the last place.
  void ExpectSameResults(const std::vector<std::pair<Output, Tensor>>& feeds, Output fetch,
                         absl::string_view what) {
    const std::vector<Tensor> results = Results(feeds, fetch);
    ASSERT_EQ(results[0].shape(), results[1].shape());
    for (int64_t i = 0; i < results[0].num_elements(); ++i) {
      ASSERT_LE(Ulps(results[0].data<float>()[i], results[1].data<float>()[i]), 1)
          << what << ": " << results[0].data<float>()[i] << " and " << results[1].data<float>()[i];
    }
  }

  Output x_, w_, b_;
};

TEST_F(FuseTest, MatMulBiasAndActivation) {
  for (absl::string_view activation : {"Relu", "Relu6", "Elu", "Tanh", "Sigmoid"}) {
    const Scope own = scope_.NameScope(activation);
    const Output product = own.Op("MatMul", {x_, w_}, {}, "product");
    const Output sum = own.Op("BiasAdd", {product, b_}, {}, "sum");
    const Output y = own.Op(activation, {sum}, {}, "y");
    Rewrite(Fuse, {x_, w_, b_}, {y});
    ASSERT_NE(Find(y.node->name()), nullptr);
    EXPECT_EQ(Find(y.node->name())->op(), "_FusedMatMul");
    EXPECT_THAT(*Find(y.node->name())->Attr<std::vector<std::string>>("fused_ops"),
                ElementsAre("BiasAdd", activation));
    EXPECT_EQ(Find(product.node->name()), nullptr);
    ExpectSameResults({{x_, Varied({33, 5}, 1)}, {w_, Varied({5, 7}, 2)}, {b_, Varied({7}, 3)}}, y,
                      activation);
  }
}

TEST_F(FuseTest, AVectorAddedToAProductIsABias) {
  const Output y = scope_.Op(
      "AddV2", {b_, scope_.Op("MatMul", {x_, w_}, {{"transpose_a", false}}, "product")}, {}, "y");
  Rewrite(Fuse, {x_, w_, b_}, {y});
  EXPECT_THAT(List(), ElementsAre("y _FusedMatMul _arg_x_0_0,_arg_w_0_1,_arg_b_0_2",
                                  "_retval_y_0_0 _Retval y"));
  ExpectSameResults({{x_, Varied({3, 5}, 1)}, {w_, Varied({5, 7}, 2)}, {b_, Varied({7}, 3)}}, y,
                    "sum");
  // A vector of unknown size may be one number for all columns.
  const Output unknown = Floats("unknown", {-1});
  const Output z =
      scope_.Op("AddV2", {scope_.Op("MatMul", {x_, w_}, {}, "product2"), unknown}, {}, "z");
  Rewrite(Fuse, {x_, w_, unknown}, {z});
  EXPECT_EQ(Find("z")->op(), "AddV2");
}

TEST_F(FuseTest, ValuesThatOthersSeeStay) {
  const Output product = scope_.Op("MatMul", {x_, w_}, {}, "product");
  const Output sum = scope_.Op("BiasAdd", {product, b_}, {}, "sum");
  const Output y = scope_.Op("Relu", {sum}, {}, "y");
  Rewrite(Fuse, {x_, w_, b_}, {y, product});
  EXPECT_EQ(Find("product")->op(), "MatMul");
  EXPECT_EQ(Find("y")->op(), "Relu");
  Rewrite(Fuse, {x_, w_, b_}, {y, sum});
  EXPECT_EQ(Find("sum")->op(), "_FusedMatMul");
  EXPECT_EQ(Find("y")->op(), "Relu");
  Node* waiting = scope_.WithControlDependencies(std::vector<Node*>{product.node})
                      .Add("NoOp", {}, {}, "waiting");
  Rewrite(Fuse, {x_, w_, b_}, {y}, {waiting});
  EXPECT_EQ(Find("product")->op(), "MatMul");
}

TEST_F(FuseTest, WaitsForWhateverItsPartsWaitedFor) {
  const Output gate = scope_.Op("Exp", {x_}, {}, "gate");
  const Output other = scope_.Op("Log", {x_}, {}, "other");
  const Output product = scope_.WithControlDependencies(std::vector<Node*>{gate.node})
                             .Op("MatMul", {x_, w_}, {}, "product");
  const Output sum = scope_.Op("BiasAdd", {product, b_}, {}, "sum");
  const Output y =
      scope_.WithControlDependencies(std::vector<Node*>{other.node}).Op("Relu", {sum}, {}, "y");
  Rewrite(Fuse, {x_, w_, b_}, {y});
  EXPECT_THAT(List(), ElementsAre("gate Exp _arg_x_0_0", "other Log _arg_x_0_0",
                                  "y _FusedMatMul _arg_x_0_0,_arg_w_0_1,_arg_b_0_2,^gate,^other",
                                  "_retval_y_0_0 _Retval y"));
}

TEST_F(FuseTest, PairsOfElementwiseNodes) {
  const Output a = Floats("a", {3, 700});
  const Output c = Floats("c", {3, 700});
  const Output factor = Floats("factor", Shape());
  for (absl::string_view first : {"Add", "AddV2", "Sub", "Mul", "RealDiv"}) {
    for (absl::string_view second :
         {"Tanh", "Sigmoid", "Exp", "Log", "Neg", "Abs", "Square", "Sqrt", "Rsqrt", "Reciprocal"}) {
      const Scope own = scope_.NameScope(absl::StrCat(first, second));
      for (const Output& other : {c, factor}) {
        const Output hidden = own.Op(first, {a, other}, {}, "hidden");
        const Output y = own.Op(second, {hidden}, {}, "y");
        Rewrite(FuseElementwise, {a, other}, {y});
        ASSERT_NE(Find(y.node->name()), nullptr);
        EXPECT_EQ(Find(y.node->name())->op(), "MusterFusedElementwise");
        EXPECT_EQ(Find(hidden.node->name()), nullptr);
        const Shape shape = other == factor ? Shape() : Shape({3, 700});
        ExpectSameBits({{a, Varied({3, 700}, 1)}, {other, Varied(shape, 2)}}, y);
      }
    }
  }
}

TEST_F(FuseTest, AChainOfPairs) {
  const Output a = Floats("a", {5});
  Output y = a;
  for (int i = 0; i < 3; ++i) {
    const Scope own = scope_.NameScope(absl::StrCat("s", i));
    y = own.Op("Tanh", {own.Op("Mul", {y, a}, {}, "m")}, {}, "t");
  }
  Rewrite(FuseElementwise, {a}, {y});
  EXPECT_THAT(List(), ElementsAre("s0/t MusterFusedElementwise _arg_a_0_0,_arg_a_0_0",
                                  "s1/t MusterFusedElementwise s0/t,_arg_a_0_0",
                                  "s2/t MusterFusedElementwise s1/t,_arg_a_0_0",
                                  "_retval_s2/t_0_0 _Retval s2/t"));
  ExpectSameBits({{a, Varied({5}, 1)}}, y);
}

TEST_F(FuseTest, PairsThatStayTwo) {
  const Output a = Floats("a", {5});
  const Output unknown = Floats("unknown", PartialShape());
  const Output longer = Floats("longer", {-1});
  const auto stays = [&](const Output& other, std::vector<Output> seen, absl::string_view name) {
    const Scope own = scope_.NameScope(name);
    const Output hidden = own.Op("Mul", {a, other}, {}, "hidden");
    const Output y = own.Op("Tanh", {hidden}, {}, "y");
    if (!seen.empty()) seen = {hidden};
    seen.push_back(y);
    std::vector<Output> feeds = {a};
    if (!(other == a)) feeds.push_back(other);
    Rewrite(FuseElementwise, feeds, seen);
    EXPECT_EQ(Find(y.node->name())->op(), "Tanh") << name;
  };
  // Its shapes may not fit: the error names the node that the user knows.
  stays(unknown, {}, "unknown");
  stays(longer, {}, "longer");
  // The value is fetched.
  stays(a, {a}, "seen");
  // Half is rounded in between.
  const Output h = Placeholder(scope_, "h", DType::kHalf, {5});
  const Output y = scope_.Op("Tanh", {scope_.Op("Mul", {h, h}, {}, "hm")}, {}, "ht");
  Rewrite(FuseElementwise, {h}, {y});
  EXPECT_EQ(Find("ht")->op(), "Tanh");
}

TEST_F(FuseTest, APairWaitsForWhateverItsPartsWaitedFor) {
  const Output a = Floats("a", {5});
  const Output gate = scope_.Op("Floor", {a}, {}, "gate");
  const Output other = scope_.Op("Ceil", {a}, {}, "other");
  const Output hidden =
      scope_.WithControlDependencies(std::vector<Node*>{gate.node}).Op("Sub", {a, a}, {}, "hidden");
  const Output y =
      scope_.WithControlDependencies(std::vector<Node*>{other.node}).Op("Exp", {hidden}, {}, "y");
  Rewrite(FuseElementwise, {a}, {y});
  EXPECT_THAT(List(), ElementsAre("gate Floor _arg_a_0_0", "other Ceil _arg_a_0_0",
                                  "y MusterFusedElementwise _arg_a_0_0,_arg_a_0_0,^gate,^other",
                                  "_retval_y_0_0 _Retval y"));
}

TEST_F(FuseTest, Convolutions) {
  const Output image = Floats("image", {-1, 9, 8, 3});
  const Output filter = Floats("filter", {3, 3, 3, 4});
  const Output bias = Floats("bias", {4});
  for (absl::string_view activation : {"", "Relu", "Relu6"}) {
    const Scope own = scope_.NameScope(activation.empty() ? "plain" : activation);
    const Output conv =
        own.Op("Conv2D", {image, filter},
               {{"strides", std::vector<int64_t>{1, 2, 1, 1}}, {"padding", "SAME"}}, "conv");
    Output y = own.Op("BiasAdd", {conv, bias}, {}, "sum");
    if (!activation.empty()) y = own.Op(activation, {y}, {}, "y");
    Rewrite(Fuse, {image, filter, bias}, {y});
    EXPECT_EQ(Find(y.node->name())->op(), "_FusedConv2D");
    ExpectSameResults({{image, Varied({2, 9, 8, 3}, 1)},
                       {filter, Varied({3, 3, 3, 4}, 2)},
                       {bias, Varied({4}, 3)}},
                      y, activation);
  }
}

TEST_F(FuseTest, ShortTypesStayApart) {
  const auto half = [&](absl::string_view name, PartialShape shape) {
    return Placeholder(scope_, name, DType::kHalf, std::move(shape));
  };
  const Output x = half("hx", {2, 3});
  const Output w = half("hw", {3, 4});
  const Output b = half("hb", {4});
  Rewrite(Fuse, {x, w, b},
          {scope_.Op("BiasAdd", {scope_.Op("MatMul", {x, w}, {}, "product"), b}, {}, "y")});
  EXPECT_EQ(Find("y")->op(), "BiasAdd");
}

}  // namespace
}  // namespace muster
