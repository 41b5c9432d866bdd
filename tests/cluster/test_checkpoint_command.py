"""`muster checkpoint`: what is in a checkpoint, for people and for other programs."""
import json
import shutil
import subprocess

import numpy as np
import pytest

import muster as tf


def _checkpoint(program, *words):
    return subprocess.run([program, "checkpoint"] + [str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60)


def _save(prefix, tensors, specs=None):
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.raw_ops.SaveV2(
            prefix=str(prefix), tensor_names=[n for n, _ in tensors], shape_and_slices=specs or [""] * len(tensors),
            tensors=[tf.constant(value) for _, value in tensors]))


@pytest.fixture
def folder(tmp_path):
    for step in (1, 2):
        _save(tmp_path / ("m-%d" % step), [("global_step", np.int64(step)), ("w", np.array([[1, 2], [3, step]], np.float32)),
                                           ("names", np.array([b"a", b"b"])), ("flag", np.array([True]))])
    tf.train.update_checkpoint_state(str(tmp_path), str(tmp_path / "m-2"), [str(tmp_path / "m-1")])
    return tmp_path


def test_ls_lists_tensors_of_a_prefix_a_file_and_a_folder(muster_program, folder, golden):
    done = _checkpoint(muster_program, "ls", folder / "m-2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines[:-1]] == [
        ["flag", "bool", "[1]"], ["global_step", "int64", "[]"], ["names", "string", "[2]"], ["w", "float", "[2,2]"]]
    assert lines[-1] == "4 tensors, 8 elements, 25 B"
    assert _checkpoint(muster_program, "ls", folder / "m-2.index").stdout == done.stdout
    assert _checkpoint(muster_program, "ls", folder).stdout == done.stdout
    files = golden / "files"
    assert "in 2 parts" in _checkpoint(muster_program, "ls", files / "ckpt_parts" / "model.ckpt").stdout
    assert "7 tensors" in _checkpoint(muster_program, "ls", files / "ckpt_v1" / "model.ckpt-1").stdout


def test_a_copied_folder_shows_its_own_checkpoint(muster_program, folder, tmp_path_factory):
    """Its state file still names the folder that it was copied from."""
    copy = tmp_path_factory.mktemp("copies") / "copy"
    shutil.copytree(folder, copy)
    _save(folder / "m-2", [("only_in_the_first", np.float32(1))])
    for words in (["ls", copy], ["diff", copy, copy / "m-2"], ["show", copy, "w"]):
        done = _checkpoint(muster_program, *words)
        assert done.returncode == 0, done.stderr
        assert "only_in_the_first" not in done.stdout
        assert done.stderr == ("muster checkpoint: '%s/checkpoint' names '%s/m-2', in another folder; looking into '%s/m-2'\n"
                               % (copy, folder, copy))
    done = _checkpoint(muster_program, "ls", folder)
    assert "only_in_the_first" in done.stdout and done.stderr == ""
    # Where the copy has no such checkpoint the other one is shown, and named.
    for path in copy.glob("m-2.*"):
        path.unlink()
    done = _checkpoint(muster_program, "ls", copy)
    assert "only_in_the_first" in done.stdout and "looking into '%s/m-2'" % folder in done.stderr
    # TensorFlow's functions follow the file, and so do ours.
    assert tf.train.latest_checkpoint(str(copy)) == str(folder / "m-2")


def test_a_folder_in_another_form_is_the_same_folder(muster_program, folder, tmp_path_factory):
    (folder / "part").mkdir()
    _save(folder / "part" / "m-3", [("third", np.float32(1))])
    tf.train.update_checkpoint_state(str(folder), str(folder / "part" / "m-3"))
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(folder)
    for path in (folder, link, str(folder) + "/", str(folder) + "/part/.."):
        done = _checkpoint(muster_program, "ls", path)
        assert done.returncode == 0 and "third" in done.stdout and done.stderr == "", (path, done)


def test_show_prints_values(muster_program, folder):
    done = _checkpoint(muster_program, "show", folder, "w", "names")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ('w  float[2,2]\n  min 1  max 3  mean 2  deviation 0.707107\n  [[1 2][3 2]]\n'
                           'names  string[2]\n  ["a" "b"]\n')
    assert "global_step  int64[]\n  2\n" in _checkpoint(muster_program, "show", folder).stdout
    wrong = _checkpoint(muster_program, "show", folder, "no_such")
    assert wrong.returncode == 1 and "Key no_such not found in checkpoint" in wrong.stderr


def test_diff_names_what_changed(muster_program, folder):
    done = _checkpoint(muster_program, "diff", folder / "m-1", folder / "m-2")
    assert done.returncode == 1
    assert done.stdout == ("~ global_step  1 became 2\n~ w  1 of 4 elements changed, by up to 1\n"
                           "2 tensors differ, 2 are the same\n")
    same = _checkpoint(muster_program, "diff", folder / "m-1", folder / "m-1")
    assert same.returncode == 0 and same.stdout == "0 tensors differ, 4 are the same\n"
    _save(folder / "other", [("w", np.zeros([3], np.float32)), ("new", np.int32(1))])
    lines = _checkpoint(muster_program, "diff", folder / "m-1", folder / "other").stdout.splitlines()
    assert "- flag  bool[1]" in lines and "+ new  int32[]" in lines and "~ w  float[2,2] became float[3]" in lines


def test_export_writes_safetensors(muster_program, folder):
    out = folder / "m.safetensors"
    done = _checkpoint(muster_program, "export", folder, "--safetensors", out)
    assert done.returncode == 0, done.stderr
    assert "names (string) is left out" in done.stderr and "3 tensors, 25 B" in done.stdout
    data = out.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, elements = json.loads(data[8:8 + length]), data[8 + length:]
    assert length % 8 == 0 and {k: (v["dtype"], v["shape"]) for k, v in header.items()} == {
        "flag": ("BOOL", [1]), "global_step": ("I64", []), "w": ("F32", [2, 2])}
    begin, end = header["w"]["data_offsets"]
    assert np.frombuffer(elements[begin:end], np.float32).tolist() == [1, 2, 3, 2]
    assert sorted(o for v in header.values() for o in v["data_offsets"]) == [0, 8, 8, 24, 24, 25] and len(elements) == 25


def test_errors_name_the_file_and_the_rule(muster_program, folder):
    missing = _checkpoint(muster_program, "ls", folder / "none")
    assert missing.returncode == 1 and "none" in missing.stderr and "give a prefix" in missing.stderr
    (folder / "m-1.index").write_bytes(b"x" * 60)
    damaged = _checkpoint(muster_program, "ls", folder / "m-1")
    assert damaged.returncode == 1 and "bad magic number" in damaged.stderr and "m-1.index" in damaged.stderr
    unwritable = _checkpoint(muster_program, "export", folder, "--safetensors", folder / "no" / "x")
    assert unwritable.returncode == 1 and "No such file or directory" in unwritable.stderr
    assert _checkpoint(muster_program, "ls").returncode != 0
