#!/usr/bin/env python3
"""Joint inference on this machine, narrated: a small model at the edge and a large one in the cloud
behind one URL, the results of each threshold, and a cloud that goes away and comes back.

Exits 0 only if every step held. Uses free ports and its own data directory, and leaves only
build/joint-inference.svg behind.
"""
import json, time

from narrate import Step, check, run, workplace
import chart
import joint as j
import machine as m

PASSES = 5  # passes over the test split for each line of the table
AWAY = 500  # answers examined while the cloud is away
LINES = [('EdgeOnly', None), ('CloudOnly', None), ('CrossEntropy', 0.5), ('CrossEntropy', 0.6), ('CrossEntropy', 0.7)]
PICTURE = m.ROOT / 'build/joint-inference.svg'


def main():
    with workplace('varda-demo-joint-') as work:
        story(work)


class Sender:
    """All clients of the demo. Their answers are counted, for the final comparison with the
    service's own counts."""

    def __init__(self, url, images, labels):
        self.url, self.images, self.labels, self.count = url, images, labels, 0
        self.client = j.Client(url, 'digits', images)
        self.client.prepare()

    def split(self):
        """Sends the whole test split once."""
        samples = self.client.all_once()
        self.count += len(samples)
        return samples

    def load(self):
        return m.Load(self.url, 'digits', self.images, kind=j.Client)

    def unfailing(self, load):
        """Stops a load and returns its samples; fails if a request failed."""
        samples = load.stop()
        self.count += len(samples)
        check(not m.failures(samples), '%d of %d requests failed: %s' % (len(m.failures(samples)), len(samples), m.failures(samples)[:3]))
        return samples

    def until(self, what, policy, threshold=None):
        """Sends the test split until the hard images and right answers equal the numbers computed
        in training for the policy."""
        wanted = j.expected(policy, threshold)

        def same():
            found = j.hard_and_right(self.split(), self.labels)
            if found != wanted:
                raise m.Failed('hard and right are %s, not %s' % (found, wanted))
            return True
        m.wait_until(what, same)

    def statistics(self):
        return j.statistics(self.url, 'digits')


def story(work):
    (work / 'www').mkdir()
    images, labels = j.test_split()
    files = m.FileServer(work / 'www')

    with m.Machine(work / 'data', nodes=['cloud=cloud', 'edge0=edge']) as varda:
        with Step('varda up: API server, operator and the nodes cloud and edge0') as s:
            s.say(varda.up())
            varda.nodes_ready()

        with Step('varda pack, kubectl apply: two Models, and one JointInferenceService over both') as s:
            j.deploy(varda, files, work / 'www', *LINES[-1])
            for size, alone in (('small', 'EdgeOnly'), ('big', 'CloudOnly')):
                s.say('digits-%s: archive of %d bytes; alone it is right about %d of %d images' % (
                    size, (work / 'www' / ('digits-%s.tar.gz' % size)).stat().st_size, j.expected(alone)[1], len(images)))
            status = j.ready(varda, 'digits')
            sender = Sender(status['url'], images, labels)
            sender.until('the first answers of both models', *LINES[-1])
            s.say(varda.kubectl('get', 'jointinferenceservices,inferencemodels,pods'))

        with Step('one URL, one model: an answer names its tier and the reason') as s:
            given = j.answers(sender.split())
            for a in (next(a for a in given if not a.hard), next(a for a in given if a.hard and a.label == labels[a.image])):
                s.say('image %-3d label %d  tier %-5s  hard %s%s' % (a.image, a.label, a.tier, str(a.hard).lower(), '  called %s' % ','.join(a.called) if a.called else ''))
            check({a.tier for a in given} == {'edge', 'cloud'}, 'tiers: %s' % {a.tier for a in given})
            check(all((a.tier == 'cloud') == a.hard == (a.called == ['cloud']) and a.fallback is None for a in given), 'an answer contradicts itself')

        with Step('the policy is changed while clients send: no request may fail; %d images, %d times for each line' % (len(images), PASSES)) as s:
            points = measure(s, varda, sender)
            draw(points, len(images))
            s.say('picture: %s' % PICTURE.relative_to(m.ROOT))

        with Step('the cloud node stops in mid-run: every request is answered all the same') as s:
            load = sender.load()
            j.wait_for_tier(load, 'cloud')
            stopped = time.monotonic()
            varda.freeze('cloud')
            degraded = m.wait_until('Degraded', lambda: j.condition(varda, 'digits', 'Degraded', 'True'))
            told = time.monotonic()
            away = m.wait_until('%d answers without it' % AWAY, lambda: (lambda s: s if len(s) >= AWAY else None)(load.samples(since=told)))
            s.say('Degraded %.2f s after the cloud was gone: %s: %s' % (told - stopped, degraded['reason'], degraded['message']))
            check(j.condition(varda, 'digits', 'Ready', 'True'), 'the service is not Ready while it answers')
            good = j.answers(away)
            check(good and {a.tier for a in good} == {'edge'}, 'tiers: %s' % {a.tier for a in good})
            check(all(a.fallback and a.fallback.startswith('cloud: ') for a in good if a.hard), 'a hard answer does not say why the cloud was not called')
            check(not any(a.fallback for a in good if not a.hard), 'an answer that was not hard has a fallback')
            s.say('%d answers meanwhile, all of the edge; %d hard ones say %s; p99 %.2f ms' % (
                len(good), sum(a.hard for a in good), ', '.join(sorted({'"%s"' % a.fallback for a in good if a.fallback})), 1e3 * m.percentile(away, 99)))

        with Step('the cloud node returns: hard images go up again') as s:
            back = time.monotonic()
            varda.thaw('cloud')
            j.wait_for_tier(load, 'cloud')
            answered = time.monotonic()
            m.wait_until('not Degraded', lambda: j.condition(varda, 'digits', 'Degraded', 'False'))
            s.say('first answer of the cloud after %.2f s, Degraded=False after %.2f s' % (answered - back, time.monotonic() - back))
            samples = sender.unfailing(load)
            s.say('%d requests since before it stopped, 0 failed' % len(samples))
            sender.until('the figures of before', *LINES[-1])

        with Step('status: as many requests as were sent') as s:
            m.wait_until('inferenceNumber %d' % sender.count, lambda: varda.get('jointinferenceservice', 'digits')['status']['inferenceNumber'] == sender.count)
            counters = sender.statistics()['counters']
            check(counters['inferences'] == sender.count, 'sent %d, the server counts %d' % (sender.count, counters['inferences']))
            s.say(varda.kubectl('get', 'jointinferenceservices'))

        with Step('kubectl delete: pods, Service and InferenceModel of the service go') as s:
            varda.kubectl('delete', 'jointinferenceservice', 'digits')
            m.wait_until('pods gone', lambda: not varda.pods())
            m.wait_until('the rest gone', lambda: not varda.get('inferencemodels,deployments')['items'])

        with Step('varda down: no process stays') as s:
            s.say(varda.down())
            check(not varda.processes(), 'still running: %s' % varda.processes())


