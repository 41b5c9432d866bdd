"""Where in the user's program the nodes of a graph were made, for the messages of those that fail."""
import bisect
import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_HIDDEN = (_PACKAGE, "<frozen ")


def _callers():
    """(code, offset) of the frames outside this package, innermost first; line numbers are computed on demand."""
    frame, found = sys._getframe(2), []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_HIDDEN):
            found.append((code, frame.f_lasti))
        frame = frame.f_back
    return found


def _line(code, offset):
    import dis

    line = code.co_firstlineno
    for start, number in dis.findlinestarts(code):
        if start > offset:
            break
        if number is not None:
            line = number
    return line


class CreationStacks(object):
    """Stacks by the number of the first node that each has made."""

    def __init__(self):
        self._firsts, self._stacks = [], []

    def note(self, first):
        """Nodes from number `first` on are made by the current call stack."""
        stack = _callers()
        while self._firsts and self._firsts[-1] > first:  # nodes have been removed
            self._firsts.pop()
            self._stacks.pop()
        if self._firsts and self._firsts[-1] == first:
            self._stacks[-1] = stack
        elif not self._stacks or self._stacks[-1] != stack:
            self._firsts.append(first)
            self._stacks.append(stack)

    def of(self, number):
        """traceback.FrameSummary of the frames that made a node, outermost first."""
        import traceback

        at = bisect.bisect_right(self._firsts, number) - 1
        if at < 0:
            return []
        return [traceback.FrameSummary(code.co_filename, _line(code, offset), code.co_name)
                for code, offset in reversed(self._stacks[at])]
