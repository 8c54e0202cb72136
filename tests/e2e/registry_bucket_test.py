"""`varda registry --s3`: uploads with curl and `varda push` into a bucket whose server checks every
signature; kills, faults of the bucket, wrong bytes, quota, collection, memory."""
import contextlib, hashlib, json, pathlib, random, shutil, signal, socket, subprocess, sys, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402
import registry_test  # noqa: E402
from registry_test import MIB, TOKEN  # noqa: E402
from s3_server import S3Server  # noqa: E402

PART = 8 * MIB
# four parts on their way to the bucket, as many ranges on their way back, and memory that malloc keeps
GROWTH_MAX_KIB = 96 << 10


class BucketBase(registry_test.Base):
    def setUp(self):
        super().setUp()
        self.s3 = S3Server(page=2)
        self.addCleanup(self.s3.close)
        self.credentials = self.work / 'credentials'
        self.credentials.mkdir()
        (self.credentials / 'AWS_ACCESS_KEY_ID').write_text(self.s3.key + '\n')
        (self.credentials / 'AWS_SECRET_ACCESS_KEY').write_text(self.s3.secret + '\n')

    def registry(self, *flags):
        return super().registry('--s3', 's3://models/edge', '--s3-endpoint', self.s3.url, '--s3-credentials-dir', str(self.credentials), *flags)

    def restart(self, registry):
        """Another process on another machine: nothing but the bucket is left."""
        registry.end(signal.SIGKILL)
        shutil.rmtree(self.work / 'data')
        registry.start()

    def send_some(self, registry, data, count, until):
        """Sends the first `count` bytes of a whole upload, and keeps the connection until then."""
        host, port = registry.url.removeprefix('http://').split(':')
        with socket.create_connection((host, int(port))) as s:
            s.sendall(('PUT /v1/blobs/sha256:%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n' % (
                hashlib.sha256(data).hexdigest(), TOKEN, len(data))).encode() + data[:count])
            m.wait_until('parts in the bucket', until)

    def state(self):
        with self.s3.lock:
            return sorted(self.s3.objects), len(self.s3.uploads)


