"""Pictures: encoding and decoding, crops, overlapping boxes; and determinants."""

import zlib

import numpy as np

import compare
import element_types as et
from cases import cases

EXACT = compare.EXACT


def _chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def png(width, height, bits, color, rows, extra=b""):
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([bits, color, 0, 0, 0])
    return (b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + extra + _chunk(b"IDAT", zlib.compress(rows))
            + _chunk(b"IEND", b""))


ROWS = b"".join(b"\0" + bytes((7 * y + 11 * x) % 256 for x in range(12)) for y in range(6))
PALETTE = _chunk(b"PLTE", bytes(range(48)))
PNGS = {"rgb": png(4, 6, 8, 2, ROWS), "rgba": png(3, 6, 8, 6, ROWS), "gray": png(12, 6, 8, 0, ROWS),
        "gray and alpha": png(6, 6, 8, 4, ROWS), "16 bits": png(2, 6, 16, 2, ROWS), "1 bit": png(96, 6, 1, 0, ROWS),
        "palette": png(24, 6, 4, 3, ROWS, PALETTE),
        "palette with alpha": png(24, 6, 4, 3, ROWS, PALETTE + _chunk(b"tRNS", b"\0\x64\xc8"))}
RGB = PNGS["rgb"]
BMP = (b"BM" + (78).to_bytes(4, "little") + b"\0\0\0\0" + (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
       + (3).to_bytes(4, "little") + (2).to_bytes(4, "little") + b"\1\0\x18\0" + bytes(24) + bytes(range(24)))
# A gray square of 8 by 8 pixels as a baseline JPEG.
JPEG = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb004300" + "03" * 64 + "ffc0000b080008000801011100"
    "ffc4001f0000010501010101010100000000000000000102030405060708090a0b"
    "ffc400b5100002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282"
    "090a161718191a25262728292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788"
    "898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9ea"
    "f1f2f3f4f5f6f7f8f9faffda0008010100003f00fbd0ffd9")
