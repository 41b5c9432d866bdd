#include "muster/graph/place/pack_reads.h"

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/rewrite/rewriter.h"

namespace muster {
namespace {

// Packing fewer is not worth it. Larger ones are sent without a copy, and the reader can start with
// the first while others are in flight.
constexpr size_t kFewest = 8;
constexpr int64_t kLargestBytes = 16 << 10;
constexpr int64_t kMostBytesTogether = 1 << 20;

struct Read {
  Node* node;
  int64_t bytes;
};

// A variable in the host's memory as it is when the step begins: nothing precedes the read, so that
// waiting for other such reads delays no node.
bool IsFirstRead(const Node& node) {
  if (node.num_inputs() != 1 || !node.control_inputs().empty()) return false;
  const Node& source = *node.input(0).node;
  if (!source.control_inputs().empty() || source.device() != node.device()) return false;
  if (!absl::StrContains(node.device(), "/device:CPU:")) return false;
  if (node.op() == "Identity") return source.op() == "Variable" || source.op() == "VariableV2";
  return node.op() == "ReadVariableOp" && source.op() == "VarHandleOp";
}

// Nothing where it is not known, or not of a kind that can be packed.
std::optional<int64_t> BytesOf(const Node& read) {
  const DType dtype = read.output_types()[0];
  const PartialShape& shape = read.output_shape(0);
  // Bools are validated byte by byte when they arrive.
  if (IsRef(dtype) || !IsPlainData(dtype) || dtype == DType::kBool || !shape.fully_known())
    return std::nullopt;
  int64_t bytes = static_cast<int64_t>(DTypeSize(dtype));
  for (const int64_t size : shape.dims()) {
    if (size > kLargestBytes) return std::nullopt;
    bytes *= size;
    if (bytes > kLargestBytes) return std::nullopt;
  }
  return bytes;
}

class Packer {
 public:
  Packer(Graph& graph, absl::FunctionRef<bool(absl::string_view)> understands, int64_t& next_name)
      : graph_(graph), rewriter_(graph), understands_(understands), next_name_(next_name) {}

  absl::Status Run() {
    FindReads();
    for (const auto& [way, reads] : reads_) {
      std::vector<Node*> together;
      int64_t bytes = 0;
      for (const Read& read : reads) {
        if (bytes + read.bytes > kMostBytesTogether) {
          RETURN_IF_ERROR(Pack(together, way.second));
          together.clear();
          bytes = 0;
        }
        together.push_back(read.node);
        bytes += read.bytes;
      }
      RETURN_IF_ERROR(Pack(together, way.second));
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  bool MayGo(const Node& read, const Node& reader) const {
    const absl::string_view from = TaskOf(read.device()), to = TaskOf(reader.device());
    return from != to && understands_(from) && understands_(to);
  }

  void FindReads() {
    for (const auto& node : graph_.nodes()) {
      if (!IsFirstRead(*node)) continue;
      const std::optional<int64_t> bytes = BytesOf(*node);
      if (!bytes) continue;
      for (const Node::Consumer& consumer : node->consumers()) {
        if (!MayGo(*node, *consumer.node)) continue;
        auto& list = reads_[{node->device(), consumer.node->device()}];
        // Readers of one node follow each other here.
        if (list.empty() || list.back().node != node.get()) list.push_back({node.get(), *bytes});
      }
    }
  }

  absl::Status Pack(const std::vector<Node*>& reads, const std::string& device) {
    if (reads.size() < kFewest) return absl::OkStatus();
    NodeSpec pack;
    pack.name = NextName("pack");
    pack.op = "_MusterPack";
    std::vector<Output> values;
    std::vector<DType> types;
    std::vector<std::string> names;
    for (Node* read : reads) {
      // Without other readers the node itself is not needed.
      const bool is_for_this_only = read->op() == "Identity" && rewriter_.num_waiting(*read) == 0 &&
                                    AllReadersAreOn(*read, device);
      values.push_back(is_for_this_only ? read->input(0) : Output(read, 0));
      types.push_back(read->output_types()[0]);
      names.push_back(read->name());
    }
    pack.inputs = {std::move(values)};
    pack.attrs["T"] = types;
    pack.attrs["reads"] = std::move(names);
    ASSIGN_OR_RETURN(Node * packed, rewriter_.Add(*reads[0], std::move(pack)));
    NodeSpec unpack;
    unpack.name = NextName("unpack");
    unpack.op = "_MusterUnpack";
    unpack.inputs = {Output(packed, 0)};
    unpack.attrs["T"] = std::move(types);
    ASSIGN_OR_RETURN(Node * unpacked, rewriter_.Add(*reads[0], std::move(unpack)));
    unpacked->set_device(device);
    for (size_t i = 0; i < reads.size(); ++i) {
      unpacked->set_output_shape(static_cast<int>(i), reads[i]->output_shape(0));
      const std::vector<Node::Consumer> consumers = reads[i]->consumers();
      for (const Node::Consumer& consumer : consumers) {
        if (consumer.node == packed || consumer.node->device() != device) continue;
        RETURN_IF_ERROR(graph_.UpdateInput(*consumer.node, consumer.input,
                                           Output(unpacked, static_cast<int>(i))));
      }
    }
    return absl::OkStatus();
  }

  static bool AllReadersAreOn(const Node& read, absl::string_view device) {
    for (const Node::Consumer& consumer : read.consumers())
      if (consumer.node->device() != device) return false;
    return true;
  }

  std::string NextName(absl::string_view what) {
    std::string name;
    do {
      name = absl::StrCat(what, "_S", next_name_++);
    } while (graph_.FindNode(name) != nullptr);
    return name;
  }

  Graph& graph_;
  GraphRewriter rewriter_;
  const absl::FunctionRef<bool(absl::string_view)> understands_;
  int64_t& next_name_;
  // By the devices of the variable and of its readers.
  std::map<std::pair<std::string, std::string>, std::vector<Read>> reads_;
};

}  // namespace

absl::Status PackReads(Graph& graph, absl::FunctionRef<bool(absl::string_view task)> understands,
                       int64_t& next_name) {
  return Packer(graph, understands, next_name).Run();
}

}  // namespace muster
