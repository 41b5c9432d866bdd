"""What the tests of this folder use of pytest, for machines that have none (on_gpu.py)."""
import unittest


def fixture(*_, **__):
    return lambda function: function


def skip(reason):
    raise unittest.SkipTest(reason)


def fail(reason):
    raise AssertionError(reason)


class mark:
    @staticmethod
    def parametrize(name, values, ids=None):
        def keep(function):
            function.parametrized = (name, values)
            return function
        return keep
