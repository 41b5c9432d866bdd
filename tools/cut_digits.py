#!/usr/bin/env python3
"""Cuts the first images and labels of MNIST's files into the small set of data/digits.

    tools/cut_digits.py FOLDER_WITH_MNIST [data/digits]
"""

import gzip
import pathlib
import struct
import sys

COUNTS = {"train": 10000, "t10k": 2000}


def cut(source, target, count):
    """Copies the first `count` items of a gzipped IDX file; its header is magic, then one size per dimension."""
    content = gzip.decompress(source.read_bytes())
    rank = content[3]
    sizes = struct.unpack_from(f">{rank}I", content, 4)
    header_bytes = 4 + 4 * rank
    item_bytes = (len(content) - header_bytes) // sizes[0]
    kept = content[:4] + struct.pack(f">{rank}I", count, *sizes[1:])
    kept += content[header_bytes:header_bytes + count * item_bytes]
    # Without a time stamp, so that cutting again gives the same file.
    target.write_bytes(gzip.compress(kept, 9, mtime=0))


def main():
    source = pathlib.Path(sys.argv[1])
    target = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "data/digits")
    target.mkdir(parents=True, exist_ok=True)
    for part, count in COUNTS.items():
        for kind in ("images-idx3", "labels-idx1"):
            name = f"{part}-{kind}-ubyte.gz"
            cut(source / name, target / name, count)
            print(target / name, count)


if __name__ == "__main__":
    main()
