"""Archives during download and on a node's disk, with real processes: kills, mirrors, credentials,
proxies, s3, `varda artifacts`."""
import base64, contextlib, hashlib, hmac, http.server, io, json, os, pathlib, random, resource, select, shutil, signal, socket, ssl, subprocess, sys, tarfile, tempfile, threading
import unittest, urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

LOSS_MAX = 256 << 10
LIMIT = 1 << 20  # bytes, for all archives of the node together


def tar(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w') as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Origin(http.server.BaseHTTPRequestHandler):
    """Serves `content` with ranges and counts the bytes it sends. Pauses at `hold_at` until
    `release` is set, then closes the connection."""
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def handle(self):
        with contextlib.suppress(OSError):  # a killed client resets the connection
            super().handle()

    def do_GET(self):
        origin = self.server.origin
        origin.requests.append((self.path, dict(self.headers)))
        refusal = origin.check(self) if origin.check else None
        if self.path in origin.redirects:
            self.send_response(302)
            self.send_header('Location', origin.redirects[self.path])
            self.send_header('Content-Length', '0')
            self.end_headers()
            return
        data = origin.content.get(urllib.parse.urlsplit(self.path).path)
        if refusal or data is None:
            text = ('<Error><Code>%s</Code></Error>' % (refusal or 'NoSuchKey')).encode()
            self.send_response(403 if refusal else 404)
            if refusal == 'Basic':
                self.send_header('WWW-Authenticate', 'Basic realm="files"')
            self.send_header('Content-Length', str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            return
        requested = self.headers.get('Range')
        at = int(requested.removeprefix('bytes=').split('-')[0]) if requested else 0
        self.send_response(206 if requested else 200)
        if requested:
            self.send_header('Content-Range', 'bytes %d-%d/%d' % (at, len(data) - 1, len(data)))
        self.send_header('ETag', '"e"')
        self.send_header('Content-Length', str(len(data) - at))
        self.end_headers()
        try:
            while at < len(data):
                end = min(at + (64 << 10), len(data))
                if origin.hold_at is not None and at < origin.hold_at:
                    end = min(end, origin.hold_at)
                elif origin.hold_at is not None:
                    origin.holding.set()
                    origin.release.wait(120)
                    self.close_connection = True
                    return
                self.wfile.write(data[at:end])
                origin.sent += end - at
                at = end
        except OSError:
            self.close_connection = True


class FileServer:
    def __init__(self, check=None, tls=None):
        self.content, self.redirects, self.requests, self.sent, self.check = {}, {}, [], 0, check
        self.hold_at, self.holding, self.release = None, threading.Event(), threading.Event()
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Origin)
        self.server.origin = self
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def put(self, path, data):
        self.content[path] = data
        return hashlib.sha256(data).hexdigest()

    def url(self, path, scheme='http', host='127.0.0.1'):
        return '%s://%s:%d%s' % (scheme, host, self.port, path)

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


class Proxy:
    """A forward proxy: whole URLs for http, CONNECT for https, basic authentication if
    `credentials` are given. Every name resolves to 127.0.0.1."""

    def __init__(self, credentials=None):
        self.seen, self.wanted = [], credentials and 'Basic ' + base64.b64encode(credentials.encode()).decode()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *args):
                pass

            def refused(self):
                proxy.seen.append((self.command, self.path))
                self.close_connection = True
                if proxy.wanted and self.headers.get('Proxy-Authorization') != proxy.wanted:
                    self.send_response(407)
                    self.send_header('Content-Length', '0')
                    self.end_headers()
                    return True
                return False

            def do_CONNECT(self):
                if self.refused():
                    return
                with socket.create_connection(('127.0.0.1', int(self.path.rsplit(':', 1)[1]))) as upstream:
                    self.send_response(200)
                    self.end_headers()
                    downstream = self.connection
                    while True:
                        ready, _, _ = select.select([downstream, upstream], [], [])
                        for one in ready:
                            data = one.recv(1 << 16)
                            if not data:
                                return
                            (upstream if one is downstream else downstream).sendall(data)

            def do_GET(self):
                if self.refused():
                    return
                url = urllib.parse.urlsplit(self.path)
                with socket.create_connection(('127.0.0.1', url.port)) as upstream:
                    lines = ['GET %s HTTP/1.1' % url.path, 'Host: ' + url.netloc, 'Connection: close']
                    lines += ['%s: %s' % (k, v) for k, v in self.headers.items() if k.lower() in ('range', 'if-range', 'authorization')]
                    upstream.sendall(('\r\n'.join(lines) + '\r\n\r\n').encode())
                    while data := upstream.recv(1 << 16):
                        self.wfile.write(data)

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        self.url = 'http://127.0.0.1:%d' % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def s3_check(key_id, secret, region='us-east-1', token=None):
    """Returns a check of a request's Signature Version 4, recomputed from the request. The check
    returns None, or the error code for a wrong signature."""

    def sign(key, text):
        return hmac.new(key, text.encode(), hashlib.sha256).digest()

    def check(request):
        authorization = request.headers.get('Authorization', '')
        if not authorization.startswith('AWS4-HMAC-SHA256 '):
            return 'AccessDenied'
        fields = dict(part.strip().split('=', 1) for part in authorization.removeprefix('AWS4-HMAC-SHA256 ').split(','))
        names = fields['SignedHeaders'].split(';')
        if 'host' not in names or ('Range' in request.headers and 'range' not in names) or 'x-amz-date' not in names:
            return 'SignatureDoesNotMatch'
        if token and request.headers.get('X-Amz-Security-Token') != token:
            return 'InvalidToken'
        canonical = '\n'.join([request.command, request.path, ''] + ['%s:%s' % (n, request.headers[n].strip()) for n in names]
                              + ['', fields['SignedHeaders'], request.headers['X-Amz-Content-Sha256']])
        date = request.headers['X-Amz-Date']
        scope = '%s/%s/s3/aws4_request' % (date[:8], region)
        if fields['Credential'] != key_id + '/' + scope:
            return 'InvalidAccessKeyId'
        text = '\n'.join(['AWS4-HMAC-SHA256', date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ('AWS4' + secret).encode()
        for part in (date[:8], region, 's3', 'aws4_request'):
            key = sign(key, part)
        return None if hmac.compare_digest(sign(key, text).hex(), fields['Signature']) else 'SignatureDoesNotMatch'

    return check


class Fetch(unittest.TestCase):
    """`varda fetch` makes the same downloads as an agent, in a separate process."""

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.data = tar(('model.onnx', random.Random(7).randbytes(8 << 20)), ('labels.txt', b'0\n1\n'))

    def serve(self, **how):
        files = FileServer(**how)
        self.addCleanup(files.close)
        return files, files.put('/m.tar', self.data)

    def proxy(self, **how):
        proxy = Proxy(**how)
        self.addCleanup(proxy.close)
        return proxy

    def secret(self, **keys):
        """Mounts a Secret like Kubernetes: links into a directory that is replaced as a whole."""
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        (directory / '..2024').mkdir()
        keys.setdefault('hosts', '127.0.0.1')
        os.symlink('..2024', directory / '..data')
        for key, value in keys.items():
            key = key.replace('ca_crt', 'ca.crt')
            (directory / '..2024' / key).write_text(value)
            os.symlink('..data/' + key, directory / key)
        return str(directory)

    def fetch(self, url, digest, *more, env=None, check=True):
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith('_proxy')}
        environment.update(env or {})
        to = self.work / ('out-%d' % len(list(self.work.iterdir())))
        done = subprocess.run([m.VARDA, 'fetch', *m.LOOPBACK, '--url', url, '--sha256', digest, '--to', str(to), *([] if check else ['--attempts', '1']), *more],
                              capture_output=True, text=True, timeout=m.seconds(300), env=environment)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((to / 'labels.txt').read_text(), '0\n1\n')
        return done

    def test_kill_loses_at_most_256_kib_of_the_download(self):
        draw = random.Random(11)
        for round in range(4):
            with self.subTest(round=round):
                files, digest = self.serve()
                stop_at = draw.randrange(300 << 10, len(self.data) - (300 << 10))
                files.hold_at = stop_at
                to = self.work / ('killed-%d' % round)
                command = [m.VARDA, 'fetch', *m.LOOPBACK, '--url', files.url('/m.tar'), '--sha256', digest, '--to', str(to)]
                part = self.work / ('.killed-%d.fetch' % round) / (digest + '.part')
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                files.holding.wait(120)
                # The bytes that the server sent may still be in transit. The process writes each
                # piece to disk before it reads the next.
                m.wait_until('what came is in the spool', lambda: part.stat().st_size >= stop_at - LOSS_MAX)
                process.send_signal(signal.SIGKILL)
                process.wait()
                files.hold_at = None
                files.release.set()
                subprocess.run(command, check=True, timeout=m.seconds(300), capture_output=True)
                requested = files.requests[-1][1]['Range']
                self.assertGreaterEqual(int(requested.removeprefix('bytes=').rstrip('-')), stop_at - LOSS_MAX)
                self.assertLessEqual(files.sent, len(self.data) + LOSS_MAX)
                self.assertEqual((to / 'labels.txt').read_text(), '0\n1\n')

    def test_mirror_resumes_where_the_first_source_broke(self):
        first, digest = self.serve()
        second, _ = self.serve()
        first.hold_at = 3 << 20
        first.release.set()  # the server closes the connection at `hold_at`, each time
        done = self.fetch(first.url('/m.tar'), digest, '--mirror', second.url('/m.tar'))
        self.assertEqual(len(second.requests), 1, done.stderr)
        self.assertEqual(second.requests[0][1]['Range'], 'bytes=%d-' % (3 << 20))
        self.assertLessEqual(first.sent + second.sent, len(self.data) + LOSS_MAX)

    def test_error_names_every_failed_source(self):
        files, digest = self.serve()
        files.put('/other.tar', tar(('model.onnx', b'other')))
        done = self.fetch(files.url('/none.tar'), digest, '--mirror', files.url('/other.tar'), '--mirror', 's3://', check=False)
        self.assertEqual(done.returncode, 1)
        for part in ('none of 3 sources', '/none.tar: HTTP 404', 'expected sha256 ' + digest, 's3://'):
            self.assertIn(part, done.stderr)

    def test_http_proxy_comes_from_flags_or_environment(self):
        files, digest = self.serve()
        proxy = self.proxy(credentials='jane:s3cret')
        url = files.url('/m.tar', host='files.invalid')
        password = self.work / 'proxy-password'
        password.write_text('jane:s3cret\n')
        self.fetch(url, digest, '--http-proxy', proxy.url, '--proxy-credentials-file', str(password))
        self.assertEqual(proxy.seen, [('GET', url)])
        self.fetch(url, digest, '--proxy-credentials-file', str(password), env={'HTTP_PROXY': proxy.url})
        self.assertEqual(len(proxy.seen), 2)
        done = self.fetch(url, digest, env={'http_proxy': proxy.url.replace('http://', 'http://jane:s3cret@')}, check=False)
        self.assertIn('HTTP 407', done.stderr)
        self.assertIn('--proxy-credentials-file', done.stderr)
        self.assertNotIn('s3cret', done.stderr)
        seen = len(proxy.seen)
        # loopback addresses bypass the proxy
        self.fetch(files.url('/m.tar'), digest, '--http-proxy', proxy.url)
        self.fetch(files.url('/m.tar'), digest, '--http-proxy', '', env={'http_proxy': proxy.url})
        self.assertEqual(len(proxy.seen), seen)
        self.fetch(url, digest, '--http-proxy', proxy.url, '--no-proxy', 'invalid', '--attempts', '1', check=False)
        self.assertEqual(len(proxy.seen), seen)

    def certificates(self):
        def openssl(*args):
            subprocess.run(['openssl', *args], cwd=self.work, check=True, capture_output=True)
        openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'ca.key', '-out', 'ca.pem',
                '-subj', '/CN=private', '-days', '2')
        openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'tls.key', '-out', 'tls.csr',
                '-subj', '/CN=files.invalid')
        (self.work / 'ext').write_text('subjectAltName=DNS:files.invalid,IP:127.0.0.1\n')
        openssl('x509', '-req', '-in', 'tls.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-out', 'tls.pem', '-days', '2',
                '-extfile', 'ext')
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.work / 'tls.pem', self.work / 'tls.key')
        return context

    def test_private_authority_is_trusted_directly_and_by_tunnel(self):
        files, digest = self.serve(tls=self.certificates())
        ca = str(self.work / 'ca.pem')
        straight = files.url('/m.tar', 'https')
        self.fetch(straight, digest, '--ca-file', ca)
        self.fetch(straight, digest, '--credentials-dir', self.secret(ca_crt=(self.work / 'ca.pem').read_text()))
        self.assertIn('TLS handshake failed', self.fetch(straight, digest, check=False).stderr)
        plain, _ = self.serve()
        files.redirects['/down.tar'] = plain.url('/m.tar')
        down = self.fetch(files.url('/down.tar', 'https'), digest, '--ca-file', ca, check=False)
        self.assertIn('which is not https', down.stderr)
        self.assertEqual(plain.requests, [])
        proxy = self.proxy()
        self.fetch(files.url('/m.tar', 'https', 'files.invalid'), digest, '--ca-file', ca, '--https-proxy', proxy.url)
        self.assertEqual(proxy.seen, [('CONNECT', 'files.invalid:%d' % files.port)])

    def test_loopback_addresses_are_refused_unless_allowed(self):
        files, digest = self.serve()

        def refused(path, *flags):
            done = subprocess.run([m.VARDA, 'fetch', '--url', files.url(path), '--sha256', digest, '--to', str(self.work / 'refused'), *flags],
                                  capture_output=True, text=True, timeout=m.seconds(300))
            self.assertEqual(done.returncode, 1)
            self.assertIn('SourceForbidden', done.stderr)
            return done.stderr
        self.assertIn('--allow-source 127.0.0.1', refused('/m.tar'))
        self.assertEqual(files.requests, [])
        files.redirects['/hop.tar'] = 'http://127.0.0.2:1/m.tar'
        self.assertIn('127.0.0.2 is a loopback address', refused('/hop.tar', '--allow-source', '127.0.0.1'))

    def test_credentials_come_from_a_secret_and_stay_out_of_output(self):
        wanted = 'Basic ' + base64.b64encode(b'jane:s3cret').decode()
        files, digest = self.serve(check=lambda request: None if request.headers.get('Authorization') == wanted else 'Basic')
        good = self.secret(username='jane', password='s3cret\n')
        done = self.fetch(files.url('/m.tar'), digest, '--credentials-dir', good)
        self.assertNotIn('s3cret', done.stdout + done.stderr)
        wrong = self.fetch(files.url('/m.tar'), digest, '--credentials-dir', self.secret(token='s3cret'), check=False)
        self.assertIn('DownloadFailed', wrong.stderr)
        self.assertIn('HTTP 403', wrong.stderr)
        self.assertNotIn('s3cret', wrong.stderr)
        missing = self.fetch(files.url('/m.tar'), digest, '--credentials-dir', self.secret(user='jane'), check=False)
        self.assertIn('CredentialsMissing', missing.stderr)
        for hosts, named in ((' ', 'does not contain 127.0.0.1'), ('files.example', 'does not contain 127.0.0.1')):
            withheld = self.fetch(files.url('/m.tar'), digest, '--credentials-dir', self.secret(username='jane', password='s3cret', hosts=hosts), check=False)
            self.assertIn('CredentialsInvalid', withheld.stderr)
            self.assertIn(named, withheld.stderr)

    def test_s3_urls_are_signed_for_every_range(self):
        files, _ = self.serve(check=s3_check('AKID', 's3cret/+', region='eu-central-1', token='session'))
        digest = files.put('/models/team%20a/m%2B1.tar', self.data)
        keys = dict(AWS_ACCESS_KEY_ID='AKID', AWS_SECRET_ACCESS_KEY='s3cret/+', AWS_SESSION_TOKEN='session', AWS_REGION='eu-central-1',
                    AWS_ENDPOINT_URL=files.url(''))
        url = 's3://models/team%20a/m+1.tar'
        files.hold_at = 2 << 20
        to = self.work / 's3'
        command = [m.VARDA, 'fetch', *m.LOOPBACK, '--url', url, '--sha256', digest, '--to', str(to), '--credentials-dir', self.secret(**keys)]
        part = self.work / '.s3.fetch' / (digest + '.part')
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        files.holding.wait(120)
        m.wait_until('what came is in the spool', lambda: part.stat().st_size >= files.hold_at - LOSS_MAX)
        process.send_signal(signal.SIGKILL)
        process.wait()
        files.hold_at = None
        files.release.set()
        subprocess.run(command, check=True, timeout=m.seconds(300), capture_output=True)
        self.assertEqual((to / 'labels.txt').read_text(), '0\n1\n')
        self.assertIn('Range', files.requests[-1][1])
        for change, message in ((dict(AWS_SECRET_ACCESS_KEY='other'), 'SignatureDoesNotMatch'), (dict(AWS_ACCESS_KEY_ID='x'), 'InvalidAccessKeyId')):
            done = self.fetch(url, digest, '--credentials-dir', self.secret(**dict(keys, **change)), check=False)
            self.assertIn(message, done.stderr)
            self.assertNotIn('s3cret', done.stderr)


    def test_concurrent_fetches_take_turns_and_download_once(self):
        files, digest = self.serve()
        files.hold_at = 3 << 20
        to = self.work / 'parent/two'
        command = [m.VARDA, 'fetch', *m.LOOPBACK, '--url', files.url('/m.tar'), '--sha256', digest, '--to', str(to)]
        both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)]
        files.holding.wait(120)
        both.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        self.assertIn('waiting for another fetch', both[1].stderr.readline())
        files.hold_at = None
        files.release.set()
        for process in both:
            output = process.communicate(timeout=m.seconds(300))[1]
            self.assertEqual(process.returncode, 0, output)
        self.assertEqual((to / 'labels.txt').read_text(), '0\n1\n')
        self.assertEqual(os.listdir(to.parent), ['two'])
        self.assertLessEqual(files.sent, len(self.data) + LOSS_MAX)

    def test_file_size_limit_is_a_full_disk_and_the_download_resumes(self):
        files, digest = self.serve()
        to = self.work / 'limited'
        command = [m.VARDA, 'fetch', *m.LOOPBACK, '--url', files.url('/m.tar'), '--sha256', digest, '--to', str(to), '--attempts', '1']
        limit = 5 << 20
        done = subprocess.run(command, capture_output=True, text=True, timeout=m.seconds(300),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('DiskFull', done.stderr)
        self.assertFalse(to.exists())
        subprocess.run(command, check=True, capture_output=True, timeout=m.seconds(300))
        self.assertEqual(files.requests[-1][1]['Range'], 'bytes=%d-' % limit)
        self.assertEqual((to / 'labels.txt').read_text(), '0\n1\n')


class ArtifactCommands(unittest.TestCase):
    """`varda artifacts` on a directory without a running agent."""

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.digests = [hashlib.sha256(b'%d' % i).hexdigest() for i in range(3)]
        for i, digest in enumerate(self.digests):
            tree = self.work / 'artifacts' / digest
            tree.mkdir(parents=True)
            content = b'' if i == 0 else b'weights %d' % i
            (tree / 'model.onnx').write_bytes(content)
            record = self.work / 'artifacts/.trees' / digest
            record.parent.mkdir(exist_ok=True)
            record.write_text('file %s %d model.onnx\nend -\n' % (hashlib.sha256(content).hexdigest(), len(content)))

    def artifacts(self, *args, data_dir=None, **how):
        return subprocess.run([how.pop('program', m.VARDA), 'artifacts', args[0], '--data-dir', str(self.work) if data_dir is None else data_dir, *args[1:]],
                              capture_output=True, text=True, timeout=m.seconds(120), **how)

    def pinned(self):
        return sorted(a['sha256'] for a in json.loads(self.artifacts('ls', '-o', 'json').stdout)['artifacts'] if a['pinned'])

    def test_invalid_digest_changes_no_artifact(self):
        for word in ('', 'zz', '../..', 'sha256:', 'sha512:' + self.digests[0], self.digests[0] + '00', self.digests[0] + ' '):
            for command in ('pin', 'unpin', 'verify'):
                done = self.artifacts(command, word)
                self.assertEqual((done.returncode, 'is not a digest' in done.stderr), (1, True), (command, word, done.stderr))
        done = self.artifacts('pin', self.digests[0], 'abcdef012345')
        self.assertIn('there is no artifact abcdef012345', done.stderr)
        self.assertEqual(self.pinned(), [], 'all of them, or none')
        self.assertEqual(self.artifacts('pin', 'sha256:' + self.digests[0].upper(), self.digests[1][:9]).returncode, 0)
        self.assertEqual(self.pinned(), sorted(self.digests[:2]))
        for data_dir, message in (('', 'must not be empty'), ('/nonexistent', 'not the data directory of an agent'), (m.VARDA, 'not the data directory of an agent')):
            done = self.artifacts('ls', data_dir=data_dir)
            self.assertEqual((done.returncode, message in done.stderr), (1, True), done.stderr)

    def test_missing_artifact_can_be_unpinned(self):
        self.artifacts('pin', self.digests[1])
        shutil.rmtree(self.work / 'artifacts' / self.digests[1])
        self.assertIn('unpinned', self.artifacts('unpin', self.digests[1][:10]).stdout)
        self.assertEqual(self.artifacts('unpin', self.digests[1][:10]).returncode, 1)
        self.assertEqual(os.listdir(self.work / 'artifacts/.marks'), [])

    def test_gc_removes_unused_artifacts(self):
        self.artifacts('pin', self.digests[1])
        shutil.rmtree(self.work / 'artifacts' / self.digests[2])
        self.assertIn(self.digests[0][:16], self.artifacts('gc', '--dry-run').stdout)
        self.assertIn('freed', self.artifacts('gc').stderr)
        self.assertEqual([d for d in self.digests if (self.work / 'artifacts' / d).exists()], [self.digests[1]])
        self.assertIn('no artifact is unused', self.artifacts('gc').stderr)

    def test_missing_permission_is_reported_to_another_user(self):
        """An ordinary user closes the directories to itself. File permissions do not stop root, so
        root switches to another user."""
        def drop_privileges():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        trees = self.work / 'artifacts/.trees'
        trees.chmod(0)
        self.addCleanup(trees.chmod, 0o700)
        how = {}
        if os.access(trees, os.R_OK):
            program = self.work / 'varda'  # the other user can read this copy
            shutil.copy(m.VARDA, program)
            for path in (self.work, program, self.work / 'artifacts'):
                path.chmod(0o755)
            how = dict(program=str(program), preexec_fn=drop_privileges, cwd='/')
        else:
            trees.parent.chmod(0o500)
            self.addCleanup(trees.parent.chmod, 0o700)
        self.assertEqual(self.artifacts('ls', **how).returncode, 0)
        for command in (['verify'], ['pin', self.digests[0]], ['gc']):
            done = self.artifacts(*command, **how)
            self.assertEqual((done.returncode, 'Permission denied' in done.stderr), (1, True), (command, done.stdout, done.stderr))
            self.assertEqual(done.stdout if command != ['gc'] else '', '')
        trees.parent.chmod(0o755)
        trees.chmod(0o700)
        self.assertEqual(self.artifacts('verify').stdout.count('whole'), 3)
        (self.work / 'artifacts' / self.digests[2] / 'model.onnx').write_bytes(b'other')
        done = self.artifacts('verify')
        self.assertEqual((done.returncode, done.stdout.count('damaged')), (1, 1), done.stdout + done.stderr)


class ArtifactsOnANode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        wanted = 'Basic ' + base64.b64encode(b'jane:s3cret').decode()
        cls.files = FileServer(check=lambda request: None if request.headers.get('Authorization') == wanted else 'Basic')
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.varda.up('--artifact-bytes-max', str(LIMIT))
        cls.varda.nodes_ready()
        cls.digest = {}
        for v in ('3', '4'):
            out = cls.work / ('digits-%s.tar.gz' % v)
            m.pack(cls.varda, v, out)
            cls.digest[v] = cls.files.put('/%s.tar.gz' % v, out.read_bytes())
        cls.varda.kubectl('create', 'secret', 'generic', 'files', '--from-literal=username=jane', '--from-literal=password=s3cret',
                          '--from-literal=hosts=127.0.0.1')
        cls.node = cls.varda.dir / 'nodes/edge0/data'

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.close()
        shutil.rmtree(cls.work, ignore_errors=True)

    def apply(self, name, layer, version, **more):
        model = m.inference_model(name, layer, [], version, **more)
        model['spec']['manifest'] = [{'version': v, 'downloadURL': 'http://127.0.0.1:1/%s.tar.gz' % v, 'sha256sum': self.digest[v],
                                      'mirrors': [self.files.url('/%s.tar.gz' % v)], 'credentials': {'secretName': 'files'}} for v in ('3', '4')]
        self.varda.kubectl('apply', '-f', '-', input=json.dumps(model))

    def artifacts(self, *args, check=True):
        return self.varda.varda('artifacts', args[0], '--data-dir', str(self.node), *args[1:], check=check)

    def listed(self):
        return {a['sha256']: a for a in json.loads(self.artifacts('ls', '-o', 'json'))['artifacts']}

    def test_previous_version_stays_for_a_rollback(self):
        varda, files, way = self.varda, FileServer(), 'mobile'
        self.addCleanup(files.close)
        example = [(p.name, p.read_bytes()) for p in sorted((m.DIGITS / 'models/4').iterdir())]
        draw = random.Random(3)
        versions = []
        # KiB; any two versions fit beside the small ones, all three do not
        for version, size in (('1', 300), ('2', 400), ('3', 500)):
            data = tar(*example, ('weights-%s.bin' % version, draw.randbytes(size << 10)))
            versions.append((version, files.url('/%s.tar' % version), files.put('/%s.tar' % version, data)))
        digest = {version: d for version, _, d in versions}
        for target, holds in (('1', '1'), ('2', '12'), ('3', '23')):
            varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model(way, 'edge', versions, target, node='edge0', port=8091)))
            varda.ready(way, target)
            m.wait_until('the node holds ' + holds, lambda: {v for v, d in digest.items() if d in self.listed()} == set(holds))
        m.wait_until('both of them are wanted', lambda: all(self.listed()[digest[held]]['wanted'] for held in '23'))
        requested = len(files.requests)
        varda.kubectl('patch', 'inferencemodel', way, '--type=merge', '-p', json.dumps({'spec': {'targetVersion': '2'}}))
        varda.ready(way, '2')
        self.assertEqual(len(files.requests), requested, 'the way back needs no network')
        self.artifacts('gc')
        varda.kubectl('patch', 'inferencemodel', way, '--type=merge', '-p', json.dumps({'spec': {'targetVersion': '3'}}))
        varda.ready(way, '3')
        self.assertEqual(len(files.requests), requested, 'nor does it after tidying up')
        varda.kubectl('delete', 'inferencemodel', way)

    def test_credentials_reach_a_labelled_namespace_and_are_not_stored(self):
        varda = self.varda
        self.apply('digits', 'edge', '3', node='edge0')
        self.apply('clouds', 'cloud', '3', port=8090)

        def failure():
            report = varda.get('edgenode', 'edge0')['status'].get('models', [])
            return [v for r in report for v in r.get('versions', []) if v.get('reason') == 'CredentialsForbidden']
        condition = m.wait_until('the node says that it may not read the Secret', failure)[0]
        self.assertIn('kubectl label namespace default edgeai.io/edge-secrets=allow', condition['message'])
        varda.ready('clouds', '3')  # the pod of `clouds` mounts the Secret, which needs no label
        varda.kubectl('label', 'namespace', 'default', 'edgeai.io/edge-secrets=allow')
        varda.ready('digits', '3')
        below = [p for p in varda.dir.rglob('*') if p.is_file() and not p.is_symlink()]
        holds = [str(p.relative_to(varda.dir)) for p in below if b's3cret' in p.read_bytes()]
        # The control plane's store contains the Secret. The pod that mounts it has it too, in
        # base64 or as the file.
        leaks = [p for p in holds if 'agent' in p or 'log' in p or p.startswith('nodes/edge0')]
        self.assertEqual(leaks, [])

        # The list shows the archives on the disk and the models that use them.
        listed = self.listed()
        three = listed[self.digest['3']]
        self.assertEqual((three['state'], three['exposed'], three['models']), ('Complete', True, ['default/digits 3']))
        self.artifacts('pin', self.digest['3'][:12])
        self.assertTrue(self.listed()[self.digest['3']]['pinned'])
        self.artifacts('unpin', self.digest['3'])

        # A corrupted file is found. The archive is installed again while the model keeps serving.
        self.assertIn('whole', self.artifacts('verify'))
        tree = self.node / 'artifacts' / self.digest['3']
        weights = tree / 'model.onnx'
        inode, bad = weights.stat().st_ino, bytearray(weights.read_bytes())
        bad[len(bad) // 2] ^= 1
        with open(weights, 'r+b') as file:
            file.write(bad)
        done = self.artifacts('verify', self.digest['3'], check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('model.onnx has other bytes', done.stdout)
        m.wait_until('installed again', lambda: weights.stat().st_ino != inode and self.listed()[self.digest['3']]['state'] == 'Complete')
        m.wait_until('exposed again', lambda: self.listed()[self.digest['3']]['models'] == ['default/digits 3'])
        self.assertIn('whole', self.artifacts('verify', self.digest['3']))
        varda.ready('digits', '3')

        # The manifest drops the previous version. Its archive stays on the disk until gc runs.
        varda.kubectl('patch', 'inferencemodel', 'digits', '--type=merge', '-p', json.dumps({'spec': {'targetVersion': '4'}}))
        varda.ready('digits', '4')
        manifest = varda.model('digits')['spec']['manifest'][1:]
        varda.kubectl('patch', 'inferencemodel', 'digits', '--type=merge', '-p', json.dumps({'spec': {'manifest': manifest}}))
        m.wait_until('version 3 is shown no more', lambda: not self.listed()[self.digest['3']]['exposed']
                     and not self.listed()[self.digest['3']]['wanted'])
        self.assertIn(self.digest['3'][:16], self.artifacts('gc', '--dry-run'))
        self.assertIn(self.digest['3'], self.listed())
        self.artifacts('gc')
        m.wait_until('the agent has tidied up', lambda: self.digest['3'] not in self.listed())
        self.assertIn(self.digest['4'], self.listed())
        varda.ready('digits', '4')


if __name__ == '__main__':
    unittest.main()
