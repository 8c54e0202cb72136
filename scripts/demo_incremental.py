#!/usr/bin/env python3
"""Incremental learning, narrated: a model that has never seen the digits 7 and 9 serves on edge0. The
stream brings them, the bigger model of the cloud labels them, a round trains, the gate passes, and
the server switches under load. Then poisoned labels come, and the gate refuses. Then a version that
passed the gate goes back.

Exits 0 only if every step held. Uses free ports and its own data directory, and leaves no file and
no process behind but build/incremental.svg.
"""
import json, pathlib, random, shutil, subprocess, sys, time, urllib.request

from narrate import Step, check, run, workplace
import chart
import machine as m

sys.path.insert(0, str(m.ROOT / 'bench'))
import continual as data  # noqa: E402

KIND = 'incrementallearningjob'
TRAINER = {'task': 'classification', 'epochs': 20, 'batchSize': 16, 'seed': 1, 'threads': 1,
           'optimizer': {'name': 'sgd', 'learningRate': 0.05, 'momentum': 0.9}, 'continual': {'replay': {'samples': 900}, 'lwf': {'lambda': 1, 'temperature': 2}}}


def job():
    return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'IncrementalLearningJob', 'metadata': {'name': 'digits'},
            'spec': {'nodeName': 'edge0', 'dataset': {'name': 'digits-new', 'trainProb': 0.8}, 'initialModel': {'name': 'digits-0'},
                     'trainSpec': {'trainer': TRAINER, 'replay': {'name': 'digits-old'}, 'trigger': {'condition': {'metric': 'num_of_samples', 'operator': '>=', 'threshold': 300}}},
                     'evalSpec': {'dataset': {'name': 'digits-eval'}, 'gate': {'metric': 'accuracy', 'minimumGain': 0.01, 'significance': 0.05, 'forgettingMax': 0.01}},
                     'deploySpec': {'model': {'name': 'digits'}}}}


def main():
    with workplace('varda-demo-incremental-') as work:
        story(work)


def base_model(work):
    """A model of the digits 0 to 6 and 8."""
    start = work / 'untrained'
    start.mkdir()
    (start / 'model.onnx').write_bytes(data.untrained_model(48, 1))
    (start / 'labels.txt').write_text(''.join('%d\n' % digit for digit in range(10)))
    data.run(m.BIN.parent, ['--model', start, '--data', work / 'base', '--out', work / 'base-model', '--hold-out', 0], data.BASE, work)


class Cloud:
    """The bigger model labels what arrives."""

    def __init__(self, url, folder):
        self.url, self.folder, self.number = url + '/infer', folder, 0
        self.input = json.loads(urllib.request.urlopen(url, timeout=10).read())['inputs'][0]

    def label(self, pixels):
        body = json.dumps({'inputs': [{'name': self.input['name'], 'shape': [1] + self.input['shape'][1:], 'datatype': self.input['datatype'], 'data': list(pixels)}]}).encode()
        answer = json.loads(urllib.request.urlopen(self.url, body, timeout=10).read())
        scores = answer['outputs'][0]['data']
        return max(range(len(scores)), key=scores.__getitem__), max(scores)

    def keep(self, label, pixels):
        self.number += 1
        place = self.folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        hidden = self.folder.parent / ('new-%05d' % self.number)
        hidden.write_bytes(data.png(8, 8, pixels))
        hidden.rename(place / ('s%05d.png' % self.number))


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


def rounds(status):
    return [(one['round'], one['outcome']) for one in status.get('rounds', [])]


def verdict(status):
    return next((c['message'] for c in status['conditions'] if c['type'] == 'Evaluated'), '')


