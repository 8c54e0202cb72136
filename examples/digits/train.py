#!/usr/bin/python3
"""Trains the digit classifiers of the demos and writes everything under this directory.

    apt-get install python3-numpy python3-onnx
    apt-get download python3-sklearn && dpkg-deb -x python3-sklearn_*.deb /tmp/sklearn
    ./train.py /tmp/sklearn/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz

The data are 1797 handwritten digits of 8x8 pixels (Optical Recognition of Handwritten Digits,
E. Alpaydin and C. Kaynak, UCI Machine Learning Repository), of which a seeded fifth is held out.
Version 3 is a linear classifier that saw few digits for a short time. Version 4 is a network with
one hidden layer that was trained on shifted copies as well.

"small" and "big" are the pair for joint inference. "small" is a linear classifier of 4x4 pixels
with nine of ten answers right, and with useful confidence. "big" is a network with two hidden
layers. report.json has the accuracy of each model alone. For a few thresholds of two policies it
also has the exact number of hard images and of right answers, which a service must reproduce. Same
seed, same numpy: same bytes.
"""
import gzip
import json
import pathlib
import struct
import sys
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20240229
TEST_SHARE = 0.2


def load(path):
    """Images as bytes 0..255 (stretched from the file's 0..16, like MNIST) and labels, split into
    train and test."""
    rows = np.loadtxt(gzip.open(path, "rt"), delimiter=",", dtype=np.int64)
    images = np.rint(rows[:, :64] * (255.0 / 16.0)).astype(np.uint8).reshape(-1, 8, 8)
    labels = rows[:, 64].astype(np.uint8)
    order = np.random.default_rng(SEED).permutation(len(rows))
    held_out = int(len(rows) * TEST_SHARE) + 1
    test, train = order[:held_out], order[held_out:]
    return images[train], labels[train], images[test], labels[test]


def shifted(images, labels):
    """The images and their copies moved by one pixel up, down, left and right."""
    copies = [images]
    for axis, step in ((1, 1), (1, -1), (2, 1), (2, -1)):
        moved = np.roll(images, step, axis=axis)
        edge = [slice(None)] * 3
        edge[axis] = 0 if step > 0 else -1
        moved[tuple(edge)] = 0
        copies.append(moved)
    return np.concatenate(copies), np.tile(labels, len(copies))


def pooled(images):
    """4x4 pixels, each the mean of four."""
    return images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4), dtype=np.float32)


def softmax(scores):
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def forward(layers, images):
    """The result of the ONNX graph, in float32."""
    activations = [images.reshape(len(images), -1).astype(np.float32) * np.float32(1 / 255)]
    for index, (weights, bias) in enumerate(layers):
        scores = activations[-1] @ weights + bias
        activations.append(np.maximum(scores, 0) if index + 1 < len(layers) else softmax(scores))
    return activations


def train(images, labels, sizes, epochs, rate, seed):
    """Minibatch gradient descent with momentum and decay on the cross-entropy."""
    rng = np.random.default_rng(seed)
    layers = [[(rng.standard_normal((a, b)) * np.sqrt(2 / a)).astype(np.float32), np.zeros(b, np.float32)]
              for a, b in zip(sizes, sizes[1:])]
    speeds = [[np.zeros_like(w), np.zeros_like(b)] for w, b in layers]
    wanted = np.eye(10, dtype=np.float32)[labels]
    for epoch in range(epochs):
        step = np.float32(rate * (1 - epoch / epochs))
        order = rng.permutation(len(images))
        for start in range(0, len(order), 32):
            batch = order[start:start + 32]
            activations = forward(layers, images[batch])
            error = (activations[-1] - wanted[batch]) / np.float32(len(batch))
            for index in reversed(range(len(layers))):
                weights, bias = layers[index]
                slopes = [activations[index].T @ error + np.float32(1e-4) * weights, error.sum(axis=0)]
                error = (error @ weights.T) * (activations[index] > 0)
                for k in range(2):
                    speeds[index][k] = np.float32(0.9) * speeds[index][k] - step * slopes[k]
                    layers[index][k] = layers[index][k] + speeds[index][k]
    return layers


