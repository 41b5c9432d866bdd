"""torch_rows.py OUTPUT [ROW...]: times workloads.py with PyTorch, eagerly and with CUDA graphs; the better one counts."""
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_models  # noqa: E402
import workloads  # noqa: E402

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True


def _parameter(shape, seed=None):
    value = torch.zeros(shape) if seed is None else torch.from_numpy(workloads.weights(shape, seed))
    return torch.nn.Parameter(value.cuda())


class _Graphed(object):
    """A step of static inputs as a CUDA graph."""

    def __init__(self, step):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(5):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.loss = step()

    def __call__(self):
        self._graph.replay()
        return self.loss


def _best(make_step, inputs, data, **timing):
    """`inputs` are filled from `data` (arrays in pinned memory) before each step; None: nothing is fed."""
    results = {}
    pinned = [[torch.from_numpy(a).pin_memory() for a in batch] for batch in data] if data else None
    for kind in ("graph", "eager"):
        try:
            step = make_step(kind == "graph")
            first = []

            def run(i):
                if pinned:
                    for at, value in zip(inputs, pinned[i % len(pinned)]):
                        at.copy_(value, non_blocking=True)
                value = step().item()
                first[:] = first or [value]

            if kind == "graph":
                plain = step
                step = _Graphed(plain)
            results[kind] = workloads.timed(run, torch.cuda.synchronize, **timing)
        except Exception as error:
            results[kind + "_error"] = str(error)[:300]
    times = [results[kind] for kind in ("graph", "eager") if kind in results]
    return dict(results, ms=min(times) if times else None, loss=first[0] if first else None)


def _images_row(parameters, forward, options, fed):
    data = workloads.images(options.batch)
    pixels = torch.from_numpy(data[0][0]).cuda()
    labels = torch.from_numpy(data[0][1].astype(np.int64)).cuda()

    def make_step(capturable):
        values = parameters()
        adam = torch.optim.Adam(values, lr=options.rate, capturable=True, fused=True)

        def step():
            adam.zero_grad(set_to_none=True)
            loss = F.cross_entropy(forward(pixels, values), labels)
            loss.backward()
            adam.step()
            return loss

        return step

    fed_data = [(x, y.astype(np.int64)) for x, y in data] if fed else None
    return _best(make_step, [pixels, labels], fed_data)


def _layer_parameters():
    sizes, values = workloads.Layers.sizes, []
    for i in range(len(sizes) - 1):
        values += [_parameter((sizes[i], sizes[i + 1]), i), _parameter((sizes[i + 1],))]
    return values


def _layers(x, values):
    return torch.addmm(values[3], torch.relu(torch.addmm(values[1], x, values[0])), values[2])


def _convolution_parameters():
    values = []
    for i, (inputs, outputs) in enumerate([(1, 32), (32, 64)]):
        w = torch.from_numpy(workloads.weights((5, 5, inputs, outputs), i)).permute(3, 2, 0, 1).contiguous()
        values += [torch.nn.Parameter(w.cuda()), _parameter((outputs,))]
    return values + [_parameter((7 * 7 * 64, 512), 2), _parameter((512,)), _parameter((512, 10), 3), _parameter((10,))]


def _convolutions(x, values):
    at = x.view(-1, 1, 28, 28)
    for i in range(2):
        at = F.max_pool2d(torch.relu(F.conv2d(at, values[2 * i], values[2 * i + 1], padding=2)), 2)
    at = at.permute(0, 2, 3, 1).reshape(-1, 7 * 7 * 64)
    return torch.addmm(values[7], torch.relu(torch.addmm(values[5], at, values[4])), values[6])


def _dense(dtype):
    options = workloads.Dense
    x = torch.from_numpy(np.random.RandomState(0).rand(options.batch, options.width).astype(np.float32)).cuda().to(dtype)

    def make_step(capturable):
        values = [_parameter((options.width, options.width), i) for i in range(options.layers)]
        sgd = torch.optim.SGD(values, lr=options.rate, fused=True)

        def step():
            sgd.zero_grad(set_to_none=True)
            at = x
            for w in values:
                at = torch.relu(at @ w.to(dtype))
            loss = at.float().square().mean()
            loss.backward()
            sgd.step()
            return loss

        return step

    return _best(make_step, [], None, warm_up=3)


