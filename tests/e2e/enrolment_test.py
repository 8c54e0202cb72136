"""A node joins through the gateway: token, key and certificate with the real programs, and those that must not get in."""
import contextlib, http.client, json, os, pathlib, random, resource, shutil, signal, ssl, subprocess, sys, tempfile, unittest, unittest.mock

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
        """`varda up` with a gateway; its URL."""
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
        command = [m.VARDA, 'agent', '--node', node, '--gateway', gateway or self.gateway, '--data-dir', str(data), '--runner', 'process']
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
        item = json.loads(self.varda.varda('get', 'edgenode', node, '-o', 'json'))
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
        connection = http.client.HTTPSConnection(host, timeout=60, context=context)
        connection.request(method, path, body=body, headers={'Content-Type': 'application/json'})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text)

    def csr(self, name='line7', subject='/CN=line7'):
        key = self.work / (name + '.key')
        subprocess.run(['openssl', 'ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', str(key)], check=True, capture_output=True)
        return subprocess.run(['openssl', 'req', '-new', '-key', str(key), '-subj', subject], check=True, capture_output=True, text=True).stdout

    def test_node_joins_once_and_from_then_on_needs_no_token(self):
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
        self.assertRegex(subject.replace(' ', ''), r'O=system:nodes,CN=line7')
        self.assertIn('used', self.varda.varda('join-token', '--list'))
        before = (identity / 'cert.pem').read_text()

        self.end(agent, signal.SIGKILL)
        path.unlink()
        agent = self.agent('line7')
        m.wait_until('the second start', lambda: self.log('line7').count('agent started') == 2)
        self.wait_connected('line7')
        self.assertEqual(self.log('line7').count('enrolled'), 1)
        self.assertEqual((identity / 'cert.pem').read_text(), before)
        # Nothing of the secret lies anywhere but with who made it.
        logs = self.log('line7') + ''.join(f.read_text(errors='replace') for f in self.varda.dir.glob('logs/*'))
        self.assertNotIn(secret, logs)
        stored = self.varda.varda('get', 'secrets', '-n', 'varda-system', '-o', 'json')
        self.assertNotIn(secret, stored)
        # The same token is of no use to another key, and who tries is told what to do.
        path.write_text(token)
        path.chmod(0o600)
        other = self.agent('line7', path, data=self.work / 'thief')
        self.assertNotEqual(other.wait(120), 0)
        self.assertIn('varda join-token --node line7', self.log('line7'))
        self.assertFalse((self.work / 'thief/identity/cert.pem').exists())
        self.assertIn('used by another key', ''.join(f.read_text(errors='replace') for f in self.varda.dir.glob('logs/*')))
        self.assertEqual(self.end(agent), 0)

    def test_agent_killed_at_any_moment_of_its_enrolment_joins_with_the_same_token(self):
        path, _ = self.token('line8')
        chance = random.Random(8)
        for _ in range(8):
            agent = self.agent('line8', path)
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(chance.uniform(0, 0.3))
            self.assertEqual(self.end(agent, signal.SIGKILL), -signal.SIGKILL)
        self.agent('line8', path)
        self.wait_connected('line8')

    def test_what_up_is_told_of_proxies_reaches_its_agents_and_its_gateway_has_room_for_nodes(self):
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
            m.wait_until('its agent connected', lambda: json.loads(other.varda('get', 'edgenode', 'cloud', '-o', 'json'))['status']['conditions'])

    def test_who_must_not_get_in_does_not(self):
        # A token that was taken back; and none is made for a file that is there already.
        path, token = self.token('line7')
        refused = self.varda.varda('join-token', '--node', 'line7', '-o', str(path), check=False)
        self.assertIn('is there already', refused.stderr)
        self.assertEqual(path.read_text().strip(), token)
        self.assertEqual(self.varda.varda('join-token', '--list').count('line7'), 1)
        self.varda.varda('join-token', '--revoke', token.split('.')[1])
        self.assertIn('revoked', self.varda.varda('join-token', '--list'))
        self.assertNotEqual(self.agent('line7', path).wait(120), 0)

        # A token for another node.
        path, _ = self.token('line9')
        self.assertNotEqual(self.agent('line7', path, data=self.work / 'wrong').wait(120), 0)
        self.assertIn('is for node "line9"', self.log('line7'))

        # Requests that are none, and requests by nobody.
        _, token = self.token('line7')
        csr = self.csr()
        self.assertEqual(self.post('/gateway/v1/enroll', 'garbage')[0], 400)
        self.assertEqual(self.post('/gateway/v1/enroll', json.dumps({'token': token, 'csr': 'x' * 40000}))[0], 413)
        middle = csr.index('\n', 100) + 9
        altered = csr[:middle] + ('B' if csr[middle] == 'A' else 'A') + csr[middle + 1:]
        self.assertEqual(self.post('/gateway/v1/enroll', json.dumps({'token': token, 'csr': altered}))[0], 400)
        self.assertEqual(self.post('/gateway/v1/renew', json.dumps({'csr': csr}))[0], 401)
        self.assertEqual(self.post('/gateway/v1/enroll', '', method='GET')[0] // 100, 4)
        # The name and the group that the request asks for count for nothing.
        greedy = self.csr('greedy', '/O=system:masters/CN=varda-admin')
        status, answer = self.post('/gateway/v1/enroll', json.dumps({'token': token, 'csr': greedy}))
        self.assertEqual((status, answer.get('node')), (200, 'line7'), answer)
        identity = self.work / 'greedy'
        identity.mkdir()
        (identity / 'cert.pem').write_text(answer['certificate'])
        shutil.copy(self.work / 'greedy.key', identity / 'key.pem')
        subject = subprocess.run(['openssl', 'x509', '-noout', '-subject', '-in', str(identity / 'cert.pem')], check=True, capture_output=True, text=True).stdout
        self.assertNotIn('masters', subject)
        # It renews as itself.
        status, answer = self.post('/gateway/v1/renew', json.dumps({'csr': self.csr('again', '/CN=cloud')}), identity)
        self.assertEqual((status, answer.get('node')), (200, 'line7'), answer)
        # A certificate of one's own making ends the connection.
        self.csr('self')
        own = self.work / 'own'
        own.mkdir()
        shutil.copy(self.work / 'self.key', own / 'key.pem')
        subprocess.run(['openssl', 'req', '-x509', '-key', str(own / 'key.pem'), '-subj', '/O=system:nodes/CN=line7', '-out', str(own / 'cert.pem')], check=True, capture_output=True)
        with self.assertRaises((OSError, http.client.HTTPException)):
            self.post('/gateway/v1/renew', json.dumps({'csr': csr}), own)

    def test_one_in_the_middle_learns_nothing_and_a_lost_device_is_shut_out(self):
        with m.Machine(self.work / 'other', nodes=['cloud=cloud']) as other:
            elsewhere = self.start(other)
            path, token = self.token('line7')
            agent = self.agent('line7', path, gateway=elsewhere)
            m.wait_until('the refusal of its certificate', lambda: 'certificate verify failed' in self.log('line7'))
            self.assertIsNone(agent.poll())  # it may be a portal that goes away
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


if __name__ == '__main__':
    unittest.main()
