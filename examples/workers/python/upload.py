"""Hands a file or a directory over to the agent of this node, which uploads it to the registry.

    python3 upload.py weights.npz weights-3
    python3 upload.py checkpoint/ checkpoint-3     # as a .tar

Prints the SHA-256 once the bytes are safe on the node's disk. Needs a job with `uploads`."""
import http.client, json, os, socket, stat, sys, tarfile, tempfile, time

SOCKET = os.environ.get('VARDA_WORKER_SOCKET', '/var/run/varda/agent/worker.sock')
TOKEN = os.environ.get('VARDA_WORKER_TOKEN_FILE', '/var/run/varda/worker/token')
PIECE = 8 << 20


class Agent(http.client.HTTPConnection):
    """One connection for each request, because the agent closes it after the answer."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(SOCKET)


def ask(method, name, body=None, **headers):
    with open(TOKEN) as f:
        headers['Authorization'] = 'Bearer ' + f.read()
    agent = Agent('localhost')
    try:
        agent.request(method, '/v1/artifacts/' + name, body, headers)
        response = agent.getresponse()
        text = response.read()
        return response.status, int(response.getheader('Upload-Offset') or 0), json.loads(text) if text else {}
    finally:
        agent.close()


def pack(directory, archive):
    """Packs the files of the directory. The same files give the same bytes, so that a repeated
    request is accepted, and a later version of the directory shares most bytes."""
    def plain(entry):
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ''
        entry.mode = 0o755 if entry.mode & stat.S_IXUSR else 0o644
        return entry

    paths = sorted(os.path.relpath(os.path.join(folder, name), directory) for folder, _, names in os.walk(directory) for name in names)
    with tarfile.open(archive, 'w', format=tarfile.GNU_FORMAT) as out:
        for path in paths:
            out.add(os.path.join(directory, path), path, recursive=False, filter=plain)


def hand_over(path, name):
    """Sends the file, or a directory as a .tar. Retries while the agent restarts or its disk is
    full."""
    if not os.path.isdir(path):
        return send(path, name)
    with tempfile.NamedTemporaryFile(suffix='.tar') as archive:
        pack(path, archive.name)
        return send(archive.name, name)


def send(path, name):
    """Sends the file in pieces."""
    total = os.path.getsize(path)
    offset = None  # unknown: ask the agent
    while True:
        try:
            if offset is None:
                status, offset, _ = ask('HEAD', name)
                if status == 401:
                    sys.exit('the node does not expect this worker any more')
            with open(path, 'rb') as f:
                f.seek(offset)
                piece = f.read() if offset == 0 and total <= PIECE else f.read(PIECE)
            span = {} if len(piece) == total else {'Content-Range': 'bytes %d-%d/%d' % (offset, offset + len(piece) - 1, total)}
            status, offset, answer = ask('PUT', name, piece, **span)
            if status in (200, 201):
                return answer['sha256']
            if status not in (202, 409, 429, 503) or (status == 409 and not offset):
                sys.exit('the agent answered %d: %s' % (status, answer.get('message')))
            if status in (429, 503):
                offset = None
                time.sleep(1)
        except (OSError, http.client.HTTPException):
            offset = None
            time.sleep(1)


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(hand_over(sys.argv[1], sys.argv[2]))
