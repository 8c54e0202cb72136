#!/usr/bin/env python3
"""The aggregator of a federated job: rounds of large and small models, and idle clients. Prints Markdown
tables.

Clients are processes of this machine that send prepared bytes over loopback, so their share of the
processors is small. A round lasts from the first request for the model to the answer with the next
task. The state is below VARDA_BENCH_DIR (default /dev/shm, a disk as fast as memory); with the path of
a disk, its syncs count too. The reference of a round is what the bytes cost without a server: each
update is copied, hashed, and added to a sum with numpy.
"""
import http.client, json, multiprocessing, os, pathlib, re, resource, shutil, socket, statistics, struct, subprocess, sys, tempfile, time

import hashlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
AGGREGATE = str(pathlib.Path(os.environ.get('VARDA_BIN', ROOT / 'build/release/bin')) / 'varda-aggregate')
RUNS = int(os.environ.get('VARDA_BENCH_RUNS', '3'))
BASE = os.environ.get('VARDA_BENCH_DIR', '/dev/shm')
MB = 1_000_000


def safetensors(values, data, metadata=None):
    header = {'__metadata__': metadata} if metadata else {}
    header['w'] = {'dtype': 'F32', 'shape': [values], 'data_offsets': [0, 4 * values]}
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + data


def values_of(values, seed):
    """Small finite floats, quickly: random mantissas below one exponent."""
    block = b''.join(struct.pack('<f', ((seed * 7919 + i * 104729) % 2001 - 1000) * 1e-5) for i in range(4096))
    return (block * (values // 4096 + 1))[:4 * values]


class Aggregator:
    def __init__(self, work, values, clients, rounds, *flags):
        (work / 'm.safetensors').write_bytes(safetensors(values, values_of(values, 0)))
        self.process = subprocess.Popen(
            [AGGREGATE, '--model', str(work / 'm.safetensors'), '--out', str(work / 'out'), '--trust-clients', '--listen', '127.0.0.1:0', '--rounds', str(rounds),
             '--quorum', '1', '--minimum-clients', str(clients), '--clients', str(clients), '--evaluate-every', '0', '--log-level', 'warn', *flags],
            stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().replace(',', '').split()[3].rsplit(':', 1)[1])

    def memory(self, field):
        text = pathlib.Path('/proc/%d/status' % self.process.pid).read_text()
        return int(re.search(r'^%s:\s+(\d+)' % field, text, re.M)[1]) / 1024

    def processor_seconds(self):
        fields = pathlib.Path('/proc/%d/stat' % self.process.pid).read_text().rsplit(') ', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def end(self):
        self.process.kill()
        self.process.communicate()


def connect(port):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=120)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def next_task(connection, name, after):
    while True:
        connection.request('GET', '/v1/task?wait=50&after=' + after, headers={'Varda-Client': name})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status == 200:
            return json.loads(text)


def client(port, number, values, rounds, barrier, results):
    name, after = 'site-%03d' % number, ''
    data = values_of(values, number + 1)  # seconds of work: the server would end an idle connection
    connection = connect(port)
    buffer = bytearray(1 << 20)
    task = next_task(connection, name, after)
    for _ in range(rounds):
        update = safetensors(values, data, {'format': 'varda-update/1', 'task': task['id'], 'base': task['model']['sha256'], 'samples': '10', 'steps': '1',
                                            'encoding': 'dense', 'metrics': '{}'})
        digest = hashlib.sha256(update).hexdigest()  # the client's own work
        barrier.wait()
        begin, used = time.monotonic(), time.process_time()
        connection.request('GET', '/v1/models/sha256:' + task['model']['sha256'], headers={'Varda-Client': name})
        answer = connection.getresponse()
        while answer.readinto(buffer):
            pass
        connection.request('PUT', '/v1/updates/%s/sha256:%s' % (task['id'], digest), update, {'Varda-Client': name})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 201:
            raise SystemExit('%d %s' % (answer.status, text))
        uploaded = time.monotonic()
        task = next_task(connection, name, task['id'])
        results.put((begin, uploaded, time.monotonic(), time.process_time() - used))


def rounds_of(clients, values, rounds):
    work = pathlib.Path(tempfile.mkdtemp(prefix='varda-bench-', dir=BASE))
    aggregator = Aggregator(work, values, clients, rounds + 1)  # the last round stays open
    barrier, results = multiprocessing.Barrier(clients), multiprocessing.Queue()
    processes = [multiprocessing.Process(target=client, args=(aggregator.port, i, values, rounds, barrier, results), daemon=True) for i in range(clients)]
    try:
        for process in processes:
            process.start()
        all_times = [results.get(timeout=600) for _ in range(clients * rounds)]
        memory, anonymous = aggregator.memory('VmHWM'), aggregator.memory('RssAnon')
        processor = aggregator.processor_seconds() / rounds
        for process in processes:
            process.join()
    finally:
        aggregator.end()
        shutil.rmtree(work, ignore_errors=True)
    all_times.sort()
    lengths = []
    for i in range(rounds):
        group = all_times[i * clients:(i + 1) * clients]
        lengths.append((max(t[2] for t in group) - min(t[0] for t in group), max(t[1] for t in group) - min(t[0] for t in group), sum(t[3] for t in group)))
    return lengths, memory, anonymous, processor


def reference(clients, values):
    """Copies, hashes and adds all updates, with one thread."""
    try:
        import numpy
    except ImportError:
        return None
    data = [values_of(values, i + 1) for i in range(min(clients, 3))]
    begin = time.monotonic()
    total = numpy.zeros(values, 'f8')
    with tempfile.TemporaryFile(dir=BASE) as out:
        for i in range(clients):
            out.seek(0)
            out.write(data[i % len(data)])
            hashlib.sha256(data[i % len(data)]).digest()
            total += numpy.frombuffer(data[i % len(data)], 'f4')
    return time.monotonic() - begin


def rounds():
    print('| round | time | until all updates count | processor time of the aggregator | reference | memory, greatest | of it private, at the end |')
    print('|---|---|---|---|---|---|---|')
    for clients, megabytes, title in ((10, 100, '10 clients x 100 MB'), (50, 4, '50 clients x 4 MB'), (5, 0.1, '5 clients x 100 kB')):
        values = int(megabytes * MB) // 4
        lengths, memory, anonymous, processor = rounds_of(clients, values, RUNS + 1)
        lengths = lengths[1:]  # the first round warms up
        cost = reference(clients, values)
        print('| %s | %.3f s | %.3f s | %.3f s | %s | %.0f MiB | %.0f MiB |' % (
            title, statistics.median(t[0] for t in lengths), statistics.median(t[1] for t in lengths), processor,
            'no numpy' if cost is None else '%.3f s' % cost, memory, anonymous), flush=True)


def idle(count=1000):
    """Clients that wait for a task."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    work = pathlib.Path(tempfile.mkdtemp(prefix='varda-bench-', dir=BASE))
    aggregator = Aggregator(work, 1000, count + 1, 1)
    try:
        before = aggregator.memory('VmRSS')
        connections = []
        for i in range(count):
            connection = socket.create_connection(('127.0.0.1', aggregator.port))
            connection.sendall(b'GET /v1/task?wait=60 HTTP/1.1\r\nHost: a\r\nVarda-Client: site-%04d\r\n\r\n' % i)
            connections.append(connection)
        deadline, last = time.monotonic() + 30, 0
        while time.monotonic() < deadline and abs(aggregator.memory('VmRSS') - last) > 0.01:
            last = aggregator.memory('VmRSS')
            time.sleep(0.5)  # until the memory is steady
        after = aggregator.memory('VmRSS')
        print('| clients that wait for a task | memory of one |\n|---|---|')
        print('| %d | %.1f KiB |' % (count, (after - before) * 1024 / count))
    finally:
        aggregator.end()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    wanted = sys.argv[1:] or ['rounds', 'idle']
    for name in wanted:
        {'rounds': rounds, 'idle': idle}[name]()
        print()
