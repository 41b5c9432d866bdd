"""No file of golden values lies unused."""
import golden_cases


def test_every_file_is_compared_or_waits(root, golden):
    tests = "\n".join(p.read_text(encoding="utf-8") for folder in ("python/tests", "muster", "tests")
                      for p in sorted((root / folder).rglob("*")) if p.suffix in (".py", ".cc", ".cmake"))
    tests += (root / "CMakeLists.txt").read_text(encoding="utf-8")  # hands folders to C++ tests
    for path in sorted(golden.iterdir()):
        if path.suffix == ".md":
            continue
        used = '"%s"' % path.name in tests or "golden/%s\"" % path.name in tests
        waits = "all" in golden_cases.waiting(path.stem)
        assert used or waits, "%s is in no test and does not wait" % path.name
        assert not (used and waits), "%s is tested: take it out of golden_waiting.txt" % path.name
