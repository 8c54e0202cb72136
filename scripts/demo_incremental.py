#!/usr/bin/env python3
"""Incremental learning, narrated: a model that has never seen the digits 7 and 9 serves on edge0. A
camera brings them. The server keeps the pictures that are hard for it, and the bigger model of the
cloud labels them. A round trains on the node, the gate passes, and the server switches under load.
Then wrong labels come, and the gate refuses. Then a version passes the gate and fails in practice:
the version before returns by itself.

The script plays the camera and the people. Varda does the rest. Exits 0 only if every step held.
Uses free ports and its own data directory, and leaves no file and no process behind but
build/incremental.svg and build/incremental-samples.html.
"""
import json, pathlib, random, shutil, struct, sys, threading, time, urllib.request

from narrate import Step, check, run, workplace
import chart
import machine as m

sys.path.insert(0, str(m.ROOT / 'bench'))
import continual as data  # noqa: E402

KIND = 'incrementallearningjob'
SHEET, CURVE = m.ROOT / 'build/incremental-samples.html', m.ROOT / 'build/incremental.svg'
PICTURES = 'preprocess: {image: {channels: grey, layout: %s, resize: {width: 8, height: 8}}}\n'  # model.yaml
SAMPLES = 200  # start a round
SMOOTH = 0.1  # label smoothing: a model without it is sure of digits that it has never seen
BASE = {**data.BASE, 'epochs': 30, 'labelSmoothing': SMOOTH}
TRAINER = {'task': 'classification', 'epochs': 10, 'batchSize': 16, 'seed': 1, 'threads': 1, 'labelSmoothing': SMOOTH,
           'optimizer': {'name': 'sgd', 'learningRate': 0.05, 'momentum': 0.9},
           'continual': {'replay': {'samples': 800}, 'lwf': {'lambda': 3, 'temperature': 2}}}
GATE = {'metric': 'accuracy', 'minimumGain': 0.01, 'significance': 0.05, 'forgettingMax': 0.01}


def job():
    return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'IncrementalLearningJob', 'metadata': {'name': 'digits'}, 'spec': {
        'nodeName': 'edge0',
        'dataset': {'name': 'digits-new', 'trainProb': 0.8},
        'initialModel': {'name': 'digits-0'},
        'trainSpec': {'trainer': TRAINER, 'replay': {'name': 'digits-old'},
                      'trigger': {'condition': {'metric': 'num_of_samples', 'operator': '>=', 'threshold': SAMPLES}, 'cooldownSeconds': 600}},
        'evalSpec': {'dataset': {'name': 'digits-eval'}, 'gate': GATE},
        'deploySpec': {'model': {'name': 'digits'},
                       'hardExampleMining': {'name': 'Margin', 'parameters': [{'key': 'threshold_margin', 'value': '0.7'}]},
                       'samples': {'bytesMax': '1Mi', 'countMax': 400, 'controlShare': 0.02},
                       'rollback': {'hardShareRise': 0.3, 'answers': 50}}}}


def cloud_model(name, ref):
    return {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': name},
            'spec': {'modelName': name, 'deployToLayer': 'cloud', 'frameworkType': 'onnx', 'modelRef': {'name': ref}}}


def dataset(name, path, format):
    return {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
            'spec': {'dataUrl': str(path), 'format': format, 'nodeName': 'edge0'}}


class Camera(m.Client):
    """Sends one picture after another, as a device does: some a second, not as fast as it can."""
    period = 0.02

    def prepare(self):
        self.bodies = [data.png(8, 8, pixels) for _, pixels in self.images]

    def headers(self):
        return {'Content-Type': 'image/png'}

    def one(self):
        began = time.monotonic()
        good = super().one()
        time.sleep(max(0, began + self.period - time.monotonic()))
        return good


class Test:
    """The held-out images, asked at a server that keeps no samples: nothing learns from them."""

    def __init__(self, url, images):
        self.url, self.images = url, images

    def scores(self, images):
        body = {'inputs': [{'name': 'x', 'shape': [len(images), 1, 8, 8], 'datatype': 'FP32', 'data': [v for _, pixels in images for v in pixels]}]}
        answer = json.loads(urllib.request.urlopen(self.url + '/infer', json.dumps(body).encode(), timeout=60).read())
        flat = answer['outputs'][0]['data']
        return [flat[i:i + 10] for i in range(0, len(flat), 10)]

    def accuracy(self):
        """On all digits, and on those that the first model knows."""
        right = [(label, max(range(10), key=row.__getitem__) == label) for (label, _), row in zip(self.images, self.scores(self.images))]
        old = [good for label, good in right if label not in data.NEW]
        return sum(good for _, good in right) / len(right), sum(old) / len(old)


