#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/match.h"

#include "muster/base/status.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

// Larger constants are not compared byte by byte.
constexpr size_t kMaxConstBytes = 64 << 10;

// Attributes that say where a node goes or what is known about it, not what it computes.
bool IsRemark(absl::string_view attr) {
  return attr == "_class" || attr == "_output_shapes";
}

// Nodes with equal signatures compute equal values.
struct Signature {
  Node* node;
  std::vector<Output> inputs;
  std::vector<Node*> control_inputs;
  size_t hash = 0;
};

size_t HashOf(const AttrValue& value) {
  if (const DType* type = value.get<DType>()) return absl::HashOf(*type);
  if (const int64_t* number = value.get<int64_t>()) return absl::HashOf(*number);
  if (const bool* flag = value.get<bool>()) return absl::HashOf(*flag);
  if (const std::string* text = value.get<std::string>()) return absl::HashOf(*text);
  if (const Tensor* tensor = value.get<Tensor>()) {
    if (tensor->dtype() == DType::kString) return absl::HashOf(tensor->num_elements());
    return absl::HashOf(
        tensor->dtype(), tensor->num_elements(),
        absl::string_view(tensor->raw(), std::min<size_t>(tensor->size_bytes(), 256)));
  }
  return value.value().index();
}

bool SameAttrs(const AttrMap& a, const AttrMap& b) {
  const auto skip_remarks = [](AttrMap::const_iterator at, const AttrMap& map) {
    while (at != map.end() && IsRemark(at->first)) ++at;
    return at;
  };
  auto left = skip_remarks(a.begin(), a);
  auto right = skip_remarks(b.begin(), b);
  while (left != a.end() && right != b.end()) {
    if (left->first != right->first || !(left->second == right->second)) return false;
    left = skip_remarks(std::next(left), a);
    right = skip_remarks(std::next(right), b);
  }
  return left == a.end() && right == b.end();
}

bool SameSignature(const Signature& a, const Signature& b) {
  return a.hash == b.hash && &a.node->registration() == &b.node->registration() &&
         a.inputs == b.inputs && a.control_inputs == b.control_inputs &&
         a.node->device() == b.node->device() && SameAttrs(a.node->attrs(), b.node->attrs());
}

bool IsBefore(const Output& a, const Output& b) {
  return a.node->id() != b.node->id() ? a.node->id() < b.node->id() : a.index < b.index;
}

bool MayMerge(const Node& node) {
  if (node.def().is_stateful || IsControlFlow(node) || node.num_outputs() == 0 ||
      node.consumers().empty())
    return false;
  // Handles of these are strings or flow through plain floats, and reading may take a value out.
  if (absl::StartsWith(node.op(), "TensorArray") || absl::StartsWith(node.op(), "Stack") ||
      absl::StartsWith(node.op(), "_ParallelConcat") ||
      absl::StartsWith(node.op(), "Placeholder")) {
    return false;
  }
  for (const Output& input : node.inputs()) {
    if (IsMutable(input.dtype())) return false;
  }
  for (DType type : node.output_types()) {
    if (IsMutable(type)) return false;
  }
  if (IsWrittenTo(node)) return false;
  const Tensor* value = ConstValue(node);
  return value == nullptr || value->size_bytes() <= kMaxConstBytes;
}

Signature SignatureOf(const GraphRewriter& rewriter, Node& node) {
  Signature signature;
  signature.node = &node;
  signature.inputs.reserve(node.num_inputs());
  for (int i = 0; i < node.num_inputs(); ++i) signature.inputs.push_back(rewriter.Input(node, i));
  if (node.def().is_commutative && node.num_inputs() == 2 &&
      IsBefore(signature.inputs[1], signature.inputs[0])) {
    std::swap(signature.inputs[0], signature.inputs[1]);
  }
  signature.control_inputs = rewriter.ControlInputs(node);
  std::sort(signature.control_inputs.begin(), signature.control_inputs.end(),
            [](const Node* a, const Node* b) { return a->id() < b->id(); });
  size_t hash = absl::HashOf(&node.registration(), signature.inputs, signature.control_inputs);
  for (const auto& [name, value] : node.attrs()) {
    if (!IsRemark(name)) hash = absl::HashOf(hash, HashOf(value));
  }
  signature.hash = hash;
  return signature;
}

}  // namespace

absl::Status MergeCommonNodes(GraphRewriter& rewriter) {
  absl::flat_hash_map<size_t, std::vector<Signature>> seen;
  for (Node* node : rewriter.Order()) {
    if (!MayMerge(*node)) continue;
    Signature signature = SignatureOf(rewriter, *node);
    std::vector<Signature>& same_hash = seen[signature.hash];
    const auto found =
        std::find_if(same_hash.begin(), same_hash.end(),
                     [&](const Signature& other) { return SameSignature(other, signature); });
    if (found == same_hash.end()) {
      same_hash.push_back(std::move(signature));
      continue;
    }
    Node* kept = found->node;
    for (int i = 0; i < node->num_outputs(); ++i)
      rewriter.Replace(Output(node, i), Output(kept, i));
    if (rewriter.num_waiting(*node) > 0) rewriter.WaitInstead(*node, {kept});
  }
  rewriter.Commit();
  return absl::OkStatus();
}

}  // namespace muster
