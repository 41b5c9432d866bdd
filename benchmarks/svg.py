"""Plots of lines over logarithmic axes, written as SVG without any library."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 36, 50
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#66527a", "#00a6a6", "#8c5e34", "#e07be0", "#333333")


def _powers(low, high):
    """The range of exponents of ten around the values."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return first, max(last, first + 1)


class _Axis(object):
    """The position of a value between two ends, by its logarithm."""

    def __init__(self, values, begin, end, tight=False):
        low, high = min(values), max(values)
        if tight:
            self._low, self._high = math.log10(low), math.log10(high)
        else:
            self._low, self._high = _powers(low, high)
        self._begin, self._end = begin, end

    def at(self, value):
        return self._begin + (math.log10(value) - self._low) / (self._high - self._low) * (self._end - self._begin)

    def ticks(self):
        return [10.0 ** power for power in range(math.ceil(self._low), math.floor(self._high) + 1)]


def _text(x, y, words, anchor="middle", extra=""):
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' % (x, y, anchor, extra, escape(words))


def _line(x1, y1, x2, y2, colour):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>' % (x1, y1, x2, y2, colour)


def plot(path, title, x_name, y_name, lines, x_label, y_label, x_ticks=None):
    """lines: {name: [(x, y), ...]}; the labels turn a number into words for its axis."""
    points = [point for line in lines.values() for point in line]
    xs = _Axis([x for x, _ in points], LEFT, WIDTH - RIGHT, tight=True)
    ys = _Axis([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
             'font-family="sans-serif" font-size="12">' % (WIDTH, HEIGHT, WIDTH, HEIGHT),
             '<rect width="100%" height="100%" fill="white"/>',
             _text(LEFT, 20, title, "start", ' font-size="14" font-weight="bold"')]
    for value in ys.ticks():
        parts.append(_line(LEFT, ys.at(value), WIDTH - RIGHT, ys.at(value), "#ddd"))
        parts.append(_text(LEFT - 6, ys.at(value) + 4, y_label(value), "end"))
    for value in x_ticks or xs.ticks():
        parts.append(_line(xs.at(value), HEIGHT - BOTTOM, xs.at(value), HEIGHT - BOTTOM + 5, "#666"))
        parts.append(_text(xs.at(value), HEIGHT - BOTTOM + 18, x_label(value)))
    parts.append(_line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#666"))
    parts.append(_line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#666"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_name))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(_text(16, middle, y_name, extra=' transform="rotate(-90 16 %.1f)"' % middle))
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [(xs.at(x), ys.at(y)) for x, y in sorted(line)]
        parts.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' % (
            colour, " ".join("%.1f,%.1f" % point for point in placed)))
        parts += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (x, y, colour) for x, y in placed]
        y = TOP + 10 + 18 * number
        parts.append('<rect x="%d" y="%.1f" width="12" height="4" fill="%s"/>' % (WIDTH - RIGHT + 12, y - 6, colour))
        parts.append(_text(WIDTH - RIGHT + 30, y, name, "start"))
    parts.append("</svg>")
    with open(path, "w") as file:
        file.write("\n".join(parts) + "\n")
