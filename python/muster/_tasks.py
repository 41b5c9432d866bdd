"""Tasks of a cluster that are threads of one process (see _run_tasks): which one runs here, and what it sees."""
import os
import sys
import threading
import types

FOR_LAUNCHER = "\x01"  # begins lines for muster/cli/launcher.cc

_active = False


class Task(object):
    """One task's copy of the state that a process has only once: arguments, environment, main module, flags."""

    def __init__(self, name, argv, tf_config):
        self.name, self.argv = name, argv
        self.environment = {"TF_CONFIG": tf_config}
        self.main = types.ModuleType("__main__")
        self.flags = {}  # FlagValues -> its state in this task


def current():
    """The task of this thread; None outside of all tasks, and in processes that are one task."""
    return getattr(threading.current_thread(), "_muster_task", None) if _active else None


def main_module():
    """The script."""
    task = current()
    return sys.modules["__main__"] if task is None else task.main


class _Sys(types.ModuleType):
    """The module sys with a sys.argv for each task."""

    @property
    def argv(self):
        task = current()
        return self.__dict__["argv"] if task is None else task.argv

    @argv.setter
    def argv(self, value):
        task = current()
        if task is None:
            self.__dict__["argv"] = value
        else:
            task.argv = value


class _Environment(type(os.environ)):
    """os.environ, in which each task finds and changes its own TF_CONFIG."""

    def _own(self, key):
        task = current()
        return task.environment if task is not None and key in task.environment else None

    def __getitem__(self, key):
        own = self._own(key)
        return super().__getitem__(key) if own is None else own[key]

    def __setitem__(self, key, value):
        own = self._own(key)
        if own is None:
            super().__setitem__(key, value)
        else:
            own[key] = value

    def __iter__(self):
        task = current()
        own = {} if task is None else task.environment
        yield from own
        yield from (key for key in super().__iter__() if key not in own)

    def __len__(self):
        return sum(1 for _ in self)


class _Output(object):
    """A stream whose lines carry the name of the task that has written them."""

    _write_lock = threading.Lock()

    def __init__(self, stream):
        self._stream = stream
        self._partial = {}  # (task, thread) -> the line that it has begun

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text):
        task = current()
        before = "" if task is None else "%sout %s%s" % (FOR_LAUNCHER, task.name, FOR_LAUNCHER)
        # Only whole lines are written: `print` writes the end of a line in a second call, and threads would mix theirs.
        writer = task, threading.get_ident()
        with self._write_lock:
            *lines, rest = (self._partial.pop(writer, "") + text).split("\n")
            if rest:
                self._partial[writer] = rest
            if lines:
                self._stream.write("".join("%s%s\n" % (before, line) for line in lines))
                self._stream.flush()
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        with self._write_lock:
            self._stream.flush()

    def end_line(self):
        """Writes the lines that threads of the current task have begun."""
        task = current()
        with self._write_lock:
            begun = [self._partial.pop(writer) for writer in list(self._partial) if writer[0] is task]
        for line in begun:
            self.write(line + "\n")


def install():
    """From now on threads of this process may be tasks."""
    global _active
    _active = True
    sys.__class__ = _Sys
    os.environ.__class__ = _Environment
    sys.stdout, sys.stderr = _Output(sys.stdout), _Output(sys.stderr)
    start = threading.Thread.start

    def start_for_task(thread):
        if not hasattr(thread, "_muster_task"):
            thread._muster_task = current()
        start(thread)

    threading.Thread.start = start_for_task
