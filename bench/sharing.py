#!/usr/bin/env python3
"""One archive to all nodes of a site: how many copies the file server sends, how long it takes, what the agents need. Prints a Markdown table.

A control plane with a gateway, and so many agents with a port for each other, all on this machine over loopback; the file server counts the
bytes it sends. The reference of the same run is one download of the same archive by curl, hashed and unpacked, times the number of nodes.
"""
import argparse, contextlib, hashlib, http.server, json, os, pathlib, random, shutil, signal, subprocess, sys, tarfile, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'tests/support'))
import machine as m  # noqa: E402

MIB = 1 << 20


class Origin(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, path):
        super().__init__(('127.0.0.1', 0), Handler)
        self.path, self.sent, self.requests, self.lock = path, 0, 0, threading.Lock()
        self.url = 'http://127.0.0.1:%d/model.tar' % self.server_port
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def handle(self):
        with contextlib.suppress(OSError):
            super().handle()

    def do_GET(self):
        requested = self.headers.get('Range')
        at = int(requested.removeprefix('bytes=').split('-')[0]) if requested else 0
        with self.server.lock:
            self.server.requests += 1
        with open(self.server.path, 'rb') as f:
            size = os.fstat(f.fileno()).st_size
            self.send_response(206 if requested else 200)
            if requested:
                self.send_header('Content-Range', 'bytes %d-%d/%d' % (at, size - 1, size))
            self.send_header('Content-Length', str(size - at))
            self.send_header('ETag', '"e"')
            self.end_headers()
            while at < size:
                sent = os.sendfile(self.connection.fileno(), f.fileno(), at, min(MIB, size - at))
                if sent == 0:
                    return
                at += sent
                with self.server.lock:
                    self.server.sent += sent


def make_archive(path, mib):
    """Writes a model archive of noise, incompressible like weights. Returns the digest."""
    block = random.Random(1).randbytes(MIB)
    with open(path, 'wb') as out:
        entry = tarfile.TarInfo('model.onnx')
        entry.size = mib * MIB
        out.write(entry.tobuf(tarfile.USTAR_FORMAT))
        for i in range(mib):
            at = (i * 7919) % MIB
            out.write(block[at:] + block[:at])
        out.write(bytes(1024))
    digest = hashlib.sha256()
    with open(path, 'rb') as f:
        while piece := f.read(MIB):
            digest.update(piece)
    return digest.hexdigest()


def memory_kib(pid, what):
    with contextlib.suppress(OSError):
        for line in open('/proc/%d/status' % pid):
            if line.startswith(what + ':'):
                return int(line.split()[1])
    return 0


def curl(url, into):
    """Seconds of one reference download."""
    began = time.monotonic()
    command = 'set -o pipefail; curl -sS --fail "$1" | tee >(sha256sum >/dev/null) | tar x -C "$2" && sync -f "$2"'
    subprocess.run(['bash', '-c', command, 'bash', url, into], check=True)
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', type=int, default=8)
    parser.add_argument('--mib', type=int, default=64)
    parser.add_argument('--alone', action='store_true', help='agents without a port for each other: what it would cost')
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix='varda-bench-'))
    agents, varda = {}, m.Machine(work / 'up', nodes=['cloud=cloud'])
    origin = None
    try:
        digest = make_archive(work / 'model.tar', args.mib)
        origin = Origin(work / 'model.tar')
        (work / 'curl').mkdir()
        one = curl(origin.url, work / 'curl')
        shutil.rmtree(work / 'curl')
        origin.sent = origin.requests = 0
        gateway = varda.up('--gateway', '127.0.0.1:0').split('gateway ')[1].split(',')[0].strip()
        nodes = ['line%d' % i for i in range(args.nodes)]
        environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
        for node in nodes:
            token = work / (node + '.token')
            with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
                f.write(varda.varda('join-token', '--node', node))
            command = [m.VARDA, 'agent', *m.LOOPBACK, '--node', node, '--gateway', gateway, '--data-dir', str(work / node), '--runner', 'process',
                       '--join-token-file', str(token)] + ([] if args.alone else ['--peer-listen', '127.0.0.1:0'])
            with open(work / (node + '.log'), 'wb') as log:
                agents[node] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        for node in nodes:
            m.wait_until(node + ' to join', lambda: varda.get('node', node) and any(
                c['type'] == 'Connected' and c['status'] == 'True' for c in varda.get('edgenode', node)['status']['conditions']))
        idle = max(memory_kib(agent.pid, 'VmRSS') for agent in agents.values())
        began = time.monotonic()
        varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': [
            m.inference_model('m-' + node, 'edge', [('1', origin.url, digest)], '1', node=node, replicas=0) for node in nodes]}))

        def ready():
            items = varda.get('edgenodes')['items']
            return sum(v['state'] == 'Ready' for item in items for r in item.get('status', {}).get('models', []) for v in r['versions']) == args.nodes
        m.wait_until('all nodes to have it', ready, timeout=1800, every=0.2)
        took = time.monotonic() - began
        peak = sorted(memory_kib(agent.pid, 'VmHWM') for agent in agents.values())
        size = os.path.getsize(work / 'model.tar')
        archives_stored = len(list(work.glob('line*/artifacts/.archives/*')))
        print('| nodes | archive | copies the file server sent | requests to it | all have it after | %d times curl, one after the other | '
              'agent idle | agents\' peak, median and highest | archives kept |' % args.nodes)
        print('|---|---|---|---|---|---|---|---|---|')
        print('| %d%s | %d MiB | %.2f | %d | %.1f s | %.1f s | %.1f MiB | %.1f, %.1f MiB | %d |' % (
            args.nodes, ' (alone)' if args.alone else '', args.mib, origin.sent / size, origin.requests, took, one * args.nodes, idle / 1024,
            peak[len(peak) // 2] / 1024, peak[-1] / 1024, archives_stored))
    finally:
        for agent in agents.values():
            with contextlib.suppress(ProcessLookupError):
                agent.send_signal(signal.SIGTERM)
        for agent in agents.values():
            agent.wait(60)
        if origin:
            origin.shutdown()
        varda.close()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main()
