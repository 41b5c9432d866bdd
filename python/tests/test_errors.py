"""tf.errors, and the files whose problems are raised as them."""
import os
import pickle

import pytest

import muster as tf

_NAMES = ["Cancelled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
          "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented",
          "Internal", "Unavailable", "DataLoss", "Unauthenticated"]


@pytest.mark.parametrize("code", range(1, 17))
def test_classes(code):
    cls = getattr(tf.errors, _NAMES[code - 1] + "Error")
    error = cls(None, None, "text")
    assert isinstance(error, tf.errors.OpError) and error.error_code == code and error.message == "text"
    assert error.op is None and error.node_def is None and str(error) == "text"
    assert tf.errors.exception_type_from_error_code(code) is cls
    assert tf.errors.error_code_from_exception_type(cls) == code
    constant = "".join("_" + c if c.isupper() else c for c in _NAMES[code - 1]).upper().lstrip("_")
    assert getattr(tf.errors, constant) == code
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls and copy.message == "text"


def test_unknown_codes():
    with pytest.raises(KeyError):
        tf.errors.exception_type_from_error_code(99)
    error = tf.errors.OpError(None, None, "text", 99)
    assert error.error_code == 99
    with tf.errors.raise_exception_on_not_ok_status() as status:
        assert status is None


def test_failing_op():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2], name="scope/x")
        checked = tf.check_numerics(x, "found", name="checked")
        with pytest.raises(tf.errors.InvalidArgumentError) as info:
            session.run(checked + 1, {x: [1, float("nan")]})
        error = info.value
        assert error.op is checked.op and error.node_def.name == "checked" and error.node_def.op == "CheckNumerics"
        assert error.error_code == tf.errors.INVALID_ARGUMENT and "found" in error.message
        with pytest.raises(tf.errors.InvalidArgumentError,
                           match="You must feed a value for placeholder tensor 'scope/x' with dtype float and shape "):
            session.run(checked)
        v = tf.Variable(1.0, name="v")
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value v"):
            session.run(v)


def test_graph_construction_errors():
    with tf.Graph().as_default() as graph:
        with pytest.raises(ValueError, match="'bad name' is not a valid node name|not a valid scope name"):
            tf.constant(1, name="bad name")
        with pytest.raises(ValueError, match="is not a valid scope name"):
            with tf.name_scope("bad scope"):
                pass
        with pytest.raises(TypeError):
            if tf.constant(True):
                pass
        with pytest.raises(TypeError):
            iter(tf.constant([1]))
        other = tf.Graph()
        with other.as_default():
            foreign = tf.constant(1)
        with pytest.raises(ValueError):
            graph.as_graph_element(foreign)
        with pytest.raises(AssertionError):
            tf.reset_default_graph()
        graph.finalize()
        with pytest.raises(RuntimeError, match="Graph is finalized and cannot be modified."):
            tf.constant(1)


