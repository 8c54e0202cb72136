#!/usr/bin/env python3
"""A participant of a federated job that sends poisoned updates, in a pod. `ATTACK=nan`: values that
are not numbers. `ATTACK=hundredfold`: the weights of the model times 100. Needs only the standard
library."""
import hashlib, http.client, json, os, pathlib, socket, struct, sys, time


class Stream(http.client.HTTPConnection):
    """A connection to the aggregator through the worker socket: docs/design/029-streams.md."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ['VARDA_WORKER_SOCKET'])
        token = pathlib.Path(os.environ['VARDA_WORKER_TOKEN_FILE']).read_text().strip()
        self.sock.sendall(('GET /v1/streams/aggregator HTTP/1.1\r\nHost: agent\r\nAuthorization: Bearer %s\r\n'
                           'Connection: Upgrade\r\nUpgrade: varda-stream\r\n\r\n' % token).encode())
        head = b''
        while not head.endswith(b'\r\n\r\n'):  # byte by byte: the stream follows
            byte = self.sock.recv(1)
            if not byte:
                raise ConnectionError('the agent closed the stream')
            head += byte
        if b' 101 ' not in head.split(b'\r\n')[0]:
            raise ConnectionError(head.split(b'\r\n')[0].decode('latin-1'))


def ask(method, path, body=None):
    connection = Stream('aggregator', timeout=90)
    try:
        connection.connect()
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def poisoned(task, model):
    """The update: a file of safetensors with the tensors of the model's file."""
    length = struct.unpack_from('<Q', model)[0]
    header = json.loads(model[8:8 + length])
    values = struct.unpack('<%df' % ((len(model) - 8 - length) // 4), model[8 + length:])
    if os.environ['ATTACK'] == 'nan':
        values = [float('nan')] * len(values)
    else:
        values = [99 * value for value in values]
    header['__metadata__'] = {'format': 'varda-update/1', 'task': task['id'], 'base': task['model']['sha256'],
                              'samples': '100', 'steps': '1', 'encoding': 'dense', 'metrics': '{}'}
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + struct.pack('<%df' % len(values), *values)


def main():
    after = ''
    while True:
        try:
            status, body = ask('GET', '/v1/task?wait=20&after=' + after)
            if status != 200:
                time.sleep(0.2 if status == 204 else 1)
                continue
            task = json.loads(body)
            after = task['id']
            if task['kind'] == 'end':
                return 0
            if task['kind'] == 'train':
                _, model = ask('GET', '/v1/models/sha256:' + task['model']['sha256'])
                update = poisoned(task, model)
                status, body = ask('PUT', '/v1/updates/%s/sha256:%s' % (task['id'], hashlib.sha256(update).hexdigest()), update)
                print('update of round %d: %d %s' % (task['round'], status, body[:200]), flush=True)
        except (OSError, http.client.HTTPException, ValueError) as e:
            print('trying again: %s' % e, file=sys.stderr, flush=True)
            time.sleep(0.5)


if __name__ == '__main__':
    sys.exit(main())
