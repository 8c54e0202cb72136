"""SIGKILL in every stage of an IncrementalLearningJob: each round ends once, and no sample is lost
or used twice. VARDA_SEED chooses the processes that are killed."""
import contextlib, json, os, pathlib, random, shutil, signal, struct, sys, tempfile, time, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

SEED = int(os.environ.get('VARDA_SEED', 7))
VICTIMS = ('control', 'agent', 'trainer', 'server', 'everything')


def digits(folder, keep):
    """The digits' training images that `keep(index, label)` wants, as idx files; returns their
    number."""
    images = (m.DIGITS / 'train-images.idx3-ubyte').read_bytes()
    labels = (m.DIGITS / 'train-labels.idx1-ubyte').read_bytes()[8:]
    count, height, width = struct.unpack('>III', images[4:16])
    size = height * width
    mine = [i for i in range(count) if keep(i, labels[i])]
    folder.mkdir()
    (folder / 'train-images.idx3-ubyte').write_bytes(
        images[:4] + struct.pack('>III', len(mine), height, width) + b''.join(images[16 + i * size:16 + (i + 1) * size] for i in mine))
    (folder / 'train-labels.idx1-ubyte').write_bytes(struct.pack('>II', 0x801, len(mine)) + bytes(labels[i] for i in mine))
    return len(mine)


class Kills(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, True)
        cls.data = cls.work / 'edge0'
        cls.data.mkdir()
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        cls.flags = ('--dataset-root', 'edge0=%s' % cls.data, '--registry', '127.0.0.1:0')
        cls.varda.up(*cls.flags)
        cls.varda.varda('push', m.DIGITS / 'models/3', '--name', 'digits-0', '--version', '1')
        cls.samples = digits(cls.data / 'new', lambda i, label: i % 2 == 0)
        for file in m.DIGITS.glob('test-*-ubyte'):
            shutil.copy(file, cls.data / 'new')
        cls.apply(*({'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
                     'spec': {'dataUrl': str(cls.data / 'new' / file), 'format': 'idx', 'nodeName': 'edge0'}}
                    for name, file in (('digits-new', 'train-images.idx3-ubyte'), ('digits-eval', 'test-images.idx3-ubyte'))))

    @classmethod
    def apply(cls, *objects):
        cls.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def start(self, name, port):
        self.apply({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'IncrementalLearningJob', 'metadata': {'name': name}, 'spec': {
            'nodeName': 'edge0', 'dataset': {'name': 'digits-new'}, 'initialModel': {'name': 'digits-0'},
            'trainSpec': {'trainer': {'epochs': 40, 'batchSize': 16, 'optimizer': {'name': 'sgd', 'learningRate': 0.1}},
                          'trigger': {'samples': 100}, 'retry': {'attempts': 20, 'backoffSeconds': 0}},
            'evalSpec': {'dataset': {'name': 'digits-eval'}, 'gate': {'minimumGain': 0.005, 'significance': 1, 'forgettingMax': 0.05, 'classDropMax': 0.2}},
            # A killed server is no fault of the new version.
            'deploySpec': {'model': {'name': name}, 'servingPort': port, 'rollback': {'automatic': False}}}})
        self.addCleanup(lambda: self.varda.kubectl('delete', 'incrementallearningjob', name, '--ignore-not-found'))

    def status(self, name):
        """None while there is no API server."""
        with contextlib.suppress(m.Failed):
            return self.varda.get('incrementallearningjob', name).get('status', {})

    def kill(self, victim):
        """Kills the processes of this part; True if there was one."""
        processes = self.varda.processes()
        wanted = {'control': lambda c: ' up ' in c, 'agent': lambda c: ' agent ' in c and 'edge0' in c.split(),
                  'trainer': lambda c: 'varda-train' in c.split(' ')[0], 'server': lambda c: 'varda-serve' in c.split(' ')[0],
                  'everything': lambda c: True}[victim]
        victims = [p for p, c in processes.items() if wanted(c)]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if victim in ('control', 'everything'):
            self.varda.up(*self.flags)
        return bool(victims)

    def run_to_the_end_of_a_round(self, name, choose):
        """Kills what `choose(stage, state)` says when a stage begins; returns the status after the
        round."""
        killed = {}

        def probe():
            status = self.status(name) or {}
            if status.get('rounds') and status.get('version') == status['rounds'][0].get('version'):
                return status
            place = (status.get('stage'), status.get('state'))
            if None not in place and place not in killed:
                killed[place] = choose(*place)
                if killed[place]:
                    time.sleep(random.random() * 0.3)  # somewhere in the stage
                    self.kill(killed[place])
            return None
        status = m.wait_until('%s: the end of a round' % name, probe, timeout=120, every=0.02)
        return status, {place: victim for place, victim in killed.items() if victim}

    def check(self, name, status):
        self.assertEqual([(r['round'], r['outcome']) for r in status['rounds']], [(1, 'Accepted')], status['rounds'])
        self.assertEqual(status['rounds'][0]['samples'], self.samples, status['rounds'])
        version = status['rounds'][0]['version']
        m.wait_until('%s serves the new version' % name, lambda: (self.varda.model(name).get('status') or {}).get('servingVersion') == version)
        # Each sample was used once, so a request for another round finds nothing.
        error = self.varda.varda('il', 'train', name, check=False).stderr
        self.assertIn('nothing to train on: earlier rounds have used all %d samples' % self.samples, error)
        self.assertEqual(len(self.status(name)['rounds']), 1)

    def test_each_stage_survives_a_kill_of_any_part(self):
        rng = random.Random(SEED)
        self.start('seeded', 18091)
        status, killed = self.run_to_the_end_of_a_round('seeded', lambda stage, state: rng.choice(VICTIMS[:4]))
        print('killed: %s' % killed, file=sys.stderr)
        self.assertIn('Train', {stage for stage, _ in killed})
        self.check('seeded', status)

    def test_each_stage_survives_a_kill_of_everything(self):
        self.start('dark', 18092)
        status, killed = self.run_to_the_end_of_a_round('dark', lambda stage, state: 'everything' if state in ('Starting', 'Running') else None)
        self.assertIn(('Train', 'Running'), killed)
        self.check('dark', status)


if __name__ == '__main__':
    unittest.main()
