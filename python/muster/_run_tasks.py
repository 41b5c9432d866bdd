"""`python -m muster._run_tasks SPEC script.py args`: several tasks of a cluster as threads of this process.

Each thread runs the script as a process would: with its own sys.argv, TF_CONFIG, flags, default graph and lines of
output. Threads that it starts belong to the same task. Modules that the script imports are shared.
`muster launch --standalone` and `--processes` start this; see docs/launching.md.
"""
import ctypes
import json
import os
import signal
import sys
import threading

from muster import _muster, _tasks
from muster.names import alias
from muster.session import interruption


def _exit_code(error):
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


class _Runner(threading.Thread):
    """Runs the script as one task. `code` is the exit status that its process would have had."""

    def __init__(self, task, script, program):
        super().__init__(name=task.name, daemon=True)
        self._muster_task, self._script, self._program = task, script, program
        self.code = None

    def run(self):
        space = self._muster_task.main.__dict__
        space.update(__file__=self._script, __builtins__=__builtins__)
        code = 0
        try:
            exec(self._program, space)
        except SystemExit as error:
            code = _exit_code(error)
        except BaseException as error:
            at = error.__traceback__
            while at is not None and at.tb_frame.f_code.co_filename != self._script:
                at = at.tb_next
            interruption.print_error(type(error), error, at or error.__traceback__)
            code = 130 if isinstance(error, KeyboardInterrupt) else 1
        for stream in (sys.stdout, sys.stderr):
            stream.end_line()
        self.code = code


def _wait(runners):
    """Waits until a task fails, or all have ended; returns the exit status."""
    running = list(runners)
    while running:
        for runner in list(running):
            runner.join(0.05)
            if runner.is_alive():
                continue
            running.remove(runner)
            if runner.code != 0:
                return runner.code
            print("%send %s" % (_tasks.FOR_LAUNCHER, runner.name), flush=True)
    return 0


def _interrupt(runners):
    for runner in runners:
        if runner.is_alive() and not runner.name.startswith("ps "):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(runner.ident), ctypes.py_object(KeyboardInterrupt))


def _terminate(unused_signal, unused_frame):
    raise interruption.Terminated()


def main():
    spec, script, arguments = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3:]
    alias.install()
    sys.path[0] = script.rsplit("/", 1)[0] if "/" in script else ""
    _muster.share_process([task["address"] for task in spec["tasks"]], closed=spec["closed"])
    with open(script, "rb") as source:
        program = compile(source.read(), script, "exec")
    _tasks.install()
    runners = [_Runner(_tasks.Task(task["name"], [script] + task["flags"] + arguments, task["tf_config"]), script, program)
               for task in spec["tasks"]]
    for runner in runners:
        runner.start()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _wait(runners)
    except (KeyboardInterrupt, interruption.Terminated) as error:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _interrupt(runners)
        for runner in runners:
            if not runner.name.startswith("ps "):
                runner.join(3600)  # the launcher kills this process when it takes too long
        code = 130 if isinstance(error, KeyboardInterrupt) else error.code
    # Not sys.exit: threads of other tasks may still run.
    for stream in (sys.stdout, sys.stderr):
        stream.end_line()
    os._exit(code)


if __name__ == "__main__":
    main()
