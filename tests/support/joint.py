"""Joint inference from outside: clients that record the tier of each answer, and two model servers
joined by a joint.json.

The test split of examples/digits comes with the results computed in training (report.json), so
that a run is compared with exact numbers.
"""
import collections, http.client, json, pathlib, shutil, time, urllib.parse

import machine as m

Answer = collections.namedtuple('Answer', 'image label tier hard called fallback version')


def test_split():
    """(images, labels) that no model was trained with."""
    shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
    size = shape[1] * shape[2]
    return [pixels[i * size:(i + 1) * size] for i in range(shape[0])], list(m.read_idx(m.DIGITS / 'test-labels.idx1-ubyte')[1])


def expected(policy, threshold=None):
    """(hard, right) of the test split, as computed in training."""
    report = json.loads((m.DIGITS / 'report.json').read_text())
    alone = {x['version']: x['correct'] for x in report['models']}
    if policy == 'EdgeOnly':
        return 0, alone['small']
    if policy == 'CloudOnly':
        return report['dataset']['test'], alone['big']
    return next((x['hard'], x['correct']) for x in report['joint'] if (x['policy'], x['threshold']) == (policy, threshold))


KEYS = {'CrossEntropy': 'threshold_cross_entropy', 'Margin': 'threshold_margin'}


def mining(policy, threshold=None):
    """`hardExampleMining` of a service."""
    return {'name': policy, 'parameters': [] if threshold is None else [{'key': KEYS[policy], 'value': str(threshold)}]}


def service(name, edge_model, cloud_model, policy, threshold=None, node='edge0', **more):
    """A JointInferenceService of two models without workers; `more` adds to its spec."""
    return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'JointInferenceService', 'metadata': {'name': name},
            'spec': dict({'edgeWorker': {'model': {'name': edge_model}, 'nodeName': node, 'hardExampleMining': mining(policy, threshold)},
                          'cloudWorker': {'model': {'name': cloud_model}}}, **more)}


def model(name, url, sha256):
    return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': name}, 'spec': {'url': url, 'sha256': sha256, 'format': 'onnx'}}


class Client(m.Client):
    """Records for each request the tier and the answer."""

    def read(self, answer):
        scores = next(o['data'] for o in answer['outputs'] if o['name'] == 'probabilities')
        told = answer.get('parameters', {})
        return Answer(self.at % len(self.bodies), max(range(len(scores)), key=scores.__getitem__), told.get('tier'), told.get('hard'),
                      [t for t in told.get('called', '').split(',') if t], told.get('fallback'), told.get('tier_version'))

    def all_once(self):
        """Sends every image once; returns the samples. Failed if a request got no answer."""
        begin = len(self.samples)
        for _ in self.bodies:
            self.one()
        samples = self.samples[begin:]
        if m.failures(samples):
            raise m.Failed('not answered: %s' % m.failures(samples)[:3])
        return samples


def answers(samples):
    return [s[3] for s in samples if not s[2]]


def hard_and_right(samples, labels):
    """(hard, right) in the form of expected()."""
    given = answers(samples)
    return sum(a.hard is True for a in given), sum(a.label == labels[a.image] for a in given)


def get(url, path, timeout=m.seconds(60)):
    c = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=timeout)
    try:
        c.request('GET', path)
        r = c.getresponse()
        body = r.read()
        if r.status != 200:
            raise m.Failed('GET %s: HTTP %d %s' % (path, r.status, body[:300]))
        return json.loads(body)
    finally:
        c.close()


def statistics(url, name):
    """The statistics of all tiers, from the server of the first tier."""
    return get(url, '/v2/models/%s/joint' % name)


def decreased(before, after, path=''):
    """Names of the counters that decreased from `before` to `after`, at any depth."""
    if isinstance(before, dict):
        return [x for k, v in before.items() for x in decreased(v, after.get(k, 0) if isinstance(after, dict) else 0, path + '/' + k)]
    return [path] if isinstance(before, (int, float)) and (not isinstance(after, (int, float)) or after < before) else []


