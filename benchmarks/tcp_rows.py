"""64 MB over TCP, over links as between machines, against what iperf3 gets through the loopback in the same minutes."""
import json
import shutil
import statistics
import subprocess
import sys
import time

from ports import free_ports
from table import GIB, TCP, TCP_TARGET

SECONDS = "2"


def _iperf3():
    """GiB/s that one stream of iperf3 brings to the other end."""
    port = str(free_ports(1)[0])
    server = subprocess.Popen(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            done = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", port, "-t", SECONDS, "-J"],
                                  stdout=subprocess.PIPE, text=True)
            received = json.loads(done.stdout)["end"].get("sum_received")  # it fails with exit status 0, too
            if received is not None:
                return received["bits_per_second"] / 8 * GIB
            time.sleep(0.05)  # the server is not there yet
        sys.exit("iperf3 failed:\n" + done.stdout[-2000:])
    finally:
        server.kill()
        server.wait()


def compare(rows, measure, rounds):
    """Prints the rows; returns what is to be kept. `measure(row)` gives seconds."""
    has_iperf3 = shutil.which("iperf3") is not None
    if not has_iperf3:
        print("tcp rows: iperf3 IS NOT INSTALLED (Debian package iperf3): nothing to compare with", file=sys.stderr)
    print("%-24s %11s %11s %-7s %8s %8s %s" % ("row", "Muster", "iperf3", "", "ratio", "(median)", "target"))
    limits, found = [], {row.name: [] for row in rows}
    for _ in range(rounds):  # in turns
        if has_iperf3:
            limits.append(_iperf3())
        for row in rows:
            found[row.name].append(TCP[row.name] * GIB / measure(row))
    kept = []
    for row in rows:
        values = found[row.name]
        if not limits:
            print("%-24s %11.2f %11s %-7s" % (row.name, max(values), "missing", row.unit), flush=True)
            kept.append({"name": row.name, "unit": row.unit, "sides": {"muster": values}})
            continue
        ratio = max(values) / max(limits)
        of_medians = statistics.median(values) / statistics.median(limits)
        judged = "%s >=%.1f" % ("ok  " if ratio >= TCP_TARGET else "MISS", TCP_TARGET)
        print("%-24s %11.2f %11.2f %-7s %8.3f (%.3f)  %s" % (row.name, max(values), max(limits), row.unit, ratio,
                                                             of_medians, judged), flush=True)
        kept.append({"name": row.name, "unit": row.unit, "ratio": ratio, "ratio_of_medians": of_medians,
                     "target": TCP_TARGET, "rate": True, "sides": {"muster": values, "iperf3": limits}})
    return kept
