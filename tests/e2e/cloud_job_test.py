"""TrainingModels without a node: the operator makes a Job, and the test plays the Job controller and
the kubelet. It runs the containers of the Job as processes, with their files and variables."""
import base64, hashlib, json, os, pathlib, re, shutil, signal, subprocess, sys, tarfile, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

TRAIN = str(m.BIN / 'varda-train')
PROGRAMS = {'varda:test': m.VARDA, 'varda-train:test': TRAIN}
TRAINER = {'task': 'classification', 'epochs': 5, 'batchSize': 32, 'seed': 1, 'optimizer': {'name': 'sgd', 'learningRate': 0.2, 'momentum': 0.9}}


class Pod:
    """A pod of a Job: its volumes are directories, its containers processes."""

    def __init__(self, test, template, directory, claims):
        self.test, self.spec, self.directory, self.claims = test, template['spec'], directory, claims
        self.processes = {}
        for volume in self.spec['volumes']:
            path = directory / volume['name']
            if 'persistentVolumeClaim' in volume:
                path.symlink_to(claims[volume['persistentVolumeClaim']['claimName']])
                continue
            path.mkdir(parents=True)
            if 'secret' in volume:
                data = test.cluster.get('secret', volume['secret']['secretName'])['data']
                for name, value in data.items():
                    (path / name).write_bytes(base64.b64decode(value))
                    (path / name).chmod(0o600)
            else:
                test.assertIn('emptyDir', volume, 'the pod needs nothing of a machine')

    def real(self, mount):
        path = self.directory / mount['name']
        if 'subPath' in mount:
            path = path / mount['subPath']
            self.test.assertTrue(path.exists(), '%s exists before the container starts' % path)
        return str(path)

    def start(self, container):
        mounts = {mount['mountPath']: self.real(mount) for mount in container.get('volumeMounts', [])}
        paths = re.compile('|'.join(re.escape(path) for path in sorted(mounts, key=len, reverse=True)))
        translated = lambda text: paths.sub(lambda found: mounts[found[0]], text)
        environment = {'PATH': os.environ['PATH'], **{e['name']: translated(e.get('value', '10.1.2.3')) for e in container.get('env', [])}}
        command = [PROGRAMS[container['image']], *map(translated, container.get('args', []))]
        with open(self.log(container['name']), 'ab') as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.processes[container['name']] = process
        self.test.addCleanup(self.end, process)
        return process

    def log(self, container):
        return self.directory / (container + '.log')

    def end(self, process, how=signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(how)
        process.wait()

    def install(self):
        for container in self.spec['initContainers']:
            code = self.start(container).wait(timeout=m.seconds(120))
            self.test.assertEqual(code, 0, self.log(container['name']).read_text()[-3000:])

    def run(self):
        self.install()
        for container in self.spec['containers']:
            self.start(container)


class CloudJobs(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, True)
        self.pods, self.logs = [], []
        self.cluster = m.Machine(self.work / 'api')
        self.cluster.dir.mkdir()
        self.addCleanup(self.show_logs)
        self.start('api', 'apiserver', '--data-dir', self.cluster.dir, '--listen', '127.0.0.1:0')
        m.wait_until('the API server', lambda: self.cluster.get('namespaces'))
        self.cluster.kubectl('apply', *(a for crd in sorted(m.ROOT.glob('deploy/crds/*_*.yaml')) for a in ('-f', str(crd))))
        registry_log = self.start('registry', 'registry', '--data-dir', self.work / 'registry', '--listen', '127.0.0.1:0', '--admin', 'unix:' + str(self.work / 'r.sock'))
        self.registry = 'http://' + m.wait_until('the registry', lambda: re.search(r'registry at http://(\S+)', registry_log.read_text())[1])

    def start_gateway(self):
        log = self.start('gateway', 'gateway', '--kubeconfig', self.cluster.kubeconfig, '--admin', 'unix:' + str(self.work / 'g.sock'), '--listen', '127.0.0.1:0',
                         '--registry', self.registry)
        return 'https://' + m.wait_until('the gateway', lambda: re.search(r'gateway=(127\.0\.0\.1:\d+)', log.read_text())[1])

    def start_operator(self, gateway='https://127.0.0.1:1', *more):
        self.start('operator', 'operator', *m.LOOPBACK, '--kubeconfig', self.cluster.kubeconfig, '--admin', 'unix:' + str(self.work / 'o.sock'), '--no-leader-elect',
                   '--registry', self.registry, '--fetch-image', 'varda:test', '--train-image', 'varda-train:test', '--job-gateway', gateway, *more)

    def start(self, name, *command):
        log = self.work / (name + '.log')
        environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
        with open(log, 'ab') as out:
            process = subprocess.Popen([m.VARDA, *map(str, command)], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        self.logs.append(log)
        return log

    def show_logs(self):
        if self._outcome.success:
            return
        for log in self.logs + [log for pod in self.pods for log in pod.directory.glob('*.log')]:
            print('--- ' + log.name, *log.read_text(errors='replace').splitlines()[-20:], sep='\n', file=sys.stderr)

    # ---- the user
    def apply(self, *objects):
        self.cluster.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def serve_inputs(self):
        """The model and the data behind a file server."""
        served = self.work / 'served'
        served.mkdir()
        files = m.FileServer(served)
        self.addCleanup(files.stop)
        sha256 = m.pack(self.cluster, '3', served / 'digits-3.tar.gz')
        with tarfile.open(served / 'data.tar.gz', 'w:gz') as archive:
            for file in m.DIGITS.glob('*-ubyte'):
                archive.add(file, file.name)
        data = hashlib.sha256((served / 'data.tar.gz').read_bytes()).hexdigest()
        self.apply({'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': 'digits'},
                    'spec': {'format': 'onnx', 'version': '3', 'modelUrl': files.url('digits-3.tar.gz'), 'sha256': sha256}},
                   {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': 'train'},
                    'spec': {'dataUrl': files.url('data.tar.gz'), 'sha256': data, 'path': 'train-images.idx3-ubyte', 'format': 'idx'}},
                   {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': 'test'},
                    'spec': {'dataUrl': 'pvc://digits/test-images.idx3-ubyte', 'format': 'idx'}})

    def train(self, **more):
        self.apply({'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'TrainingModel', 'metadata': {'name': 'digits-5'},
                    'spec': {'modelName': 'digits', 'deployToLayer': 'cloud', 'initialModel': {'name': 'digits'}, 'dataset': {'name': 'train'},
                             'evaluation': {'dataset': {'name': 'test'}}, 'trainer': TRAINER, 'output': {'version': '5'}, **more}})

    def status(self):
        return self.cluster.get('trainingmodel', 'digits-5').get('status', {})

    def until(self, what, condition):
        try:
            return m.wait_until(what, lambda: condition(self.status()) and self.status())
        except m.Failed as e:
            raise m.Failed('%s; status %s' % (e, json.dumps(self.status()))) from None

    def running(self):
        return next((c for c in self.status().get('conditions', []) if c['type'] == 'Running'), {})

    # ---- the cluster
    def job(self):
        return m.wait_until('the Job: %s' % self.running(), lambda: self.cluster.get('job', 'digits-5'))

    def objects(self, kind, *where):
        return json.loads(self.cluster.kubectl('get', kind, *where, '-o', 'json'))['items']

    def pod_of(self, job, number):
        """A pod of the Job, as the Job controller makes it."""
        template, name = job['spec']['template'], 'digits-5-%d' % number
        self.apply({'apiVersion': 'v1', 'kind': 'Pod', 'spec': template['spec'], 'metadata': {
            **template['metadata'], 'name': name, 'ownerReferences': [
                {'apiVersion': 'batch/v1', 'kind': 'Job', 'name': job['metadata']['name'], 'uid': job['metadata']['uid'], 'controller': True}]}})
        pod = Pod(self, template, self.work / name, {'digits': m.DIGITS})
        self.pods.append(pod)
        return pod

    def report_pod(self, number, phase, **containers):
        """The kubelet's report: name of a container -> its state."""
        path = '/api/v1/namespaces/default/pods/digits-5-%d' % number

        def written():
            live = json.loads(self.cluster.kubectl('get', '--raw', path))
            live['status'] = {'phase': phase, 'containerStatuses': [
                {'name': name.replace('_', '-'), 'image': 'x', 'imageID': '', 'ready': 'running' in state, 'restartCount': 0, 'state': state}
                for name, state in containers.items()]}
            return self.cluster.kubectl('replace', '--raw', path + '/status', '-f', '-', input=json.dumps(live), check=False).returncode == 0
        m.wait_until('the status of the pod', written)

    def test_job_trains_and_the_model_gets_the_new_version(self):
        self.start_operator(self.start_gateway())
        self.serve_inputs()
        self.train()
        job = self.job()
        self.assertEqual((job['spec']['backoffLimit'], job['spec'].get('suspend', False)), (4, False))
        pod = self.pod_of(job, 1)
        pod.run()
        self.report_pod(1, 'Running', trainer={'running': {}}, varda_agent={'running': {}})
        status = self.until('the end', lambda s: s.get('phase') in ('Complete', 'Failed'))
        self.assertEqual(status['phase'], 'Complete', status)
        self.assertEqual(pod.processes['trainer'].wait(timeout=m.seconds(60)), 0)
        self.assertEqual(pod.processes['varda-agent'].wait(timeout=m.seconds(60)), 0, 'the agent ends after the run')
        model = self.cluster.get('model', 'digits')
        self.assertEqual((model['spec']['version'], model['spec']['sourceJob'], model['spec']['sha256']), ('5', 'TrainingModel/digits-5', status['produced']['sha256']))
        self.assertGreater(float(next(x['value'] for x in model['status']['metrics'] if x['key'] == 'accuracy')), 0.9)
        with m.DIRECT.open(model['spec']['modelUrl'], timeout=m.seconds(60)) as answer:
            self.assertEqual(hashlib.sha256(answer.read()).hexdigest(), model['spec']['sha256'])
        self.assertFalse(self.job()['spec'].get('suspend'), 'the Job completes')
        # The end leaves no node, and the deletion leaves nothing.
        m.wait_until('the EdgeNode is gone', lambda: not self.objects('edgenodes'))
        self.assertFalse([s for s in self.objects('secrets', '-n', 'varda-system') if 'job' in s['metadata']['name']])
        self.cluster.kubectl('delete', 'trainingmodel', 'digits-5')
        m.wait_until('nothing is left', lambda: not self.objects('jobs') and not self.objects('secrets') and not self.objects('pods'))

    def test_second_pod_enrols_again_and_a_deleted_run_leaves_nothing(self):
        gateway = self.start_gateway()
        self.start_operator(gateway)
        self.serve_inputs()
        self.train(trainer={**TRAINER, 'epochs': 100_000})
        job = self.job()
        first = self.pod_of(job, 1)
        first.run()
        self.report_pod(1, 'Running', trainer={'running': {}}, varda_agent={'running': {}})
        self.until('progress', lambda s: s.get('progress', {}).get('epoch', 0) > 0)
        for process in first.processes.values():  # the machine is lost
            first.end(process)
        self.report_pod(1, 'Failed', trainer={'terminated': {'exitCode': 137}}, varda_agent={'terminated': {'exitCode': 137}})
        second = self.pod_of(job, 2)
        second.run()
        self.report_pod(2, 'Running', trainer={'running': {}}, varda_agent={'running': {}})
        status = self.until('the second attempt', lambda s: s.get('attempts') == 2 and s.get('pod') == 'digits-5-2')
        self.assertEqual((status['failed'], status['phase']), (1, 'Training'), status)
        self.cluster.kubectl('delete', 'trainingmodel', 'digits-5')
        self.assertEqual(second.processes['varda-agent'].wait(timeout=m.seconds(60)), 0, 'the agent ends with the run')
        m.wait_until('nothing is left', lambda: not self.objects('edgenodes') and not self.objects('jobs') and not self.objects('secrets'))
        # The certificate outlives the run, and brings no EdgeNode back.
        identity = second.directory / 'varda-node/identity'
        body = {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'EdgeNode', 'metadata': {'name': status['node']}, 'spec': {}}
        answer = subprocess.run(['curl', '-sS', '-k', '--noproxy', '*', '--cert', identity / 'cert.pem', '--key', identity / 'key.pem', '-H', 'Content-Type: application/json',
                                 '-d', json.dumps(body), gateway + '/apis/edgeai.io/v1alpha1/edgenodes'], capture_output=True, text=True).stdout
        self.assertEqual(json.loads(answer)['code'], 403, answer)
        self.assertFalse(self.objects('edgenodes'))

    def test_cluster_without_a_gateway_is_a_reason(self):
        self.start_operator()
        self.serve_inputs()
        self.train()
        m.wait_until('the reason', lambda: self.running().get('reason') == 'GatewayMissing')
        self.assertFalse(self.objects('jobs'))
        self.start_gateway()
        self.job()


if __name__ == '__main__':
    unittest.main()
