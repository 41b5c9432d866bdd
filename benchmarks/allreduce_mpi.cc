// All-reduce of floats by the MPI that is installed, measured as allreduce.cc measures Muster's:
//   mpirun -n RANKS allreduce_mpi BYTES...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <mpi.h>

namespace {

constexpr int kRounds = 3;

// Median microseconds of a call; each reduces new values, and every result is checked.
double Measure(int rank, int ranks, std::vector<float>& data, int repeats, int seed) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    for (size_t k = 0; k < data.size(); ++k) {
      data[k] = static_cast<float>((k + static_cast<size_t>(seed + i)) % 1000 * (rank + 1));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    times.push_back((MPI_Wtime() - begin) * 1e6);
    for (size_t k = 0; k < data.size(); ++k) {
      const auto expected = static_cast<float>((k + static_cast<size_t>(seed + i)) % 1000 *
                                               (ranks * (ranks + 1) / 2));
      if (data[k] != expected) {
        std::fprintf(stderr, "allreduce_mpi: a wrong sum\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 1; i < argc; ++i) {
    const size_t bytes = std::strtoull(argv[i], nullptr, 10);
    std::vector<float> data(bytes / sizeof(float));
    const int repeats = bytes <= 65536 ? 3000 : bytes <= (4 << 20) ? 30 : 3;
    double best = 0;
    for (int round = 0; round <= kRounds; ++round) {  // the first warms up
      const double time = Measure(rank, ranks, data, repeats, round * 7);
      best = round <= 1 ? time : std::min(best, time);
    }
    if (rank == 0) {
      std::printf("{\"ranks\": %d, \"bytes\": %zu, \"openmpi\": %.3f}\n", ranks, bytes, best);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