def export(layers, path):
    """images FP32 [-1,8,8] of 0..255 -> probabilities FP32 [-1,10]. Scaling and softmax are in the
    graph, and pooling for layers of 4x4."""
    nodes = [helper.make_node("Flatten", ["images"], ["pixels"], axis=1),
             helper.make_node("Mul", ["pixels", "scale"], ["layer0"])]
    weights = [numpy_helper.from_array(np.array(1 / 255, np.float32), "scale")]
    if len(layers[0][0]) == 16:
        nodes[0] = helper.make_node("Unsqueeze", ["images", "channel"], ["planes"])
        nodes.insert(1, helper.make_node("AveragePool", ["planes"], ["pools"], kernel_shape=[2, 2], strides=[2, 2]))
        nodes.insert(2, helper.make_node("Flatten", ["pools"], ["pixels"], axis=1))
        weights.append(numpy_helper.from_array(np.array([1], np.int64), "channel"))
    for index, (w, b) in enumerate(layers):
        last = index + 1 == len(layers)
        weights += [numpy_helper.from_array(w, f"weights{index}"), numpy_helper.from_array(b, f"bias{index}")]
        nodes.append(helper.make_node("Gemm", [f"layer{index}", f"weights{index}", f"bias{index}"], [f"scores{index}"]))
        nodes.append(helper.make_node("Softmax", [f"scores{index}"], ["probabilities"], axis=1) if last
                     else helper.make_node("Relu", [f"scores{index}"], [f"layer{index + 1}"]))
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="varda-digits")
    model.ir_version = 7
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def cross_entropy(probabilities):
    """1 + sum(p ln p) / ln n: 0 for equal probabilities, 1 for a certain class."""
    p = probabilities.astype(np.float64)
    return 1 + np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(axis=1) / np.log(p.shape[1])


def margin(probabilities):
    """The distance between the two highest probabilities."""
    p = np.sort(probabilities.astype(np.float64), axis=1)
    return p[:, -1] - p[:, -2]


def joint(small, big, labels):
    """The result of joint inference at each threshold: the number of hard images (score below it),
    which the big model gets, and of right answers."""
    rows = []
    for policy, score in (("CrossEntropy", cross_entropy(small)), ("Margin", margin(small))):
        for threshold in (0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
            if np.abs(score - threshold).min() < 2e-5:
                sys.exit(f"{policy} {threshold}: an image is so close to the threshold that another build may decide otherwise")
            hard = score < threshold
            answers = np.where(hard, big.argmax(axis=1), small.argmax(axis=1))
            rows.append({"policy": policy, "threshold": threshold, "hard": int(hard.sum()), "correct": int((answers == labels).sum())})
    return rows


def write_idx(path, array):
    """Writes MNIST's format: two zero bytes, the type (8: unsigned byte), the rank, big-endian
    sizes, the bytes."""
    path.write_bytes(struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


def write_png(path, image):
    """Writes an 8-bit greyscale PNG."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    height, width = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    images, labels, test_images, test_labels = load(sys.argv[1])
    write_idx(HERE / "train-images.idx3-ubyte", images)
    write_idx(HERE / "train-labels.idx1-ubyte", labels)
    write_idx(HERE / "test-images.idx3-ubyte", test_images)
    write_idx(HERE / "test-labels.idx1-ubyte", test_labels)
    (HERE / "png").mkdir(exist_ok=True)
    for digit in range(10):
        write_png(HERE / "png" / f"digit-{digit}.png", test_images[np.flatnonzero(test_labels == digit)[0]])

    more_images, more_labels = shifted(images, labels)
    versions = {
        "3": ("linear, 150 digits, 30 epochs", train(images[:150], labels[:150], (64, 10), epochs=30, rate=0.05, seed=3)),
        "4": ("one hidden layer of 96, all digits and their shifted copies, 40 epochs",
              train(more_images, more_labels, (64, 96, 10), epochs=40, rate=0.05, seed=4)),
    }
    versions["small"] = ("linear on 4x4 pixels, all digits, 60 epochs",
                         train(pooled(images), labels, (16, 10), epochs=60, rate=1.0, seed=5))
    versions["big"] = ("hidden layers of 128 and 64, all digits and their shifted copies, 40 epochs",
                       train(more_images, more_labels, (64, 128, 64, 10), epochs=40, rate=0.1, seed=6))
    report = {"dataset": {"train": len(images), "test": len(test_images), "seed": SEED}, "models": []}
    answers = {}
    for version, (what, layers) in versions.items():
        directory = HERE / "models" / version
        directory.mkdir(parents=True, exist_ok=True)
        export(layers, directory / "model.onnx")
        (directory / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
        answers[version] = forward(layers, pooled(test_images) if version == "small" else test_images)[-1]
        correct = int((answers[version].argmax(axis=1) == test_labels).sum())
        report["models"].append({"version": version, "model": what, "correct": correct, "samples": len(test_labels),
                                 "accuracy": round(correct / len(test_labels), 4)})
        print(f"version {version}: {correct} of {len(test_labels)} right ({correct / len(test_labels):.4f})")
    report["joint"] = joint(answers["small"], answers["big"], test_labels)
    for row in report["joint"]:
        print("{policy} below {threshold}: {hard} hard, {correct} right".format(**row))
    (HERE / "report.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
