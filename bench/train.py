#!/usr/bin/env python3
"""Training steps of varda_bench_train against PyTorch, in turns: samples a second and peak memory.

VARDA_BENCH_TORCH is the command of a Python that has PyTorch; default python3. Without PyTorch its
columns are empty. Each contender is one process for each model and number of threads. It takes the
batch sizes in ascending order, so the peak of its memory belongs to the present batch size.
"""

import os
import pathlib
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
OURS = ROOT / "build/release/bin/varda_bench_train"
THEIRS = (ROOT / "bench/support/train_torch.py").read_text()
TORCH = shlex.split(os.environ.get("VARDA_BENCH_TORCH", "python3"))
ROUNDS, SECONDS = 3, 0.25
CONVOLUTIONAL = ["lenet", "mobilenet", "resnet18"]
HAS_ONEDNN = (ROOT / "build/release/lib/varda/varda-operators-onednn.so").exists()
CONVOLUTIONAL_AIM = 1.0 if HAS_ONEDNN else 0.6
MODELS = {  # the aims: the least speed and the most memory, relative to PyTorch
    "mlp": ("MLP 784-256-10", 1.2, 0.25),
    "transformer": ("transformer block", 1.2, 1),
    "lenet": ("LeNet", CONVOLUTIONAL_AIM, 0.25),
    "mobilenet": ("MobileNetV2 at 64x64", CONVOLUTIONAL_AIM, 1),
    "resnet18": ("ResNet-18 at 64x64", CONVOLUTIONAL_AIM, 1),
}


class Contender:
    def __init__(self, threads, *command):
        # OpenBLAS with POSIX threads does not follow PyTorch's number of threads.
        limits = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **limits})

    def measure(self, batch):
        """Milliseconds a step, peak in MiB, milliseconds to the end of the first step."""
        self.process.stdin.write(f"{batch} {SECONDS}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            sys.exit(f"{' '.join(self.process.args[:3])[:60]} failed")
        return tuple(map(float, answer))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def torch_parts():
    """PyTorch's version and its library of linear algebra, on which its speed depends; None: no
    PyTorch."""
    program = ("import re, torch\n"
               "torch.ones(64, 64) @ torch.ones(64, 64)\n"
               "blas = {x for x in re.findall(r'/\\S*(?:blas|mkl|blis)\\S*', open('/proc/self/maps').read())}\n"
               "print('PyTorch', torch.__version__, 'with', ', '.join(sorted(blas)) or 'no BLAS')")
    try:
        done = subprocess.run([*TORCH, "-c", program], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL)
        return done.stdout.strip() if done.returncode == 0 else None
    except OSError:
        return None


def measured(contenders, batch):
    rounds = [[one.measure(batch) for one in contenders] for _ in range(ROUNDS)]
    return [(statistics.median(step for step, _, _ in turns), turns[-1][1], turns[0][2])
            for turns in zip(*rounds)]


def ratio(value, aim, met):
    return f"{value:.2f}x ({'' if met else '**not** '}{aim})"


def main():
    torch = torch_parts()
    print(f"Convolutions: {'oneDNN' if HAS_ONEDNN else 'operators of ONNX'}. {torch or 'No PyTorch.'}")
    if torch and "/blas/libblas" in torch:
        print("**This is the slow reference BLAS: install libopenblas0-openmp.**")
    print()
    print("| model | batch | threads | samples/s | PyTorch | channels_last | ratio (aim) | RSS MiB "
          "| PyTorch | ratio (aim) | ms to first step |")
    print("|---|---:|---:|---:|---:|---:|---|---:|---:|---|---:|")
    for model, (name, speed_aim, memory_aim) in MODELS.items():
        layouts = ["contiguous", "channels_last"] if model in CONVOLUTIONAL else ["contiguous"]
        for threads in (1, 2):
            contenders = [Contender(threads, OURS, model, threads)]
            if torch:
                contenders += [Contender(threads, *TORCH, "-c", THEIRS, model, threads, layout)
                               for layout in layouts]
            for batch in (1, 8, 32):
                ours, *theirs = measured(contenders, batch)
                speeds = [1000 * batch / step for step, _, _ in [ours, *theirs]]
                cells = [name, batch, threads, f"{speeds[0]:,.0f}"]
                cells += [f"{speed:,.0f}" for speed in speeds[1:]] + [""] * (3 - len(speeds))
                if torch:
                    fastest = min(theirs)
                    speed, memory = fastest[0] / ours[0], ours[1] / fastest[1]
                    cells += [ratio(speed, f"≥ {speed_aim}x", speed >= speed_aim), f"{ours[1]:.0f}",
                              f"{fastest[1]:.0f}",
                              ratio(memory, f"≤ {memory_aim}x", memory <= memory_aim)]
                else:
                    cells += ["", f"{ours[1]:.0f}", "", ""]
                print(f"| {' | '.join(map(str, cells))} | {ours[2]:.0f} |", flush=True)
            for one in contenders:
                one.close()


main()