def story(work):
    with Step('a model of the digits 0 to 6 and 8 is trained; 7 and 9 it has never seen') as s:
        data.make_data(work)
        base_model(work)
        shape, pixels = data.read_idx(m.DIGITS / 'train-images.idx3-ubyte')
        _, labels = data.read_idx(m.DIGITS / 'train-labels.idx1-ubyte')
        images = [(labels[i], pixels[i * 64:(i + 1) * 64]) for i in range(shape[0])]
        edge = work / 'edge'
        edge.mkdir()
        for name in ('memory', 'test'):
            (work / name).rename(edge / name)
        new = edge / 'new'
        (new / '7').mkdir(parents=True)
    test_shape, test_pixels = data.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
    test = [test_pixels[i * 64:(i + 1) * 64] for i in range(test_shape[0])]

    with m.Machine(work / 'varda', nodes=['cloud=cloud', 'edge0=edge']) as varda:
        with Step('varda up; the bigger model serves in the cloud, the job serves the small one on edge0') as s:
            s.say(varda.up('--dataset-root', 'edge0=%s' % edge, '--registry', '127.0.0.1:0'))
            varda.varda('push', work / 'base-model', '--name', 'digits-0', '--version', '1')
            varda.varda('push', m.DIGITS / 'models/4', '--name', 'digits-cloud', '--version', '4')
            varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': [
                {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'digits-cloud'},
                 'spec': {'modelName': 'digits-cloud', 'deployToLayer': 'edge', 'nodeName': 'cloud', 'frameworkType': 'onnx', 'modelRef': {'name': 'digits-cloud'}}},
                *({'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': 'digits-' + name},
                   'spec': {'dataUrl': str(edge / folder), 'format': 'imagefolder', 'nodeName': 'edge0'}}
                  for name, folder in (('new', 'new'), ('old', 'memory'), ('eval', 'test'))), job()]}))
            cloud = Cloud(varda.ready('digits-cloud', '4')['status']['url'] + '/v2/models/digits-cloud', new)
            url = varda.ready('digits', '1')['status']['url']
            first = accuracy(varda)
            s.say(varda.kubectl('get', 'il'))
            s.say('accuracy on all digits: %.3f' % first)

        with Step('the stream brings 7 and 9; the cloud labels them; the trigger fires, and a better version serves under load') as s:
            load = m.Load(url, 'digits', test)
            random.seed(1)
            stream, kept = [], {}
            for one in images:  # what is new, and the control share of what is known
                kept[one[0]] = kept.get(one[0], 0) + 1
                if one[0] in data.NEW or kept[one[0]] <= data.STREAM_OLD:
                    stream.append(one)
            random.shuffle(stream)
            begin = time.monotonic()
            for _, image in stream:
                label, score = cloud.label(image)
                if score >= 0.9:
                    cloud.keep(label, image)
            s.say('%d images labelled in %.1f s' % (cloud.number, time.monotonic() - begin))
            status = until(varda, 'a round', lambda st: st.get('rounds'))
            check(rounds(status)[0] == (1, 'Accepted'), json.dumps(status['rounds']))
            version = status['rounds'][0]['version']
            varda.ready('digits', version)
            status = until(varda, 'the new version', lambda st: st.get('version') == version)
            samples = load.stop()
            check(not m.failures(samples), 'failed requests: %s' % m.failures(samples)[:3])
            s.say(verdict(status))
            second = accuracy(varda)
            s.say(varda.kubectl('get', 'il'))
            s.say('%d requests, 0 failed; accuracy %.3f -> %.3f' % (len(samples), first, second))
            check(second > first + 0.05, 'the new version is not better')

        with Step('poisoned labels: the gate refuses, and the good version stays') as s:
            served = status_of(varda)['version']
            before = len(status_of(varda)['rounds'])
            for label, image in random.sample(images, 150):
                cloud.keep((label + 3) % 10, image)
            m.wait_until('the poison is counted', lambda: status_of(varda)['samples']['new'] >= 150)
            s.say(varda.varda('il', 'train', 'digits'))
            status = until(varda, 'a verdict', lambda st: len(st.get('rounds', [])) > before and st['rounds'][-1]['outcome'] == 'Refused')
            s.say(status['rounds'][-1]['reason'] + ': ' + status['rounds'][-1]['message'])
            check(status['version'] == served, 'a poisoned version serves')

        with Step('varda il rollback: the version before serves again') as s:
            begin = time.monotonic()
            s.say(varda.varda('il', 'rollback', 'digits'))
            varda.ready('digits', '1')
            took = time.monotonic() - begin
            s.say('version 1 serves after %.2f s' % took)
            check(took < 5, 'the rollback took %.1f s' % took)
            s.say(varda.varda('il', 'history', 'digits'))
        chart.rounds(m.ROOT / 'build/incremental.svg', 'Incremental learning', 'accuracy on all digits, by version',
                     [('serving', [first, second, second, first])], [])


def accuracy(varda):
    out = varda.varda('predict', 'digits', '--images', m.DIGITS / 'test-images.idx3-ubyte', '--labels', m.DIGITS / 'test-labels.idx1-ubyte')
    return float(out.split('accuracy ')[1].split()[0])


if __name__ == '__main__':
    run(main)
