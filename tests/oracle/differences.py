"""Muster's gradients against finite differences, in double: along one random direction per case."""

import zlib

import numpy as np

import element_types as et
import graphs
import runner

STEP = 1e-5


def sample(table):
    """One gradient case in double per op and note; what jumps, or is an integer, has no differences."""
    seen = set()
    for case in table:
        if case.gradient and not case.shaped and (case.op, case.note) not in seen and case.typing.endswith("=double"):
            seen.add((case.op, case.note))
            yield case


def _moved(program, direction, amount):
    """The program with its differentiable inputs moved, fetching the weighted sums instead of their gradients."""
    ys, xs, _ = program["gradient"]
    names = [x.split(":")[0] for x in xs]
    feeds = [(name, dtype, array + amount * direction[names.index(name)] if name in names else array)
             for name, dtype, array in program["feeds"]]
    return dict(program, feeds=feeds, gradient=None, steps=[(ys, [])], key=f"{program['key']}{amount:+g}")


def check(interpreter, registry, table):
    """[(case, slope along the direction by gradients, by differences)]."""
    cases, programs, directions = [], [], []
    for case in sample(table):
        program = graphs.program(case, registry)
        values = {name: (dtype, array) for name, dtype, array in program["feeds"]}
        arrays = [values[x.split(":")[0]] for x in program["gradient"][1]]
        if not arrays or any(dtype != et.DOUBLE for dtype, _ in arrays) or not program["gradient"][0]:
            continue
        random = np.random.RandomState(zlib.crc32(str(case).encode()))
        direction = [random.uniform(-1, 1, array.shape) for _, array in arrays]
        cases.append(case)
        programs.append(program)
        directions.append(direction)
    every = [p for program, d in zip(programs, directions)
             for p in (program, _moved(program, d, STEP), _moved(program, d, -STEP))]
    results = runner.run(interpreter, "muster", every)
    slopes = []
    for case, program, direction in zip(cases, programs, directions):
        exact = results[program["key"]]
        sums = [results[f"{program['key']}{amount:+g}"] for amount in (STEP, -STEP)]
        if exact[0] != "values" or any(value is None for _, value in exact[1]):
            continue  # no gradient: the oracle checks that TensorFlow has none either
        assert all(s[0] == "values" for s in sums), (case, sums)
        by_gradient = sum(float(np.sum(d * g)) for d, (_, g) in zip(direction, exact[1]))
        up, down = (sum(float(value) for _, value in s[1]) for s in sums)
        slopes.append((case, by_gradient, (up - down) / (2 * STEP)))
    return slopes


def disagreement(slopes):
    return [f"{case}: {a}, by differences {b}" for case, a, b in slopes
            if not abs(a - b) <= 1e-5 * max(abs(a), abs(b), 1.0)]
