"""The graphs and sessions that `with` blocks of this thread have made the default ones."""
import contextlib
import threading


class DefaultStack(threading.local):
    def __init__(self):
        super(DefaultStack, self).__init__()
        self._stack = []

    def top(self):
        return self._stack[-1] if self._stack else None

    @contextlib.contextmanager
    def enter(self, item):
        self._stack.append(item)
        try:
            yield item
        finally:
            if not self._stack or self._stack[-1] is not item:
                if item in self._stack:
                    self._stack.remove(item)
                raise AssertionError("Nesting violated for default stack of %s objects" % type(item).__name__)
            self._stack.pop()

    def push(self, item):
        self._stack.append(item)

    def remove(self, item):
        if item in self._stack:
            self._stack.remove(item)

    def clear(self):
        del self._stack[:]


graph_stack = DefaultStack()
session_stack = DefaultStack()
functions_being_built = 0  # in all threads; while it is 0, reading a tensor needs no check for captures


def count_functions_being_built(change):
    global functions_being_built
    functions_being_built += change


def get_default_session():
    return session_stack.top()
