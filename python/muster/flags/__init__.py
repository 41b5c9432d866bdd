"""tf.flags: command-line flags in absl's grammar. FLAGS parses sys.argv when a flag is first read."""
import sys

from muster.flags.parsers import (ArgumentParser, BooleanParser, CantOpenFlagFileError, DuplicateFlagError, EnumParser,
                                 Error, FlagNameConflictsWithMethodError, FloatParser, IllegalFlagValueError,
                                 IntegerParser, ListParser, UnparsedFlagAccessError, UnrecognizedFlagError,
                                 ValidationError, WhitespaceSeparatedListParser)
from muster.flags.values import FLAGS, Flag, FlagValues, MultiFlag, main_name as _main_name


class FlagHolder(object):
    """What DEFINE_... returns."""

    def __init__(self, flag_values, flag):
        self._flag_values, self._flag = flag_values, flag

    name = property(lambda self: self._flag.name)
    default = property(lambda self: self._flag.default)
    value = property(lambda self: getattr(self._flag_values, self._flag.name))
    present = property(lambda self: bool(self._flag.present))


def _calling_module():
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "<unknown>") if frame is not None else "<unknown>"
    return _main_name() if name == "__main__" else name


def DEFINE_flag(flag, flag_values=FLAGS, module_name=None, required=False):
    if flag.module is None:
        flag.module = module_name or _calling_module()
    if required and flag.default is not None:
        raise ValueError("Required flag --%s needs to have None as default" % flag.name)
    flag_values[flag.name] = flag
    if required:
        mark_flag_as_required(flag.name, flag_values)
    return FlagHolder(flag_values, flag)


def DEFINE(parser, name, default, help, flag_values=FLAGS, serializer=None, required=False, short_name=None,
           boolean=False, multi=False):
    kind = MultiFlag if multi else Flag
    return DEFINE_flag(kind(parser, name, default, help, short_name, boolean), flag_values, required=required)


# Names of arguments in the releases before absl.
_OLD_ARGUMENTS = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def _accept_old_arguments(define):
    def wrapped(*args, **kwargs):
        for old, new in _OLD_ARGUMENTS.items():
            if old in kwargs:
                kwargs[new] = kwargs.pop(old)
        return define(*args, **kwargs)

    wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__ = define.__name__, define.__doc__, define
    return wrapped


@_accept_old_arguments
def DEFINE_string(name, default, help, flag_values=FLAGS, **args):
    return DEFINE(ArgumentParser(), name, default, help, flag_values, **args)


@_accept_old_arguments
def DEFINE_integer(name, default, help, lower_bound=None, upper_bound=None, flag_values=FLAGS, **args):
    return DEFINE(IntegerParser(lower_bound, upper_bound), name, default, help, flag_values, **args)


@_accept_old_arguments
def DEFINE_float(name, default, help, lower_bound=None, upper_bound=None, flag_values=FLAGS, **args):
    return DEFINE(FloatParser(lower_bound, upper_bound), name, default, help, flag_values, **args)


@_accept_old_arguments
def DEFINE_boolean(name, default, help, flag_values=FLAGS, **args):
    return DEFINE(BooleanParser(), name, default, help, flag_values, boolean=True, **args)


DEFINE_bool = DEFINE_boolean


@_accept_old_arguments
def DEFINE_enum(name, default, enum_values, help, flag_values=FLAGS, case_sensitive=True, **args):
    return DEFINE(EnumParser(enum_values, case_sensitive), name, default, help, flag_values, **args)


@_accept_old_arguments
def DEFINE_list(name, default, help, flag_values=FLAGS, **args):
    return DEFINE(ListParser(), name, default, help, flag_values, **args)


@_accept_old_arguments
def DEFINE_spaceseplist(name, default, help, flag_values=FLAGS, **args):
    return DEFINE(WhitespaceSeparatedListParser(), name, default, help, flag_values, **args)


def DEFINE_multi(parser, serializer, name, default, help, flag_values=FLAGS, **args):
    return DEFINE(parser, name, default, help, flag_values, multi=True, **args)


@_accept_old_arguments
def DEFINE_multi_string(name, default, help, flag_values=FLAGS, **args):
    return DEFINE(ArgumentParser(), name, default, help, flag_values, multi=True, **args)


@_accept_old_arguments
def DEFINE_multi_integer(name, default, help, lower_bound=None, upper_bound=None, flag_values=FLAGS, **args):
    return DEFINE(IntegerParser(lower_bound, upper_bound), name, default, help, flag_values, multi=True, **args)


@_accept_old_arguments
def DEFINE_multi_float(name, default, help, lower_bound=None, upper_bound=None, flag_values=FLAGS, **args):
    return DEFINE(FloatParser(lower_bound, upper_bound), name, default, help, flag_values, multi=True, **args)


@_accept_old_arguments
def DEFINE_multi_enum(name, default, enum_values, help, flag_values=FLAGS, case_sensitive=True, **args):
    return DEFINE(EnumParser(enum_values, case_sensitive), name, default, help, flag_values, multi=True, **args)


# --- Validators. ---
def register_validator(flag_name, checker, message="Flag validation failed", flag_values=FLAGS):
    flag = flag_values[flag_name]
    flag.validators.append((checker, message))
    if flag_values.is_parsed():
        flag_values._check([flag])


def validator(flag_name, message="Flag validation failed", flag_values=FLAGS):
    def decorate(function):
        register_validator(flag_name, function, message, flag_values)
        return function

    return decorate


def register_multi_flags_validator(flag_names, multi_flags_checker, message="Flags validation failed",
                                   flag_values=FLAGS):
    flag_values._joint_validators.append((list(flag_names), multi_flags_checker, message))


def mark_flag_as_required(flag_name, flag_values=FLAGS):
    register_validator(flag_name, lambda value: value is not None,
                       "Flag --%s must have a value other than None." % flag_name, flag_values)


def mark_flags_as_required(flag_names, flag_values=FLAGS):
    for name in flag_names:
        mark_flag_as_required(name, flag_values)


def mark_flags_as_mutual_exclusive(flag_names, required=False, flag_values=FLAGS):
    def check(values):
        count = sum(1 for value in values.values() if value is not None)
        return count == 1 if required else count <= 1

    register_multi_flags_validator(flag_names, check, "%s one of (%s) must have a value other than None." % (
        "Exactly" if required else "At most", ", ".join(flag_names)), flag_values)


def declare_key_flag(flag_name, flag_values=FLAGS):
    if flag_name not in flag_values:
        raise UnrecognizedFlagError(flag_name)


def adopt_module_key_flags(module, flag_values=FLAGS):
    """Kept for old programs: --help shows all flags of the program anyway."""
