"""User workers on both sides of a JointInferenceService, run by the process driver.

Their templates and the contract decide the environment, the mounts, and the reaction to changes.
"""
import hashlib, json, pathlib, shutil, sys, tarfile, tempfile, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

EXAMPLES = m.ROOT / 'examples/workers/python'
IMAGES = {'edge-worker:1': EXAMPLES / 'edge_worker.py', 'cloud-worker:1': EXAMPLES / 'cloud_worker.py'}
BRIGHT, BETWEEN = bytes([250] * 64), bytes([130] * 64)  # the second image is hard

# A second container beside the worker. It writes its environment and mounts once, and stays. It has
# no port and follows nothing.
BESIDE = r'''
import json, os, pathlib, time
def writable(path):
    try:
        (pathlib.Path(path) / 'probe').touch()
        return True
    except OSError:
        return False
mounts = {path: [sorted(os.listdir(path)), writable(path)] for path in ['/models/little', '/var/run/varda/worker', '/var/run/varda/agent', '/scratch']}
pathlib.Path('/scratch/given.json').write_text(json.dumps({'environment': dict(os.environ), 'mounts': mounts}))
while True:
    time.sleep(3600)
'''

SERVICE = '''
apiVersion: sedna.io/v1alpha1
kind: JointInferenceService
metadata: {name: bright, namespace: default}
spec:
  edgeWorker:
    model: {name: little}
    nodeName: edge0
    hardExampleMining: {name: CrossEntropy, parameters: [{key: threshold_cross_entropy, value: "0.5"}]}
    workerSpec:
      containers:
      - name: worker
        image: edge-worker:1
        ports: [{containerPort: EDGE_PORT}]
        env: [{name: LISTEN_PORT, value: "EDGE_PORT"}, {name: MODEL_NAME, value: mine}, {name: WHERE, value: "$(MODEL_PATH)/here"}]
        readinessProbe: {httpGet: {path: /healthz, port: EDGE_PORT}, periodSeconds: 1}
      - {name: beside, image: "beside:1", volumeMounts: [{name: scratch, mountPath: /scratch}]}
      volumes: [{name: scratch, hostPath: {path: SCRATCH}}]
  cloudWorker:
    model: {name: big}
    nodeName: cloud
    workerSpec:
      containers: [{image: "cloud-worker:1", ports: [{containerPort: CLOUD_PORT}]}]
'''


