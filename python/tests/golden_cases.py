"""Where the golden cases are."""
import json
import pathlib

_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"


def load(name):
    with open(_TESTS / "golden" / name, encoding="utf-8") as f:
        return json.load(f)


def folder(name):
    return _TESTS / "golden" / name
