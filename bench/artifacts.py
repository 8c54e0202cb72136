#!/usr/bin/env python3
"""An agent's memory while it installs a large archive, the cost of a broken download, and the agent's
start time. Prints a Markdown table.

The file server generates a tar stream while sending: VARDA_BENCH_GIB GiB (default 2) of float32-like
noise in files of 256 MiB, drawn once and rotated. The agent is that of a node of `varda up`; its peak
is VmHWM, reset before the model is applied. Half way the server closes the connection; the bytes that
it has to send again are the cost of the break. Finally everything is stopped and the model's exposed
files are removed. An agent started without a network must then expose the version from its disk.
"""
import hashlib, http.server, json, os, pathlib, random, shutil, subprocess, sys, tarfile, tempfile, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'tests/support'))
import machine as m  # noqa: E402

MIB = 1 << 20
GIB = int(os.environ.get('VARDA_BENCH_GIB', '2'))
FILE_BYTES = 256 * MIB
FILES = GIB * 1024 * MIB // FILE_BYTES
BLOCK = random.Random(1).randbytes(MIB) * 2


def header(i):
    entry = tarfile.TarInfo('model.onnx' if i == 0 else 'weights-%03d.bin' % i)
    entry.size, entry.mode = FILE_BYTES, 0o644
    return entry.tobuf(tarfile.USTAR_FORMAT)


ENTRY = 512 + FILE_BYTES
TOTAL = FILES * ENTRY + 1024


def piece(at):
    """Bytes of the archive from an offset, up to the end of a header or of a block of 1 MiB."""
    if at >= FILES * ENTRY:
        return bytes(TOTAL - at)
    i, inside = divmod(at, ENTRY)
    if inside < 512:
        return header(i)[inside:]
    block, offset = divmod(inside - 512, MIB)
    turn = (i * 7919 + block * 104729) % MIB
    return BLOCK[turn + offset:turn + MIB]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    sent, broken = 0, False

    def log_message(self, *args):
        pass

    def do_GET(self):
        requested = self.headers.get('Range')
        at = int(requested.removeprefix('bytes=').split('-')[0]) if requested else 0
        self.send_response(206 if requested else 200)
        if requested:
            self.send_header('Content-Range', 'bytes %d-%d/%d' % (at, TOTAL - 1, TOTAL))
        self.send_header('ETag', '"stream"')
        self.send_header('Content-Length', str(TOTAL - at))
        self.end_headers()
        while at < TOTAL:
            if at > TOTAL // 2 and not Handler.broken:
                Handler.broken = True
                self.close_connection = True
                return
            data = piece(at)
            self.wfile.write(data)
            Handler.sent += len(data)
            at += len(data)


def status_kib(pid, field):
    with open('/proc/%d/status' % pid) as f:
        return int(next(line for line in f if line.startswith(field)).split()[1])


def first_work(varda):
    """Seconds from starting an agent without a server until the model's target exists again."""
    data = varda.dir / 'nodes/edge0/data'
    seconds = []
    for _ in range(5):
        shutil.rmtree(data / 'models/default/large')
        command = [m.VARDA, 'agent', *m.LOOPBACK, '--node', 'edge0', '--data-dir', str(data), '--kubeconfig', varda.kubeconfig, '--runner', 'none']
        begin = time.monotonic()
        agent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        m.wait_until('the version is shown', (data / 'models/default/large/target').exists, every=0.001)
        seconds.append(time.monotonic() - begin)
        agent.terminate()
        agent.wait()
    return sorted(seconds)[len(seconds) // 2]


def main():
    digest = hashlib.sha256()
    at = 0
    while at < TOTAL:
        data = piece(at)
        digest.update(data)
        at += len(data)
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(dir=os.environ.get('VARDA_BENCH_DIR')) as work, m.Machine(pathlib.Path(work) / 'v', nodes=['edge0=edge']) as varda:
        varda.up()
        varda.nodes_ready()
        agent = next(pid for pid, command in varda.processes().items() if ' agent ' in command)
        time.sleep(5)  # the agent returns memory from its start
        idle = status_kib(agent, 'VmRSS')
        with open('/proc/%d/clear_refs' % agent, 'w') as f:
            f.write('5')
        model = m.inference_model('large', 'edge', [('1', 'http://127.0.0.1:%d/m.tar' % server.server_address[1], digest.hexdigest())], '1', node='edge0')
        begin = time.monotonic()
        varda.kubectl('apply', '-f', '-', input=json.dumps(model))
        m.wait_until('installed', lambda: [v for r in varda.get('edgenode', 'edge0')['status'].get('models', []) for v in r['versions']
                                           if v['state'] == 'Ready'], timeout=3600, every=1)
        seconds = time.monotonic() - begin
        peak = status_kib(agent, 'VmHWM')
        varda.down()
        start = first_work(varda)
    server.shutdown()
    print('| archive | time | agent idle | agent peak | sent once more after a break | start to first work, without a network |')
    print('|---|---|---|---|---|---|')
    print('| %d GiB tar of %d files | %.0f s | %.1f MiB | %.1f MiB | %d KiB | %.2f s |' %
          (GIB, FILES, seconds, idle / 1024, peak / 1024, (Handler.sent - TOTAL) // 1024, start))


if __name__ == '__main__':
    main()
