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
