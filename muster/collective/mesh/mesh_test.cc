#include "muster/collective/mesh/mesh.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "absl/time/clock.h"

#include "muster/collective/mesh/mesh_test.h"

namespace muster::collective {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::kDoubling, Algorithm::kHalving, Algorithm::kRing};

// A value of `rank` at `index` whose sums and products over 8 ranks are exact in every type.
int Value(int rank, size_t index) {
  return static_cast<int>((index * 7 + static_cast<size_t>(rank) * 3) % 4);
}

template <typename T>
T Make(int value) {
  return static_cast<T>(static_cast<float>(value));
}
template <>
Complex64 Make<Complex64>(int value) {
  return {static_cast<float>(value), static_cast<float>(1 - value)};
}
template <>
Complex128 Make<Complex128>(int value) {
  return {static_cast<double>(value), static_cast<double>(1 - value)};
}

template <typename T>
T Combined(MergeOp op, T a, T b) {
  if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>) {
    return op == MergeOp::kAdd ? a + b : a * b;
  } else {
    const auto x = static_cast<Compute<T>>(a), y = static_cast<Compute<T>>(b);
    switch (op) {
      case MergeOp::kAdd:
        return static_cast<T>(x + y);
      case MergeOp::kMul:
        return static_cast<T>(x * y);
      case MergeOp::kMin:
        return x < y ? a : b;
      case MergeOp::kMax:
        return x > y ? a : b;
    }
    return a;
  }
}

template <typename T>
T Divided(T value, int by) {
  if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>) {
    return {value.real() / static_cast<float>(by), value.imag() / static_cast<float>(by)};
  } else {
    return static_cast<T>(static_cast<Compute<T>>(value) / static_cast<Compute<T>>(by));
  }
}

template <typename T>
void CheckType(TestGroup& group, uint64_t& tag, MergeOp op, bool mean, size_t count) {
  const Reduction reduction{kDTypeOf<T>, op, mean};
  std::vector<T> expected(count);
  for (size_t i = 0; i < count; ++i) {
    T value = Make<T>(Value(0, i));
    for (int rank = 1; rank < group.size(); ++rank) {
      value = Combined(op, value, Make<T>(Value(rank, i)));
    }
    expected[i] = mean ? Divided(value, group.size()) : value;
  }
  for (const Algorithm algorithm : kAlgorithms) {
    ++tag;
    group.Run([&](Mesh& mesh, int rank) {
      std::vector<T> data(count);
      for (size_t i = 0; i < count; ++i) data[i] = Make<T>(Value(rank, i));
      const absl::Status status = Await(mesh, [&](Done done) {
        mesh.AllReduceBy(algorithm, tag, reduction, data.data(), count, std::move(done));
      });
      ASSERT_TRUE(status.ok()) << status;
      if (count == 0) return;  // memcmp takes no null pointers
      ASSERT_EQ(std::memcmp(data.data(), expected.data(), count * sizeof(T)), 0)
          << DTypeName(reduction.dtype) << " op " << static_cast<int>(op) << " mean " << mean
          << " count " << count << " ranks " << group.size() << " algorithm "
          << static_cast<int>(algorithm) << " rank " << rank;
    });
  }
}

template <typename T>
void CheckAllOps(TestGroup& group, uint64_t& tag, size_t count) {
  CheckType<T>(group, tag, MergeOp::kAdd, false, count);
  CheckType<T>(group, tag, MergeOp::kAdd, true, count);
  CheckType<T>(group, tag, MergeOp::kMul, false, count);
  if constexpr (!std::is_same_v<T, Complex64> && !std::is_same_v<T, Complex128>) {
    CheckType<T>(group, tag, MergeOp::kMin, false, count);
    CheckType<T>(group, tag, MergeOp::kMax, false, count);
  }
}

