"""Malicious clients: small requests that would cost much memory or time, and idle connections.

The servers stay small, and another client gets answers all the while.
"""
import http.client, json, pathlib, re, shutil, socket, ssl, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

MIB = 1 << 20
LIVE = b'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n'
REVIEW = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews'


def memory(pid):
    """The largest resident size of a process since reset(), in bytes."""
    return int(re.search(r'VmHWM:\s+(\d+)', pathlib.Path('/proc/%d/status' % pid).read_text())[1]) << 10


def reset(pid):
    pathlib.Path('/proc/%d/clear_refs' % pid).write_text('5')
    return memory(pid)


def varint(value):
    out = b''
    while value >= 0x80:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


class Flood(unittest.TestCase):
    def grows_by_less_than(self, limit, pid, attack):
        before = reset(pid)
        out = attack()
        self.assertLess(memory(pid) - before, limit)
        return out

    def open_idle(self, address, count, tls=None):
        """Opens `count` connections that send nothing. The list is shorter where the server closes
        some at once."""
        out = []
        for _ in range(count):
            try:
                one = socket.create_connection(address, timeout=m.seconds(60))
                out.append(tls.wrap_socket(one, server_hostname=address[0]) if tls else one)
            except OSError:
                continue
            self.addCleanup(out[-1].close)
        return out


    def half_done(self, address, data, tls=None):
        """Opens 100 connections from each of three addresses, more than the 200 places of the
        server. Each leaves a request unfinished."""
        out = []
        for source in ('127.0.0.2', '127.0.0.3', '127.0.0.4'):
            for _ in range(100):
                one = socket.create_connection(address, timeout=m.seconds(60), source_address=(source, 0))
                self.addCleanup(one.close)
                try:
                    out.append(tls.wrap_socket(one, server_hostname=address[0]) if tls else one)
                    self.addCleanup(out[-1].close)
                    out[-1].sendall(data)
                    if b'\r\n\r\n' in data:
                        out[-1].recv(1)  # the answer to the complete request
                except OSError:
                    continue  # the server has closed it already
        return out

    def closed_without_408(self, connection):
        connection.setblocking(False)
        text = b''
        try:
            while piece := connection.recv(65536):
                text += piece
        except BlockingIOError:
            return False
        except OSError:
            pass
        return b' 408 ' not in text


class ModelServer(Flood):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-flood-'))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        shutil.copytree(m.DIGITS / 'models', cls.work / 'models/digits')
        cls.process, cls.address, _ = m.start_serve(
            cls.work / 'log', '--model-repository', cls.work / 'models', '--http', '127.0.0.1:0', '--admin', '127.0.0.1:0',
            '--bodies-bytes-max', 64 * MIB, '--connections-max', 200)
        cls.addClassCleanup(cls.process.wait)
        cls.addClassCleanup(cls.process.kill)
        m.wait_until('the model server is ready', lambda: cls.request('GET', '/v2/health/ready')[0] == 200)

    @classmethod
    def request(cls, method, path, body=None, headers=None):
        client = http.client.HTTPConnection(cls.address, timeout=m.seconds(60))
        try:
            client.request(method, path, body, headers or {})
            answer = client.getresponse()
            return answer.status, answer.read().decode()
        finally:
            client.close()

    def infer(self, **request):
        return self.request('POST', '/v2/models/digits/infer', json.dumps(request))

    def test_zero_dimensions_allocate_no_memory(self):
        for shape in ([0, 150000000], [150000000, 0], [0, 60000, 60000], [0, 2000, 1000, 1000]):
            tensor = {'name': 'images', 'shape': shape, 'datatype': 'FP32', 'data': []}
            status, text = self.grows_by_less_than(16 * MIB, self.process.pid, lambda: self.infer(inputs=[tensor]))
            self.assertEqual(status, 400, text)
            self.assertIn('dimension', text)

    def test_unfinished_bodies_share_one_memory_budget(self):
        host, port = self.address.split(':')

        def attack():
            for _ in range(10):
                one = socket.create_connection((host, int(port)), timeout=m.seconds(60))
                self.addCleanup(one.close)
                one.sendall(b'POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n' % (60 * MIB))
                try:
                    for _ in range(55):
                        one.sendall(bytes(MIB))
                except OSError:
                    pass
            self.assertEqual(self.request('GET', '/v2/models/digits')[0], 200)
            self.assertEqual(self.infer(inputs=[{'name': 'images', 'shape': [1, 8, 8], 'datatype': 'FP32', 'data': [0] * 64}])[0], 200)
        self.grows_by_less_than(160 * MIB, self.process.pid, attack)

    def test_stalled_bodies_are_evicted(self):
        host, port = self.address.split(':')
        stalled = []
        for source, count in (('127.0.0.2', 31 * MIB), ('127.0.0.2', 31 * MIB), ('127.0.0.3', 2 * MIB - 65536)):
            one = socket.create_connection((host, int(port)), timeout=m.seconds(60), source_address=(source, 0))
            self.addCleanup(one.close)
            one.sendall(b'POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n' % (60 * MIB))
            one.sendall(bytes(count))
            stalled.append(one)
        for _ in range(5):
            for one in stalled:
                try:
                    one.sendall(b' ')
                except OSError:
                    pass  # the server has closed it
            status, text = self.infer(inputs=[{'name': 'images', 'shape': [300, 8, 8], 'datatype': 'FP32', 'data': [0.125] * 19200}])
            self.assertEqual(status, 200, text)

    def test_unfinished_requests_are_evicted(self):
        host, port = self.address.split(':')
        for half in (b'G', b'POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n0123456789'):
            connections = self.half_done((host, int(port)), LIVE + half)
            for _ in range(3):
                self.assertEqual(self.tried('/v2/health/live'), 200)
            self.assertTrue(any(map(self.closed_without_408, connections)), 'all ended by time-outs')

    def test_large_json_arrays_use_little_memory(self):
        zeros = '[' + '0,' * (8 * MIB) + '0]'
        try:
            status = self.request('POST', '/v2/repository/index', zeros)[0]
        except OSError:
            status = 413  # the server closed the connection before the end
        self.assertEqual(status, 413)
        tensor = '{"name":"images","shape":[0,8,8],"datatype":"FP32","data":[]%s}'
        for body in ('{"parameters":{"a":%s},"inputs":[%s]}' % (zeros, tensor % ''),
                     '{"inputs":[%s]}' % (tensor % (',"parameters":{"a":%s}' % zeros)),
                     '{"more":%s,"inputs":[%s]}' % (zeros, tensor % '')):
            self.grows_by_less_than(160 * MIB, self.process.pid, lambda: self.request('POST', '/v2/models/digits/infer', body))

    def test_silent_connections_are_evicted(self):
        host, port = self.address.split(':')
        self.open_idle((host, int(port)), 500)
        for _ in range(3):
            self.assertEqual(m.wait_until('an answer', lambda: self.tried('/v2/health/live')), 200)

    def tried(self, path):
        try:
            return self.request('GET', path)[0]
        except (OSError, http.client.HTTPException):
            return None


