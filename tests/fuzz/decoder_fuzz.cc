// One message that is read without protobuf, chosen by MUSTER_DECODER. What was understood is
// written and read again: both times it must mean the same.
#include "fuzz_input.h"
#include "message_mutator.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/transport/wire/session_proto.h"
#include "muster/transport/wire/step_proto.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

struct RecvTensorReplyDecoder {
  using Message = tensorflow::RecvTensorResponse;
  static auto Read(const WireBytes& bytes) { return ReadRecvTensorReply(bytes); }
  static auto Write(const RecvTensorReply& reply) { return WriteRecvTensorReply(reply, 1); }
};

struct RunStepDecoder {
  using Message = tensorflow::RunStepRequest;
  static auto Read(const WireBytes& bytes) { return ReadRunStep(bytes); }
  static auto Write(const ReceivedRunStep& received) { return WriteRunStep(received.request); }
};

struct RunStepReplyDecoder {
  using Message = tensorflow::RunStepResponse;
  static auto Read(const WireBytes& bytes) { return ReadRunStepReply(bytes); }
  static auto Write(const RunStepReply& reply) { return WriteRunStepReply(reply); }
};

struct RunGraphDecoder {
  using Message = tensorflow::RunGraphRequest;
  static auto Read(const WireBytes& bytes) { return ReadRunGraph(bytes); }
  static auto Write(const ReceivedRunGraph& received) { return WriteRunGraph(received.request); }
};

struct RunGraphReplyDecoder {
  using Message = tensorflow::RunGraphResponse;
  static auto Read(const WireBytes& bytes) { return ReadRunGraphReply(bytes); }
  static auto Write(const RunGraphReply& reply) { return WriteRunGraphReply(reply); }
};

struct RunCallableDecoder {
  using Message = tensorflow::RunCallableRequest;
  static auto Read(const WireBytes& bytes) { return ReadRunCallable(bytes); }
  static auto Write(const RunCallableRequest& request) { return WriteRunCallable(request); }
};

struct RunCallableReplyDecoder {
  using Message = tensorflow::RunCallableResponse;
  static auto Read(const WireBytes& bytes) { return ReadRunCallableReply(bytes); }
  static auto Write(const RunCallableReply& reply) { return WriteRunCallableReply(reply); }
};

using Decoder = MUSTER_DECODER;

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using muster::Decoder;
  muster::FuzzInput input(data, size);
  const size_t piece_bytes = input.Byte();
  const auto first = Decoder::Read(muster::InPieces(input.rest(), piece_bytes));
  if (!first.ok()) return 0;
  const auto written = Decoder::Write(*first);
  if (!written.ok()) return 0;  // e.g. variants, which cannot be sent
  const auto second = Decoder::Read(muster::InPieces(written->Text(), 0));
  muster::FuzzCheck(second.ok(), second.ok() ? "" : second.status().ToString());
  const auto again = Decoder::Write(*second);
  // Maps inside metadata come in any order.
  muster::FuzzCheck(again.ok() && again->size_bytes() == written->size_bytes(),
                    "the same message again");
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  muster::Decoder::Message message;
  return muster::MutateInput(data, size, max_size, seed, 1, [&](uint8_t) { return &message; });
}
