"""tf.flags and tf.app: the grammar against absl's, and programs run as programs."""
import json
import subprocess
import sys

import pytest

import flag_cases
from muster import flags

_PROGRAM = '''"""A program."""
import sys
import tensorflow as tf

tf.app.flags.DEFINE_string("job", "worker", "the job")
tf.flags.DEFINE_integer(flag_name="task", default_value=0, docstring="the task")
tf.app.flags.DEFINE_boolean("sync", False, "wait for all")
FLAGS = tf.app.flags.FLAGS


def main(argv):
    print(FLAGS.job, FLAGS.task, FLAGS.sync, argv[1:])
    return 3 if FLAGS.task == 3 else None


if __name__ == "__main__":
    %s
'''


def _run(tmp_path, ending, *arguments):
    script = tmp_path / "program.py"
    script.write_text(_PROGRAM % ending)
    return subprocess.run([sys.executable, "-m", "muster._run", str(script), *arguments], capture_output=True,
                          text=True, timeout=60)


@pytest.fixture(scope="module")
def flag_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("flags") / "file"
    path.write_text("# a comment\n--name=from_file\n\n--count=42\n// another\n--noon\n")
    return str(path)


def _comparable(result):
    """Texts may differ in details; what a program can act on may not."""
    if "error" in result:
        return {"error": result["error"]}
    return result


def test_grammar_is_that_of_absl(tf_python, flag_file):
    answer = subprocess.run([tf_python, flag_cases.__file__, flag_file], check=True, capture_output=True, text=True)
    theirs = json.loads(answer.stdout)
    ours = json.loads(json.dumps(flag_cases.results(flags, flag_file)))
    assert len(ours) == len(theirs)
    for mine, expected in zip(ours, theirs):
        assert mine[:3] + [_comparable(mine[3])] == expected[:3] + [_comparable(expected[3])]
        if "error" in mine[3] and mine[3]["error"] in ("IllegalFlagValueError", "UnrecognizedFlagError"):
            tip = ". Did you mean"  # what to propose is a matter of taste
            assert mine[3]["text"].split(tip)[0] == expected[3]["text"].split(tip)[0]


def test_program(tmp_path):
    run = _run(tmp_path, "tf.app.run()", "--job=ps", "--task", "2", "--sync")
    assert run.stdout == "ps 2 True []\n" and run.returncode == 0
    assert _run(tmp_path, "tf.app.run()", "--task=3").returncode == 3
    run = _run(tmp_path, "tf.app.run(main=main)", "--unknown=1", "--job", "x", "left", "--", "--task=1")
    assert run.stdout == "x 0 False ['--unknown=1', 'left', '--', '--task=1']\n"
    run = _run(tmp_path, "tf.app.run(argv=['p', '--task=1', 'rest'])")
    assert run.stdout == "worker 1 False ['rest']\n"


def test_program_without_run(tmp_path):
    """The first look at a flag parses the command line, and minds unknown flags."""
    assert _run(tmp_path, "main(sys.argv)", "--task=1").stdout == "worker 1 False ['--task=1']\n"
    run = _run(tmp_path, "main(sys.argv)", "--unknown=1")
    assert run.returncode == 1 and "UnrecognizedFlagError: Unknown command line flag 'unknown'" in run.stderr


def test_problems_of_a_program(tmp_path):
    run = _run(tmp_path, "tf.app.run()", "--task=many")
    assert run.returncode == 1
    assert "IllegalFlagValueError: flag --task=many: invalid literal for int() with base 10: 'many'" in run.stderr
    run = _run(tmp_path, "tf.flags.mark_flag_as_required('job'); FLAGS.job = 'x'; FLAGS.set_default('job', None); "
                         "tf.app.run()")
    assert run.returncode == 0
    run = _run(tmp_path, "tf.flags.DEFINE_string('need', None, ''); tf.flags.mark_flag_as_required('need'); tf.app.run()")
    assert run.returncode == 1 and "flag --need=None: Flag --need must have a value other than None." in run.stderr


def test_help(tmp_path):
    run = _run(tmp_path, "tf.app.run()", "--help")
    assert run.returncode == 1
    for part in ("A program.", "--job: the job", "(default: 'worker')", "--[no]sync: wait for all", "(an integer)",
                 "Try --helpfull to get a list of all flags."):
        assert part in run.stdout, part
    assert "--[no]helpshort" in _run(tmp_path, "tf.app.run()", "--helpfull").stdout


def test_flag_values():
    values = flags.FlagValues()
    holder = flags.DEFINE_integer("x", 1, "help", flag_values=values)
    assert "x" in values and len(values) == 1 and list(values) == ["x"]
    values.x = 5  # before parsing: kept by it
    values(["p"])
    assert values.x == 5 and holder.value == 5 and values.is_parsed()
    with pytest.raises(AttributeError):
        values.y
    with pytest.raises(AttributeError):
        values.y = 1
    assert getattr(values, "__flags")["x"].value == 5 and values["x"].default == 1
    assert values.flags_into_string() == "--x=5\n"
    del values.x
    assert "x" not in values


def test_duplicates():
    values = flags.FlagValues()

    def define(module):
        exec("import muster.flags as f\nf.DEFINE_string('twice', '', 'first', flag_values=values)",
             {"__name__": module, "values": values})

    define("one")
    define("one")  # a module that is loaded again
    with pytest.raises(flags.DuplicateFlagError, match="The flag 'twice' is defined twice. First from one, Second from "
                                                       "two.  Description from first occurrence: first"):
        define("two")


def test_validators():
    values = flags.FlagValues()
    flags.DEFINE_integer("even", 2, "", flag_values=values)
    flags.DEFINE_string("a", None, "", flag_values=values)
    flags.DEFINE_string("b", None, "", flag_values=values)
    flags.register_validator("even", lambda v: v % 2 == 0, "must be even", flag_values=values)
    flags.mark_flags_as_mutual_exclusive(["a", "b"], flag_values=values)
    with pytest.raises(flags.IllegalFlagValueError, match="flag --even=3: must be even"):
        values(["p", "--even=3"])
    with pytest.raises(flags.IllegalFlagValueError):
        values(["p", "--even=2", "--a=1", "--b=2"])
    with pytest.raises(flags.IllegalFlagValueError):
        flags.DEFINE_integer("bad_default", "x", "", flag_values=values)
