"""The models of models.py with PyTorch, as fast as it runs them: channels last, autocast, fused attention and optimizers."""
import math

import torch
import torch.nn.functional as F

import models
import workloads


def _parameter(value):
    return torch.nn.Parameter(torch.as_tensor(value).cuda())


def _autocast(dtype):
    return torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype == "bfloat16")


def _same_padding(at, size, stride):
    """As TensorFlow's SAME: more at the end where it is odd."""
    total = max((-(-at.shape[2] // stride) - 1) * stride + size - at.shape[2], 0)
    if total % 2 == 0:
        return at, total // 2
    return F.pad(at, (total // 2, total - total // 2) * 2), 0


def resnet(dtype):
    images, labels = (torch.from_numpy(value).cuda() for value in models.ResNet.inputs())
    images = images.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)

    def make_step(capturable):
        parameters, seeds = [], iter(range(10000))

        def new(value):
            parameters.append(_parameter(value))
            return parameters[-1]

        def make_convolution(inputs, size, filters, scale=1.0):
            kernel = torch.from_numpy(workloads.weights((size, size, inputs, filters), next(seeds)))
            kernel = new(kernel.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last))
            return kernel, new(torch.full((filters,), scale)), new(torch.zeros(filters))

        def convolve(at, layer, stride=1, activation=True):
            kernel, scale, offset = layer
            at, padding = _same_padding(at, kernel.shape[2], stride)
            at = F.batch_norm(F.conv2d(at, kernel, stride=stride, padding=padding), None, None, scale, offset, training=True, eps=1e-5)
            return F.relu(at) if activation else at

        stem, blocks, inputs = make_convolution(3, 7, 64), [], 64
        for group, (count, filters) in enumerate(models.ResNet.groups):
            for block in range(count):
                shortcut = make_convolution(inputs, 1, 4 * filters) if block == 0 else None
                blocks.append((2 if group > 0 and block == 0 else 1, shortcut, make_convolution(inputs, 1, filters),
                               make_convolution(filters, 3, filters),
                               make_convolution(filters, 1, 4 * filters, models.ResNet.last_scale)))
                inputs = 4 * filters
        last = new(workloads.weights((2048, models.ResNet.classes), next(seeds)))
        bias = new(torch.zeros(models.ResNet.classes))
        optimizer = torch.optim.SGD(parameters, lr=models.ResNet.rate, momentum=0.9, fused=True)

        def step():
            optimizer.zero_grad(set_to_none=True)
            with _autocast(dtype):
                at = convolve(images, stem, 2)
                at = F.max_pool2d(F.pad(at, (0, 1, 0, 1), value=-math.inf), 3, 2)
                for stride, shortcut, first, second, third in blocks:
                    by_pass = at if shortcut is None else convolve(at, shortcut, stride, activation=False)
                    at = convolve(convolve(convolve(at, first), second, stride), third, activation=False)
                    at = F.relu(at + by_pass)
                logits = torch.addmm(bias, at.mean((2, 3)), last)
                loss = F.cross_entropy(logits.float(), labels)
            loss.backward()
            optimizer.step()
            return loss

        return step

    return make_step


def bert(dtype):
    options = models.Bert
    words, masked, truth = (torch.from_numpy(value).cuda() for value in options.inputs())
    width, heads, tokens = options.width, options.heads, options.batch * options.length

    def make_step(capturable):
        parameters, seeds = [], iter(range(10000))

        def new(value):
            parameters.append(_parameter(value))
            return parameters[-1]

        def make_dense(inputs, outputs, count=1):
            kernels = [torch.from_numpy(models.small_weights((inputs, outputs), next(seeds))) for _ in range(count)]
            return new(torch.cat(kernels, 1)), new(torch.zeros(count * outputs))

        def make_norm():
            return new(torch.ones(width)), new(torch.zeros(width))

        table = new(models.small_weights((options.words, width), next(seeds)))
        places = new(models.small_weights((options.length, width), next(seeds)))
        first_norm = make_norm()
        layers = [(make_dense(width, width, 3), make_dense(width, width), make_norm(), make_dense(width, 4 * width),
                   make_dense(4 * width, width), make_norm()) for _ in range(options.layers)]
        head, head_norm, head_bias = make_dense(width, width), make_norm(), new(torch.zeros(options.words))
        optimizer = torch.optim.AdamW(parameters, lr=options.rate, weight_decay=options.decay, eps=1e-6, capturable=True, fused=True)

        def dense(at, layer):
            return torch.addmm(layer[1], at, layer[0])

        def norm(at, layer):
            return F.layer_norm(at, (width,), layer[0], layer[1], eps=1e-12)

        def step():
            optimizer.zero_grad(set_to_none=True)
            with _autocast(dtype):
                at = norm((F.embedding(words, table).view(options.batch, options.length, width) + places).view(tokens, width), first_norm)
                for attend, attended, norm1, inner, outer, norm2 in layers:
                    parts = dense(at, attend).view(options.batch, options.length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
                    context = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
                    at = norm(dense(context.transpose(1, 2).reshape(tokens, width), attended) + at, norm1)
                    at = norm(dense(F.gelu(dense(at, inner), approximate="tanh"), outer) + at, norm2)
                at = norm(F.gelu(dense(at[masked], head), approximate="tanh"), head_norm)
                loss = F.cross_entropy((at @ table.t() + head_bias).float(), truth)
            loss.backward()
            optimizer.step()
            return loss

        return step

    return make_step


def lstm():
    options = models.Lstm
    words, truth = (torch.from_numpy(value).cuda() for value in options.inputs())

    def make_step(capturable):
        table = _parameter(models.small_weights((options.words, options.width), 0))
        cells = torch.nn.LSTM(options.width, options.width, options.layers, batch_first=True).cuda()
        for parameter in cells.parameters():
            torch.nn.init.uniform_(parameter, -0.05, 0.05)
        last, bias = _parameter(models.small_weights((options.width, options.words), 1)), _parameter(torch.zeros(options.words))
        parameters = [table, *cells.parameters(), last, bias]
        optimizer = torch.optim.SGD(parameters, lr=options.rate, fused=True)

        def step():
            optimizer.zero_grad(set_to_none=True)
            at, _ = cells(F.embedding(words, table))
            loss = F.cross_entropy(torch.addmm(bias, at.reshape(-1, options.width), last), truth.view(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, options.clip, foreach=True)
            optimizer.step()
            return loss

        return step

    return make_step


MODELS = {
    "resnet50_tf32": lambda: resnet("float32"),
    "resnet50_bfloat16": lambda: resnet("bfloat16"),
    "bert_tf32": lambda: bert("float32"),
    "bert_bfloat16": lambda: bert("bfloat16"),
    "lstm": lstm,
}
