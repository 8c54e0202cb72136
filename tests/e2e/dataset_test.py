"""Datasets on a node of `varda up`: exact counts, growing files, with and without a control plane,
only in the folders that the node allows."""
import contextlib, json, os, pathlib, shutil, signal, subprocess, sys, tempfile, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

PICTURE = b'\xff\xd8 no picture, but nobody looks'


def dataset(name, path, form, node='edge0', **more):
    return {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': name},
            'spec': {'dataUrl': str(path), 'format': form, 'nodeName': node, **more}}


def has_ended(pid):
    return not os.path.exists('/proc/%d' % pid) or 'Z' in pathlib.Path('/proc/%d/stat' % pid).read_text().rsplit(')', 1)[1]


class Init:
    def __init__(self, command, directory):
        self.command, self.directory, self.over, self.process = command, str(directory), threading.Event(), None
        self.lock, self.thread = threading.Lock(), threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def keep(self):
        while True:
            with self.lock:
                if self.over.is_set():
                    return
                with open(self.directory + '/agent.log', 'ab') as log:
                    self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.directory)
            self.process.wait()
            self.over.wait(0.2)

    def leave(self):
        """Another process manages the agent from now on."""
        with self.lock:
            self.over.set()

    def kill(self):
        self.leave()
        self.process.kill()
        self.thread.join()


class Base(unittest.TestCase):
    """Queries and waits for both kinds of tests. Subclasses set `varda` and `data`, the folder of
    the data."""

    def get(self, kind, name):
        return self.varda.get(kind, name)

    def apply(self, *objects):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': objects}))

    def status(self, name):
        return self.get('dataset.edgeai.io', name).get('status', {})

    def report(self, name, node='edge0'):
        for one in self.get('edgenode', node).get('status', {}).get('datasets', []):
            if one['key'] == 'datasets.edgeai.io/default/' + name:
                return one
        return {}

    def counted(self, name, samples, **more):
        """Waits until the Dataset reports this number of samples; returns its status."""
        def probe():
            status = self.status(name)
            return status if status.get('numberOfSamples') == samples and status.get('exact') is True else None
        status = m.wait_until('%d samples of %s' % (samples, name), probe)
        for key, value in more.items():
            self.assertEqual(status.get(key), value, '%s of %s' % (key, name))
        return status

    def failed(self, name, reason, node='edge0'):
        report = m.wait_until('%s of %s' % (reason, name), lambda: (lambda r: r if r.get('reason') == reason else None)(self.report(name, node)))
        self.assertEqual(report['state'], 'Failed')
        condition = m.wait_until('a condition of %s that says %s' % (name, reason), lambda: next(
            (c for c in self.status(name).get('conditions', []) if c['reason'] == reason), None))
        self.assertEqual(condition['status'], 'False')
        return report['message']


