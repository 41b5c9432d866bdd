"""Runs programs on TensorFlow and on Muster, each in a process of its own, so that one that crashes costs one case."""

import concurrent.futures
import hashlib
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time

import muster

HERE = pathlib.Path(__file__).resolve().parent
WORKER = HERE / "worker.py"
SERVED_PART = 4000
SERVED_WORKER = HERE / "served_worker.py"
STALLED = 200  # seconds without a result
JOBS = 2  # processes of TensorFlow, which takes longest, where there is much to ask
BLOCK = 400  # programs that stay together


def _environment():
    # Unresolved: in a build tree the modules are links, and the extension is beside the links.
    package = str(pathlib.Path(muster.__file__).parent.parent)
    return dict(os.environ, PYTHONPATH=package, TF_CPP_MIN_LOG_LEVEL="3", PYTHONUNBUFFERED="1")


def _read(path):
    entries = []
    with open(path, "rb") as file:
        while True:
            try:
                entries.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                return entries


def _watch(process, path):
    """Waits for the end; a process that makes no progress is ended. True when it had to be."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.05)
        now = os.path.getsize(path)
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > STALLED:
            process.kill()
            process.wait()
            return True
    return False


def run(interpreter, system, programs, script=WORKER, arguments=()):
    """{key: result} of the programs. A program that ends its process has the result ("crash", what was said)."""
    results = {}
    waiting = list(programs)
    while waiting:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "programs").write_bytes(pickle.dumps(waiting))
            (folder / "results").touch()
            with open(folder / "log", "wb") as log:
                process = subprocess.Popen(
                    [interpreter, str(script), system, str(folder / "programs"), str(folder / "results"), *arguments],
                    stdout=log, stderr=log, env=_environment() if system == "muster" else dict(os.environ))
                hung = _watch(process, folder / "results")
            entries = _read(folder / "results")
            said = (folder / "log").read_text(errors="replace")[-1500:]
        before = len(results)
        results.update((e[1], e[2]) for e in entries if e[0] == "end")
        begun = entries[-1] if entries else ("none", None)
        if process.returncode == 0:
            break
        culprit = begun[1] if begun[0] == "begin" else None
        if culprit is not None:
            results[culprit] = ("crash", f"{'hung' if hung else f'exit {process.returncode}'}: {said}")
        elif begun[0] == "begin" and begun[1] is None:
            # Joining a group's graphs brought it down: build each of them alone.
            waiting = [dict(p, shares=False) for p in waiting]
        elif len(results) == before:
            raise RuntimeError(f"the {system} worker does not run: {said}")
        waiting = [p for p in waiting if p["key"] not in results]
    return results


def run_in_parts(interpreter, system, programs):
    """The same, by several processes at once."""
    blocks = [programs[i:i + BLOCK] for i in range(0, len(programs), BLOCK)]
    parts = [[p for block in blocks[i::JOBS] for p in block] for i in range(min(JOBS, len(blocks)))]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        found = list(pool.map(lambda part: run(interpreter, system, part), parts))
    return {key: result for one in found for key, result in one.items()}


class Oracle:
    """TensorFlow's results, kept between runs by the hash of the program, and Muster's, always fresh."""

    def __init__(self, tf_python, folder, whole):
        self.tf_python, self.whole = tf_python, whole
        # What the worker does decides the results too.
        self.store = folder / f"tensorflow-{hashlib.sha256(WORKER.read_bytes()).hexdigest()[:12]}.pickle"
        folder.mkdir(parents=True, exist_ok=True)

    def _expected(self, programs):
        try:
            known = pickle.loads(self.store.read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            known = {}
        missing = [p for p in programs if p["key"] not in known]
        if missing:
            known.update(run_in_parts(self.tf_python, "tensorflow", missing))
            if self.whole:  # what no case asks for any more goes
                wanted = {p["key"] for p in programs}
                known = {k: v for k, v in known.items() if k in wanted}
            scratch = self.store.with_suffix(f".{os.getpid()}")
            scratch.write_bytes(pickle.dumps(known))
            scratch.replace(self.store)
        return known

    def served(self, programs, target, jobs):
        """(TensorFlow's results, those of TensorFlow's clients at a server)."""
        # In parts that a process has read and begun long before it counts as stalled.
        count = max(jobs, -(-len(programs) // SERVED_PART))
        parts = [programs[i::count] for i in range(count)]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            found = list(pool.map(lambda p: run(self.tf_python, "remote", p, SERVED_WORKER, [target]), parts))
        return self._expected(programs), {key: result for one in found for key, result in one.items()}

    def both(self, programs):
        """(TensorFlow's results, Muster's results)."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            expected = pool.submit(self._expected, programs)
            actual = pool.submit(run, sys.executable, "muster", programs)
            return expected.result(), actual.result()
