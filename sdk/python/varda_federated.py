"""A client of a federated job in Python. Needs only numpy.

    from varda_federated import Client

    def train(weights, task):                     # weights: numpy arrays by name
        model.load(weights)
        loss = model.fit(images, labels, epochs=task['train']['localEpochs'])
        return model.weights(), len(images), {'loss': loss}

    def evaluate(weights, task):                  # optional
        model.load(weights)
        return len(test_images), {'accuracy': model.score(test_images, test_labels)}

    Client('http://127.0.0.1:7363', name='site-1', directory='client').run(train, evaluate)

In a pod of a FederatedLearningJob, `Client.from_environment()` finds the aggregator. Copy this file
beside your program. docs/reference/federated-api.yaml is the protocol.

A kill loses nothing that is finished: the update is on the disk before it is sent, and the next
start continues the upload. `train` may leave out tensors that it did not change.
"""
import hashlib, http.client, io, json, os, pathlib, random, secrets, socket, struct, sys, threading, time, urllib.parse

import numpy as np

VERSION = '1.0'
PIECE = 4 << 20
BLOCK = 256  # values with one scale in the encoding int8
DTYPES = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'I64': '<i8', 'I32': '<i4', 'I16': '<i2', 'I8': '|i1',
          'U64': '<u8', 'U32': '<u4', 'U16': '<u2', 'U8': '|u1', 'BOOL': '|b1', 'BF16': '<u2'}


class Refused(Exception):
    """The aggregator refuses a request for good."""


class NotSupported(Exception):
    """The job needs a part of the protocol that this client lacks."""


class JobFailed(Exception):
    """The job ended without its rounds."""


# ---- safetensors (huggingface.co/docs/safetensors)

class Bf16:
    """An array of bfloat16, which numpy lacks: the upper halves of floats."""

    def __init__(self, values):
        bits = np.ascontiguousarray(values, '<f4').view('<u4').astype(np.uint64)
        self.bits = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype('<u2')

    def floats(self):
        return (self.bits.astype('<u4') << 16).view('<f4')