GIF = (b"GIF89a\x02\0\x02\0\x80\0\0\1\2\3\xfa\xfb\xfc,\0\0\0\0\2\0\2\0\0\2\3\x44\x02\x05\0;")
BROKEN = [("nothing", b""), ("noise", b"\x01\x02garbage of some length"), ("half a PNG", RGB[:len(RGB) // 2]),
          ("half a header", RGB[:20]), ("half a JPEG", JPEG[:200]), ("a wrong checksum", RGB[:40] + b"xxxx" + RGB[44:])]


@cases("DecodePng", tolerance=EXACT)
def decode_png(g):
    for name, bytes_ in PNGS.items():
        for channels in (0, 1, 3, 4):
            g.normal([bytes_], f"{name} as {channels}", channels=channels, sliced=False)
    g.normal([JPEG], "a JPEG", sliced=False)
    g.empty([png(0, 5, 8, 2, b"")])
    g.edge([RGB], "other channels", channels=4)
    for name, bytes_ in BROKEN:
        g.error([bytes_], name)
    g.error([png(100000, 100000, 8, 2, b"")], "huge")
    g.error([[RGB]], "a vector")


@cases("DecodeJpeg", tolerance=EXACT)
def decode_jpeg(g):
    for channels in (0, 1, 3):
        g.normal([JPEG], str(channels), channels=channels, sliced=False)
    g.normal([JPEG], "smaller", ratio=2, sliced=False)
    g.normal([JPEG], "accurate", dct_method="INTEGER_ACCURATE", sliced=False)
    g.normal([RGB], "a PNG", sliced=False)
    g.empty([b""])
    g.edge([JPEG], "fast upscaling", fancy_upscaling=False)
    for name, bytes_ in BROKEN:
        g.error([bytes_], name)
    g.error([JPEG], "ratio", ratio=3)
    g.error([JPEG], "channels", channels=4)
    g.error([JPEG], "method", dct_method="x")


@cases("DecodeAndCropJpeg", tolerance=EXACT)
def decode_and_crop_jpeg(g):
    g.normal([JPEG, [1, 2, 3, 4]], sliced=False)
    g.normal([JPEG, [0, 0, 8, 8]], "everything", sliced=False)
    g.empty([JPEG, [0, 0, 0, 0]])
    g.edge([JPEG, [7, 7, 1, 1]], "the corner")
    g.error([JPEG, [1, 2, 8, 4]], "outside")
    g.error([JPEG, [-1, 0, 2, 2]], "negative")
    g.error([JPEG, [0, 0, 2]], "three numbers")
    g.error([RGB, [0, 0, 2, 2]], "a PNG")


@cases("DecodeBmp", tolerance=EXACT)
def decode_bmp(g):
    g.normal([BMP], sliced=False)
    g.empty([b""])
    g.edge([BMP], "channels", channels=3)
    g.error([BMP[:-9]], "half")
    g.error([RGB], "a PNG")


@cases("DecodeGif", tolerance=EXACT)
def decode_gif(g):
    g.normal([GIF], sliced=False)
    g.empty([b""])
    g.edge([RGB], "a PNG")
    g.edge([GIF[:-1]], "without its last byte")
    g.edge([b"GIF80x" + GIF[6:]], "of a version that does not exist")
    g.edge([GIF[:-1] + GIF[19:30] + b"\xff\xff"], "with a second frame that is damaged")
    g.error([GIF[:20]], "half")
    g.error([GIF[:-2]], "without the end of its frame")
    g.error([GIF[:32] + b"\xa6" + GIF[33:]], "with a colour outside of the palette")
    g.error([b"GIF89a"], "nothing in it")


@cases("ExtractJpegShape", tolerance=EXACT)
def extract_jpeg_shape(g):
    g.normal([JPEG], sliced=False)
    g.empty([b""])
    g.edge([JPEG[:-4]], "cut off behind the header")
    g.error([JPEG[:30]], "half a header")


@cases("EncodePng", tolerance=EXACT)
def encode_png(g):
    # zlib may compress differently; a small picture leaves it no choice.
    g.normal([np.full((1, 1, 3), 7)], sliced=False)
    g.edge([np.full((1, 1, 1), 255)], "gray")
    g.empty([np.zeros((0, 2, 3))])
    g.error([np.zeros((2, 2, 5))], "channels")
    g.error([np.zeros((2, 2))], "rank")
    g.error([np.zeros((2, 2, 3))], "compression", compression=10)


@cases("EncodeJpeg", tolerance=EXACT)
def encode_jpeg(g):
    image = g.values(9, 17, 3, low=0, high=255)
    g.normal([image], sliced=False)
    g.normal([image[:, :, :1]], "gray", sliced=False)
    g.normal([image], "options", quality=40, progressive=True, optimize_size=True, chroma_downsampling=False,
             density_unit="cm", x_density=7, y_density=9, xmp_metadata="x", sliced=False)
    g.empty([image[:1, :1]], "one pixel")  # without any TensorFlow ends the process
    g.edge([image], "format", format="rgb")
    g.error([image], "another format", format="grayscale")
    g.error([image], "quality", quality=101)
    g.error([image[:, :, :2]], "channels")
    g.error([image[0]], "rank")


BOXES = [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 1.0], [0.9, 0.7, 0.1, 0.2], [-0.2, 0.1, 1.3, 0.6]]


@cases("CropAndResize", tolerance=compare.SUM, gradient=True)
def crop_and_resize(g):
    image = g.values(2, 5, 6, 3)
    g.normal([image, BOXES, [0, 1, 1, 0], [3, 4]])
    g.normal([image, BOXES, [0, 1, 1, 0], [3, 4]], "nearest", method="nearest", gradient=False, sliced=False)
    g.normal([image, BOXES, [0, 1, 1, 0], [1, 1]], "one pixel", extrapolation_value=2.5, sliced=False)
    g.empty([image, np.zeros((0, 4)), np.zeros(0), [3, 4]])
    g.edge([image, [[0.5, 0.5, 0.5, 0.5]], [0], [2, 2]], "a point")
    g.error([image, BOXES, [0, 1, 2, 0], [3, 4]], "an image that is not there")
    g.error([image, BOXES, [0, 1], [3, 4]], "counts")
    g.error([image, BOXES, [0, 1, 1, 0], [0, 4]], "no pixels")
    g.error([image[0], BOXES, [0, 1, 1, 0], [3, 4]], "rank")
    g.error([image, [[0.1, 0.2, 0.8]], [0], [3, 4]], "three corners")


@cases("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", tolerance=EXACT)
def non_max_suppression(g):
    boxes = [[0, 0, 1, 1], [0, 0.125, 1, 1.125], [0, -0.125, 1, 0.875], [0, 10, 1, 11], [1, 1, 0, 0], [0, 100, 1, 101]]
    scores = [0.5, 0.75, 0.25, 0.875, 0.5, 0.125]
    version = int(g.op[-1]) if g.op[-1].isdigit() else 1
    more = ([] if version < 2 else [0.5]) + ([] if version < 3 else [0.125])
    g.normal([boxes, scores, 3] + more)
    g.normal([boxes, scores, 30] + more, "all of them", sliced=False)
    g.empty([np.zeros((0, 4)), np.zeros(0), 3] + more)
    g.edge([boxes, scores, 0] + more, "none of them")
    if version == 4:
        g.normal([boxes, scores, 9] + more, "padded", pad_to_max_output_size=True, sliced=False)
    if version > 1:
        g.error([boxes, scores, 3, 1.5] + more[1:], "threshold")
    g.error([boxes, scores[:2], 3] + more, "counts")
    g.error([boxes, scores, -1] + more, "negative size")
    g.error([[[0, 0, 1]], [0.5], 3] + more, "three corners")


@cases("LogMatrixDeterminant", tolerance=compare.SUM, gradient=True, gradient_of=[1])
def log_determinant(g):
    g.normal([g.values(3, 3) + 4 * np.eye(3)])
    g.normal([g.values(2, 4, 4) + 5 * np.eye(4)], "a batch", sliced=False)
    g.empty([g.values(0, 3, 3)])
    g.edge([np.zeros((2, 2))], "singular")
    g.edge([np.zeros((0, 0))], "no rows")
    g.edge([[[0, 1], [1, 0]]], "exchanged rows")
    g.error([g.values(2, 3)], "not square")
    g.error([g.values(3)], "rank")


@cases("MatrixInverse", tolerance=compare.SUM, gradient=True, only=lambda types: types["T"] != et.HALF)
def inverse(g):
    g.normal([g.values(3, 3) + 4 * np.eye(3)])
    g.normal([g.values(2, 4, 4) + 5 * np.eye(4)], "adjoint", adjoint=True, sliced=False)
    g.empty([g.values(0, 3, 3)])
    g.edge([[[0, 1], [1, 0]]], "exchanged rows")
    g.error([np.zeros((2, 2))], "singular")
    g.error([g.values(2, 3)], "not square")
