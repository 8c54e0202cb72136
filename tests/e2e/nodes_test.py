"""`varda up` with other nodes than before, and with a store of a newer format."""
import json, pathlib, shutil, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Nodes(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.varda = m.Machine(self.work / 'data', nodes=['cloud=cloud', 'edge0=edge', 'edge1=edge'])

    def tearDown(self):
        self.varda.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def names(self, kind):
        return [o['metadata']['name'] for o in self.varda.get(kind)['items']]

    def test_undeclared_node_is_removed_and_returns_when_declared(self):
        (self.work / 'www').mkdir()
        files = m.FileServer(self.work / 'www')
        self.addCleanup(files.stop)
        self.varda.up()
        entry = ('3', files.url('digits-3.tar.gz'), m.pack(self.varda, '3', self.work / 'www/digits-3.tar.gz'))
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('a', 'edge', [entry], '3', node='edge1')))
        self.varda.ready('a', '3')
        self.varda.down()
        files.stop()
        self.varda.nodes = ['cloud=cloud', 'edge0=edge']
        self.varda.up()
        m.wait_until('one node less', lambda: self.names('nodes') == self.names('edgenodes') == ['cloud', 'edge0'])
        m.wait_until('its pods gone', lambda: not self.varda.pods())
        m.wait_until('the reason', lambda: self.varda.condition('a', 'Ready').get('reason') == 'NodeNotFound')
        self.assertNotIn('url', self.varda.model('a')['status'])
        self.varda.down()
        self.varda.nodes.append('edge1=edge')
        self.varda.up()
        self.varda.ready('a', '3')  # installed from the node's disk
        # The agent starts the stored pod before it learns of the deletion. The new pod waits for
        # the port.
        self.assertEqual([c['restartCount'] for p in self.varda.pods() for c in p['status']['containerStatuses']], [0])

    def test_unreadable_store_is_kept_and_the_error_gives_advice(self):
        self.varda.up()
        self.varda.down()
        store = self.varda.dir / 'store.db'
        original = store.read_bytes()
        store.write_bytes(b'no database' * 1000)
        done = self.varda.run([m.VARDA, 'up', '--data-dir', self.varda.dir, '--listen', '127.0.0.1:0', '--detach'], check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(str(store), done.stderr)
        self.assertIn('move the file', done.stderr)
        self.assertEqual(store.read_bytes(), b'no database' * 1000)
        m.wait_until('the end of the program that reported it', lambda: not self.varda.processes())
        newer = bytearray(original)
        newer[60:64] = (99).to_bytes(4, 'big')  # PRAGMA user_version, in the header of the file
        store.write_bytes(bytes(newer))
        done = self.varda.run([m.VARDA, 'up', '--data-dir', self.varda.dir, '--listen', '127.0.0.1:0', '--detach'], check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('newer version', done.stderr)
        store.write_bytes(original)
        self.varda.up()


if __name__ == '__main__':
    unittest.main()
