#!/usr/bin/env python3
"""Makes vectors.json: losses, gradients and optimizer steps of PyTorch, for vectors_test.cc.

    python3 src/train/testdata/make_vectors.py > src/train/testdata/vectors.json

The networks of vectors_test.cc have the same names. All arithmetic is FP64. Weights and inputs have
three decimals and are rounded to FP32 first, so that both sides begin with equal numbers. Made with
PyTorch 1.13.
"""

import json
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def numbers(rng, shape, low=-1.0, high=1.0):
    values = [round(rng.uniform(low, high), 3) for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float32).double().reshape(shape)


def written(tensor):
    tensor = tensor.detach()
    if tensor.dtype == torch.int64:
        values = tensor.flatten().tolist()
    else:
        values = [float(f"{value:.8g}") for value in tensor.flatten().tolist()]
    return {"shape": list(tensor.shape), "values": values}


class Net:
    """One network. Weights have the names of the ONNX initializers."""

    def __init__(self, name, seed):
        self.rng = random.Random(seed)
        self.name, self.weights, self.frozen, self.inputs = name, {}, {}, {}
        self.statistics = {}

    def weight(self, name, *shape, low=None, high=None, train=True):
        fan_in = math.prod(shape[1:]) if len(shape) > 1 else 4
        limit = 1 / math.sqrt(fan_in)
        value = numbers(self.rng, shape, -limit if low is None else low,
                        limit if high is None else high)
        if train:
            value.requires_grad_()
            self.weights[name] = value
        else:
            self.frozen[name] = value
        return value

    def data(self, name, *shape, low=-1.0, high=1.0):
        self.inputs[name] = numbers(self.rng, shape, low, high)
        return self.inputs[name]

    def finish(self, output, targets, losses, sample_weights):
        """`losses` has one value for each sample."""
        loss = (losses * sample_weights).sum()
        loss.backward()
        return {
            "name": self.name,
            "inputs": {name: written(value) for name, value in self.inputs.items()},
            "weights": {name: written(value)
                        for name, value in (self.weights | self.frozen).items()},
            "targets": written(targets),
            "sample_weights": written(sample_weights),
            "loss": loss.item(),
            "output": written(output),
            "gradients": {name: written(value.grad) for name, value in self.weights.items()},
            "statistics": {name: written(value) for name, value in self.statistics.items()},
        }

    def classes(self, scores, smoothing=0.0):
        count, classes = scores.shape
        labels = torch.tensor([self.rng.randrange(classes) for _ in range(count)])
        weights = numbers(self.rng, (count,), 0.1, 0.5)
        losses = F.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="none")
        targets = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
        return targets.double(), losses, weights

    def batch_norm(self, x, name, channels):
        scale = self.weight(name + ".scale", channels, low=0.5, high=1.5)
        bias = self.weight(name + ".bias", channels)
        mean = self.weight(name + ".mean", channels, train=False)
        variance = self.weight(name + ".variance", channels, low=0.5, high=1.5, train=False)
        axes = [0, *range(2, x.dim())]
        self.statistics[name + ".mean"] = x.mean(axes)
        self.statistics[name + ".variance"] = x.var(axes, unbiased=False)
        return F.batch_norm(x, mean.clone(), variance.clone(), scale, bias, training=True)


def mlp():
    net = Net("Mlp", 1)
    h = F.relu(F.linear(net.data("x", 5, 6), net.weight("w1", 8, 6), net.weight("b1", 8)))
    scores = F.linear(h, net.weight("w2", 4, 8), net.weight("b2", 4))
    return net.finish(scores, *net.classes(scores, smoothing=0.1))


def softmax():
    net = Net("MlpWithSoftmax", 2)
    h = torch.tanh(net.data("x", 4, 5) @ net.weight("w1", 5, 7) + net.weight("b1", 7))
    scores = h @ net.weight("w2", 7, 3)
    return net.finish(F.softmax(scores, 1), *net.classes(scores))


def softmax_mse():
    net = Net("MseOfSoftmax", 3)
    scores = net.data("x", 4, 5, low=-3, high=3) @ net.weight("w1", 5, 6)
    output = F.softmax(scores, 1)
    targets, weights = numbers(net.rng, output.shape, 0, 1), numbers(net.rng, (4,), 0.1, 0.5)
    losses = F.mse_loss(output, targets, reduction="none").mean(1)
    return net.finish(output, targets, losses, weights)