class Datasets(Base):
    """One control plane for all tests. Each test has its own folder and removes its objects."""

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.root = cls.work / 'data'
        cls.root.mkdir()
        cls.varda = m.Machine(cls.work / 'varda', nodes=['cloud=cloud', 'edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up('--dataset-root', 'edge0=%s' % cls.root)
        cls.varda.nodes_ready()

    def setUp(self):
        self.data = self.root / self.id().rsplit('.', 1)[1]
        self.data.mkdir()
        self.addCleanup(self.clear)

    def clear(self):
        self.varda.kubectl('delete', 'dataset.edgeai.io,dataset.sedna.io,model.edgeai.io,model.sedna.io', '--all')
        for node in ('edge0', 'cloud'):
            m.wait_until('no report of ' + node, lambda: not self.get('edgenode', node)['status'].get('datasets'))

    def voc(self, name, *objects):
        folder = self.data / 'voc/Annotations'
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('<annotation>%s</annotation>' % ''.join('<object><name>%s</name></object>' % o for o in objects))

    # ---- counts
    def test_records_and_classes_of_each_format_are_counted_exactly(self):
        (self.data / 'rows.csv').write_bytes(b'text,label\r\n' + b'"two\nlines and a "" quote",1\r\n' * 1000 + b'broken\r\nplain,2')
        (self.data / 'lines.jsonl').write_text('{"a": 1}\n\n[2]\nno json\n"three"')
        self.voc('1.xml', 'dog', 'cat', 'dog')
        self.voc('2.xml', 'bird')
        for name in ('cats/1.jpg', 'cats/old/2.PNG', 'dogs/1.webp', 'dogs/notes.txt'):
            path = self.data / 'photos' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(PICTURE)
        (self.data / 'coco.json').write_text(json.dumps({
            'images': [{'id': 1}, {'id': 2}, {'id': 3}], 'categories': [{'id': 7, 'name': 'dog'}, {'id': 8, 'name': 'cat'}],
            'annotations': [{'id': i, 'category_id': 7 + i % 2} for i in range(5)]}))
        self.apply(dataset('rows', self.data / 'rows.csv', 'csv'), dataset('lines', self.data / 'lines.jsonl', 'jsonl'),
                   dataset('voc', self.data / 'voc', 'voc'), dataset('photos', self.data / 'photos', 'imagefolder'),
                   dataset('coco', 'file://%s' % (self.data / 'coco.json'), 'coco'))
        rows = self.counted('rows', 1001, malformed=1, header='yes', node='edge0', bytes=(self.data / 'rows.csv').stat().st_size)
        self.assertEqual(rows['firstMalformed']['line'], 2002)
        self.counted('lines', 3, malformed=1)

        def classes(status):
            return {c['name']: c['count'] for c in status['classes']}
        self.assertEqual(classes(self.counted('voc', 2)), {'bird': 1, 'cat': 1, 'dog': 2})
        self.assertEqual(classes(self.counted('photos', 3)), {'cats': 2, 'dogs': 1})
        self.assertEqual(classes(self.counted('coco', 3)), {'cat': 2, 'dog': 3})

        # Changes in folders are noticed, and so are new subfolders.
        self.voc('3.xml', 'cat')
        (self.data / 'photos/birds').mkdir()
        (self.data / 'photos/birds/1.jpg').write_bytes(PICTURE)
        self.assertEqual(classes(self.counted('voc', 3)), {'bird': 1, 'cat': 2, 'dog': 2})
        self.assertEqual(classes(self.counted('photos', 4)), {'birds': 1, 'cats': 2, 'dogs': 1})

        # A deleted Dataset is no longer watched and leaves no trace on the node.
        records = self.varda.dir / 'nodes/edge0/data/datasets'
        m.wait_until('five records', lambda: len(list(records.iterdir())) == 5)
        self.varda.kubectl('delete', 'dataset.edgeai.io', '--all')
        m.wait_until('no report', lambda: not self.get('edgenode', 'edge0')['status'].get('datasets'))
        m.wait_until('no record', lambda: not list(records.iterdir()))

    def test_folder_of_text_files_is_one_dataset(self):
        code = self.data / 'code' / 'data'
        (code / 'more').mkdir(parents=True)
        (code / 'a.txt').write_text('1\n2\n')
        (code / 'more/b.txt').write_text('3\n')
        for ignored in ('notes.md', '.hidden.txt'):
            (code / ignored).write_text('1\n')
        self.voc('1.xml', 'dog')
        self.apply(dataset('folder', code, 'txt'), dataset('file', code / 'a.txt', 'txt'),
                   dataset('rows', code, 'csv'), dataset('xml', self.data / 'voc', 'xml'))
        self.counted('folder', 3)
        self.counted('file', 2)
        self.counted('rows', 0)
        self.counted('xml', 1)
        with open(code / 'a.txt', 'a') as f:
            f.write('4\n')
        self.counted('folder', 4)
        self.counted('file', 3)
        (code / 'c.txt').write_text('5\n')
        self.counted('folder', 5)
        (code / 'a.txt').unlink()
        self.counted('folder', 2)

    def test_count_follows_growth_rotation_and_replacement(self):
        log = self.data / 'log.txt'
        log.write_text('0\n')
        self.apply(dataset('log', log, 'txt'))
        first = self.counted('log', 1)
        with open(log, 'a') as f:
            seen = []
            for i in range(1, 3000):
                f.write('%d\n' % i)
                f.flush()
                if i % 100 == 0:
                    seen.append((self.status('log')['numberOfSamples'], i + 1))
        grown = self.counted('log', 3000)
        self.assertEqual(seen, sorted(seen))  # the count never decreases
        self.assertTrue(all(reported <= written for reported, written in seen), seen)
        self.assertNotEqual(grown['fingerprint'], first['fingerprint'])
        os.rename(log, self.data / 'log.txt.1')
        log.write_text('new\n')
        self.counted('log', 1)
        os.truncate(log, 0)
        self.counted('log', 0)
        (self.data / 'other').write_text('1\n2\n')
        os.rename(self.data / 'other', log)
        self.counted('log', 2)
        log.unlink()
        self.failed('log', 'PathNotFound')
        self.assertEqual(self.status('log')['numberOfSamples'], 2)  # the last known count
        log.write_text('1\n2\n3\n')
        self.counted('log', 3)

    def test_paths_outside_allowed_directories_are_not_read(self):
        outside = self.work / 'outside'
        outside.mkdir()
        (outside / 'secret.txt').write_text('1\n2\n')
        (self.data / 'link.txt').symlink_to(outside / 'secret.txt')
        (self.data / 'good.txt').write_text('1\n')
        self.apply(dataset('outside', outside / 'secret.txt', 'txt'), dataset('missing', outside / 'no such', 'txt'),
                   dataset('link', self.data / 'link.txt', 'txt'), dataset('up', '%s/../../outside/secret.txt' % self.data, 'txt'),
                   dataset('cloud', self.data / 'good.txt', 'txt', node='cloud'), dataset('wrong', self.data / 'nothing.txt', 'txt'),
                   dataset('kind', self.data, 'coco'))
        self.assertIn('below %s' % self.root, self.failed('outside', 'PathForbidden'))
        self.assertEqual(self.failed('missing', 'PathForbidden').replace('no such', 'secret.txt'), self.report('outside')['message'])
        self.failed('link', 'PathForbidden')
        self.failed('up', 'PathForbidden')
        self.assertIn('--dataset-root', self.failed('cloud', 'PathForbidden', node='cloud'))
        self.assertIn('nothing.txt', self.failed('wrong', 'PathNotFound'))
        self.assertIn('folder', self.failed('kind', 'FormatInvalid'))
        # A link to a file inside the folder is allowed. The agent follows it once it points there.
        (self.data / 'new').symlink_to('good.txt')
        os.rename(self.data / 'new', self.data / 'link.txt')
        self.counted('link', 1)

    # ---- kinds
    def table(self, *words):
        """Rows of `kubectl get`, split into columns."""
        out = self.varda.kubectl('get', *words).rstrip('\n').split('\n')
        return [[cell for cell in line.split('  ') if cell.strip()] for line in out]

    def test_both_groups_show_columns_conditions_and_models(self):
        (self.data / 'a.csv').write_text('name,age\nx,1\ny,2\n')
        sedna = {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': 'a'},
                 'spec': {'url': str(self.data / 'a.csv'), 'format': 'CSV', 'nodeName': 'edge0'}}
        self.apply(dataset('a', self.data / 'a.csv', 'csv'), sedna, dataset('records', '/x.tfrecord', 'tfrecord'), dataset('far', 's3://bucket/a', 'csv'),
                   dataset('nowhere', '/x', 'csv', node='line9'), dataset('homeless', '/x', 'csv', node=''))
        self.counted('a', 2)
        m.wait_until('2 samples in sedna.io', lambda: self.get('dataset.sedna.io', 'a').get('status', {}).get('numberOfSamples') == 2)
        for kind in ('dataset.edgeai.io', 'dataset.sedna.io'):
            head, row = self.table(kind, 'a')
            self.assertEqual([cell.strip() for cell in head], ['NAME', 'NUMBEROFSAMPLES', 'NODE', 'SPEC', 'AGE'])
            self.assertEqual([cell.strip() for cell in row[:3]], ['a', '2', 'edge0'])
            self.assertIn(str(self.data / 'a.csv'), row[3])
        for name, reason in (('records', 'FormatUnknown'), ('far', 'Unsupported'), ('nowhere', 'NodeUnknown'), ('homeless', 'NodeMissing')):
            condition = m.wait_until(reason, lambda: next((c for c in self.status(name).get('conditions', []) if c['reason'] == reason), None))
            self.assertEqual((condition['type'], condition['status']), ('Ready', 'False'))
        head, row = self.table('edgenode', 'edge0')
        self.assertEqual([cell.strip() for cell in head], ['NAME', 'CONNECTED', 'AGENT', 'MODELS', 'DATASETS', 'DISK', 'LASTSEEN', 'AGE'])
        self.assertEqual([cell.strip() for cell in (row[1], row[3], row[4])], ['True', '0/0', '2/2'])

        def model(group, url, name, accuracy):
            one = {'apiVersion': group + '/v1alpha1', 'kind': 'Model', 'metadata': {'name': name}, 'spec': {url: '/models/' + name, 'format': 'pb', 'task': 'detection'}}
            self.apply(one)
            path = '/apis/%s/v1alpha1/namespaces/default/models/%s' % (group, name)

            def put():  # a job and the operator both write this status
                live = json.loads(self.varda.kubectl('get', '--raw', path))
                live['status'] = dict(live.get('status', {}), updateTime='2024-05-01T12:00:00Z', metrics=[{'key': 'accuracy', 'value': accuracy}])
                return self.varda.kubectl('replace', '--raw', path + '/status', '-f', '-', input=json.dumps(live), check=False).returncode == 0
            m.wait_until('metrics of ' + name, put)
        model('edgeai.io', 'modelUrl', 'ours', '0.91')
        model('sedna.io', 'url', 'theirs', '0.95')
        head, row = self.table('model.sedna.io', 'theirs')
        self.assertEqual([cell.strip() for cell in head], ['NAME', 'UPDATEAGE', 'METRICS'])
        self.assertEqual(json.loads(row[2]), [{'key': 'accuracy', 'value': '0.95'}])
        names = self.varda.varda('models', 'ls', '--where', 'accuracy>=0.9', '--where', 'task=detection', '--sort-by', 'accuracy:desc', '-o', 'name')
        self.assertEqual(names.split(), ['model.sedna.io/theirs', 'model.edgeai.io/ours'])
        refused = self.varda.varda('models', 'ls', '--where', 'accuracy=>0.9', check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn('is not an operator', refused.stderr)

        # Deletion does not wait for a node that never existed.
        self.varda.kubectl('delete', 'dataset.edgeai.io', 'nowhere', '--timeout=%ds' % m.seconds(30))


class CutOff(Base):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.data = self.work / 'data'
        self.data.mkdir()
        self.varda = m.Machine(self.work / 'varda', nodes=['cloud=cloud', 'edge0=edge'])
        self.addCleanup(self.varda.close)

    def up(self):
        self.varda.up('--dataset-root', 'edge0=%s' % self.data)
        self.varda.nodes_ready()

    def agent(self, node='edge0'):
        found = [pid for pid, command in self.varda.processes().items() if ' agent ' in command and '--node %s ' % node in command]
        self.assertEqual(len(found), 1, self.varda.processes())
        return found[0]

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        m.wait_until('the end of %d' % pid, lambda: has_ended(pid))

    def start_again(self, command):
        """Starts an agent like a node's init after a reboot. The agent is started again if a dying
        agent still holds its directory."""
        init = Init(command, self.varda.dir / 'nodes/edge0')
        self.addCleanup(init.kill)
        return init

    def test_counts_made_without_a_link_are_reported_afterwards(self):
        for name in ('grows', 'goes', 'same', 'turns'):
            (self.data / name).write_text('1\n2\n3\n')
        self.up()
        self.apply(*[dataset(name, self.data / name, 'txt') for name in ('grows', 'goes', 'same', 'turns')])
        before = {name: self.counted(name, 3) for name in ('grows', 'goes', 'same', 'turns')}

        # The control plane dies, then the agent. No process sees the next changes.
        self.kill(json.loads((self.varda.dir / 'up.json').read_text())['pid'])
        agent = self.agent()
        command = pathlib.Path('/proc/%d/cmdline' % agent).read_text().split('\0')[:-1]
        self.kill(agent)
        with open(self.data / 'grows', 'a') as f:
            f.write('4\n')
        agent = self.start_again(command)

        def on_disk(name):
            for path in (self.varda.dir / 'nodes/edge0/data/datasets').glob('*.json'):
                record = json.loads(path.read_text())
                if record['dataset']['key'].endswith('/' + name):
                    return record['report']
            return {}
        m.wait_until('the count without a link', lambda: on_disk('grows').get('samples') == 4)
        agent.kill()
        with open(self.data / 'grows', 'a') as f:
            f.write('5\n')
        (self.data / 'goes').unlink()
        (self.data / 'turns').unlink()
        (self.data / 'turns').write_text('other\n')
        agent = self.start_again(command)
        m.wait_until('more counts without a link', lambda: (on_disk('grows').get('samples'), on_disk('turns').get('samples'),
                                                            on_disk('goes').get('reason')) == (5, 1, 'PathNotFound'))
        self.assertEqual(on_disk('same')['time'], before['same']['updateTime'])

        agent.leave()
        self.up()
        self.counted('grows', 5)
        self.counted('turns', 1)
        self.failed('goes', 'PathNotFound')
        # the file has not changed
        self.assertEqual(self.counted('same', 3)['updateTime'], before['same']['updateTime'])
        with open(self.data / 'grows', 'a') as f:
            f.write('6\n')
        self.counted('grows', 6)


if __name__ == '__main__':
    unittest.main()
