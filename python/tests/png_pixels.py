"""Reads PNG images of 8 bits, for tests: every filter, no interlacing, no palette."""
import struct
import zlib

import numpy as np

_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}


def pixels(png):
    """[height, width, channels] of uint8."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, compressed, header = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        content = png[at + 8:at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + content)
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", content)
        elif kind == b"IDAT":
            compressed += content
        at += 12 + length
    width, height, depth, color, _, _, interlaced = header
    assert depth == 8 and not interlaced
    channels = _CHANNELS[color]
    data = zlib.decompress(compressed)
    stride = width * channels
    rows, before = [], bytearray(stride)
    for y in range(height):
        kind = data[y * (stride + 1)]
        row = bytearray(data[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for x in range(stride):
            left = row[x - channels] if x >= channels else 0
            corner = before[x - channels] if x >= channels else 0
            row[x] = (row[x] + _predicted(kind, left, before[x], corner)) % 256
        rows.append(bytes(row))
        before = row
    return np.frombuffer(b"".join(rows), np.uint8).reshape(height, width, channels)


def _predicted(kind, left, up, corner):
    if kind == 4:  # Paeth
        estimate = left + up - corner
        return min((left, up, corner), key=lambda value: abs(estimate - value))
    return (0, left, up, (left + up) // 2)[kind]
