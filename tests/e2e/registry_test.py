"""Uploads to `varda registry` with curl and `varda push`: cuts, kills, wrong bytes, quota,
collection, memory; then back with `varda pull`."""
import contextlib, hashlib, json, os, pathlib, random, re, shutil, signal, socket, subprocess, sys, tempfile, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

MIB = 1 << 20
TOKEN = 'registry-token'
RSS_MAX_KIB = 20 << 10  # of a release binary
GROWTH_MAX_KIB = 8 << 10  # whatever the binary: its code is larger without optimisation


class Registry:
    """One server process and its data directory, which outlives the process."""

    def __init__(self, work, *flags):
        self.work, self.flags = work, flags
        self.token = work / 'token'
        self.token.write_text(TOKEN + '\n')
        self.start()

    def start(self):
        with open(self.work / 'registry.log', 'ab') as log:
            self.process = subprocess.Popen([m.VARDA, 'registry', '--data-dir', str(self.work / 'data'), '--listen', '127.0.0.1:0', '--admin', 'unix:' + str(self.work / 'admin.sock'),
                                             '--token-file', str(self.token), *self.flags], stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        assert line.startswith('registry at http://'), (line, (self.work / 'registry.log').read_text())
        self.url = line.split(' at ')[1].strip()

    def end(self, how=signal.SIGTERM):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)
        code = self.process.wait(m.seconds(60))
        self.process.stdout.close()
        return code

    def blob(self, data):
        return '%s/v1/blobs/sha256:%s' % (self.url, hashlib.sha256(data).hexdigest())

    def curl(self, *args, input=None, token=TOKEN):
        """The status, the headers and the body of the final answer."""
        done = subprocess.run(['curl', '-sS', '--noproxy', '*', '-H', 'Authorization: Bearer ' + token, '-D', str(self.work / 'headers'), '-w', '%{http_code}',
                               '-o', str(self.work / 'body'), *args], capture_output=True, input=input, timeout=m.seconds(120))
        headers = {}
        if (self.work / 'headers').exists():
            for line in (self.work / 'headers').read_text().splitlines():
                name, _, value = line.partition(':')
                headers[name.lower()] = value.strip()
        body = (self.work / 'body').read_bytes() if (self.work / 'body').exists() else b''
        for name in ('headers', 'body'):
            (self.work / name).unlink(missing_ok=True)
        return int(done.stdout or 0), headers, body

    def offset(self, data):
        return self.curl('-I', self.blob(data))[1].get('upload-offset')

    def cut(self, data, count):
        """Sends only the first `count` bytes of a whole upload, then closes the connection."""
        host, port = self.url.removeprefix('http://').split(':')
        with socket.create_connection((host, int(port))) as s:
            s.sendall(('PUT /v1/blobs/sha256:%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n' % (
                hashlib.sha256(data).hexdigest(), TOKEN, len(data))).encode() + data[:count])
            m.wait_until('bytes held', lambda: self.offset(data) == str(count))

    def received(self):
        """Bytes of blobs that clients sent to this process."""
        metrics = subprocess.run(['curl', '-sSf', '--unix-socket', str(self.work / 'admin.sock'), 'http://localhost/metrics'], capture_output=True,
                                 check=True, text=True, timeout=m.seconds(30)).stdout
        return int(float(re.search(r'^varda_registry_received_bytes_total (\S+)', metrics, re.M)[1]))

    def rss_max_kib(self):
        status = pathlib.Path('/proc/%d/status' % self.process.pid).read_text()
        return int(status.split('VmHWM:')[1].split()[0])