def measure(s, varda, sender):
    """Prints the table; returns [(label, share, accuracy)]."""
    total = PASSES * len(sender.images)
    s.say('%-20s %6s %9s %7s %9s %10s %9s %9s' % ('policy', 'right', 'accuracy', 'sent', 'share', 'bytes up', 'p50', 'p99'))
    points, during = [], 0
    for policy, threshold in LINES:
        load = sender.load()
        mining = json.dumps({'spec': {'edgeWorker': {'hardExampleMining': j.mining(policy, threshold)}}})
        varda.kubectl('patch', 'jointinferenceservice', 'digits', '--type=merge', '-p', mining)
        sender.until('%s in force' % policy, policy, threshold)
        during += len(sender.unfailing(load))

        before = sender.statistics()['counters']
        samples = [x for _ in range(PASSES) for x in sender.split()]
        after = sender.statistics()['counters']
        hard, right = j.hard_and_right(samples, sender.labels)
        called, up = (after['called'].get('cloud', 0) - before['called'].get('cloud', 0), after['bytesSent'] - before['bytesSent'])
        name = policy if threshold is None else '%s %.1f' % (policy, threshold)
        s.say('%-20s %6d %9.4f %7d %8.1f%% %10d %6.2f ms %6.2f ms' % (
            name, right // PASSES, right / total, called // PASSES, 100 * called / total, up // PASSES, 1e3 * m.percentile(samples, 50), 1e3 * m.percentile(samples, 99)))
        check((hard, right) == tuple(PASSES * x for x in j.expected(policy, threshold)), '%s: hard and right are %d, %d' % (name, hard, right))
        check(called == hard, '%s: %d were hard, %d called the cloud' % (name, hard, called))
        check((up > 0) == (called > 0), '%s: %d bytes were sent for %d requests' % (name, up, called))
        points.append((threshold and '%.1f' % threshold or {'EdgeOnly': 'edge only', 'CloudOnly': 'cloud only'}[policy], called / total, right / total))
    s.say('%d more requests while the policy changed %d times, 0 failed' % (during, len(LINES)))
    return points


def draw(points, count):
    """Draws the measured points over the lines computed in training."""
    report = json.loads((m.DIGITS / 'report.json').read_text())['joint']
    ends = [(hard / count, right / count) for hard, right in (j.expected('EdgeOnly'), j.expected('CloudOnly'))]
    lines = [(policy + ', computed in training', sorted(ends + [(x['hard'] / count, x['correct'] / count) for x in report if x['policy'] == policy]))
             for policy in ('CrossEntropy', 'Margin')]
    PICTURE.parent.mkdir(exist_ok=True)
    chart.curve(PICTURE, 'Joint inference on digits', '%d held-out images; a model of 1 KiB on the edge node, one of 68 KiB in the cloud' % count, lines, points)


if __name__ == '__main__':
    run(main)
