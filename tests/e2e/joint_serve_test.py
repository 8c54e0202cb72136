"""One model over two servers: the clients' view of an upper tier that is slow, broken, killed or
changed."""
import contextlib, http.client, json, pathlib, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time, unittest, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import faulty_link  # noqa: E402
import joint as j  # noqa: E402
import machine as m  # noqa: E402

IMAGES, LABELS = j.test_split()


class FaultyServer:
    """An HTTP server that forwards to another server and answers according to `fault`:

    none     the unchanged answer
    late     the answer after 3 s
    reset    the connection is reset in the middle of the body
    500      an error instead
    html     an unrelated page, as a success
    garbage  bytes that are not HTTP
    mute     the request is read and never answered
    trickle  one byte every 50 ms
    close    the connection is closed before the first byte
    """

    def __init__(self, target):
        self.target, self.fault, self.hits, self.stopping = target, 'none', 0, threading.Event()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(('127.0.0.1', 0))
        self.listener.listen(64)
        self.url = 'http://127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.stopping.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while not self.stopping.is_set():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            reader = client.makefile('rb')
            try:
                while not self.stopping.is_set() and self.one(client, reader):
                    pass
            except (OSError, ValueError, http.client.HTTPException):
                pass

    def one(self, client, reader):
        """Serves one request; False if the connection must close."""
        line = reader.readline()
        if not line:
            return False
        method, path, _ = line.decode().split(' ')
        headers = http.client.parse_headers(reader)
        body = reader.read(int(headers.get('Content-Length', 0)))
        fault = self.fault
        if method == 'POST':
            self.hits += 1
        if fault == 'mute':
            self.stopping.wait(60)
            return False
        if fault == 'close':
            return False
        upper = http.client.HTTPConnection(self.target, timeout=m.seconds(30))
        try:
            upper.request(method, path, body=body, headers={k: headers[k] for k in ('Content-Type', 'Inference-Header-Content-Length') if k in headers})
            r = upper.getresponse()
            status, answer, headers = r.status, r.read(), {k: v for k, v in r.getheaders() if k in ('Content-Type', 'Inference-Header-Content-Length')}
        finally:
            upper.close()
        if fault == '500':
            status, answer, headers = 500, b'{"error": "out of luck"}', {}
        elif fault == 'html':
            status, answer, headers = 200, b'<html>Please accept our terms.</html>', {'Content-Type': 'text/html'}
        head = 'HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n' % (status, ''.join('%s: %s\r\n' % kv for kv in headers.items()), len(answer))
        data = head.encode() + answer
        if fault == 'late':
            self.stopping.wait(3)
        if fault == 'garbage':
            client.sendall(b'\x16\x03\x01 is this TLS?\r\n\r\n')
            return False
        if fault == 'reset':
            client.sendall(data[:len(head) + len(answer) // 2])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            return False
        if fault == 'trickle':
            for i in range(len(data)):
                client.sendall(data[i:i + 1])
                if self.stopping.wait(0.05):
                    return False
            return True
        client.sendall(data)
        return True


class BinaryClient(j.Client):
    """A j.Client with binary tensors in both directions."""

    def prepare(self):
        first = self.metadata()['inputs'][0]
        self.bodies = []
        for image in self.images:
            pixels = struct.pack('<%df' % len(image), *image)
            head = json.dumps({'parameters': {'binary_data_output': True}, 'inputs': [
                {'name': first['name'], 'shape': [1] + first['shape'][1:], 'datatype': 'FP32', 'parameters': {'binary_data_size': len(pixels)}}]}).encode()
            self.bodies.append((head, pixels))

    def request(self):
        head, pixels = self.bodies[self.at % len(self.bodies)]
        with contextlib.closing(http.client.HTTPConnection(self.address, timeout=m.REQUEST_SECONDS)) as c:
            c.request('POST', '/v2/models/%s/infer' % self.model, body=head + pixels,
                      headers={'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': str(len(head))})
            r = c.getresponse()
            body = r.read()
        if r.status != 200:
            raise m.Failed('HTTP %d %s' % (r.status, body[:200]))
        length = int(r.getheader('Inference-Header-Content-Length'))
        answer, binary = json.loads(body[:length]), body[length:]
        for output in answer['outputs']:
            size = output['parameters']['binary_data_size']
            output['data'], binary = struct.unpack('<%df' % (size // 4), binary[:size]), binary[size:]
        return self.read(answer)


def read(url, path, body=None):
    with m.DIRECT.open(urllib.request.Request(url + path, data=body), timeout=m.seconds(60)) as r:
        return r.read().decode()


class JointServe(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-joint-serve-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        flags = ('--drain-delay', '0', '--drain-timeout', '5')
        self.edge = j.Server(self.work / 'edge', 'digits', 'small', *flags)
        self.cloud = j.Server(self.work / 'cloud', 'digits-big', 'big', *flags)
        self.addCleanup(self.edge.kill)
        self.addCleanup(self.cloud.kill)
        self.cloud.start()

    def joined(self, url, *policy):
        """Starts the edge with that upper tier. Only a fault can miss the deadlines."""
        self.edge.write('joint.json', self.joint_file(url, *policy))
        self.edge.start()

    @staticmethod
    def joint_file(url, *policy):
        return j.joint_file(url, *policy, deadline_ms=120000, cloud_deadline_ms=60000)

    def client(self, kind=j.Client, images=IMAGES):
        client = kind(self.edge.url, 'digits', images)
        client.prepare()
        self.addCleanup(client.close)
        return client

    def tier_status(self):
        return j.statistics(self.edge.url, 'digits')

    def test_two_servers_are_one_model_with_the_expected_accuracy(self):
        self.joined(self.cloud.url, 'CrossEntropy', 0.5)
        self.assertEqual(j.hard_and_right(self.client().all_once(), LABELS), j.expected('CrossEntropy', 0.5))
        self.assertEqual(j.hard_and_right(self.client(BinaryClient).all_once(), LABELS), j.expected('CrossEntropy', 0.5), 'tensors in binary')
        hard = j.expected('CrossEntropy', 0.5)[0]
        counters = self.tier_status()['counters']
        self.assertEqual((counters['inferences'], counters['hard'], counters['answered']['cloud']), (2 * len(IMAGES), 2 * hard, 2 * hard))
        self.edge.write('joint.json', self.joint_file(self.cloud.url, 'CrossEntropy', 0.7))
        client = self.client()
        m.wait_until('the new threshold', lambda: j.hard_and_right(client.all_once(), LABELS) == j.expected('CrossEntropy', 0.7))
        metrics = read(self.edge.url, '/metrics')
        self.assertIn('varda_joint_inferences_total{model="digits"}', metrics)
        self.assertIn('varda_joint_seconds_count{model="digits",tier="cloud"}', metrics)

    def test_names_are_resolved_in_replaced_hosts_files(self):
        if subprocess.run(['unshare', '-mr', 'true'], capture_output=True).returncode != 0:
            self.skipTest('no private mounts on this machine (user namespaces are off)')
        etc = self.work / 'etc'
        etc.mkdir()
        (etc / 'nsswitch.conf').write_text('hosts: files\n')
        shutil.copy('/etc/ld.so.cache', etc)

        def hosts(text):
            (etc / 'next').write_text(text)
            (etc / 'next').rename(etc / 'hosts')
        hosts('127.0.0.1 localhost\n')
        # The edge has this directory as its /etc.
        self.edge.enter = ['unshare', '-mr', 'sh', '-c', 'mount --bind "$0" /etc && exec "$@"', etc]
        self.joined('http://tier.test:%d' % self.cloud.port, 'CloudOnly')
        client = self.client(images=IMAGES[:1])
        self.assertEqual([a.fallback for a in j.answers(client.all_once())], ['cloud: Unreachable'])
        hosts('127.0.0.1 localhost tier.test\n')
        # The cloud listens on loopback and refuses requests by other names than localhost.
        m.wait_until('the cloud refuses', lambda: [a.fallback for a in j.answers(client.all_once())] == ['cloud: Refused'])

    def faults(self, reasons, joint_file):
        """Tries every fault once, each after good answers, so that the breaker stays closed."""
        proxy = FaultyServer(self.cloud.address)
        self.addCleanup(proxy.close)
        self.edge.write('joint.json', joint_file(proxy.url, 'CloudOnly'))
        self.edge.start()
        client = self.client(images=IMAGES[:3])
        for fault, reason in reasons.items():
            with self.subTest(fault=fault):
                m.wait_until('the cloud answers', lambda: all(a.tier == 'cloud' for a in j.answers(client.all_once())))
                proxy.fault = fault
                self.assertTrue(client.one(), client.samples[-1])
                answer = j.answers(client.samples)[-1]
                self.assertEqual((answer.tier, answer.fallback), ('edge', 'cloud: ' + reason))
                proxy.fault = 'none'
        self.assertEqual(m.failures(client.samples), [])

    def test_broken_answers_of_the_cloud_fail_no_request(self):
        self.faults({'500': 'Failed', 'html': 'Failed', 'reset': 'Failed', 'garbage': 'Unreachable', 'close': 'Unreachable'}, self.joint_file)

    def test_slow_answers_of_the_cloud_fail_no_request(self):
        self.faults({f: 'Timeout' for f in ('mute', 'late', 'trickle')}, lambda *args: j.joint_file(*args, deadline_ms=120000, cloud_deadline_ms=400))

    def test_killed_cloud_under_load_fails_no_request_and_recovers(self):
        # a stable address in front of the changing port of the server
        link = faulty_link.FaultyLink(self.cloud.port)
        self.addCleanup(link.close)
        self.joined('http://127.0.0.1:%d' % link.port, 'CrossEntropy', 0.7)
        load = m.Load(self.edge.url, 'digits', IMAGES, clients=4, kind=j.Client)
        self.addCleanup(load.stop)
        j.wait_for_tier(load, 'cloud')
        self.cloud.kill()
        m.wait_until('the edge knows', lambda: self.tier_status().get('degraded', {}).get('reason') == 'BreakerOpen')
        j.wait_for_tier(load, 'edge')
        self.assertEqual(j.http_status(self.edge.url, '/v2/models/digits/ready'), 200)
        self.cloud.start()
        link.target = self.cloud.port
        j.wait_for_tier(load, 'cloud')
        m.wait_until('no longer degraded', lambda: 'degraded' not in self.tier_status())
        samples = load.stop()
        self.assertEqual(m.failures(samples), [])
        self.assertTrue(any(a.fallback for a in j.answers(samples)))

    def test_policy_address_and_version_changes_fail_no_request(self):
        self.joined(self.cloud.url, 'CrossEntropy', 0.7)
        shutil.copytree(m.DIGITS / 'models/4', self.edge.model / '4')
        load = m.Load(self.edge.url, 'digits', IMAGES, clients=3, kind=j.Client)
        self.addCleanup(load.stop)
        answered_by = lambda tier, fallback: lambda a: a.tier == tier and a.fallback == fallback  # noqa: E731
        changes = [(j.joint_file(self.cloud.url, 'CloudOnly'), answered_by('cloud', None)), (j.joint_file('', 'CloudOnly'), answered_by('edge', 'cloud: NoAddress')),
                   (j.joint_file(self.cloud.url, 'EdgeOnly'), answered_by('edge', None)), (j.joint_file(self.cloud.url, 'Random'), answered_by('cloud', None))]
        for round in range(8):
            version = '14'[round % 2]
            self.edge.write('target', version + '\n')
            text, wanted = changes[round % len(changes)]
            self.edge.write('joint.json', text)
            since = time.monotonic()
            m.wait_until('round %d' % round, lambda: any(wanted(a) and a.version == (version if a.tier == 'edge' else '1')
                                                           for a in j.answers(load.samples(since=since))))
        self.edge.write('joint.json', '{"version": 1}')
        m.wait_until('the problem is reported', lambda: self.tier_status().get('problem'))
        self.assertEqual(m.failures(load.stop()), [])

    def test_mismatched_policy_is_reported_in_the_index(self):
        self.joined(self.cloud.url, 'EdgeOnly')
        self.edge.write('joint.json', json.dumps(dict(json.loads(j.joint_file(self.cloud.url, 'EdgeOnly')), tiers=[
            {'name': 'edge', 'policy': {'name': 'IBT', 'parameters': {}}}, {'name': 'cloud', 'url': self.cloud.url, 'model': 'digits-big'}])))
        problem = m.wait_until('the problem is reported', lambda: self.tier_status().get('problem'))
        self.assertEqual(problem['reason'], 'PolicyMismatch')
        shutil.copytree(m.DIGITS / 'models/4', self.edge.model / '4')
        index = m.wait_until('the new version is refused', lambda: [
            e for e in json.loads(read(self.edge.url, '/v2/repository/index', b'{}')) if e.get('code') == 'PolicyMismatch'])
        self.assertEqual(index[0]['version'], '4')
        self.assertTrue(self.client().one(), 'the old version serves')

    def test_stopping_server_returns_its_best_answer(self):
        proxy = FaultyServer(self.cloud.address)
        self.addCleanup(proxy.close)
        self.joined(proxy.url, 'CloudOnly')
        client = self.client(images=IMAGES[:1])
        m.wait_until('the cloud answers', lambda: all(a.tier == 'cloud' for a in j.answers(client.all_once())))
        proxy.fault = 'mute'
        hits = proxy.hits
        caller = threading.Thread(target=client.one)
        caller.start()
        m.wait_until('the cloud is asked', lambda: proxy.hits > hits)
        self.edge.process.send_signal(signal.SIGTERM)
        caller.join()
        self.assertEqual(self.edge.process.wait(timeout=m.seconds(60)), 0)
        answer = j.answers(client.samples)[-1]
        self.assertEqual((answer.tier, answer.fallback), ('edge', 'cloud: Failed'), client.samples[-1])

    def test_clients_that_hang_up_free_places_while_the_cloud_hangs(self):
        proxy = FaultyServer(self.cloud.address)
        self.addCleanup(proxy.close)
        self.edge.write('joint.json', json.dumps(dict(json.loads(self.joint_file(proxy.url, 'CloudOnly')), inFlightMax=2)))
        self.edge.start()
        client = self.client(images=IMAGES[:1])
        m.wait_until('the cloud answers', lambda: all(a.tier == 'cloud' for a in j.answers(client.all_once())))
        proxy.fault = 'mute'
        errors = lambda: self.tier_status()['counters']['errors'].get('cloud')  # noqa: E731
        for cancelled in (2, 4, 6):
            hits = proxy.hits
            sockets = [self.begun(client.bodies[0]) for _ in range(2)]
            m.wait_until('both are on their way up', lambda: proxy.hits == hits + 2)
            self.assertTrue(client.one(), client.samples[-1])
            answer = j.answers(client.samples)[-1]
            self.assertEqual((answer.tier, answer.fallback), ('edge', 'cloud: InFlightLimit'))
            sockets[0].close()
            sockets[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            sockets[1].close()
            # The deadline of these requests is a minute away, and would count as a Timeout.
            m.wait_until('both are given up', lambda: errors() == {'ClientGone': cancelled})
        proxy.fault = 'none'
        self.assertTrue(client.one(), client.samples[-1])
        self.assertEqual(j.answers(client.samples)[-1].tier, 'cloud')
        tier_status = self.tier_status()
        self.assertEqual((tier_status['tiers'][1]['state'], tier_status.get('degraded')), ('Ready', None), 'no fault of the cloud')
        self.assertEqual(m.failures(client.samples), [])

    def begun(self, body):
        """The socket of a request without an answer."""
        c = http.client.HTTPConnection(self.edge.address)
        c.request('POST', '/v2/models/digits/infer', body=body)
        return c.sock

    def test_degraded_state_needs_no_request_and_the_server_drains(self):
        self.joined(self.cloud.url, 'CloudOnly')
        m.wait_until('the cloud is known', lambda: self.tier_status()['tiers'][1]['state'] == 'Ready')
        self.cloud.kill()
        m.wait_until('the edge knows', lambda: 'degraded' in self.tier_status(), every=0.5)
        self.edge.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.edge.process.wait(timeout=m.seconds(60)), 0)


if __name__ == '__main__':
    unittest.main()
