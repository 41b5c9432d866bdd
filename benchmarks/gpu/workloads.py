"""The workloads that are timed on a GPU, as numbers that both frameworks build the same model from."""
import numpy as np

BATCHES = 8  # of fed data, taken in turn


class Layers(object):
    """784-100-10 with Adam, as in MNIST trainers."""
    sizes, batch, rate = (784, 100, 10), 100, 1e-3


class Convolutions(object):
    """5x5x32, pooling, 5x5x64, pooling, 512, 10, with Adam."""
    batch, rate = 64, 1e-3


class Dense(object):
    """Four layers of 4096 with SGD."""
    width, layers, batch, rate = 4096, 4, 8192, 1e-3


class Embedding(object):
    """A table of which a part is looked up and changed in each step, with Adagrad."""
    rows, columns, ids, rate = 20000000, 64, 262144, 0.1


class WideAndDeep(object):
    """26 tables, then 1024-512-256-1, with Adagrad."""
    tables, rows, columns, batch, rate = 26, 100000, 16, 2048, 0.05
    numbers, sizes = 13, (1024, 512, 256, 1)


def images(batch, seed=0):
    """[(pixels, labels)]: each in turn."""
    random = np.random.RandomState(seed)
    return [(random.rand(batch, 784).astype(np.float32), random.randint(0, 10, batch).astype(np.int32))
            for _ in range(BATCHES)]


def weights(shape, seed):
    """The same first values in both frameworks."""
    random = np.random.RandomState(seed)
    fan_in = int(np.prod(shape[:-1])) or 1
    return (random.randn(*shape) / np.sqrt(fan_in)).astype(np.float32)


def ids(rows, count, seed=0):
    """Ids as they come in logs: few are frequent."""
    random = np.random.RandomState(seed)
    return [np.minimum(rows - 1, (rows * random.rand(count) ** 3).astype(np.int64)) for _ in range(BATCHES)]


def timed(step, synchronize, seconds=1.5, warm_up=20, most=5000, warm_seconds=1.0):
    """Median milliseconds of a step that waits for its result. `step(i)` runs the i-th. What frameworks compile in the background is
    ready after `warm_seconds`."""
    import time
    begin, i = time.perf_counter(), 0
    while i < warm_up or time.perf_counter() < begin + warm_seconds:
        step(i)
        i += 1
    synchronize()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 10 or (time.perf_counter() < end and len(times) < most):
        begin = time.perf_counter()
        step(len(times))
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


def timed_many(steps, seconds=1.5, warm_up=3):
    """Median milliseconds of a step, where `steps(n)` runs n of them and waits for the last only."""
    import time
    steps(warm_up)
    count, took = 1, 0.0
    while took < 0.1:
        count *= 2
        begin = time.perf_counter()
        steps(count)
        took = time.perf_counter() - begin
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        steps(count)
        times.append((time.perf_counter() - begin) / count)
    return 1e3 * float(np.median(times))