class WorkerPods(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.varda = m.Machine(self.work / 'machine')
        self.addCleanup(self.clean_up)
        (self.work / 'scratch').mkdir()
        (self.work / 'beside.py').write_text(BESIDE)
        self.files = m.FileServer(self.work)
        images = {**IMAGES, 'beside:1': self.work / 'beside.py'}
        arguments = []
        for name, program in images.items():
            arguments += ['--image', '%s=%s %s' % (name, sys.executable, program)]
        self.varda.up(*arguments)

    def clean_up(self):
        if not self._outcome.success:
            self.varda.show_logs()
        self.varda.close()
        self.files.stop()
        shutil.rmtree(self.work, ignore_errors=True)

    # ---- objects
    def model(self, name, version, middle):
        """A Model with an archive that contains the border between dark and bright."""
        archive = self.work / ('%s-%s.tar.gz' % (name, version))
        (self.work / 'model.json').write_text(json.dumps({'labels': ['dark', 'bright'], 'middle': middle}))
        with tarfile.open(archive, 'w:gz') as tar:
            tar.add(self.work / 'model.json', arcname='model.json')
        spec = {'url': self.files.url(archive.name), 'sha256': hashlib.sha256(archive.read_bytes()).hexdigest(), 'format': 'json', 'version': version}
        self.apply(json.dumps({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': name, 'namespace': 'default'}, 'spec': spec}))

    def apply(self, text):
        self.varda.varda('apply', '-f', '-', input=text)

    def patch(self, change):
        self.varda.kubectl('patch', 'jis', 'bright', '--type=merge', '-p', json.dumps({'spec': change}))

    def pod(self):
        return self.varda.get('pod', 'bright-edge-adfa01a70198')

    def edge_url(self):
        return 'http://%s:%d' % (self.pod()['status']['podIP'], self.port)

    def status(self):
        with m.DIRECT.open(self.edge_url() + '/status', timeout=m.seconds(60)) as reply:
            return json.load(reply)

    def infer(self, image):
        request = urllib.request.Request(self.edge_url() + '/infer', data=image)
        with m.DIRECT.open(request, timeout=m.seconds(60)) as reply:
            return json.load(reply)

    def ready(self):
        return any(c['type'] == 'Ready' and c['status'] == 'True' for c in self.pod()['status'].get('conditions', []))

    def comes_up(self, but=None):
        """The uid of the edge pod once it is Ready; a pod with the uid `but` does not count."""
        def probe():
            pod = self.pod()
            return pod['metadata']['uid'] != but and self.ready() and pod['metadata']['uid']
        return m.wait_until('the edge worker is Ready', probe)

    def follows(self, **expected):
        m.wait_until('the worker works with %s' % expected, lambda: {k: v for k, v in self.status().items() if k in expected} == expected)

    def test_workers_get_template_and_assignment_and_follow_changes(self):
        # The service comes first: the Models that its pods need do not exist yet.
        self.port = m.free_port()
        self.apply(SERVICE.replace('SCRATCH', str(self.work / 'scratch')).replace('EDGE_PORT', str(self.port)).replace('CLOUD_PORT', str(m.free_port())))
        self.model('little', '1', 128)
        self.model('big', '7', 128)
        first = self.comes_up()
        cloud = m.wait_until('the cloud worker is asked', lambda: self.infer(BETWEEN).get('tier') == 'cloud' and self.infer(BETWEEN))
        self.assertEqual((cloud['version'], cloud['hard']), ('7', True))
        easy = self.infer(BRIGHT)
        self.assertEqual((easy['label'], easy['tier'], easy['hard'], easy['version']), ('bright', 'edge', False, '1'))

        with self.subTest('what the pod was given'):
            given = m.wait_until('the second container', lambda: json.loads((self.work / 'scratch/given.json').read_text()))
            says = given['environment']
            expected = {'NAMESPACE': 'default', 'JOB_KIND': 'JointInferenceService', 'SERVICE_NAME': 'bright', 'WORKER_NAME': 'bright-edge-adfa01a70198', 'WORKER_ROLE': 'edge',
                        'NODE_NAME': 'edge0', 'MODEL_NAME': 'little', 'MODEL_VERSION': '1', 'MODEL_PATH': '/models/little/1', 'HEM_NAME': 'CrossEntropy',
                        'HEM_PARAMETERS': '[{"key":"threshold_cross_entropy","value":"0.5"}]', 'MODEL_URL': self.files.url('little-1.tar.gz'),
                        'POD_IP': self.pod()['status']['podIP'], 'VARDA_WORKER_SOCKET': '/var/run/varda/agent/worker.sock',
                        'VARDA_WORKER_TOKEN_FILE': '/var/run/varda/worker/token'}
            self.assertEqual({name: says.get(name) for name in expected}, expected)
            self.assertEqual(says['CLOUD_URL'], 'http://%s:%s' % (says['BIG_MODEL_IP'], says['BIG_MODEL_PORT']))
            self.assertEqual(given['mounts']['/var/run/varda/worker'], [['token', 'work'], False])
            files, writable = given['mounts']['/var/run/varda/agent']
            self.assertTrue('worker.sock' in files and not writable, files)
            files, writable = given['mounts']['/models/little']
            self.assertTrue('1' in files and not writable, files)
            self.assertTrue(given['mounts']['/scratch'][1])
            users = {e['name']: e.get('value') for e in self.pod()['spec']['containers'][0]['env']}
            self.assertEqual((users['MODEL_NAME'], users['WHERE']), ('mine', '$(MODEL_PATH)/here'))

        def reported():
            said, = self.varda.get('edgenode', 'edge0')['status']['workers']
            if said['report']['metrics'].get('hardExampleNumber', 0) < 2:
                raise m.Failed(json.dumps(said))
            return said['key'] == 'default/bright-edge-adfa01a70198'
        m.wait_until('the node reports the counts of the worker', reported)

        # A worker that follows its assignment continues with another version and another policy.
        self.model('little', '2', 200)
        self.follows(version='2', path='/models/little/2')
        self.patch({'edgeWorker': {'hardExampleMining': {'name': 'NeverCloud', 'parameters': None}}})
        self.follows(policy='NeverCloud')
        self.assertEqual(self.infer(BETWEEN)['tier'], 'edge')
        self.assertEqual(self.pod()['metadata']['uid'], first, 'the pod was not replaced')

        # Another template makes another pod, with the current assignment.
        containers = self.varda.get('jis', 'bright')['spec']['edgeWorker']['workerSpec']['containers']
        containers[0]['env'].append({'name': 'CLOUD_TIMEOUT_S', 'value': '9'})
        self.patch({'edgeWorker': {'workerSpec': {'containers': containers}}})
        second = self.comes_up(but=first)
        self.follows(version='2', policy='NeverCloud')
        # A deleted pod is replaced too.
        self.varda.kubectl('delete', 'pod', 'bright-edge-adfa01a70198')
        self.comes_up(but=second)

        self.varda.kubectl('delete', 'jis', 'bright')

        def gone():
            spec = self.varda.get('edgenode', 'edge0')['spec']
            left = self.varda.get('pods', '-l', 'edgeai.io/job=bright')['items']
            return not spec.get('workers') and not spec.get('models') and not left
        m.wait_until('nothing of it is left', gone)
        m.wait_until('its token is gone', lambda: not (self.work / 'machine/nodes/edge0/data/workers/default/bright-edge-adfa01a70198').exists())


if __name__ == '__main__':
    unittest.main()
