"""Machine.get(), which asks the API server itself, returns the same objects as kubectl."""
import json, pathlib, sys, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402
import reader  # noqa: E402

MAPS = [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name, 'namespace': namespace, 'labels': {'tier': tier}}, 'data': {'k': name}}
        for name, namespace, tier in (('one', 'default', 'a'), ('two', 'default', 'b'), ('three', 'kube-system', 'a'))]


class Reads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.varda = m.Machine(nodes=['cloud=cloud', 'edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up()
        cls.varda.nodes_ready()
        cls.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': MAPS}))
        cls.varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('waits', 'edge', [('1', 'https://files.test/1.tar.gz', '0' * 64)], '1',
                                                                               node='nowhere')))

    def printed(self, *args):
        """The output of kubectl, without the empty metadata of its List."""
        printed = json.loads(self.varda.kubectl('get', *args, '-o', 'json'))
        if printed['kind'] == 'List':
            printed.pop('metadata')
        return printed

    def test_reader_returns_the_objects_of_kubectl(self):
        m.wait_until('a condition', lambda: self.varda.condition('waits', 'Ready'))
        for args in (['configmap', 'one'], ['cm', '-A'], ['-n', 'kube-system', 'cm', 'three'], ['configmaps', '-l', 'tier=a', '--all-namespaces'],
                     ['cm', '--selector', 'tier in (a, c)'], ['cm/two'], ['ns', 'default'], ['inferencemodel', 'waits'], ['inferencemodels'],
                     ['inferencemodel.ai.kubeedge.io'], ['model'], ['datasets.sedna.io'], ['deploy,svc'], ['jobs'], ['ConfigMap', 'one']):
            with self.subTest(' '.join(args)):
                self.assertEqual(self.varda.get(*args), self.printed(*args))
        both = self.varda.get('cm', 'one', 'two')['items']  # get() with two names runs kubectl
        self.assertEqual([o['metadata']['name'] for o in both], ['one', 'two'])
        # names only: the status changes all the time
        names = {o['metadata']['name'] for kind in ('nodes', 'edgenodes') for o in self.varda.get(kind)['items']}
        self.assertEqual(names, {'cloud', 'edge0'})

    def test_reader_fails_with_the_error_of_kubectl(self):
        for args in (['configmap', 'nothing'], ['nothings'], ['inferencemodel', 'x']):
            with self.subTest(' '.join(args)):
                done = self.varda.kubectl('get', *args, check=False)
                with self.assertRaises(m.Failed) as failed:
                    self.varda.get(*args)
                self.assertIn(done.stderr.strip(), str(failed.exception))

    def test_new_kind_is_found_after_its_crd_is_created(self):
        with self.assertRaises(m.Failed):
            self.varda.get('widgets')
        schema = {'openAPIV3Schema': {'type': 'object'}}
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({
            'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition', 'metadata': {'name': 'widgets.example.test'},
            'spec': {'group': 'example.test', 'scope': 'Cluster', 'names': {'plural': 'widgets', 'singular': 'widget', 'kind': 'Widget', 'shortNames': ['wi']},
                     'versions': [{'name': 'v1', 'served': True, 'storage': True, 'schema': schema}]}}))
        self.addCleanup(self.varda.kubectl, 'delete', 'crd', 'widgets.example.test')
        for name in ('widgets', 'widget', 'wi', 'widget.example.test'):
            self.assertEqual(m.wait_until(name, lambda: self.varda.get(name)), {'apiVersion': 'v1', 'kind': 'List', 'items': []})

    def test_reader_reconnects_to_a_restarted_control_plane(self):
        self.assertTrue(self.varda.get('cm', 'one'))
        self.varda.down()
        with self.assertRaises(m.Failed):
            self.varda.get('cm', 'one')
        self.varda.up()
        self.assertTrue(self.varda.get('cm', 'one'))
        # A server with another authority than the kubeconfig's is refused.
        text = pathlib.Path(self.varda.kubeconfig).read_text()
        other = m.Machine(self.varda.dir / 'other', nodes=['cloud=cloud'])
        self.addCleanup(other.close)
        other.up()
        server = text.split('server:')[1].split()[0]
        wrong = self.varda.dir / 'wrong'
        wrong.write_text(pathlib.Path(other.kubeconfig).read_text().replace(pathlib.Path(other.kubeconfig).read_text().split('server:')[1].split()[0], server))
        with self.assertRaisesRegex(OSError, 'CERTIFICATE_VERIFY_FAILED'):
            reader.Reader(wrong).get('cm')

    def test_threads_do_not_share_a_connection(self):
        wrong = []

        def work(name):
            for _ in range(20):
                if (found := self.varda.get('cm', name)['data']) != {'k': name}:
                    wrong.append((name, found))
        threads = [threading.Thread(target=work, args=(name,)) for name in ('one', 'two') * 3]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


if __name__ == '__main__':
    unittest.main()
