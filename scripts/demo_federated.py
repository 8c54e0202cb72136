#!/usr/bin/env python3
"""Federated learning, narrated: five nodes hold different digits, and train one model of all digits
without moving an image. Then the same job runs while trainers and the aggregator are killed, one
client sends NaN and one sends hundredfold weights: the result has the same bytes.

Exits 0 only if every step held. Uses free ports and its own data directory, and leaves no file and
no process behind but build/federated.svg.
"""
import json, os, shutil, signal, struct, subprocess

from narrate import Step, answered, check, run, workplace
import chart
import machine as m

NODES = ['edge%d' % number for number in range(5)]
ROUNDS = 20
TRAINER = {'task': 'classification', 'batchSize': 16, 'loss': 'crossEntropy', 'optimizer': {'name': 'sgd', 'learningRate': 0.3}}
HOSTILE = m.ROOT / 'tests/support/hostile_client.py'


def deal(work):
    """Two digits for each node: no node sees what the others have. Returns the number of images by
    node."""
    shape, pixels = m.read_idx(m.DIGITS / 'train-images.idx3-ubyte')
    _, labels = m.read_idx(m.DIGITS / 'train-labels.idx1-ubyte')
    size = shape[1] * shape[2]
    dealt = {}
    for number, node in enumerate(NODES):
        chosen = [i for i, label in enumerate(labels) if label in (2 * number, 2 * number + 1)]
        folder = work / 'data' / node
        folder.mkdir(parents=True)
        (folder / 'train-images.idx3-ubyte').write_bytes(
            struct.pack('>4B3I', 0, 0, 8, 3, len(chosen), *shape[1:]) + b''.join(pixels[i * size:(i + 1) * size] for i in chosen))
        (folder / 'train-labels.idx1-ubyte').write_bytes(struct.pack('>4BI', 0, 0, 8, 1, len(chosen)) + bytes(labels[i] for i in chosen))
        for file in m.DIGITS.glob('test-*-ubyte'):
            shutil.copy(file, folder)
        dealt[node] = len(chosen)
    return dealt


def job(name, model, workers=()):
    return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'FederatedLearningJob', 'metadata': {'name': name},
            'spec': {'aggregationWorker': {'model': {'name': model}, 'nodeName': 'cloud'},
                     'trainingWorkers': [{'nodeName': node, 'dataset': {'name': node}} for node in NODES] + list(workers),
                     'federated': {'rounds': ROUNDS, 'localEpochs': 1, 'trainer': TRAINER, 'minimumClients': len(NODES),
                                   'quorum': len(NODES), 'roundDeadline': '5s', 'seed': 1}}}


def hostile(attack, node):
    return {'nodeName': node, 'workerSpec': {'containers': [{'image': 'hostile:1', 'env': [{'name': 'ATTACK', 'value': attack}]}]}}


def alone(work, name, data, *evaluation):
    """The accuracy after as many epochs on the digits of one directory: on the images of
    `evaluation`, else on a held-out tenth."""
    out = work / ('alone-' + name)
    settings = work / 'settings.json'
    settings.write_text(json.dumps({**TRAINER, 'epochs': ROUNDS, 'seed': 1}))
    subprocess.run([str(m.BIN / 'varda-train'), '--model', m.DIGITS / 'models/3', '--data', data / 'train-images.idx3-ubyte',
                    *(flag for path in evaluation for flag in ('--evaluation', path)), '--settings', settings, '--out', out], check=True, stdout=subprocess.DEVNULL, timeout=120)
    return json.loads((out / 'metrics.json').read_text())['metrics']['accuracy']


def main():
    with workplace('varda-demo-federated-') as work:
        story(work)


