#!/usr/bin/env python3
"""The artifact registry: uploads, downloads, memory with ten clients, changed bytes down and up, and
a registry in a bucket. Prints Markdown tables.

Uploads and downloads move one file of VARDA_BENCH_MIB MiB (default 1024) through loopback. The
reference of an upload is what its promise costs without a server: copy the file, hash the copy, sync.
The reference of a download is `curl` from a file. Sides alternate; the first run of each does not
count. Changed bytes are those that a counting file server sends to `varda fetch --base`. The bucket
is tests/support/s3_server.py, which checks every signature; its reference is `aws s3 cp` to the
same server, if that program is installed.
"""
import hashlib, http.server, os, pathlib, random, re, shutil, statistics, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
VARDA = str(pathlib.Path(os.environ.get('VARDA_BIN', ROOT / 'build/release/bin')) / 'varda')
RUNS = int(os.environ.get('VARDA_BENCH_RUNS', '3'))
MIB = 1 << 20
FILE_MIB = int(os.environ.get('VARDA_BENCH_MIB', '1024'))
CLIENTS, CLIENT_MIB = 10, 100
ARCHIVE_MIB = 200
BUCKET_MIB = 64
CURL = ['curl', '-sSf', '--noproxy', '*']


def write_file(path, mib, seed):
    """Random bytes: no side can save work. Returns the SHA-256."""
    rng, digest = random.Random(seed), hashlib.sha256()
    with open(path, 'wb') as f:
        for _ in range(mib):
            block = rng.randbytes(MIB)
            digest.update(block)
            f.write(block)
    return digest.hexdigest()