def multilabel():
    net = Net("MultiLabel", 4)
    h = F.elu(F.linear(net.data("x", 6, 4), net.weight("w1", 5, 4), net.weight("b1", 5)), 0.7)
    scores = F.linear(h, net.weight("w2", 3, 5), net.weight("b2", 3))
    targets = (numbers(net.rng, scores.shape, 0, 1) > 0.5).double()
    weights = numbers(net.rng, (6,), 0.1, 0.5)
    losses = F.binary_cross_entropy_with_logits(scores, targets, reduction="none").mean(1)
    return net.finish(torch.sigmoid(scores), targets, losses, weights)


def convolutional():
    net = Net("Convolutional", 5)
    x = net.data("x", 2, 3, 13, 12)
    x = F.relu(F.conv2d(x, net.weight("w1", 4, 3, 3, 3), net.weight("b1", 4), stride=(2, 1),
                        padding=(1, 2)))
    x = F.max_pool2d(x, 3, 2, 1)
    x = F.conv2d(x, net.weight("w2", 6, 2, 3, 3), net.weight("b2", 6), padding=2, dilation=2,
                 groups=2)
    x = F.avg_pool2d(F.relu(x), 2, 2, padding=1, count_include_pad=False)
    x = F.avg_pool2d(x, (3, 2), 1, padding=1, count_include_pad=True)
    scores = F.linear(x.flatten(1), net.weight("w3", 5, x[0].numel()), net.weight("b3", 5))
    return net.finish(scores, *net.classes(scores))


def depthwise():
    net = Net("DepthwiseWithBatchStatistics", 6)
    x = F.conv2d(net.data("x", 3, 4, 7, 7), net.weight("w1", 6, 4, 1, 1))
    x = F.hardtanh(net.batch_norm(x, "bn1", 6), -0.5, 6)
    x = F.conv2d(x, net.weight("w2", 6, 1, 3, 3), stride=2, padding=1, groups=6)
    x = F.hardswish(net.batch_norm(x, "bn2", 6))
    x = F.conv2d(x, net.weight("w3", 5, 6, 1, 1))
    x = F.silu(net.batch_norm(x, "bn3", 5))
    scores = F.linear(x.mean((2, 3)), net.weight("w4", 4, 5), net.weight("b4", 4))
    return net.finish(scores, *net.classes(scores))


def residual():
    net = Net("ResidualWithFrozenStatistics", 7)

    def frozen(x, name, channels):
        def part(kind, low=None, high=None):
            return net.weight(f"{name}.{kind}", channels, low=low, high=high, train=False)

        return F.batch_norm(x, part("mean"), part("variance", 0.5, 1.5), part("scale", 0.5, 1.5),
                            part("bias"))

    x = F.conv2d(net.data("x", 2, 2, 6, 6), net.weight("w1", 16, 2, 3, 3), padding=1)
    x = F.relu(frozen(x, "bn1", 16))
    y = F.relu(frozen(F.conv2d(x, net.weight("w2", 16, 16, 3, 3), stride=2, padding=1), "bn2", 16))
    y = frozen(F.conv2d(y, net.weight("w3", 16, 16, 3, 3), padding=1), "bn3", 16)
    x = F.relu(y + F.conv2d(x, net.weight("w4", 16, 16, 1, 1), stride=2))
    x = torch.amax(x, (2, 3))
    scores = F.linear(x, net.weight("w5", 3, 16), net.weight("b5", 3))
    return net.finish(scores, *net.classes(scores))


def decoder():
    net = Net("Decoder", 8)
    x = net.data("x", 2, 3, 5, 5)
    x = F.leaky_relu(F.conv2d(x, net.weight("w1", 4, 3, 3, 3), net.weight("b1", 4), stride=2), 0.2)
    x = F.conv_transpose2d(x, net.weight("w2", 4, 3, 3, 3), net.weight("b2", 3), stride=2,
                           padding=1, output_padding=1)
    x = F.interpolate(torch.tanh(x), scale_factor=2, mode="nearest")
    x = F.pad(x, (1, 1, 2, 0))
    x = torch.sigmoid(F.conv2d(x, net.weight("w3", 2, 3, 3, 3)))
    targets, weights = numbers(net.rng, x.shape, 0, 1), numbers(net.rng, (2,), 0.3, 0.7)
    losses = F.mse_loss(x, targets, reduction="none").mean((1, 2, 3))
    return net.finish(x, targets, losses, weights)


