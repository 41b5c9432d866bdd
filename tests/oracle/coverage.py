"""Which (op, type, kind) the oracle needs, and what the committed lists allow to be missing or different."""

import fnmatch
import pathlib

from cases import KINDS

HERE = pathlib.Path(__file__).resolve().parent
CHANCE = "by chance: "  # begins the reason of a difference that may also not show


def _lines(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()


def required_ops():
    return list(_lines(HERE / "required_ops.txt"))


def required(registry):
    """Every (op, typing, kind)."""
    return [(op, label, kind) for op in required_ops() for label, _ in registry.typings(op) for kind in KINDS]


class Entries:
    """A list of exceptions: `op type kind reason` per line; type and kind may be *. A kind may name one case by its note:
    `edge:division_by_zero`."""

    def __init__(self, path):
        self.path = path
        self.entries = [tuple(line.split(None, 3)) for line in _lines(path)]
        short = [e for e in self.entries if len(e) < 4]
        if short:
            raise ValueError(f"{path.name}: an entry is `op type kind reason`: {' '.join(short[0])}")

    def match(self, key):
        """The entry that stands for a key (op, typing, kind), or None."""
        for entry in self.entries:
            if all(fnmatch.fnmatchcase(part, pattern) for part, pattern in zip(key, entry)):
                return entry
        return None

    def match_case(self, case):
        """The entry that stands for a case, or None."""
        note = case.note.replace(" ", "_") + ("_gradient" if case.gradient else "")
        return self.match((case.op, case.typing, f"{case.kind}:{note}")) or self.match((case.op, case.typing, case.kind))


def known_gaps():
    return Entries(HERE / "known_gaps.txt")


def known_differences():
    return Entries(HERE / "known_differences.txt")


def judge(needed, outcomes, gaps, differences):
    """(problems, {key: why it is a gap}). `outcomes` is {key: [(case, difference or None)]}.

    A case that is listed as a difference does not fail.
    """
    problems, reasons, used = [], {}, set()
    wanted = set(needed)
    for key in list(needed) + [k for k in outcomes if k not in wanted]:
        good, wrong = 0, []
        for case, text in outcomes.get(key, []):
            entry = differences.match_case(case) if text is not None else None
            if entry is not None:
                used.add(entry)
                good += 1
            elif text is not None:
                wrong.append(f"{case}: {text}")
            else:
                good += 1
        if good and not wrong:
            continue
        if not wrong and key not in wanted:
            continue
        reasons[key] = wrong[0] if wrong else "no case"
        entry = gaps.match(key)
        if entry is not None:
            used.add(entry)
        else:
            problems.append(f"{' '.join(key)}: {reasons[key]}")
    for entries in (gaps, differences):
        for entry in entries.entries:
            if entry not in used and not entry[3].startswith(CHANCE):
                problems.append(f"{entries.path.name}: `{' '.join(entry[:3])}` is not a gap any more: remove it")
    return problems, reasons