def _embedding():
    options = workloads.Embedding
    data = [(ids,) for ids in workloads.ids(options.rows, options.ids)]
    wanted = torch.from_numpy(data[0][0]).cuda()

    def make_step(capturable):
        if capturable:
            raise RuntimeError("sparse gradients cannot be captured")
        table = torch.nn.Embedding(options.rows, options.columns, sparse=True).cuda()
        torch.nn.init.ones_(table.weight)
        adagrad = torch.optim.Adagrad(table.parameters(), lr=options.rate, initial_accumulator_value=0.1)

        def step():
            adagrad.zero_grad(set_to_none=True)
            loss = table(wanted).square().mean()
            loss.backward()
            adagrad.step()
            return loss

        return step

    return _best(make_step, [wanted], data)


def _wide_and_deep(sparse):
    options = workloads.WideAndDeep
    random = np.random.RandomState(0)
    numbers = [random.rand(options.batch, options.numbers).astype(np.float32) for _ in range(workloads.BATCHES)]
    labels = [random.randint(0, 2, (options.batch, 1)).astype(np.float32) for _ in range(workloads.BATCHES)]
    ids = [np.stack(columns, 1) for columns in zip(*[workloads.ids(options.rows, options.batch, seed)
                                                     for seed in range(options.tables)])]
    inputs = [torch.from_numpy(a).cuda() for a in (numbers[0], ids[0], labels[0])]

    def make_step(capturable):
        if capturable and sparse:
            raise RuntimeError("sparse gradients cannot be captured")
        tables = [_parameter((options.rows, options.columns), i) for i in range(options.tables)]
        layers, width = [], options.numbers + options.tables * options.columns
        for i, size in enumerate(options.sizes):
            layers += [_parameter((width, size), 100 + i), _parameter((size,))]
            width = size
        optimizers = [torch.optim.Adagrad(layers, lr=options.rate, initial_accumulator_value=0.1),
                      torch.optim.Adagrad(tables, lr=options.rate, initial_accumulator_value=0.1)]

        def step():
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            parts = [inputs[0]] + [F.embedding(inputs[1][:, i], tables[i], sparse=sparse) for i in range(options.tables)]
            at = torch.cat(parts, 1)
            for i in range(len(options.sizes)):
                at = torch.addmm(layers[2 * i + 1], at, layers[2 * i])
                if i + 1 < len(options.sizes):
                    at = torch.relu(at)
            loss = F.binary_cross_entropy_with_logits(at, inputs[2])
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            return loss

        return step

    return _best(make_step, inputs, list(zip(numbers, ids, labels)))


def _wide_and_deep_best():
    results = {"sparse": _wide_and_deep(True), "dense": _wide_and_deep(False)}
    times = [r["ms"] for r in results.values() if r["ms"]]
    return dict(results, ms=min(times), loss=results["dense"]["loss"])


def _copies():
    x = torch.rand(64 << 20).pin_memory()
    on_card = torch.empty_like(x, device="cuda")

    def up(i):
        on_card.copy_(x, non_blocking=True)
        torch.cuda.synchronize()

    def down(i):
        x.copy_(on_card, non_blocking=True)
        torch.cuda.synchronize()

    up_ms = workloads.timed(up, torch.cuda.synchronize, warm_up=3)
    down_ms = workloads.timed(down, torch.cuda.synchronize, warm_up=3)
    size = x.numel() * 4
    return {"ms": up_ms, "up_gb_per_s": size / up_ms / 1e6, "down_gb_per_s": size / down_ms / 1e6}


ROWS = {
    "layers_fed": lambda: _images_row(_layer_parameters, _layers, workloads.Layers, True),
    "layers_resident": lambda: _images_row(_layer_parameters, _layers, workloads.Layers, False),
    "convolutions_fed": lambda: _images_row(_convolution_parameters, _convolutions, workloads.Convolutions, True),
    "convolutions_resident": lambda: _images_row(_convolution_parameters, _convolutions, workloads.Convolutions, False),
    "dense_tf32": lambda: _dense(torch.float32),
    "dense_bfloat16": lambda: _dense(torch.bfloat16),
    "embedding": _embedding,
    "wide_and_deep": _wide_and_deep_best,
    "copies": _copies,
    **{name: lambda make=make: _best(make(), [], None, warm_up=8) for name, make in torch_models.MODELS.items()},
}


def main(output, *rows):
    results = {}
    for row in rows or ROWS:
        try:
            results[row] = ROWS[row]()
        except Exception as error:  # one row must not hide the others
            results[row] = {"error": "%s: %s" % (type(error).__name__, str(error)[:600])}
        print(row, results[row], flush=True)
        torch.cuda.empty_cache()
        with open(output, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
