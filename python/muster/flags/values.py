"""The flags of a program and their values, parsed from sys.argv when one is first read."""
import copy
import os
import re
import sys

from muster import _tasks
from muster.flags.parsers import (CantOpenFlagFileError, DuplicateFlagError, EnumParser, Error,
                                 FlagNameConflictsWithMethodError, IllegalFlagValueError, UnrecognizedFlagError,
                                 ValidationError)


def main_name():
    """The name of the program, which error texts give as the origin of flags of the main module."""
    return sys.argv[0] if sys.argv and sys.argv[0] else "__main__"


class Flag(object):
    """One flag: name, parser, default and present value."""

    multiple = False

    def __init__(self, parser, name, default, help, short_name=None, boolean=False, module=None):
        self.name, self.parser, self.short_name, self.boolean = name, parser, short_name, boolean
        self.help = help or "(no help available)"
        self.module = module
        self.allow_override = False
        self.present = 0
        self.using_default_value = True
        self.validators = []
        self._set_default(default)

    def _set_default(self, default):
        self.default_unparsed = default
        self.default = None if default is None else self._parsed(default)
        if self.using_default_value:
            self._value = self.default

    def _parsed(self, argument):
        try:
            return self.parser.parse(argument)
        except (TypeError, ValueError, OverflowError) as e:
            raise IllegalFlagValueError("flag --%s=%s: %s" % (self.name, argument, e))

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, value):
        self._value = value

    def parse(self, argument):
        self._value = self._parsed(argument)
        self.present += 1
        self.using_default_value = False

    def unparse(self):
        self._value = self.default
        self.using_default_value, self.present = True, 0

    def flag_type(self):
        return self.parser.flag_type()

    def serialized(self, value):
        if value is None:
            return ""
        if self.boolean:
            return "--%s%s" % ("" if value else "no", self.name)
        return "--%s=%s" % (self.name, self.parser.serialize(value))

    def serialize(self):
        return self.serialized(self._value)

    def default_text(self):
        if self.default is None:
            return None
        if self.boolean:
            return "'true'" if self.default else "'false'"
        return repr(self.parser.serialize(self.default))


class MultiFlag(Flag):
    """A flag that may be given several times; its value is the list of all."""

    multiple = True

    def _parsed(self, argument):
        items = argument if isinstance(argument, (list, tuple)) else [argument]
        return [super(MultiFlag, self)._parsed(item) for item in items]

    def parse(self, argument):
        new = self._parsed(argument)
        self._value = list(self._value) + new if self.present else new
        self.present += 1
        self.using_default_value = False

    def flag_type(self):
        return "multi " + self.parser.flag_type()

    def serialized(self, value):
        return "\n".join("--%s=%s" % (self.name, self.parser.serialize(v)) for v in value or ())

    def default_text(self):
        return None if self.default is None else repr(self.default)


class _FlagState(object):
    """Flags, their joint validators, and whether the command line has been parsed."""

    def __init__(self):
        self.flags, self.parsed, self.joint_validators, self.gnu = {}, False, [], True

    def add_missing(self, other):
        """Copies flags of modules that are imported once for all tasks of the process."""
        for name, flag in list(other.flags.items()):
            if name not in self.flags:
                own = copy.copy(flag)
                own.validators = list(flag.validators)
                for key in filter(None, (flag.name, flag.short_name)):
                    self.flags.setdefault(key, own)
        return self