def timed(action):
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def command(*args):
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Registry:
    def __init__(self, directory, *flags):
        self.admin = str(directory) + '.sock'
        self.process = subprocess.Popen([VARDA, 'registry', '--data-dir', str(directory), '--listen', '127.0.0.1:0', '--admin', 'unix:' + self.admin, *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split(' at ')[1].strip()

    def blob(self, sha):
        return '%s/v1/blobs/sha256:%s' % (self.url, sha)

    def received(self):
        """Bytes of blobs that clients sent."""
        metrics = subprocess.run([*CURL, '--unix-socket', self.admin, 'http://localhost/metrics'], capture_output=True, check=True, text=True).stdout
        return float(re.search(r'^varda_registry_received_bytes_total (\S+)', metrics, re.M)[1])

    def rss_mib(self, field):
        return int(re.search(field + r':\s+(\d+)', pathlib.Path('/proc/%d/status' % self.process.pid).read_text())[1]) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def transfer(work, registry):
    sha = write_file(work / 'file', FILE_MIB, 1)
    times = {'upload': [], 'copy': [], 'download': [], 'local': []}
    for _ in range(RUNS + 1):
        times['upload'].append(timed(lambda: command(*CURL, '-T', str(work / 'file'), registry.blob(sha))))
        times['download'].append(timed(lambda: command(*CURL, '-o', str(work / 'got'), registry.blob(sha))))
        command(*CURL, '-X', 'DELETE', registry.blob(sha))
        times['local'].append(timed(lambda: command(*CURL, '-o', str(work / 'got'), 'file://' + str(work / 'file'))))
        times['copy'].append(timed(lambda: command('sh', '-c', 'cp "$1" "$2" && sha256sum "$2" && sync "$2"', 'sh', str(work / 'file'), str(work / 'copy'))))
    median = {name: FILE_MIB / statistics.median(all[1:]) for name, all in times.items()}
    print('| %d MiB through loopback | MiB/s | reference MiB/s | ratio |' % FILE_MIB)
    print('|---|---|---|---|')
    print('| `curl -T` to the registry | %.0f | %.0f (cp, sha256sum, sync) | %.2fx |' % (median['upload'], median['copy'], median['upload'] / median['copy']))
    print('| `curl -o` from the registry | %.0f | %.0f (curl from a file) | %.2fx |' % (median['download'], median['local'], median['download'] / median['local']))


def memory(work):
    registry = Registry(work / 'clients')
    idle = registry.rss_mib('VmRSS')
    shas = [write_file(work / ('client%d' % i), CLIENT_MIB, 100 + i) for i in range(CLIENTS)]
    uploads = [subprocess.Popen([*CURL, '-T', str(work / ('client%d' % i)), registry.blob(sha)], stdout=subprocess.DEVNULL) for i, sha in enumerate(shas)]
    failed = sum(upload.wait() != 0 for upload in uploads)
    peak = registry.rss_mib('VmHWM')
    registry.stop()
    print('\n| clients | each | failed | idle MiB | peak MiB | aim | met |\n|---|---|---|---|---|---|---|')
    print('| %d | %d MiB | %d | %.1f | %.1f | ≤ 20 MiB | %s |' % (CLIENTS, CLIENT_MIB, failed, idle, peak, 'yes' if peak <= 20 and not failed else 'no'))


class Counter(http.server.BaseHTTPRequestHandler):
    """A file server with ranges that counts what it sends."""
    protocol_version = 'HTTP/1.1'
    sent = 0

    def do_GET(self):
        path = pathlib.Path(self.server.folder) / self.path.lstrip('/')
        if not path.is_file():
            return self.send_error(404)
        data = path.read_bytes()
        ranges = re.fullmatch(r'bytes=(\d+)-(\d*)', self.headers.get('Range', ''))
        begin, end = (int(ranges[1]), int(ranges[2] or len(data) - 1) + 1) if ranges else (0, len(data))
        piece = data[begin:end]
        self.send_response(206 if ranges else 200)
        self.send_header('ETag', '"%d-%d"' % (path.stat().st_size, path.stat().st_mtime_ns))
        self.send_header('Content-Length', str(len(piece)))
        if ranges:
            self.send_header('Content-Range', 'bytes %d-%d/%d' % (begin, begin + len(piece) - 1, len(data)))
        self.end_headers()
        self.wfile.write(piece)
        Counter.sent += len(piece)

    def log_message(self, *args):
        pass


def deltas(work):
    """An archive of weights, of which 5 % change: in one place, and in ten."""
    www = work / 'www'
    www.mkdir()
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Counter)
    server.folder = www
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = 'http://127.0.0.1:%d/' % server.server_port
    base = random.Random(5).randbytes(ARCHIVE_MIB * MIB)
    changed = ARCHIVE_MIB * MIB // 20

    def pack(name, weights):
        model = work / name
        model.mkdir()
        (model / 'weights.bin').write_bytes(weights)
        (model / 'readme.txt').write_text(name)
        command(VARDA, 'pack', str(model), '--framework', '', '-o', str(www / (name + '.tar')))
        return hashlib.sha256((www / (name + '.tar')).read_bytes()).hexdigest()

    def fetch(name, sha, *flags):
        Counter.sent = 0
        to = work / ('to-' + name)
        seconds = timed(lambda: command(VARDA, 'fetch', '--url', url + name + '.tar', '--sha256', sha, '--to', str(to),
                                        '--allow-source', '127.0.0.1', *flags))
        return Counter.sent / MIB, seconds

    first = pack('first', base)
    whole, seconds = fetch('first', first)
    print('\n| %d MiB tar with its list of chunks | MiB sent | of the changed bytes | s | aim | met |\n|---|---|---|---|---|---|' % ARCHIVE_MIB)
    print('| whole | %.1f | | %.2f | | |' % (whole, seconds))
    for places, title in ((1, '5 % changed in one place'), (10, '5 % changed in ten places')):
        weights = bytearray(base)
        for i in range(places):
            at = (i * 2 + 1) * len(base) // (2 * places)
            weights[at:at + changed // places] = random.Random(100 * places + i).randbytes(changed // places)
        name = 'changed%d' % places
        sent, seconds = fetch(name, pack(name, bytes(weights)), '--base', str(work / 'to-first'))
        ratio = sent * MIB / changed
        print('| %s | %.1f | %.2fx | %.2f | ≤ 1.1x | %s |' % (title, sent, ratio, seconds, 'yes' if ratio <= 1.1 else 'no'))
    server.shutdown()


def upload_of_changes(work, registry):
    """`varda push` of a file of which 5 % changed, against a registry that has the file before."""
    base = random.Random(6).randbytes(ARCHIVE_MIB * MIB)
    changed = len(base) // 20
    up = subprocess.Popen([VARDA, 'up', '--data-dir', str(work / 'up'), '--registry', 'off'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        up.stdout.readline()

        def push(name, data):
            (work / 'weights.bin').write_bytes(data)
            begin = registry.received()
            seconds = timed(lambda: command(VARDA, 'push', str(work / 'weights.bin'), '--name', name, '--registry', registry.url,
                                            '--kubeconfig', str(work / 'up/kubeconfig')))
            return registry.received() - begin, seconds

        print('\n| upload of a file of %d MiB | MiB sent | list MiB | of the changed bytes | s | aim | met |\n|---|---|---|---|---|---|---|' % ARCHIVE_MIB)
        for places, title in ((1, 'upload of 5 % changed in one place'), (10, 'upload of 5 % changed in ten places')):
            sent, seconds = push('weights%d' % places, base)
            if places == 1:
                print('| whole | %.1f | | | %.2f | | |' % (sent / MIB, seconds))
            after = bytearray(base)
            for i in range(places):
                at = (i * 2 + 1) * len(base) // (2 * places)
                after[at:at + changed // places] = random.Random(100 * places + i).randbytes(changed // places)
            sent, seconds = push('weights%d' % places, bytes(after))
            listed = len(subprocess.run([*CURL, registry.blob(hashlib.sha256(base).hexdigest()) + '.chunks'], capture_output=True, check=True).stdout)
            ratio = (sent + listed) / changed
            print('| %s | %.1f | %.2f | %.2fx | %.2f | ≤ 1.1x | %s |' % (title, sent / MIB, listed / MIB, ratio, seconds, 'yes' if ratio <= 1.1 else 'no'))
    finally:
        up.terminate()
        up.wait()


# Serves the bucket until its standard input ends: in the benchmark's own process, the server would
# wait for the benchmark.
BUCKET = """
import sys
sys.path.insert(0, sys.argv[1])
from s3_server import S3Server
print(S3Server(bucket='models', key='KEY', secret='secret').url, flush=True)
sys.stdin.read()
"""


def bucket(work):
    """One file into a bucket and back: through the registry, and by `aws s3 cp`."""
    aws = shutil.which('aws')
    s3 = subprocess.Popen([sys.executable, '-c', BUCKET, str(ROOT / 'tests/support')], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        url = s3.stdout.readline().strip()
        credentials = work / 'credentials'
        credentials.mkdir(mode=0o700)
        (credentials / 'AWS_ACCESS_KEY_ID').write_text('KEY')
        (credentials / 'AWS_SECRET_ACCESS_KEY').write_text('secret')
        environment = dict(os.environ, AWS_ACCESS_KEY_ID='KEY', AWS_SECRET_ACCESS_KEY='secret', AWS_DEFAULT_REGION='us-east-1', NO_PROXY='*',
                           AWS_REQUEST_CHECKSUM_CALCULATION='when_required', AWS_RESPONSE_CHECKSUM_VALIDATION='when_required')

        def copy(source, to):
            subprocess.run([aws, 's3', 'cp', '--only-show-errors', '--endpoint-url', url, source, to], check=True, env=environment, stdout=subprocess.DEVNULL)

        registry = Registry(work / 'bucket', '--s3', 's3://models/bench', '--s3-endpoint', url, '--s3-credentials-dir', str(credentials))
        try:
            idle = registry.rss_mib('VmRSS')
            sha = write_file(work / 'object', BUCKET_MIB, 7)
            times = {name: [] for name in ('upload', 'download', 'aws upload', 'aws download')}
            for _ in range(RUNS + 1):
                times['upload'].append(timed(lambda: command(*CURL, '-T', str(work / 'object'), registry.blob(sha))))
                times['download'].append(timed(lambda: command(*CURL, '-o', str(work / 'got'), registry.blob(sha))))
                command(*CURL, '-X', 'DELETE', registry.blob(sha))
                if aws:
                    times['aws upload'].append(timed(lambda: copy(str(work / 'object'), 's3://models/by-aws')))
                    times['aws download'].append(timed(lambda: copy('s3://models/by-aws', str(work / 'got'))))
            peak = registry.rss_mib('VmHWM')
        finally:
            registry.stop()
        speed = {name: BUCKET_MIB / statistics.median(all[1:]) for name, all in times.items() if all}
        print('\n| %d MiB and a bucket | MiB/s | `aws s3 cp` MiB/s | ratio |\n|---|---|---|---|' % BUCKET_MIB)
        for name, title in (('upload', '`curl -T` through the registry'), ('download', '`curl -o` through the registry')):
            if aws:
                print('| %s | %.0f | %.0f | %.2fx |' % (title, speed[name], speed['aws ' + name], speed[name] / speed['aws ' + name]))
            else:
                print('| %s | %.0f | | |' % (title, speed[name]))
        print('\nRSS of the registry with a bucket: %.1f MiB idle, %.1f MiB at most.' % (idle, peak))
    finally:
        s3.stdin.close()
        s3.wait()


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix='varda-bench-'))
    try:
        registry = Registry(work / 'registry')
        try:
            transfer(work, registry)
        finally:
            registry.stop()
        memory(work)
        deltas(work)
        registry = Registry(work / 'changes')
        try:
            upload_of_changes(work, registry)
        finally:
            registry.stop()
        bucket(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main()