void ReducesEveryTypeWithEveryOperationOver(Wire wire) {
  for (const int ranks : {2, 3}) {
    TestGroup group(wire, ranks);
    uint64_t tag = 0;
    const size_t count = 1003;
    CheckAllOps<float>(group, tag, count);
    CheckAllOps<double>(group, tag, count);
    CheckAllOps<Half>(group, tag, count);
    CheckAllOps<Bfloat16>(group, tag, count);
    CheckAllOps<int8_t>(group, tag, count);
    CheckAllOps<int16_t>(group, tag, count);
    CheckAllOps<int32_t>(group, tag, count);
    CheckAllOps<int64_t>(group, tag, count);
    CheckAllOps<uint8_t>(group, tag, count);
    CheckAllOps<uint16_t>(group, tag, count);
    CheckAllOps<uint32_t>(group, tag, count);
    CheckAllOps<uint64_t>(group, tag, count);
    CheckAllOps<Complex64>(group, tag, count);
    CheckAllOps<Complex128>(group, tag, count);
  }
}

TEST(Mesh, ReducesEveryTypeWithEveryOperation) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) ReducesEveryTypeWithEveryOperationOver(wire);
}

TEST(Mesh, OneToEightRanksOfAllSizes) {
  for (const Wire wire : {Wire::kTcp, Wire::kTls, Wire::kShared, Wire::kMemory, Wire::kMixed}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      TestGroup group(wire, ranks);
      uint64_t tag = 0;
      for (const size_t count : {0, 1, 7, 1024, 4097, 70001}) {
        CheckType<float>(group, tag, MergeOp::kAdd, true, count);
      }
    }
  }
}

void LargeBuffersOver(Wire wire) {
  for (const int ranks : {2, 3}) {
    TestGroup group(wire, ranks);
    uint64_t tag = 0;
    CheckType<float>(group, tag, MergeOp::kAdd, false, 600007);
    const size_t count = (16 << 20) + 3;
    group.Run([&](Mesh& mesh, int rank) {
      std::vector<float> data(count, static_cast<float>(rank + 1));
      const absl::Status status = AllReduceNow(mesh, 1000, {}, data);
      ASSERT_TRUE(status.ok()) << status;
      const std::vector<float> expected(count, static_cast<float>(ranks * (ranks + 1) / 2));
      ASSERT_EQ(std::memcmp(data.data(), expected.data(), count * sizeof(float)), 0);
    });
  }
}

TEST(Mesh, LargeBuffers) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) LargeBuffersOver(wire);
}

TEST(Mesh, ResultsAreTheSameBytesOnAllRanksAndInEveryRun) {
  const size_t count = 50021;
  for (const Algorithm algorithm : kAlgorithms) {
    std::vector<float> first;
    for (const Wire wire : {Wire::kTcp, Wire::kMemory, Wire::kShared, Wire::kTcp}) {
      TestGroup group(wire, 5);
      std::vector<std::vector<float>> results(5);
      group.Run([&](Mesh& mesh, int rank) {
        std::vector<float>& data = results[rank];
        uint32_t state = 12345u + static_cast<uint32_t>(rank);
        for (size_t i = 0; i < count; ++i) {
          state = state * 1664525u + 1013904223u;
          data.push_back(static_cast<float>(state) * 1e-3f / static_cast<float>(i % 97 + 1));
        }
        const absl::Status status = Await(mesh, [&](Done done) {
          mesh.AllReduceBy(algorithm, 1, {.mean = true}, data.data(), count, std::move(done));
        });
        ASSERT_TRUE(status.ok()) << status;
      });
      if (first.empty()) first = results[0];
      for (const auto& result : results) {
        ASSERT_EQ(std::memcmp(result.data(), first.data(), count * sizeof(float)), 0);
      }
    }
  }
}

TEST(Mesh, ReduceScatterGivesEachRankItsPart) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    TestGroup group(Wire::kMemory, ranks);
    for (const size_t count : {0, 3, 1001, 200003}) {
      group.Run([&](Mesh& mesh, int rank) {
        std::vector<int64_t> data(count);
        for (size_t i = 0; i < count; ++i) data[i] = static_cast<int64_t>(i) * (rank + 1);
        const absl::Status status = Await(mesh, [&](Done done) {
          mesh.ReduceScatter(count, {.dtype = DType::kInt64}, data.data(), count, std::move(done));
        });
        ASSERT_TRUE(status.ok()) << status;
        const int64_t factor = ranks * (ranks + 1) / 2;
        for (size_t i = count * rank / ranks; i < count * (rank + 1) / ranks; ++i) {
          ASSERT_EQ(data[i], static_cast<int64_t>(i) * factor);
        }
      });
    }
  }
}

