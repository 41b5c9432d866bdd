// What users and peers write as text: clusters, JSON, TF_CONFIG, names of devices and tasks,
// rendezvous keys, host and port, definitions of arguments and attributes.
#include "fuzz_input.h"

#include "muster/base/json.h"
#include "muster/device/device_name.h"
#include "muster/graph/op_def.h"
#include "muster/graph/proto/graph_proto.h"
#include "muster/transport/api/cluster_json.h"
#include "muster/transport/api/local_address.h"
#include "muster/worker/transfer_key.h"

namespace muster {
namespace {

void TryCluster(absl::string_view text) {
  const absl::StatusOr<ClusterSpec> cluster = ClusterSpec::Parse(text);
  if (!cluster.ok() || !cluster->Validate().ok()) return;
  const absl::StatusOr<ClusterSpec> again = ClusterSpec::Parse(cluster->ToString());
  FuzzCheck(again.ok() && *again == *cluster, "the same cluster again");
}

void TryDevice(absl::string_view text) {
  const absl::StatusOr<DeviceName> name = DeviceName::Parse(text);
  if (!name.ok()) return;
  const absl::StatusOr<DeviceName> again = DeviceName::Parse(name->ToString());
  FuzzCheck(again.ok() && *again == *name, "the same device again");
  FuzzCheck(name->Matches(*name) && name->Override(*name) == *name, "a device is itself");
}

void TryKey(absl::string_view text) {
  const absl::StatusOr<TransferKey> key = TransferKey::Parse(text);
  if (!key.ok()) return;
  FuzzCheck(TransferKey::Parse(key->InFrame(7, text)).ok(), "the key in another frame");
}

void TryNames(absl::string_view text) {
  (void)TaskName::Parse(text).ok();
  (void)TaskOf(text);
  (void)ParseTensorName(text);
  (void)ParseHostPort(text).ok();
}

void TryDefinitions(absl::string_view text) {
  const absl::StatusOr<AttrDef> attr = ParseAttrDef(text);
  std::vector<AttrDef> attrs(1);
  attrs[0].name = "T";
  attrs[0].type = "type";
  if (attr.ok()) attrs.push_back(*attr);
  (void)ParseArgDef(text, attrs).ok();
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::FuzzInput input(data, size);
  const uint8_t kind = input.Byte();
  // Memory of its own, so that reading past the end is seen.
  const std::string copy(input.rest());
  const std::vector<char> exact(copy.begin(), copy.end());
  const absl::string_view text(exact.data(), exact.size());
  switch (kind % 7) {
    case 0:
      muster::TryCluster(text);
      break;
    case 1:
      (void)muster::Json::Parse(text).ok();
      break;
    case 2:
      (void)muster::ParseTfConfig(text).ok();
      break;
    case 3:
      muster::TryDevice(text);
      break;
    case 4:
      muster::TryKey(text);
      break;
    case 5:
      muster::TryNames(text);
      break;
    case 6:
      muster::TryDefinitions(text);
      break;
  }
  return 0;
}
