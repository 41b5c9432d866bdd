"""TensorFlow's ring between the processes of a cluster: `python allreduce_tensorflow.py RANKS BYTES...` prints one line
of JSON per size with the microseconds of one all-reduce. Several follow one another in a step, so that the step's own
cost does not count."""
import json
import multiprocessing
import sys
import time

from ports import free_ports


def run_rank(rank, ports, sizes, barrier):
    import tensorflow.compat.v1 as tf
    from tensorflow.python.ops import collective_ops

    tf.disable_v2_behavior()
    ranks = len(ports)
    task = "/job:worker/replica:0/task:%d"
    config = tf.ConfigProto()
    config.experimental.collective_group_leader = task % 0
    spec = tf.train.ClusterSpec({"worker": ["127.0.0.1:%d" % port for port in ports]})
    server = tf.train.Server(spec, "worker", rank, config=config)
    config.device_filters.append(task % rank)
    barrier.wait()
    key = 1
    for bytes_ in sizes:
        count, rounds, steps = bytes_ // 4, 5, 10 if bytes_ < 1 << 22 else 3
        with tf.Graph().as_default(), tf.device(task % rank + "/device:CPU:0"):
            start = tf.placeholder(tf.float32, [])
            value = tf.fill([count], start)
            for _ in range(steps):
                value = collective_ops.all_reduce(value, ranks, 1, key, "Add", "Id", communication_hint="ring")
                key += 1
            first = value[0]
            options = tf.RunOptions()
            options.experimental.collective_graph_key = bytes_
            with tf.Session(server.target, config=config) as session:
                best = float("inf")
                for i in range(rounds * 4 + 1):
                    barrier.wait()
                    begin = time.perf_counter()
                    result = session.run(first, {start: i + rank}, options)
                    taken = (time.perf_counter() - begin) / steps
                    expected = sum(i + r for r in range(ranks)) * float(ranks) ** (steps - 1)
                    if abs(result - expected) > 1e-5 * max(1.0, expected):
                        sys.exit("a wrong sum: %r, not %r" % (result, expected))
                    if i > 0:
                        best = min(best, taken)
        if rank == 0:
            print(json.dumps({"ranks": ranks, "bytes": bytes_, "tensorflow": best * 1e6}), flush=True)
    barrier.wait()


def main():
    ranks, sizes = int(sys.argv[1]), [int(size) for size in sys.argv[2:]]
    context = multiprocessing.get_context("spawn")
    ports, barrier = free_ports(ranks), context.Barrier(ranks)
    processes = [context.Process(target=run_rank, args=(rank, ports, sizes, barrier)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode) for process in processes))


if __name__ == "__main__":
    main()