class Base(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def registry(self, *flags):
        registry = Registry(self.work, *flags)
        self.addCleanup(registry.end)
        return registry

    def file(self, data, name='file.bin'):
        path = self.work / name
        path.write_bytes(data)
        return path


class Uploads(Base):
    def test_curl_continues_after_a_cut_and_after_a_kill(self):
        registry = self.registry()
        data = random.Random(1).randbytes(5 * MIB)
        path = self.file(data)
        registry.cut(data, 2 * MIB)
        self.assertEqual(registry.offset(data), str(2 * MIB))
        # a piece that is acknowledged, then a kill
        piece = self.file(data[2 * MIB:3 * MIB], 'piece')
        status, headers, _ = registry.curl('-T', str(piece), '-H', 'Content-Range: bytes %d-%d/%d' % (2 * MIB, 3 * MIB - 1, len(data)), registry.blob(data))
        self.assertEqual((status, headers['upload-offset']), (202, str(3 * MIB)))
        registry.end(signal.SIGKILL)
        registry.start()
        offset = registry.offset(data)
        self.assertEqual(offset, str(3 * MIB))
        status, _, _ = registry.curl('-C', offset, '-T', str(path), registry.blob(data))
        self.assertEqual(status, 201)
        registry.end(signal.SIGKILL)
        registry.start()
        self.assertEqual(registry.curl(registry.blob(data))[2], data)
        status, headers, body = registry.curl('-r', '1000-1999', registry.blob(data))
        self.assertEqual((status, body), (206, data[1000:2000]))
        self.assertEqual(registry.end(), 0, 'SIGTERM drains')

    def test_wrong_bytes_and_strangers_are_refused(self):
        registry = self.registry()
        data, other = b'a' * MIB, b'b' * MIB
        status, _, body = registry.curl('-T', str(self.file(other)), registry.blob(data))
        self.assertEqual(status, 422)
        self.assertIn(hashlib.sha256(other).hexdigest(), json.loads(body)['error'])
        self.assertIsNone(registry.offset(data))
        self.assertEqual(registry.curl('-T', str(self.file(data)), registry.blob(data), token='no')[0], 401)

    def test_quota_counts_before_the_body(self):
        registry = self.registry('--quota', '3Mi')
        self.assertEqual(registry.curl('-T', str(self.file(b'x' * (4 * MIB))), registry.blob(b'x' * (4 * MIB)))[0], 413)
        self.assertEqual(registry.curl('-T', str(self.file(b'y' * (2 * MIB))), registry.blob(b'y' * (2 * MIB)))[0], 201)
        status, _, body = registry.curl('-T', str(self.file(b'z' * (2 * MIB))), registry.blob(b'z' * (2 * MIB)))
        self.assertEqual(status, 507)
        self.assertIn('quota of %d' % (3 * MIB), json.loads(body)['error'])

    def test_collection_keeps_what_a_version_names(self):
        registry = self.registry('--grace', '2s')
        named, unnamed = b'named' * 1000, b'unnamed' * 1000
        for data in (named, unnamed):
            self.assertEqual(registry.curl('-T', str(self.file(data)), registry.blob(data))[0], 201)
        document = json.dumps({'digest': 'sha256:' + hashlib.sha256(named).hexdigest()}).encode()
        self.assertEqual(registry.curl('-T', '-', registry.url + '/v1/models/default/digits/versions/4', input=document)[0], 201)
        registry.cut(b'cut' * 1000, 100)
        m.wait_until('the unnamed blob removed', lambda: registry.curl(registry.blob(unnamed))[0] == 404)
        m.wait_until('the unfinished upload removed', lambda: registry.offset(b'cut' * 1000) is None)
        self.assertEqual(registry.curl('-I', registry.blob(named))[0], 200)
        self.assertEqual(registry.curl('-X', 'DELETE', registry.url + '/v1/models/default/digits/versions/4')[0], 204)
        m.wait_until('the blob without a version removed', lambda: registry.curl(registry.blob(named))[0] == 404)

    def test_memory_stays_small_while_ten_clients_upload(self):
        registry = self.registry()
        begin = registry.rss_max_kib()
        block = random.Random(2).randbytes(MIB)
        paths, answers = [], {}
        for i in range(10):
            path = self.work / ('upload%d' % i)
            digest = hashlib.sha256()
            with open(path, 'wb') as f:
                for j in range(100):
                    piece = b'%d %d ' % (i, j) + block
                    f.write(piece)
                    digest.update(piece)
            paths.append((path, '%s/v1/blobs/sha256:%s' % (registry.url, digest.hexdigest())))

        def send(path, url):
            answers[path] = subprocess.run(['curl', '-sS', '--noproxy', '*', '-H', 'Authorization: Bearer ' + TOKEN, '-w', '%{http_code}', '-o', '/dev/null',
                                            '-T', str(path), url], capture_output=True, text=True).stdout

        threads = [threading.Thread(target=send, args=pair) for pair in paths]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(answers.values()), {'201'})
        print('registry VmHWM %d KiB' % registry.rss_max_kib(), file=sys.stderr)
        self.assertLessEqual(registry.rss_max_kib() - begin, GROWTH_MAX_KIB)
        if begin <= RSS_MAX_KIB - GROWTH_MAX_KIB:
            self.assertLessEqual(registry.rss_max_kib(), RSS_MAX_KIB)


