"""Nodes copy files from each other: those that joined through the gateway, and those of `varda up`.
kubectl shows the result."""
import contextlib, json, os, pathlib, shutil, signal, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class JoinedNodes(unittest.TestCase):
    """Agents that join `varda up` through its gateway, with datasets of line0 for nodes of line a."""
    up_nodes, up_flags = ['cloud=cloud'], []
    peer_flags = ['--peer-listen', '127.0.0.1:0']

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.agents = {}
        (self.work / 'data').mkdir()
        self.varda = m.Machine(self.work / 'up', nodes=self.up_nodes)
        line = self.varda.up('--gateway', '127.0.0.1:0', *self.up_flags)
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
                   '--dataset-root', str(self.work / 'data'), *self.peer_flags]
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

    def current(self, other_than=None, nodes=2):
        """Waits until every node has the current snapshot, and the snapshot differs from
        `other_than`."""
        def probe():
            status = self.replication()
            return status if status.get('snapshot') and status['snapshot'] != other_than and status['current'] == status['wanted'] == nodes else None
        return m.wait_until('every copy current', probe)


class Replication(JoinedNodes):
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


class Relay(JoinedNodes):
    """No node reaches a joined one: the URL that the agents report leads nowhere."""
    up_nodes = ['edge0=edge']
    peer_flags = ['--peer-listen', '127.0.0.1:0', '--peer-url', 'https://127.0.0.1:9']

    def stored(self):
        """Bytes of the registry's blobs, also of unfinished ones."""
        return sum(f.stat().st_size for f in self.varda.dir.glob('registry/*/*') if f.is_file())

    def assert_relayed(self, status, data):
        self.assertEqual(status['reason'], 'Relayed')
        self.assertIn('through the registry', status['message'])
        for node in status['nodes']:
            self.assertEqual(pathlib.Path(node['path']).read_bytes(), data.read_bytes(), node)
            self.assertEqual(node['reason'], 'Relayed', node)
            self.assertIn('through the registry', node['message'])

    def test_copies_go_through_the_registry_after_kills(self):
        data = self.work / 'data/big.csv'
        block, blocks = 1 << 20, 20
        data.write_bytes(os.urandom(blocks * block))
        self.apply(data)
        m.wait_until('the upload begins', lambda: self.stored() > 2 * block)
        self.end('line0', signal.SIGKILL)
        self.start('line0')
        m.wait_until('line1 begins to copy', lambda: list(self.work.glob('line1/replicas/*/*/*/.new-*/part')))
        self.end('line1', signal.SIGKILL)
        self.start('line1')
        first = self.current()
        self.assert_relayed(first, data)
        before = self.stored()
        self.assertLess(before, (blocks + 0.2) * block, 'a block was stored twice')
        with open(data, 'r+b') as f:  # 5 %
            f.seek(7 * block)
            f.write(os.urandom(block))
        second = self.current(first['snapshot'])
        self.assert_relayed(second, data)
        self.assertLess(self.stored() - before, 1.1 * block, 'unchanged blocks were uploaded again')
        self.varda.kubectl('label', 'node', 'edge0', 'line=a')  # a node without the gateway
        self.assert_relayed(self.current(nodes=3), data)
        # A node that can be reached again is asked first.
        self.peer_flags = JoinedNodes.peer_flags
        self.end('line0')
        self.start('line0')
        m.wait_until('line0 reports another URL', lambda: self.varda.get('edgenode', 'line0')['status']['peerUrl'] != 'https://127.0.0.1:9')
        with open(data, 'ab') as f:
            f.write(os.urandom(block))

        def direct():
            status = self.replication()
            return status['snapshot'] != second['snapshot'] and status['current'] == 3 and 'reason' not in status
        m.wait_until('the copies are direct', direct)
        self.varda.kubectl('delete', 'dataset', 'faces')
        m.wait_until('the copies gone', lambda: not list(self.work.glob('line*/replicas/*/*/*')))


class RelayWithoutRegistry(JoinedNodes):
    up_flags = ['--registry', 'off']
    peer_flags = Relay.peer_flags

    def test_missing_registry_is_the_reason(self):
        data = self.work / 'data/train.csv'
        data.write_text('a,b\n1,2\n')
        self.apply(data)

        def missing():
            status = self.replication()
            return status if status.get('reason') == 'RelayMissing' else None
        status = m.wait_until('the reason RelayMissing', missing)
        self.assertIn('has no registry', status['message'])
        self.assertEqual(status['current'], 0)


