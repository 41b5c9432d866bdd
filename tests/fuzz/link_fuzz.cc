// A byte for the kind of link and its end, then what the other end sends before it hangs up.
#include "fuzz_input.h"
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/base/scheduler.h"
#include "muster/transport/fast/fast_link.h"

namespace muster::fast {
namespace {

constexpr size_t kMaxMessageBytes = 1 << 20;

void Echo(FastCall call) {
  WireMessage reply;
  reply.Append(call.path);
  for (const absl::string_view piece : call.request.pieces) reply.Append(piece);
  std::move(call.reply)(std::move(reply));
}

void TryLink(absl::string_view sent, Reach reach, bool serves) {
  int sockets[2];
  FuzzCheck(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "a pair of sockets");
  const auto link = FastLink::Create(sockets[0], serves ? ServeCall(Echo) : ServeCall(),
                                     &DefaultScheduler(), kMaxMessageBytes, reach);
  std::atomic<int> ended{0};
  constexpr int kCalls = 2;
  for (int i = 0; i < kCalls; ++i) {
    WireMessage request;
    request.Append("request");
    link->Call("/service/method", "the other end", {}, std::move(request),
               [&ended](const absl::StatusOr<WireBytes>& reply) {
                 // All of it can be read.
                 if (reply.ok())
                   FuzzCheck(WireReader(*reply).Text().size() <= kMaxMessageBytes,
                             "a reply within the limit");
                 ++ended;
               });
  }
  [[maybe_unused]] const ssize_t written = send(sockets[1], sent.data(), sent.size(), MSG_NOSIGNAL);
  shutdown(sockets[1], SHUT_WR);
  // The end of what was sent breaks the link, if nothing before it does.
  while (link->is_open() || ended < kCalls) sched_yield();
  close(sockets[1]);
}

}  // namespace
}  // namespace muster::fast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::FuzzInput input(data, size);
  const uint8_t kind = input.Byte();
  using muster::fast::Reach;
  muster::fast::TryLink(input.rest(), (kind & 1) != 0 ? Reach::kNetwork : Reach::kMachine,
                        (kind & 2) != 0);
  return 0;
}
