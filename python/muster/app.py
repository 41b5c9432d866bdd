"""tf.app: run() parses the flags and calls main. Unknown flags stay in the arguments that main gets."""
import sys

from muster import _tasks, flags

_HELP_FLAGS = (("help", "show this help"), ("helpfull", "show full help"), ("helpshort", "show this help"))


class UsageError(Exception):
    """A problem with how the program was called: shown with the usage, without a traceback."""

    def __init__(self, message, exitcode=1):
        super(UsageError, self).__init__(message)
        self.exitcode = exitcode


def usage(shorthelp=False, writeto_stdout=False, detailed_error=None, exitcode=None):
    """Prints what the program is for and its flags."""
    out = sys.stdout if writeto_stdout else sys.stderr
    text = getattr(_tasks.main_module(), "__doc__", None) or "\nUSAGE: %s [flags]\n" % sys.argv[0]
    print(text.replace("%s", sys.argv[0]) if "%s" in text else text, file=out)
    print("flags:\n", file=out)
    print(flags.FLAGS.main_module_help() if shorthelp else flags.FLAGS.get_help(), file=out)
    if shorthelp:
        print("\nTry --helpfull to get a list of all flags.", file=out)
    if detailed_error is not None:
        print("\n%s" % detailed_error, file=out)
    if exitcode is not None:
        sys.exit(exitcode)


def _define_help_flags():
    for name, text in _HELP_FLAGS:
        if name not in flags.FLAGS:
            flags.DEFINE_flag(flags.Flag(flags.BooleanParser(), name, False, text, boolean=True, module=__name__))


def run(main=None, argv=None):
    """Parses the flags, calls main([program] + the rest) and exits with what it returns."""
    main = main or _tasks.main_module().main
    _define_help_flags()
    arguments = list(sys.argv if argv is None else argv)
    # Help is shown even where a required flag is missing.
    for argument in arguments[1:]:
        if argument == "--":
            break
        if argument.lstrip("-") in ("help", "helpfull", "helpshort") and argument.startswith("-"):
            usage(shorthelp=argument.lstrip("-") != "helpfull", writeto_stdout=True, exitcode=1)
    rest = flags.FLAGS(arguments, known_only=True)
    try:
        sys.exit(main(rest))
    except UsageError as error:
        usage(shorthelp=True, detailed_error=error, exitcode=error.exitcode)
