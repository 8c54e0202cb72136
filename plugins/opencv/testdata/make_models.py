#!/usr/bin/env python3
"""Writes the models of this directory, with one input and the expected output for each.

    python3 plugins/opencv/testdata/make_models.py [DIRECTORY]

The script needs only Python. It writes the files byte by byte, and computes the expected outputs
itself. The same seed always gives the same bytes. Formats:
- GraphDef: github.com/tensorflow/tensorflow, tensorflow/core/framework/graph.proto
- Caffe: github.com/BVLC/caffe, src/caffe/proto/caffe.proto
- Darknet: github.com/AlexeyAB/darknet, src/parser.c
"""
import math, pathlib, random, struct, sys

FLOAT, INT32 = 1, 3  # tensorflow/core/framework/types.proto


# ---- protobuf

def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def floats(values):
    return struct.pack('<%df' % len(values), *values)


# ---- TensorFlow

def shape(dims):
    return b''.join(text(2, number(1, dim)) for dim in dims)


def tensor(dtype, dims, content):
    return number(1, dtype) + text(2, shape(dims)) + text(4, content)


def node(name, op, inputs=(), **attributes):
    body = text(1, name) + text(2, op) + b''.join(text(3, one) for one in inputs)
    for key, value in attributes.items():
        body += text(5, text(1, key) + text(2, value))
    return text(1, body)


def a_type(value):
    return number(6, value)


def a_ints(values):
    return text(1, text(3, b''.join(varint(value) for value in values)))


def a_text(value):
    return text(2, value)


def placeholder(name, dims):
    return node(name, 'Placeholder', dtype=a_type(FLOAT), shape=text(7, shape(dims)))


def constant(name, dims, values, dtype=FLOAT):
    content = floats(values) if dtype == FLOAT else struct.pack('<%di' % len(values), *values)
    return node(name, 'Const', dtype=a_type(dtype), value=text(8, tensor(dtype, dims, content)))


def convolution(name, inputs, layout='NHWC'):
    return node(name, 'Conv2D', inputs, T=a_type(FLOAT), strides=a_ints([1, 1, 1, 1]), padding=a_text('SAME'),
                data_format=a_text(layout))


# ---- arithmetic, on lists of float32 in NHWC order

def rounded(values):
    return list(struct.unpack('<%df' % len(values), floats(values)))


def conv_same(image, height, width, kernel, bias, size, channels, filters):
    """`kernel` is HWIO; `image` has one sample."""
    out, reach = [], size // 2
    for y in range(height):
        for x in range(width):
            for f in range(filters):
                total = bias[f]
                for ky in range(size):
                    for kx in range(size):
                        sy, sx = y + ky - reach, x + kx - reach
                        if not (0 <= sy < height and 0 <= sx < width):
                            continue
                        for c in range(channels):
                            total += image[(sy * width + sx) * channels + c] * kernel[((ky * size + kx) * channels + c) * filters + f]
                out.append(total)
    return out


def relu(values):
    return [max(0.0, value) for value in values]


