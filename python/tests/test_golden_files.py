"""No file of golden values is unused."""


def test_every_file_is_compared(root, golden):
    tests = "\n".join(p.read_text(encoding="utf-8") for folder in ("python/tests", "muster", "tests")
                      for p in sorted((root / folder).rglob("*")) if p.suffix in (".py", ".cc", ".cmake"))
    tests += (root / "CMakeLists.txt").read_text(encoding="utf-8")  # hands folders to C++ tests
    for path in sorted(golden.iterdir()):
        if path.suffix == ".md":
            continue
        used = '"%s"' % path.name in tests or "golden/%s\"" % path.name in tests
        assert used, "%s is in no test" % path.name