class Uploads(BucketBase):
    def test_curl_continues_after_a_kill_and_the_loss_of_the_disk(self):
        registry = self.registry()
        data = random.Random(1).randbytes(5 * PART + 12345)
        path = self.file(data)
        parts = lambda: sum(len(parts) for _, parts in self.s3.uploads.values())
        self.send_some(registry, data, 3 * PART + MIB, lambda: registry.offset(data) == str(3 * PART + MIB) and parts() == 3)
        # on the same disk not even the bytes of the broken connection are lost
        registry.end(signal.SIGKILL)
        registry.start()
        self.assertEqual(registry.offset(data), str(3 * PART + MIB))
        self.restart(registry)
        self.assertEqual(registry.offset(data), str(3 * PART))
        # a piece that is acknowledged, then a kill
        piece = self.file(data[3 * PART:4 * PART + MIB], 'piece')
        status, headers, _ = registry.curl('-T', str(piece), '-H', 'Content-Range: bytes %d-%d/%d' % (3 * PART, 4 * PART + MIB - 1, len(data)), registry.blob(data))
        self.assertEqual((status, headers['upload-offset']), (202, str(4 * PART + MIB)))
        self.restart(registry)
        offset = registry.offset(data)
        self.assertEqual(offset, str(4 * PART))
        self.assertEqual(registry.curl(registry.blob(data))[0], 404)
        self.assertEqual(registry.curl('-C', offset, '-T', str(path), registry.blob(data))[0], 201)
        self.restart(registry)
        self.assertEqual(registry.curl(registry.blob(data))[2], data)
        status, _, body = registry.curl('-r', '%d-%d' % (PART - 5, PART + 4), registry.blob(data))
        self.assertEqual((status, body), (206, data[PART - 5:PART + 5]))
        self.assertEqual(self.state(), (['edge/blobs/' + hashlib.sha256(data).hexdigest()], 0))
        self.assertEqual(registry.curl('-X', 'DELETE', registry.blob(data))[0], 204)
        self.assertEqual(self.state(), ([], 0))
        self.assertEqual(registry.end(), 0, 'SIGTERM drains')

    def test_small_pieces_survive_kills_between_them(self):
        registry = self.registry()
        data, step = random.Random(6).randbytes(PART + 3 * MIB + 7), 3 * MIB
        for first in range(0, len(data), step):
            last = min(first + step, len(data)) - 1
            self.assertEqual(registry.offset(data) or '0', str(first))
            span = 'Content-Range: bytes %d-%d/%d' % (first, last, len(data))
            status, headers, _ = registry.curl('-T', str(self.file(data[first:last + 1])), '-H', span, registry.blob(data))
            self.assertEqual((status, headers.get('upload-offset', '')), (202, str(last + 1)) if last + 1 < len(data) else (201, ''))
            registry.end(signal.SIGKILL)
            registry.start()
        self.assertEqual(registry.curl(registry.blob(data))[2], data)
        self.assertEqual(list((self.work / 'data/spool').iterdir()), [])

    def test_wrong_bytes_leave_nothing_in_the_bucket(self):
        registry = self.registry()
        data, other = b'a' * (PART + MIB), b'b' * (PART + MIB)
        status, _, body = registry.curl('-T', str(self.file(other)), registry.blob(data))
        self.assertEqual(status, 422)
        self.assertIn(hashlib.sha256(other).hexdigest(), json.loads(body)['error'])
        self.assertEqual(self.state(), ([], 0))
        # the same, with the beginning in an earlier process: the registry reads the object again
        piece = self.file(other[:PART], 'piece')
        span = 'Content-Range: bytes 0-%d/%d' % (PART - 1, len(data))
        self.assertEqual(registry.curl('-T', str(piece), '-H', span, registry.blob(data))[0], 202)
        self.restart(registry)
        self.assertEqual(registry.offset(data), str(PART))
        self.assertEqual(registry.curl('-C', str(PART), '-T', str(self.file(other)), registry.blob(data))[0], 422)
        self.assertEqual(self.state(), ([], 0))

    def test_quota_counts_stored_and_unfinished_bytes_after_a_restart(self):
        registry = self.registry('--quota', '30Mi')
        first, second = b'x' * (2 * PART), b'y' * (PART + MIB)
        self.assertEqual(registry.curl('-T', str(self.file(b'z' * (31 * MIB))), registry.blob(b'z' * (31 * MIB)))[0], 413)
        self.assertEqual(registry.curl('-T', str(self.file(first)), registry.blob(first))[0], 201)
        self.send_some(registry, second, PART, lambda: any('/uploads/' in key for key in self.state()[0]))
        self.restart(registry)
        third = b'q' * (6 * MIB)
        status, _, body = registry.curl('-T', str(self.file(third)), registry.blob(third))
        self.assertEqual(status, 507)
        self.assertIn('stored blobs use %d and unfinished uploads %d' % (len(first), len(second)), json.loads(body)['error'])

    def test_faults_of_the_bucket_cost_time_only(self):
        registry = self.registry()
        data = random.Random(2).randbytes(3 * PART)
        self.s3.fail(r'POST .*uploads=', 'cut')
        self.s3.fail(r'partNumber=1', 500, 2)
        self.s3.fail(r'partNumber=2', 'cut')
        self.s3.fail(r'partNumber=3', 'lost')
        self.s3.fail(r'PUT .*/uploads/', '1s')
        self.s3.fail(r'POST .*uploadId', 'lost')
        self.s3.fail(r'DELETE .*/uploads/', 503)
        self.assertEqual(registry.curl('-T', str(self.file(data)), registry.blob(data))[0], 201)
        self.s3.fail(r'GET .*/blobs/', 'cut')
        self.assertEqual(registry.curl(registry.blob(data))[2], data)
        # A bucket that is away for longer than the attempts: the client continues later.
        self.s3.fail(r'partNumber=2', 500, 4)
        data = random.Random(3).randbytes(3 * PART)
        status, headers, _ = registry.curl('-T', str(self.file(data)), registry.blob(data))
        self.assertEqual((status, headers['retry-after']), (503, '1'))
        offset = registry.offset(data)
        self.assertGreaterEqual(int(offset), PART)
        self.assertEqual(registry.curl('-C', offset, '-T', str(self.file(data)), registry.blob(data))[0], 201)
        self.assertEqual(registry.curl(registry.blob(data))[2], data)

    def test_wrong_secret_stops_the_start_with_the_servers_reason(self):
        (self.credentials / 'AWS_SECRET_ACCESS_KEY').write_text('wrong')
        done = subprocess.run([m.VARDA, 'registry', '--data-dir', str(self.work / 'data'), '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--s3', 's3://models',
                               '--s3-endpoint', self.s3.url, '--s3-credentials-dir', str(self.credentials)], capture_output=True, text=True, timeout=m.seconds(60))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('403 SignatureDoesNotMatch', done.stderr)
        self.assertNotIn('wrong', done.stderr)

    def test_bucket_with_a_private_authority_is_trusted_by_its_certificate(self):
        pair = [str(self.work / name) for name in ('s3.crt', 's3.key')]
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=s3', '-addext',
                        'subjectAltName=IP:127.0.0.1', '-out', pair[0], '-keyout', pair[1]], check=True, capture_output=True)
        self.s3 = S3Server(tls=pair)
        self.addCleanup(self.s3.close)
        shutil.copy(pair[0], self.credentials / 'ca.crt')
        # the endpoint as a key of the Secret, in place of the flag
        (self.credentials / 'AWS_ENDPOINT_URL').write_text(self.s3.url)
        registry = registry_test.Registry(self.work, '--s3', 's3://models/edge', '--s3-credentials-dir', str(self.credentials))
        self.addCleanup(registry.end)
        data = random.Random(7).randbytes(PART + MIB)
        self.assertEqual(registry.curl('-T', str(self.file(data)), registry.blob(data))[0], 201)
        self.assertEqual(registry.curl(registry.blob(data))[2], data)
        registry.end()
        (self.credentials / 'ca.crt').unlink()
        with self.assertRaisesRegex(AssertionError, 'certificate'):
            registry.start()

    def test_versions_keep_their_files_over_a_restart(self):
        registry = self.registry('--grace', '2s')
        named, unnamed = b'named' * 1000, b'unnamed' * 1000
        for data in (named, unnamed):
            self.assertEqual(registry.curl('-T', str(self.file(data)), registry.blob(data))[0], 201)
        url = registry.url + '/v1/models/default/digits/versions/'
        for version in ('3', '4', '5'):
            document = json.dumps({'digest': 'sha256:' + hashlib.sha256(named).hexdigest(), 'metrics': {'accuracy': 0.97}}).encode()
            self.assertEqual(registry.curl('-T', '-', url + version, input=document)[0], 201)
        self.restart(registry)
        url = registry.url + '/v1/models/default/digits/versions/'
        self.assertEqual(json.loads(registry.curl(url + '4')[2])['metrics'], {'accuracy': 0.97})
        self.assertEqual([x['version'] for x in json.loads(registry.curl(url)[2])['items']], ['3', '4', '5'])
        m.wait_until('the unnamed blob removed', lambda: registry.curl(registry.blob(unnamed))[0] == 404)
        self.assertEqual(registry.curl('-I', registry.blob(named))[0], 200)
        for version in ('3', '4', '5'):
            self.assertEqual(registry.curl('-X', 'DELETE', url + version)[0], 204)
        m.wait_until('the bucket empty', lambda: self.state() == ([], 0))

    def test_killed_push_continues(self):
        registry = self.registry()
        data = random.Random(4).randbytes(6 * PART + 1)
        path = self.file(data, 'weights.bin')
        command = [m.VARDA, 'push', str(path), '--name', 'weights', '--no-model', '--registry', registry.url, '--token-file', str(registry.token)]
        push = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        m.wait_until('some bytes', lambda: int(registry.offset(data) or 0) > 0 or push.poll() is not None)
        push.kill()
        push.wait()
        self.restart(registry)
        command[command.index('--registry') + 1] = registry.url
        done = subprocess.run(command, capture_output=True, text=True, timeout=m.seconds(120))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(registry.curl(registry.blob(data))[2], data)

    def test_memory_and_disk_stay_small_behind_a_slow_bucket(self):
        registry = self.registry()
        begin = registry.rss_max_kib()
        self.s3.fail(r'partNumber', '0.2s', 1000)
        block = random.Random(5).randbytes(MIB)
        answers, spools = {}, []

        def send(i):
            data = b''.join(b'%d %d ' % (i, j) + block for j in range(40))
            answers[i] = subprocess.run(['curl', '-sS', '--noproxy', '*', '-H', 'Authorization: Bearer ' + TOKEN, '-w', '%{http_code}', '-o', '/dev/null',
                                         '-T', str(self.file(data, 'upload%d' % i)), registry.blob(data)], capture_output=True, text=True).stdout

        threads = [threading.Thread(target=send, args=(i,)) for i in range(10)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            spools.append(self.spooled())
            threads[0].join(0.05)
            with contextlib.suppress(StopIteration):
                next(thread for thread in threads if thread.is_alive()).join(0.05)
        self.assertEqual(set(answers.values()), {'201'})
        print('registry VmHWM grew by %d KiB, largest spool %d KiB' % (registry.rss_max_kib() - begin, max(spools) >> 10), file=sys.stderr)
        self.assertLessEqual(registry.rss_max_kib() - begin, GROWTH_MAX_KIB)
        self.assertLessEqual(max(spools), 10 * 3 * PART)

    def spooled(self):
        total = 0
        with contextlib.suppress(OSError):
            for path in (self.work / 'data/spool').iterdir():
                with contextlib.suppress(OSError):
                    total += path.stat().st_size
        return total


if __name__ == '__main__':
    unittest.main()
