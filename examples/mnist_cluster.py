"""Starts a cluster on this machine, one parameter server and two workers, that trains on handwritten digits.

    examples/mnist_cluster.py [--muster build/release/bin/muster] [--ps 1] [--workers 2] [arguments of mnist_replica.py]

Ends with the status of the workers; nothing is left running."""
import argparse
import os
import signal
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def free_addresses(count):
    """Addresses nobody listens on; all are held until the last is chosen, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    addresses = ["localhost:%d" % one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return addresses


def stop(processes):
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--muster", default=os.path.join(HERE, "..", "build", "release", "bin", "muster"))
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    flags, worker_arguments = parser.parse_known_args()

    addresses = free_addresses(flags.ps + flags.workers)
    ps_hosts, worker_hosts = ",".join(addresses[:flags.ps]), ",".join(addresses[flags.ps:])
    cluster = "ps=%s;worker=%s" % (ps_hosts, worker_hosts)
    servers, workers = [], []
    try:
        for task in range(flags.ps):
            servers.append(subprocess.Popen(
                [flags.muster, "serve", "--cluster", cluster, "--job", "ps", "--task", str(task)]))
        for task in range(flags.workers):
            workers.append(subprocess.Popen(
                [flags.muster, "run", os.path.join(HERE, "mnist_replica.py"), "--ps_hosts", ps_hosts,
                 "--worker_hosts", worker_hosts, "--task_index", str(task)] + worker_arguments))
        return max(abs(worker.wait()) for worker in workers)
    except KeyboardInterrupt:
        return 130
    finally:
        stop(workers + servers)


if __name__ == "__main__":
    sys.exit(main())
