"""The console script of a package installed by pip: the command itself is a program inside the package."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "muster")
    # `muster run` starts the interpreter that the package was installed for, unless another one is given.
    environment = dict(os.environ, MUSTER_INSTALLED_PYTHON=sys.executable)
    os.execve(program, [program, *sys.argv[1:]], environment)
