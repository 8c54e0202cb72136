"""The networks of bench/train.cc in PyTorch, with the same protocol on standard input and output.

train_torch.py MODEL THREADS FORMAT, where FORMAT is contiguous or channels_last.
"""

import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10


def mlp():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, CLASSES))


def convolution(before, after, kernel, stride=1, groups=1):
    return [nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(after)]


class Residual(nn.Module):
    def __init__(self, main, shortcut, last):
        super().__init__()
        self.main, self.shortcut, self.last = main, shortcut, last

    def forward(self, x):
        return self.last(self.main(x) + self.shortcut(x))


def resnet18():
    layers = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for after in (64, 64, 128, 128, 256, 256, 512, 512):
        stride = 1 if before == after else 2
        main = nn.Sequential(*convolution(before, after, 3, stride), nn.ReLU(),
                             *convolution(after, after, 3))
        shortcut = nn.Sequential(*convolution(before, after, 1, stride))
        layers.append(Residual(main, nn.Identity() if stride == 1 else shortcut, nn.ReLU()))
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def mobilenet():
    layers = [*convolution(3, 32, 3, 2), nn.ReLU6()]
    before = 32
    for expansion, after, blocks, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2),
                                            (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                                            (6, 320, 1, 1)):
        for i in range(blocks):
            stride = first if i == 0 else 1
            inner = before * expansion
            main = [*convolution(before, inner, 1), nn.ReLU6()] if expansion != 1 else []
            main += [*convolution(inner, inner, 3, stride, inner), nn.ReLU6(),
                     *convolution(inner, after, 1)]
            block = nn.Sequential(*main)
            if stride == 1 and before == after:
                block = Residual(block, nn.Identity(), nn.Identity())
            layers.append(block)
            before = after
    return nn.Sequential(*layers, *convolution(before, 1280, 1), nn.ReLU6(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, CLASSES))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def transformer():
    block = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, activation="gelu",
                                       batch_first=True, norm_first=True)
    return nn.Sequential(block, Mean(), nn.Linear(128, CLASSES))


MODELS = {"mlp": (mlp, (784,)), "lenet": (lenet, (1, 28, 28)),
          "mobilenet": (mobilenet, (3, 64, 64)), "resnet18": (resnet18, (3, 64, 64)),
          "transformer": (transformer, (64, 128))}


def main():
    name, threads, layout = sys.argv[1:]
    torch.set_num_threads(int(threads))
    make, sample = MODELS[name]
    size, model = 0, None
    while line := sys.stdin.readline():
        wanted, seconds = int(line.split()[0]), float(line.split()[1])
        if wanted != size:
            begin = time.perf_counter()
            size, model = wanted, make()
            x, y = torch.rand(size, *sample), torch.arange(size) % CLASSES
            if layout == "channels_last":
                model, x = (one.to(memory_format=torch.channels_last) for one in (model, x))
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

        def step():
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        if begin:
            step()
            start, begin = 1000 * (time.perf_counter() - begin), None
        times = []
        until = time.perf_counter() + seconds
        while len(times) < 2 or time.perf_counter() < until:
            before = time.perf_counter()
            step()
            times.append(time.perf_counter() - before)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{1000 * statistics.median(times):.4f} {peak} {start:.1f}", flush=True)


main()
