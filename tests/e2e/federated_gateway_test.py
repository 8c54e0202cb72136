"""A FederatedLearningJob on a machine with a gateway: a node of the machine and a node behind the
gateway train, and the aggregator believes signed identities only."""
import json, os, pathlib, shutil, signal, socket, struct, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

FILES = ['train-images.idx3-ubyte', 'train-labels.idx1-ubyte']


def unsigned_header(**values):
    """A PROXY header of version 2 with an identity, as any program of the machine can write it."""
    tlvs = b''.join(struct.pack('>BH', kind, len(text)) + text.encode() for kind, text in
                    ((0xE0, values['node']), (0xE1, values['worker']), (0xE2, values['job'])))
    return b'\r\n\r\n\0\r\nQUIT\n' + bytes([0x21, 0x00]) + struct.pack('>H', len(tlvs)) + tlvs


class Gateway(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, True)
        self.varda = m.Machine(self.work / 'cloud', nodes=['cloud=cloud', 'edge0=edge'])
        self.addCleanup(self.varda.close)
        for node in ('edge0', 'line7'):
            (self.work / 'digits' / node).mkdir(parents=True)
            for file in FILES:
                shutil.copy(m.DIGITS / file, self.work / 'digits' / node)
        line = self.varda.up('--gateway', '127.0.0.1:0', '--registry', '127.0.0.1:0', '--dataset-root', 'edge0=%s' % (self.work / 'digits/edge0'))
        gateway = line.split('gateway https://')[1].split(',')[0]
        token = self.work / 'line7.token'
        token.write_text(self.varda.varda('join-token', '--node', 'line7'))
        token.chmod(0o600)
        with open(self.work / 'agent.log', 'wb') as log:
            self.agent = subprocess.Popen(
                [str(m.VARDA), 'agent', *m.LOOPBACK, '--node', 'line7', '--gateway', 'https://' + gateway, '--join-token-file', str(token), '--runner', 'process',
                 '--dataset-root', str(self.work / 'digits/line7'), '--data-dir', str(self.work / 'line7')],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={k: v for k, v in os.environ.items() if k != 'KUBECONFIG'})
        self.addCleanup(self.end)
        self.varda.varda('push', m.DIGITS / 'models/3', '--name', 'digits', '--version', '3')

    def end(self):
        self.agent.send_signal(signal.SIGTERM)
        self.agent.wait()
        for pid in m.processes_below(self.work):
            os.kill(pid, signal.SIGKILL)
        if not self._outcome.success:
            print(*(self.work / 'agent.log').read_text().splitlines()[-40:], sep='\n', file=sys.stderr)
            self.varda.show_logs()

    def apply(self, *objects):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def status(self):
        return self.varda.get('federatedlearningjob', 'digits').get('status', {})

    def closes(self, address, header):
        """The aggregator ends the connection without an answer."""
        host, port = address.rsplit(':', 1)
        with socket.create_connection((host, int(port)), timeout=m.seconds(60)) as connection:
            connection.sendall(header + b'GET /v1/task HTTP/1.1\r\nHost: a\r\n\r\n')
            try:
                return connection.recv(1) == b''
            except ConnectionError:
                return True

    def test_nodes_of_the_machine_and_behind_the_gateway_train_with_signed_identities(self):
        self.apply(*({'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': 'digits-' + node},
                      'spec': {'dataUrl': str(self.work / 'digits' / node / FILES[0]), 'format': 'idx', 'nodeName': node}} for node in ('edge0', 'line7')))
        self.apply({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'FederatedLearningJob', 'metadata': {'name': 'digits'}, 'spec': {
            'aggregationWorker': {'model': {'name': 'digits'}}, 'trainingWorkers': [{'dataset': {'name': 'digits-' + node}} for node in ('edge0', 'line7')],
            'federated': {'rounds': 100_000, 'minimumClients': 2, 'localSteps': 1, 'evaluation': {'every': 0}}}})

        def two_updates():
            status = self.status()
            return status.get('round', 0) > 2 and status
        status = m.wait_until('a round with both nodes', two_updates)
        pod = next(p for p in self.varda.pods() if 'federated-aggregator' in p['metadata']['name'])
        federated = json.loads(next(e['value'] for e in pod['spec']['containers'][0]['env'] if e['name'] == 'FEDERATED'))
        self.assertNotIn('trustLoopback', federated)
        self.assertIn('BEGIN CERTIFICATE', federated['authority'])
        worker = 'default/' + next(p['worker'] for p in status['participants'] if p['node'] == 'line7')
        self.assertTrue(self.closes(status['aggregator']['address'], unsigned_header(node='line7', worker=worker, job=federated['uid'])))
        self.varda.kubectl('patch', 'federatedlearningjob', 'digits', '--type', 'merge', '-p', '{"spec": {"federated": {"rounds": 1}}}')
        m.wait_until('the end', lambda: self.status().get('phase') == 'Complete')
        self.assertEqual({one['participants'] for one in self.status()['history']}, {2})


if __name__ == '__main__':
    unittest.main()
