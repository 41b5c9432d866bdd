"""String basics."""

import numpy as np

import compare
import element_types as et
from cases import Typed, cases

EXACT = compare.EXACT
WORDS = [b"", b"a", b"Muster 7", b"\x00\xff", b"longer than a small string's buffer"]
WRONG = Typed(et.FLOAT, [1.0])


@cases("StringJoin", tolerance=EXACT)
def join(g):
    g.normal([[b"a", b"b"], b"-", [b"c", b"d"]], N=3, separator="+")
    g.empty([np.zeros(0, object), np.zeros(0, object)], N=2)
    g.edge([WORDS, WORDS], N=2)
    g.error([[b"a", b"b"], [b"c"]], "shapes", N=2)


@cases("StringLength", "StringLower", "StringUpper", "StringStrip", "EncodeBase64", tolerance=EXACT)
def map_strings(g):
    g.normal([[b" Ab c ", b"x"]])
    g.empty([np.zeros(0, object)])
    g.edge([WORDS], "special values")
    g.edge([b"Scalar"], "scalar")
    g.error([WRONG], "an input of another type")


@cases("DecodeBase64", tolerance=EXACT)
def decode_base64(g):
    g.normal([[b"YWJj", b"YQ", b""]])
    g.empty([np.zeros(0, object)])
    g.edge([b"_-8"], "the web alphabet")
    g.error([[b"a"]], "length")
    g.error([[b"????"]], "characters")


@cases("StringToNumber")
def to_number(g):
    floats = g.type in et.FLOATS
    g.normal([[b"1", b"-2" if g.type not in et.UNSIGNED else b"2", b"3.5e2" if floats else b"77"]])
    g.empty([np.zeros(0, object)])
    g.edge([[b" 12 ", b"nan", b"inf"] if floats else [b" 12 "]], "special values")
    g.error([[b"x"]], "no number")
    g.error([[b""]], "empty")
    g.error([[b"1 2"]], "two numbers")


@cases("AsString", tolerance=EXACT)
def as_string(g):
    g.normal([g.values(3, 2)])
    g.empty([g.values(0)])
    g.edge([g.special()], "special values") if g.type not in et.FLOATS + et.COMPLEXES else g.edge([[0.5, -0.0, 1e5]])
    if g.type in et.FLOATS:
        g.normal([g.values(3)], "precision", precision=2, width=9, fill=" ", sliced=False)
        g.normal([g.values(3)], "scientific", scientific=True, sliced=False)
        g.normal([g.values(3)], "shortest", shortest=True, sliced=False)
    g.error([g.values(2)], "two forms", scientific=True, shortest=True)


@cases("StringToHashBucketFast", "StringToHashBucket", tolerance=EXACT)
def hash_bucket(g):
    g.normal([WORDS], num_buckets=1000)
    g.empty([np.zeros(0, object)], num_buckets=3)
    g.edge([b"x" * 300], "long", num_buckets=1 << 40)
    g.error([WORDS], "no buckets", num_buckets=0)


@cases("StringToHashBucketStrong", tolerance=EXACT)
def hash_bucket_strong(g):
    g.normal([WORDS], num_buckets=1000, key=[1, 2])
    g.empty([np.zeros(0, object)], num_buckets=3, key=[1, 2])
    g.edge([b"x" * 300], "long", num_buckets=1 << 40, key=[-1, 5])
    g.error([WORDS], "key", num_buckets=3, key=[1])


@cases("Substr", tolerance=EXACT)
def substr(g):
    g.normal([[b"abcdef", b"ghijkl"], 1, 3])
    g.normal([[b"abcdef", b"ghijkl"], [1, -2], [2, 2]], "each")
    g.empty([np.zeros(0, object), np.zeros(0), np.zeros(0)])
    g.edge([b"abc", 1, 99], "to the end")
    g.error([[b"abc"], 4, 1], "position")
    g.error([[b"abc"], [1, 2], [1]], "shapes")
    g.error([[[[b"abcdef"]]], [1, 2], [1, 2]], "three dims are broadcast")


@cases("StringSplit", tolerance=EXACT)
def split(g):
    g.normal([[b"a b  c", b"", b"d"], b" "])
    g.normal([[b"a,b;c"], b",;"], "each character", skip_empty=False)
    g.empty([np.zeros(0, object), b" "])
    g.edge([[b"abc"], b""], "no delimiter")
    g.error([b"a b", b" "], "scalar")
    g.error([[b"a b"], [b" ", b","]], "two delimiters")


@cases("StringSplitV2", tolerance=EXACT)
def split_v2(g):
    g.normal([[b"a b  c", b"", b"d"], b" "])
    g.normal([[b"a<>b<>c"], b"<>"], "limited", maxsplit=1)
    g.empty([np.zeros(0, object), b" "])
    g.edge([[b" a  b "], b""], "white space")
    g.error([b"a b", b" "], "scalar")


@cases("ReduceJoin", tolerance=EXACT)
def reduce_join(g):
    x = np.array([[b"a", b"b"], [b"c", b"d"]], object)
    g.normal([x, [1]], separator="-")
    g.normal([x, [0, 1]], "all")
    g.empty([np.zeros((0, 2), object), [1]])
    g.edge([x, np.zeros(0)], "no axis")
    g.error([x, [2]], "axis")
    g.error([x, [0, 0]], "twice")


@cases("StringFormat", tolerance=EXACT, attrs={"template": "x=%s y=%s"})
def string_format(g):
    both = {"T": [et.INT32, et.FLOAT]}
    g.normal([[1, 2, 3], [0.5]], **both)
    g.empty([np.zeros(0), np.zeros(0)], **both)
    g.edge([np.arange(20), 1.0], "long", **both)
    g.error([1], "placeholders", T=[et.INT32])