class Watch:
    """Notes when the job enters a state, and the memory of all processes of the node while it
    trains."""

    def __init__(self, varda, folder):
        self.varda, self.folder, self.seen, self.peak, self.parts = varda, folder, {}, 0, {}
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        weighed = 0
        reader = m.reader.Reader(self.varda.kubeconfig)  # connections are not shared between threads
        while not self.stopping.wait(0.02):
            status = reader.get(KIND, 'digits').get('status', {})
            now = time.monotonic()
            self.seen.setdefault((status.get('round'), status.get('stage'), status.get('state')), now)
            if (status.get('stage'), status.get('state')) == ('Train', 'Running') and now > weighed + 0.2:
                weighed = now
                parts = resident(self.folder)
                if sum(parts.values()) > self.peak:
                    self.peak, self.parts = sum(parts.values()), parts
        reader.close()

    def stop(self):
        self.stopping.set()
        self.thread.join(30)

    def show(self, s, served, version):
        """The times of round 1 since its trigger. A poll may miss the short state Ready."""
        begin = min(at for (number, *_), at in self.seen.items() if number == 1)
        for (number, stage, state), at in sorted(self.seen.items(), key=lambda x: x[1]):
            if number == 1 and at < served:
                s.say('%+6.2f s  %s %s' % (at - begin, stage, state))
        s.say('%+6.2f s  version %s answers' % (served - begin, version))
        s.say('memory of all processes on edge0 while it trains: %.0f MiB (%s)' % (
            self.peak, ', '.join('%s %.0f' % x for x in sorted(self.parts.items()))))


def resident(folder):
    """{program: MiB} of the processes of a node."""
    out = {}
    for pid, command in m.processes_below(folder).items():
        try:
            lines = pathlib.Path('/proc/%d/status' % pid).read_text().splitlines()
        except OSError:
            continue
        name = pathlib.Path(command.split(' ')[0]).name
        out[name] = out.get(name, 0) + sum(int(line.split()[1]) for line in lines if line.startswith('VmRSS')) / 1024
    return out


def read(part):
    shape, pixels = data.read_idx(m.DIGITS / (part + '-images.idx3-ubyte'))
    _, names = data.read_idx(m.DIGITS / (part + '-labels.idx1-ubyte'))
    return [(names[i], pixels[i * 64:(i + 1) * 64]) for i in range(shape[0])]


def write(path, samples):
    """Images and labels in MNIST's format."""
    path.write_bytes(struct.pack('>4I', 0x803, len(samples), 8, 8) + b''.join(pixels for _, pixels in samples))
    labels = path.with_name(path.name.replace('images.idx3', 'labels.idx1'))
    labels.write_bytes(struct.pack('>2I', 0x801, len(samples)) + bytes(label for label, _ in samples))


def models(work, known):
    """A model of the digits 0 to 6 and 8, trained here, and the bigger one of all digits."""
    start = work / 'untrained'
    start.mkdir()
    (start / 'model.onnx').write_bytes(data.untrained_model(48, 1))
    (start / 'labels.txt').write_text(''.join('%d\n' % digit for digit in range(10)))
    (start / 'model.yaml').write_text(PICTURES % 'NCHW')
    data.run(m.BIN.parent, ['--model', start, '--data', known, '--out', work / 'base-model', '--hold-out', 0], BASE, work)
    shutil.copytree(m.DIGITS / 'models/big', work / 'cloud-model')
    (work / 'cloud-model/model.yaml').write_text(PICTURES % 'NHW')


def main():
    with workplace('varda-demo-incremental-') as work:
        story(work)


