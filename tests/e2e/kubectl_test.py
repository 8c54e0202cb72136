"""Debian's kubectl (and newer ones where they are installed) against `varda up`, verb by verb; then the CLI's own verbs."""
import glob, json, os, pathlib, shutil, subprocess, sys, tempfile, threading, time, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

POD = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'talker', 'labels': {'app': 'talker'}},
       'spec': {'nodeSelector': {'kubernetes.io/hostname': 'cloud'}, 'terminationGracePeriodSeconds': 1, 'containers': [
           {'name': 'main', 'image': 'shell', 'args': ['-c', 'i=0; while true; do echo line $i; i=$((i+1)); sleep 0.2; done']}]}}
CONFIG = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'settings', 'labels': {'tier': 'a'}}, 'data': {'k': 'v'}}


def newer_kubectls():
    """Real kubectl binaries of other versions on this machine."""
    found = {}
    for path in sorted(glob.glob('/usr/lib/google-cloud-sdk/bin/kubectl.1.*') + glob.glob('/usr/local/bin/kubectl*') + glob.glob('/usr/bin/kubectl')):
        try:
            text = subprocess.run([path, 'version', '--client', '-o', 'json'], capture_output=True, text=True, timeout=120).stdout
            found.setdefault(json.loads(text)['clientVersion']['gitVersion'], path)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError):
            pass
    return found


class Verbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-kubectl-'))
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.varda.up('--image', 'shell=/bin/sh')

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        shutil.rmtree(cls.work, ignore_errors=True)

    def tearDown(self):
        self.varda.kubectl('delete', 'configmaps,pods,deployments', '--all', check=False)

    def all_verbs(self, kubectl):
        run = lambda *a, **k: self.varda.run([kubectl, '--cache-dir', str(self.work / 'cache'), *a], **k)  # noqa: E731
        self.assertIn('Server Version', run('version', check=False).stdout)
        self.assertIn('inferencemodels', run('api-resources'))
        run('create', '-f', '-', input=json.dumps(CONFIG))
        self.assertIn('AlreadyExists', run('create', '-f', '-', input=json.dumps(CONFIG), check=False).stderr)
        self.assertIn('configmap/settings configured', run('apply', '-f', '-', input=json.dumps(dict(CONFIG, data={'k': 'w'}))))
        self.assertIn('unchanged', run('apply', '-f', '-', input=json.dumps(dict(CONFIG, data={'k': 'w'}))))
        self.assertEqual(run('get', 'configmap', 'settings', '-o', 'jsonpath={.data.k}'), 'w')
        self.assertIn('settings', run('get', 'configmaps', '-l', 'tier=a'))
        self.assertIn('No resources found', run('get', 'configmaps', '-l', 'tier=b', check=False).stderr)
        for form in ('wide', 'yaml', 'json', 'name', 'custom-columns=N:.metadata.name', 'go-template={{.metadata.name}}'):
            self.assertIn('settings', run('get', 'configmap', 'settings', '-o', form))
        run('label', 'configmap', 'settings', 'tier=b', '--overwrite')
        run('annotate', 'configmap', 'settings', 'note=x')
        run('patch', 'configmap', 'settings', '--type=json', '-p', '[{"op":"add","path":"/data/z","value":"1"}]')
        run('patch', 'configmap', 'settings', '--type=merge', '-p', '{"data":{"k":null}}')
        got = json.loads(run('get', 'configmap', 'settings', '-o', 'json'))
        self.assertEqual((got['data'], got['metadata']['labels'], got['metadata']['annotations']['note']), ({'z': '1'}, {'tier': 'b'}, 'x'))
        self.assertIn('settings', run('describe', 'configmap', 'settings'))

        run('apply', '-f', '-', input=json.dumps(POD))
        run('wait', '--for=condition=Ready', 'pod/talker', '--timeout=180s')
        self.assertIn('Running', run('get', 'pods', '-o', 'wide'))
        self.assertIn('talker', run('describe', 'pod', 'talker'))
        m.wait_until('log lines', lambda: 'line 3' in run('logs', 'talker'))
        follow = subprocess.Popen([kubectl, 'logs', '-f', '--tail=1', 'talker'], stdout=subprocess.PIPE, text=True,
                                  env=dict(os.environ, KUBECONFIG=self.varda.kubeconfig, HOME=str(self.work)))
        lines = [follow.stdout.readline() for _ in range(4)]
        follow.kill()
        follow.wait()
        follow.stdout.close()
        self.assertEqual(len([x for x in lines if x.startswith('line ')]), 4)
        self.assertIn('Scheduled', run('get', 'events'))

        deployment = {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'metadata': {'name': 'many'}, 'spec': {
            'replicas': 1, 'selector': {'matchLabels': {'app': 'many'}}, 'template': {'metadata': {'labels': {'app': 'many'}}, 'spec': {
                'terminationGracePeriodSeconds': 1, 'containers': [{'name': 'c', 'image': 'shell', 'args': ['-c', 'while true; do sleep 1; done']}]}}}}
        run('apply', '-f', '-', input=json.dumps(deployment))
        run('scale', 'deployment', 'many', '--replicas=2')
        m.wait_until('two replicas', lambda: '2/2' in run('get', 'deployment', 'many'))
        run('delete', 'deployment', 'many')
        m.wait_until('its pods gone', lambda: 'many' not in run('get', 'pods', '-o', 'name'))

        watch = subprocess.Popen([kubectl, 'get', 'configmaps', '-w', '-o', 'name'], stdout=subprocess.PIPE, text=True,
                                 env=dict(os.environ, KUBECONFIG=self.varda.kubeconfig, HOME=str(self.work)))
        self.addCleanup(lambda: (watch.kill(), watch.wait(), watch.stdout.close()))
        self.assertIn('configmap/', watch.stdout.readline())
        run('delete', 'configmap', 'settings')
        m.wait_until('gone', lambda: 'settings' not in run('get', 'configmaps', '-o', 'name'))
        run('delete', 'pod', 'talker')
        self.assertIn('NotFound', run('get', 'pod', 'talker', check=False).stderr)

    def test_debians_kubectl(self):
        self.all_verbs(m.KUBECTL)

    def test_newer_kubectls_installed_here(self):
        for version, path in newer_kubectls().items():
            with self.subTest(kubectl=version):
                self.all_verbs(path)
                self.tearDown()

    def test_vardas_own_verbs(self):
        v = self.varda.varda
        self.assertIn('configmap/settings created', v('apply', '-f', '-', input=json.dumps(CONFIG)))
        self.assertIn('configmap/settings unchanged', v('apply', '-f', '-', input=json.dumps(CONFIG)))
        self.assertIn('configmap/settings configured', v('apply', '-f', '-', input=json.dumps(dict(CONFIG, data={'a': 'b'}))))
        self.assertEqual(json.loads(v('get', 'cm', 'settings', '-o', 'json'))['data'], {'a': 'b'})
        for form in ('yaml', 'name', 'wide'):
            self.assertIn('settings', v('get', 'configmaps', '-o', form))
        self.assertIn('settings', v('describe', 'configmap', 'settings'))
        v('apply', '-f', '-', input=json.dumps(POD))
        v('wait', 'pod/talker', '--for=condition=Ready', '--timeout=180s')
        m.wait_until('log lines', lambda: 'line 2' in v('logs', 'talker'))
        self.assertIn('Scheduled', v('events'))
        v('delete', 'pod', 'talker')
        self.assertIn('deleted', v('delete', '-f', '-', input=json.dumps(CONFIG)))
        self.assertIn('edge0', v('get', 'nodes'))
        self.assertIn('edge0', v('get', 'edgenodes'))
        v('doctor')

    def test_errors_say_what_to_do_next(self):
        def fails(*args, **kw):
            done = self.varda.run([m.VARDA, *args], check=False, **kw)
            self.assertNotEqual(done.returncode, 0, args)
            self.assertTrue(done.stderr.strip(), args)
            return done.stderr
        self.assertIn('varda up', fails('get', 'pods', '--kubeconfig', '/nonexistent/kubeconfig'))
        self.assertIn('frobs', fails('get', 'frobs'))
        self.assertIn('nothere', fails('get', 'pod', 'nothere'))
        self.assertIn('/nonexistent.yaml', fails('apply', '-f', '/nonexistent.yaml'))
        self.assertIn('line 1', fails('apply', '-f', '-', input='a: [1'))
        self.assertIn('kind', fails('apply', '-f', '-', input='a: 1'))
        self.assertIn('--data-dir', fails('up', '--data-dir', '/proc/nope'))
        self.assertIn('already', fails('up', '--data-dir', str(self.varda.dir), '--detach'))
        self.assertIn('unknownflag', fails('get', 'pods', '--unknownflag'))


if __name__ == '__main__':
    unittest.main()
