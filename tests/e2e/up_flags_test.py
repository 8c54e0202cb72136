"""The flags that `varda up` remembers and refuses, its ready message, and models that other
machines can reach."""
import http.client, json, os, pathlib, shutil, socket, subprocess, sys, tempfile, unittest, urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

OUTSIDE = '127.77.0.9'  # a loopback address that no node draws, in place of a network address


class UpFlags(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.varda = m.Machine(self.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])

    def tearDown(self):
        self.varda.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def refused(self, *flags, env=None):
        """The error output of `varda up` with these flags."""
        listen = () if '--listen' in flags else ('--listen', '127.0.0.1:0')
        done = subprocess.run([m.VARDA, 'up', *listen, *map(str, flags)], capture_output=True, text=True,
                              env=env or dict(os.environ, HOME=str(self.work)), timeout=m.seconds(60))
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr.splitlines()[-1]

    def agent(self, node):
        return [command for command in self.varda.processes().values() if ' agent --node %s ' % node in command]

    def apply_models(self):
        """A model in each layer, from files on this machine."""
        (self.work / 'www').mkdir()
        files = m.FileServer(self.work / 'www')
        self.addCleanup(files.stop)
        entry = ('3', files.url('digits-3.tar.gz'), m.pack(self.varda, '3', self.work / 'www/digits-3.tar.gz'))
        for layer, node in (('edge', 'edge0'), ('cloud', None)):
            model = m.inference_model('digits-' + layer, layer, [entry], '3', node=node)
            self.varda.kubectl('apply', '-f', '-', input=json.dumps(model))

    def models_answer_at(self, host):
        for layer in ('edge', 'cloud'):
            url = urllib.parse.urlsplit(self.varda.ready('digits-' + layer, '3')['status']['url'])
            self.assertEqual(url.netloc, '%s:%d' % (host, url.port))

            def answers():
                connection = http.client.HTTPConnection(url.hostname, url.port, timeout=m.REQUEST_SECONDS)
                connection.request('GET', '/v2/models/digits-%s/ready' % layer)
                return connection.getresponse().status == 200
            m.wait_until('the %s model at %s' % (layer, url.netloc), answers)

    def test_models_answer_at_the_machine_address_also_after_a_restart(self):
        self.varda.up('--address', OUTSIDE)
        self.apply_models()
        for start in ('first', 'next'):
            with self.subTest(start=start):
                self.models_answer_at(OUTSIDE)
            self.varda.down()
            self.varda.up()
        self.varda.down()
        self.varda.up('--address', 'off')
        m.wait_until('loopback again', lambda: {urllib.parse.urlsplit(self.varda.ready('digits-' + layer, '3')['status']['url']).hostname
                                                for layer in ('edge', 'cloud')}.isdisjoint({OUTSIDE}))

    def test_models_answer_at_an_ipv6_address(self):
        self.varda.up('--address', '::1')
        self.apply_models()
        self.models_answer_at('[::1]')
        self.varda.down()
        self.varda.up('--address', '[::1]')  # as in a URL
        self.models_answer_at('[::1]')

    def test_address_must_belong_to_this_machine(self):
        said = self.refused('--data-dir', self.varda.dir, '--address', '0.0.0.0')
        self.assertTrue(said.startswith('error: --address: 0.0.0.0 is not an address that clients can connect to'), said)
        said = self.refused('--data-dir', self.varda.dir, '--address', '192.0.2.77')
        self.assertTrue(said.startswith('error: --address: 192.0.2.77 is not an address of this machine; this machine has '), said)
        said = self.refused('--data-dir', self.varda.dir, '--address', 'edge7=127.0.0.1')
        self.assertIn('there is no node "edge7"', said)

    def test_dataset_roots_are_remembered_until_switched_off(self):
        self.varda.up('--dataset-root', 'edge0=/srv/a', '--dataset-root', '/srv/b')
        for flags, edge, cloud in ((), True, True), (('--dataset-root', 'off'), False, False), ((), False, False):
            self.varda.down()
            self.varda.up(*flags)
            for node, directory, wanted in (('edge0', '/srv/a', edge), ('edge0', '/srv/b', edge), ('cloud', '/srv/b', cloud)):
                with self.subTest(flags=flags, node=node, directory=directory):
                    self.assertEqual([' --dataset-root %s' % directory in c for c in self.agent(node)], [wanted])
            self.assertFalse(any('/srv/a' in c for c in self.agent('cloud')))

    def test_up_is_ready_once_all_nodes_are_ready(self):
        for _ in range(2):  # the second start finds the nodes of the first in the store
            self.varda.up()
            conditions = {(kind, o['metadata']['name'], c['status']) for kind, type in (('nodes', 'Ready'), ('edgenodes', 'Connected'))
                          for o in self.varda.get(kind)['items'] for c in o['status']['conditions'] if c['type'] == type}
            self.assertEqual(conditions, {(kind, name, 'True') for kind in ('nodes', 'edgenodes') for name in ('cloud', 'edge0')})
            self.varda.down()

    def test_missing_home_asks_for_a_data_directory(self):
        environment = {'PATH': os.environ['PATH']}
        self.assertEqual(self.refused(env=environment),
                         'error: neither $HOME nor $XDG_DATA_HOME is set: name a directory with --data-dir')

    def test_used_port_is_named_with_a_remedy(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            address = '127.0.0.1:%d' % taken.getsockname()[1]
            said = self.refused('--data-dir', self.varda.dir, '--listen', address)
        self.assertRegex(said, r'^error: --listen %s: .*Address already in use; --listen 127\.0\.0\.1:0 takes any free port$' % address)


if __name__ == '__main__':
    unittest.main()