class PushAndPull(Base):
    def test_pushed_directory_becomes_a_model_and_comes_back(self):
        registry = self.registry()
        folder = self.work / 'digits'
        shutil.copytree(m.DIGITS / 'models' / '4', folder)
        flags = ['--registry', registry.url, '--token-file', str(registry.token)]
        with m.Machine(self.work / 'up') as varda:
            varda.up()
            varda.varda('push', str(folder), '--name', 'digits', '--version', '4', '--metric', 'accuracy=0.97', '--metric',
                        'note=small', *flags)
            model = varda.get('model', 'digits')
            self.assertEqual((model['spec']['version'], model['spec']['format']), ('4', 'onnx'))
            self.assertTrue(model['spec']['modelUrl'].endswith('sha256:' + model['spec']['sha256']))
            self.assertEqual({x['key']: x['value'] for x in model['status']['metrics']}, {'accuracy': '0.97', 'note': 'small'})
            version = json.loads(registry.curl(registry.url + '/v1/models/default/digits/versions/4')[2])
            self.assertEqual(version['metrics'], {'accuracy': 0.97, 'note': 'small'})
            # again with the same content: nothing to send, and new metrics
            varda.varda('push', str(folder), '--name', 'digits', '--version', '4', '--metric', 'accuracy=0.98', *flags)
            self.assertEqual([x['value'] for x in varda.get('model', 'digits')['status']['metrics']], ['0.98'])

            archive, out = self.work / 'back.tar', self.work / 'back'
            pull = ['--token-file', str(registry.token), *m.LOOPBACK]
            varda.varda('pull', 'digits', '-o', str(archive), *pull)
            self.assertEqual(hashlib.sha256(archive.read_bytes()).hexdigest(), model['spec']['sha256'])
            here = self.work / 'here'
            here.mkdir()
            named = varda.run(['sh', '-c', 'cd "$0" && exec "$@"', str(here), m.VARDA, 'pull', 'digits', *pull])
            self.assertEqual(named.strip(), str(here / 'digits.tar'))
            varda.varda('pull', 'digits', '--extract', '-o', str(out), *pull)
            names = lambda root: sorted(str(p.relative_to(root)) for p in root.rglob('*') if p.is_file() and not p.name.startswith('.varda'))
            self.assertEqual(names(out), names(folder))

    def test_push_of_a_changed_file_sends_the_changes(self):
        registry = self.registry()
        base = random.Random(4).randbytes(40 * MIB)
        changed = len(base) // 20
        after = bytearray(base)
        for i in range(2):
            at = (2 * i + 1) * len(base) // 4
            after[at:at + changed // 2] = random.Random(5 + i).randbytes(changed // 2)
        after[30 * MIB:30 * MIB] = b'inserted'
        after = bytes(after)
        flags = ['--name', 'weights', '--registry', registry.url, '--token-file', str(registry.token)]
        with m.Machine(self.work / 'up') as varda:
            varda.up()
            varda.varda('push', str(self.file(base, 'weights.bin')), *flags)
            received = registry.received()
            self.assertEqual(received, len(base))
            varda.varda('push', str(self.file(after, 'weights.bin')), *flags)
            sent = registry.received() - received
            # the list of chunks goes down
            listed = len(registry.curl(registry.blob(base) + '.chunks')[2])
            print('sent %d bytes and a list of %d bytes for %d changed ones' % (sent, listed, changed), file=sys.stderr)
            self.assertLessEqual(sent + listed, 1.1 * changed)
            self.assertEqual(registry.curl(registry.blob(after))[2], after)
            # nothing in common: everything goes up
            varda.varda('push', str(self.file(base[::-1], 'weights.bin')), *flags)
            self.assertEqual(registry.received() - received - sent, len(base))

    def test_changed_directory_comes_down_by_its_changes(self):
        registry = self.registry()
        folder, weights = self.work / 'model', random.Random(7).randbytes(20 * MIB)
        folder.mkdir()
        credentials = self.work / 'credentials'
        credentials.mkdir(0o700)
        for name, text in (('token', TOKEN), ('hosts', '127.0.0.1')):
            (credentials / name).write_text(text)
        received = []
        for i in range(2):
            (folder / 'weights.bin').write_bytes(weights)
            push = subprocess.run([m.VARDA, 'push', str(folder), '--name', 'w', '--no-model', '--registry', registry.url, '--token-file', str(registry.token)],
                                  capture_output=True, text=True, check=True, timeout=m.seconds(120))
            sha = push.stdout.strip().rsplit(':', 1)[1]
            base = ['--base', str(self.work / 'to0')] if i else []
            fetch = subprocess.run([m.VARDA, 'fetch', '--url', push.stdout.strip(), '--sha256', sha, '--to', str(self.work / ('to%d' % i)),
                                    '--credentials-dir', str(credentials), *m.LOOPBACK, *base],
                                   capture_output=True, text=True, timeout=m.seconds(120))
            self.assertEqual(fetch.returncode, 0, fetch.stderr)
            received.append(int(re.search(r'received=(\d+)', fetch.stderr)[1]))
            self.assertEqual((self.work / ('to%d' % i) / 'weights.bin').read_bytes(), weights)
            weights = weights[:5 * MIB] + random.Random(8).randbytes(MIB) + weights[6 * MIB:]
        self.assertGreater(received[0], 20 * MIB)
        self.assertLessEqual(received[1], 1.1 * MIB)

    def test_killed_push_continues(self):
        registry = self.registry()
        data = random.Random(3).randbytes(40 * MIB)
        path = self.file(data, 'weights.bin')
        command = [m.VARDA, 'push', str(path), '--name', 'weights', '--no-model', '--registry', registry.url, '--token-file', str(registry.token)]
        push = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        m.wait_until('some bytes', lambda: int(registry.offset(data) or 0) > 0 or push.poll() is not None)
        push.kill()
        push.wait()
        registry.end(signal.SIGKILL)
        registry.start()
        command[command.index('--registry') + 1] = registry.url
        done = subprocess.run(command, capture_output=True, text=True, timeout=m.seconds(120))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.strip(), registry.blob(data) + '/weights.bin')
        self.assertEqual(registry.curl('-I', registry.blob(data))[0], 200)


if __name__ == '__main__':
    unittest.main()