class FlagValues(object):
    """All flags by name. Reading one parses sys.argv first, strictly, unless that has been done."""

    def __init__(self):
        self.__dict__["_shared_state"] = _FlagState()

    def _state(self):
        """The state of this task: tasks that share a process have separate values."""
        task = _tasks.current()
        shared = self.__dict__["_shared_state"]
        return shared if task is None else task.flags.setdefault(self, _FlagState()).add_missing(shared)

    _parsed = property(lambda self: self._state().parsed)
    _gnu = property(lambda self: self._state().gnu)
    _joint_validators = property(lambda self: self._state().joint_validators)

    # --- Flags as attributes. ---
    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):  # protocols of Python, never flags
            raise AttributeError(name)
        if name == "__flags":  # old programs look in here
            return self._flags()
        if not self._parsed:
            self(sys.argv)
        flag = self._flags().get(name)
        if flag is None:
            raise AttributeError(name)
        return flag.value

    def __setattr__(self, name, value):
        if name not in self._flags():
            raise AttributeError("%s: flags are defined by DEFINE_..., not by assignment" % name)
        flag = self._flags()[name]
        flag.value = value
        flag.using_default_value = False
        self._check([flag])

    def __delattr__(self, name):
        flag = self._flags().get(name)
        if flag is None:
            raise AttributeError(name)
        for key in [key for key, value in self._flags().items() if value is flag]:
            del self._flags()[key]

    def __getitem__(self, name):
        return self._flags()[name]

    def __setitem__(self, name, flag):
        existing = self._flags().get(name)
        if existing is not None and existing.module != flag.module and not (
                flag.allow_override or existing.allow_override):
            raise DuplicateFlagError(
                "The flag '%s' is defined twice. First from %s, Second from %s.  Description from first occurrence: %s"
                % (name, existing.module, flag.module, existing.help))
        if name in _METHODS:
            raise FlagNameConflictsWithMethodError("flag named %s conflicts with a method of FLAGS" % name)
        states = [self._state()]
        if _tasks.current() is not None and flag.module != main_name():
            states.append(self.__dict__["_shared_state"])
        for state in states:
            own = flag if state is states[0] else copy.copy(flag)
            state.flags[name] = own
            if flag.short_name:
                state.flags[flag.short_name] = own

    def __contains__(self, name):
        return name in self._flags()

    def __len__(self):
        return len(self._flags())

    def __iter__(self):
        return iter(self._flags())

    def __dir__(self):
        return sorted(self._flags())

    def _flags(self):
        return self._state().flags

    # --- Parsing. ---
    def __call__(self, argv, known_only=False):
        if isinstance(argv, (str, bytes)):
            raise TypeError("argv should be a tuple/list of strings, not bytes or string.")
        if not argv:
            raise ValueError("argv cannot be an empty list, and must contain the program name as the first element.")
        rest = self._parse(self.read_flags_from_files(argv[1:]), known_only)
        self.mark_as_parsed()
        self.validate_all_flags()
        return [argv[0]] + rest

    def _parse(self, args, known_only):
        unparsed, undefined, undefok = [], [], set()
        at = 0
        while at < len(args):
            arg = args[at]
            at += 1
            if not arg.startswith("-") or arg == "-":
                unparsed.append(arg)
                if not self._gnu:
                    break
                continue
            if arg == "--":
                if known_only:
                    unparsed.append(arg)
                break
            name, has_value, value = arg[2 if arg.startswith("--") else 1:].partition("=")
            if not name:
                unparsed.append(arg)
                continue
            flag = self._flags().get(name)
            negated = flag is None and name.startswith("no") and self._flags().get(name[2:])
            if name == "undefok" or flag is not None and not flag.boolean:
                if not has_value:
                    if at == len(args):
                        raise Error("Missing value for flag " + arg)
                    value = args[at]
                    at += 1
                if name == "undefok":
                    undefok.update(v.strip() for v in value.split(","))
                    undefok.update("no" + v.strip() for v in value.split(","))
                    continue
                flag.parse(value)
            elif flag is not None:
                flag.parse(value if has_value else "true")
            elif negated and negated.boolean:
                if has_value:
                    raise ValueError("%s does not take an argument" % arg)
                negated.parse("false")
            else:
                undefined.append((name, arg, len(unparsed)))
        undefined = [found for found in undefined if found[0] not in undefok]
        if undefined and not known_only:
            raise UnrecognizedFlagError(undefined[0][0], undefined[0][1], self._similar(undefined[0][0]))
        for _, arg, place in reversed(undefined):
            unparsed.insert(place, arg)
        return unparsed + list(args[at:])

    def _similar(self, name):
        import difflib

        return difflib.get_close_matches(name, list(self._flags()), cutoff=0.8)

    def read_flags_from_files(self, argv, force_gnu=True):
        """The arguments with those of every --flagfile in its place."""
        return self._with_files(list(argv), ())

    def _with_files(self, argv, inside):
        result, at = [], 0
        while at < len(argv):
            arg = argv[at]
            at += 1
            if arg == "--":
                return result + argv[at - 1:]
            match = re.match(r"--?flagfile(?:=(.*))?$", arg)
            if match is None:
                result.append(arg)
                continue
            name = match.group(1)
            if name is None:
                if at == len(argv):
                    raise IllegalFlagValueError("--flagfile with no argument")
                name = argv[at]
                at += 1
            name = os.path.expanduser(name.strip())
            if name in inside:
                print("Warning: Hit circular flagfile dependency. Ignoring flagfile: %s" % name, file=sys.stderr)
                continue
            if name:
                result += self._with_files(self._flag_file_lines(name), inside + (name,))
        return result

    @staticmethod
    def _flag_file_lines(name):
        try:
            with open(name) as f:
                lines = [line.strip() for line in f]
        except IOError as e:
            raise CantOpenFlagFileError("ERROR:: Unable to open flagfile: %s" % e)
        return [line for line in lines if line and not line.startswith(("#", "//"))]

    def _parse_flags(self, args=None):
        """For programs from before absl; returns the arguments that are not flags."""
        return self([sys.argv[0] if sys.argv else ""] + list(sys.argv[1:] if args is None else args), known_only=True)[1:]

    def is_parsed(self):
        return self._parsed

    def mark_as_parsed(self):
        self._state().parsed = True

    def unparse_flags(self):
        for flag in self._flags().values():
            flag.unparse()
        self._state().parsed = False

    def set_gnu_getopt(self, gnu_getopt=True):
        self._state().gnu = gnu_getopt

    def is_gnu_getopt(self):
        return self._gnu

    # --- Validation. ---
    def validate_all_flags(self):
        self._check(self._unique())
        for names, function, message in self._joint_validators:
            if not function({name: self._flags()[name].value for name in names}):
                raise IllegalFlagValueError("flags %s: %s" % (
                    ", ".join("%s=%s" % (name, self._flags()[name].value) for name in names), message))

    def _check(self, flags):
        for flag in flags:
            for function, message in flag.validators:
                try:
                    good = function(flag.value)
                except ValidationError as e:
                    good, message = False, str(e)
                if not good:
                    raise IllegalFlagValueError("flag --%s=%s: %s" % (flag.name, flag.value, message))

    # --- The whole set. ---
    def _unique(self):
        return list({id(flag): flag for flag in self._flags().values()}.values())

    def flag_values_dict(self):
        return {name: flag.value for name, flag in self._flags().items()}

    def set_default(self, name, value):
        if name not in self._flags():
            raise UnrecognizedFlagError(name)
        flag = self._flags()[name]
        flag._set_default(value)
        self._check([flag])

    def get_flag_value(self, name, default):
        flag = self._flags().get(name)
        return default if flag is None or flag.value is None else flag.value

    def remove_flag_values(self, flag_values):
        for name in list(flag_values):
            if name in self._flags():
                delattr(self, name)

    def append_flag_values(self, flag_values):
        for name, flag in flag_values._flags().items():
            if name == flag.name:
                self[name] = flag

    def flags_into_string(self):
        parts = [flag.serialize() for flag in self._unique() if flag.value is not None]
        return "".join(part + "\n" for part in parts)

    def append_flags_into_file(self, filename):
        with open(filename, "a") as out:
            out.write(self.flags_into_string())

    def get_help(self, prefix="", include_special_flags=True):
        modules = {}
        for flag in self._unique():
            modules.setdefault(flag.module, []).append(flag)
        main = main_name()
        return "\n\n".join(self._module_help(m, modules[m], prefix)
                           for m in sorted(modules, key=lambda m: (m != main, str(m))))

    def module_help(self, module):
        name = module if isinstance(module, str) else module.__name__
        return self._module_help(name, self.get_key_flags_for_module(name), "")

    def main_module_help(self):
        return self.module_help(main_name())

    def get_key_flags_for_module(self, module):
        name = module if isinstance(module, str) else module.__name__
        return [flag for flag in self._unique() if flag.module == name]

    @staticmethod
    def _module_help(module, flags, prefix):
        lines = ["%s%s:" % (prefix, module)]
        for flag in sorted(flags, key=lambda f: f.name):
            head = "-%s,--" % flag.short_name if flag.short_name else "--"
            text = "%s%s%s: " % (head, "[no]" if flag.boolean else "", flag.name)
            if isinstance(flag.parser, EnumParser):
                text += "<%s>: " % "|".join(flag.parser.enum_values)
            lines.append("%s  %s%s" % (prefix, text, flag.help))
            if flag.multiple:
                lines.append("%s    repeat this option to specify a list of values" % prefix)
            if flag.default_text() is not None:
                lines.append("%s    (default: %s)" % (prefix, flag.default_text()))
            if flag.parser.syntactic_help:
                lines.append("%s    (%s)" % (prefix, flag.parser.syntactic_help))
        return "\n".join(lines)

    def __str__(self):
        return self.get_help()


_METHODS = frozenset(name for name in vars(FlagValues) if not name.startswith("_"))
FLAGS = FlagValues()
