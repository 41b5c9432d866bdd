// Changes messages field by field, so that most mutants pass the parser and reach the code behind
// it. libFuzzer calls a target's LLVMFuzzerCustomMutator, which calls MutateInput.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include <google/protobuf/message.h>

namespace muster {

// The input is `prefix` bytes and a message. `message_for`, given the first byte, says which kind:
// an empty message, or null for bytes that are none. Sometimes libFuzzer's own mutation of the
// bytes is taken instead. Returns the new size.
size_t MutateInput(uint8_t* data, size_t size, size_t max_size, unsigned seed, size_t prefix,
                   absl::FunctionRef<google::protobuf::Message*(uint8_t)> message_for);

}  // namespace muster