def pool2(image, height, width, channels):
    return [max(image[((2 * y + dy) * width + 2 * x + dx) * channels + c] for dy in (0, 1) for dx in (0, 1))
            for y in range(height // 2) for x in range(width // 2) for c in range(channels)]


def dense(values, weights, bias):
    """`weights` is [inputs, outputs]."""
    return [bias[o] + sum(value * weights[i * len(bias) + o] for i, value in enumerate(values)) for o in range(len(bias))]


def softmax(values):
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def nchw_to_nhwc(values, channels, pixels):
    return [values[c * pixels + p] for p in range(pixels) for c in range(channels)]


def nhwc_to_nchw(values, channels, pixels):
    return [values[p * channels + c] for c in range(channels) for p in range(pixels)]


# ---- models

class Weights:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def take(self, count, scale=0.5):
        return rounded([self.random.uniform(-scale, scale) for _ in range(count)])


def save(directory, files, given, expected):
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    lines = [' '.join('%.9g' % value for value in values) for values in (given, expected)]
    (directory / 'example.txt').write_text('\n'.join(lines) + '\n')


def faces(directory, seed):
    """A classifier of 12 x 12 grey images with 7 classes, as for facial expressions."""
    w = Weights(seed)
    kernel, bias = w.take(3 * 3 * 4), w.take(4)
    weights, offsets = w.take(144 * 7), w.take(7)
    graph = b''.join([
        placeholder('input', [-1, 12, 12, 1]),
        constant('conv/kernel', [3, 3, 1, 4], kernel),
        constant('conv/bias', [4], bias),
        convolution('conv/Conv2D', ['input', 'conv/kernel']),
        node('conv/BiasAdd', 'BiasAdd', ['conv/Conv2D', 'conv/bias'], T=a_type(FLOAT), data_format=a_text('NHWC')),
        node('conv/Relu', 'Relu', ['conv/BiasAdd'], T=a_type(FLOAT)),
        node('pool/MaxPool', 'MaxPool', ['conv/Relu'], T=a_type(FLOAT), ksize=a_ints([1, 2, 2, 1]), strides=a_ints([1, 2, 2, 1]),
             padding=a_text('VALID'), data_format=a_text('NHWC')),
        constant('flatten/shape', [2], [-1, 144], INT32),
        node('flatten/Reshape', 'Reshape', ['pool/MaxPool', 'flatten/shape'], T=a_type(FLOAT), Tshape=a_type(INT32)),
        constant('dense/kernel', [144, 7], weights),
        constant('dense/bias', [7], offsets),
        node('dense/MatMul', 'MatMul', ['flatten/Reshape', 'dense/kernel'], T=a_type(FLOAT)),
        node('dense/BiasAdd', 'BiasAdd', ['dense/MatMul', 'dense/bias'], T=a_type(FLOAT), data_format=a_text('NHWC')),
        node('expression', 'Softmax', ['dense/BiasAdd'], T=a_type(FLOAT)),
    ])
    given = w.take(144, 1)
    maps = relu(conv_same(given, 12, 12, kernel, bias, 3, 1, 4))
    save(directory, {'frozen.pb': graph, 'labels.txt': 'angry\ndisgust\nfear\nhappy\nsad\nsurprise\nneutral\n'}, given,
         softmax(dense(pool2(maps, 12, 12, 4), weights, offsets)))


def maps(directory, layout):
    """Feature maps of a 4 x 6 image with 3 channels: two filters. NCHW is the layout of the whole graph."""
    w = Weights(7)
    kernel, bias = w.take(3 * 3 * 3 * 2), w.take(2)
    dims = [-1, 4, 6, 3] if layout == 'NHWC' else [-1, 3, 4, 6]
    graph = b''.join([
        placeholder('image', dims),
        constant('kernel', [3, 3, 3, 2], kernel),
        constant('bias', [2], bias),
        convolution('Conv2D', ['image', 'kernel'], layout),
        node('BiasAdd', 'BiasAdd', ['Conv2D', 'bias'], T=a_type(FLOAT), data_format=a_text(layout)),
        node('maps', 'Relu', ['BiasAdd'], T=a_type(FLOAT)),
    ])
    given = w.take(72, 1)
    expected = relu(conv_same(given, 4, 6, kernel, bias, 3, 3, 2))
    if layout == 'NCHW':
        given, expected = nhwc_to_nchw(given, 3, 24), nhwc_to_nchw(expected, 2, 24)
    save(directory, {'frozen.pb': graph}, given, expected)


def caffe(directory):
    """One fully connected layer after 2 x 3 x 4 inputs."""
    w = Weights(11)
    weights, offsets = w.take(5 * 24), w.take(5)

    def blob(dims, values):
        return text(7, text(7, text(1, b''.join(varint(dim) for dim in dims))) + text(5, floats(values)))

    layers = [text(1, 'ip') + text(2, 'InnerProduct') + text(3, 'data') + text(4, 'ip') + blob([5, 24], weights) + blob([5], offsets)]
    model = text(1, 'tiny') + b''.join(text(100, layer) for layer in layers)
    prototxt = '''name: "tiny"
layer { name: "data" type: "Input" top: "data" input_param { shape: { dim: 1 dim: 2 dim: 3 dim: 4 } } }
# InnerProduct flattens its input.
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
'''
    given = w.take(24, 1)
    logits = [offsets[o] + sum(weights[o * 24 + i] * given[i] for i in range(24)) for o in range(5)]
    save(directory, {'model.caffemodel': model, 'model.prototxt': prototxt}, given, softmax(logits))


def darknet(directory):
    """A convolution, and the average of each of its three maps."""
    w = Weights(13)
    bias, kernel = w.take(3), w.take(3 * 2 * 9)  # kernel: OIHW
    cfg = '''[net]
batch=64
width=5
height=4
channels=2

[convolutional]
filters=3
size=3
stride=1
pad=1
activation=relu

[avgpool]
'''
    weights = struct.pack('<iiiQ', 0, 2, 0, 0) + floats(bias) + floats(kernel)
    given = w.take(2 * 20, 1)  # NCHW
    hwio = [kernel[((f * 2 + c) * 3 + ky) * 3 + kx] for ky in range(3) for kx in range(3) for c in range(2) for f in range(3)]
    out = relu(conv_same(nchw_to_nhwc(given, 2, 20), 4, 5, hwio, bias, 3, 2, 3))
    save(directory, {'model.cfg': cfg, 'model.weights': weights}, given, [sum(out[f::3]) / 20 for f in range(3)])


def main(root):
    faces(root / 'faces/3', 3)
    faces(root / 'faces/4', 4)
    maps(root / 'maps', 'NHWC')
    maps(root / 'maps_nchw', 'NCHW')
    caffe(root / 'caffe')
    darknet(root / 'darknet')


if __name__ == '__main__':
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent)
