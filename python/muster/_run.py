"""`python -m muster._run script.py args`: the script's `tensorflow` is Muster."""
import runpy
import sys

from muster.names import alias
from muster.session import interruption


def _from_script(traceback, script):
    """The traceback from the script's own frame on, without the frames that started the script."""
    at = traceback
    while at is not None and at.tb_frame.f_code.co_filename != script:
        at = at.tb_next
    return at or traceback


def main():
    alias.install()
    sys.argv = sys.argv[1:]
    script = sys.argv[0]
    sys.path[0] = script.rsplit("/", 1)[0] if "/" in script else ""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit:
        raise
    except KeyboardInterrupt as e:
        interruption.end_open_sessions(e)
        interruption.print_error(type(e), e, _from_script(e.__traceback__, script))
        sys.exit(130)
    except BaseException as e:
        sys.excepthook(type(e), e, _from_script(e.__traceback__, script))
        sys.exit(1)


if __name__ == "__main__":
    main()
