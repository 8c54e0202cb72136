"""A node joins through the gateway with a token, a key and a certificate, with the real programs.
Requests that must be refused are included."""
import base64, contextlib, http.client, json, os, pathlib, random, resource, shutil, signal, ssl, subprocess, sys, tempfile, unittest, unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Enrolment(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.varda = m.Machine(self.work / 'data', nodes=['cloud=cloud'])
        self.agents = []
        self.gateway = self.start(self.varda)

    def tearDown(self):
        for agent in self.agents:
            self.end(agent)
        self.varda.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def start(self, machine):
        """Starts `varda up` with a gateway; returns the gateway's URL."""
        line = machine.up('--gateway', '127.0.0.1:0')
        return line.split('gateway ')[1].split(',')[0].strip()

    def token(self, node, *flags):
        path = self.work / ('token-%s-%d' % (node, random.getrandbits(40)))
        self.assertEqual(self.varda.varda('join-token', '--node', node, '-o', str(path), *flags), '')
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        return path, path.read_text().strip()

    def agent(self, node, token=None, gateway=None, data=None):
        data = data or self.work / node
        log = open(self.work / ('agent-%s.log' % node), 'ab')
        command = [m.VARDA, 'agent', *m.LOOPBACK, '--node', node, '--gateway', gateway or self.gateway, '--data-dir', str(data), '--runner', 'process']
        if token:
            command += ['--join-token-file', str(token)]
        environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        log.close()
        self.agents.append(process)
        return process

    def end(self, agent, how=signal.SIGTERM):
        with contextlib.suppress(ProcessLookupError):
            agent.send_signal(how)
        try:
            return agent.wait(60)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()
            raise

    def log(self, node):
        return (self.work / ('agent-%s.log' % node)).read_text(errors='replace')

    def connected(self, node):
        item = self.varda.get('edgenode', node)
        return {c['type']: c['status'] for c in item.get('status', {}).get('conditions', [])}.get('Connected')

    def wait_connected(self, node):
        m.wait_until('%s connected' % node, lambda: self.connected(node) == 'True')

    def wait_cut_off(self, node):
        m.wait_until('%s cut off' % node, lambda: self.connected(node) in ('False', 'Unknown'))

    def post(self, path, body, identity=None, method='POST'):
        context = ssl.create_default_context(cafile=str(self.varda.dir / 'pki/ca.crt'))
        if identity:
            context.load_cert_chain(str(identity / 'cert.pem'), str(identity / 'key.pem'))
        host = self.gateway.split('//')[1]
        connection = http.client.HTTPSConnection(host, timeout=m.seconds(60), context=context)
        connection.request(method, path, body=body, headers={'Content-Type': 'application/json'})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text)

    def csr(self, name='line7', subject='/CN=line7'):
        key = self.work / (name + '.key')
        subprocess.run(['openssl', 'ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', str(key)], check=True, capture_output=True)
        return subprocess.run(['openssl', 'req', '-new', '-key', str(key), '-subj', subject], check=True, capture_output=True, text=True).stdout

    def test_removed_node_leaves_no_objects(self):
        path, _ = self.token('line7')
        agent = self.agent('line7', path)
        self.wait_connected('line7')
        self.end(agent)
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(
            {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'busy', 'namespace': 'default'},
             'spec': {'nodeName': 'line7', 'containers': [{'name': 'c', 'image': 'i'}]}}))
        refused = self.varda.varda('node', 'remove', 'line7', check=False)
        self.assertIn('1 pod is bound to node "line7" (default/busy); nothing was removed; --yes', refused.stderr)
        removed = self.varda.varda('node', 'remove', 'line7', '--yes')
        self.assertEqual(removed.splitlines(), ['node line7: %s' % step for step in ('key forgotten', 'EdgeNode deleted', 'Lease deleted', 'Node deleted')])
        for kind in ('node', 'edgenode'):
            self.assertIn('not found', self.varda.varda('get', kind, 'line7', check=False).stderr)
        self.assertIn('there is no node "line7"', self.varda.varda('node', 'remove', 'line7', check=False).stderr)

    def test_token_for_a_network_is_refused_from_another_network(self):
        for network, status in (('192.0.2.0/24', 403), ('127.0.0.0/8', 200)):
            _, token = self.token('line7', '--from', 'fd00:1::/32', '--from', network)
            body = json.dumps({'token': token, 'csr': self.csr()})
            self.assertEqual(self.post('/gateway/v1/enroll', body)[0], status, network)
        self.assertIn('fd00:1::/32,192.0.2.0/24', self.varda.varda('join-token', '--list'))
        logs = ''.join(f.read_text(errors='replace') for f in self.varda.dir.glob('logs/*'))
        self.assertIn('from another network', logs)
        wrong = subprocess.run([m.VARDA, 'join-token', '--node', 'line8', '--from', '10.0.0.0/33', '--kubeconfig', self.varda.kubeconfig],
                               capture_output=True, text=True, timeout=m.seconds(60))
        self.assertIn('--from 10.0.0.0/33: must be a network', wrong.stderr)

    def test_node_joins_once_and_then_needs_no_token(self):
        path, token = self.token('line7')
        self.assertRegex(token, r'^varda-join\.[0-9a-f]{12}\.[0-9a-f]{64}\.[0-9a-f]{64}$')
        agent = self.agent('line7', path)
        self.wait_connected('line7')
        secret = token.split('.')[2]
        identity = self.work / 'line7/identity'
        self.assertEqual(identity.stat().st_mode & 0o777, 0o700)
        self.assertEqual({f.name: f.stat().st_mode & 0o777 for f in identity.iterdir()}, {'key.pem': 0o600, 'cert.pem': 0o600, 'ca.pem': 0o600})
        for place in ('cmdline', 'environ'):
            self.assertNotIn(secret, pathlib.Path('/proc/%d/%s' % (agent.pid, place)).read_text(errors='replace'))
        subject = subprocess.run(['openssl', 'x509', '-noout', '-subject', '-in', str(identity / 'cert.pem')], check=True, capture_output=True, text=True).stdout
        self.assertRegex(subject.replace(' ', ''), r'O=system:nodes,OU=edge,CN=line7')
        self.assertIn('used', self.varda.varda('join-token', '--list'))
        before = (identity / 'cert.pem').read_text()

        self.end(agent, signal.SIGKILL)
        path.unlink()
        agent = self.agent('line7')
        m.wait_until('the second start', lambda: self.log('line7').count('agent started') == 2)
        self.wait_connected('line7')
        self.assertEqual(self.log('line7').count('enrolled'), 1)
        self.assertEqual((identity / 'cert.pem').read_text(), before)
        # The secret is stored only where it was made.
        logs = self.log('line7') + ''.join(f.read_text(errors='replace') for f in self.varda.dir.glob('logs/*'))
        self.assertNotIn(secret, logs)
        stored = self.varda.varda('get', 'secrets', '-n', 'varda-system', '-o', 'json')
        self.assertNotIn(secret, stored)
        # The same token is refused for another key. The message names the remedy.
        path.write_text(token)
        path.chmod(0o600)
        other = self.agent('line7', path, data=self.work / 'thief')
        self.assertNotEqual(other.wait(120), 0)
        self.assertIn('varda join-token --node line7', self.log('line7'))
        self.assertFalse((self.work / 'thief/identity/cert.pem').exists())
        self.assertIn('used by another key', ''.join(f.read_text(errors='replace') for f in self.varda.dir.glob('logs/*')))
        self.assertEqual(self.end(agent), 0)

    def test_edge_node_cannot_act_as_a_cloud_node(self):
        _, token = self.token('evil')
        csr = self.csr('evil', '/CN=evil')
        status, answer = self.post('/gateway/v1/enroll', json.dumps({'token': token, 'csr': csr}))
        self.assertEqual(status, 200, answer)
        identity = self.work / 'evil-identity'
        identity.mkdir()
        (identity / 'cert.pem').write_text(answer['certificate'])
        shutil.copy(self.work / 'evil.key', identity / 'key.pem')

        def request(path, body=None, method='POST'):
            return self.post(path, json.dumps(body) if body else None, identity, method)

        def node(labels):
            return {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'evil', 'labels': labels}}
        edge_node = {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'EdgeNode', 'metadata': {'name': 'evil'}, 'spec': {}}
        self.assertEqual(request('/apis/edgeai.io/v1alpha1/edgenodes', edge_node)[0], 201)
        status, answer = request('/api/v1/nodes', node({'edgeai.io/layer': 'cloud'}))
        self.assertEqual(status, 403)
        self.assertIn('admitted to the layer edge', answer['message'])
        self.assertEqual(request('/api/v1/nodes', node({}))[0], 201)

        # The node is as ready as any other. Its identity reads fewer pods than any other.
        context = ssl.create_default_context(cafile=str(self.varda.dir / 'pki/ca.crt'))
        context.load_cert_chain(str(identity / 'cert.pem'), str(identity / 'key.pem'))
        watch = http.client.HTTPSConnection(self.gateway.split('//')[1], timeout=m.seconds(60), context=context)
        self.addCleanup(watch.close)

        def ready():
            watch.close()
            watch.request('GET', '/apis/edgeai.io/v1alpha1/edgenodes?watch=1&fieldSelector=metadata.name%3Devil')
            watch.getresponse()
            item = self.varda.get('node', 'evil')
            taints = [t['key'] for t in item['spec'].get('taints', [])]
            return {c['type']: c['status'] for c in item['status'].get('conditions', [])}.get('Ready') == 'True' and \
                taints == ['node-role.kubernetes.io/edge']
        m.wait_until('the node is ready', ready)
        self.varda.kubectl('create', 'secret', 'generic', 'files', '--from-literal=password=x')
        deployment = {'apiVersion': 'apps/v1', 'kind': 'Deployment', 'metadata': {'name': 'web'},
                      'spec': {'replicas': 3, 'selector': {'matchLabels': {'app': 'web'}},
                               'template': {'metadata': {'labels': {'app': 'web'}},
                                            'spec': {'containers': [{'name': 'c', 'image': 'web',
                                                                     'envFrom': [{'secretRef': {'name': 'files'}}]}]}}}}
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(deployment))
        nodes = m.wait_until('the pods are bound', lambda: [n for n in [[p['spec'].get('nodeName') for p in self.varda.pods()]] if len(n) == 3 and all(n)])
        self.assertEqual(nodes, [['cloud'] * 3])
        # A pod that tolerates the taint is bound there. The Secret stays unreadable.
        pod = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'lured'}, 'spec': dict(deployment['spec']['template']['spec'], nodeName='evil')}
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(pod))
        path = '/api/v1/namespaces/default/secrets/files'
        status, answer = m.wait_until('the gateway knows of the pod', lambda: [a for a in [request(path, method='GET')] if 'edge-secrets' in a[1]['message']])[0]
        self.assertEqual(status, 403, answer)
        self.varda.kubectl('label', 'namespace', 'default', 'edgeai.io/edge-secrets=allow')
        self.assertEqual(request(path, method='GET')[0], 200)

    def test_agent_killed_during_enrolment_joins_with_the_same_token(self):
        path, _ = self.token('line8')
        chance = random.Random(8)
        for _ in range(8):
            agent = self.agent('line8', path)
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(chance.uniform(0, 0.3))
            self.assertEqual(self.end(agent, signal.SIGKILL), -signal.SIGKILL)
        self.agent('line8', path)
        self.wait_connected('line8')

    def test_up_passes_proxy_settings_on_and_raises_the_file_limit(self):
        ca = self.work / 'ca.pem'
        shutil.copy(self.varda.dir / 'pki/ca.crt', ca)
        with m.Machine(self.work / 'other', nodes=['cloud=cloud']) as other:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            low = min(soft, 1024)
            with unittest.mock.patch.dict(os.environ, {'http_proxy': 'http://user:word-of-a-proxy@127.0.0.1:9'}):
                resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
                try:
                    other.up('--gateway', '127.0.0.1:0', '--https-proxy', 'http://127.0.0.1:10', '--no-proxy', '', '--ca-file', os.path.relpath(ca))
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            agent = m.wait_until('the agent', lambda: json.loads((other.dir / 'nodes/cloud/agent.json').read_text()))
            arguments = pathlib.Path('/proc/%d/cmdline' % agent['pid']).read_text().split('\0')
            for flag, value in (('--https-proxy', 'http://127.0.0.1:10'), ('--no-proxy', ''), ('--ca-file', str(ca))):
                self.assertEqual(arguments[arguments.index(flag) + 1], value)
            self.assertIn('http_proxy=http://user:word-of-a-proxy@127.0.0.1:9', pathlib.Path('/proc/%d/environ' % agent['pid']).read_text().split('\0'))
            self.assertNotIn('word-of-a-proxy', (other.dir / 'nodes/cloud/agent.json').read_text())
            limits = pathlib.Path('/proc/%d/limits' % json.loads((other.dir / 'up.json').read_text())['pid']).read_text()
            room = int(next(line for line in limits.splitlines() if line.startswith('Max open files')).split()[3])
            self.assertGreaterEqual(room, min(hard, 20512) if hard != resource.RLIM_INFINITY else 20512)
            m.wait_until('its agent connected', lambda: other.get('edgenode', 'cloud')['status']['conditions'])

    def test_invalid_tokens_and_requests_are_refused(self):
        # A revoked token is refused. No token is made for an output file that exists already.
        path, token = self.token('line7')
        refused = self.varda.varda('join-token', '--node', 'line7', '-o', str(path), check=False)
        self.assertIn('exists already', refused.stderr)
        self.assertEqual(path.read_text().strip(), token)
        self.assertEqual(self.varda.varda('join-token', '--list').count('line7'), 1)
        self.varda.varda('join-token', '--revoke', token.split('.')[1])
        self.assertIn('revoked', self.varda.varda('join-token', '--list'))
        self.assertNotEqual(self.agent('line7', path).wait(120), 0)

        # The token is for another node.
        path, _ = self.token('line9')
        self.assertNotEqual(self.agent('line7', path, data=self.work / 'wrong').wait(120), 0)
        self.assertIn('is for node "line9"', self.log('line7'))

        # Malformed requests and requests without credentials.
        _, token = self.token('line7')
        csr = self.csr()
        self.assertEqual(self.post('/gateway/v1/enroll', 'garbage')[0], 400)
        self.assertEqual(self.post('/gateway/v1/enroll', json.dumps({'token': token, 'csr': 'x' * 40000}))[0], 413)
        middle = csr.index('\n', 100) + 9
        altered = csr[:middle] + ('B' if csr[middle] == 'A' else 'A') + csr[middle + 1:]
        self.assertEqual(self.post('/gateway/v1/enroll', json.dumps({'token': token, 'csr': altered}))[0], 400)
        self.assertEqual(self.post('/gateway/v1/renew', json.dumps({'csr': csr}))[0], 401)
        self.assertEqual(self.post('/gateway/v1/enroll', '', method='GET')[0] // 100, 4)
        # The gateway ignores the name and the group that the certificate request asks for.
        greedy = self.csr('greedy', '/O=system:masters/CN=varda-admin')
        status, answer = self.post('/gateway/v1/enroll', json.dumps({'token': token, 'csr': greedy}))
        self.assertEqual((status, answer.get('node')), (200, 'line7'), answer)
        identity = self.work / 'greedy'
        identity.mkdir()
        (identity / 'cert.pem').write_text(answer['certificate'])
        shutil.copy(self.work / 'greedy.key', identity / 'key.pem')
        subject = subprocess.run(['openssl', 'x509', '-noout', '-subject', '-in', str(identity / 'cert.pem')], check=True, capture_output=True, text=True).stdout
        self.assertNotIn('masters', subject)
        # The node renews its own certificate, with its own key.
        again = subprocess.run(['openssl', 'req', '-new', '-key', str(identity / 'key.pem'), '-subj', '/CN=cloud'], check=True, capture_output=True, text=True).stdout
        status, answer = self.post('/gateway/v1/renew', json.dumps({'csr': again}), identity)
        self.assertEqual((status, answer.get('node')), (200, 'line7'), answer)
        status, answer = self.post('/gateway/v1/renew', json.dumps({'csr': self.csr('other', '/CN=line7')}), identity)
        self.assertEqual(status, 403, answer)
        # A self-signed certificate ends the connection.
        self.csr('self')
        own = self.work / 'own'
        own.mkdir()
        shutil.copy(self.work / 'self.key', own / 'key.pem')
        subprocess.run(['openssl', 'req', '-x509', '-key', str(own / 'key.pem'), '-subj', '/O=system:nodes/CN=line7', '-out', str(own / 'cert.pem')], check=True, capture_output=True)
        with self.assertRaises((OSError, http.client.HTTPException)):
            self.post('/gateway/v1/renew', json.dumps({'csr': csr}), own)

    def test_false_gateway_gets_no_secret_and_revoked_node_is_refused(self):
        with m.Machine(self.work / 'other', nodes=['cloud=cloud']) as other:
            elsewhere = self.start(other)
            path, token = self.token('line7')
            agent = self.agent('line7', path, gateway=elsewhere)
            m.wait_until('the refusal of its certificate', lambda: 'certificate verify failed' in self.log('line7'))
            self.assertIsNone(agent.poll())  # the wrong server may be a portal that disappears
            self.assertEqual(self.end(agent), 0)
            self.assertNotIn(token.split('.')[2], ''.join(f.read_text(errors='replace') for f in other.dir.glob('logs/*')))

        self.agent('line7', path)
        self.wait_connected('line7')
        self.varda.varda('patch', 'edgenode', 'line7', '-p', '{"metadata": {"annotations": {"edgeai.io/revoked": "true"}}}')
        self.wait_cut_off('line7')
        identity = self.work / 'line7/identity'
        self.assertEqual(self.post('/apis/edgeai.io/v1alpha1/edgenodes/line7', None, identity, 'GET')[0], 403)
        self.assertEqual(self.post('/gateway/v1/renew', json.dumps({'csr': self.csr()}), identity)[0], 403)
        self.varda.varda('patch', 'edgenode', 'line7', '-p', '{"metadata": {"annotations": {"edgeai.io/revoked": null}}}')
        self.wait_connected('line7')


class DaemonSetAgents(unittest.TestCase):
    """Gateways beside an API server, and agents in Pods that the cluster started. The agents share
    a token."""
    LABELS = {'app.kubernetes.io/name': 'varda', 'app.kubernetes.io/component': 'agent'}

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.cluster = m.Machine(self.work / 'cluster')
        self.start('apiserver', 'apiserver', '--data-dir', str(self.cluster.dir), '--listen', '127.0.0.1:0')
        m.wait_until('the API server', lambda: self.cluster.get('namespaces'))
        self.cluster.kubectl('apply', '-k', str(m.ROOT / 'deploy/crds'))

    def start(self, name, *command, env=None):
        with open(self.work / (name + '.log'), 'ab') as log:
            environment = {k: v for k, v in os.environ.items() if k not in ('KUBECONFIG', 'NODE_NAME', 'VARDA_GATEWAY')}
            process = subprocess.Popen([m.VARDA, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**environment, **(env or {})})
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            return process.wait(m.seconds(60))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def log(self, name):
        return (self.work / (name + '.log')).read_text(errors='replace')

    def wait_log(self, name, text):
        return m.wait_until('"%s" in the log of %s' % (text, name), lambda: text in self.log(name) and self.log(name))

    def gateway(self, name):
        """Starts a gateway; returns its URL."""
        self.start(name, 'gateway', '--kubeconfig', self.cluster.kubeconfig, '--listen', '127.0.0.1:0', '--join-secret', 'varda-edge/varda-agent-join',
                   '--admin', 'unix:' + str(self.work / (name + '.sock')))
        return 'https://' + self.wait_log(name, 'gateway=').split('gateway=')[1].split()[0]

    def agent(self, name, node, gateway, data, *flags):
        """Starts an agent like in a Pod: the node and the gateway come from the environment, the
        token from a volume."""
        return self.start(name, 'agent', '--data-dir', str(self.work / data), '--join-token-file', str(self.work / 'join/token'), *flags,
                          env={'NODE_NAME': node, 'VARDA_GATEWAY': gateway})

    def apply(self, *objects):
        self.cluster.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def add_node(self, node, agent=True):
        self.apply({'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': node}})
        if not agent:
            return
        owner = {'apiVersion': 'apps/v1', 'kind': 'DaemonSet', 'name': 'varda-agent', 'uid': self.daemon_set, 'controller': True}
        self.apply({'apiVersion': 'v1', 'kind': 'Pod',
                    'metadata': {'name': 'varda-agent-' + node, 'namespace': 'varda-edge', 'labels': self.LABELS, 'ownerReferences': [owner]},
                    'spec': {'nodeName': node, 'containers': [{'name': 'agent', 'image': 'varda'}]}})

    def add_daemon_set(self):
        labels = self.LABELS
        self.apply({'apiVersion': 'apps/v1', 'kind': 'DaemonSet', 'metadata': {'name': 'varda-agent', 'namespace': 'varda-edge'},
                    'spec': {'selector': {'matchLabels': labels}, 'template': {'metadata': {'labels': labels}, 'spec': {'containers': [{'name': 'agent', 'image': 'varda'}]}}}})
        self.daemon_set = self.cluster.get('daemonset', 'varda-agent', '-n', 'varda-edge')['metadata']['uid']

    def mount(self, other_than=None):
        """Writes the Secret to a file, like the kubelet."""
        def probe():
            secret = self.cluster.get('secret', 'varda-agent-join', '-n', 'varda-edge')
            token = base64.b64decode(secret['data']['token']).decode()
            return token if token != other_than else None
        token = m.wait_until('the token', probe)
        volume = self.work / 'join'
        volume.mkdir(exist_ok=True)
        (volume / 'new').write_text(token)
        (volume / 'new').chmod(0o400)
        os.replace(volume / 'new', volume / 'token')
        return token

    def connected(self, node):
        def probe():
            status = self.cluster.get('edgenode', node).get('status', {})
            return {c['type']: c['status'] for c in status.get('conditions', [])}.get('Connected') == 'True'
        m.wait_until('%s connected' % node, probe)

    def refused(self, name, process, text):
        self.assertNotEqual(process.wait(m.seconds(120)), 0)
        self.assertIn(text, self.log(name))

    def test_each_agent_enrols_only_as_its_own_node(self):
        # All programs start at once, in the wrong order.
        one = self.gateway('gateway1')
        agent = self.agent('line7', 'line7', one, 'line7')
        self.wait_log('line7', 'waiting for a join token')
        self.wait_log('gateway1', 'cannot keep the join token')
        self.assertIsNone(agent.poll())
        self.apply({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'varda-edge'}})
        self.add_daemon_set()
        self.add_node('line7')
        first = self.mount()
        self.assertRegex(first, r'^varda-join\.[0-9a-f]{12}\.[0-9a-f]{64}\.[0-9a-f]{64}$')
        self.connected('line7')
        self.assertIn(first.split('.')[1], self.cluster.varda('join-token', '--list'))

        # Another key for the same node, at another gateway, is refused until the administrator
        # allows it.
        two = self.gateway('gateway2')
        lost = self.agent('lost', 'line7', two, 'lost')
        self.refused('lost', lost, 'varda join-token --forget line7')
        self.assertIn('reason="another key"', self.log('gateway2'))
        self.end(agent)
        self.cluster.varda('join-token', '--forget', 'line7')
        self.agent('lost', 'line7', two, 'lost')
        self.connected('line7')

        # No agent may join as a node without an agent Pod, or as a node that does not exist.
        self.add_node('line8', agent=False)
        self.refused('line8', self.agent('line8', 'line8', one, 'line8'), 'no Pod of the agents')
        self.refused('line9', self.agent('line9', 'line9', one, 'line9'), 'the cluster has no node')

        # After rotation, the former token is refused. Agents read the next token.
        self.add_node('line8')
        self.cluster.varda('join-token', '--rotate-shared')
        self.refused('line8', self.agent('line8', 'line8', one, 'line8'), 'the join token is not accepted')
        second = self.mount(other_than=first)
        self.agent('line8', 'line8', one, 'line8')
        self.connected('line8')
        self.cluster.kubectl('delete', 'secret', 'varda-agent-join', '-n', 'varda-edge')
        third = self.mount(other_than=second)
        self.cluster.varda('join-token', '--revoke-shared')
        self.add_node('line9')
        self.refused('line9', self.agent('line9', 'line9', two, 'line9'), 'the join token is not accepted')
        self.cluster.varda('join-token', '--rotate-shared')
        self.mount(other_than=third)
        self.agent('line9', 'line9', two, 'line9')
        self.connected('line9')
        logs = ''.join(self.log(name) for name in ('gateway1', 'gateway2', 'line7', 'line8', 'line9', 'lost'))
        for token in (first, second, third):
            self.assertNotIn(token.split('.')[2], logs)

    def test_first_pods_of_a_gateway_log_no_warning(self):
        self.apply({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'varda-edge'}})
        gateway = self.gateway('gateway')
        token = self.work / 'token'
        token.write_text(self.cluster.varda('join-token', '--node', 'line7'))
        token.chmod(0o600)
        self.start('line7', 'agent', '--node', 'line7', '--gateway', gateway, '--data-dir', str(self.work / 'line7'), '--join-token-file', str(token),
                   '--runner', 'process', '--on-stop', 'end', '--image', 'sleeper=sleep 100000')
        self.connected('line7')
        self.apply({'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p'},
                    'spec': {'nodeName': 'line7', 'terminationGracePeriodSeconds': 1, 'containers': [{'name': 'c', 'image': 'sleeper'}]}})
        m.wait_until('the pod', lambda: self.cluster.get('pod', 'p').get('status', {}).get('phase') == 'Running')
        self.assertNotRegex(self.log('line7'), r'(?m)^\S+ W .*(503|not read)')


if __name__ == '__main__':
    unittest.main()
