#!/usr/bin/env python3
"""Records answers of a real API server, byte for byte, into recorded/:

    record.py SERVER TOKEN [--compact COMMAND]

SERVER is HOST:PORT (TLS, the certificate is not checked). TOKEN is a bearer token of an
administrator. COMMAND compacts the server's etcd; without it, the answers about compacted revisions
are not recorded again. The script works in a new namespace and deletes it at the end. The present
files are from kube-apiserver 1.36.
"""
import json, pathlib, shlex, socket, ssl, subprocess, sys, time

OUT = pathlib.Path(__file__).resolve().parent / 'recorded'
SERVER, TOKEN = sys.argv[1:3]
COMPACT = sys.argv[4] if sys.argv[3:4] == ['--compact'] else None
NS = 'varda-recorded-%d' % time.time()
MAPS = '/api/v1/namespaces/%s/configmaps' % NS


def exchange(method, target, body=None, headers=(), token=TOKEN, seconds=0):
    """The bytes of one answer, on a new connection. For a watch, the bytes of the first `seconds`."""
    host, port = SERVER.rsplit(':', 1)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection((host, int(port)))) as s:
        text = json.dumps(body) if body is not None else ''
        lines = ['%s %s HTTP/1.1' % (method, target), 'Host: api.test', 'Connection: close', 'Authorization: Bearer ' + token,
                 'Accept: application/json', 'User-Agent: record', *headers]
        if body is not None:
            lines += ['Content-Type: application/json', 'Content-Length: %d' % len(text)]
        s.sendall(('\r\n'.join(lines) + '\r\n\r\n' + text).encode())
        s.settimeout(seconds or 30)
        out = b''
        try:
            while more := s.recv(65536):
                out += more
        except TimeoutError:
            pass
        return out


def body_of(answer):
    head, _, body = answer.partition(b'\r\n\r\n')
    if b'chunked' in head:
        out = b''
        while body:
            size, _, body = body.partition(b'\r\n')
            out, body = out + body[:int(size, 16)], body[int(size, 16) + 2:]
        return out
    return body


def ask(*args, **kw):
    return json.loads(body_of(exchange(*args, **kw)))


def keep(name, answer):
    (OUT / (name + '.http')).write_bytes(answer)


def make(name, size=1):
    return {'metadata': {'name': name, 'labels': {'app': 'recorded'}}, 'data': {'k': 'x' * size}}


def main():
    ask('POST', '/api/v1/namespaces', {'metadata': {'name': NS}})
    for name in 'abc':
        ask('POST', MAPS, make(name))
    chosen = MAPS + '?labelSelector=app%3Drecorded'
    first = ask('GET', chosen + '&limit=2')
    keep('list-page-1', exchange('GET', chosen + '&limit=2'))
    keep('list-page-2', exchange('GET', chosen + '&limit=2&continue=' + first['metadata']['continue']))
    ask('POST', MAPS, make('large', 200_000))
    keep('list-packed', exchange('GET', chosen, headers=['Accept-Encoding: gzip']))
    keep('created', exchange('POST', MAPS, make('d')))
    keep('create-again', exchange('POST', MAPS, make('d')))
    keep('create-invalid', exchange('POST', MAPS, make('Not_A_Name')))
    keep('get-missing', exchange('GET', MAPS + '/missing'))
    stale = ask('GET', MAPS + '/a')
    ask('PUT', MAPS + '/a', dict(stale, data={'k': 'y'}))
    keep('update-conflict', exchange('PUT', MAPS + '/a', dict(stale, data={'k': 'z'})))
    keep('wrong-token', exchange('GET', MAPS, token='wrong'))
    keep('no-such-kind', exchange('GET', '/apis/test.varda.io/v1/nothings'))
    keep('bad-selector', exchange('GET', MAPS + '?labelSelector=a%20in%20('))
    version = ask('GET', MAPS + '?limit=1')['metadata']['resourceVersion']
    ask('PUT', MAPS + '/b', dict(ask('GET', MAPS + '/b'), data={'k': 'y'}))
    ask('DELETE', MAPS + '/c')
    keep('watch', exchange('GET', MAPS + '?watch=true&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion=' + version, seconds=10))
    keep('watch-of-the-future', exchange('GET', MAPS + '?watch=true&timeoutSeconds=3&resourceVersion=99999999', seconds=10))
    keep('list-of-the-future', exchange('GET', MAPS + '?resourceVersion=99999999'))
    if COMPACT:
        # The server caches past revisions of other kinds, but reads those of events from etcd.
        events = '/api/v1/namespaces/%s/events' % NS
        for name in 'abc':
            ask('POST', events, {'metadata': {'name': name}, 'involvedObject': {'namespace': NS}})
        first = ask('GET', events + '?limit=1')
        ask('DELETE', events + '/c')
        subprocess.run(shlex.split(COMPACT), check=True)
        time.sleep(1)
        keep('list-page-gone', exchange('GET', events + '?limit=1&continue=' + first['metadata']['continue']))
        keep('watch-gone', exchange('GET', events + '?watch=true&timeoutSeconds=3&resourceVersion=1', seconds=10))
    ask('DELETE', '/api/v1/namespaces/' + NS)


main()
