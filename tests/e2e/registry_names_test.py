"""The operator tells a registry which files the objects of its cluster name."""
import hashlib, json, pathlib, re, shutil, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

TOKEN = 'a-token-of-the-registry'


class RegistryNames(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, True)
        self.token = self.work / 'token'
        self.token.write_text(TOKEN + '\n')
        self.cluster = m.Machine(self.work / 'api')
        self.cluster.dir.mkdir()
        self.start('api', 'apiserver', '--data-dir', self.cluster.dir, '--listen', '127.0.0.1:0')
        m.wait_until('the API server', lambda: self.cluster.get('namespaces'))
        self.cluster.kubectl('apply', *(a for crd in sorted(m.ROOT.glob('deploy/crds/*_*.yaml')) for a in ('-f', str(crd))))

    def start(self, name, *command):
        log = self.work / (name + '.log')
        with open(log, 'ab') as out:
            process = subprocess.Popen([m.VARDA, *map(str, command)], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return process, log

    def start_registry(self, name, *flags):
        process, log = self.start(name, 'registry', '--data-dir', self.work / 'registry', '--listen', '127.0.0.1:0', '--admin', 'unix:' + str(self.work / (name + '.sock')),
                                  '--token-file', self.token, *flags)
        return process, 'http://' + m.wait_until('the registry', lambda: re.search(r'registry at http://(\S+)', log.read_text())[1])

    def start_operator(self, url, *flags):
        return self.start('operator', 'operator', *m.LOOPBACK, '--kubeconfig', self.cluster.kubeconfig, '--admin', 'unix:' + str(self.work / 'o.sock'), '--no-leader-elect',
                          '--registry', url, *flags)

    def curl(self, *arguments):
        done = subprocess.run(['curl', '-s', '-o', '/dev/null', '-w', '%{http_code}', '-H', 'Authorization: Bearer ' + TOKEN, *map(str, arguments)], stdout=subprocess.PIPE,
                              text=True, timeout=m.seconds(60))
        return int(done.stdout)

    def test_result_that_a_model_names_outlives_the_grace_period(self):
        registry, url = self.start_registry('registry')
        path = {}
        for name in ('result', 'other'):
            (self.work / name).write_bytes(name.encode() * 1000)
            path[name] = '/v1/blobs/sha256:' + hashlib.sha256((self.work / name).read_bytes()).hexdigest()
            self.assertEqual(self.curl('-T', self.work / name, url + path[name]), 201)
        model = {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Model', 'metadata': {'name': 'digits'},
                 'spec': {'format': 'onnx', 'version': '5', 'modelUrl': url + path['result'], 'sha256': path['result'][-64:]}}
        self.cluster.kubectl('apply', '-f', '-', input=json.dumps(model))
        self.start_operator(url, '--registry-token-file', self.token)
        lists = self.work / 'registry' / 'names'
        text = m.wait_until('the list of the cluster', lambda: [x.read_text() for x in lists.glob('cluster-*.json')][0])
        self.assertEqual(json.loads(text), {'digests': ['sha256:' + path['result'][-64:]]})
        # The next registry finds the list on its disk, and both files too old.
        registry.terminate()
        registry.wait()
        registry, url = self.start_registry('registry2', '--grace', '1s')
        m.wait_until('the other file removed', lambda: self.curl(url + path['other']) == 404)
        self.assertEqual(self.curl(url + path['result']), 200)

    def test_operator_without_the_token_says_what_will_happen(self):
        _, url = self.start_registry('registry')
        _, log = self.start_operator(url)
        m.wait_until('the warning', lambda: 'the registry does not learn which files objects name' in log.read_text() and '401' in log.read_text())
        self.assertNotIn(TOKEN, log.read_text())

    def test_missing_token_file_means_no_registry(self):
        _, url = self.start_registry('registry')
        _, log = self.start_operator(url, '--registry-token-file', self.work / 'missing')
        m.wait_until('the warning', lambda: 'trainings have no place for their results' in log.read_text())


if __name__ == '__main__':
    unittest.main()
