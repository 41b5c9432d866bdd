// A device that reads what the other side lends by itself.
#include <cstring>
#include <future>
#include <set>

#include "absl/time/clock.h"
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "muster/tensor/shared_memory.h"
#include "muster/transport/fast/fast_link.h"

namespace muster::fast {
namespace {

template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  return condition();
}

// Memory that can be shown, also where the allocator has none of it.
class ShownRegion : public Region {
 public:
  explicit ShownRegion(size_t size)
      : Region(SharedMemory::Global().Allocate(size), size, MemoryKind::kSharedHost) {
    std::memset(base_, 'm', size);
  }
  ~ShownRegion() override { SharedMemory::Global().Free(base_, size_bytes_); }
};

class Reader : public MappingReader {
 public:
  Reader() { MappingReader::Set(this); }
  ~Reader() override { MappingReader::Set(nullptr); }
  bool Begin(const char* data, size_t) override {
    MutexLock lock(mutex_);
    return reads_.insert(data).second;
  }
  void End(const char* data) override {
    MutexLock lock(mutex_);
    last_byte_ = *data;  // it is still there
    reads_.erase(data);
  }
  size_t num_read() const {
    MutexLock lock(mutex_);
    return reads_.size();
  }

 private:
  mutable Mutex mutex_;
  std::set<const char*> reads_ ABSL_GUARDED_BY(mutex_);
  char last_byte_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(FastLinkCardTest, ReadsSegmentsUntilNobodyHoldsWhatWasLent) {
  constexpr size_t kBytes = size_t{1} << 20;
  Reader reader;
  const Buffer buffer(MakeRef<ShownRegion>(kBytes), 0, kBytes);
  const uint64_t segment = SharedMemory::Global().Find(buffer.data())->segment;
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const auto client = FastLink::Create(sockets[0], nullptr, &DefaultScheduler());
  const auto server = FastLink::Create(
      sockets[1],
      [&buffer](FastCall call) {
        WireMessage reply;
        reply.Attach(buffer);
        std::move(call.reply)(std::move(reply));
      },
      &DefaultScheduler());
  std::promise<absl::StatusOr<WireBytes>> replied;
  client->Call("/a/b", "server", {}, WireMessage(), [&replied](absl::StatusOr<WireBytes> reply) {
    replied.set_value(std::move(reply));
  });
  absl::StatusOr<WireBytes> reply = replied.get_future().get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(Eventually([&] { return reader.num_read() == 1; }));
  ASSERT_TRUE(SharedMemory::Global().Has(segment));
  // The other side dies; a copy to the device may still be under way.
  server->Break("killed");
  EXPECT_TRUE(Eventually([&] { return !client->is_open(); }));
  EXPECT_EQ(reader.num_read(), 1u);
  *reply = WireBytes();
  EXPECT_TRUE(Eventually([&] { return reader.num_read() == 0; }));
}

}  // namespace
}  // namespace muster::fast
