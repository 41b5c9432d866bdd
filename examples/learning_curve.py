"""A picture of a training run, without any library."""

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 60, 40, 50


def _line(points, colour):
    return '<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' % (
        colour, " ".join("%.1f,%.1f" % p for p in points))


def _text(x, y, text, colour="#333", anchor="middle"):
    return '<text x="%.1f" y="%.1f" fill="%s" text-anchor="%s">%s</text>' % (x, y, colour, anchor, text)


def write_learning_curve(path, points):
    """Writes an SVG of (step, loss, accuracy) points: the loss on the left axis, the accuracy on the right."""
    steps, losses, accuracies = zip(*points)
    top_loss, low_accuracy = max(max(losses), 1e-9), min(accuracies)
    low_accuracy = min(low_accuracy, 0.99)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(step):
        return LEFT + inner_width * step / max(steps[-1], 1)

    def y_loss(loss):
        return TOP + inner_height * (1 - loss / top_loss)

    def y_accuracy(accuracy):
        return TOP + inner_height * (1 - (accuracy - low_accuracy) / (1 - low_accuracy))

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">'
             % (WIDTH, HEIGHT),
             '<rect width="100%" height="100%" fill="white"/>',
             '<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999"/>' % (
                 LEFT, TOP, inner_width, inner_height)]
    for i in range(5):
        part = i / 4.0
        parts.append(_text(LEFT + inner_width * part, HEIGHT - BOTTOM + 18, "%d" % (steps[-1] * part)))
        height = TOP + inner_height * (1 - part) + 4
        parts.append(_text(LEFT - 6, height, "%.3g" % (top_loss * part), "#c33", "end"))
        parts.append(_text(WIDTH - RIGHT + 6, height, "%.3f" % (low_accuracy + (1 - low_accuracy) * part), "#36c",
                           "start"))
    parts.append(_text(WIDTH / 2, HEIGHT - 12, "global step"))
    parts.append(_text(LEFT, TOP - 12, "loss of a batch", "#c33", "start"))
    parts.append(_text(WIDTH - RIGHT, TOP - 12, "test accuracy: %.4f at the end" % accuracies[-1], "#36c", "end"))
    parts.append(_line([(x(s), y_loss(v)) for s, v in zip(steps, losses)], "#c33"))
    parts.append(_line([(x(s), y_accuracy(v)) for s, v in zip(steps, accuracies)], "#36c"))
    parts.append("</svg>")
    with open(path, "w") as f:
        f.write("\n".join(parts) + "\n")