class ApiServer(Flood):
    @classmethod
    def setUpClass(cls):
        cls.varda = m.Machine(nodes=['edge0=edge'])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up('--connections-max', '200', '--header-timeout', '3600')
        text = pathlib.Path(cls.varda.kubeconfig).read_text()
        cls.address = re.search(r'https://([\d.]+):(\d+)', text)
        cls.address = cls.address[1], int(cls.address[2])
        cls.token = re.search(r'token: "?([^"\s]+)', text)[1]
        cls.tls = ssl.create_default_context(cafile=str(cls.varda.dir / 'pki/ca.crt'))
        cls.pid = next(pid for pid, command in cls.varda.processes().items() if ' up ' in command)

    def post(self, path, body, kind):
        client = http.client.HTTPSConnection(*self.address, timeout=m.seconds(120), context=self.tls)
        try:
            client.request('POST', path, body, {'Authorization': 'Bearer ' + self.token, 'Content-Type': kind})
            answer = client.getresponse()
            return answer.status, answer.read().decode()
        finally:
            client.close()

    def answered(self):
        try:
            self.varda.get('nodes')
            return True
        except m.Failed:
            return False

    def test_aliases_of_long_strings_use_little_memory(self):
        for anchor, names in (('"%s"' % ('x' * 100_000), 4000), ('{k: "%s"}' % ('x' * 10_000), 30_000)):
            body = 'apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: {a: &a %s, b: [%s]}\n' % (
                anchor, ','.join(['*a'] * names))
            status, _ = self.grows_by_less_than(80 * MIB, self.pid, lambda: self.post(REVIEW, body, 'application/yaml'))
            self.assertEqual(status, 400)

    def test_many_names_below_a_long_key_use_little_memory(self):
        for members in (','.join(['"a":1'] * 20_000), ','.join('"n%d":1' % i for i in range(20_000))):
            body = '{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"%s":{%s}}}' % ('k' * 100_000, members)
            self.grows_by_less_than(80 * MIB, self.pid, lambda: self.post(REVIEW, body, 'application/json'))

    def test_large_protobuf_maps_are_refused_quickly(self):
        entries = b''.join(field(12, field(1, b'k%d' % i) + field(2, b'v')) for i in range(80_000))
        unknown = field(1, field(1, b'v1') + field(2, b'ConfigMap')) + field(2, field(1, field(1, b'many') + entries))
        status, text = self.post('/api/v1/namespaces/default/configmaps', b'k8s\x00' + unknown, 'application/vnd.kubernetes.protobuf')
        self.assertIn(status, (413, 422), text[:500])
        self.assertTrue(self.answered())

    def test_silent_connections_are_evicted(self):
        self.half_done(self.address, b'', self.tls)
        for _ in range(3):
            m.wait_until('another client is answered', self.answered)

    def test_unfinished_requests_are_evicted(self):
        self.half_done(self.address, LIVE + b'G', self.tls)
        for _ in range(3):
            m.wait_until('another client is answered', self.answered)

    def test_unfinished_handshakes_are_evicted(self):
        self.half_done(self.address, b'\x16\x03\x01')
        for _ in range(3):
            m.wait_until('another client is answered', self.answered)


if __name__ == '__main__':
    unittest.main()
