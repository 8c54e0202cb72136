"""One model on one machine: the users' tasks with an InferenceModel, with real processes and a real
kubectl."""
import json, os, pathlib, shutil, signal, ssl, sys, tempfile, time, unittest, urllib.error, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge', 'edge1=edge'])
        cls.varda.up()
        cls.varda.nodes_ready()
        cls.entries = []
        for v in ('3', '4'):
            out = cls.work / 'www' / ('digits-%s.tar.gz' % v)
            cls.entries.append((v, cls.files.url(out.name), m.pack(cls.varda, v, out)))
        shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
        size = shape[1] * shape[2]
        cls.images = [pixels[i * size:(i + 1) * size] for i in range(50)]

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.stop()
        shutil.rmtree(cls.work, ignore_errors=True)

    def tearDown(self):
        if any(e for _, e in getattr(getattr(self, '_outcome', None), 'errors', []) or []):
            self.varda.show_logs()
        self.varda.kubectl('delete', 'inferencemodels', '--all', check=False)
        m.wait_until('pods of the test gone', lambda: not self.varda.pods(), 180)

    def apply(self, *args, **kw):
        manifest = m.inference_model(*args, **kw)
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(manifest))
        return manifest

    def version_of(self, name, model=None):
        url = self.varda.model(name)['status']['url']
        c = m.Client(url, model or name, self.images)
        c.prepare()
        self.assertTrue(c.one(), c.samples)
        return c.samples[0][3]

    def reason(self, name, text):
        return m.wait_until('%s in a condition of %s' % (text, name), lambda: [
            c for c in self.varda.model(name).get('status', {}).get('conditions', []) if c.get('reason') == text])[0]

    def test_edge_model_answers_as_soon_as_its_url_appears(self):
        self.apply('a', 'edge', self.entries, '3', node='edge0')

        def first_url():
            s = self.varda.model('a').get('status', {})
            return s.get('url') and s
        status = m.wait_until('a url', first_url)
        # The first request succeeds at once, without a retry.
        c = m.Client(status['url'], 'a', self.images)
        c.prepare()
        self.assertTrue(c.one(), c.samples)
        self.assertEqual(self.varda.ready('a', '3')['status']['node'], 'edge0')

    def test_version_switches_without_a_failed_request_or_new_pod(self):
        self.apply('b', 'edge', self.entries, '3', node='edge0')
        url = self.varda.ready('b', '3')['status']['url']
        uid = self.varda.pods()[0]['metadata']['uid']
        load = m.Load(url, 'b', self.images)
        for target in ('4', '3', '4'):
            self.varda.kubectl('patch', 'inferencemodel', 'b', '--type=merge', '-p', json.dumps({'spec': {'targetVersion': target}}))
            self.varda.ready('b', target)
            load.answered(target)
        samples = load.stop()
        self.assertEqual(m.failures(samples), [])
        self.assertEqual(self.varda.pods()[0]['metadata']['uid'], uid)

    def test_cloud_rollout_to_another_version_fails_no_request(self):
        self.apply('c', 'cloud', self.entries, '3', replicas=2)
        url = self.varda.ready('c', '3')['status']['url']
        load = m.Load(url, 'c', self.images)
        self.varda.kubectl('patch', 'inferencemodel', 'c', '--type=merge', '-p', '{"spec":{"targetVersion":"4"}}')
        self.varda.ready('c', '4', timeout=300)
        load.answered('4')  # connections to the old pods get answers there until those drain
        samples = load.stop()
        self.assertEqual(m.failures(samples), [])

    def test_wrong_digest_leaves_the_old_version_serving(self):
        self.apply('d', 'edge', self.entries, '3', node='edge0')
        self.varda.ready('d', '3')
        self.apply('d', 'edge', self.entries + [('5', self.entries[0][1], 'c' * 64)], '5', node='edge0')
        condition = self.reason('d', 'DigestMismatch')
        self.assertIn('c' * 64, condition['message'])
        self.assertIn(self.entries[0][2], condition['message'])
        self.assertEqual(self.version_of('d'), '3')
        self.assertEqual(self.varda.model('d')['status']['servingVersion'], '3')
        self.apply('d', 'edge', self.entries, '3', node='edge0')
        m.wait_until('the condition to clear', lambda: 'DigestMismatch' not in json.dumps(self.varda.model('d')['status']['conditions']))

    def broken(self):
        """A version that no server can load, as an argument of apply()."""
        broken = self.work / 'broken'
        broken.mkdir(exist_ok=True)
        (broken / 'model.onnx').write_bytes(b'this is no model')
        out = self.work / 'www/broken.tar.gz'
        text = self.varda.varda('pack', broken, '--version-name', '6', '-o', out)
        sha = [w for line in text.splitlines() if 'sha256sum' in line for w in [line.split('sha256sum:')[1].split(',')[0].strip(" '\"}")]][0]
        return '6', self.files.url(out.name), sha

    def test_edge_version_that_does_not_load_keeps_the_old_one_serving(self):
        self.apply('e', 'edge', self.entries, '4', node='edge0')
        self.varda.ready('e', '4')
        self.apply('e', 'edge', self.entries + [self.broken()], '6', node='edge0')
        self.reason('e', 'LoadFailed')
        self.assertEqual(self.version_of('e'), '4')
        self.apply('e', 'edge', self.entries, '4', node='edge0')
        m.wait_until('the condition to clear', lambda: 'LoadFailed' not in json.dumps(self.varda.model('e')['status']['conditions']))

    def test_cloud_version_that_does_not_load_keeps_the_old_one_serving(self):
        self.apply('h', 'cloud', self.entries, '4')
        self.varda.ready('h', '4')
        self.apply('h', 'cloud', self.entries + [self.broken()], '6')
        self.assertIn('version 6: it is not an ONNX file', self.reason('h', 'LoadFailed')['message'])
        self.assertEqual(self.version_of('h'), '4')
        self.assertIn('LoadFailed', self.varda.kubectl('get', 'inferencemodel', 'h', '--no-headers').split())
        self.assertIn('and not version 6 (LoadFailed', self.varda.varda('doctor', check=False).stdout)

    def test_missing_secret_of_a_cloud_model_is_reported(self):
        self.apply('k', 'cloud', self.entries, '3')
        self.varda.ready('k', '3')
        version, url, sha = self.entries[1]
        entry = {'version': version, 'downloadURL': url, 'sha256sum': sha, 'credentials': {'secretName': 'nothing'}}
        self.varda.kubectl('patch', 'inferencemodel', 'k', '--type=merge', '-p', json.dumps({'spec': {'manifest': [entry], 'targetVersion': version}}))
        self.assertIn('Secret nothing', self.reason('k', 'CredentialsMissing')['message'])

    def test_second_model_on_a_used_port_names_the_owner(self):
        self.apply('f1', 'edge', self.entries, '3', node='edge0', port=8090)
        self.varda.ready('f1', '3')
        self.apply('f2', 'edge', self.entries, '3', node='edge0', port=8090)
        self.assertIn('f1', self.reason('f2', 'PortInUse')['message'])
        self.varda.kubectl('delete', 'inferencemodel', 'f1')
        self.varda.ready('f2', '3')

    def test_model_moves_between_nodes_and_layers(self):
        self.apply('g', 'edge', self.entries, '3', node='edge0')
        first = self.varda.ready('g', '3')['status']['url']
        self.apply('g', 'edge', self.entries, '3', node='edge1')
        m.wait_until('g on edge1', lambda: self.varda.model('g')['status'].get('node') == 'edge1' and self.varda.ready('g', '3'))
        self.assertNotEqual(self.varda.model('g')['status']['url'], first)
        m.wait_until('files gone from edge0', lambda: not list((self.work / 'data/nodes/edge0/data/models').glob('*/g')))
        self.varda.kubectl('patch', 'inferencemodel', 'g', '--type=merge', '-p', '{"spec":{"deployToLayer":"cloud","nodeName":null}}')
        m.wait_until('a deployment', lambda: self.varda.get('deployments')['items'])
        self.varda.ready('g', '3')
        self.assertEqual(self.version_of('g'), '3')
        m.wait_until('files gone from edge1', lambda: not list((self.work / 'data/nodes/edge1/data/models').glob('*/g')))

    def test_replicas_zero_stops_serving_and_keeps_the_files(self):
        self.apply('h', 'edge', self.entries, '3', node='edge0')
        self.varda.ready('h', '3')
        self.varda.kubectl('scale', 'inferencemodel', 'h', '--replicas=0')
        m.wait_until('no pod', lambda: not self.varda.pods())
        self.assertTrue(list((self.work / 'data/nodes/edge0/data/models').glob('*/h/3')))
        m.wait_until('no url', lambda: not self.varda.model('h')['status'].get('url'))
        self.varda.kubectl('scale', 'inferencemodel', 'h', '--replicas=1')
        self.varda.ready('h', '3')

    def test_invalid_specs_are_refused_with_the_field_named(self):
        good = m.inference_model('bad', 'edge', self.entries, '3', node='edge0')
        cases = [({'targetVersion': '9'}, 'targetVersion'), ({'deployToLayer': 'moon'}, 'deployToLayer'), ({'servingPort': 70000}, 'servingPort'),
                 ({'replicas': 2}, 'replicas'), ({'manifest': []}, 'manifest'),
                 ({'manifest': [{'version': '3', 'downloadURL': 'gopher://x', 'sha256sum': 'a' * 64}]}, 'downloadURL'),
                 ({'manifest': [{'version': '3', 'downloadURL': 'http://x/y', 'sha256sum': 'A' * 64}]}, 'sha256sum'),
                 ({'manifest': [{'version': '../3', 'downloadURL': 'http://x/y', 'sha256sum': 'a' * 64}], 'targetVersion': '../3'}, 'version')]
        for change, field in cases:
            spec = dict(good['spec'], **change)
            done = self.varda.kubectl('apply', '-f', '-', input=json.dumps(dict(good, spec=spec)), check=False)
            self.assertNotEqual(done.returncode, 0, change)
            self.assertIn(field, done.stderr)
        self.assertEqual(self.varda.get('inferencemodels')['items'], [])

    def test_unknown_node_is_reported_and_a_corrected_name_serves(self):
        self.apply('i', 'edge', self.entries, '3', node='edge9')
        self.reason('i', 'NodeNotFound')
        self.apply('i', 'edge', self.entries, '3', node='edge1')
        self.varda.ready('i', '3')

    def test_unsupported_image_is_reported_by_the_pod(self):
        self.apply('j', 'edge', self.entries, 'ignored', node='edge0', image='nobody/has-this:1', port=8100)
        m.wait_until('the pod says why', lambda: [p for p in self.varda.pods() for c in p['status'].get('containerStatuses', [])
                                                  if c.get('state', {}).get('waiting', {}).get('reason') == 'ImageUnsupported'])
        self.assertFalse(self.varda.model('j')['status'].get('url'))

    def test_closed_port_requires_tls_and_a_token(self):
        folder = self.work / 'tls'
        folder.mkdir()
        m.self_signed(folder)
        self.varda.kubectl('create', 'secret', 'tls', 'digits-tls', '--cert', folder / 'tls.crt', '--key', folder / 'tls.key')
        self.varda.kubectl('create', 'secret', 'generic', 'digits-token', '--from-literal=token=let-me-in')
        security = {'tlsSecretName': 'digits-tls', 'tokenSecretName': 'digits-token'}
        self.apply('at-edge', 'edge', self.entries, '3', node='edge0', port=8443, security=security)
        self.apply('in-cloud', 'cloud', self.entries, '3', port=8444, security=security)
        context = ssl.create_default_context(cafile=str(folder / 'tls.crt'))
        context.check_hostname = False  # the exact 127.x.y.z address is known only later
        trusting = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))

        def status(url, token=None):
            request = urllib.request.Request(url, headers={'Authorization': 'Bearer ' + token} if token else {})
            try:
                with trusting.open(request, timeout=m.seconds(60)) as answer:
                    return answer.status
            except urllib.error.HTTPError as e:
                return e.code
        for name in ('at-edge', 'in-cloud'):
            url = self.varda.ready(name, '3')['status']['url']
            self.assertTrue(url.startswith('https://127.'), url)
            about = url + '/v2/models/' + self.varda.model(name)['spec']['modelName']
            self.assertEqual([status(about), status(about, 'wrong'), status(about, 'let-me-in')], [401, 401, 200])
        # The agent still notices a switch of versions, without a token.
        self.apply('at-edge', 'edge', self.entries, '4', node='edge0', port=8443, security=security)
        self.varda.ready('at-edge', '4')

    def test_killed_model_server_restarts(self):
        self.apply('k', 'edge', self.entries, '4', node='edge0')
        self.varda.ready('k', '4')
        pid = int(self.varda.pods()[0]['status']['containerStatuses'][0]['containerID'].split('://')[1].split('-')[0])
        os.kill(pid, signal.SIGKILL)
        m.wait_until('a restart', lambda: self.varda.pods()[0]['status']['containerStatuses'][0]['restartCount'] > 0)
        self.varda.ready('k', '4')
        m.wait_until('an answer', lambda: self.version_of('k') == '4')

    def test_idle_cluster_writes_only_disk_figures(self):
        self.apply('l', 'edge', self.entries, '4', node='edge0')
        self.apply('l-cloud', 'cloud', self.entries, '4')
        self.varda.ready('l', '4')
        self.varda.ready('l-cloud', '4')

        def revision():
            return int(self.varda.reader.read('/api/v1/namespaces?limit=1')['metadata']['resourceVersion'])

        def objects():
            """Every object that our programs write, except figures of a node's disk, which other
            programs change."""
            kinds = 'nodes,edgenodes,inferencemodels,deployments,pods,services,endpoints,events,leases'
            seen = {}
            for one in json.loads(self.varda.kubectl('get', '-A', kinds, '-o', 'json'))['items']:
                version = one['metadata'].pop('resourceVersion')
                if one['kind'] == 'EdgeNode':
                    one.get('status', {}).pop('disk', None)
                    one.get('status', {}).get('summary', {}).pop('disk', None)
                seen['%s %s/%s' % (one['kind'], one['metadata'].get('namespace', ''), one['metadata']['name'])] = (version, one)
            return seen
        # The last events and reports follow Ready; a pause shows that they are written. A program
        # that keeps writing gives no pause, or a write in the count.
        m.wait_until('two seconds without a write', lambda: (lambda a: time.sleep(2) or revision() == a)(revision()))

        def state():
            """The objects and their revision."""
            while True:
                before, seen = revision(), objects()
                if revision() == before:
                    return seen, before
        first, before = state()
        time.sleep(15)
        last, after = state()
        writes = after - before
        changed = [name for name in first.keys() | last.keys() if first.get(name) != last.get(name)]
        disks = [name for name in changed if name in first and name in last and first[name][1] == last[name][1]]
        self.assertEqual(sorted(set(changed) - set(disks)), [])
        self.assertEqual(writes, len(disks), 'each write is of a disk')


if __name__ == '__main__':
    unittest.main()