# --- Files. ---
def test_files(tmp_path):
    path = str(tmp_path / "a" / "b" / "file.txt")
    gfile = tf.gfile
    with pytest.raises(tf.errors.NotFoundError, match="No such file or directory"):
        gfile.GFile(path).read()
    with pytest.raises(tf.errors.NotFoundError):
        gfile.GFile(path, "w").write("x")
    gfile.MakeDirs(os.path.dirname(path))
    gfile.MakeDirs(os.path.dirname(path))
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.MkDir(os.path.dirname(path))
    with gfile.GFile(path, "w") as f:
        f.write("one\ntwo\n")
        f.write(b"three")
        f.flush()
        assert f.size() == 13
        with pytest.raises(tf.errors.PermissionDeniedError, match="File isn't open for reading"):
            f.read()
    with gfile.FastGFile(path) as f:
        assert f.readline() == "one\n" and f.tell() == 4 and f.read(3) == "two"
        f.seek(0)
        assert list(f) == ["one\n", "two\n", "three"] and f.readline() == ""
        with pytest.raises(tf.errors.PermissionDeniedError, match="File isn't open for writing"):
            f.write("x")
    assert gfile.Open(path, "rb").read() == b"one\ntwo\nthree"
    with gfile.GFile(path, "a") as f:
        f.write("!")
    assert gfile.Stat(path).length == 14 and not gfile.Stat(path).is_directory
    with pytest.raises(tf.errors.InvalidArgumentError):
        gfile.GFile(path, "x")
    copy = str(tmp_path / "copy")
    gfile.Copy(path, copy)
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.Copy(path, copy)
    gfile.Copy(path, copy, overwrite=True)
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.Rename(path, copy)
    gfile.Rename(path, copy, overwrite=True)
    assert not gfile.Exists(path) and gfile.Exists(copy) and gfile.IsDirectory(str(tmp_path))
    assert sorted(gfile.ListDirectory(str(tmp_path))) == ["a", "copy"]
    assert gfile.Glob(str(tmp_path / "c*")) == [copy]
    assert [(d[len(str(tmp_path)):], s, f) for d, s, f in gfile.Walk(str(tmp_path))] == [
        ("", ["a"], ["copy"]), ("/a", ["b"], []), ("/a/b", [], [])]
    gfile.Remove(copy)
    with pytest.raises(tf.errors.NotFoundError):
        gfile.Remove(copy)
    gfile.DeleteRecursively(str(tmp_path / "a"))
    with pytest.raises(tf.errors.NotFoundError):
        gfile.ListDirectory(str(tmp_path / "a"))


def test_new_file_names(tmp_path):
    gfile = tf.io.gfile
    folder = str(tmp_path / "x" / "y")
    gfile.makedirs(folder)
    with gfile.GFile(folder + "/f", "w") as f:
        f.write("1")
    assert gfile.exists(folder) and gfile.isdir(folder) and gfile.listdir(folder) == ["f"]
    assert gfile.glob(folder + "/*") == [folder + "/f"] and gfile.stat(folder + "/f").length == 1
    gfile.copy(folder + "/f", folder + "/g")
    gfile.rename(folder + "/g", folder + "/h")
    gfile.remove(folder + "/h")
    assert [files for _, _, files in gfile.walk(folder)] == [["f"]]
    gfile.rmtree(str(tmp_path / "x"))
    assert not gfile.exists(folder)


def test_the_line_that_made_the_failing_op():
    with tf.Graph().as_default(), tf.Session() as session:
        missing = tf.placeholder(tf.float32, [2], name="missing")  # this line
        doubled = missing * 2
        with pytest.raises(tf.errors.InvalidArgumentError) as info:
            session.run(doubled)
        assert "Original stack trace" not in info.value.message
        assert "\n\nOriginal stack trace for 'missing':\n" in str(info.value)
        assert str(info.value).rstrip().endswith("# this line")
        frame = doubled.op.traceback[-1]
        assert frame.filename == __file__ and frame.line == "doubled = missing * 2"
        gradient = tf.gradients(doubled, missing)[0]
        assert gradient.op.traceback[-1].line == "gradient = tf.gradients(doubled, missing)[0]"


def test_a_failing_op_says_where_it_was_made():
    with tf.Graph().as_default():
        bad = tf.reshape(tf.placeholder_with_default([1.0, 2.0, 3.0], [None]), [2, 2], name="bad")
        x = tf.constant(1.0)
        gradient = tf.gradients(tf.square(x), x)[0]
        with pytest.raises(tf.errors.InvalidArgumentError) as info:
            tf.Session().run(bad)
    text = str(info.value)
    assert text.startswith(info.value.message + "\n\nOriginal stack trace for 'bad':\n")
    assert 'in test_a_failing_op_says_where_it_was_made\n    bad = tf.reshape(' in text
    # Nodes that the C++ core makes belong to the line that called it; our own frames do not help the user.
    last = gradient.op.traceback[-1]
    assert (last.filename, last.line[:8]) == (__file__, "gradient")


def test_an_error_without_an_op_is_its_message():
    assert str(tf.errors.AbortedError(None, None, "gone")) == "gone"
