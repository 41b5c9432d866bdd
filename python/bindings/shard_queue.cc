// Work queues of data shards.
#include "muster/train/loop/shard_queue.h"

#include "train_bindings.h"

namespace muster {
namespace {

std::shared_ptr<ShardQueue> NewShardQueue(const Scope& scope, const nb::list& shards, int64_t count,
                                          int64_t epochs, bool shuffle, int64_t seed, double lease,
                                          bool backup, std::string name, std::string device) {
  ShardQueueOptions options;
  for (const nb::handle shard : shards) {
    const auto bytes = nb::cast<nb::bytes>(shard);
    options.shards.emplace_back(bytes.c_str(), bytes.size());
  }
  options.count = count;
  options.epochs = epochs;
  options.shuffle = shuffle;
  options.seed = seed;
  options.lease = absl::Seconds(lease);
  options.backup = backup;
  options.name = std::move(name);
  options.device = std::move(device);
  return BuildValue(ShardQueue::Make(scope, std::move(options)));
}

// (epoch, index, value, ticket), or None at the end.
nb::object Take(ShardQueue& queue, Session& session) {
  std::optional<DataShard> shard;
  {
    ReleasedGil released;
    shard = RunValue(queue.Take(session));
  }
  if (!shard.has_value()) return nb::none();
  return nb::make_tuple(shard->epoch, shard->index,
                        nb::bytes(shard->value.data(), shard->value.size()), shard->ticket);
}

DataShard OfTicket(int64_t ticket) {
  DataShard shard;
  shard.ticket = ticket;
  return shard;
}

}  // namespace

void BindShardQueue(nb::module_& m) {
  nb::class_<ShardQueue>(m, "ShardQueue")
      .def_prop_ro("handle", &ShardQueue::handle)
      .def_prop_ro("name", &ShardQueue::name)
      .def_prop_ro("initializer", &ShardQueue::initializer, nb::rv_policy::reference)
      .def_prop_ro("gentle_initializer", &ShardQueue::gentle_initializer, nb::rv_policy::reference)
      .def_prop_ro("is_initialized", &ShardQueue::is_initialized)
      .def("saveable", &ShardQueue::ToSaveable)
      .def("add_take",
           [](const ShardQueue& queue, const Scope& scope) {
             const ShardQueue::Taken taken = BuildValue(queue.AddTake(scope));
             return nb::make_tuple(taken.epoch, taken.index, taken.value, taken.ticket);
           })
      .def("add_done", [](const ShardQueue& queue, const Scope& scope,
                          Output ticket) { return BuildValue(queue.AddDone(scope, ticket)); })
      .def("add_renew", [](const ShardQueue& queue, const Scope& scope,
                           Output tickets) { return BuildValue(queue.AddRenew(scope, tickets)); })
      .def("take", &Take)
      .def(
          "done",
          [](ShardQueue& queue, Session& session, int64_t ticket) {
            return RunValue(queue.Done(session, OfTicket(ticket)));
          },
          nb::call_guard<ReleasedGil>())
      .def(
          "give_back",
          [](ShardQueue& queue, Session& session, int64_t ticket) {
            ThrowIfRunError(queue.Return(session, OfTicket(ticket)));
          },
          nb::call_guard<ReleasedGil>())
      .def(
          "renew",
          [](ShardQueue& queue, Session& session) { ThrowIfRunError(queue.Renew(session)); },
          nb::call_guard<ReleasedGil>())
      .def(
          "report",
          [](const ShardQueue& queue, Session& session) { return RunValue(queue.Report(session)); },
          nb::call_guard<ReleasedGil>());
  m.def("new_shard_queue", &NewShardQueue);
  m.def("new_shard_queue_hook",
        [](std::shared_ptr<ShardQueue> queue) -> std::shared_ptr<SessionRunHook> {
          return std::make_shared<ShardQueueHook>(std::move(queue));
        });
}

}  // namespace muster
