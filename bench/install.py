#!/usr/bin/env python3
"""Installing a 1 GiB archive: `varda fetch --no-spool` compared with `curl | tee >(sha256sum) | tar x`
and a sync. Prints a Markdown table.

The archive is created at run time: 16 files of 64 MiB. Three quarters of them are float32 weights from
a normal distribution, which hardly compress; a quarter are int8 weights, mostly zero. Both sides
download from the same loopback server, hash every byte, unpack into separate directories and return
when everything is on disk. Runs alternate; the first run of each side does not count.
"""
import array, contextlib, hashlib, http.server, io, os, pathlib, random, shutil, statistics, subprocess, tarfile, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
VARDA = str(pathlib.Path(os.environ.get('VARDA_BIN', ROOT / 'build/release/bin')) / 'varda')
RUNS = int(os.environ.get('VARDA_BENCH_RUNS', '5'))
MIB = 1 << 20
FILES, FILE_BYTES = 16, 64 * MIB


def weights():
    """64 MiB of random blocks of 1 MiB; a block returns rotated, beyond the reach of any compression window."""
    rng = random.Random(1)
    floats = [array.array('f', (rng.gauss(0, 0.02) for _ in range(MIB // 4))).tobytes() for _ in range(6)]
    sparse = bytes(rng.choices(range(256), [600] + [1] * 255, k=MIB))
    out = io.BytesIO()
    for i in range(FILE_BYTES // MIB):
        if i % 4 == 3:
            at = rng.randrange(MIB)
            out.write(sparse[at:] + sparse[:at])
        else:
            values = array.array('f', floats[i % len(floats)])
            shift = rng.randrange(len(values))
            out.write((values[shift:] + values[:shift]).tobytes())
    return out.getvalue()


def compress(command, data):
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def archive(path, command, content):
    """A tar of FILES files of `content`, with one compressed member per header and file: each content is compressed once."""
    body, end = compress(command, content), compress(command, bytes(1024))
    with open(path, 'wb') as out:
        for i in range(FILES):
            entry = tarfile.TarInfo('model.onnx' if i == 0 else 'weights-%02d.bin' % i)
            entry.size, entry.mode = FILE_BYTES, 0o644
            out.write(compress(command, entry.tobuf(tarfile.USTAR_FORMAT)) + body)
        out.write(end)
    digest = hashlib.sha256()
    with open(path, 'rb') as f:
        while piece := f.read(MIB):
            digest.update(piece)
    return digest.hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        with open(os.path.join(self.server.folder, os.path.basename(self.path)), 'rb') as f:
            size = os.fstat(f.fileno()).st_size
            self.send_response(200)
            self.send_header('Content-Length', str(size))
            self.end_headers()
            self.wfile.flush()
            at = 0
            while at < size:
                at += os.sendfile(self.connection.fileno(), f.fileno(), at, size - at)

    def log_message(self, *args):
        pass


def run(command):
    """(seconds, peak RSS in KiB) of a child process, which must succeed."""
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peak = 0
    while child.poll() is None:
        # Not ru_maxrss: for a child that starts at this program's RSS.
        with contextlib.suppress(OSError, StopIteration):
            with open('/proc/%d/status' % child.pid) as f:
                peak = int(next(line for line in f if line.startswith('VmHWM')).split()[1])
        time.sleep(0.01)
    seconds = time.monotonic() - begin
    error = child.stderr.read()
    if child.returncode != 0:
        raise SystemExit('%s: exit %d\n%s' % (command, child.returncode, error))
    return seconds, peak


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix='varda-install-', dir=os.environ.get('VARDA_BENCH_DIR')))
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.folder = str(work)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = 'http://127.0.0.1:%d/' % server.server_address[1]
    try:
        content = weights()
        tiny = work / 'tiny.tar.gz'
        with tarfile.open(tiny, 'w:gz') as tar:
            entry = tarfile.TarInfo('model.onnx')
            entry.size = 5
            tar.addfile(entry, io.BytesIO(b'three'))

        def fetch(name, digest, to):
            return run([VARDA, 'fetch', '--allow-source', '127.0.0.0/8', '--no-spool', '--framework', 'onnx', '--url', base + name, '--sha256', digest, '--to', str(to)])
        idle = fetch(tiny.name, hashlib.sha256(tiny.read_bytes()).hexdigest(), work / 'tiny')[1]
        print('| archive | packed | reference s | varda fetch s | ratio (aim ≤ 0.6) | RSS over idle MiB (aim ≤ 16) |\n|---|---|---|---|---|---|')
        for name, command, flag in (('a.tar.gz', ['gzip', '-c'], '-xz'), ('a.tar.zst', ['zstd', '-c', '-q'], '--zstd -x')):
            digest = archive(work / name, command, content)
            packed = os.path.getsize(work / name) / (FILES * FILE_BYTES)
            reference_seconds, varda_seconds, rss = [], [], []
            for i in range(RUNS + 1):
                for side in ('reference', 'varda'):
                    to = work / 'out'
                    shutil.rmtree(to, ignore_errors=True)
                    os.sync()
                    if side == 'reference':
                        to.mkdir()
                        # The digest is compared too: the end of the pipe waits for sha256sum.
                        script = ('set -euo pipefail; curl -sf %s%s | tee >(sha256sum > %s/sum) | tar %s -C %s -f -; sync -f %s; '
                                  'while ! grep -q %s %s/sum; do sleep 0.01; done' % (base, name, work, flag, to, to, digest, work))
                        (work / 'sum').write_text('')
                        seconds = run(['bash', '-c', script])[0]
                        if i:
                            reference_seconds.append(seconds)
                    else:
                        seconds, peak = fetch(name, digest, to)
                        if i:
                            varda_seconds.append(seconds)
                            rss.append(peak)
                    if sum(f.stat().st_size for f in to.iterdir() if f.suffix in ('.onnx', '.bin')) != FILES * FILE_BYTES:
                        raise SystemExit('%s: not all of it is there' % side)
            (work / name).unlink()
            ratio = statistics.median(varda_seconds) / statistics.median(reference_seconds)
            print('| 1 GiB %s | %.0f %% | %.2f (%.2f–%.2f) | %.2f (%.2f–%.2f) | %.2f | %.1f |' % (
                name[2:], 100 * packed, statistics.median(reference_seconds), min(reference_seconds), max(reference_seconds), statistics.median(varda_seconds), min(varda_seconds), max(varda_seconds),
                ratio, (max(rss) - idle) / 1024), flush=True)
    finally:
        server.shutdown()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main()
