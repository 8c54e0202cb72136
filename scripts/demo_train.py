#!/usr/bin/env python3
"""Training on an edge node, narrated: the digits that lie on edge0 become a better model there. The
trainer is killed in mid-run and goes on; the new version comes up, and the server switches to it.

Exits 0 only if every step held. Uses free ports and its own data directory, and leaves no file and
no process behind but build/training.html.
"""
import json, os, shutil, signal, time, urllib.request

from narrate import Step, answered, check, run, workplace
import machine as m

TRAINER = {'task': 'classification', 'epochs': 400, 'batchSize': 32, 'seed': 1, 'loss': 'crossEntropy',
           'optimizer': {'name': 'sgd', 'learningRate': 0.2, 'momentum': 0.9}, 'schedule': {'name': 'cosine', 'warmupEpochs': 1}}


def dataset(name, path):
    return {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
            'spec': {'dataUrl': str(path), 'format': 'idx', 'nodeName': 'edge0'}}


def training_model():
    return {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'TrainingModel', 'metadata': {'name': 'digits-5'},
            'spec': {'modelName': 'digits', 'deployToLayer': 'edge', 'nodeName': 'edge0', 'initialModel': {'name': 'digits'},
                     'dataset': {'name': 'digits-train'}, 'evaluation': {'dataset': {'name': 'digits-test'}},
                     'trainer': TRAINER, 'output': {'version': '5'}, 'checkpoint': {'every': '1s'}}}


def main():
    with workplace('varda-demo-train-') as work:
        story(work)


def story(work):
    shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
    size = shape[1] * shape[2]
    images = [pixels[i * size:(i + 1) * size] for i in range(shape[0])]
    data = work / 'digits'
    data.mkdir()
    for file in m.DIGITS.glob('*-ubyte'):
        shutil.copy(file, data)

    with m.Machine(work / 'data', nodes=['cloud=cloud', 'edge0=edge']) as varda:
        with Step('varda up with the images of digits on edge0; version 3 is pushed, and serves there') as s:
            s.say(varda.up('--dataset-root', 'edge0=%s' % data, '--registry', '127.0.0.1:0'))
            varda.varda('push', m.DIGITS / 'models/3', '--name', 'digits', '--version', '3', '--task', 'image-classification', '--metric', 'accuracy=0.9')
            varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': [
                {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'digits'},
                 'spec': {'modelName': 'digits', 'deployToLayer': 'edge', 'nodeName': 'edge0', 'frameworkType': 'onnx', 'modelRef': {'name': 'digits'}}},
                dataset('digits-train', data / 'train-images.idx3-ubyte'), dataset('digits-test', data / 'test-images.idx3-ubyte')]}))
            model = varda.ready('digits', '3')
            url = model['status']['url']
            check(answered(url, 'digits', images) == '3', 'version 3 does not answer')
            m.wait_until('the images are counted', lambda: all(d.get('status', {}).get('numberOfSamples') for d in varda.get('datasets')['items']))
            s.say(varda.kubectl('get', 'datasets,models'))

        with Step('kubectl apply: a TrainingModel for edge0, and its progress') as s:
            varda.kubectl('apply', '-f', '-', input=json.dumps(training_model()))
            seen = watch(varda, s, lambda t: t['status'].get('progress', {}).get('epoch', 0) >= 2)

        with Step('SIGKILL to the trainer: it goes on from its checkpoint') as s:
            before = seen['status']['progress']['epoch']
            pid = trainer_of(varda)
            os.kill(pid, signal.SIGKILL)
            s.say('killed pid %d in epoch %d' % (pid, before))
            seen = watch(varda, s, lambda t: t['status'].get('attempts', 0) >= 2 and t['status']['progress']['epoch'] >= before)
            check(not seen['status'].get('completionTime'), 'the run ended before it was killed')

        with Step('version 5 of the Model appears, and the server switches under load: no request may fail') as s:
            load = m.Load(url, 'digits', images)
            watch(varda, s, lambda t: t['status'].get('phase') in ('Complete', 'Failed'))
            trained = varda.get('trainingmodel', 'digits-5')
            check(trained['status']['phase'] == 'Complete', json.dumps(trained['status'].get('conditions')))
            varda.ready('digits', '5')
            time.sleep(1)
            samples = load.stop()
            check(not m.failures(samples), 'failed requests: %s' % m.failures(samples)[:3])
            check(samples[-1][3] == '5', 'the last answer came from version %s' % samples[-1][3])
            s.say(varda.kubectl('get', 'trainingmodels,models'))
            s.say('%d requests, 0 failed' % len(samples))

        with Step('varda predict: the test images with version 5') as s:
            out = json.loads(varda.varda('predict', 'digits', '--images', m.DIGITS / 'test-images.idx3-ubyte', '--labels',
                                         m.DIGITS / 'test-labels.idx1-ubyte', '-o', 'json'))
            metrics = {x['key']: float(x['value']) for x in varda.get('model', 'digits')['status']['metrics']}
            s.say('accuracy %.4f; version 3 had 0.9000; the trainer reported %.4f' % (out['accuracy'], metrics['accuracy']))
            check(out['accuracy'] >= 0.97, 'the accuracy is below 0.97')
            check(abs(out['accuracy'] - metrics['accuracy']) < 1e-6, 'the server and the trainer disagree')

        with Step('the report of the run') as s:
            produced = varda.get('trainingmodel', 'digits-5')['status']['produced']
            page = urllib.request.urlopen(produced['reportUrl'], timeout=30).read()
            out = m.ROOT / 'build/training.html'
            out.write_bytes(page)
            check(b'<svg' in page and b'</html>' in page, 'the report has no curve')
            s.say('build/training.html, %d bytes: loss, accuracy, confusion matrix, worst digits' % len(page))

        with Step('kubectl delete: nothing of the run stays on edge0') as s:
            varda.kubectl('delete', 'trainingmodel', 'digits-5')
            root = work / 'data/nodes/edge0/data/workers/default'
            m.wait_until('the files of the run are gone', lambda: not list(root.glob('digits-5*')))
            check(answered(url, 'digits', images) == '5', 'version 5 no longer serves')
            s.say('version 5 keeps serving')


def watch(varda, step, until):
    """Prints each new line of progress, until the condition holds. Returns the object."""
    last = ''

    def probe():
        nonlocal last
        found = varda.get('trainingmodel', 'digits-5')
        found.setdefault('status', {})
        line = varda.kubectl('get', 'trainingmodel', 'digits-5', '--no-headers').strip()
        if line.rsplit(None, 1)[0] != last:
            last = line.rsplit(None, 1)[0]
            step.say(line)
        check(found['status'].get('phase') != 'Failed', json.dumps(found['status'].get('conditions')))
        return until(found) and found
    return m.wait_until('progress of the TrainingModel', probe, every=0.4)


def trainer_of(varda):
    """The process of the trainer's container."""
    pod = varda.get('trainingmodel', 'digits-5')['status']['pod']
    status = varda.get('pod', pod)['status']['containerStatuses'][0]
    return int(status['containerID'].split('://')[1].split('-')[0])


if __name__ == '__main__':
    run(main)
