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
import json, pathlib, random, shutil, sys, threading, time, urllib.request

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
           'continual': {'replay': {'samples': 800}, 'lwf': {'lambda': 1, 'temperature': 2}}}
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


def dataset(name, folder):
    return {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
            'spec': {'dataUrl': str(folder), 'format': 'imagefolder', 'nodeName': 'edge0'}}


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


def status_of(varda):
    return varda.get(KIND, 'digits').get('status', {})


def until(varda, what, condition, timeout=60):
    def probe():
        status = status_of(varda)
        return condition(status) and status
    try:
        return m.wait_until(what, probe, timeout=timeout)
    except m.Failed as e:
        raise m.Failed('%s: %s' % (e, json.dumps(status_of(varda)))) from None


def verdict(status):
    return next((c['message'] for c in status['conditions'] if c['type'] == 'Evaluated'), '')


def labels(varda):
    """The node's report on the way of its samples."""
    return next(iter(varda.get('edgenode', 'edge0')['status'].get('samples', [])), {})


def read(part):
    shape, pixels = data.read_idx(m.DIGITS / (part + '-images.idx3-ubyte'))
    _, names = data.read_idx(m.DIGITS / (part + '-labels.idx1-ubyte'))
    return [(names[i], pixels[i * 64:(i + 1) * 64]) for i in range(shape[0])]


def models(work):
    """A model of the digits 0 to 6 and 8, trained here, and the bigger one of all digits."""
    start = work / 'untrained'
    start.mkdir()
    (start / 'model.onnx').write_bytes(data.untrained_model(48, 1))
    (start / 'labels.txt').write_text(''.join('%d\n' % digit for digit in range(10)))
    (start / 'model.yaml').write_text(PICTURES % 'NCHW')
    data.run(m.BIN.parent, ['--model', start, '--data', work / 'base', '--out', work / 'base-model', '--hold-out', 0], BASE, work)
    shutil.copytree(m.DIGITS / 'models/big', work / 'cloud-model')
    (work / 'cloud-model/model.yaml').write_text(PICTURES % 'NHW')


def drop(varda, folder, class_name, pixels, number):
    """A person puts a picture into the folder of a class."""
    place = folder / 'label' / str(class_name)
    place.mkdir(parents=True, exist_ok=True)
    (place / ('picture-%d.png' % number)).write_bytes(data.png(8, 8, pixels))


def main():
    with workplace('varda-demo-incremental-') as work:
        story(work)


def story(work):
    random.seed(1)
    with Step('a model of the digits 0 to 6 and 8 is trained; 7 and 9 it has never seen'):
        data.make_data(work)
        models(work)
        edge = work / 'edge'
        edge.mkdir()
        for name in ('memory', 'test'):
            (work / name).rename(edge / name)
        (edge / 'new').mkdir()
        seen, stream, count = [], [], {}
        for one in read('train'):  # as in make_data()
            count[one[0]] = count.get(one[0], 0) + 1
            (stream if one[0] in data.NEW or count[one[0]] <= data.STREAM_OLD else seen).append(one)
        stream += random.sample(seen, 200)
        random.shuffle(stream)

    with m.Machine(work / 'varda', nodes=['cloud=cloud', 'edge0=edge']) as varda:
        demo(varda, work, edge, seen, stream)