def read_safetensors(data):
    """(arrays by name, metadata) of the bytes of a file."""
    length = struct.unpack_from('<Q', data)[0]
    header = json.loads(data[8:8 + length].decode())
    metadata = header.pop('__metadata__', {})
    arrays = {}
    for name, entry in header.items():
        begin, end = entry['data_offsets']
        array = np.frombuffer(data, DTYPES[entry['dtype']], offset=8 + length + begin,
                              count=(end - begin) // np.dtype(DTYPES[entry['dtype']]).itemsize)
        if entry['dtype'] == 'BF16':
            array = (array.astype('<u4') << 16).view('<f4')
        arrays[name] = array.reshape(entry['shape'])
    return arrays, metadata


def write_safetensors(arrays, metadata):
    """The bytes of a file. Wide types come first, which keeps all values aligned."""
    def kind(value):
        if isinstance(value, Bf16):
            return 'BF16', value.bits
        array = np.ascontiguousarray(value)
        for name, code in DTYPES.items():
            if np.dtype(code) == array.dtype.newbyteorder('<') and name != 'BF16':
                return name, array.astype(code, copy=False)
        raise ValueError('no type for ' + str(array.dtype))
    entries, header, offset = [], {'__metadata__': metadata}, 0
    for name, value in arrays.items():
        entries.append((name, np.shape(value.bits if isinstance(value, Bf16) else value)) + kind(value))
    entries.sort(key=lambda entry: (-entry[3].itemsize, entry[0]))
    for name, shape, dtype, array in entries:
        header[name] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    out = io.BytesIO()
    out.write(struct.pack('<Q', len(text)) + text)
    for _, _, _, array in entries:
        out.write(array.tobytes())
    return out.getvalue()


# ---- updates

def encode(delta, encoding, keep, seed):
    """(arrays of the file, the delta that the aggregator will read) for a change of weights."""
    if encoding in ('dense', 'fp16', 'bf16'):
        values = {'dense': lambda a: a, 'fp16': lambda a: a.astype('<f2'), 'bf16': Bf16}[encoding]
        arrays = {name: values(array) for name, array in delta.items()}
        return arrays, {name: a.floats() if isinstance(a, Bf16) else a.astype('<f4') for name, a in arrays.items()}
    arrays, seen = {}, {}
    generator = np.random.default_rng(seed)
    threshold = 0.0
    if encoding == 'topk':
        every = np.concatenate([np.abs(array).ravel() for array in delta.values()])
        count = max(1, int(np.ceil(keep * every.size)))
        threshold = np.partition(every, every.size - count)[every.size - count]
    for name, array in delta.items():
        flat = array.ravel()
        if encoding == 'topk':
            index = np.flatnonzero((np.abs(flat) >= threshold) & (flat != 0)).astype('<u4')
            arrays[name + '#index'], arrays[name + '#value'] = index, flat[index]
            sparse = np.zeros_like(flat)
            sparse[index] = flat[index]
            seen[name] = sparse.reshape(array.shape)
            continue
        blocks = np.zeros((-(-flat.size // BLOCK), BLOCK), '<f4')
        blocks.ravel()[:flat.size] = flat
        scale = (np.abs(blocks).max(axis=1) / 127).astype('<f4')
        safe = np.where(scale > 0, scale, 1)[:, None]
        # Stochastic rounding: the mean of many updates stays right.
        steps = np.clip(np.floor(blocks / safe + generator.random(blocks.shape)), -127, 127)
        arrays[name] = steps.astype(np.int8).ravel()[:flat.size].reshape(array.shape)
        arrays[name + '#scale'] = scale
        seen[name] = (steps * scale[:, None]).astype('<f4').ravel()[:flat.size].reshape(array.shape)
    return arrays, seen


def make_private(changes, wanted):
    """Local differential privacy: cuts all changes together to a length, and adds noise."""
    norm = np.sqrt(sum(float((change ** 2).sum()) for change in changes.values()))
    generator = np.random.default_rng()  # seeded by the operating system
    for name, change in changes.items():
        changes[name] = change * min(1, wanted['clip'] / max(norm, 1e-300)) + generator.normal(0, wanted['deviation'], change.shape)


# ---- transport

class _StreamConnection(http.client.HTTPConnection):
    """A connection to the aggregator through the agent of the node: docs/design/029-streams.md."""

    def __init__(self, path, token_file, stream):
        super().__init__('aggregator')
        self.path, self.token_file, self.stream = path, token_file, stream

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)
        token = pathlib.Path(self.token_file).read_text().strip()
        self.sock.sendall(('GET /v1/streams/%s HTTP/1.1\r\nHost: agent\r\nAuthorization: Bearer %s\r\n'
                           'Connection: Upgrade\r\nUpgrade: varda-stream\r\n\r\n' % (self.stream, token)).encode())
        head = b''
        while not head.endswith(b'\r\n\r\n'):  # byte by byte: the stream follows
            byte = self.sock.recv(1)
            if not byte or len(head) > 65536:
                raise ConnectionError('the agent closed the stream')
            head += byte
        if b' 101 ' not in head.split(b'\r\n')[0]:
            raise ConnectionError('the agent answered ' + head.split(b'\r\n')[0].decode('latin-1'))


class Client:
    """Takes part in a job until it ends. `name` is for aggregators that trust clients."""

    def __init__(self, url=None, name=None, directory='.', stream=None):
        self.url = urllib.parse.urlsplit(url) if url else None
        self.stream = stream
        self.name = name or secrets.token_hex(16)
        self.headers = {'Varda-Client': name} if name else {}
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.residual, self.local = {}, threading.local()

    @classmethod
    def from_environment(cls, env=os.environ):
        """The client in a pod: the stream at the worker socket, else AGG_IP and AGG_PORT."""
        directory = env.get('MODEL_URL', '.')
        if env.get('VARDA_WORKER_SOCKET'):
            return cls(directory=directory,
                       stream=(env['VARDA_WORKER_SOCKET'], env['VARDA_WORKER_TOKEN_FILE'], 'aggregator'))
        return cls('http://%s:%s' % (env['AGG_IP'], env['AGG_PORT']), env.get('WORKER_NAME'), directory)

    def _connect(self, timeout):
        if self.stream:
            return _StreamConnection(*self.stream)
        return http.client.HTTPConnection(self.url.hostname, self.url.port or 80, timeout=timeout)

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, bytes) of one try. OSError, HTTPException: no answer."""
        connection = getattr(self.local, 'connection', None)
        for fresh in (False, True):  # a kept connection may have ended meanwhile
            if connection is None:
                connection, fresh = self._connect(timeout), True
            try:
                if connection.sock is None:
                    connection.connect()
                connection.sock.settimeout(timeout)
                connection.request(method, path, body, {**self.headers, **(headers or {})})
                answer = connection.getresponse()
                data = answer.read()
                self.local.connection = None if answer.will_close else connection
                if answer.will_close:
                    connection.close()
                return answer.status, answer.headers, data
            except (OSError, http.client.HTTPException):
                connection.close()
                connection = self.local.connection = None
                if fresh:
                    raise

    def _retry(self, what, attempt):
        """Calls `attempt` until it returns something else than None."""
        pause, said = 0.2, ''
        while True:
            try:
                result = attempt()
                if result is not None:
                    return result
                problem = 'not now'
            except (OSError, http.client.HTTPException) as error:
                problem = str(error) or type(error).__name__
            if problem != said:
                print('%s: %s, retrying' % (what, problem), file=sys.stderr, flush=True)
                said = problem
            time.sleep(pause * (0.5 + random.random()))
            pause = min(2 * pause, 30)

    @staticmethod
    def _passing(status):
        return status in (408, 425, 429) or status >= 500

    @staticmethod
    def _message(status, data):
        try:
            return '%d: %s' % (status, json.loads(data)['message'])
        except (ValueError, KeyError, TypeError):
            return str(status)

    def task(self, after, wait=30):
        """The next task, or {} if there is none within `wait` seconds."""
        def attempt():
            query = urllib.parse.urlencode({'after': after, 'wait': wait})
            status, _, data = self.ask('GET', '/v1/task?' + query, timeout=wait + 30)
            if status == 200:
                return json.loads(data)
            if status == 204:
                return {}
            if not self._passing(status):
                raise Refused('task: ' + self._message(status, data))
        return self._retry('task', attempt)

    def file(self, digest, size):
        """The bytes of a file that a task names; a broken download continues."""
        data = bytearray()

        def attempt():
            headers = {'Range': 'bytes=%d-' % len(data)} if data else {}
            status, _, piece = self.ask('GET', '/v1/models/sha256:' + digest, headers=headers)
            if status == 404:
                return b''  # the round is over
            if status == 200:
                data.clear()
            elif status != 206:
                return None
            data.extend(piece)
            if len(data) < size:
                return None
            found = hashlib.sha256(data).hexdigest()
            if found == digest:
                return bytes(data)
            data.clear()
        return self._retry('model', attempt)

    def upload(self, task, path):
        """Sends a file as the update of a task. True: it counts. Repeats until the answer."""
        data = pathlib.Path(path).read_bytes()
        target = '/v1/updates/%s/sha256:%s' % (task, hashlib.sha256(data).hexdigest())
        state = {'offset': None}

        def attempt():
            if state['offset'] is None:
                status, headers, _ = self.ask('HEAD', target)
                if status == 200:
                    return True, ''
                if status != 404:
                    return None if self._passing(status) else (False, str(status))
                state['offset'] = int(headers.get('Upload-Offset') or 0) % max(len(data), 1)
            first, state['offset'] = state['offset'], None
            piece = data[first:first + PIECE]
            headers = {'Content-Type': 'application/octet-stream'}
            if len(piece) < len(data):
                headers['Content-Range'] = 'bytes %d-%d/%d' % (first, first + len(piece) - 1, len(data))
            status, answer, text = self.ask('PUT', target, piece, headers)
            if status in (200, 201):
                return True, ''
            offset = answer.get('Upload-Offset')
            if status == 202 or (status == 409 and offset):
                state['offset'] = int(offset)
                return attempt() if state['offset'] != first else None
            return None if self._passing(status) else (False, self._message(status, text))
        return self._retry('update', attempt)

    # ---- rounds

    def _send_pending(self):
        """Sends the update of an earlier start or of this task. Returns the id of its task, or '', and whether it counts."""
        record = self.directory / 'pending.json'
        if not record.exists():
            return '', False
        task = json.loads(record.read_text())['task']
        accepted, why = self.upload(task, self.directory / 'update')
        if not accepted:
            print('update of task %s not taken: %s' % (task, why), file=sys.stderr, flush=True)
        record.unlink()
        return task, accepted

    def _keep(self, path, data):
        """Writes a file that is complete or absent after a kill."""
        part = path.with_name(path.name + '.part')
        with open(part, 'wb') as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)

    def _train(self, task, train):
        data = self.file(task['model']['sha256'], task['model']['bytes'])
        if not data:
            return
        weights, _ = read_safetensors(data)
        trained, samples, metrics = train({name: array.copy() for name, array in weights.items()}, task)
        settings = task.get('update', {})
        changes = {name: np.asarray(array, np.float64) - weights[name] for name, array in trained.items()}
        if settings.get('noise'):
            make_private(changes, settings['noise'])
        delta = {name: (change + self.residual.get(name, 0)).astype('<f4') for name, change in changes.items()}
        encoding = settings.get('encoding', 'dense')
        # Rounding errors of equal seeds would add up over the clients.
        seed = int.from_bytes(hashlib.sha256(('%s\n%s' % (task['id'], self.name)).encode()).digest()[:8], 'little')
        arrays, seen = encode(delta, encoding, settings.get('keep', 0.01), seed)
        info = {'format': 'varda-update/1', 'task': task['id'], 'base': task['model']['sha256'],
                'samples': str(int(samples)), 'steps': str(int(metrics.pop('steps', 0))),
                'encoding': 'dense' if encoding in ('fp16', 'bf16') else encoding,
                'metrics': json.dumps({name: float(value) for name, value in metrics.items()})}
        self._keep(self.directory / 'update', write_safetensors(arrays, info))
        self._keep(self.directory / 'pending.json', json.dumps({'task': task['id']}).encode())
        if self._send_pending()[1]:
            # The part that this encoding lost goes into the next update (error feedback).
            self.residual = {name: delta[name] - seen[name] for name in delta} if encoding in ('int8', 'topk') else {}

    def _evaluate(self, task, evaluate):
        data = self.file(task['model']['sha256'], task['model']['bytes'])
        if not data:
            return
        # Without an answer, the other clients would wait for this one.
        samples, metrics = evaluate(read_safetensors(data)[0], task) if evaluate else (0, {})
        body = json.dumps({'samples': samples, 'metrics': {n: float(v) for n, v in metrics.items()}}).encode()

        def attempt():
            status, _, _ = self.ask('PUT', '/v1/evaluations/' + task['id'], body, {'Content-Type': 'application/json'})
            return None if self._passing(status) else True
        self._retry('evaluation', attempt)

    def run(self, train, evaluate=None):
        """Takes tasks until the job ends. JobFailed: it ended without its rounds. NotSupported: it aggregates securely."""
        after, _ = self._send_pending()
        while True:
            task = self.task(after)
            if not task:
                continue
            after = task['id']
            if task['kind'] == 'end':
                if task.get('failed'):
                    raise JobFailed(task.get('message', ''))
                return
            if task['kind'] == 'train':
                if task.get('secure'):
                    raise NotSupported('this client has no secure aggregation: use varda-train, or a job '
                                       'without secureAggregation')
                self._train(task, train)
            elif task['kind'] == 'evaluate':
                self._evaluate(task, evaluate)