def story(work):
    shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
    size = shape[1] * shape[2]
    images = [pixels[i * size:(i + 1) * size] for i in range(shape[0])]

    with Step('five nodes, each with two of the ten digits; what each learns alone, and what one machine with all learns') as s:
        dealt = deal(work)
        test = m.DIGITS / 'test-images.idx3-ubyte'
        levels = {node: alone(work, node, work / 'data' / node, test) for node in NODES}
        levels['all data on one machine'] = alone(work, 'central', m.DIGITS, test)
        held_out = alone(work, 'held-out', m.DIGITS)
        for name, accuracy in levels.items():
            s.say('%-24s %4d images, accuracy on all digits %.4f' % (name, dealt.get(name, sum(dealt.values())), accuracy))

    roots = [flag for node in NODES for flag in ('--dataset-root', '%s=%s' % (node, work / 'data' / node))]
    with m.Machine(work / 'varda', nodes=['cloud=cloud'] + [node + '=edge' for node in NODES]) as varda:
        with Step('varda up with these nodes; version 3 of the model is pushed, and serves on edge0') as s:
            s.say(varda.up(*roots, '--registry', '127.0.0.1:0', '--image', 'hostile:1=%s %s' % (m.PYTHON, HOSTILE)))
            for name in ('digits', 'digits-attacked'):
                varda.varda('push', m.DIGITS / 'models/3', '--name', name, '--version', '3')
            varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': [
                {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'digits'},
                 'spec': {'modelName': 'digits', 'deployToLayer': 'edge', 'nodeName': 'edge0', 'frameworkType': 'onnx', 'modelRef': {'name': 'digits'}}}] + [
                {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': node},
                 'spec': {'dataUrl': str(work / 'data' / node / 'train-images.idx3-ubyte'), 'format': 'idx', 'nodeName': node}} for node in NODES]}))
            url = varda.ready('digits', '3')['status']['url']
            s.say(varda.kubectl('get', 'datasets'))

        with Step('kubectl apply: a FederatedLearningJob of %d rounds' % ROUNDS) as s:
            load = m.Load(url, 'digits', images)
            calm = run_job(varda, s, job('digits', 'digits'))
            accuracies = metrics_of(calm)
            s.say(' '.join('%.3f' % a for a in accuracies))

        with Step('the server follows the Model: it switched to the result under load') as s:
            version = calm['produced']['version']
            varda.ready('digits', version)
            m.wait_until('an answer of the result', lambda: answered(url, 'digits', images) == version)
            samples = load.stop()
            check(not m.failures(samples), 'failed requests: %s' % m.failures(samples)[:3])
            s.say('version %s serves; %d requests, 0 failed' % (version, len(samples)))
            best = max(levels[node] for node in NODES)
            reached = accuracy_of(varda)
            s.say('accuracy on all digits: %.4f; the best node alone %.4f; one machine with all data %.4f' % (
                reached, best, levels['all data on one machine']))
            check(reached > best + 0.2, 'the job is not much better than the best node alone')
            check(reached > levels['all data on one machine'] - 0.05, 'the job is far from one machine with all data')

        with Step('the same job under attack: two hostile clients; trainers and the aggregator are killed in mid-round') as s:
            attacked = run_job(varda, s, job('attacked', 'digits-attacked', [hostile('nan', 'edge1'), hostile('hundredfold', 'edge2')]), Killer(varda, s))
            hurt = metrics_of(attacked)
            s.say(' '.join('%.3f' % a for a in hurt))
            dropped = [p for p in attacked['participants'] if p['state'] in ('Dropped', 'Ended') and p.get('reason')]
            for one in dropped:
                s.say('%s on %s: %s %s' % (one['worker'], one['node'], one['reason'], one.get('message', '')[:120]))
            same = attacked['produced']['sha256'] == calm['produced']['sha256']
            s.say('accuracy %.4f, without attack and kills %.4f; the files of both models are %s' % (
                hurt[-1], accuracies[-1], 'equal: ' + calm['produced']['sha256'] if same else 'different'))
            check(same, 'the kills or the attack changed the model')

        with Step('the curve: build/federated.svg'):
            chart.rounds(m.ROOT / 'build/federated.svg', 'Five nodes, two digits each', 'accuracy on images that the nodes hold out; FedAvg, one local epoch a round',
                         [('federated', accuracies), ('under attack, with kills', hurt)],
                         [('one machine with all data', held_out), ('the best node alone', best)])


def run_job(varda, step, spec, watcher=None):
    """Applies the job and waits for the end; returns the status."""
    name = spec['metadata']['name']
    varda.kubectl('apply', '-f', '-', input=json.dumps(spec))
    last = ''

    def probe():
        nonlocal last
        status = varda.get('federatedlearningjob', name).get('status', {})
        line = varda.kubectl('get', 'federatedlearningjob', name, '--no-headers').strip()
        if line.rsplit(None, 1)[0] != last:
            last = line.rsplit(None, 1)[0]
            step.say(line)
        if watcher:
            watcher.look(name, status)
        check(status.get('phase') != 'Failed', json.dumps(status.get('conditions')))
        return status.get('phase') == 'Complete' and status
    return m.wait_until('the end of the job', probe, every=0.3)


def accuracy_of(varda):
    out = varda.varda('predict', 'digits', '--images', m.DIGITS / 'test-images.idx3-ubyte', '--labels', m.DIGITS / 'test-labels.idx1-ubyte', '-o', 'json')
    return json.loads(out)['accuracy']


def metrics_of(status):
    return [float(round['metrics']['accuracy']) for round in status['history']]


class Killer:
    """Kills a trainer in three rounds, and the aggregator in two of them."""

    def __init__(self, varda, step):
        self.varda, self.step, self.done = varda, step, set()

    def look(self, name, status):
        number = status.get('round', 0)
        if number < 1 or number in self.done or len(self.done) == 3 or status.get('phase') == 'Complete':
            return
        self.done.add(number)
        pods = sorted(p['metadata']['name'] for p in self.varda.pods() if p['metadata']['name'].startswith(name))
        trainers = [p for p in pods if '-train' in p]
        victims = [trainers[number % len(trainers)]] + ([p for p in pods if p not in trainers][:1] if len(self.done) > 1 else [])
        for pod in victims:
            state = self.varda.get('pod', pod)['status']['containerStatuses'][0]
            os.kill(int(state['containerID'].split('://')[1].split('-')[0]), signal.SIGKILL)
            self.step.say('round %d: killed %s' % (number, pod))


if __name__ == '__main__':
    run(main)
