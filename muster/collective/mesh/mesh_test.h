// N ranks as threads of a test, over TCP, memory of the process or memory shared with others.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "muster/collective/mesh/data_port.h"
#include "muster/collective/mesh/memory_channel.h"
#include "muster/collective/mesh/mesh.h"

namespace muster::collective {

enum class Wire { kTcp, kTls, kShared, kMemory, kMixed };

// The tasks: what outlives a group.
class TestTasks {
 public:
  TestTasks(Wire wire, int count) : wire_(wire) {
    for (int i = 0; i < count; ++i) {
      absl::StatusOr<std::unique_ptr<DataPort>> port = DataPort::Listen(
          "127.0.0.1", {.encrypted = wire == Wire::kTls, .shared_memory = wire == Wire::kShared});
      EXPECT_TRUE(port.ok()) << port.status();
      ports_.push_back(*std::move(port));
    }
  }
  DataPort& port(int task) { return *ports_[task]; }

  static std::string TaskName(int task) { return absl::StrCat("/job:worker/task:", task); }

  std::unique_ptr<Connector> NewConnector(const std::vector<int>& tasks, int rank) {
    auto remote =
        ports_[tasks[rank]]->NewConnector([this, tasks](int peer) -> absl::StatusOr<Endpoint> {
          return ports_[tasks[peer]]->endpoint();
        });
    auto local = exchange_.NewConnector();
    switch (wire_) {
      case Wire::kTcp:
      case Wire::kTls:
      case Wire::kShared:
        return remote;
      case Wire::kMemory:
        return local;
      case Wire::kMixed:  // two tasks to a process
        break;
    }
    return NewMixedConnector([rank](int peer) { return peer / 2 == rank / 2; }, std::move(local),
                             std::move(remote));
  }

  // The mesh of `tasks[rank]` in a group of `tasks`.
  std::unique_ptr<Mesh> Join(uint64_t group, const std::vector<int>& tasks, int rank,
                             absl::Duration silence, absl::Duration lateness) {
    MeshOptions options{.group = group, .rank = rank};
    options.silence = silence;
    options.lateness = lateness;
    for (const int task : tasks) options.names.push_back(TaskName(task));
    absl::StatusOr<std::unique_ptr<Mesh>> mesh = Mesh::Create(options, NewConnector(tasks, rank));
    EXPECT_TRUE(mesh.ok()) << mesh.status();
    return *std::move(mesh);
  }

 private:
  const Wire wire_;
  std::vector<std::unique_ptr<DataPort>> ports_;
  LocalExchange exchange_;
};

inline std::vector<int> FirstTasks(int count) {
  std::vector<int> tasks(count);
  for (int i = 0; i < count; ++i) tasks[i] = i;
  return tasks;
}

class TestGroup {
 public:
  TestGroup(Wire wire, int ranks, absl::Duration silence = absl::Minutes(5),
            absl::Duration lateness = absl::Minutes(5))
      : tasks(wire, ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      meshes.push_back(tasks.Join(1, FirstTasks(ranks), rank, silence, lateness));
    }
  }
  int size() const { return static_cast<int>(meshes.size()); }

  // Runs `body` for every rank at once and waits for all.
  void Run(const std::function<void(Mesh& mesh, int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        if (meshes[rank] != nullptr) body(*meshes[rank], rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  TestTasks tasks;
  std::vector<std::unique_ptr<Mesh>> meshes;
};

template <typename T>
absl::Status AllReduceNow(Mesh& mesh, uint64_t tag, const Reduction& reduction,
                          std::vector<T>& data) {
  return Await(mesh, [&](Done done) {
    mesh.AllReduce(tag, reduction, data.data(), data.size(), std::move(done));
  });
}

}  // namespace muster::collective