TEST(Mesh, GathersAndBroadcasts) {
  for (const Wire wire : {Wire::kTcp, Wire::kTls, Wire::kShared, Wire::kMemory}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      TestGroup group(wire, ranks);
      uint64_t tag = 0;
      for (const size_t bytes : {0, 1, 33, 5000, 100001}) {
        ++tag;
        group.Run([&](Mesh& mesh, int rank) {
          std::vector<char> blocks(bytes * ranks);
          std::fill_n(blocks.begin() + bytes * rank, bytes, static_cast<char>('a' + rank));
          absl::Status status = Await(
              mesh, [&](Done done) { mesh.AllGather(tag, blocks.data(), bytes, std::move(done)); });
          ASSERT_TRUE(status.ok()) << status << " over " << static_cast<int>(wire);
          for (size_t i = 0; i < blocks.size(); ++i) {
            if (blocks[i] != static_cast<char>('a' + i / bytes)) FAIL() << i;
          }
          for (int root = 0; root < ranks; ++root) {
            std::vector<char> data(bytes, static_cast<char>(rank == root ? 'x' + root : 'n'));
            status = Await(mesh, [&](Done done) {
              mesh.Broadcast(1000 + tag * 10 + root, root, data.data(), bytes, std::move(done));
            });
            ASSERT_TRUE(status.ok()) << status << " over " << static_cast<int>(wire);
            ASSERT_EQ(data, std::vector<char>(bytes, static_cast<char>('x' + root)));
          }
        });
      }
    }
  }
}

// Every rank starts many collectives in its own order and waits for none before the last is begun.
TEST(Mesh, ManyCollectivesAtOnceInAnyOrder) {
  const size_t sizes[] = {10, 5000, 90000, 400000, 3, 70000, 250000, 1};
  constexpr int kEach = 4;
  for (const Wire wire : {Wire::kTcp, Wire::kTls, Wire::kShared, Wire::kMemory}) {
    TestGroup group(wire, 4);
    group.Run([&](Mesh& mesh, int rank) {
      std::vector<std::vector<float>> data;
      for (int i = 0; i < kEach * 8; ++i) {
        data.emplace_back(sizes[i % 8], static_cast<float>(rank + i));
      }
      std::atomic<int> left{kEach * 8};
      std::atomic<int> failed{0};
      for (int i = 0; i < kEach * 8; ++i) {
        const int at = (i * 5 + rank * 11) % (kEach * 8);  // 5 and 32 have no common factor
        mesh.AllReduce(static_cast<uint64_t>(at), {}, data[at].data(), data[at].size(),
                       [&](absl::Status status) {
                         if (!status.ok()) ++failed;
                         --left;
                       });
      }
      mesh.HelpUntil([&] { return left == 0; });
      EXPECT_EQ(failed, 0);
      for (int i = 0; i < kEach * 8; ++i) {
        ASSERT_EQ(data[i], std::vector<float>(sizes[i % 8], static_cast<float>(6 + 4 * i)));
      }
    });
  }
}

// More small collectives than a rank buffers that has not begun them.
void ARankThatComesLateFindsEverythingOver(Wire wire) {
  TestGroup group(wire, 3);
  constexpr int kCalls = 400;
  std::atomic<bool> ahead{false};
  group.Run([&](Mesh& mesh, int rank) {
    std::vector<std::vector<int32_t>> data(kCalls, std::vector<int32_t>(4096, rank));
    std::vector<std::vector<char>> sent(kCalls, std::vector<char>(20000, rank == 0 ? 'r' : '-'));
    std::atomic<int> left{2 * kCalls};
    const auto done = [&left](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      --left;
    };
    while (rank == 2 && !ahead) std::this_thread::yield();
    for (int i = 0; i < kCalls; ++i) {
      mesh.AllReduce(static_cast<uint64_t>(i), {.dtype = DType::kInt32}, data[i].data(), 4096,
                     done);
      mesh.Broadcast(10000 + static_cast<uint64_t>(i), 0, sent[i].data(), 20000, done);
    }
    if (rank == 0) ahead = true;
    mesh.HelpUntil([&] { return left == 0; });
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_EQ(data[i][4095], 3);
      ASSERT_EQ(sent[i][19999], 'r');
    }
  });
}

