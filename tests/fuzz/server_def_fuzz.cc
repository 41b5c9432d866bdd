// A ServerDef file: text or binary.
#include "fuzz_input.h"
#include "message_mutator.h"
#include "tensorflow/core/protobuf/tensorflow_server.pb.h"

#include "muster/server/server_options_proto.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  (void)muster::ParseServerDef(text).ok();
  (void)muster::ParseServerDefFile(std::string(text)).ok();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  tensorflow::ServerDef message;
  return muster::MutateInput(data, size, max_size, seed, 0, [&](uint8_t) { return &message; });
}
