"""Command lines and what a flag library makes of them: run with absl's flags (in TensorFlow's interpreter) and ours."""
import json
import sys

LINES = [
    "", "--name=x", "--name x", "-name=x", "-name x", "--name=", "--name=a=b", "--n=short", "-n short",
    "--count=3", "--count 3", "--count=0x10", "--count=-3", "--count=abc", "--count=1.5", "--count=", "--count",
    "--rate=0.5", "--rate=1e-3", "--rate=7", "--rate=x", "--rate=inf",
    "--on", "--noon", "--on=true", "--on=False", "--on=T", "--on=f", "--on=1", "--on=0", "--on=yes", "--on=no",
    "--on=", "--on false", "--noon=true", "--off", "--nooff",
    "--color=red", "--color=RED", "--color=pink", "--shade=DARK",
    "--items=a,b,c", "--items=", "--items=a", "--items=\"x,y\",z", "--words=a", "--many=1 --many=2", "--many=a",
    "--texts=a --texts b", "--bounded=5", "--bounded=11", "--bounded=-1", "--multi=red --multi=blue", "--multi=pink",
    "--name=1 --name=2", "pos --name=x", "--name=x pos --count=4 more", "-- --name=x", "--name=x -- --count=5 p",
    "--unknown", "--unknown=3", "--unknown 3 --name=x", "--nounknown", "--nam=x", "--naame=x", "-", "- --name=x",
    "--undefok=unknown --unknown=3", "--undefok=a,unknown --unknown", "--=x", "---name=x", "--required=r", "-on",
    "-noon", "--flagfile=FILE", "--count=9 --flagfile=FILE", "--flagfile=FILE --count=9", "--flagfile=MISSING",
    "--flagfile FILE pos",
]


def _define(flags, values, required):
    flags.DEFINE_string("name", "default", "a name", flag_values=values, short_name="n")
    flags.DEFINE_string("nothing", None, "no default", flag_values=values)
    flags.DEFINE_integer("count", 1, "a count", flag_values=values)
    flags.DEFINE_integer("bounded", 1, "a bounded count", lower_bound=0, upper_bound=10, flag_values=values)
    flags.DEFINE_float("rate", 0.25, "a rate", flag_values=values)
    flags.DEFINE_boolean("on", False, "a switch", flag_values=values)
    flags.DEFINE_bool("off", True, "another", flag_values=values)
    flags.DEFINE_enum("color", "blue", ["red", "blue"], "a color", flag_values=values)
    flags.DEFINE_enum("shade", None, ["dark", "light"], "a shade", case_sensitive=False, flag_values=values)
    flags.DEFINE_list("items", "p,q", "some items", flag_values=values)
    flags.DEFINE_spaceseplist("words", "p q", "some words", flag_values=values)
    flags.DEFINE_multi_integer("many", [7], "many numbers", flag_values=values)
    flags.DEFINE_multi_string("texts", None, "many texts", flag_values=values)
    flags.DEFINE_multi_enum("multi", None, ["red", "blue"], "many colors", flag_values=values)
    if required:
        flags.DEFINE_string("required", None, "needed", flag_values=values)
        flags.mark_flag_as_required("required", flag_values=values)


def _parse(flags, line, known_only, required):
    values = flags.FlagValues()
    _define(flags, values, required)
    try:
        rest = values(["program"] + line, known_only=known_only)
    except Exception as e:
        return {"error": type(e).__name__, "text": str(e)}
    found = {name: getattr(values, name) for name in values}
    return {"rest": rest, "values": found, "dict": values.flag_values_dict() == found,
            "given": sorted(name for name in values if values[name].present),
            "defaults": sorted(name for name in values if values[name].using_default_value)}


def results(flags, flag_file):
    made = []
    for line in LINES:
        words = [w.replace("FILE", flag_file) for w in line.split()]
        for known_only in (False, True):
            made.append([line, known_only, False, _parse(flags, words, known_only, False)])
        made.append([line, False, True, _parse(flags, words, False, True)])
    return made


if __name__ == "__main__":
    from absl import flags as absl_flags

    json.dump(results(absl_flags, sys.argv[1]), sys.stdout)