TEST(Mesh, ARankThatComesLateFindsEverything) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) ARankThatComesLateFindsEverythingOver(wire);
}

void CallbacksComeWithoutAnyoneHelpingOver(Wire wire) {
  TestGroup group(wire, 3);
  std::vector<std::vector<double>> data(3, std::vector<double>(100000, 1.5));
  Mutex mutex;
  CondVar changed;
  int left = 3;
  for (int rank = 0; rank < 3; ++rank) {
    group.meshes[rank]->AllReduce(1, {.dtype = DType::kDouble}, data[rank].data(),
                                  data[rank].size(), [&](const absl::Status& status) {
                                    EXPECT_TRUE(status.ok()) << status;
                                    MutexLock lock(mutex);
                                    --left;
                                    changed.NotifyAll();
                                  });
  }
  MutexLock lock(mutex);
  while (left > 0) changed.Wait(mutex);
  for (const auto& values : data) EXPECT_EQ(values[99999], 4.5);
}

TEST(Mesh, CallbacksComeWithoutAnyoneHelping) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) CallbacksComeWithoutAnyoneHelpingOver(wire);
}

void SeveralThreadsOfARankHelpAtOnceOver(Wire wire) {
  TestGroup group(wire, 2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, rank, thread] {
        for (int i = 0; i < 50; ++i) {
          std::vector<int64_t> data(3000, rank + 1);
          const auto tag = static_cast<uint64_t>(thread * 1000 + i);
          const absl::Status status =
              AllReduceNow(*group.meshes[rank], tag, {.dtype = DType::kInt64}, data);
          ASSERT_TRUE(status.ok()) << status;
          ASSERT_EQ(data[2999], 3);
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mesh, SeveralThreadsOfARankHelpAtOnce) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) SeveralThreadsOfARankHelpAtOnceOver(wire);
}

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(Mesh, WhoWaitsForALateRankSleeps) {
  for (const Wire wire : {Wire::kTcp, Wire::kShared}) {
    TestGroup group(wire, 2);
    for (const uint64_t tag : {1, 2}) {  // the first one connects
      group.Run([&](Mesh& mesh, int rank) {
        const double before = CpuSeconds();
        if (rank == 1 && tag == 2) {
          absl::SleepFor(absl::Seconds(1));
          EXPECT_LT(CpuSeconds() - before, 0.3);  // of both
        }
        std::vector<float> data(1000, 1.0f);
        const absl::Status status = AllReduceNow(mesh, tag, {}, data);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(data[999], 2.0f);
      });
    }
  }
}

TEST(Mesh, RefusesWhatItCannotReduce) {
  TestGroup group(Wire::kMemory, 1);
  std::vector<uint8_t> data(64);
  const auto reduce = [&](DType dtype, MergeOp op) {
    return Await(*group.meshes[0], [&](Done done) {
      group.meshes[0]->AllReduce(1, {dtype, op}, data.data(), 1, std::move(done));
    });
  };
  EXPECT_TRUE(absl::IsInvalidArgument(reduce(DType::kString, MergeOp::kAdd)));
  EXPECT_TRUE(absl::IsInvalidArgument(reduce(DType::kBool, MergeOp::kAdd)));
  EXPECT_TRUE(absl::IsInvalidArgument(reduce(DType::kComplex64, MergeOp::kMin)));
  EXPECT_TRUE(absl::IsInvalidArgument(reduce(DType::kQint8, MergeOp::kMax)));
  const absl::Status root = Await(*group.meshes[0], [&](Done done) {
    group.meshes[0]->Broadcast(2, 1, data.data(), 1, std::move(done));
  });
  EXPECT_TRUE(absl::IsInvalidArgument(root));
  EXPECT_FALSE(Mesh::Create({.rank = 2, .names = {"a", "b"}}, LocalExchange().NewConnector()).ok());
}

}  // namespace
}  // namespace muster::collective
