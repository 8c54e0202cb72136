#!/usr/bin/env python3
"""The main job on this machine, narrated: a real model is packed, served, switched, broken, scaled,
killed and brought back.

Exits 0 only if every step held. Uses free ports and its own data directory, and leaves no file and
no process behind.
"""
import json, os, signal, time

from narrate import Step, answered, check, run, workplace
import machine as m


def main():
    with workplace('varda-demo-') as work:
        story(work)


def story(work):
    (work / 'www').mkdir()
    shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
    size = shape[1] * shape[2]
    images = [pixels[i * size:(i + 1) * size] for i in range(shape[0])]
    report = json.loads((m.DIGITS / 'report.json').read_text())
    accuracy = {x['version']: x['correct'] / x['samples'] for x in report['models']}
    files = m.FileServer(work / 'www')

    with m.Machine(work / 'data', nodes=['cloud=cloud', 'edge0=edge']) as varda:
        with Step('varda up: API server, operator and the nodes cloud and edge0 in one command') as s:
            s.say(varda.up())
            m.wait_until('both nodes ready', lambda: varda.kubectl('get', 'nodes').count(' Ready') == 2, 20)
            s.say(varda.kubectl('get', 'nodes'))
            check(os.stat(varda.kubeconfig).st_mode & 0o77 == 0, 'kubeconfig is readable by others')

        with Step('varda pack: two trained versions of a digit classifier become archives, byte for byte reproducible') as s:
            entries = []
            for v in ('3', '4'):
                out = work / 'www' / ('digits-%s.tar.gz' % v)
                sha = m.pack(varda, v, out)
                again = m.pack(varda, v, work / 'again.tar.gz')
                check(sha == again and out.read_bytes() == (work / 'again.tar.gz').read_bytes(), 'packing twice gave different bytes')
                entries.append((v, files.url(out.name), sha))
                s.say('digits-%s.tar.gz  %d bytes  sha256 %s  accuracy when trained %.4f' % (v, out.stat().st_size, sha, accuracy[v]))

        with Step('kubectl apply: an InferenceModel on edge0, version 3') as s:
            manifest = m.inference_model('digits', 'edge', entries, '3', node='edge0')
            varda.kubectl('apply', '-f', '-', input=json.dumps(manifest))
            model = varda.ready('digits', '3')
            url = model['status']['url']
            check(answered(url, 'digits', images) == '3', 'status says version 3, the server does not')
            s.say(varda.kubectl('get', 'inferencemodels'))

        with Step('varda predict: the %d real images of the test split' % len(images)) as s:
            out = varda.varda('predict', 'digits', '--images', m.DIGITS / 'test-images.idx3-ubyte', '--labels', m.DIGITS / 'test-labels.idx1-ubyte', '-o', 'json')
            result = json.loads(out)
            for p in result['predictions'][:5]:
                s.say('image %-4d label %s  probability %.3f  %.2f ms' % (p['index'], p['label'], p['probability'], p['latencyMs']))
            s.say('… accuracy %.4f over %d images; the training script reported %.4f' % (result['accuracy'], result['count'], accuracy['3']))
            check(abs(result['accuracy'] - accuracy['3']) < 1e-9, 'accuracy differs from what training reported')

        with Step('targetVersion "4" while two clients keep sending: no request may fail') as s:
            load = m.Load(url, 'digits', images)
            time.sleep(2)
            switch = time.monotonic()
            varda.kubectl('patch', 'inferencemodel', 'digits', '--type=merge', '-p', '{"spec":{"targetVersion":"4"}}')
            varda.ready('digits', '4')
            switched = time.monotonic()
            time.sleep(1)
            samples = load.stop()
            rest, during = [x for x in samples if x[0] < switch], [x for x in samples if switch <= x[0] < switched]
            check(not m.failures(samples), 'failed requests: %s' % m.failures(samples)[:3])
            check(samples[-1][3] == '4', 'the last answer came from version %s' % samples[-1][3])
            s.say('%d requests, 0 failed; switched in %.2f s; p99 before %.2f ms, during the switch %.2f ms' % (
                len(samples), switched - switch, 1e3 * m.percentile(rest, 99), 1e3 * m.percentile(during, 99)))
            out = json.loads(varda.varda('predict', 'digits', '--images', m.DIGITS / 'test-images.idx3-ubyte', '--labels',
                                         m.DIGITS / 'test-labels.idx1-ubyte', '-o', 'json'))
            s.say('accuracy %.4f; the training script reported %.4f' % (out['accuracy'], accuracy['4']))
            check(abs(out['accuracy'] - accuracy['4']) < 1e-9, 'accuracy differs from what training reported')

        with Step('version "5" with a wrong sha256: "4" keeps serving, the condition gives the reason') as s:
            wrong = 'b' * 64
            bad = entries + [('5', files.url('digits-4.tar.gz'), wrong)]
            varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('digits', 'edge', bad, '5', node='edge0')))
            real = entries[1][2]

            def told():
                status = varda.model('digits').get('status', {})
                text = [c for c in status.get('conditions', []) if wrong in c.get('message', '') and real in c.get('message', '')]
                return text and status
            status = m.wait_until('a condition that names both digests', told)
            reason = [c for c in status['conditions'] if wrong in c.get('message', '')][0]
            s.say('%s=%s %s: %s' % (reason['type'], reason['status'], reason['reason'], reason['message']))
            check(status['servingVersion'] == '4' and answered(url, 'digits', images) == '4', 'version 4 no longer serves')
            varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('digits', 'edge', entries, '4', node='edge0')))
            m.wait_until('the condition to clear', lambda: wrong not in json.dumps(varda.model('digits')['status']['conditions']))
            s.say('going back to "4" clears it')

        with Step('the same model in the cloud layer: a Deployment of two pods behind a Service') as s:
            varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('digits-cloud', 'cloud', entries, '4', replicas=2)))
            model = varda.ready('digits-cloud', '4')
            cloud_url = model['status']['url']
            selector = 'edgeai.io/inference-model=digits-cloud'

            def ready_pods():
                return [p for p in varda.pods(selector) if not p['metadata'].get('deletionTimestamp') and
                        any(c['type'] == 'Ready' and c['status'] == 'True' for c in p['status'].get('conditions', []))]
            m.wait_until('two ready pods', lambda: len(ready_pods()) == 2)
            s.say(varda.kubectl('get', 'deployments,services,pods,inferencemodels'))
            c = m.Client(cloud_url, 'digits-cloud', images)
            c.prepare()
            for _ in range(20):
                check(c.one(), 'no answer: %s' % c.samples[-1:])
                c.close()
            pods = ready_pods()
            counts = [requests_answered(p) for p in pods]
            s.say('20 connections through %s: pods answered %s' % (cloud_url, ' and '.join(str(int(c)) for c in counts)))
            check(all(c > 0 for c in counts), 'the Service did not balance over both pods: %s' % counts)

        with Step('scale to 3, then kill one pod\'s process: both heal') as s:
            varda.kubectl('scale', 'inferencemodel', 'digits-cloud', '--replicas=3')
            m.wait_until('three ready pods', lambda: len(ready_pods()) == 3)
            victim = ready_pods()[0]
            container = victim['status']['containerStatuses'][0]
            pid = int(container['containerID'].split('://')[1].split('-')[0])
            os.kill(pid, signal.SIGKILL)
            s.say('killed pid %d of pod %s' % (pid, victim['metadata']['name']))

            def healed():
                pods = ready_pods()
                fresh = [p for p in pods if p['metadata']['uid'] == victim['metadata']['uid'] and p['status']['containerStatuses'][0]['restartCount'] > 0]
                replaced = all(p['metadata']['uid'] != victim['metadata']['uid'] for p in pods)
                return len(pods) == 3 and (fresh or replaced)
            m.wait_until('three ready pods again', healed)
            varda.ready('digits-cloud', '4')
            answered(cloud_url, 'digits-cloud', images)
            s.say(varda.kubectl('get', 'pods'))

        with Step('SIGKILL to everything, the file server goes away, varda up again: the models serve again') as s:
            files.stop()
            victims = varda.kill_everything()
            s.say('killed %d processes' % len(victims))
            again = time.monotonic()
            s.say(varda.up())
            for name in ('digits', 'digits-cloud'):
                model = varda.ready(name, '4')
                version = m.wait_until('an answer of ' + name, lambda: answered(model['status']['url'], name, images))
                check(version == '4', '%s answers with version %s' % (name, version))
                s.say('%s answers %.2f s after varda up began' % (name, time.monotonic() - again))

        with Step('kubectl delete: pods, service and exposed files go; the artifact stays cached') as s:
            varda.kubectl('delete', 'inferencemodel', 'digits', 'digits-cloud')
            m.wait_until('pods gone', lambda: not varda.pods())
            m.wait_until('deployments and services gone', lambda: not [x for x in varda.get('deployments,services')['items'] if x['metadata']['name'] != 'kubernetes'])
            edge = work / 'data/nodes/edge0/data'
            m.wait_until('exposed files gone', lambda: not list((edge / 'models').glob('*/digits*')))
            cached = [p.name for p in (edge / 'artifacts').iterdir() if len(p.name) == 64] + [p.name for p in (edge / 'artifacts').glob('*/*') if len(p.name) == 64]
            check(cached, 'nothing is cached')
            s.say('%d artifacts stay cached on edge0' % len(set(cached)))

        with Step('varda down: no process stays') as s:
            s.say(varda.down())
            check(not varda.processes(), 'still running: %s' % varda.processes())


def requests_answered(pod):
    """The number of inference requests that a pod has answered, from its own metrics."""
    port = pod['spec']['containers'][0]['ports'][0]['containerPort']
    text = m.DIRECT.open('http://%s:%d/metrics' % (pod['status']['podIP'], port), timeout=10).read().decode()
    return sum(float(line.rsplit(' ', 1)[1]) for line in text.splitlines() if line.startswith('nv_inference_request_success') or
               line.startswith('varda_inference_requests_total'))


if __name__ == '__main__':
    run(main)
