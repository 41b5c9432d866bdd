"""How long a call takes, on a machine that others use too."""
import time


def best_of(function, repeats, rounds=5):
    """Seconds per call, the best of several rounds."""
    for _ in range(3):
        function()
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeats):
            function()
        best = min(best, (time.perf_counter() - begin) / repeats)
    return best


def best_call(function, repeats, before=None, after=None, warm_up=3):
    """Seconds of the best single call; `before(i)` changes what it works on, `after(i, result)` checks what it did."""
    best = float("inf")
    for i in range(warm_up + repeats):
        if before is not None:
            before(i)
        begin = time.perf_counter()
        result = function()
        taken = time.perf_counter() - begin
        if after is not None:
            after(i, result)
        if i >= warm_up:
            best = min(best, taken)
    return best
