// All-reduce of floats between processes on this machine: Muster's mesh over TCP and, where it is
// installed, Gloo over TCP, in turns. Prints one line of JSON per size:
//   allreduce_bench RANKS BYTES...
// Each call reduces new values, and every result is checked.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/collective/mesh/data_port.h"
#include "muster/collective/mesh/mesh.h"

#ifdef MUSTER_HAS_GLOO
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#endif

namespace {

using muster::collective::DataPort;
using muster::collective::Endpoint;
using muster::collective::Mesh;
using muster::collective::MeshOptions;

constexpr int kRanksMax = 16;
constexpr int kRounds = 3;

// Memory that the processes share.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<int> round;
  struct {
    int port;
    char token[muster::collective::kTokenBytes];
  } endpoints[kRanksMax];
};

Shared* shared = nullptr;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "allreduce_bench: %s\n", why.c_str());
  std::_Exit(1);
}

void Barrier(int ranks) {
  const int round = shared->round.load();
  if (shared->arrived.fetch_add(1) + 1 == ranks) {
    shared->arrived.store(0);
    shared->round.store(round + 1);
    return;
  }
  // Like MPI's barrier, between whose calls allreduce_mpi.cc measures, it spins; it yields only for
  // the sake of many ranks on few cores.
  for (int tries = 1; shared->round.load() == round; ++tries) {
    if (tries % 1024 == 0) sched_yield();
  }
}

// One way to sum `data` over all ranks.
struct Contender {
  std::string name;
  std::function<void()> run;
};

// Median microseconds of a call.
double Measure(const Contender& contender, int rank, int ranks, std::vector<float>& data,
               int repeats, int seed) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    // Small integers: sums are exact in any order.
    for (size_t k = 0; k < data.size(); ++k) {
      data[k] = static_cast<float>((k + static_cast<size_t>(seed + i)) % 1000 * (rank + 1));
    }
    Barrier(ranks);
    const auto begin = std::chrono::steady_clock::now();
    contender.run();
    const auto end = std::chrono::steady_clock::now();
    times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    for (size_t k = 0; k < data.size(); ++k) {
      const auto expected = static_cast<float>((k + static_cast<size_t>(seed + i)) % 1000 *
                                               (ranks * (ranks + 1) / 2));
      if (data[k] != expected) Die(contender.name + " gives a wrong sum");
    }
    Barrier(ranks);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

std::unique_ptr<Mesh> MakeMesh(DataPort& port, int rank, int ranks) {
  shared->endpoints[rank].port = port.endpoint().port;
  std::memcpy(shared->endpoints[rank].token, port.endpoint().token.data(),
              muster::collective::kTokenBytes);
  Barrier(ranks);
  MeshOptions options{.group = 1, .rank = rank};
  for (int i = 0; i < ranks; ++i) options.names.push_back("/job:worker/task:" + std::to_string(i));
  auto mesh = Mesh::Create(options, port.NewConnector([](int peer) -> absl::StatusOr<Endpoint> {
    return Endpoint{"127.0.0.1", shared->endpoints[peer].port,
                    std::string(shared->endpoints[peer].token, muster::collective::kTokenBytes)};
  }));
  if (!mesh.ok()) Die(std::string(mesh.status().message()));
  return *std::move(mesh);
}

void MeshAllReduce(Mesh& mesh, std::vector<float>& data) {
  static uint64_t tag = 0;
  const absl::Status status = Await(mesh, [&](muster::collective::Done done) {
    mesh.AllReduce(++tag, {.dtype = muster::DType::kFloat}, data.data(), data.size(),
                   std::move(done));
  });
  if (!status.ok()) Die(std::string(status.message()));
}

#ifdef MUSTER_HAS_GLOO
std::shared_ptr<gloo::Context> MakeGloo(const std::string& folder, int rank, int ranks) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  return context;
}

void AddGloo(std::vector<Contender>& contenders, const std::shared_ptr<gloo::Context>& context,
             std::vector<float>& data) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  for (const auto algorithm : {Algorithm::RING, Algorithm::BCUBE}) {
    contenders.push_back({"gloo", [&data, context, algorithm] {
                            gloo::AllreduceOptions options(context);
                            options.setAlgorithm(algorithm);
                            options.setOutput(data.data(), data.size());
                            options.setReduceFunction(
                                [](void* out, const void* a, const void* b, size_t count) {
                                  gloo::sum<float>(out, a, b, count);
                                });
                            static uint32_t tag = 0;
                            options.setTag(++tag);
                            gloo::allreduce(options);
                          }});
  }
  const std::vector<float*> pointers{data.data()};
  const int count = static_cast<int>(data.size());
  const auto add = [&](std::shared_ptr<gloo::Algorithm> algorithm) {
    contenders.push_back({"gloo", [algorithm] { algorithm->run(); }});
  };
  add(std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context, pointers, count));
  add(std::make_shared<gloo::AllreduceRingChunked<float>>(context, pointers, count));
  add(std::make_shared<gloo::AllreduceBcube<float>>(context, pointers, count));
}
#endif

void RunRank(int rank, int ranks, const std::vector<size_t>& sizes, const std::string& folder) {
  auto port = DataPort::Listen("127.0.0.1", {});
  if (!port.ok()) Die(std::string(port.status().message()));
  const std::unique_ptr<Mesh> mesh = MakeMesh(**port, rank, ranks);
#ifdef MUSTER_HAS_GLOO
  const auto context = MakeGloo(folder, rank, ranks);
#endif
  for (const size_t bytes : sizes) {
    std::vector<float> data(bytes / sizeof(float));
    std::vector<Contender> contenders{{"muster", [&] { MeshAllReduce(*mesh, data); }}};
#ifdef MUSTER_HAS_GLOO
    AddGloo(contenders, context, data);
#endif
    const int repeats = bytes <= 65536 ? 3000 : bytes <= (4 << 20) ? 30 : 3;
    std::map<std::string, double> best;
    // In turns, so that all see the same disturbances; the first round warms up.
    for (int round = 0; round <= kRounds; ++round) {
      for (const Contender& contender : contenders) {
        const double time = Measure(contender, rank, ranks, data, repeats, round * 7);
        const auto [entry, is_new] = best.try_emplace(contender.name, time);
        if (round > 0) entry->second = std::min(entry->second, time);
      }
    }
    if (rank != 0) continue;
    std::printf("{\"ranks\": %d, \"bytes\": %zu", ranks, bytes);
    for (const auto& [name, time] : best) std::printf(", \"%s\": %.3f", name.c_str(), time);
    std::printf("}\n");
    std::fflush(stdout);
  }
  Barrier(ranks);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) Die("usage: allreduce_bench RANKS BYTES...");
  const int ranks = std::atoi(argv[1]);
  if (ranks < 1 || ranks > kRanksMax) Die("1 to 16 ranks");
  std::vector<size_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  char folder[] = "allreduce_bench.XXXXXX";
  if (mkdtemp(folder) == nullptr) Die("no folder for Gloo's store");
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("no shared memory");
  shared = new (memory) Shared{};
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // no child outlives its parent
      RunRank(rank, ranks, sizes, folder);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  bool ok = true;
  for (size_t ended = 0; ended < children.size(); ++ended) {
    int status = 0;
    wait(&status);
    if (status != 0 && ok) {
      ok = false;
      for (const pid_t child : children) kill(child, SIGKILL);
    }
  }
  const std::string remove = std::string("rm -rf ") + folder;
  if (std::system(remove.c_str()) != 0) ok = false;
  return ok ? 0 : 1;
}
