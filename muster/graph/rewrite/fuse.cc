#include "absl/container/flat_hash_set.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

bool HasFormat(const Node& node, absl::string_view format) {
  return node.Attr<std::string>("data_format").value_or("") == format;
}

// A product, the addition of a bias, perhaps an activation, each the only reader of the one before.
struct Chain {
  Node* product = nullptr;
  Node* addition = nullptr;
  Output bias;
  Node* activation = nullptr;
  Node& last() const { return activation != nullptr ? *activation : *addition; }
};

class Fuser {
 public:
  explicit Fuser(GraphRewriter& rewriter) : rewriter_(rewriter) {}

  absl::Status Run() {
    for (Node* node : rewriter_.Order()) {
      Chain chain;
      if (!FindProduct(*node, chain)) continue;
      FindActivation(chain);
      RETURN_IF_ERROR(Replace(chain));
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  static bool CanFuse(const Node& product) {
    const DType type = product.output_types()[0];
    if (RunsOnGpu(product)) {
      return product.op() == "MatMul" &&
             (type == DType::kFloat || type == DType::kHalf || type == DType::kBfloat16);
    }
    if (!RunsOnCpu(product)) return false;
    // A fused node keeps more digits of shorter types between its parts than separate nodes would.
    if (product.op() == "MatMul") return type == DType::kFloat;
    return product.op() == "Conv2D" && HasFormat(product, "NHWC") &&
           (type == DType::kFloat || type == DType::kDouble);
  }

  bool FindProduct(Node& node, Chain& chain) const {
    const bool is_bias_add = node.op() == "BiasAdd" && HasFormat(node, "NHWC");
    if (!is_bias_add && node.op() != "Add" && node.op() != "AddV2") return false;
    for (int i = 0; i < (is_bias_add ? 1 : 2); ++i) {
      Node& product = *node.input(i).node;
      if (!CanFuse(product) || !rewriter_.IsHidden(product) || product.device() != node.device())
        continue;
      const Output bias = node.input(1 - i);
      if (!is_bias_add && !AddsToColumns(product, bias)) continue;
      if (ReadsReference(product) || IsRef(bias.dtype())) continue;
      chain = {&product, &node, bias, nullptr};
      return true;
    }
    return false;
  }

  // A sum does what BiasAdd does when a vector of known size meets the last dimension.
  static bool AddsToColumns(const Node& product, const Output& bias) {
    const PartialShape& shape = product.output_shape(0);
    const PartialShape& vector = bias.shape();
    return shape.known_rank() && vector.rank() == 1 && vector[0] > 0 &&
           shape[shape.rank() - 1] == vector[0];
  }

  static bool ReadsReference(const Node& node) {
    for (const Output& input : node.inputs()) {
      if (IsRef(input.dtype())) return true;
    }
    return false;
  }

  void FindActivation(Chain& chain) const {
    static const auto* after_matmul =
        new absl::flat_hash_set<absl::string_view>{"Relu", "Relu6", "Elu", "Tanh", "Sigmoid"};
    static const auto* after_conv = new absl::flat_hash_set<absl::string_view>{"Relu", "Relu6"};
    if (!rewriter_.IsHidden(*chain.addition)) return;
    Node* reader = chain.addition->consumers()[0].node;
    if (RunsOnGpu(*reader) && reader->op() != "Relu") return;
    const auto* known = chain.product->op() == "MatMul" ? after_matmul : after_conv;
    if (known->contains(reader->op()) && reader->device() == chain.addition->device())
      chain.activation = reader;
  }

  absl::Status Replace(const Chain& chain) {
    const Node& product = *chain.product;
    std::vector<std::string> parts = {"BiasAdd"};
    if (chain.activation != nullptr) parts.push_back(chain.activation->op());
    NodeSpec spec;
    spec.inputs = {product.input(0), product.input(1), std::vector<Output>{chain.bias}};
    const auto copy = [&](std::initializer_list<absl::string_view> names) {
      for (absl::string_view name : names) {
        if (const AttrValue* value = product.FindAttr(name))
          spec.attrs.insert_or_assign(std::string(name), *value);
      }
    };
    if (product.op() == "MatMul") {
      spec.op = "_FusedMatMul";
      copy({"transpose_a", "transpose_b"});
    } else {
      spec.op = "_FusedConv2D";
      spec.inputs.push_back(std::vector<Output>{});
      spec.attrs["num_args"] = 1;
      copy({"strides", "padding", "explicit_paddings", "data_format", "dilations",
            "use_cudnn_on_gpu"});
    }
    spec.attrs["fused_ops"] = std::move(parts);
    spec.control_inputs =
        rewriter_.ControlInputsOfAll({chain.product, chain.addition, chain.activation});
    Node& last = chain.last();
    const PartialShape shape = last.output_shape(0);
    ASSIGN_OR_RETURN(Node * fused, rewriter_.Substitute(last, std::move(spec)));
    fused->set_output_shape(0, shape);
    return absl::OkStatus();
  }

  GraphRewriter& rewriter_;
};

}  // namespace

bool RunsOnCpu(const Node& node) {
  const absl::StatusOr<DeviceName> name = DeviceName::Parse(node.device());
  return name.ok() && name->type.value_or("CPU") == "CPU";
}

bool RunsOnGpu(const Node& node) {
  const absl::StatusOr<DeviceName> name = DeviceName::Parse(node.device());
  return name.ok() && name->type.value_or("") == "GPU";
}

absl::Status Fuse(GraphRewriter& rewriter) {
  return Fuser(rewriter).Run();
}

}  // namespace muster
