"""Times the same models with Muster and with PyTorch on this machine's GPU, one after the other, and prints them side by side.

    run.py [--save] [ROW...]

PyTorch is that of TORCH_PYTHON, an interpreter; without one, or without PyTorch in it, Muster is shown alone.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What Muster's time divided by PyTorch's may be at most.
TARGETS = {"layers_fed": 0.6, "layers_resident": 0.6, "convolutions_fed": 0.7, "convolutions_resident": 0.7, "embedding": 0.5,
           "wide_and_deep": 0.25}
# Of the copies: what Muster's rate divided by PyTorch's is at least.
COPIES = {"up_gb_per_s": 0.95, "down_gb_per_s": 0.95}
SAME_LOSS = 0.02  # relative: products of 10 or 7 bits, in another order


def measure(interpreter, program, rows):
    """{row: {"ms": ..., "loss": ...}}; what the program prints is shown."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "results.json"
        subprocess.run([interpreter, str(HERE / program), str(output), *rows], check=False)
        return json.loads(output.read_text()) if output.exists() else {}


def machine():
    """The card and its driver."""
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                          text=True, check=False).stdout.strip()


def commit():
    found = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or os.environ.get("MUSTER_COMMIT", "unknown")


def verdict(ratio, target, at_least=False):
    return "%s %s%.3g" % ("ok  " if (ratio >= target if at_least else ratio <= target) else "MISS", ">=" if at_least else "<=", target)


def lines(ours, theirs):
    yield "%-24s %12s %12s %8s  %-12s %s" % ("", "Muster", "PyTorch", "ratio", "wanted", "first loss")
    for row in ours:
        mine, other = ours[row], theirs.get(row, {})
        if not mine.get("ms"):
            yield "%-24s %s" % (row, mine.get("error", "no result"))
            continue
        if "allowed_ms" in mine:
            local = ours.get(row.replace("_ps", "_fed"), {}).get("ms")
            text = "%-24s %9.3f ms" % (row, mine["ms"])
            if local:
                most = local + mine["allowed_ms"]
                text += " %24s %s" % ("at most %.3f ms" % most, "ok" if mine["ms"] <= most else "MISS")
            yield text
            continue
        if row == "copies":
            for kind, target in COPIES.items():
                ratio = mine[kind] / other[kind] if other.get(kind) else None
                yield "%-24s %7.1f GB/s %7s GB/s %8s  %s" % (
                    kind.replace("_gb_per_s", ""), mine[kind], "%.1f" % other[kind] if ratio else "-", "%.3f" % ratio if ratio else "-",
                    verdict(ratio, target, at_least=True) if ratio else "")
            continue
        text = "%-24s %9.3f ms" % (row, mine["ms"])
        if other.get("ms"):
            ratio = mine["ms"] / other["ms"]
            text += " %9.3f ms %8.3f  %-12s" % (other["ms"], ratio, verdict(ratio, TARGETS.get(row, 1.0)))
            same = abs(mine["loss"] - other["loss"]) <= SAME_LOSS * max(abs(other["loss"]), 1e-3)
            text += " %.5g %s %.5g" % (mine["loss"], "=" if same else "DIFFERS FROM", other["loss"])
        else:
            text += " %12s  loss %.5g  %s" % ("-", mine["loss"], other.get("graph_error", other.get("error", "")))
        yield text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", action="store_true", help="keep what was measured in benchmarks/results/gpu/")
    parser.add_argument("rows", nargs="*")
    flags = parser.parse_args()
    torch = os.environ.get("TORCH_PYTHON")
    theirs = measure(torch, "torch_rows.py", flags.rows) if torch else {}
    ours = measure(sys.executable, "muster_rows.py", flags.rows)
    if not theirs:
        print("NOT MEASURED: PyTorch, for which TORCH_PYTHON names an interpreter")
    print("\n".join(lines(ours, theirs)))
    if flags.save:
        now = datetime.datetime.now(datetime.timezone.utc)
        kept = {"commit": commit(), "machine": machine(), "time": now.isoformat(timespec="seconds"), "muster": ours, "torch": theirs}
        folder = HERE.parent / "results" / "gpu"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ("%s-%s.json" % (now.strftime("%Y-%m-%dT%H%M"), kept["commit"]))
        path.write_text(json.dumps(kept, indent=1) + "\n")
        print("saved to %s" % path)
    return 0 if ours and all(row.get("ms") for row in ours.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