@cases("DecodeRaw", tolerance=EXACT)
def decode_raw(g):
    kind = g.types["out_type"]
    size = np.dtype(et.CARRIERS[kind]).itemsize
    sample = et.carrier(g.values(3, dtype=kind), kind).tobytes()
    g.normal([[sample, sample]])
    g.empty([np.zeros(0, object)])
    g.edge([sample], "scalar")
    g.edge([sample], "other order", little_endian=False)
    if size > 1:
        g.error([[sample + b"x"]], "length")
    g.error([[sample, sample[size:]]], "unequal")


@cases("RegexReplace", tolerance=EXACT)
def regex_replace(g):
    g.normal([[b"abcabc", b"xyz"], b"b(.)", b"<\\1>"])
    g.normal([[b"abcabc", b"xyz"], b"[a-c]", b"-"], "first only", replace_global=False)
    g.empty([np.zeros(0, object), b"a", b"b"])
    g.edge([WORDS, b"", b"."], "an empty pattern")
    g.edge([b"scalar", b"(?i)A", b"\\0\\0"], "scalar")
    g.edge([b"aaa", b"a", b"\\7"], "a group that is not there")
    g.error([[b"a"], b"(", b"b"], "pattern")
    g.error([[b"a"], [b"a"], b"b"], "rank of the pattern")
    g.error([[b"a"], b"a", [b"b"]], "rank of the rewrite")


@cases("StaticRegexReplace", tolerance=EXACT)
def static_regex_replace(g):
    g.normal([[b"abcabc", b"xyz"]], pattern="b(.)", rewrite="<\\1>")
    g.empty([np.zeros(0, object)], pattern="a", rewrite="b")
    g.edge([WORDS], "first only", pattern="[a-z]+", rewrite="", replace_global=False)
    g.error([[b"a"]], "pattern", pattern="(", rewrite="b")


@cases("RegexFullMatch", tolerance=EXACT)
def regex_full_match(g):
    g.normal([[b"abc", b"xabc", b"ab"], b"abc?"])
    g.empty([np.zeros(0, object), b"a"])
    g.edge([WORDS, b"(?s).*"], "everything")
    g.error([[b"a"], b"*"], "pattern")
    g.error([[b"a"], [b"a"]], "rank of the pattern")


@cases("StaticRegexFullMatch", tolerance=EXACT)
def static_regex_full_match(g):
    g.normal([[b"abc", b"xabc", b"ab"]], pattern="abc?")
    g.empty([np.zeros(0, object)], pattern="a")
    g.edge([WORDS], "everything", pattern="(?s).*")
    g.error([[b"a"]], "pattern", pattern="*")


@cases("DecodeCSV")
def decode_csv(g):
    types = [et.INT32, et.FLOAT, et.STRING]
    defaults = [[7], [0.5], [b"none"]]
    g.normal([[b"1,2.5,abc", b'3,,"x,y"', b" -4 ,1e3,"], *defaults], OUT_TYPE=types)
    g.normal([[[b"1;NA"], [b"NA;9"]], [5], 6.0], "another form", OUT_TYPE=[et.INT64, et.DOUBLE], field_delim=";",
             na_value="NA")
    g.normal([[b"1,2,3,4"], [1], [b""]], "some columns", OUT_TYPE=[et.INT32, et.STRING], select_cols=[1, 3])
    g.empty([np.zeros(0, object), *defaults], OUT_TYPE=types)
    g.edge([b'"a""b",""', [b""], [b"d"]], "quotes", OUT_TYPE=[et.STRING, et.STRING])
    g.edge([b'a"b"', [b""]], "no quotes", OUT_TYPE=[et.STRING], use_quote_delim=False)
    g.edge([[b"\na", b"\r\nb"], [b""]], "leading ends of lines", OUT_TYPE=[et.STRING])
    for note, record in (("letters", b"x"), ("beyond", b"99999999999"), ("two fields", b"1,2"), ("nothing", b""),
                         ("end of line", b"1\n"), ("open quote", b'"1'), ("quote inside", b'"1"2"')):
        g.error([[record], [7]], note, OUT_TYPE=[et.INT32])
    g.error([[b",1"], np.zeros(0), [7]], "required", OUT_TYPE=[et.INT32, et.INT32])
    g.error([[b"1"], [7]], "delimiter", OUT_TYPE=[et.INT32], field_delim="ab")
    g.error([[b"1,2"], [7], [7]], "columns", OUT_TYPE=[et.INT32, et.INT32], select_cols=[1, 0])
    g.error([[b"1,2"], [7], [7]], "a column that is not there", OUT_TYPE=[et.INT32, et.INT32], select_cols=[0, 5])
    g.error([[b"1"], [7, 8]], "two defaults", OUT_TYPE=[et.INT32])


@cases("UnsortedSegmentJoin", tolerance=compare.EXACT)
def unsorted_segment_join(g):
    words = np.array([b"a", b"", b"c", b"d"], object)
    g.normal([words, [2, 0, 2, 0], 3], separator=":")
    g.normal([words.reshape(2, 2), [1, 1], 2], "rows", separator="-")
    g.empty([np.zeros((2, 0), object), [0, 1], 2])
    g.edge([words.reshape(2, 2), [[0, 1], [1, 0]], 2], "a matrix of segments")
    g.error([words, [0, 1, 2, 3], 3], "a segment outside")
    g.error([words, [0, 1, -1, 1], 3], "a negative segment")
    g.error([words, [0, 1], 3], "counts")
