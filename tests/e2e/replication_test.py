"""Nodes that joined through the gateway copy files from each other; kubectl shows the result."""
import contextlib, json, os, pathlib, shutil, signal, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Replication(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.agents = {}
        (self.work / 'data').mkdir()
        self.varda = m.Machine(self.work / 'up', nodes=['cloud=cloud'])
        line = self.varda.up('--gateway', '127.0.0.1:0')
        self.gateway = line.split('gateway ')[1].split(',')[0].strip()
        for node in ('line0', 'line1', 'line2'):
            token = self.work / ('token-' + node)
            with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
                f.write(self.varda.varda('join-token', '--node', node))
            self.start(node, token)
        for node in self.agents:
            m.wait_until(node + ' Ready', lambda: self.ready(node))
        self.varda.kubectl('label', 'node', 'line1', 'line2', 'line=a')

    def tearDown(self):
        for node in list(self.agents):
            self.end(node)
        self.varda.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def start(self, node, token=None):
        command = [m.VARDA, 'agent', *m.LOOPBACK, '--node', node, '--gateway', self.gateway, '--data-dir', str(self.work / node), '--runner', 'process',
                   '--dataset-root', str(self.work / 'data'), '--peer-listen', '127.0.0.1:0']
        if token:
            command += ['--join-token-file', str(token)]
        with open(self.work / (node + '.log'), 'ab') as log:
            environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
            self.agents[node] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def end(self, node, how=signal.SIGTERM):
        agent = self.agents.pop(node)
        with contextlib.suppress(ProcessLookupError):
            agent.send_signal(how)
        agent.wait(60)

    def ready(self, node):
        conditions = self.varda.get('node', node).get('status', {}).get('conditions', [])
        return any(c['type'] == 'Ready' and c['status'] == 'True' for c in conditions)

    def apply(self, path, name='faces'):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({
            'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
            'spec': {'dataUrl': str(path), 'format': 'csv', 'nodeName': 'line0', 'replication': {'nodeSelector': {'line': 'a'}}}}))

    def replication(self, name='faces'):
        return self.varda.get('dataset', name).get('status', {}).get('replication', {})

    def current(self, other_than=None):
        """Waits until every node has the current snapshot, and the snapshot differs from
        `other_than`."""
        def probe():
            status = self.replication()
            return status if status.get('snapshot') and status['snapshot'] != other_than and status['current'] == status['wanted'] == 2 else None
        return m.wait_until('every copy current', probe)

    def test_growing_file_is_replicated_to_every_node_after_a_kill(self):
        data = self.work / 'data/train.csv'
        data.write_text('a,b\n' + '1,2\n' * 300000)
        self.apply(data)
        first = self.current()
        self.assertEqual([n['node'] for n in first['nodes']], ['line1', 'line2'])
        self.end('line1', signal.SIGKILL)
        with open(data, 'a') as f:
            f.write('3,4\n' * 1000)
        m.wait_until('line2 has what is new', lambda: [n for n in self.replication()['nodes'] if n['node'] == 'line2' and n['state'] == 'Current'
                                                       and n['snapshot'] != first['snapshot']])
        behind = m.wait_until('line1 said to be out of reach', lambda: [n for n in self.replication()['nodes'] if n['state'] == 'Unreachable'])[0]
        self.assertEqual((behind['node'], bool(behind['behindSince'])), ('line1', True))
        self.start('line1')
        second = self.current(first['snapshot'])
        for node in second['nodes']:
            self.assertEqual(pathlib.Path(node['path']).read_bytes(), data.read_bytes(), node)
            self.assertNotIn('behindSince', node)
        self.varda.kubectl('delete', 'dataset', 'faces')
        m.wait_until('the copies gone', lambda: not list(self.work.glob('line*/replicas/*/*/*')))
        self.assertTrue(data.exists())

    def test_forbidden_path_is_not_shared(self):
        (self.work / 'secret.csv').write_text('1,2\n')
        self.apply(self.work / 'secret.csv')
        def refused():
            status = self.replication()
            return status if status.get('reason') == 'PathForbidden' else None
        status = m.wait_until('the reason PathForbidden', refused)
        self.assertEqual(status['current'], 0)


if __name__ == '__main__':
    unittest.main()
