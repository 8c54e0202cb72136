"""An S3 server for tests, with the standard library alone.

It checks signatures (AWS Signature Version 4 with a signed payload), and serves one bucket:
objects, ranges, ListObjectsV2, multipart uploads. A test can make requests fail, hang or lose
their answers.
"""
import datetime, email.utils, hashlib, hmac, html, http.server, re, ssl, threading, time, urllib.parse

REGION = 'us-east-1'
PART_BYTES_MIN = 5 << 20


def escape(text):
    return text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;').replace('"', '&quot;')


class S3Server:
    """`objects` and `uploads` may be read at any time, with `lock` held."""

    def __init__(self, bucket='models', key='AKIDEXAMPLE', secret='secret', page=1000, tls=None):
        self.bucket, self.key, self.secret, self.page = bucket, key, secret, page
        self.lock = threading.Lock()
        self.objects = {}  # key: bytes
        self.times = {}
        self.uploads = {}  # id: (key, {number: (bytes, tag)})
        self.ids = 0
        self.requests = []  # (method, target, status)
        self.failures = []  # (pattern of "METHOD TARGET", what, count)
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def handle_any(self):
                owner.serve(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None  # clients that give up are part of the tests
        self.url = 'http%s://127.0.0.1:%d' % ('s' if tls else '', self.server.server_address[1])
        if tls:  # (certificate, key): files
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def fail(self, pattern, what, count=1):
        """The next `count` requests that match fail. `what`: a status; "cut" closes the connection
        before the request has an effect, "lost" after; a number with s, such as "2s", delays."""
        with self.lock:
            self.failures.append([re.compile(pattern), str(what), count])

    def failure(self, line):
        with self.lock:
            for entry in self.failures:
                if entry[2] > 0 and entry[0].search(line):
                    entry[2] -= 1
                    return entry[1]
        return ''

    # ---- one request

    def serve(self, request):
        length = int(request.headers.get('Content-Length') or 0)
        body = request.rfile.read(length)
        if len(body) < length:
            request.close_connection = True
            return
        what = self.failure('%s %s' % (request.command, request.path))
        if what.endswith('s') and what[:-1].replace('.', '').isdigit():
            time.sleep(float(what[:-1]))
        elif what == 'cut':
            request.close_connection = True
            return
        elif what.isdigit():
            self.send(request, int(what), self.error('InternalError'))
            return
        status, headers, answer = self.answer(request, body)
        if what == 'lost':
            request.close_connection = True
            return
        self.send(request, status, answer, headers)

    def send(self, request, status, body, headers=None):
        with self.lock:
            self.requests.append((request.command, request.path, status))
        request.send_response(status)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        if status != 204:
            request.send_header('Content-Length', str(len(body)))
        request.end_headers()
        if request.command != 'HEAD' and status != 204:
            request.wfile.write(body)

    def error(self, code):
        return ('<?xml version="1.0"?>\n<Error><Code>%s</Code></Error>' % code).encode()

    def answer(self, request, body):
        wrong = self.check_signature(request, body)
        if wrong:
            return 403, {}, self.error(wrong)
        path, _, query = request.path.partition('?')
        path = urllib.parse.unquote(path)
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if not path.startswith('/%s/' % self.bucket):
            return 404, {}, self.error('NoSuchBucket')
        key = path[len(self.bucket) + 2:]
        with self.lock:
            if not key:
                return self.list(query)
            if 'uploads' in query:
                self.ids += 1
                upload = 'id+%d/=' % self.ids
                self.uploads[upload] = (key, {})
                return self.xml('InitiateMultipartUploadResult', '<UploadId>%s</UploadId>' % upload)
            if 'uploadId' in query:
                return self.multipart(request.command, query, body)
            return self.object(request, key, body)

    def xml(self, root, inside):
        return 200, {'Content-Type': 'application/xml'}, (
            '<?xml version="1.0" encoding="UTF-8"?>\n<%s xmlns="http://s3.amazonaws.com/doc/2006-03-01/">%s</%s>' % (root, inside, root)).encode()

    def now(self):
        return datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.000Z')

    def list(self, query):
        assert query.get('list-type') == '2', query
        keys = sorted(k for k in self.objects if k.startswith(query.get('prefix', '')) and k > query.get('continuation-token', ''))
        shown, more = keys[:self.page], len(keys) > self.page
        inside = '<IsTruncated>%s</IsTruncated>' % ('true' if more else 'false')
        if more:
            inside += '<NextContinuationToken>%s</NextContinuationToken>' % escape(shown[-1])
        for key in shown:
            inside += '<Contents><Key>%s</Key><LastModified>%s</LastModified><Size>%d</Size></Contents>' % (escape(key), self.times[key], len(self.objects[key]))
        return self.xml('ListBucketResult', inside)

    def object(self, request, key, body):
        if request.command == 'PUT':
            self.objects[key], self.times[key] = body, self.now()
            return 200, {'ETag': '"%s"' % hashlib.md5(body).hexdigest()}, b''
        if request.command == 'DELETE':
            self.objects.pop(key, None)
            return 204, {}, b''
        if key not in self.objects:
            return 404, {}, self.error('NoSuchKey')
        data = self.objects[key]
        span = re.fullmatch(r'bytes=(\d+)-(\d*)', request.headers.get('Range', ''))
        seen = {'Last-Modified': email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc), usegmt=True), 'ETag': '"%s"' % hashlib.md5(data).hexdigest()}
        if not span:
            return 200, seen, data
        first, last = int(span.group(1)), int(span.group(2) or len(data) - 1)
        if first >= len(data):
            return 416, {}, self.error('InvalidRange')
        return 206, {**seen, 'Content-Range': 'bytes %d-%d/%d' % (first, min(last, len(data) - 1), len(data))}, data[first:last + 1]

    def multipart(self, method, query, body):
        if query['uploadId'] not in self.uploads:
            return 404, {}, self.error('NoSuchUpload')
        key, parts = self.uploads[query['uploadId']]
        if method == 'PUT':
            tag = '"%s"' % hashlib.md5(body).hexdigest()
            parts[int(query['partNumber'])] = (body, tag)
            return 200, {'ETag': tag}, b''
        if method == 'DELETE':
            del self.uploads[query['uploadId']]
            return 204, {}, b''
        if method == 'GET':
            numbers = sorted(n for n in parts if n > int(query.get('part-number-marker', 0)))
            shown, more = numbers[:self.page], len(numbers) > self.page
            inside = '<IsTruncated>%s</IsTruncated>' % ('true' if more else 'false')
            for n in shown:
                inside += '<Part><PartNumber>%d</PartNumber><LastModified>%s</LastModified><ETag>%s</ETag><Size>%d</Size></Part>' % (
                    n, self.now(), escape(parts[n][1]), len(parts[n][0]))
            return self.xml('ListPartsResult', inside)
        # The two members of a part may have any order.
        named = re.findall(r'<Part>(.*?)</Part>', body.decode(), re.DOTALL)
        chosen = [(int(re.search(r'<PartNumber>(\d+)<', part)[1]), html.unescape(re.search(r'<ETag>([^<]*)<', part)[1])) for part in named]
        if not chosen or any(n not in parts or parts[n][1] != tag for n, tag in chosen) or chosen != sorted(chosen):
            return 400, {}, self.error('InvalidPart')
        if any(len(parts[n][0]) < PART_BYTES_MIN for n, _ in chosen[:-1]):
            return 400, {}, self.error('EntityTooSmall')
        self.objects[key], self.times[key] = b''.join(parts[n][0] for n, _ in chosen), self.now()
        del self.uploads[query['uploadId']]
        return self.xml('CompleteMultipartUploadResult', '<Key>%s</Key>' % escape(key))

    # ---- https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html

    def check_signature(self, request, body):
        given = re.fullmatch(r'AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})',
                             request.headers.get('Authorization', ''))
        if not given:
            return 'AccessDenied'
        access, date, region, names, signature = given.groups()
        if access != self.key or region != REGION:
            return 'InvalidAccessKeyId'
        stamp = request.headers.get('X-Amz-Date', '')
        try:
            then = datetime.datetime.strptime(stamp, '%Y%m%dT%H%M%SZ').replace(tzinfo=datetime.timezone.utc)
        except ValueError:
            return 'AccessDenied'
        if abs((datetime.datetime.now(datetime.timezone.utc) - then).total_seconds()) > 900 or not stamp.startswith(date):
            return 'RequestTimeTooSkewed'
        payload = request.headers.get('X-Amz-Content-Sha256', '')
        if payload != hashlib.sha256(body).hexdigest():
            return 'XAmzContentSHA256Mismatch'
        signed = names.split(';')
        present = {name.lower() for name in request.headers.keys()}
        required = {'host'} | {name for name in present if name.startswith('x-amz-')}
        if signed != sorted(signed) or not required <= set(signed):
            return 'AccessDenied'
        path, _, query = request.path.partition('?')
        encode = lambda text, safe='': urllib.parse.quote(text, safe=safe + '-._~')
        pairs = sorted((encode(k), encode(v)) for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
        canonical = '\n'.join([request.command, encode(urllib.parse.unquote(path), '/'), '&'.join('%s=%s' % pair for pair in pairs),
                               ''.join('%s:%s\n' % (name, ' '.join(request.headers.get(name, '').split())) for name in signed), names, payload])
        to_sign = '\n'.join(['AWS4-HMAC-SHA256', stamp, '%s/%s/s3/aws4_request' % (date, region), hashlib.sha256(canonical.encode()).hexdigest()])
        key = ('AWS4' + self.secret).encode()
        for part in (date, region, 's3', 'aws4_request'):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        right = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
        return '' if hmac.compare_digest(right, signature) else 'SignatureDoesNotMatch'
