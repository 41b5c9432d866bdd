"""gpu_sources.py OUTPUT FILE...: writes a C++ source with the text of .cu and .cuh files (muster/device/gpu/gpu_sources.h)."""
import os
import sys

PIECE = 12000  # characters of a literal: compilers limit them


def literal(text):
    pieces = [text[at:at + PIECE] for at in range(0, len(text), PIECE)] or [""]
    return "\n".join('R"gpu(%s)gpu"' % piece for piece in pieces)


def main(output, *files):
    rows = []
    for name in sorted(files):
        with open(name, encoding="utf-8") as file:
            rows.append('    {"%s",\n%s},\n' % (name, literal(file.read())))
    text = ('// Made by cmake/gpu_sources.py.\n#include "muster/device/gpu/gpu_sources.h"\n\nnamespace muster {\nnamespace {\n\n'
            'constexpr GpuSource kSources[] = {\n%s};\n\n}  // namespace\n\n'
            'absl::Span<const GpuSource> GpuSources() {\n  return kSources;\n}\n\n}  // namespace muster\n' % "".join(rows))
    if not os.path.exists(output) or open(output, encoding="utf-8").read() != text:
        os.makedirs(os.path.dirname(output), exist_ok=True)
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)


main(*sys.argv[1:])