def transformer():
    """An embedding and a block with two heads, as PyTorch's exporter writes it."""
    net = Net("Transformer", 9)
    width, tokens, heads = 8, 5, 2
    words = [[net.rng.randrange(7) for _ in range(tokens)] for _ in range(3)]
    net.inputs["x"] = torch.tensor(words)
    x = F.embedding(net.inputs["x"], net.weight("embedding", 7, width))
    x = x + net.weight("position", tokens, width)
    layer = nn.TransformerEncoderLayer(width, heads, 12, dropout=0.0, activation="gelu",
                                       batch_first=True, norm_first=True)
    for name, parameter in layer.named_parameters():
        norm = name.startswith("norm") and name.endswith("weight")
        net.weights[name] = parameter
        limit = 1 / math.sqrt(width)
        with torch.no_grad():
            parameter.copy_(numbers(net.rng, parameter.shape, 0.5 if norm else -limit,
                                    1.5 if norm else limit))
    x = layer(x).mean(1)
    scores = F.linear(x, net.weight("head", 4, width), net.weight("head.bias", 4))
    return net.finish(scores, *net.classes(scores))


def activations():
    """The mean of many activations, each behind its own weights."""
    net = Net("Activations", 10)
    x = net.data("x", 4, 5)
    prelu = net.weight("slope", 6)
    functions = {
        "Abs": torch.abs, "Clip": lambda h: torch.clamp(h, -1, 0.5), "Elu": F.elu, "Erf": torch.erf,
        "Exp": torch.exp, "Gelu": F.gelu, "GeluTanh": lambda h: F.gelu(h, approximate="tanh"),
        "HardSigmoid": F.hardsigmoid, "HardSwish": F.hardswish, "LeakyRelu": F.leaky_relu,
        "Mish": F.mish, "PRelu": lambda h: F.prelu(h, prelu), "Relu": F.relu, "Selu": F.selu,
        "Sigmoid": torch.sigmoid, "Softplus": F.softplus, "Softsign": F.softsign,
        "Softmax": lambda h: F.softmax(h, 1), "LogSoftmax": lambda h: F.log_softmax(h, 1),
        "Tanh": torch.tanh,
    }
    outputs = [f(x @ net.weight(name, 5, 6, low=-2, high=2)) for name, f in functions.items()]
    output = torch.stack(outputs).mean(0)
    targets, weights = numbers(net.rng, output.shape), numbers(net.rng, (4,), 0.1, 0.5)
    losses = F.mse_loss(output, targets, reduction="none").mean(1)
    return net.finish(output, targets, losses, weights)


def trajectories():
    """Three steps of each optimizer, with its own learning rate for each step."""
    rng = random.Random(11)
    start = numbers(rng, (6,))
    gradients = [numbers(rng, (6,)) for _ in range(3)]
    rates = [0.1, 0.05, 0.02]
    out = []
    for name, make, options in [
        ("Sgd", torch.optim.SGD, {}),
        ("SgdWithDecay", torch.optim.SGD, {"weight_decay": 0.1}),
        ("Momentum", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
        ("Nesterov", torch.optim.SGD, {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01}),
        ("Adam", torch.optim.Adam, {}),
        ("AdamWithDecay", torch.optim.Adam,
         {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
        ("AdamW", torch.optim.AdamW, {"betas": (0.9, 0.99), "weight_decay": 0.2}),
    ]:
        weight = start.clone().requires_grad_()
        optimizer = make([weight], lr=1.0, **options)
        steps = []
        for rate, gradient in zip(rates, gradients):
            optimizer.param_groups[0]["lr"] = rate
            weight.grad = gradient.clone()
            optimizer.step()
            steps.append(written(weight))
        out.append({"name": name, "steps": steps})
    return {"start": written(start), "gradients": [written(one) for one in gradients],
            "rates": rates, "optimizers": out}


def main():
    torch.manual_seed(1)
    cases = [mlp(), softmax(), softmax_mse(), multilabel(), convolutional(), depthwise(),
             residual(), decoder(), transformer(), activations()]
    lines = [json.dumps(case, separators=(",", ":")) for case in cases]
    print('{"nets":[\n' + ",\n".join(lines) + '\n],\n"training":', end="")
    print(json.dumps(trajectories(), separators=(",", ":")) + "}")


main()
