"""`python -m muster._run script.py args`: the script's `tensorflow` is Muster."""
import runpy
import sys

from muster import _alias


def main():
    _alias.install()
    sys.argv = sys.argv[1:]
    script = sys.argv[0]
    sys.path[0] = script.rsplit("/", 1)[0] if "/" in script else ""
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
