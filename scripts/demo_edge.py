#!/usr/bin/env python3
"""An edge node on a failing link, narrated: it joins with a token, serves a model, counts datasets,
is cut off, killed, and comes back. A worker's result goes up, and a changed model comes down.

Exits 0 only if every step held. Uses free ports and its own data directory, and leaves no file and
no process behind.
"""
import hashlib, http.server, json, os, random, re, shutil, struct, subprocess, sys, threading, time, zlib

from narrate import Step, answered, check, run, workplace
import machine as m
from faulty_link import FaultyLink

NODE, BESIDE = 'line7', 'line8'
MIB = 1 << 20
RESULT_MIB, WEIGHTS_MIB = 200, 40
UPLOAD = m.ROOT / 'examples/workers/python/upload.py'


def png(shade):
    """A grey image of one pixel."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 0, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(bytes([0, shade]))) + \
        chunk(b'IEND', b'')


def make_datasets(root):
    """Four datasets in four formats, with the expected results: samples, and annotations by class
    where the format has classes."""
    (root / 'measurements.csv').write_text('time,value,note\n' + ''.join('%d,%.1f,"line one\nline ""two"""\n' % (i, i / 7) for i in range(5000)))
    (root / 'events.jsonl').write_text(''.join(json.dumps({'id': i, 'text': 'ä%d' % i}) + '\n' for i in range(1234)))
    coco = {'images': [{'id': i, 'file_name': '%d.jpg' % i} for i in range(40)], 'categories': [{'id': 1, 'name': 'bolt'}, {'id': 2, 'name': 'nut'}],
            'annotations': [{'id': i, 'image_id': i % 40, 'category_id': 1 + i % 3 // 2} for i in range(90)]}
    (root / 'parts.json').write_text(json.dumps(coco))
    for folder, count in (('good', 12), ('scratched', 5)):
        (root / 'surfaces' / folder).mkdir(parents=True)
        for i in range(count):
            (root / 'surfaces' / folder / ('%d.png' % i)).write_bytes(png(i))
    return {'measurements': ('measurements.csv', 'csv', 5000, {}), 'events': ('events.jsonl', 'jsonl', 1234, {}),
            'parts': ('parts.json', 'coco', 40, {'bolt': 60, 'nut': 30}), 'surfaces': ('surfaces', 'imagefolder', 17, {'good': 12, 'scratched': 5})}


class EdgeNode:
    """Simulates another machine: an agent with its own data directory and a link to the gateway
    that can be cut."""

    def __init__(self, name, work, gateway, datasets):
        self.name, self.work, self.gateway, self.datasets, self.agent = name, work, gateway, datasets, None

    def join(self, varda):
        token = self.work / ('token-' + self.name)
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
            f.write(varda.varda('join-token', '--node', self.name))
        self.start(token)
        m.wait_until('the node connected', lambda: connected(varda, self.name), 60)
        os.unlink(token)

    def start(self, token=None):
        command = [m.VARDA, 'agent', *m.LOOPBACK, '--node', self.name, '--gateway', self.gateway, '--data-dir', str(self.work / self.name), '--runner', 'process',
                   '--dataset-root', str(self.datasets), '--peer-listen', '127.0.0.1:0',
                   '--image', 'result-worker:1=%s %s %s' % (sys.executable, UPLOAD, self.work / 'result.bin')]
        if token:
            command += ['--join-token-file', str(token)]
        with open(self.work / (self.name + '.log'), 'ab') as log:
            environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
            self.agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def kill(self):
        """Sends SIGKILL to the agent and all its processes, like a power cut."""
        victims = m.kill_below(self.work / self.name)
        self.agent.wait()
        return victims


class RangeServer(http.server.ThreadingHTTPServer):
    """Serves the files of a folder with ranges, and counts the bytes that it sends."""

    def __init__(self, folder):
        self.folder, self.sent = folder, 0
        super().__init__(('127.0.0.1', 0), RangeHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, name):
        return 'http://127.0.0.1:%d/%s' % (self.server_port, name)


class RangeHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        path = self.server.folder / os.path.basename(self.path)
        if not path.is_file():
            return self.send_error(404)
        data = path.read_bytes()
        span = re.fullmatch(r'bytes=(\d+)-(\d*)', self.headers.get('Range', ''))
        first, end = (int(span[1]), int(span[2] or len(data) - 1) + 1) if span else (0, len(data))
        piece = data[first:end]
        self.send_response(206 if span else 200)
        self.send_header('ETag', '"%d-%d"' % (path.stat().st_mtime_ns, len(data)))
        self.send_header('Content-Length', str(len(piece)))
        if span:
            self.send_header('Content-Range', 'bytes %d-%d/%d' % (first, first + len(piece) - 1, len(data)))
        self.end_headers()
        self.wfile.write(piece)
        self.server.sent += len(piece)

    def log_message(self, *args):
        pass


def main():
    with workplace('varda-demo-edge-') as work:
        story(work)


def story(work):
    (work / 'www').mkdir()
    (work / 'datasets').mkdir()
    shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
    size = shape[1] * shape[2]
    images = [pixels[i * size:(i + 1) * size] for i in range(shape[0])]
    files = m.FileServer(work / 'www')
    with m.Machine(work / 'data', nodes=['cloud=cloud']) as varda:
        with Step('varda up with a gateway: the control plane, and the door through which edge nodes come in') as s:
            line = varda.up('--gateway', '127.0.0.1:0', '--registry', '127.0.0.1:0')
            s.say(line)
            gateway = line.split('gateway ')[1].split(',')[0].strip()
            link = FaultyLink(int(gateway.rsplit(':', 1)[1]))
            edge = EdgeNode(NODE, work, 'https://127.0.0.1:%d' % link.port, work / 'datasets')

        with Step('varda join-token, varda agent: the node makes its key, enrols and is connected') as s:
            edge.join(varda)
            s.say(varda.kubectl('get', 'edgenodes'))

        with Step('an InferenceModel on the node') as s:
            sha = m.pack(varda, '4', work / 'www/digits-4.tar.gz')
            model = m.inference_model('digits', 'edge', [('4', files.url('digits-4.tar.gz'), sha)], '4', node=NODE)
            varda.kubectl('apply', '-f', '-', input=json.dumps(model))
            url = varda.ready('digits', '4')['status']['url']
            check(answered(url, 'digits', images) == '4', 'the server answers with another version')
            s.say(varda.kubectl('get', 'inferencemodels'))

        with Step('four datasets of four formats: the node counts them') as s:
            wanted = make_datasets(work / 'datasets')
            for name, (path, kind, _, _) in wanted.items():
                varda.kubectl('apply', '-f', '-', input=json.dumps({
                    'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
                    'spec': {'dataUrl': str(work / 'datasets' / path), 'format': kind, 'nodeName': NODE}}))
            for name, (_, _, samples, classes) in wanted.items():
                status = m.wait_until('%s counted' % name, lambda: counted(varda, name), 60)
                check(status['numberOfSamples'] == samples and status['exact'], '%s: %s' % (name, status))
                check({c['name']: c['count'] for c in status.get('classes', [])} == classes, '%s: %s' % (name, status.get('classes')))
            s.say(varda.kubectl('get', 'datasets'))
            s.say('classes of parts: bolt 60, nut 30; of surfaces: good 12, scratched 5')

        with Step('they grow while the node looks on: counted again within a second') as s:
            slowest = 0
            for round in range(3):
                with open(work / 'datasets/measurements.csv', 'a') as f:
                    f.write(''.join('%d,0.5,"more\nlines"\n' % i for i in range(100)))
                slowest = max(slowest, took('measurements', varda, 5000 + 100 * (round + 1)))
            (work / 'datasets/surfaces/good/new.png').write_bytes(png(200))
            slowest = max(slowest, took('surfaces', varda, 18))
            s.say('slowest of 4 changes: %.2f s from the write to the status' % slowest)
            check(slowest < 1, 'a change took %.2f s' % slowest)

        with Step('the link is cut, then the node loses power: no process of it is left') as s:
            link.set('down')
            m.wait_until('the cloud to notice', lambda: not connected(varda), 60)
            victims = edge.kill()
            s.say('killed %d processes' % len(victims))
            s.say(varda.kubectl('get', 'edgenodes'))
            with open(work / 'datasets/events.jsonl', 'a') as f:
                f.write('{"id": "while it was dead"}\n')

        with Step('it starts again with no network: predictions are answered, datasets counted') as s:
            begin = time.monotonic()
            edge.start()
            m.wait_until('an answer', lambda: answered(url, 'digits', images[:1]) == '4', 60, every=0.02)
            first = time.monotonic() - begin
            s.say('first prediction %.2f s after the start' % first)
            check(first < 2, 'the first prediction took %.2f s' % first)
            with open(work / 'datasets/events.jsonl', 'a') as f:
                f.write('{"id": "while it was cut off"}\n')
            check(not connected(varda) and counted(varda, 'events')['numberOfSamples'] == 1234, 'the cloud knows what it cannot know')

        with Step('the link returns: the status is correct within five seconds') as s:
            link.set('none')
            begin = time.monotonic()
            m.wait_until('events counted', lambda: counted(varda, 'events')['numberOfSamples'] == 1236, 60)
            m.wait_until('the node connected', lambda: connected(varda), 60)
            varda.ready('digits', '4')
            back = time.monotonic() - begin
            s.say('true %.2f s after the link came back' % back)
            check(back < 5, 'it took %.2f s' % back)
            s.say(varda.kubectl('get', 'edgenodes,datasets,inferencemodels'))

        with Step('a worker hands over a result of %d MiB, and the link breaks twice on its way up' % RESULT_MIB) as s:
            result = random.Random(7).randbytes(RESULT_MIB * MIB)
            (work / 'result.bin').write_bytes(result)
            digest = hashlib.sha256(result).hexdigest()
            varda.kubectl('apply', '-f', '-', input=json.dumps(worker_service(files.url('digits-4.tar.gz'), sha)))
            begin, sent = time.monotonic(), 0
            for cut in (1, 2):
                sent = m.wait_until('bytes in the registry', lambda: (lambda n: n if n > cut * RESULT_MIB * MIB // 4 else None)(arrived(varda, digest)), 60, every=0.01)
                link.set('down')
                time.sleep(0.5)
                held = arrived(varda, digest)
                link.set('none')
                s.say('cut %d after %d MiB: the registry holds %d MiB' % (cut, sent // MIB, held // MIB))
            stored = m.wait_until('the whole file', lambda: read(varda.dir / 'registry/blobs' / digest), 120)
            check(hashlib.sha256(stored).hexdigest() == digest, 'the registry has other bytes')
            s.say('%s whole after %.1f s, digest right' % (digest[:12], time.monotonic() - begin))
            varda.kubectl('delete', 'jointinferenceservice', 'result', '--wait')

        with Step('a second node gets a model archive from the first one: the file server is gone') as s:
            shutil.copy(work / 'www/digits-4.tar.gz', work / 'datasets/digits-4.tar.gz')
            files.stop()
            (work / 'nothing').mkdir()
            beside = EdgeNode(BESIDE, work, gateway, work / 'nothing')
            beside.join(varda)
            begin = time.monotonic()
            varda.kubectl('apply', '-f', '-', input=json.dumps({
                'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': 'digits-archive'},
                'spec': {'modelUrl': str(work / 'datasets/digits-4.tar.gz'), 'format': 'onnx', 'nodeName': NODE,
                         'replication': {'nodeSelector': {'kubernetes.io/hostname': BESIDE}}}}))
            copy = m.wait_until('the copy', lambda: [n for n in varda.get('model', 'digits-archive')['status']['replication']['nodes'] if n['state'] == 'Current'], 60)[0]
            s.say('%s has it %.2f s after kubectl apply: %s' % (copy['node'], time.monotonic() - begin, copy['path']))
            model = m.inference_model('digits-beside', 'edge', [('4', 'file://' + copy['path'], sha)], '4', node=BESIDE)
            varda.kubectl('apply', '-f', '-', input=json.dumps(model))
            check(answered(varda.ready('digits-beside', '4')['status']['url'], 'digits-beside', images) == '4', 'another version answers')
            s.say(varda.kubectl('get', 'edgenodes,inferencemodels'))

        with Step('a version with 5 % other weights goes to both nodes: only the changes are sent') as s:
            ranges = RangeServer(work / 'www')
            weights = bytearray(random.Random(8).randbytes(WEIGHTS_MIB * MIB))
            first = pack_with_weights(varda, work, '7', weights)
            for name, node in (('heavy', NODE), ('heavy-beside', BESIDE)):
                varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model(name, 'edge', [('7', ranges.url('heavy-7.tar'), first)], '7', node=node, port=8090)))
            for name in ('heavy', 'heavy-beside'):
                varda.ready(name, '7')
            s.say('version 7 of %d MiB on two nodes: the file server sent %.1f MiB' % (WEIGHTS_MIB, ranges.sent / MIB))
            changed = WEIGHTS_MIB * MIB // 20
            weights[10 * MIB:10 * MIB + changed] = random.Random(9).randbytes(changed)
            second = pack_with_weights(varda, work, '8', weights)
            ranges.sent = 0
            for name, node in (('heavy', NODE), ('heavy-beside', BESIDE)):
                versions = [('7', ranges.url('heavy-7.tar'), first), ('8', ranges.url('heavy-8.tar'), second)]
                varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model(name, 'edge', versions, '8', node=node, port=8090)))
            for name in ('heavy', 'heavy-beside'):
                varda.ready(name, '8')
            s.say('version 8 with %.1f MiB of other weights on two nodes: it sent %.1f MiB' % (changed / MIB, ranges.sent / MIB))
            check(ranges.sent < 2 * 1.1 * changed + MIB, 'the file server sent %d bytes' % ranges.sent)
            ranges.shutdown()


def worker_service(url, sha):
    """A JointInferenceService whose edge worker hands over one file."""
    def model(name):
        return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': name}, 'spec': {'url': url, 'sha256': sha, 'format': 'onnx'}}
    return {'apiVersion': 'v1', 'kind': 'List', 'items': [model('small'), model('big'), {
        'apiVersion': 'sedna.io/v1alpha1', 'kind': 'JointInferenceService', 'metadata': {'name': 'result'}, 'spec': {
            'edgeWorker': {'model': {'name': 'small'}, 'nodeName': NODE, 'uploads': {'maxBytes': 2 * RESULT_MIB * MIB}, 'hardExampleMining': {'name': 'CrossEntropy'},
                           'workerSpec': {'containers': [{'name': 'worker', 'image': 'result-worker:1', 'args': ['result']}]}},
            'cloudWorker': {'model': {'name': 'big'}}}}]}


def read(path):
    return path.read_bytes() if path.exists() else None


def arrived(varda, sha):
    """Bytes of the file in the registry."""
    return sum(path.stat().st_size for folder in ('uploads', 'blobs') for path in (varda.dir / 'registry' / folder).glob(sha + '*'))


def pack_with_weights(varda, work, version, weights):
    """The model of the digits with a large file beside it, as a .tar with its list of chunks."""
    model = work / ('heavy-' + version)
    shutil.copytree(m.DIGITS / 'models/4', model)
    (model / 'extra.bin').write_bytes(weights)
    varda.varda('pack', str(model), '-o', str(work / ('www/heavy-%s.tar' % version)))
    return hashlib.sha256((work / ('www/heavy-%s.tar' % version)).read_bytes()).hexdigest()


def connected(varda, node=NODE):
    conditions = varda.get('edgenode', node).get('status', {}).get('conditions', [])
    return any(c['type'] == 'Connected' and c['status'] == 'True' for c in conditions)


def counted(varda, name):
    status = varda.get('dataset', name).get('status', {})
    return status if 'numberOfSamples' in status else None


def took(name, varda, samples):
    """Seconds until the status reports that many samples. It asks the API directly, because kubectl
    takes as long as the count."""
    begin = time.monotonic()
    varda.varda('wait', 'dataset/' + name, '--for=jsonpath={.status.numberOfSamples}=%d' % samples, '--timeout', '60s')
    return time.monotonic() - begin


if __name__ == '__main__':
    run(main)
