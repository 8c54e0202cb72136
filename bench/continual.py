#!/usr/bin/env python3
"""Methods against forgetting on the digits: a model that never saw 7 and 9 gets a stream of them.

    python3 bench/continual.py [--build build/release] [--work DIR] [NAME ...]

Writes the data as class folders, trains the base on the digits 0 to 6 and 8, and runs one round of
`varda-train --incremental` for each setting. The table has the accuracy of the base and of the
candidate on the test images, on the digits that the base knew ("old"), and on 7 and 9 ("new").
Forgetting is the loss of accuracy on the old digits.
"""
import argparse, json, pathlib, random, shutil, struct, subprocess, sys, tempfile, time, zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIGITS = ROOT / 'examples/digits'
NEW = (7, 9)
STREAM_OLD = 6  # samples of each old digit in the stream: the control share
BASE = {'epochs': 60, 'batchSize': 32, 'seed': 1, 'threads': 1, 'optimizer': {'name': 'sgd', 'learningRate': 0.1, 'momentum': 0.9}}
ROUND = {'epochs': 20, 'batchSize': 16, 'seed': 1, 'threads': 1, 'optimizer': {'name': 'sgd', 'learningRate': 0.05, 'momentum': 0.9}}
# Name, members of trainer.continual, whether old samples are on the node.
METHODS = [('none', {}, False),
           ('lwf', {'lwf': {'lambda': 1, 'temperature': 2}}, False),
           ('ewc', {'ewc': {'lambda': 1e5, 'samples': 200}}, True),
           ('agem', {'agem': {'samples': 200}}, True),
           ('replay', {'replay': {'samples': 500}}, True),
           ('replay+lwf', {'replay': {'samples': 200}, 'lwf': {'lambda': 1, 'temperature': 2}}, True),
           ('slda', {'slda': {'shrinkage': 1e-4}}, True)]


def read_idx(path):
    data = path.read_bytes()
    rank = data[3]
    shape = struct.unpack('>%dI' % rank, data[4:4 + 4 * rank])
    return shape, data[4 + 4 * rank:]


def png(width, height, pixels):
    def chunk(kind, body):
        return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
    rows = b''.join(b'\0' + pixels[y * width:(y + 1) * width] for y in range(height))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def load(part):
    shape, pixels = read_idx(DIGITS / (part + '-images.idx3-ubyte'))
    _, labels = read_idx(DIGITS / (part + '-labels.idx1-ubyte'))
    size = shape[1] * shape[2]
    return [(labels[i], png(shape[2], shape[1], pixels[i * size:(i + 1) * size])) for i in range(shape[0])]


def write(folder, samples):
    for number, (label, image) in enumerate(samples):
        place = folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        (place / ('%05d.png' % number)).write_bytes(image)


def make_data(work):
    """base: what the first training saw; stream: new samples; memory: old samples for replay."""
    train, test = load('train'), load('test')
    old = [s for s in train if s[0] not in NEW]
    stream, rest, kept = [s for s in train if s[0] in NEW], [], {}
    for sample in old:
        kept[sample[0]] = kept.get(sample[0], 0) + 1
        (stream if kept[sample[0]] <= STREAM_OLD else rest).append(sample)
    write(work / 'base', rest)
    write(work / 'stream', stream)
    write(work / 'memory', rest)
    write(work / 'test', test)
    return len(stream)


