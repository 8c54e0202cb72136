"""Debian's kubectl (and newer ones where installed) against `varda up`, verb by verb; then the
CLI's own verbs."""
import concurrent.futures, json, os, pathlib, shutil, subprocess, sys, tempfile, unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / x) for x in ('support', 'conformance/kubectl')]
import machine as m  # noqa: E402
import session  # noqa: E402

POD = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'talker', 'labels': {'app': 'talker'}},
       'spec': {'nodeSelector': {'kubernetes.io/hostname': 'cloud'}, 'terminationGracePeriodSeconds': 1, 'containers': [
           {'name': 'main', 'image': 'shell', 'args': ['-c', 'i=0; while true; do echo line $i; i=$((i+1)); sleep 0.2; done']}]}}
CONFIG = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'settings', 'labels': {'tier': 'a'}}, 'data': {'k': 'v'}}


class Verbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-kubectl-'))
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.varda.up('--image', 'shell=/bin/sh')
        cls.varda.nodes_ready()

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        shutil.rmtree(cls.work, ignore_errors=True)

    def tearDown(self):
        self.varda.kubectl('delete', 'configmaps,pods,deployments', '--all', check=False)

    def hold_sessions(self, kubeconfig, kubectls):
        """Runs each kubectl's session (tests/conformance/kubectl/session.py) in sequence; returns
        the problems, step by step."""
        found = {}
        for version, path in kubectls:
            home = self.work / ('home-%d.%d' % version)
            home.mkdir()
            talk = session.Session(version, path, kubeconfig, home)
            found[version] = [wrong for wrong in map(talk.run, talk.steps()) if wrong]
        return found

    def test_every_installed_kubectl_completes_its_session(self):
        kubectls = sorted(session.kubectls().items())
        self.assertTrue(kubectls, 'no kubectl: make deps')
        # Two servers are used because kubectl lists every API group it knows. `api-resources` fails
        # if a parallel session deletes its kinds.
        other = m.Machine(self.work / 'other', nodes=['cloud=cloud', 'edge0=edge'])
        self.addCleanup(other.close)
        other.up('--image', 'shell=/bin/sh')
        other.nodes_ready()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            halves = pool.map(self.hold_sessions, (self.varda.kubeconfig, other.kubeconfig), (kubectls[::2], kubectls[1::2]))
            problems = {version: wrong for half in halves for version, wrong in half.items()}
        self.assertEqual(sorted(problems), [version for version, _ in kubectls])
        for version, wrong in problems.items():
            with self.subTest(kubectl='%d.%d' % version):
                self.assertEqual(wrong, [], '\n'.join(wrong))

    def test_kubectl_handles_pods_logs_deployments_and_watches(self):
        kubectl = m.KUBECTL
        run = lambda *a, **k: self.varda.run([kubectl, '--cache-dir', str(self.work / 'cache'), *a], **k)  # noqa: E731
        run('create', '-f', '-', input=json.dumps(CONFIG))
        run('apply', '-f', '-', input=json.dumps(POD))
        run('wait', '--for=condition=Ready', 'pod/talker', '--timeout=%ds' % m.seconds(180))
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
        m.wait_until('its event', lambda: 'Scheduled' in run('get', 'events'))

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

    def test_varda_verbs_work_like_kubectl(self):
        v = self.varda.varda
        self.assertIn('configmap/settings created', v('apply', '-f', '-', input=json.dumps(CONFIG)))
        self.assertIn('configmap/settings unchanged', v('apply', '-f', '-', input=json.dumps(CONFIG)))
        self.assertIn('configmap/settings configured', v('apply', '-f', '-', input=json.dumps(dict(CONFIG, data={'a': 'b'}))))
        self.assertEqual(json.loads(v('get', 'cm', 'settings', '-o', 'json'))['data'], {'a': 'b'})
        for form in ('yaml', 'name', 'wide'):
            self.assertIn('settings', v('get', 'configmaps', '-o', form))
        self.assertIn('settings', v('describe', 'configmap', 'settings'))
        v('apply', '-f', '-', input=json.dumps(POD))
        v('wait', 'pod/talker', '--for=condition=Ready', '--timeout=%ds' % m.seconds(180))
        m.wait_until('log lines', lambda: 'line 2' in v('logs', 'talker'))
        m.wait_until('its event', lambda: 'Scheduled' in v('events'))
        v('delete', 'pod', 'talker')
        self.assertIn('deleted', v('delete', '-f', '-', input=json.dumps(CONFIG)))
        self.assertIn('edge0', v('get', 'nodes'))
        self.assertIn('edge0', v('get', 'edgenodes'))
        v('doctor')

    def test_errors_name_the_problem_and_the_remedy(self):
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
