#!/usr/bin/env python3
"""Counting a csv with quoted line breaks against `wc -l` of the same file, and counting again after 1 MB was appended to 10 GB.

Both programs start once per round and alternate. The files are created at run time and removed.
DATASET_BENCH_DIR is the directory for the files (default build/bench); with less than 16 GB free
there, the second table is omitted.
"""
import os, pathlib, random, shutil, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
VARDA = ROOT / 'build/release/bin/varda'
ROUNDS = 5


def block():
    """About 20 MB of records; a third of them have a line break and doubled quotes."""
    chance = random.Random(1)
    text = []
    for i in range(200_000):
        name = ''.join(chance.choices('abcdefgh', k=20))
        quoted = 'line one\nsaid ""%s"" and more text' % ''.join(chance.choices('xyz', k=10)) if i % 3 == 0 else 'plain quoted text here'
        text.append('%d,%s,"%s",%d\n' % (i, name, quoted, chance.randrange(10 ** 6)))
    return ''.join(text).encode(), len(text)


def write(path, piece, size):
    with open(path, 'wb') as out:
        for _ in range(size // len(piece)):
            out.write(piece)
    return size // len(piece)


# The reported peak RSS of a child is at least its parent's RSS at the start, so a small parent
# starts the children.
PEAK = 'import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); ' \
       'print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)'


def run(*words):
    """Seconds and output."""
    begin = time.perf_counter()
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit('%s failed' % ' '.join(map(str, words)))
    return time.perf_counter() - begin, done.stdout.decode()


def counting(path):
    return [str(VARDA), 'dataset', 'count', str(path), '--format', 'csv', '--header', 'no']


def count(path, *more):
    seconds, output = run(*counting(path), *more)
    return seconds, int(output.split()[1])


def main():
    base = pathlib.Path(os.environ.get('DATASET_BENCH_DIR', ROOT / 'build/bench'))
    base.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix='dataset-', dir=base))
    try:
        piece, records = block()
        path = work / 'big.csv'
        copies = write(path, piece, 1 << 30)
        measured, reference = [], []
        for _ in range(ROUNDS):
            reference.append(run('wc', '-l', path)[0])
            seconds, samples = count(path)
            if samples != copies * records:
                sys.exit('counted %d records, there are %d' % (samples, copies * records))
            measured.append(seconds)
        memory = int(subprocess.check_output([sys.executable, '-S', '-c', PEAK, *counting(path)])) / 1024
        a, b = statistics.median(measured), statistics.median(reference)
        print('| what | ours | reference | ratio | aim |\n|---|---|---|---|---|')
        print('| csv of 1 GiB, quoted line breaks: %d records, exact | %.2f s | %.2f s (`wc -l`, which counts lines) | %.1fx | ≤ 4x |' % (samples, a, b, a / b))
        print('| RSS meanwhile | %.1f MiB | | | |' % memory)
        if shutil.disk_usage(work).free < 16 << 30:
            print('\nless than 16 GB of disk are free: growing of 10 GB is left out', file=sys.stderr)
            return
        state = work / 'state'
        copies = write(path, piece, 10 * 10 ** 9)
        count(path, '--state', state)
        times = []
        more = piece[:piece.rindex(b'\n', 0, 10 ** 6) + 1]
        for _ in range(ROUNDS):
            with open(path, 'ab') as out:
                out.write(more)
            times.append(count(path, '--state', state)[0])
        print('| again after 1 MB was appended to 10 GB | %.1f ms | | | ≤ 20 ms |' % (statistics.median(times) * 1000))
    finally:
        shutil.rmtree(work)


if __name__ == '__main__':
    main()