class Server:
    """A varda-serve with one model of examples/digits, called `name`. Each start uses a new port,
    because another program may have taken the former one."""

    def __init__(self, work, name, version, *flags):
        self.work, self.name, self.flags, self.enter = pathlib.Path(work), name, flags, ()
        self.model, self.address, self.process = self.work / 'models' / name, None, None
        shutil.copytree(m.DIGITS / 'models' / version, self.model / '1')

    def write(self, file, text):
        scratch = self.model / ('.' + file)
        scratch.write_text(text)
        scratch.rename(self.model / file)

    def start(self):
        log = self.work / 'log'
        self.process, self.address, _ = m.start_serve(log, '--model-repository', self.model.parent, '--http', '127.0.0.1:0', *self.flags,
                                                       enter=self.enter)
        m.wait_until('%s is ready' % self.name, lambda: m.running(self.process, log) and
                     http_status(self.url, '/v2/models/%s/versions/1/ready' % self.name) == 200)

    @property
    def url(self):
        return 'http://' + self.address

    @property
    def port(self):
        return int(self.address.rsplit(':', 1)[1])

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def http_status(url, path):
    c = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=m.seconds(60))
    try:
        c.request('GET', path)
        return c.getresponse().status
    finally:
        c.close()


def joint_file(cloud_url, policy, threshold=None, deadline_ms=int(m.seconds(2000)), cloud_deadline_ms=int(m.seconds(1000)), cloud_model='digits-big'):
    """The file beside the model of the first tier."""
    parameters = {} if threshold is None else {KEYS[policy]: str(threshold)}
    return json.dumps({'version': 1, 'service': 'default/digits', 'deadlineMs': deadline_ms, 'inFlightMax': 64, 'tiers': [
        {'name': 'edge', 'policy': {'name': policy, 'parameters': parameters}},
        {'name': 'cloud', 'url': cloud_url, 'model': cloud_model, 'deadlineMs': cloud_deadline_ms}]})


# ---- the JointInferenceService of a Machine
def deploy(varda, files, www, policy, threshold=None):
    """Packs both models for the file server `files`, and applies their Models and the service
    `digits`."""
    for size in ('small', 'big'):
        archive = www / ('digits-%s.tar.gz' % size)
        sha = m.pack(varda, size, archive)
        varda.kubectl('apply', '-f', '-', input=json.dumps(model('digits-' + size, files.url(archive.name), sha)))
    varda.kubectl('apply', '-f', '-', input=json.dumps(service('digits', 'digits-small', 'digits-big', policy, threshold)))


def condition(varda, name, kind, value):
    """The condition, if it has that value."""
    for c in varda.get('jointinferenceservice', name).get('status', {}).get('conditions', []):
        if (c['type'], c['status']) == (kind, value):
            return c
    return None


def ready(varda, name):
    """Waits until the service has observed its spec and both sides answer; returns its status."""
    def probe():
        s = varda.get('jointinferenceservice', name)
        status = s.get('status', {})
        told = {c['type']: c['status'] for c in status.get('conditions', [])}
        fresh = status.get('observedGeneration') == s['metadata']['generation']
        return status if fresh and status.get('url') and all(told.get(k) == 'True' for k in ('Ready', 'EdgeReady', 'CloudReady')) else None
    return m.wait_until('JointInferenceService %s Ready, cloud and edge' % name, probe)


def knows_its_tiers(url, model):
    """Waits until the server reaches every tier. The addresses of the other tiers arrive there
    after the status is Ready."""
    def probe():
        with m.DIRECT.open('%s/v2/models/%s/joint' % (url, model), timeout=m.seconds(60)) as response:
            return 'degraded' not in json.loads(response.read())
    m.wait_until('the server of %s asks every tier' % url, probe)


def wait_for_tier(load, tier):
    """Waits until the tier has answered a request sent from now on."""
    since = time.monotonic()
    m.wait_until('an answer of ' + tier, lambda: any(a.tier == tier for a in answers(load.samples(since=since))))
