"""Nodes that reach the cloud only through the gateway, over faulty links, with real processes."""
import contextlib, http.client, json, os, pathlib, shutil, signal, socket, ssl, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402
from faulty_link import FaultyLink  # noqa: E402


def sleeper(name, node):
    return {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name},
            'spec': {'nodeName': node, 'terminationGracePeriodSeconds': 1, 'containers': [{'name': 'c', 'image': 'sleeper'}]}}


class Gateway(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.varda = m.Machine(self.work / 'data', nodes=['cloud=cloud'])
        self.agents, self.links = {}, {}
        self.addCleanup(self.clean_up)
        line = self.varda.up('--gateway', '127.0.0.1:0')
        self.port = int(line.split('gateway https://127.0.0.1:')[1].split(',')[0])

    def clean_up(self):
        failed = not self._outcome.success
        for node, agent in self.agents.items():
            with contextlib.suppress(ProcessLookupError):
                agent.send_signal(signal.SIGTERM)
        for node, agent in self.agents.items():
            try:
                agent.wait(60)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
            if failed:
                print('--- last lines of the agent of %s' % node, *(self.work / (node + '.log')).read_text().splitlines()[-30:], sep='\n', file=sys.stderr)
        if failed:
            self.varda.show_logs()
        self.varda.close()
        for link in self.links.values():
            link.close()
        for pid in m.processes_below(self.work):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.work, ignore_errors=True)

    def join(self, node):
        """Starts a node behind a separate link."""
        link = self.links[node] = FaultyLink(self.port)
        token = self.work / (node + '.token')
        token.write_text(self.varda.varda('join-token', '--node', node))
        token.chmod(0o600)
        environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
        with open(self.work / (node + '.log'), 'ab') as log:
            self.agents[node] = subprocess.Popen(
                [m.VARDA, 'agent', *m.LOOPBACK, '--node', node, '--gateway', 'https://127.0.0.1:%d' % link.port, '--join-token-file', str(token), '--runner', 'process',
                 '--on-stop', 'end', '--image', 'sleeper=sleep 100000', '--watch-seconds', '2', '--data-dir', str(self.work / node)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def conditions(self, kind, name):
        return {c['type']: c['status'] for c in self.varda.get(kind, name).get('status', {}).get('conditions', [])}

    def connected(self, node):
        return self.conditions('edgenode', node).get('Connected') == 'True' and self.conditions('node', node).get('Ready') == 'True'

    def cut_off(self, node):
        return self.conditions('edgenode', node).get('Connected') == 'Unknown' and self.conditions('node', node).get('Ready') == 'Unknown'

    def wait_connected(self, *nodes):
        m.wait_until('%s connected' % ', '.join(nodes), lambda: all(self.connected(node) for node in nodes))

    def phases(self):
        return {p['metadata']['name']: p.get('status', {}).get('phase') for p in self.varda.pods()}

    def apply(self, *objects):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def context(self, node):
        context = ssl.create_default_context(cafile=str(self.varda.dir / 'pki/ca.crt'))
        identity = self.work / node / 'identity'
        context.load_cert_chain(str(identity / 'cert.pem'), str(identity / 'key.pem'))
        return context

    def say(self, node, bytes):
        """Sends these raw bytes with the node's certificate; returns the answer until the gateway
        closes."""
        with socket.create_connection(('127.0.0.1', self.port), m.seconds(60)) as plain, self.context(node).wrap_socket(plain, server_hostname='localhost') as s:
            s.sendall(bytes)
            answer = b''
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                while piece := s.recv(1 << 16):
                    answer += piece
            return answer

    def request(self, node, method, path, body=None):
        """Sends a request with the node's certificate, without the agent."""
        connection = http.client.HTTPSConnection('127.0.0.1', self.port, timeout=m.seconds(60), context=self.context(node))
        connection.request(method, path, body=body, headers={'Content-Type': 'application/merge-patch+json'})
        response = connection.getresponse()
        with contextlib.closing(connection):
            return response.status, response.read().decode(errors='replace')

    def test_node_behind_a_gateway_serves_despite_control_plane_kill(self):
        www = self.work / 'www'
        www.mkdir()
        files = m.FileServer(www)
        self.addCleanup(files.stop)
        entries = [(v, files.url('digits-%s.tar.gz' % v), m.pack(self.varda, v, www / ('digits-%s.tar.gz' % v))) for v in ('3', '4')]
        self.join('line7')
        self.wait_connected('line7')
        self.apply(m.inference_model('digits', 'edge', entries, '3', node='line7'))
        url = self.varda.ready('digits', '3')['status']['url']
        shape, pixels = m.read_idx(m.DIGITS / 'test-images.idx3-ubyte')
        client = m.Client(url, 'digits', [pixels[:shape[1] * shape[2]]])
        client.prepare()
        self.assertTrue(client.one(), client.samples)

        # The node's certificate in other hands: objects of other nodes are forbidden.
        for method, path in (('GET', '/apis/edgeai.io/v1alpha1/edgenodes/cloud'), ('GET', '/apis/edgeai.io/v1alpha1/edgenodes'), ('GET', '/api/v1/secrets'),
                             ('PATCH', '/api/v1/nodes/cloud/status'), ('GET', '/api/v1/namespaces/varda-system/secrets/varda-gateway-ca')):
            status, text = self.request('line7', method, path, '{"status":{}}' if method == 'PATCH' else None)
            self.assertEqual(status, 403, path + ' ' + text)
            self.assertIn('is forbidden: User "system:node:line7" cannot', json.loads(text)['message'])
        huge = json.dumps({'status': {'agentVersion': 'x' * (1 << 20)}})
        status, text = self.request('line7', 'PATCH', '/apis/edgeai.io/v1alpha1/edgenodes/line7/status', huge)
        self.assertEqual((status, json.loads(text)['reason']), (413, 'RequestEntityTooLarge'))

        # Requests that two parsers could read differently, that are too large, or that are
        # malformed. Each gets one refusal, and the connection ends.
        own = b'GET /apis/edgeai.io/v1alpha1/edgenodes/line7 HTTP/1.1\r\nHost: a\r\n'
        for bad, status in ((own + b'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' + own + b'\r\n', b'400'),
                            (own + b'Content-Length: 0\r\nContent-Length: 50\r\n\r\n' + own + b'\r\n', b'400'),
                            (own + b'Transfer-Encoding: chunked, identity\r\n\r\n' + own + b'\r\n', b'501'),
                            (own + b'Host: b\r\n\r\n', b'400'),
                            (own + b'X: ' + b'x' * 40000 + b'\r\n\r\n', b'431'),
                            (b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', b'505')):
            answer = self.say('line7', bad)
            self.assertTrue(answer.startswith(b'HTTP/1.1 ' + status), (bad[:200], answer))
            self.assertEqual(answer.count(b'HTTP/1.1 '), 1, answer)

        # `varda up` is killed and started again without flags. The gateway keeps its address, the
        # node reconnects and does the new work.
        os.kill(json.loads((self.varda.dir / 'up.json').read_text())['pid'], signal.SIGKILL)
        self.assertTrue(client.one(), client.samples)
        line = self.varda.up()
        self.assertIn('gateway https://127.0.0.1:%d,' % self.port, line)
        self.apply(m.inference_model('digits', 'edge', entries, '4', node='line7'))
        self.varda.ready('digits', '4')
        self.wait_connected('line7')
        self.assertTrue(client.one(), client.samples)
        self.assertEqual(client.samples[-1][3], '4')

    def test_nodes_behind_faulty_links_recover_and_are_reported(self):
        through = ['slow', 'cut', 'flip']  # faults that let requests through
        not_through = ['stall', 'portal', 'down']
        everybody = through + not_through
        for fault in everybody:
            self.join('n-' + fault)
        self.wait_connected(*('n-' + fault for fault in everybody))
        for fault in everybody:
            self.links['n-' + fault].set(fault)
        self.apply(*(sleeper('p-' + fault, 'n-' + fault) for fault in everybody))
        m.wait_until('pods behind %s run' % ', '.join(through), lambda: all(self.phases()['p-' + f] == 'Running' for f in through))
        # The connections opened before the fault stay open. A half-open connection does not count.
        for fault in not_through:
            m.wait_until('n-%s cut off' % fault, lambda: self.cut_off('n-' + fault))
            self.assertEqual(self.phases()['p-' + fault], 'Pending')
        m.wait_until('a request gets the login page', lambda: self.links['n-portal'].hits > 1)

        for fault in everybody:
            self.links['n-' + fault].set('none')
        m.wait_until('all pods run', lambda: all(self.phases()['p-' + f] == 'Running' for f in everybody))
        self.wait_connected(*('n-' + fault for fault in everybody))
        self.varda.kubectl('delete', 'pods', '--wait=false', *('p-' + f for f in everybody))
        m.wait_until('no pods', lambda: not self.phases())


class GatewayAlone(unittest.TestCase):
    """`varda gateway` in front of an API server without built-in support for it."""

    def start(self, name, *command):
        with open(self.work / (name + '.log'), 'ab') as log:
            environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
            process = subprocess.Popen([m.VARDA, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.addCleanup(self.end, process)
        return process

    def end(self, process, how=signal.SIGTERM):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        return process.wait(m.seconds(60))

    def log(self, name, text):
        """The text after `text` in a log, up to a blank."""
        def probe():
            log = (self.work / (name + '.log')).read_text()
            return log.split(text, 1)[1].split()[0] if text in log else None
        return m.wait_until('"%s" in the log of %s' % (text, name), probe)

    def edge_node(self):
        status = self.cluster.get('edgenode', 'line7').get('status', {})
        return {c['type']: c['status'] for c in status.get('conditions', [])}.get('Connected'), 'lastSeen' in status

    def metrics(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.work / 'admin.sock'))
            s.sendall(b'GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
            return b''.join(iter(lambda: s.recv(1 << 16), b'')).decode()

    def test_standalone_gateway_enrols_nodes_and_reports_connections(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.cluster = m.Machine(self.work / 'cluster')
        self.start('apiserver', 'apiserver', '--data-dir', str(self.cluster.dir), '--listen', '127.0.0.1:0')
        m.wait_until('the API server', lambda: self.cluster.get('namespaces'))
        self.cluster.kubectl('apply', '-k', str(m.ROOT / 'deploy/crds'))
        gateway = ['gateway', '--kubeconfig', self.cluster.kubeconfig, '--admin', 'unix:' + str(self.work / 'admin.sock'), '--listen']
        first = self.start('gateway', *gateway, '127.0.0.1:0')
        address = self.log('gateway', 'gateway=')
        token = self.work / 'token'
        token.write_text(self.cluster.varda('join-token', '--node', 'line7'))
        token.chmod(0o600)
        agent = ['agent', *m.LOOPBACK, '--node', 'line7', '--gateway', 'https://' + address, '--join-token-file', str(token), '--data-dir', str(self.work / 'line7')]
        node = self.start('agent', *agent)
        m.wait_until('line7 connected', lambda: self.edge_node() == ('True', False))

        self.end(node, signal.SIGKILL)
        m.wait_until('line7 cut off', lambda: self.edge_node() == ('Unknown', True))
        self.start('agent', *agent)
        m.wait_until('line7 back', lambda: self.edge_node() == ('True', False))

        # A new gateway at the same address: the node that reconnects never reads as disconnected.
        before = self.cluster.get('edgenode', 'line7')['status']['conditions']
        self.assertEqual(self.end(first), 0)
        self.start('gateway2', *gateway, address)
        self.log('gateway2', 'gateway=')
        m.wait_until('the agent through it', lambda: 'varda_gateway_nodes_connected 1\n' in self.metrics())
        self.assertEqual(self.cluster.get('edgenode', 'line7')['status']['conditions'], before)


if __name__ == '__main__':
    unittest.main()
