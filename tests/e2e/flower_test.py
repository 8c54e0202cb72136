"""varda-aggregate with Flower clients: stock grpcio and protobuf, and messages of tests/support/flower_wire.py."""
import json, pathlib, shutil, struct, subprocess, sys, tempfile, unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / 'support')]
import machine as m  # noqa: E402
from federated_test import safetensors  # noqa: E402

AGGREGATE = str(m.BIN / 'varda-aggregate')
CLIENT = pathlib.Path(__file__).resolve().parents[1] / 'support/flower_wire.py'
PYTHON = '/usr/bin/python3'  # Debian's packages are for this one


def has_grpcio():
    return subprocess.run([PYTHON, '-c', 'import grpc'], stderr=subprocess.DEVNULL).returncode == 0


def weights_of(path):
    data = path.read_bytes()
    size = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + size])
    out = {}
    for name, entry in header.items():
        if name != '__metadata__':
            begin, end = entry['data_offsets']
            out[name] = list(struct.unpack('<%df' % ((end - begin) // 4), data[8 + size + begin:8 + size + end]))
    return out


@unittest.skipUnless(has_grpcio(), 'python3-grpcio is not installed')
class Flower(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-flower-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        (self.work / 'm.safetensors').write_bytes(safetensors({'b': ([2], [10.0, 20.0]), 'w': ([2, 3], [0.0] * 6)}))

    def aggregate(self, *flags):
        with open(self.work / 'log', 'a') as log:
            process = subprocess.Popen([AGGREGATE, '--model', str(self.work / 'm.safetensors'), '--out', str(self.work / 'out'),
                                        '--listen', '127.0.0.1:0', '--flower', '127.0.0.1:0', *flags],
                                       stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(self.end, process)
        line = process.stdout.readline()
        self.assertIn(', flower 127.0.0.1:', line, (self.work / 'log').read_text())
        return process, line.split()[-1]

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def client(self, address, step, examples):
        process = subprocess.Popen([PYTHON, str(CLIENT), address, str(step), str(examples)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.end, process)
        return process

    def test_python_clients_train_a_model(self):
        server, address = self.aggregate('--rounds', '2', '--minimum-clients', '2', '--clients', '2', '--evaluate-every', '1')
        clients = [self.client(address, 1, 30), self.client(address, 5, 10)]
        for client in clients:
            output = client.communicate(timeout=m.seconds(60))[0]
            self.assertEqual(output.split("'")[1::2].count('fit_ins'), 2, output)
            self.assertEqual(output.split("'")[1::2].count('evaluate_ins'), 2, output)
            self.assertTrue(output.endswith("'reconnect_ins']\n"), output)
        output = server.communicate(timeout=m.seconds(60))[0]
        self.assertEqual(server.returncode, 0, output + (self.work / 'log').read_text())
        # (1 * 30 + 5 * 10) / 40 = 2 in each round
        self.assertEqual(weights_of(self.work / 'out/model.safetensors'), {'b': [14.0, 24.0], 'w': [4.0] * 6})
        report = json.loads((self.work / 'out/report.json').read_text())
        self.assertEqual([record['evaluation']['loss'] for record in report['history']], [0.25, 0.25], report)
        log = (self.work / 'log').read_text()
        for name in 'flower/127.0.0.1/0', 'flower/127.0.0.1/1':
            self.assertIn('client of Flower joined client=' + name, log)

    def test_client_with_nan_is_refused(self):
        server, address = self.aggregate('--rounds', '2', '--minimum-clients', '2', '--clients', '3', '--quorum', '2',
                                         '--evaluate-every', '0')
        clients = [self.client(address, 1, 10), self.client(address, 3, 10), self.client(address, 'nan', 10)]
        for client in clients:
            client.communicate(timeout=m.seconds(90))
        server.communicate(timeout=m.seconds(60))
        self.assertEqual(server.returncode, 0, (self.work / 'log').read_text())
        self.assertEqual(weights_of(self.work / 'out/model.safetensors'), {'b': [14.0, 24.0], 'w': [4.0] * 6})
        self.assertIn('not finite', (self.work / 'log').read_text())


# A stock client in a pod: the address is all that it gets from Varda.
POD = """import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import flower_wire
print(flower_wire.run('%s:%s' % (os.environ['AGG_IP'], os.environ['AGG_PORT']), float(os.environ['STEP']), 10))
"""


@unittest.skipUnless(has_grpcio(), 'python3-grpcio is not installed')
class FlowerPods(unittest.TestCase):
    """Flower clients as training workers of a FederatedLearningJob, with the aggregator of Varda."""

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-flower-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        shutil.copy(CLIENT, cls.work)
        (cls.work / 'pod.py').write_text(POD)
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge', 'edge1=edge'])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up('--registry', '127.0.0.1:0', '--image', 'flower:1=%s %s' % (PYTHON, cls.work / 'pod.py'))
        cls.varda.varda('push', m.DIGITS / 'models/3', '--name', 'digits', '--version', '3')

    def start(self, name, steps, **federated):
        trainers = [{'nodeName': node, 'workerSpec': {'containers': [{'image': 'flower:1', 'env': [{'name': 'STEP', 'value': step}]}]}}
                    for node, step in steps]
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({
            'apiVersion': 'sedna.io/v1alpha1', 'kind': 'FederatedLearningJob', 'metadata': {'name': name}, 'spec': {
                'aggregationWorker': {'model': {'name': 'digits'}}, 'trainingWorkers': trainers, 'federated': federated}}))
        self.addCleanup(lambda: self.varda.kubectl('delete', 'federatedlearningjob', name))

    def ended(self, name):
        def status():
            found = self.varda.get('federatedlearningjob', name).get('status', {})
            return found if found.get('phase') in ('Complete', 'Failed') else None
        return m.wait_until('the end of ' + name, status)

    def test_stock_clients_in_pods_train_a_new_version(self):
        self.start('flwr', [('edge0', '0.001'), ('edge1', '0.003')], rounds=2, minimumClients=2)
        status = self.ended('flwr')
        self.assertEqual((status['phase'], status['round']), ('Complete', 2), status)
        self.assertEqual([record['participants'] for record in status['history']], [2, 2], status)
        self.assertIn({'key': 'loss', 'value': '0.25'}, status['metrics'], status)
        self.assertEqual({p['node'] for p in status['participants']}, {'edge0', 'edge1'})
        model = self.varda.get('models.edgeai.io', 'digits')['spec']
        self.assertEqual((model['version'], model['sourceJob']), (status['produced']['version'], 'FederatedLearningJob/flwr'))


if __name__ == '__main__':
    unittest.main()
