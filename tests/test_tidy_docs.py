"""The checker of documents finds links, paths, identifiers and citations that lead nowhere."""

import pytest
import tidy_docs

GUIDE = """# A guide

## What is *there*: `x`

## Twice

## Twice

```
# no heading
```
"""
DOCUMENTS = {"docs/guide.md": GUIDE}
NAMES = {"README.md", "docs/guide.md", "muster/base/log.h"}
REFERENCES = {"wire-protocol": "# The protocol\n\n## 3. Steps\n\n### 3.1 RunStep, and its reply\n",
              "file-formats": "# Files\n\n## 1. Records\n"}


def test_anchors_are_those_of_the_headings():
    assert tidy_docs.anchors(GUIDE) == {"a-guide", "what-is-there-x", "twice", "twice-1"}


@pytest.mark.parametrize("text", [
    "[a](guide.md)", "[a](guide.md#twice-1)", "[a](../muster/base)", "[a](#twice)", "[a](https://example.org/x.md)",
    "```\n[a](nowhere.md)\n```"])
def test_links_that_lead_somewhere(text):
    assert not list(tidy_docs.link_errors("docs/guide.md", GUIDE + text, {"docs/guide.md": GUIDE + text}, NAMES))


@pytest.mark.parametrize("text", ["[a](nowhere.md)", "[a](guide.md#twice-2)", "[a](#no-heading)", "![a](picture.svg)",
                                  "[a](../docs/guide.md#A-guide)"])
def test_links_that_lead_nowhere(text):
    error, = tidy_docs.link_errors("docs/other.md", "\n" + text, DOCUMENTS, NAMES | {"docs/other.md"})
    assert error.startswith("docs/other.md:2: the link to ")


def test_paths_in_backquotes():
    assert not list(tidy_docs.path_errors("README.md", "`muster/base`, `muster/*/log.h`, `a/b`, `muster/<layer>/x`", NAMES))
    assert list(tidy_docs.path_errors("README.md", "`docs/guide.md` and\n`muster/bass/`", NAMES)) == [
        "README.md:2: there is no muster/bass"]


KNOWN = tidy_docs.known_identifiers({
    "a.h": "class ABSL_LOCKABLE FastLink {\n  void Call();\n};\nnamespace muster::fast {}\nstruct Packet {};\n",
    "a_test.cc": "// a Link\nTEST_F(LinkTest, AKilledTaskFailsTheStep) {}\n", "b.py": "class ShardQueue(object):\n"})


@pytest.mark.parametrize("text", ["`FastLink::Call`", "`fast::Packet`", "`tf.data.ShardQueue`", "`AKilledTask...`", "`std::vector`",
                                  "`Call()`", "`snake_case`", "`--Flag`", "`ABORTED`", "```\n`Nothing`\n```"])
def test_identifiers_that_the_sources_have(text):
    assert not list(tidy_docs.identifier_errors("README.md", text, KNOWN))


@pytest.mark.parametrize("text, missing", [
    ("`Evaluator`", "Evaluator"), ("`Link::Call`", "Link"), ("`tf.data.ShardList`", "ShardList"), ("`AStoppedTask...`", "AStoppedTask"),
    ("`AKilled`", "AKilled")])
def test_identifiers_that_they_do_not_have(text, missing):
    assert list(tidy_docs.identifier_errors("README.md", "\n" + text, KNOWN)) == [f"README.md:2: the sources have no {missing}"]


def test_headings_need_a_space():
    assert not list(tidy_docs.heading_errors("README.md", "# a\n## b\n```\n#!/bin/bash\n```\n see #12"))
    assert list(tidy_docs.heading_errors("README.md", "\n#dashboard\n")) == [
        "README.md:2: no heading without a space after '#'"]


def test_modules_that_the_bindings_name():
    names = {"python/muster/train/hooks.py", "python/muster/data/__init__.py"}
    text = '#include "muster/muster.h"  // muster.train.hooks, muster.train.hooks.Saver, muster.data.Dataset'
    assert not list(tidy_docs.module_errors("python/bindings/a.cc", text, names))
    assert list(tidy_docs.module_errors("python/bindings/a.cc", "// see\n// muster.hooks", names)) == [
        "python/bindings/a.cc:2: there is no module muster.hooks"]


def test_files_that_code_names():
    assert not list(tidy_docs.mention_errors("a.cc", "// See docs/guide.md. out/docs/x.md docs/x.mdx", NAMES))
    assert list(tidy_docs.mention_errors("a.cc", "// See docs/gone.md.", NAMES)) == ["a.cc:1: there is no docs/gone.md"]


@pytest.mark.parametrize("text", [
    "// See wire-protocol §3 and §3.1.", "// See wire-protocol\n// §3.1", '// file-formats: "Records"', "no citation"])
def test_citations_that_resolve(text):
    assert not list(tidy_docs.citation_errors("muster/a.h", text, REFERENCES))


@pytest.mark.parametrize("text", [
    "// See wire-protocol §3.2.", "// See §3.1.", "// wire-protocol §3, file-formats §3", '// file-formats: "Steps"',
    "// wire-protocol §3.1 to §3.4"])
def test_citations_that_do_not(text):
    assert len(list(tidy_docs.citation_errors("muster/a.h", text, REFERENCES))) == 1


def test_a_reference_cites_itself():
    assert not list(tidy_docs.citation_errors("docs/reference/wire-protocol.md", "see §3.1", REFERENCES))
    assert list(tidy_docs.citation_errors("docs/reference/wire-protocol.md", "see §4", REFERENCES))
