"""unity.py FOLDER FILE...: puts sources together that can be compiled as one, writes FOLDER/<group>.cc, which include them,
and prints the sources to compile instead of the files (relative to the current folder, which the includes are relative to as well).

Most of what a file takes to compile is headers and templates that its neighbours use too. Files of one group share their unnamed
namespaces, so one that declares a name for itself does not meet another that declares it, or includes a header that does.

CMake's own UNITY_BUILD puts any neighbours together. Of the 4,248 names that our files declare in unnamed namespaces 274 are declared
by several files of one target (678 declarations, 546 of them in ops, most often InferShape, Differentiate and Run), and all
of them would need longer names that say no more. The patterns below need not be right about C++: a name that they miss is an error of the
compiler, one that they see where there is none costs a group.
"""
import collections
import os
import re
import sys

LINES = 1500  # of a group: large enough to save, small enough to spread over cores

INCLUDE = re.compile(r'#include "([^"]+)"')
# At the beginning of a line: nothing in a function or a class is.
TYPE = re.compile(r"(?:class|struct|union|enum class|enum|using|namespace)\s+(\w+)")
VALUE = re.compile(r"[\w:<][\w:<>,&*. ]*?[ &*>](\w+)\s*(?:\(|=|\{|\[|;)")


class Names:
    """What files declare outside of classes."""

    def __init__(self):
        self._headers = {}

    def of_text(self, text):
        """(names in unnamed namespaces, the others)"""
        local, shared, unnamed = set(), set(), False
        for line in text.splitlines():
            if line.startswith("namespace {"):
                unnamed = True
            elif line.startswith("}  // namespace"):
                unnamed = unnamed and line.strip() != "}  // namespace"
            elif line[:1].isalpha():
                found = TYPE.match(line) or VALUE.match(line)
                if found and found.group(1) != "muster":
                    (local if unnamed or line.startswith("static ") else shared).add(found.group(1))
        return local, shared

    def of_headers(self, text):
        """Those of all headers that the text includes, and that they include."""
        result = set()
        for header in INCLUDE.findall(text):
            if header not in self._headers:
                self._headers[header] = set()  # of one that includes itself
                if os.path.exists(header):
                    with open(header) as file:
                        content = file.read()
                    local, shared = self.of_text(content)
                    self._headers[header] = local | shared | self.of_headers(content)
            result |= self._headers[header]
        return result


class Group:
    def __init__(self):
        self.files = []
        self.lines = 0
        self.local = set()
        self.met = set()

    def takes(self, lines, local, met):
        return self.lines + lines <= LINES and not self.local & met and not self.met & local

    def add(self, file, lines, local, met):
        self.files.append(file)
        self.lines += lines
        self.local |= local
        self.met |= met


def groups_of(files):
    """Lists of files, in an order that depends on nothing but the files."""
    names = Names()
    folders = collections.defaultdict(list)
    for path in sorted(files):
        with open(path) as file:
            text = file.read()
        local, shared = names.of_text(text)
        facts = (path, text.count("\n"), local, local | shared | names.of_headers(text))
        groups = folders[os.path.dirname(path)]
        group = next((group for group in groups if group.takes(*facts[1:])), None)
        if group is None:
            group = Group()
            groups.append(group)
        group.add(*facts)
    return {folder: [group.files for group in groups] for folder, groups in folders.items()}


def main():
    target, files = sys.argv[1], sys.argv[2:]
    os.makedirs(target, exist_ok=True)
    result = []
    for folder, groups in groups_of(files).items():
        for number, group in enumerate(groups):
            if len(group) == 1:
                result += group
                continue
            path = os.path.join(target, "%s_%d.cc" % (folder.replace("/", "_"), number))
            text = "".join('#include "%s"\n' % file for file in group)
            if not os.path.exists(path) or open(path).read() != text:
                with open(path, "w") as file:
                    file.write(text)
            result.append(path)
    print(";".join(result))


if __name__ == "__main__":
    main()