def story(work):
    random.seed(1)
    with Step('a model of the digits 0 to 6 and 8 is trained; 7 and 9 it has never seen'):
        known, stream, count = [], [], {}
        for one in read('train'):
            count[one[0]] = count.get(one[0], 0) + 1
            (stream if one[0] in data.NEW or count[one[0]] <= data.STREAM_OLD else known).append(one)
        stream += random.sample(known, 200)
        random.shuffle(stream)
        edge = work / 'edge'
        (edge / 'new').mkdir(parents=True)
        write(edge / 'old-images.idx3-ubyte', known)
        write(edge / 'test-images.idx3-ubyte', read('test'))
        models(work, edge / 'old-images.idx3-ubyte')
    with m.Machine(work / 'varda', nodes=['cloud=cloud', 'edge0=edge']) as varda:
        demo = Demo(varda, work, edge, stream)
        demo.serve(known)
        demo.collect()
        demo.learn()
        demo.refuse()
        demo.roll_back()
        demo.draw()


class Demo:
    """The steps after the first model. `stream` is shown to the camera of edge0."""

    def __init__(self, varda, work, edge, stream):
        self.varda, self.work, self.edge, self.stream = varda, work, edge, stream
        self.node = work / 'varda/nodes/edge0'
        self.spool = self.node / 'data/samples/default/digits'
        self.dropped = 0

    # ---- the cluster's view

    def status(self):
        return self.varda.get(KIND, 'digits').get('status', {})

    def until(self, what, condition):
        def probe():
            status = self.status()
            return condition(status) and status
        try:
            return m.wait_until(what, probe, timeout=60)
        except m.Failed as e:
            raise m.Failed('%s: %s' % (e, json.dumps(self.status()))) from None

    def labels(self):
        """The node's report on the way of its samples."""
        return next(iter(self.varda.get('edgenode', 'edge0')['status'].get('samples', [])), {})

    def patch(self, kind, name, spec):
        self.varda.kubectl('patch', kind, name, '--type=merge', '-p', json.dumps({'spec': spec}))

    # ---- people

    def drop(self, samples):
        """A person puts pictures into the folders of classes. Returns when the job counts them."""
        before, new = self.labels()['moved'], self.status()['samples']['new']
        for class_name, pixels in samples:
            self.dropped += 1
            place = self.spool / 'label' / str(class_name)
            place.mkdir(parents=True, exist_ok=True)
            (place / ('picture-%d.png' % self.dropped)).write_bytes(data.png(8, 8, pixels))
        m.wait_until('the labels are in the Dataset', lambda: self.labels()['moved'] >= before + len(samples))
        self.until('the labels are counted', lambda status: status['samples']['new'] >= new + len(samples))

    def train(self, s, number):
        """A person starts a round; returns its record."""
        s.say(self.varda.varda('il', 'train', 'digits'))
        return self.until('round %d' % number, lambda status: len(status['rounds']) == number)['rounds'][-1]

    # ---- the steps

    def serve(self, known):
        with Step('varda up; the job serves the small model on edge0, the bigger one serves in the cloud') as s:
            varda, edge = self.varda, self.edge
            s.say(varda.up('--dataset-root', 'edge0=%s' % edge, '--registry', '127.0.0.1:0'))
            varda.varda('push', self.work / 'base-model', '--name', 'digits-0', '--version', '1')
            varda.varda('push', self.work / 'cloud-model', '--name', 'digits-cloud', '--version', '4')
            varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': [
                dataset('digits-new', edge / 'new', 'imagefolder'), job(),
                dataset('digits-old', edge / 'old-images.idx3-ubyte', 'idx'), dataset('digits-eval', edge / 'test-images.idx3-ubyte', 'idx'),
                cloud_model('digits-cloud', 'digits-cloud'), cloud_model('digits-check', 'digits-0')]}))
            varda.ready('digits-cloud', '4')
            self.test = Test(varda.ready('digits-check', '1')['status']['url'] + '/v2/models/digits-check', read('test'))
            self.url = varda.ready('digits', '1')['status']['url']
            self.first = self.test.accuracy()
            s.say(varda.kubectl('get', 'il'))
            s.say('accuracy on 360 held-out images: %.3f; on the digits that the model knows: %.3f' % self.first)
            sure = [one for one, row in zip(known, self.test.scores(known)) if max(row) > 0.9 and max(row) == row[one[0]]]
            self.load = m.Load(self.url, 'digits', sure[:200], kind=Camera)

    def collect(self):
        with Step('the camera shows all digits: the server keeps the hard pictures, and nobody knows their labels') as s:
            camera = Camera(self.url, 'digits', self.stream)
            camera.period = 0.008
            camera.prepare()
            check(all([camera.one() for _ in self.stream]), 'a request failed: %s' % m.failures(camera.samples)[:3])
            kept = m.wait_until('the pictures are kept', lambda: self.labels().get('pending', 0) >= SAMPLES and self.labels()['pending'])
            s.say('%d pictures shown; %d hard ones kept, also of the load' % (len(self.stream), kept))
            s.say(self.varda.varda('samples', 'show', 'digits', '--data-dir', self.work / 'varda', '--to', SHEET))
            check(not any((self.edge / 'new').iterdir()), 'a sample has a label')

    def learn(self):
        with Step('the job may ask the bigger model: labels, trigger, training, gate, and a better version serves under load') as s:
            watch = Watch(self.varda, self.node)
            self.patch(KIND, 'digits', {'deploySpec': {'pseudoLabels': {'model': {'name': 'digits-cloud'}, 'minimum': 0.9}}})
            status = self.until('a round', lambda status: status.get('rounds'))
            check(status['rounds'][0]['outcome'] == 'Accepted', json.dumps(status['rounds']))
            self.version = status['rounds'][0]['version']
            self.load.answered(self.version)
            watch.stop()
            s.say('labels: %s' % json.dumps({name: count for name, count in self.labels().items() if isinstance(count, int)}))
            s.say(next(c['message'] for c in status['conditions'] if c['type'] == 'Evaluated'))
            watch.show(s, min(x[0] for x in self.load.samples() if x[3] == self.version), self.version)
            self.patch('inferencemodel', 'digits-check', {'modelRef': {'name': 'digits'}})
            self.varda.ready('digits-check', self.version)
            self.second = self.test.accuracy()
            s.say(self.varda.kubectl('get', 'il'))
            s.say('accuracy %.3f -> %.3f; on the old digits %.3f -> %.3f' % (self.first[0], self.second[0], self.first[1], self.second[1]))
            check(self.second[0] >= 0.95, 'the new version is not good')
            check(self.first[1] - self.second[1] <= 0.01, 'the new version forgets')

    def refuse(self):
        with Step('a careless person drops pictures into wrong folders: the gate refuses, and the good version stays') as s:
            self.drop([((label + 3) % 10, pixels) for label, pixels in random.sample(self.stream, 150)])
            end = self.train(s, 2)
            s.say(end['reason'] + ': ' + end['message'])
            check((end['outcome'], self.status()['version']) == ('Refused', self.version), 'a poisoned version serves')

    def roll_back(self):
        with Step('a trainer makes unsure models, and the gate asks for no gain: a version passes, fails live, and goes back by itself') as s:
            unsure = {**TRAINER, 'labelSmoothing': 0.7, 'continual': {'replay': {'samples': 900}}}
            self.patch(KIND, 'digits', {'trainSpec': {'trainer': unsure}, 'evalSpec': {'gate': {'minimumGain': -0.02, 'forgettingMax': 0.05}}})
            self.drop(random.sample(self.stream, 20))
            self.train(s, 3)
            end = self.until('the way back', lambda status: status['rounds'][2]['outcome'] == 'Refused')['rounds'][2]
            s.say('%s: %s' % (end['reason'], end['message']))
            self.varda.ready('digits', self.version)
            self.load.answered(self.version)
            samples = self.load.stop()
            bad = [x[0] for x in samples if x[3] == end['version']]
            check(bad, 'version %s never answered' % end['version'])
            took = min(x[0] for x in samples if x[3] == self.version and x[0] > bad[-1]) - bad[0]
            s.say('version %s answered %d requests; version %s is back after %.2f s' % (end['version'], len(bad), self.version, took))
            check(end['reason'] == 'HardShare', json.dumps(end))
            check(took <= 5, 'the way back took %.1f s' % took)
            s.say(self.varda.varda('il', 'history', 'digits'))
            check(not m.failures(samples), 'failed requests: %s' % m.failures(samples)[:3])
            s.say('%d requests in all steps, 0 failed' % len(samples))

    def draw(self):
        steps = self.first, self.second, self.second, self.second  # the gate or the job brought back the same version
        chart.rounds(CURVE, 'Incremental learning', 'accuracy of the serving version on held-out images; round 1 is accepted, 2 is refused, 3 goes back',
                     [('all digits', [x[0] for x in steps]), ('digits that the first model knew', [x[1] for x in steps])], [], first=0)


if __name__ == '__main__':
    run(main)
