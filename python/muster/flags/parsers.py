"""How the text of a command-line flag becomes its value, and back; what may be wrong with flags."""
import csv
import io


class Error(Exception):
    """Base of all problems with flags."""


class CantOpenFlagFileError(Error):
    pass


class DuplicateFlagError(Error):
    pass


class IllegalFlagValueError(Error):
    pass


class UnparsedFlagAccessError(Error):
    pass


class ValidationError(Error):
    pass


class FlagNameConflictsWithMethodError(Error):
    pass


class UnrecognizedFlagError(Error):
    def __init__(self, flagname, flagvalue="", suggestions=None):
        self.flagname, self.flagvalue = flagname, flagvalue
        tip = ". Did you mean: %s ?" % ", ".join(suggestions) if suggestions else ""
        super(UnrecognizedFlagError, self).__init__("Unknown command line flag '%s'%s" % (flagname, tip))


# --- Parsers: text (or a default of the right type) to value, and back. ---
class ArgumentParser(object):
    syntactic_help = ""

    def parse(self, argument):
        if not isinstance(argument, str):
            raise TypeError("flag value must be a string, found %r" % (argument,))
        return argument

    def flag_type(self):
        return "string"

    def serialize(self, value):
        return str(value)


class _Number(ArgumentParser):
    kind, article, type_name = int, "an", "integer"

    def __init__(self, lower_bound=None, upper_bound=None):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        self.syntactic_help = self._help()

    def _help(self):
        text = "%s %s" % (self.article, self.type_name)
        low, high = self.lower_bound, self.upper_bound
        if low is not None and high is not None:
            return "%s in the range [%s, %s]" % (text, low, high)
        if low == 0:
            return "a non-negative " + self.type_name
        if low == 1 and self.kind is int:
            return "a positive " + self.type_name
        if low is not None:
            return "%s >= %s" % (text, low)
        if high is not None:
            return "%s <= %s" % (text, high)
        return text

    def parse(self, argument):
        value = self.convert(argument)
        if (self.lower_bound is not None and value < self.lower_bound) or (
                self.upper_bound is not None and value > self.upper_bound):
            raise ValueError("%s is not %s" % (value, self.syntactic_help))
        return value

    def flag_type(self):
        return "int" if self.kind is int else "float"


class IntegerParser(_Number):
    def convert(self, argument):
        if isinstance(argument, str):
            base = 10
            if len(argument) > 2 and argument[0] == "0":
                base = {"o": 8, "x": 16}.get(argument[1], 10)
            return int(argument, base)
        if isinstance(argument, int) and not isinstance(argument, bool):
            return argument
        raise TypeError("Expect argument to be a string or int, found %s" % type(argument))


class FloatParser(_Number):
    kind, article, type_name = float, "a", "number"

    def convert(self, argument):
        if isinstance(argument, (str, int, float)) and not isinstance(argument, bool):
            return float(argument)
        raise TypeError("Expect argument to be a string, int, or float, found %s" % type(argument))


class BooleanParser(ArgumentParser):
    def parse(self, argument):
        if isinstance(argument, str):
            if argument.lower() in ("true", "t", "1"):
                return True
            if argument.lower() in ("false", "f", "0"):
                return False
            raise ValueError("Non-boolean argument to boolean flag", argument)
        if isinstance(argument, (int, float)) and argument in (0, 1):
            return bool(argument)
        raise TypeError("Non-boolean argument to boolean flag", argument)

    def flag_type(self):
        return "bool"


class EnumParser(ArgumentParser):
    def __init__(self, enum_values, case_sensitive=True):
        if not enum_values:
            raise ValueError("enum_values cannot be empty, found \"%s\"" % enum_values)
        self.enum_values, self.case_sensitive = list(enum_values), case_sensitive

    def parse(self, argument):
        for value in self.enum_values:
            if argument == value or (not self.case_sensitive and str(argument).upper() == value.upper()):
                return value
        raise ValueError("value should be one of <%s>" % "|".join(self.enum_values))

    def flag_type(self):
        return "string enum"


class ListParser(ArgumentParser):
    syntactic_help = "a comma separated list"

    def parse(self, argument):
        if isinstance(argument, (list, tuple)):
            return list(argument)
        if not argument:
            return []
        try:
            return [part.strip() for part in next(csv.reader([argument], strict=True))]
        except csv.Error as e:
            raise ValueError("Unable to parse the value %r as a comma separated list: %s" % (argument, e))

    def flag_type(self):
        return "comma separated list of strings"

    def serialize(self, value):
        text = io.StringIO()
        csv.writer(text).writerow([str(v) for v in value])
        return text.getvalue().strip()


class WhitespaceSeparatedListParser(ListParser):
    syntactic_help = "a whitespace separated list"

    def parse(self, argument):
        return list(argument) if isinstance(argument, (list, tuple)) else (argument or "").split()

    def flag_type(self):
        return "whitespace separated list of strings"

    def serialize(self, value):
        return " ".join(str(v) for v in value)