def demo(varda, work, edge, seen, stream):
    node, spool = work / 'varda/nodes/edge0', work / 'varda/nodes/edge0/data/samples/default/digits'
    with Step('varda up; the job serves the small model on edge0, the bigger one serves in the cloud') as s:
        s.say(varda.up('--dataset-root', 'edge0=%s' % edge, '--registry', '127.0.0.1:0'))
        varda.varda('push', work / 'base-model', '--name', 'digits-0', '--version', '1')
        varda.varda('push', work / 'cloud-model', '--name', 'digits-cloud', '--version', '4')
        varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': [
            dataset('digits-new', edge / 'new'), dataset('digits-old', edge / 'memory'), dataset('digits-eval', edge / 'test'), job(),
            cloud_model('digits-cloud', 'digits-cloud'), cloud_model('digits-check', 'digits-0')]}))
        varda.ready('digits-cloud', '4')
        test = Test(varda.ready('digits-check', '1')['status']['url'] + '/v2/models/digits-check', read('test'))
        url = varda.ready('digits', '1')['status']['url']
        first = test.accuracy()
        s.say(varda.kubectl('get', 'il'))
        s.say('accuracy on 360 held-out images: %.3f; on the digits that the model knows: %.3f' % first)
        sure = [one for one, row in zip(seen, test.scores(seen)) if max(row) > 0.9 and max(row) == row[one[0]]]
        load = m.Load(url, 'digits', sure[:200], kind=Camera)

    with Step('the camera shows all digits: the server keeps the hard pictures, and nobody knows their labels') as s:
        camera = Camera(url, 'digits', stream)
        camera.period = 0.005
        camera.prepare()
        check(all([camera.one() for _ in stream]), 'a request failed: %s' % m.failures(camera.samples)[:3])
        m.wait_until('the pictures are kept', lambda: labels(varda).get('pending', 0) >= SAMPLES)
        s.say(varda.varda('samples', 'ls', 'digits', '--data-dir', work / 'varda').splitlines()[0])
        s.say('%d pictures shown, %d kept' % (len(stream), labels(varda)['pending']))
        s.say(varda.varda('samples', 'show', 'digits', '--data-dir', work / 'varda', '--to', SHEET))
        check(not any((edge / 'new').iterdir()), 'a sample has a label')

    with Step('the job may ask the bigger model: labels, trigger, training, gate, and a better version serves under load') as s:
        watch = Watch(varda, node)
        varda.kubectl('patch', KIND, 'digits', '--type=merge', '-p', json.dumps(
            {'spec': {'deploySpec': {'pseudoLabels': {'model': {'name': 'digits-cloud'}, 'minimum': 0.9}}}}))
        status = until(varda, 'a round', lambda st: st.get('rounds'))
        check(status['rounds'][0]['outcome'] == 'Accepted', json.dumps(status['rounds']))
        version = status['rounds'][0]['version']
        load.answered(version)
        watch.stop()
        served = min(x[0] for x in load.samples() if x[3] == version)
        s.say('labels: %s' % json.dumps({k: v for k, v in labels(varda).items() if isinstance(v, int)}))
        s.say(verdict(status))
        begin = watch.seen[1, 'Train', 'Ready'] if (1, 'Train', 'Ready') in watch.seen else watch.seen[1, 'Train', 'Starting']
        for (number, stage, state), at in sorted(watch.seen.items(), key=lambda x: x[1]):
            if number == 1:
                s.say('%+6.2f s  %s %s' % (at - begin, stage, state))
        s.say('%+6.2f s  version %s answers' % (served - begin, version))
        s.say('memory of all processes on edge0 while it trains: %.0f MiB (%s)' % (
            watch.peak, ', '.join('%s %.0f' % x for x in sorted(watch.parts.items()))))
        varda.kubectl('patch', 'inferencemodel', 'digits-check', '--type=merge', '-p', json.dumps({'spec': {'modelRef': {'name': 'digits'}}}))
        varda.ready('digits-check', version)
        second = test.accuracy()
        s.say(varda.kubectl('get', 'il'))
        s.say('accuracy %.3f -> %.3f; on the old digits %.3f -> %.3f' % (first[0], second[0], first[1], second[1]))
        check(second[0] >= 0.95, 'the new version is not good')
        check(first[1] - second[1] <= 0.01, 'the new version forgets')

    with Step('a careless person drops pictures into wrong folders: the gate refuses, and the good version stays') as s:
        before = labels(varda)['moved']
        for number, (label, pixels) in enumerate(random.sample(stream, 150)):
            drop(varda, spool, (label + 3) % 10, pixels, number)
        m.wait_until('the labels are in the Dataset', lambda: labels(varda)['moved'] >= before + 150)
        until(varda, 'the labels are counted', lambda st: st['samples']['new'] >= 150)
        s.say(varda.varda('il', 'train', 'digits'))
        status = until(varda, 'a verdict', lambda st: len(st['rounds']) == 2)
        s.say(status['rounds'][1]['reason'] + ': ' + status['rounds'][1]['message'])
        check((status['rounds'][1]['outcome'], status['version']) == ('Refused', version), 'a poisoned version serves')

    with Step('a trainer that makes unsure models, and a gate that asks for no gain: the version passes, fails live, and goes back by itself') as s:
        unsure = {**TRAINER, 'labelSmoothing': 0.7, 'continual': {'replay': {'samples': 900}}}
        varda.kubectl('patch', KIND, 'digits', '--type=merge', '-p', json.dumps(
            {'spec': {'trainSpec': {'trainer': unsure}, 'evalSpec': {'gate': {'minimumGain': -0.02, 'forgettingMax': 0.05}}}}))
        for number, (label, pixels) in enumerate(random.sample(stream, 20)):
            drop(varda, spool, label, pixels, 1000 + number)
        m.wait_until('the labels are in the Dataset', lambda: labels(varda)['moved'] >= before + 170)
        until(varda, 'the labels are counted', lambda st: st['samples']['new'] >= 20)
        s.say(varda.varda('il', 'train', 'digits'))
        status = until(varda, 'the way back', lambda st: len(st['rounds']) == 3 and st['rounds'][2]['outcome'] == 'Refused')
        bad = status['rounds'][2]
        s.say('%s: %s' % (bad['reason'], bad['message']))
        varda.ready('digits', version)
        load.answered(version)
        samples = load.stop()
        served = [x[0] for x in samples if x[3] == bad['version']]
        check(served, 'version %s never answered' % bad['version'])
        back = min(x[0] for x in samples if x[3] == version and x[0] > served[-1]) - served[0]
        s.say('version %s answered %d requests; version %s is back after %.2f s' % (bad['version'], len(served), version, back))
        check(bad['reason'] == 'HardShare', json.dumps(bad))
        check(back <= 5, 'the way back took %.1f s' % back)
        s.say(varda.varda('il', 'history', 'digits'))
        check(not m.failures(samples), 'failed requests: %s' % m.failures(samples)[:3])
        s.say('%d requests in all steps, 0 failed' % len(samples))

    third = test.accuracy()
    chart.rounds(CURVE, 'Incremental learning', 'accuracy on held-out images, after each step',
                 [('all digits', [first[0], second[0], second[0], third[0]]), ('digits that the first model knew', [first[1], second[1], second[1], third[1]])], [])


if __name__ == '__main__':
    run(main)