def field(number, value):
    """A field of a protobuf message: a number, a text, bytes, or a message."""
    def varint(n):
        out = b''
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def untrained_model(hidden, seed):
    """An ONNX file: pixels / 255, 64 -> hidden -> 10 with random weights (He et al. 2015)."""
    rng = random.Random(seed)

    def tensor(name, shape, values):
        dims = b''.join(field(1, size) for size in shape)
        return field(5, dims + field(2, 1) + field(8, name) + field(9, struct.pack('<%df' % len(values), *values)))

    def layer(name, inputs, outputs):
        limit = (6 / inputs) ** 0.5
        return (tensor('w' + name, [inputs, outputs], [rng.uniform(-limit, limit) for _ in range(inputs * outputs)]) +
                tensor('b' + name, [outputs], [0.0] * outputs))

    def node(kind, inputs, output, *attributes):
        return field(1, b''.join(field(1, i) for i in inputs) + field(2, output) + field(4, kind) + b''.join(attributes))

    def value(number, name, shape):
        dims = b''.join(field(1, field(1, size) if size else field(2, 'n')) for size in shape)
        return field(number, field(1, name) + field(2, field(1, field(1, 1) + field(2, dims))))
    graph = (node('Mul', ['x', 'scale'], 'scaled') + node('Flatten', ['scaled'], 'flat') + node('Gemm', ['flat', 'w1', 'b1'], 'h1') +
             node('Relu', ['h1'], 'h2') + node('Gemm', ['h2', 'w2', 'b2'], 'scores') + node('Softmax', ['scores'], 'y') + field(2, 'digits') +
             tensor('scale', [1], [1 / 255]) + layer('1', 64, hidden) + layer('2', hidden, 10) + value(11, 'x', [0, 1, 8, 8]) + value(12, 'y', [0, 10]))
    return field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, 17))


def run(build, arguments, settings, work):
    file = work / 'settings.json'
    file.write_text(json.dumps(settings))
    start = time.monotonic()
    done = subprocess.run([build / 'bin/varda-train', '--settings', file, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit('varda-train %s: %s' % (' '.join(map(str, arguments)), done.stderr))
    return time.monotonic() - start


def train_base(build, work):
    """The model of the first training, in work/base-model."""
    start = work / 'untrained'
    start.mkdir(exist_ok=True)
    (start / 'model.onnx').write_bytes(untrained_model(48, 1))
    (start / 'labels.txt').write_text(''.join('%d\n' % digit for digit in range(10)))
    base = ['--model', start, '--data', work / 'base', '--out', work / 'base-model', '--hold-out', 0]
    run(build, base, BASE, work)


def counts(slice_, names):
    chosen = [c for c in slice_['classes'] if (int(c['name']) in NEW) == names]
    samples = sum(c['samples'] for c in chosen)
    return [sum(c[k] for c in chosen) / samples for k in ('baseRight', 'candidateRight')]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=pathlib.Path, default=ROOT / 'build/release')
    parser.add_argument('--work', type=pathlib.Path)
    parser.add_argument('--json', type=pathlib.Path, help='also write the rows as JSON')
    parser.add_argument('names', nargs='*')
    options = parser.parse_args()
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix='varda-continual-'))
    try:
        table(options, work)
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)


def table(options, work):
    streamed = make_data(work)
    train_base(options.build, work)
    print('%d samples in the stream; forgetting = accuracy lost on the old digits' % streamed)
    print('%-12s %9s %9s %9s %9s %9s %11s %8s' % ('method', 'all', 'old', 'new', 'base all', 'base new', 'forgetting', 'seconds'))
    rows = []
    for name, continual, memory in METHODS:
        if options.names and name not in options.names:
            continue
        directory = work / ('job-' + name)
        arguments = ['--incremental', '--dir', directory, '--data', work / 'stream', '--base', work / 'base-model', '--evaluate', work / 'test']
        if memory:
            arguments += ['--old-data', work / 'memory']
        seconds = run(options.build, arguments, {**ROUND, 'continual': continual} if continual else ROUND, work)
        frozen = json.loads((directory / 'round-1/comparison.json').read_text())['slices'][0]
        old, new = counts(frozen, False), counts(frozen, True)
        row = {'method': name, 'all': frozen['candidateRight'] / frozen['samples'], 'old': old[1], 'new': new[1],
               'baseAll': frozen['baseRight'] / frozen['samples'], 'baseNew': new[0], 'forgetting': old[0] - old[1], 'seconds': round(seconds, 2)}
        rows.append(row)
        print('%-12s %9.3f %9.3f %9.3f %9.3f %9.3f %11.3f %8.2f' % (name, row['all'], row['old'], row['new'], row['baseAll'], row['baseNew'],
                                                                 row['forgetting'], seconds))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
    main()