class NodesOfUp(unittest.TestCase):
    """Two nodes of `varda up`, without any flag for peers."""

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.data = self.work / 'data'
        self.data.mkdir()
        self.varda = m.Machine(self.work / 'up', nodes=['edge0=edge', 'edge1=edge'])
        self.addCleanup(self.varda.close)
        self.varda.up('--dataset-root', str(self.data))

    def apply(self, kind, name, **spec):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({
            'apiVersion': 'edgeai.io/v1alpha1', 'kind': kind, 'metadata': {'name': name, 'labels': {'team': 'vision'}},
            'spec': {**spec, 'nodeName': 'edge0', 'replication': {'nodeSelector': {}}}}))

    def replication(self, kind, name):
        """The status; every copy that is not current must have a reason."""
        status = self.varda.get(kind, name).get('status', {}).get('replication', {})
        for node in status.get('nodes', []):
            if node['state'] != 'Current' and not (node.get('reason') and node.get('message')):
                raise RuntimeError('a copy without a reason: %r' % node)  # wait_until() lets it through
        return status

    def current(self, kind, name, other_than=None):
        def probe():
            status = self.replication(kind, name)
            return status if status.get('snapshot') not in (None, other_than) and status['current'] == status['wanted'] == 1 else None
        status = m.wait_until('the copy of %s %s current' % (kind, name), probe)
        self.assertNotIn('reason', status)
        node, = status['nodes']
        self.assertEqual((node['node'], 'reason' in node), ('edge1', False))
        return status['snapshot'], pathlib.Path(node['path'])

    def kill_agent(self, node):
        for pid, command in self.varda.processes().items():
            if ' agent ' in command and node in command.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def test_dataset_and_model_are_copied_with_their_metadata(self):
        table, weights = self.data / 'train.csv', self.data / 'frozen.pb'
        table.write_text('a,b\n' + '1,2\n' * 1000)
        weights.write_bytes(os.urandom(1 << 20))
        self.apply('Dataset', 'faces', dataUrl=str(table), format='csv', header='yes')
        self.apply('Model', 'small', modelUrl=str(weights), format='pb')
        snapshot, copy = self.current('dataset', 'faces')
        self.assertEqual(copy.read_bytes(), table.read_bytes())
        metadata = copy.parent.parent / 'metadata.json'

        def facts(samples):
            read = json.loads(metadata.read_text())
            return read if read.get('status', {}).get('numberOfSamples') == samples else None
        read = m.wait_until('the counts beside the copy', lambda: facts(1000))
        self.assertEqual((read['kind'], read['metadata'], read['spec']['format'], read['snapshot']),
                         ('Dataset', {'namespace': 'default', 'name': 'faces', 'labels': {'team': 'vision'}}, 'csv', snapshot))
        snapshot, copy = self.current('model', 'small')
        self.assertEqual(copy.read_bytes(), weights.read_bytes())
        read = json.loads((copy.parent.parent / 'metadata.json').read_text())
        self.assertEqual((read['kind'], read['spec'], read['snapshot']), ('Model', {'format': 'pb'}, snapshot))
        with open(table, 'a') as f:
            f.write('3,4\n' * 10)
        m.wait_until('the counts of the grown table', lambda: facts(1010))

    def test_killed_nodes_continue_to_copy(self):
        data = self.data / 'big.csv'
        data.write_bytes(os.urandom(96 << 20))
        self.apply('Dataset', 'big', dataUrl=str(data), format='txt')
        copies = self.varda.dir / 'nodes/edge1/data/replicas/datasets.edgeai.io/default/big'
        for node in ('edge1', 'edge0'):
            m.wait_until('the copy begins', lambda: list(copies.glob('*')))
            self.kill_agent(node)
        first, copy = self.current('dataset', 'big')
        self.assertEqual(copy.read_bytes(), data.read_bytes())
        # The certificates of a new control plane fit the agents that continue to run.
        self.varda.kill_everything()
        with open(data, 'ab') as f:
            f.write(b'more')
        self.varda.up()
        second, copy = self.current('dataset', 'big', first)
        self.assertEqual(copy.read_bytes(), data.read_bytes())


if __name__ == '__main__':
    unittest.main()
