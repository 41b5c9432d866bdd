"""The recordings in tests/golden/wire; its README says what they hold."""
import json
import lzma
import pathlib


def _read(path):
    """The text of a file, plain or compressed; None where it is neither."""
    packed = path.with_name(path.name + ".xz")
    if path.exists():
        return path.read_text(encoding="utf-8")
    return lzma.decompress(packed.read_bytes()).decode("utf-8") if packed.exists() else None


def messages(folder, scenario):
    """The exact messages of a scenario, in order of time; None where only its text was kept."""
    text = _read(pathlib.Path(folder) / "raw" / (scenario + ".jsonl"))
    return None if text is None else [json.loads(line) for line in text.splitlines()]


def transcript(folder, scenario):
    """The messages of a scenario as text."""
    text = _read(pathlib.Path(folder) / (scenario + ".txt"))
    if text is None:
        raise FileNotFoundError("%s has no recording of %s" % (folder, scenario))
    return text
