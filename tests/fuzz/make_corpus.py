#!/usr/bin/env python3
"""Makes tests/fuzz/corpus/: small seeds for the fuzz targets, one folder per target. Run it again after a change here.

Each seed is valid or nearly valid and reaches one part of a parser; the fuzzer finds the broken variants itself. Files with
SHA-1 digests as names were found by the fuzzer: `scripts/fuzz.sh --keep` writes them, and this script keeps them.
"""
import base64, gzip, hashlib, io, json, pathlib, re, shutil, struct, subprocess, tarfile, zipfile, zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / 'tests/fuzz/corpus'
GROWN = re.compile('[0-9a-f]{40}')


def put(target, name, data):
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def compact(value):
    return json.dumps(value, separators=(',', ':'))


def lines(*values):
    return '\n'.join(v if isinstance(v, str) else compact(v) for v in values)


# --- signatures of model versions; the first byte chooses the parser

def signatures():
    # minisign 0.11 and OpenSSL 3.0 wrote these: src/codec/minisign_test.cc, src/hosting/model_keys_test.cc
    minisig = ('untrusted comment: signature from minisign secret key\n'
               'RUSIEhFVdonumCYDn72iLNpyE1GwI94TEWPCw6mq4JCDdbu2HtOYG4XBN0pIC/yHhkc1eOkqfF99mFy1Cxrr+rOpAMZnkOBXEgI=\n'
               'trusted comment: timestamp:1795463158\tfile:line\thashed\n'
               '2fqN6NLPagHor3ooudATh1bqFYKVQMH8xkn4atNvd1nGfJKvFRFD2rRtMYvqBpM5FhrZFXK948bnTm+8u9BUAg==\n')
    plain = 't6Zc9vNNBjgPKrQa9OneY8WdpbCn5o1ycnd3AudDkwsRNL7wQaFR1TcoeTZPc9V0+qzcq7AkmS2oMlE1fzmmCA=='
    pem = '-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAw+0+JmQzxau8zorn7FYO4J9dYgEWh8t9WSfVIfLgf84=\n-----END PUBLIC KEY-----\n'
    seed = bytes.fromhex('302e020100300506032b6570042204209d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60')
    put('signatures', 'minisign', '\0' + minisig)
    put('signatures', 'refused_minisign', '\1' + minisig)
    put('signatures', 'refused_plain', '\1' + plain)
    put('signatures', 'keys', '\2# keys\n' + pem + 'RWSIEhFVdonumEJFr9JvOUG/tk1ka3CBEDnd9XqfOYKWdNCpbd7byzUT\n'
        '11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n')
    put('signatures', 'private_key', '\3-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n' % base64.b64encode(seed).decode())


# --- text formats

def texts():
    put('json', 'object', '{"a":[1,2.5,null,true,"x\\u00e4"],"b":{"c":-1e5}}')
    put('json', 'numbers', '[0,-0,1.0,-9223372036854775808,18446744073709551615,1e308,2.2250738585072014e-308,123456789012345678901]')
    put('json', 'strings', '["","\\ud83d\\ude00","\\u0000\\b\\f\\n\\r\\t\\"\\\\\\/","\u00e9\u20ac\U0001f600"]')
    put('json', 'deep', '[' * 40 + '{"a":' * 3 + '1' + '}' * 3 + ']' * 40)
    put('json', 'twice', compact({'n%d' % i: i for i in range(20)})[:-1] + ',"n3":"again","n19":0}')

    put('yaml', 'anchors', 'a: &x {b: [1, 0x1F, yes]}\nc: *x\nd: |\n  text\n  more\n')
    put('yaml', 'merge', 'base: &b {a: 1, b: 2}\nx:\n  <<: *b\n  b: 3\ny: {<<: [*b, {c: 4}]}\n')
    put('yaml', 'scalars', '- ~\n- "quoted \\u263a"\n- \'it\'\'s\'\n- 0o17\n- 017\n- 1_000\n- .5\n- +1e3\n- 2001-01-01\n- =\n- !!str 1\n')
    put('yaml', 'documents', '%YAML 1.1\n---\na: 1\n...\n---\n- b\n- c: >-\n    folded\n    text\n--- # nothing\n')
    put('yaml', 'keys', '? a\n: b\n"c: d": e\n1: f\ntrue: g\n? |\n  long\n: h\n')
    put('yaml', 'json', compact({'k': 'yes', 'n': '1', 'e': '', 's': ' lead', 'm': 'a\nb\n', 'c': ': #', 'l': [[], {}], 't': '\t'}))
    put('yaml', 'marks', '? \ufeff\n: "a\\u2028"\n')
    put('yaml', 'merge_name', '"<<": 1\nb: {\'<<\': [], <<: {c: 1}}\n')
    put('yaml', 'long_key', compact({'k' * 1025: {'a': [1]}, '"' * 513: 'b'}))

    put('selectors', 'labels', lines('app in (a,b),!old,weight>3,x=y', {'app': 'a', 'weight': '4', 'x': 'y'}, 'metadata.name=a', {}))
    put('selectors', 'more', lines('a.b/c!=d, e notin (f,,g) ,h,in,notin=notin,i<5,j==', {'h': '', 'in': '', 'notin': 'notin', 'i': '-1'},
                                   'status.phase!=Running,spec.nodeName==n\\,1\\=\\\\', {'matchLabels': {'a': 'b'}}))
    put('selectors', 'object', lines('', {'a': 'x'}, 'a=x,a!=y', {'matchLabels': {'a': 'x'}, 'matchExpressions': [
        {'key': 'a', 'operator': 'In', 'values': ['x', 'y']}, {'key': 'b', 'operator': 'DoesNotExist'},
        {'key': 'c', 'operator': 'NotIn', 'values': ['']}, {'key': 'd', 'operator': 'Gt', 'values': ['1']}]}))
    put('selectors', 'set', lines('', {'a': ''}, '', {'matchExpressions': [{'key': 'a', 'operator': 'In', 'values': ['x', '', 'x']}]}))

    document = {'a': [1, {'name': 'x'}], 'b': {'c': None, 'd': 'e'}}
    put('patches', 'json_and_merge', lines(document, [{'op': 'add', 'path': '/a/-', 'value': 1}, {'op': 'move', 'from': '/a/0', 'path': '/f'},
                                                      {'op': 'copy', 'from': '/a', 'path': '/a/0'}, {'op': 'test', 'path': '/a/-1', 'value': 1}]))
    put('patches', 'escapes', lines({'a/b': {'~': [0]}}, [{'op': 'replace', 'path': '/a~1b/~0/0', 'value': {}}, {'op': 'remove', 'path': '/a~1b'}]))
    put('patches', 'merge', lines(document, {'a': None, 'b': {'c': {'x': None}, 'd': None, 'f': [1]}}, document))
    pod = {'spec': {'containers': [{'name': 'a', 'image': 'x', 'ports': [{'containerPort': 1, 'protocol': 'TCP'}], 'env': [{'name': 'E', 'value': '1'}]},
                                   {'name': 'b', 'image': 'y'}], 'volumes': [{'name': 'v', 'emptyDir': {}}]}, 'metadata': {'finalizers': ['a/b']}}
    other = json.loads(json.dumps(pod).replace('"x"', '"z"').replace('"E"', '"F"'))
    put('patches', 'three_way', lines(pod, other, pod))
    env = lambda *names: {'spec': {'containers': [{'name': 'a', 'env': [{'name': n, 'value': str(i)} for i, n in enumerate(names)]}]}}
    images = lambda *pairs: {'spec': {'containers': [{'name': n, **({'image': i} if i else {})} for n, i in pairs]}}
    put('patches', 'twins', lines({'spec': {}}, images(('a', ''), ('b', 'z')), images(('b', 'x'), ('b', 'y'))))
    put('patches', 'null_in_a_list', lines(env('A'), {'spec': {'containers': [{'name': 'a', 'env': None}]}}, {}))
    put('patches', 'null_protocol', lines({}, {'spec': {'ports': [{'port': 1, 'protocol': None}]}}, {}))
    put('patches', 'twins_last', lines(env('B', 'C'), env('A', 'A'), env('B', 'A', 'B', 'D', 'D')))
    put('patches', 'strategic', lines(pod, {'spec': {'$setElementOrder/containers': [{'name': 'b'}, {'name': 'a'}], 'containers': [
        {'name': 'b', '$patch': 'delete'}, {'name': 'a', 'ports': [{'containerPort': 1, '$patch': 'replace'}]}],
        'volumes': [{'$patch': 'replace'}, {'name': 'v', '$retainKeys': ['name'], 'emptyDir': None}]},
        'metadata': {'$deleteFromPrimitiveList/finalizers': ['a/b'], 'finalizers': ['c/d']}}, {}))

    for i, text in enumerate(['1.5Gi', '100m', '1e3', '0.5', '-1Ki', '2024-02-29T12:00:00Z', '1999-12-31T23:59:59.999999+05:30', 'YQ==',
                              'ab' * 32, 'a.b-c.example', 'app.kubernetes.io/name', '127.0.0.1:8080', '[::1]:443', 'localhost:0',
                              '10008921904464218.8921Gi', '1234567890123456789012345678.91', '15.625Ki', '1Ei']):
        put('scalars', 'word_%02d' % i, text)


# --- HTTP, the API's clients and its server

def http():
    def message(name, text, step=b'\x07'):
        put('http', name, step + text.replace('\n', '\r\n').encode())
    message('get', 'GET /api/v1/pods?watch=1&a=%20b HTTP/1.1\nHost: h\nAccept: */*\n\n')
    message('post', 'POST /x HTTP/1.1\nHost: h\nContent-Length: 5\n\nhelloGET / HTTP/1.0\nConnection: keep-alive\n\n')
    message('chunked', 'PUT /c HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n3\nabc\na;x="y"\n0123456789\n0\nX-T: 1\n\n')
    message('answer', 'HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 2\n\n{}HTTP/1.1 204 No Content\n\n')
    message('watch', 'HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1f\n{"type":"BOOKMARK","object":{}}\n0\n\n', b'\x00')
    message('to_the_end', 'HTTP/1.0 500 Internal Server Error\nConnection: close\n\nall that comes', b'\x1f')
    message('interim', 'HTTP/1.1 100 Continue\n\nHTTP/1.1 404 Not Found\nContent-Length: 0\n\n')
    put('http', 'url', b'\x03https://user:pw@[::1]:8443/a%2Fb?x=1+2&y#frag\n')
    message('chunk_quote', 'PUT /c HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n180;x="y\n' + 'z' * 64 + '"\n')
    message('long_and_wrong', 'HTTP/9.1 200 OK\nX: ' + 'x' * 2040, b'\0')
    put('http', 'host_in_brackets', b'\x03https://[AD0]\n')
    put('http', 'user_with_slash', b'\x03https://us%2Fer:pw@3#a\n')

    def frames(name, *events):
        put('kube', name, b'\x11' + ''.join(compact(e) + '\n' for e in events).encode())
    pod = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'a', 'namespace': 'default', 'resourceVersion': '7'}}
    frames('watch', {'type': 'ADDED', 'object': pod}, {'type': 'MODIFIED', 'object': pod}, {'type': 'DELETED', 'object': pod},
           {'type': 'BOOKMARK', 'object': {'kind': 'Pod', 'metadata': {'resourceVersion': '9'}}})
    status = {'kind': 'Status', 'apiVersion': 'v1', 'status': 'Failure', 'code': 410, 'reason': 'Expired', 'message': 'too old',
              'details': {'name': 'a', 'causes': [{'reason': 'x', 'field': 'y', 'message': 'z'}], 'retryAfterSeconds': 1}}
    frames('gone', {'type': 'ERROR', 'object': status})
    frames('status', status)
    frames('list', {'kind': 'PodList', 'apiVersion': 'v1', 'metadata': {'resourceVersion': '9', 'continue': 'x'}, 'items': [pod]})
    put('kube', 'kubeconfig', b'\x05' + lines(
        'current-context: a', 'clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443/", certificate-authority-data: %s}}]' % b64(b'ca'),
        'users: [{name: u, user: {token: t, client-certificate-data: %s, client-key-data: %s}}]' % (b64(b'c'), b64(b'k')),
        'contexts: [{name: a, context: {cluster: c, user: u, namespace: n}}]').encode())
    put('kube', 'kubeconfig_server', b'\x05' + lines('current-context: a', 'clusters: [{name: c, cluster: {server: "h:///"}}]',
                                                     'contexts: [{name: a, context: {cluster: c}}]').encode())

    def request(name, method, target, kind='', body=''):
        body = body if isinstance(body, (bytes, str)) else compact(body)
        put('api_requests', name, ('%s %s %s\n' % (method, target, kind)).encode() + (body if isinstance(body, bytes) else body.encode()))
    maps = '/api/v1/namespaces/default/configmaps'
    js, core = 'application/json', '/api/v1/namespaces/default/'
    request('create', 'POST', maps, js, {'metadata': {'name': 'a'}, 'data': {'k': 'v'}})
    request('create_generated', 'POST', maps + '?fieldValidation=Strict', js, {'metadata': {'generateName': 'a-', 'labels': {'x': 'y'}, 'finalizers': ['a.io/b']}})
    request('update', 'PUT', maps + '/a?dryRun=All', js, {'metadata': {'name': 'a', 'resourceVersion': '1'}, 'data': {'k': 'w'}})
    request('delete', 'DELETE', maps + '/a', js, {'propagationPolicy': 'Foreground', 'preconditions': {'uid': 'x', 'resourceVersion': '1'}})
    request('delete_collection', 'DELETE', maps + '?labelSelector=x%3Dy')
    request('get', 'GET', maps + '/a')
    request('list', 'GET', maps + '?labelSelector=a%20in%20(b)&limit=1&continue=eyJ2')
    request('list_exact', 'GET', '/api/v1/configmaps?resourceVersion=5&resourceVersionMatch=Exact&fieldSelector=metadata.name%3Da')
    request('watch', 'GET', maps + '?watch=1&resourceVersion=1&timeoutSeconds=1&allowWatchBookmarks=true')
    request('discovery', 'GET', '/apis/apps/v1')
    request('openapi', 'GET', '/openapi/v3/api/v1')
    request('json_patch', 'PATCH', maps + '/a', 'application/json-patch+json', [{'op': 'add', 'path': '/data/z', 'value': '1'}])
    request('merge_patch', 'PATCH', maps + '/a', 'application/merge-patch+json', {'metadata': {'finalizers': None}, 'data': {'k': None}})
    request('strategic', 'PATCH', maps + '/a', 'application/strategic-merge-patch+json', {'data': {'$patch': 'replace', 'x': 'y'}})
    request('apply', 'PATCH', maps + '/a?fieldManager=m&force=true', 'application/apply-patch+yaml', 'data: {k: v}\n')
    template = {'metadata': {'labels': {'a': 'b'}}, 'spec': {'containers': [{'name': 'c', 'image': 'i', 'resources': {'limits': {'cpu': '0.5'}}}]}}
    request('deployment', 'POST', '/apis/apps/v1/namespaces/default/deployments', js,
            {'metadata': {'name': 'd'}, 'spec': {'selector': {'matchLabels': {'a': 'b'}}, 'template': template}})
    request('scale', 'PUT', '/apis/apps/v1/namespaces/default/deployments/d/scale', js, {'spec': {'replicas': 3}})
    request('job', 'POST', '/apis/batch/v1/namespaces/default/jobs', js,
            {'metadata': {'name': 'j'}, 'spec': {'template': {'spec': {'restartPolicy': 'Never', 'containers': [{'name': 'c', 'image': 'i'}]}}}})
    request('pod', 'POST', core + 'pods', js, {'metadata': {'name': 'p'}, 'spec': template['spec']})
    request('pod_status', 'PATCH', core + 'pods/p/status', 'application/merge-patch+json', {'status': {'phase': 'Running', 'podIP': '127.0.0.2'}})
    request('binding', 'POST', core + 'pods/p/binding', js, {'target': {'kind': 'Node', 'name': 'n'}})
    request('service', 'POST', core + 'services', 'application/yaml', 'kind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n')
    request('lease', 'POST', '/apis/coordination.k8s.io/v1/namespaces/default/leases', js, {'metadata': {'name': 'l'}, 'spec': {'renewTime': '2024-01-01T00:00:00.000000Z'}})
    request('namespace', 'POST', '/api/v1/namespaces', js, {'metadata': {'name': 'n1'}})
    request('crd', 'POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', js, {'metadata': {'name': 'ws.a.io'}, 'spec': {
        'group': 'a.io', 'scope': 'Namespaced', 'names': {'plural': 'ws', 'kind': 'W'}, 'versions': [{'name': 'v1', 'served': True, 'storage': True,
        'schema': {'openAPIV3Schema': {'type': 'object', 'properties': {'spec': {'type': 'object', 'properties': {'n': {'type': 'integer', 'default': 1}}}}}}}]}})
    request('custom', 'POST', '/apis/a.io/v1/namespaces/default/ws', js, {'apiVersion': 'a.io/v1', 'kind': 'W', 'metadata': {'name': 'w'}, 'spec': {'n': 2, 'x': 3}})
    request('table', 'GET', maps, '|application/json;as=Table;g=meta.k8s.io;v=v1,application/json')
    request('table_page', 'GET', core + 'pods?limit=1', '|application/json;as=Table;g=meta.k8s.io;v=v1')
    request('names', 'GET', maps + '?limit=1', '|application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1')
    request('as_yaml', 'GET', '/apis/apps/v1/deployments', '|application/yaml')
    request('as_protobuf', 'GET', core + 'services', '|application/vnd.kubernetes.protobuf')
    request('answer_as_protobuf', 'POST', maps, js + '|application/vnd.kubernetes.protobuf', {'metadata': {'generateName': 'p-'}, 'data': {'k': 'v'}})
    request('protobuf', 'POST', maps, 'application/vnd.kubernetes.protobuf', envelope('v1', 'ConfigMap', bytes_field(1, bytes_field(1, b'b'))))


def b64(data):
    return base64.b64encode(data).decode()


# --- protobuf (https://protobuf.dev/programming-guides/encoding/)

def varint(value):
    out = b''
    while value >= 0x80:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def bytes_field(number, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def int_field(number, value):
    return varint(number << 3) + varint(value)


def envelope(version, kind, raw):
    return b'k8s\0' + bytes_field(1, bytes_field(1, version) + bytes_field(2, kind)) + bytes_field(2, raw)


def protobuf():
    meta = (bytes_field(1, 'a') + bytes_field(3, 'default') + int_field(7, 1) + bytes_field(8, int_field(1, 1700000000)) +
            bytes_field(11, bytes_field(1, 'app') + bytes_field(2, 'x')) + bytes_field(14, 'a.io/b') +
            bytes_field(13, bytes_field(1, 'Job') + bytes_field(3, 'j') + bytes_field(4, 'u') + bytes_field(5, 'batch/v1') + int_field(6, 1)))
    container = (bytes_field(1, 'c') + bytes_field(2, 'i') + bytes_field(3, 'sh') + bytes_field(6, int_field(3, 80) + bytes_field(4, 'TCP')) +
                 bytes_field(7, bytes_field(1, 'E') + bytes_field(2, 'v')) + bytes_field(8, b''))
    template = bytes_field(1, meta) + bytes_field(2, bytes_field(2, container) + bytes_field(3, 'Always') + int_field(4, 30))
    put('protobuf', 'config_map', envelope('v1', 'ConfigMap', bytes_field(1, meta) + bytes_field(2, bytes_field(1, 'k') + bytes_field(2, 'v')) +
                                           bytes_field(3, bytes_field(1, 'b') + bytes_field(2, b'\xff\0')) + int_field(4, 1)))
    labels = b''.join(bytes_field(11, bytes_field(1, key) + bytes_field(2, 'x')) for key in (b'a\xfb', b'a\xff'))
    put('protobuf', 'text_of_other_bytes', envelope('v1', 'ConfigMap', bytes_field(1, labels)))
    put('protobuf', 'service', envelope('v1', 'Service', bytes_field(1, meta) + bytes_field(2, bytes_field(
        1, bytes_field(1, 'p') + int_field(3, 80) + bytes_field(4, int_field(1, 0) + int_field(2, 8080) + bytes_field(3, ''))))))
    put('protobuf', 'pod', envelope('v1', 'Pod', template))
    put('protobuf', 'deployment', envelope('apps/v1', 'Deployment', bytes_field(1, meta) + bytes_field(
        2, int_field(1, 2) + bytes_field(2, bytes_field(1, bytes_field(1, 'a') + bytes_field(2, 'b'))) + bytes_field(3, template))))
    put('protobuf', 'job', envelope('batch/v1', 'Job', bytes_field(1, meta) + bytes_field(2, int_field(1, 1) + bytes_field(6, template))))
    put('protobuf', 'delete', envelope('v1', 'DeleteOptions', int_field(1, 0) + bytes_field(2, bytes_field(1, 'u')) + bytes_field(4, 'Orphan')))


# --- archives

def tar(*entries):
    """(name, type, data or link target)"""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT if any(len(e[0]) > 99 for e in entries) else tarfile.USTAR_FORMAT) as archive:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
            if kind == tarfile.REGTYPE:
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            else:
                info.linkname = data or ''
                archive.addfile(info)
    # The end is two blocks of zeros; Python pads to twenty.
    return out.getvalue().rstrip(b'\0') + bytes(1024)


def pad(data):
    return data + bytes(-len(data) % 512)


def archives():
    file, folder, link, hard = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
    plain = pad(tar(('m/', folder, None), ('m/model.onnx', file, b'weights'), ('m/current', link, 'model.onnx'), ('m/same', hard, 'm/model.onnx')))
    put('archive', 'small.tar', plain)
    put('archive', 'small.tar.gz', gzip.compress(plain, 9, mtime=0))
    if shutil.which('zstd'):
        put('archive', 'small.tar.zst', subprocess.run(['zstd', '-q', '-19', '-c'], input=plain, stdout=subprocess.PIPE, check=True).stdout)
    put('archive', 'hostile.tar', pad(tar(('../up', file, b'x'), ('a', link, '/etc'), ('a/passwd', file, b'x'), ('f', tarfile.FIFOTYPE, None))))
    put('archive', 'links.tar', pad(tar(('d/', folder, None), ('d/up', link, '..'), ('e', link, 'd/up/d'), ('e/f', file, b'x'))))
    put('archive', 'long.tar.gz', gzip.compress(pad(tar(('n' * 120, file, b'x'), ('d/' + 'o' * 90, hard, 'n' * 120))), 9, mtime=0))
    put('archive', 'zeros.tar.gz', gzip.compress(pad(tar(('zeros', file, bytes(60000)))), 9, mtime=0))
    import zipfile
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, data in (('m/model.onnx', b'weights' * 9), ('m/empty', b'')):
            archive.writestr(zipfile.ZipInfo(name), data)
    put('archive', 'small.zip', out.getvalue())


# --- inputs of nodes and model servers

def nodes():
    node = {'metadata': {'name': 'edge0'}, 'spec': {'models': [{'key': 'default/m', 'modelName': 'm', 'framework': 'onnx', 'target': '2', 'serving': {
        'url': 'http://127.0.0.1:1'}, 'versions': [{'version': '1', 'url': 'https://h/1.tar.gz', 'sha256': 'ab' * 32}, {'version': '2', 'url': '', 'sha256': 'x'}]}]},
        'status': {'models': [{'key': 'default/m', 'exposed': '1', 'versions': []}], 'disk': {'capacityBytes': 1}, 'conditions': [{'type': 'Ready', 'status': 'True'}]}}
    put('pods', 'edge_node', lines('img=/bin/run --port 1', node))
    env = [{'name': 'A', 'value': '$(B) $$(C)'}, {'name': 'B', 'valueFrom': {'fieldRef': {'fieldPath': "metadata.labels['app']"}}},
           {'name': 'C', 'valueFrom': {'secretKeyRef': {'name': 's', 'key': 'key', 'optional': True}}}]
    volumes = [{'name': 'e', 'emptyDir': {}}, {'name': 'c', 'configMap': {'name': 'c', 'items': [{'key': 'key', 'path': 'a/b', 'mode': 256}]}},
               {'name': 's', 'secret': {'secretName': 's', 'defaultMode': 288}}, {'name': 'd', 'downwardAPI': {'items': [
                   {'path': 'labels', 'fieldRef': {'fieldPath': 'metadata.labels'}}]}},
               {'name': 'p', 'projected': {'sources': [{'configMap': {'name': 'c'}}, {'secret': {'name': 'missing', 'optional': True}}]}}]
    pod = {'metadata': {'name': 'p', 'namespace': 'default', 'uid': 'u', 'labels': {'app': 'x'}}, 'spec': {'restartPolicy': 'OnFailure', 'volumes': volumes,
        'containers': [{'name': 'c', 'image': 'reg/a/img:1@sha256:0', 'env': env, 'envFrom': [{'prefix': 'P_', 'configMapRef': {'name': 'c'}}],
                        'ports': [{'containerPort': 80}], 'volumeMounts': [{'name': 'c', 'mountPath': '/c', 'subPath': 'a', 'readOnly': True},
                                                                           {'name': 'e', 'mountPath': '/e/$(A)'}]}]}}
    put('pods', 'pod', lines('tailLines=5&limitBytes=9&follow=true&previous=1', pod))
    put('pods', 'record', lines('a=b', {'pod': pod, 'ip': '127.0.0.9', 'startTime': '2024-01-01T00:00:00Z', 'boot': 'b', 'init': [], 'status': {}, 'main': [
        {'name': 'c', 'state': 'terminated', 'attempt': 1, 'ended': {'code': 1, 'signal': 9, 'reason': 'Error'}, 'last': {'code': 0}}]}))
    put('pods', 'model', lines('', {'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'InferenceModel', 'metadata': {'name': 'm', 'namespace': 'n'}, 'spec': {
        'modelName': 'm', 'deployLayer': 'edge', 'framework': 'onnx', 'targetVersion': '1', 'manifest': [
            {'version': '1', 'downloadURL': 'https://h/a', 'sha256sum': 'ab' * 32}]}}))

    put('oip', 'request', lines({'id': '1', 'inputs': [{'name': 'x', 'shape': [2, 2], 'datatype': 'FP32', 'data': [[1, 2.5], [-3.0, 4]]},
                                                     {'name': 's', 'shape': [1], 'datatype': 'BYTES', 'data': ['a\u00fc']}],
                               'outputs': [{'name': 'y', 'parameters': {'binary_data': True}}], 'parameters': {'timeout': 5}}))
    put('oip', 'binary', lines({'inputs': [{'name': 'x', 'shape': [1], 'datatype': 'FP32', 'parameters': {'binary_data_size': 4}},
                                         {'name': 's', 'shape': [1], 'datatype': 'BYTES', 'parameters': {'binary_data_size': 5}}],
                              'parameters': {'binary_data_output': True}}).encode() + b'\nabc\x01\0\0\0z')
    put('oip', 'types', lines({'inputs': [{'name': t, 'shape': [1], 'datatype': t, 'data': [v]} for t, v in (
        ('BOOL', True), ('UINT8', 255), ('INT8', -128), ('UINT16', 1), ('INT16', -1), ('UINT32', 4294967295), ('INT32', 1), ('UINT64', 18446744073709551615),
        ('INT64', -9223372036854775808), ('FP64', 1e300))]}))
    put('oip', 'response', lines({'model_name': 'm', 'model_version': '1', 'outputs': [{'name': 'y', 'shape': [3], 'datatype': 'INT64', 'data': [1, -2, 9223372036854775807]}]}))
    put('oip', 'metadata', lines({'name': 'm', 'versions': ['1'], 'platform': 'onnxruntime_onnx', 'inputs': [{'name': 'x', 'datatype': 'FP32', 'shape': [-1, 2]}],
                                'outputs': [], 'parameters': {'labels': ['a', 'b']}}))
    put('oip', 'index', lines([{'name': 'm', 'version': '1', 'state': 'READY', 'reason': ''}]))
    put('oip', 'route', '/v2/models/a%2Fb/versions/1/infer')

    def png(name, width, height, colour, depth=8, palette=b'', interlace=0):
        channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
        row = b'\0' + bytes(range(17, 17 + (width * channels * depth + 7) // 8))
        chunk = lambda kind, data: struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
        put('images', name, b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, depth, colour, 0, 0, interlace)) +
            (chunk(b'PLTE', palette) if palette else b'') + chunk(b'IDAT', zlib.compress(row * height, 9)) + chunk(b'IEND', b''))
    png('grey', 8, 8, 0)
    png('grey1', 9, 2, 0, 1)
    png('grey16', 3, 2, 0, 16)
    png('rgb', 3, 3, 2)
    png('rgba', 3, 2, 6)
    png('palette', 4, 2, 3, 2, bytes(range(12)))
    png('interlaced', 2, 1, 0, 8, b'', 1)
    put('images', 'idx', struct.pack('>IIII', 0x803, 2, 2, 3) + bytes(range(12)))
    array = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n"
    put('images', 'npy', b'\x93NUMPY\x01\x00' + struct.pack('<H', len(array)) + array + bytes(8))
    put('images', 'labels', struct.pack('>II', 0x801, 3) + bytes([1, 2, 9]))


# --- the server's schemas and the store's file

def schemas():
    widgets = json.loads((ROOT / 'src/schema/testdata/schema/widget.json').read_text())
    schema = widgets['schema']
    cases = [c.get('object', c) if isinstance(c, dict) else c for c in widgets.get('cases', [])][:6] or [{'spec': {'size': 1}}]
    for i, case in enumerate(cases):
        put('schemas', 'widget_%d' % i, lines(schema, case))
    put('schemas', 'path', lines('.status.conditions[?(@.type=="Ready")].status', {'status': {'conditions': [{'type': 'Ready', 'status': 'True'}]}}))
    put('schemas', 'pattern', lines('^(a|b{2,3})[^c-e]*\\d+(?i:X)$', 'bb-12x'))
    put('schemas', 'logic', lines({'type': 'object', 'properties': {'a': {'type': 'array', 'items': {'type': 'object', 'properties': {'n': {'type': 'string'}}, 'required': ['n']},
        'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['n']}, 'b': {'x-kubernetes-int-or-string': True}, 'c': {'type': 'string', 'format': 'date-time', 'nullable': True},
        'd': {'type': 'number', 'multipleOf': 0.5, 'exclusiveMinimum': True, 'minimum': 0}, 'e': {'type': 'object', 'additionalProperties': {'type': 'integer', 'default': 3}}},
        'anyOf': [{'required': ['a']}, {'required': ['b']}], 'not': {'required': ['z']}}, {'a': [{'n': 'x'}, {'n': 'x'}], 'b': '1', 'c': None, 'd': 1.5, 'e': {'f': None}}))


def store_file():
    put('store_file', 'closed', b'\0')
    put('store_file', 'killed', b'\1')
    put('store_file', 'log', b'\2')
    put('store_file', 'flipped', b'\0' + bytes([0x10, 0x20, 2, 3, 0x05, 0x00, 5, 255]))
    put('store_file', 'cut', b'\1' + bytes([0x60, 0x00, 0, 0]))
    put('store_file', 'log_cut', b'\2' + bytes([0x11, 0x11, 0, 0]))
    put('store_file', 'sector', b'\1' + bytes([0x20, 0x00, 1, 255, 0x30, 0x00, 4, 2]))
    put('store_file', 'header', b'\0' + bytes([0, 60, 3, 9]))


def datasets():
    # The first byte selects the format (csv, tsv, txt, jsonl, json, coco) and the cuts.
    put('dataset', 'csv', b'\x0c' + b'\xef\xbb\xbfname,text\r\n1,"a ""b"",\r\nc"\r\n\r\n2,\n3,"d"')
    put('dataset', 'csv_odd', b'\x30' + b'1,2\n3,a"b\n"4"c,5\n"6"\rd,7\n8\n9,\0\n10,"11\n12,13\n')
    put('dataset', 'csv_blocks', b'\xf6' + b'"abcdefgh, ijklmnop","q\nr",12345\r\n' * 12)
    put('dataset', 'tsv', b'\x0d' + b'a\tb\n1\t"2\n3\n')
    put('dataset', 'txt', b'\x0e' + b'a.jpg\r\n \t\n\0\nb.jpg')
    put('dataset', 'jsonl', b'\x0f' + b'{"a":[1,-2.5e+3,true,null,"\\ud83d\\ude00\xc3\xa9\xf0\x9f\x98\x80"]}\n\n01\n"\\u12"\n[[]]\n{"b":')
    put('dataset', 'json', b'\x10' + b'[1,{"a":[2,3]},"]",[]]\n')
    put('dataset', 'coco', b'\x11' + b'{"info":{"images":[1]},"images":[{"id":1},7],"annotations":[{"category_id":3},{"category_id":"x"}],'
        b'"categories":[{"id":3,"name":"c\\u00e4t"},{"id":4}]}')


def samples():
    # Format, task, model's input; idx and npy: the length of the first file.
    head = lambda kind, task=0, shape=1: bytes([kind, task, shape])
    box = b'<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>'
    put('samples', 'csv', head(0) + b'\xef\xbb\xbfa,b,kind\r\n1,NA,"x ""y"", \nz"\r\n\r\n+2,3e1,b\n')
    put('samples', 'csv_odd', head(0) + b'1,2,a\n3,4"5,b\n"6"7,8,c\n9\n"10')
    put('samples', 'csv_flags', head(0, 1) + b'1,2,red;big\n3,4,\n')
    put('samples', 'tsv', head(1, 2, 0) + b'a\ty\n1\t2.5\nnan\t-1\n')
    put('samples', 'list', head(2, 0, 2) + b'1.png cat\r\n \n./1.png\tblack dog\n')
    put('samples', 'list_outside', head(2, 0, 2) + b'../1.png cat\n/1.png dog\n')
    images = struct.pack('>IIII', 0x803, 2, 2, 2) + bytes(range(8))
    idx_labels = struct.pack('>II', 0x801, 2) + bytes([1, 7])
    put('samples', 'idx', head(3, 0, 3) + struct.pack('<H', len(images)) + images + idx_labels)
    packed = gzip.compress(images, mtime=0)
    put('samples', 'idx_gz', head(3, 0, 2) + struct.pack('<H', len(packed)) + packed + idx_labels)
    put('samples', 'idx_large', head(3) + struct.pack('<H', 16) + struct.pack('>IIII', 0xe03, 2 ** 31, 2 ** 31, 2 ** 31) + idx_labels)

    def npy(kind, shape, data):
        text = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" % (kind, shape)).encode()
        return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text + data

    x, y = npy('<f4', '(2, 2)', struct.pack('<4f', 1, 2, 3, 4)), npy('|b1', '(2,)', b'\0\1')
    put('samples', 'npy', head(4) + struct.pack('<H', len(x)) + x + y)
    put('samples', 'npy_targets', head(4, 2) + struct.pack('<H', len(x)) + x + x)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, 'w') as archive:
        for name, data in (('x.npy', x), ('y.npy', y)):
            archive.writestr(zipfile.ZipInfo(name), data)
    put('samples', 'npz', head(5) + packed.getvalue())
    put('samples', 'coco', head(6, 0, 2) + b'{"annotations":[{"image_id":1,"category_id":3,"bbox":[0,0.5,2,1]},{"image_id":1,"category_id":3,'
        b'"bbox":[],"iscrowd":1}],"images":[{"id":1,"file_name":"1.png"}],"categories":[{"id":3,"name":"c\\u00e4t"}]}')
    put('samples', 'voc', head(7, 0, 2) + b'<annotation><filename>1.png</filename><object><name>cat</name>' + box + b'</object></annotation>')


def snapshots():
    def snapshot(*files):
        text = b'varda-snapshot-1\n' + (1024).to_bytes(4, 'little')
        for path, data in files:
            text += len(path).to_bytes(4, 'little') + path + len(data).to_bytes(8, 'little')
            text += b''.join(hashlib.sha256(data[i:i + 1024]).digest() for i in range(0, len(data), 1024))
        return text

    put('snapshot', 'one', b'\0' + snapshot((b'', b'x' * 1500)))
    put('snapshot', 'folder', bytes([102]) + snapshot((b'a', b'1' * 1024), (b'b/c', b'1' * 1024 + b'2' * 1024 + b'3'), (b'b.txt', b'')))
    put('snapshot', 'up', b'\0' + snapshot((b'../a', b'')))


def enrolment():
    ident, secret, digest = '0123456789ab', 'a' * 64, 'c' * 64
    token = 'varda-join.%s.%s.%s' % (ident, secret, digest)
    csrs = {f.stem: f.read_text() for f in sorted((ROOT / 'src/net/testdata/csr').glob('*.pem')) if f.stem != 'rsa-8192'}
    for name in ('ec-prime256v1', 'ed25519', 'rsa-2048', 'asks-for-everything', 'signature-altered', 'encrypted'):
        put('enrolment', 'body-' + name, b'\0' + lines(token, {'token': token, 'csr': csrs[name]}).encode())
        put('enrolment', 'csr-' + name, b'\0' + lines('line7', csrs[name]).encode())
    put('enrolment', 'certificate', b'\0' + lines(token, csrs['a-certificate']).encode())

    def stored(**data):
        return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'edgeai.io/join-token', 'metadata': {'name': 'join-token-' + ident, 'resourceVersion': '7'},
                'data': {k.replace('_', '-'): base64.b64encode(v.encode()).decode() for k, v in data.items()}}
    known = {'node': 'line7', 'secret_sha256': hashlib.sha256(secret.encode()).hexdigest(), 'expires': '2999-01-01T00:00:00Z'}
    put('enrolment', 'fresh', b'\1' + lines(token, stored(**known)).encode())
    put('enrolment', 'used', b'\1' + lines(token, stored(**known, used_by='b' * 64)).encode())
    put('enrolment', 'expired', b'\1' + lines(token, stored(**dict(known, expires='2001-01-01T00:00:00Z'))).encode())
    put('enrolment', 'revoked', b'\1' + lines(token, stored(**known, revoked='true')).encode())
    put('enrolment', 'shut-out', b'\1' + lines(token, dict(stored(**known), metadata={'name': 'join-token-' + ident, 'annotations': {'edgeai.io/revoked': 'true'}})).encode())


def gateway_requests():
    for number, case in enumerate(json.loads((ROOT / 'src/gateway/testdata/requests.json').read_text())):
        body = compact(case['body']) if 'body' in case else case.get('raw', '')
        put('gateway_requests', '%03d' % number, ('%s %s\n%s' % (case['method'], case['target'], body)).encode())


def tier_counters():
    """A server's report of its tiers, and the agent's record of it."""
    def said(instance, inferences, **more):
        return compact({'instance': instance, 'counters': {'inferences': inferences, 'answered': {'edge': inferences}, 'errors': {'cloud': {'Timeout': 1, 'Failed': 0}}},
                        'tiers': [{'name': 'edge', 'state': 'Ready', 'p50Us': 83}, {'name': 'cloud', 'state': 'HalfOpen', 'lastError': 'Timeout'}], **more})
    put('tier_counters', 'starts', lines(said('a', 3), said('a', 7, degraded={'reason': 'BreakerOpen', 'message': 'cloud', 'since': '2026-01-31T12:00:00Z'}), said('b', 1), said('a', 9)).encode())
    put('tier_counters', 'record', lines(compact({'epoch': 'e', 'base': {'/inferences': -2}, 'instances': [{'instance': 'a', 'seen': {'/inferences': 5}}], 'skip': True,
                                                    'before': 'd', 'counters': {'inferences': 9}}), said('a', 6)).encode())
    put('tier_counters', 'clash', lines('{"instance":"a","counters":{"x":1,"~/":{"y":2}},"tiers":[]}', '{"instance":"b","counters":{"x":{"y":2}},"tiers":[]}').encode())
    put('tier_counters', 'wrong', lines('{"instance":"a","counters":{"x":-1},"tiers":[]}', '{"instance":"a","counters":{"x":{"x":{"x":{"x":{}}}}},"tiers":[{}],"problem":1}').encode())


def worker_messages():
    model = 'models.edgeai.io/default/digits'
    put('worker_messages', 'run', b'\x20' + lines(
        'r' + compact({'version': '1.2', 'capabilities': ['resume'], 'worker': 'default/eval'}), 'p' + compact({'phase': 'train', 'step': 1, 'steps': 9, 'message': 'é'}),
        'm' + compact({'metrics': {'loss': 0.5, 'epochs': 3}}), 'a' + compact({'models': {model: {'metrics': {'accuracy': 0.9}}}, 'data': [1, {'b': None}]}),
        'b' + compact({'models': {model: {'metrics': {'accuracy': 0.95}}, 'models.sedna.io/default/m': {'metrics': {'f1': 1}}}}), 'p' + compact({'fraction': 1})).encode())
    put('worker_messages', 'cut', b'\x08' + lines(*('%s%s' % (name, compact({'data': 'x' * 200})) for name in 'abcdefg')).encode())
    put('worker_messages', 'wrong', b'\0' + lines('r{"vesrion":"1"}', 'p{"step":2,"steps":1}', 'm{"metrics":{"a":"b"}}', 'a{"models":{"models.edgeai.io/other/m":{}}}', 'a{"data":1,"data":2}').encode())
    put('worker_messages', 'record', b'\xff' + lines('x' + compact({
        'uid': 'u1', 'progress': {'step': 1, 'time': 'now'}, 'models': {model: {'metrics': {'a': 1}}}, 'results': {'a': {'order': 2, 'time': 'now', 'said': {'data': 1}}},
        'sequence': 7, 'told': 'ab'})).encode())


def container_runtime():
    labels = bytes_field(8, bytes_field(1, 'io.kubernetes.pod.uid') + bytes_field(2, 'u1')) + bytes_field(8, b'')
    container = bytes_field(1, 'c1') + bytes_field(2, 's1') + bytes_field(3, bytes_field(1, 'c') + int_field(2, 3)) + int_field(6, 1) + labels
    put('runtime', 'containers', b'm' + bytes_field(1, container) + bytes_field(1, bytes_field(1, 'c2') + int_field(6, 2)))
    put('runtime', 'status', b'm' + bytes_field(1, bytes_field(1, 'c1') + int_field(3, 2) + int_field(7, 137) + bytes_field(10, 'OOMKilled')))
    put('runtime', 'network', b'm' + bytes_field(1, bytes_field(5, bytes_field(1, '10.0.0.2'))) + bytes_field(2, b'\xff'))
    put('runtime', 'log', b'l\x05' + lines('2026-01-31T12:00:00.1Z stdout F one', '2026-01-31T12:00:00.2+02:00 stderr P half ', 'cut', '2026-01-31T12:00:00Z stdout F:x two', '').encode())

    def frame(kind, flags, stream, payload):
        return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload
    # :status 200 is indexed; the others are literals without an index (RFC 7541, 6.2.2).
    header = b'\x88' + b''.join(b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in ((b'content-type', b'application/grpc'),))
    trailer = b''.join(b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in ((b'grpc-status', b'5'), (b'grpc-message', b'%E2x')))
    put('runtime', 'answer', b'h' + frame(4, 0, 0, b'') + frame(1, 4, 1, header) + frame(0, 0, 1, b'\0\0\0\0\1x') + frame(1, 5, 1, trailer))
    put('runtime', 'away', b'h' + frame(4, 0, 0, b'') + frame(6, 0, 0, bytes(8)) + frame(7, 0, 0, bytes(8)) + frame(3, 0, 1, b'\0\0\0\7'))


def tiers():
    put('tiers', 'config', 'c' + compact({'version': 1, 'service': 'default/digits', 'deadlineMs': 2000, 'inFlightMax': 64, 'tiers': [
        {'name': 'device', 'policy': {'name': 'CrossEntropy', 'parameters': {'threshold_cross_entropy': '0.8'}}, 'deadlineMs': 300},
        {'name': 'edge', 'url': '', 'model': 'mid', 'policy': {'name': 'Labels', 'parameters': {'labels': '["a, b"]', 'output': 'x'}}},
        {'name': 'cloud', 'url': 'http://203.0.113.7:31080/', 'model': 'big', 'deadlineMs': 1000}]}))
    put('tiers', 'small', 'c' + compact({'version': 1, 'service': '', 'tiers': [{'name': 'a'}, {'name': 'b', 'url': 'https://h', 'model': 'm'}]}))
    put('tiers', 'policy', 'p' + lines('IBT', 'threshold_img', '0.9', 'threshold_box', '1e-1', 'Output', 'y', 'output', 'z'))
    put('tiers', 'numbers', 'p' + lines('Random', 'random_ratio', '00.30E+0'))
    put('tiers', 'list', 'p' + lines('Labels', 'labels', ' one , two, three'))
    put('tiers', 'rows', b'j' + lines('CrossEntropy', 'threshold_cross_entropy=0.9', 'logits INT64 2 3', 'p FP32 2 3 1', '', '').encode() + struct.pack('<3f', 0.5, 0.25, 0.25))
    put('tiers', 'flat', b'j' + lines('IBT', '=', 'scores FP16 3', 'counts INT64 3', '', '').encode() + b'\1\0\0\0\0\0\0\0')
    put('tiers', 'padded', b'j' + lines('Threshold', 'threshold=1', 'detection_scores FP64 1 4', 'num_detections FP32 1 1', '', '').encode() + bytes(8))
    put('tiers', 'boxes', b'j' + lines('IBT', 'output=x', 'x BF16 1 2 6', '', '').encode() + b'\0\x3f')
    put('tiers', 'labels', b'j' + lines('Labels', 'labels=a,1', 'labels BYTES 2 2', '', 'ab').encode())
    put('tiers', 'best', b'j' + lines('Labels', 'labels=1', 'p FP32 2 2', '', '').encode() + struct.pack('<2f', 0.25, 0.75))
    put('tiers', 'margin', b'j' + lines('Margin', 'threshold_margin=.5', 'p FP64 4', '', '').encode() + struct.pack('<2d', 0.75, 0.25))


def pictures():
    images = ROOT / 'src/codec/testdata/images'
    for path in sorted(images.glob('*.png')) + sorted(images.glob('*.jpg')):
        put('image', path.stem if path.suffix == '.png' else 'jpeg_' + path.stem, path.read_bytes())
    one = lambda name, declaration, data: put('transform', name, compact(declaration).encode() + b'\0' + data)
    floats = lambda *values: struct.pack('<%df' % len(values), *values)
    one('classes', {'preprocess': {'image': {}}, 'postprocess': {'softmax': {}, 'top_k': {'k': 3}}}, (images / 'rgb8.png').read_bytes())
    one('normalised', {'preprocess': {'input': 'x', 'image': {'channels': 'bgr', 'scale': 0.00392157, 'mean': [0.4, 0.5, 0.6], 'std': [0.2], 'layout': 'NCHW',
                       'resize': {'width': 5, 'height': 4, 'filter': 'area', 'fit': 'stretch'}}}}, (images / 'red_420.jpg').read_bytes())
    one('grey', {'preprocess': {'image': {'channels': 'grey', 'layout': 'NHWC', 'resize': {'width': 9, 'height': 7, 'filter': 'nearest'}}},
                 'postprocess': {'nms': {'normalized': True, 'threshold': 0, 'iou': 0.5, 'max': 2, 'format': 'cxcywh'}}}, (images / 'grey4.png').read_bytes())
    one('base64', {'preprocess': {'image': {'channels': 'grey', 'resize': {'width': 3, 'height': 3}, 'layout': 'NHWC'}}},
        base64.b64encode((images / 'grey8.png').read_bytes()))
    one('boxes', {'postprocess': {'nms': {'boxes': 'boxes', 'scores': 'scores', 'format': 'xywh', 'iou': 0}}}, floats(0.25, 0.5, 0.75, 1, 0.5, 0.9))
    one('softmax', {'postprocess': {'softmax': {'input': 'scores', 'output': 'p'}, 'nms': {'scores': 'p', 'threshold': 0.01}}}, floats(1, -2, 3, float('inf'), float('nan')))
    one('letterbox', {'preprocess': {'image': {'resize': {'fit': 'letterbox'}}}, 'postprocess': {'anchors': {}}}, b'')


# --- answers of nodes, peers, file servers and gateways

def node_reports():
    """Alternating reports of edge0 and edge1, about the cluster in node_reports.cc."""
    def status(node, served, **more):
        ready = lambda key, version, **rest: {'key': 'default/' + key, 'exposed': version, 'versions': [{'version': version, 'state': 'Ready', 'bytes': 9, 'shared': True}],
                                              'serving': {'version': version, 'state': 'Ready'}, **rest}
        said = {'observedGeneration': 1, 'modelRoot': '/data/models', 'workerRoot': '/data/workers', 'workerSocketDirectory': '/data/worker', 'address': '192.0.2.1%d' % node,
                'peerUrl': 'https://192.0.2.1%d:10445' % node, 'conditions': [{'type': 'Connected', 'status': 'True', 'reason': 'AgentConnected', 'message': ''}],
                'models': [ready('m%d' % node, served), ready('digits.edge', '1' * 12, joint=joint_file('e1', 41)), ready('helmet.edge', '1' * 12)]}
        return dict(said, **more)

    def joint_file(epoch, inferences, **more):
        return dict({'epoch': epoch, 'counters': {'inferences': inferences, 'hard': 12, 'bytesSent': 40960, 'forwarded': 12, 'answered': {'edge': 30, 'cloud': 11},
                                                  'called': {'cloud': 12}, 'errors': {'cloud': {'Timeout': 1}}},
                     'tiers': [{'name': 'edge', 'state': 'Ready', 'p50Us': 80, 'p99Us': 210}, {'name': 'cloud', 'p50Us': 5100}]}, **more)

    digits = lambda said: {'models': [{'key': 'default/digits.edge', 'exposed': '1' * 12, 'versions': [{'version': '1' * 12, 'state': 'Ready'}],
                                       'serving': {'version': '1' * 12, 'state': 'Ready'}, 'joint': said}]}
    put('node_reports', 'serving', lines(status(0, '3'), status(1, '4')))
    put('node_reports', 'silent', lines({}, {}))
    put('node_reports', 'counts', lines(*(status(i % 2, '3', **digits(joint_file('e%d' % i, 2 ** 62 if i == 2 else 7 - i))) for i in range(6))))
    put('node_reports', 'degraded', lines(status(0, '3', **digits(joint_file('e', 1, degraded={'reason': 'BreakerOpen', 'message': 'cloud: refused'}, problem={
        'reason': 'PolicyMismatch', 'message': 'no such output'})))))
    put('node_reports', 'failed', lines(status(0, '', models=[{'key': 'default/m0', 'versions': [{'version': '3', 'state': 'Failed', 'reason': 'DigestMismatch', 'message': 'x'},
        {'version': '4', 'state': 'Downloading', 'bytesDone': 5, 'bytesTotal': 9}], 'serving': {'state': 'Failed', 'failedVersion': '3', 'reason': 'LoadFailed'}}])))
    put('node_reports', 'unreachable', lines(status(0, '3', conditions=[{'type': 'Connected', 'status': 'Unknown', 'reason': 'AgentLost', 'message': 'silent'}],
                                                   lastSeen='2024-05-01T11:00:00Z')))
    worker = lambda key, metrics, instance: {'key': 'default/helmet-edge-' + key, 'uid': 'helmet', 'report': {'registered': {'instance': instance}, 'sequence': 3, 'metrics': metrics,
        'models': {'models.sedna.io/default/big': {'metrics': {'accuracy': 0.93}}, 'models.edgeai.io/default/copied': {'metrics': {'loss': 1e-9}}}}}
    put('node_reports', 'workers', lines(status(0, '3', workers=[worker('adfa01a70198', {'inferenceNumber': 9, 'hardExampleNumber': 2, 'uploadCloudNumber': 1}, 'a')]), '',
                                         status(0, '3', workers=[worker('adfa01a70198', {'inferenceNumber': 3, 'hardExampleNumber': -1}, 'b' * 70)])))
    counted = {'key': 'datasets.edgeai.io/default/faces', 'uid': 'faces', 'state': 'Counted', 'samples': 120, 'bytes': 9000, 'malformed': 1, 'firstMalformed': {'file': 'a', 'line': 3, 'byte': 9,
               'why': 'x'}, 'classes': [{'name': 'a', 'count': 3}], 'furtherClasses': 2, 'header': 'yes', 'fingerprint': 'f', 'time': '2024-05-01T11:00:00Z'}
    put('node_reports', 'dataset', lines(status(0, '3', datasets=[counted]), '', status(0, '3', datasets=[dict(counted, samples=-1)])))
    copied = ('datasets.edgeai.io/default/faces', 'models.edgeai.io/default/copied')
    shares = [{'key': key, 'path': '/data/' + name, 'state': 'Ready', 'snapshot': 'ab' * 32, 'bytes': 9, 'files': 1} for key, name in zip(copied, ('faces.csv', 'copied'))]
    replica = {'key': copied[0], 'uid': 'faces', 'state': 'Copying', 'path': '/data/replicas/faces', 'bytesDone': 3, 'bytesTotal': 9}
    put('node_reports', 'copies', lines(status(0, '3', shares=shares), status(1, '4', replicas=[replica]), '',
                                        status(1, '4', replicas=[dict(replica, state='Current', snapshot='ab' * 32), dict(replica, key=copied[1], state='Failed', reason='DiskFull')])))
    relayed = lambda **how: status(0, '3', shares=[dict(share, **how) for share in shares])
    asking = dict(replica, reason='SourceUnreachable', message='refused', relay=True)
    put('node_reports', 'relay', lines(relayed(relayReason='RelayFailed', relayMessage='x' * 4096), status(1, '4', replicas=[asking]), relayed(relayed='ab' * 32),
                                       status(1, '4', replicas=[dict(asking, state='Current', snapshot='ab' * 32)])))


def peers():
    key, archive = 'datasets.edgeai.io/default/faces', lambda name: hashlib.sha256(name.encode()).hexdigest()
    file = lambda name, path, span, who='edge1', key=key: put('peers', name, 'f' + lines('/replica/v1/file?key=%s&path=%s' % (key, path), span, who))
    file('file', 'a', 'bytes=149990-149999')
    file('folder', 'sub%2Fb%20c.txt', 'bytes=0-3')
    file('link', 'sub/link', 'bytes=0-3')
    file('up', 'up/secret', 'bytes=0-3')
    file('dots', '../secret', 'bytes=0-3')
    file('beyond', 'sub/e', 'bytes=0-0')
    file('open_end', 'a', 'bytes=5-')
    file('stranger', 'a', 'bytes=0-3', 'edge2')
    file('hidden', '', 'bytes=0-3', 'edge2', 'models.edgeai.io/default/hidden')
    put('peers', 'snapshot', 'f' + lines('/replica/v1/snapshot?key=%s&id=' % key, '', 'edge1'))
    for name in ('whole', 'partly', 'unsized', 'coming', 'hidden'):
        put('peers', 'archive_' + name, 'a' + lines('/replica/v1/archive?sha256=' + archive(name), 'bytes=199990-', 'edge1'))
    put('peers', 'archive_range', 'a' + lines('/replica/v1/archive?sha256=' + archive('partly'), 'bytes=0-18446744073709551615', 'edge1'))
    put('peers', 'archive_beyond', 'a' + lines('/replica/v1/archive?sha256=' + archive('partly'), 'bytes=200999-201000', 'edge1'))
    put('peers', 'answers', b's\x01\xff' + lines('206 r 4 break', '206 x 8 bytes 0-1/9', '206 r 8 ').encode())
    put('peers', 'more_than_asked', b's\x00\x10' + lines('206 r 9 ', '404 r 0 ', '416 r 0 ').encode())
    put('peers', 'named', b'i' + b'varda-snapshot-1\n' + (1024).to_bytes(4, 'little') + (1).to_bytes(4, 'little') + b'a' + (3).to_bytes(8, 'little') + hashlib.sha256(b'abc').digest())


def registry_requests():
    digest = 'sha256:' + hashlib.sha256(b'').hexdigest()
    seed = lambda name, path, span, document, copy='': put('registry_requests', name, lines(path, span, digest, copy, document))
    seed('blob', '/v1/blobs/' + digest, 'bytes 0-9/20', {'digest': digest})
    seed('version', '/v1/models/default/digits/versions/1.2-a', 'bytes 10-19/20',
         {'digest': digest, 'size': 7, 'format': 'onnx', 'metrics': {'accuracy': 0.97, 'note': 'x'}, 'lineage': ['digits-3'], 'chunks': digest, 'createdAt': 'x'})
    seed('escaped', '/v1/models/d/%61%2Fb/versions/%2e%2E', 'bytes 0-18446744073709551613/18446744073709551614', {'digest': digest, 'metrics': {}})
    seed('lists', '/v1/models/default/digits/versions/', 'bytes */5', {'digest': digest, 'size': -1})
    seed('open', '/v1/models', 'bytes 5-/9', {'digest': digest, 'lineage': [1]})
    seed('copy', '/v1/blobs/%s/a.tar.chunks' % digest, 'bytes 0-9/20', {'digest': digest}, digest + ' bytes 10-19')
    seed('copy_all', '/v1/blobs/%s.chunks' % digest, 'bytes 0-9/20', {'digest': digest}, digest + ' bytes 0-18446744073709551614')
    seed('read', '/v1/blobs/' + digest, 'bytes=5-9', {'digest': digest})


def bucket_answers():
    seed = lambda name, text: put('bucket_answers', name, '<?xml version="1.0"?>\n' + text)
    item = '<Contents><Key>edge/blobs/0&amp;1</Key><LastModified>2026-03-01T10:00:00.000Z</LastModified><Size>7</Size></Contents>'
    seed('listing', '<ListBucketResult><IsTruncated>false</IsTruncated>%s%s</ListBucketResult>' % (item, item))
    seed('first_page', '<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>a&quot;</NextContinuationToken>%s</ListBucketResult>' % item)
    part = '<Part><PartNumber>%d</PartNumber><LastModified>2026-03-01T10:00:00Z</LastModified><ETag>&quot;a%d&quot;</ETag><Size>5</Size></Part>'
    seed('parts', '<ListPartsResult><IsTruncated>true</IsTruncated>%s%s</ListPartsResult>' % (part % (1, 1), part % (10000, 2)))
    seed('upload', '<InitiateMultipartUploadResult><UploadId>a+/=</UploadId></InitiateMultipartUploadResult>')
    seed('error', '<Error><Code>NoSuchUpload</Code></Error>')


def artifact_answers():
    put('artifact_answers', 'date', 'd' + lines('Sun, 06 Nov 1994 08:49:37 GMT', 'Sun, 06 Nov 1994 08:49:07 GMT'))
    put('artifact_answers', 'leap', 'd' + lines('Thu, 29 Feb 2024 23:59:60 GMT', ''))
    put('artifact_answers', 'seconds', 'd' + lines('120', ''))
    serve = lambda name, *parts: put('artifact_answers', 'serve_' + name, 'f' + lines(*parts))
    serve('whole', '/a.tar.gz')
    serve('range', '/sub/b%20c?x=1', 'Range: bytes=5-9', 'If-Range: Thu, 01 Jan 1970 00:00:00 GMT')
    serve('tail', '/a.tar.gz', 'Range: bytes=-9')
    serve('several', '/a.tar.gz', 'Range: bytes=0-1,4-5')
    serve('empty', '/empty', 'Range: bytes=0-')
    serve('same', '/in', 'If-None-Match: "x", W/"0-64", *', 'If-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT')
    serve('since', '/in', 'If-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT')
    serve('head', '//sub/../a.tar.gz', 'HEAD', 'Range: bytes=0-1')
    for name in ('up/secret', 'out', 'far', 'loop', '%2e%2e/secret', 'sub'):
        serve('not_' + name.replace('/', '_').strip('%'), '/' + name)
    answers = lambda name, *parts: put('artifact_answers', name, lines(*parts))
    answers('resumed', 'h200 -5000 Content-Length=20000;ETag="a"', '206 9000 Content-Range=bytes {first}-13999/14000;ETag="a"')
    answers('shifted', 'h200 -5000 Last-Modified=x', '206 9000 Content-Range=bytes 0-13999/14000')
    answers('whole_again', 'h200 -5000 ', '200 9000 ', '416 0 Content-Range=bytes */5000')
    answers('complete', 'h200 -5000 ', '416 0 Content-Range=bytes */{first}')
    answers('page', 'h200 -5000 ', '200 0 Content-Type=text/html|<!DOCTYPE html>', '200 0 |<html>')
    answers('busy', 'h503 0 Retry-After=Sun, 06 Nov 2094 08:49:37 GMT;Date=Sun, 06 Nov 2094 08:48:37 GMT', '429 0 Retry-After=99999', '401 0 WWW-Authenticate=Basic realm="x"')
    answers('large', 'h200 20 Content-Length=18446744073709551615')
    answers('encoded', 'h200 2000 Content-Encoding=gzip')
    answers('skewed', 's403 0 Date=Sun, 06 Nov 1994 08:49:37 GMT|<Error><Code>RequestTimeTooSkewed</Code></Error>', '200 9000 Content-Length=9000')
    answers('missing', 's404 0 |<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>x</Message></Error>')
    answers('moved', 's301 0 Location=https://elsewhere.example/|<Error><Code>PermanentRedirect</Code></Error>')


def backups():
    def entries(*files, how=1):
        return bytes([how]) + b''.join(name.encode() + b'\n' + struct.pack('>H', len(data)) + data for name, data in files)

    def objects(**values):
        return b''.join(compact({'key': key, 'bytes': len(value)}).encode() + b'\n' + value + b'\n' for key, value in values.items())
    head = lambda **more: ('varda-backup.json', compact(dict({'format': 1, 'needs': '0.1.0', 'program': '0.1.0', 'created': '2026-01-31T12:00:00Z', 'revision': 7, 'objects': 2,
        'credentials': False, 'nodes': [{'name': 'cloud0', 'layer': 'cloud'}], 'images': {'a': 'b --c'}}, **more)).encode())
    store = ('store/000001', objects(**{'/registry/a': b'{"x":1}', '/registry/b': b''}))
    put('restore', 'small', entries(head(), store))
    put('restore', 'two_pieces', entries(head(objects=3), store, ('store/000002', objects(c=b'\n\n'))))
    put('restore', 'credentials', entries(head(credentials=True), ('servers.yaml', b'{}'), ('pki/ca.crt', b'c'), ('pki/ca.key', b'k'), ('tokens.json', b'{}'), store))
    put('restore', 'empty', entries(head(objects=0)))
    put('restore', 'late', entries(head(revision=2 ** 53), store))
    put('restore', 'newer', entries(head(format=2), store))
    put('restore', 'no_sums', entries(head(), store, how=3))
    put('restore', 'outside', entries(head(), ('../x', b'x'), store))
    put('restore', 'twice', entries(head(), store, ('store/000002', store[1])))
    put('restore', 'cut', entries(head(), ('store/000001', store[1][:-3])))
    put('restore', 'archive', b'\0' + tar(('varda-backup.json', tarfile.REGTYPE, head()[1]), ('SHA256SUMS', tarfile.REGTYPE, b'x')))


def model_directories():
    model = lambda name, yaml='', labels='', target='', last_good='', joint='', files=('model.onnx',): put(
        'model_yaml', name, '\0'.join([yaml if isinstance(yaml, str) else compact(yaml), labels, target, last_good, joint, *files]))
    model('plain')
    model('all', {'engine': 'onnxruntime', 'file': 'a.onnx', 'instances': 2, 'threads': 0, 'memoryArena': False, 'options': {'optimization': 'all', 'x': 1.5, 'y': True},
                  'queue': {'max': 0, 'maxBytes': 9223372036854775807, 'timeoutMs': 86400000}, 'warmup': {'runs': 0, 'shapes': {'images': [1, 8, 16777216], 'x': []}},
                  'labels': 'names', 'preprocess': {'image': {'layout': 'NCHW', 'resize': {'width': 4, 'height': 4}}}, 'postprocess': {'softmax': {}, 'top_k': {'k': 3}}},
          'one\r\ntwo\n\n', '20\n', '3 0123456789abcdef\n', '{}', ('a.onnx', 'names'))
    model('yaml', 'engine: echo\nfile: model.txt\nwarmup: {shapes: {a: [1, 2]}}\n', files=('model.txt',))
    model('several', files=('a.onnx', 'b.onnx'))
    model('other_engine', {'engine': 'other'}, files=('model.bin',))
    model('outside', {'file': '../x'})
    model('unknown', {'colour': 'red', 'queue': {'size': 1}})
    model('target', target=' v1.0\r\n', last_good='20 x')
    model('target_gone', target='21', last_good='021')
    model('no_version', target='..', last_good='.x')


def model_files():
    def external(location):
        entries = [bytes_field(1, key) + bytes_field(2, value) for key, value in (('location', location), ('offset', '0'))]
        return int_field(1, 6) + int_field(2, 2) + bytes_field(8, 't') + b''.join(bytes_field(13, e) for e in entries) + int_field(14, 1)

    def model(graph):
        return int_field(1, 8) + bytes_field(7, graph) + bytes_field(8, int_field(2, 13))

    constant = bytes_field(4, 'Constant') + bytes_field(5, bytes_field(1, 'value') + bytes_field(5, external('/etc/passwd')))
    branch = bytes_field(4, 'If') + bytes_field(5, bytes_field(6, bytes_field(5, external('weights.bin'))))
    put('model_file', 'initializer', model(bytes_field(5, external('../secret'))))
    put('model_file', 'sparse', model(bytes_field(15, bytes_field(1, external('a')) + bytes_field(2, external('b')))))
    put('model_file', 'constant', model(bytes_field(1, constant)))
    put('model_file', 'subgraph', model(bytes_field(1, branch)))
    put('model_file', 'function', model(b'') + bytes_field(25, bytes_field(7, constant)))
    put('model_file', 'training', model(b'') + bytes_field(20, bytes_field(1, bytes_field(5, external('*/_ORT_MEM_ADDR_/*')))))
    put('model_file', 'digits', (ROOT / 'examples/digits/models/3/model.onnx').read_bytes()[:4096])


def onnx_files():
    def tensor(name, kind, dims, *data):
        return b''.join(int_field(1, size) for size in dims) + int_field(2, kind) + bytes_field(8, name) + b''.join(data)

    def model(opset, *graph):
        return int_field(1, 8) + bytes_field(7, b''.join(graph)) + bytes_field(8, int_field(2, opset))

    def node(op, inputs, outputs, *attributes):
        return bytes_field(1, b''.join(bytes_field(1, i) for i in inputs) + b''.join(bytes_field(2, o) for o in outputs) + bytes_field(4, op) +
                           b''.join(bytes_field(5, bytes_field(1, name) + value + int_field(20, kind)) for name, value, kind in attributes))

    floats = tensor('w', 1, [2], bytes_field(9, b'\0\0\x80?\0\0\0@'))
    shape = bytes_field(2, bytes_field(1, bytes_field(2, 'N')) + bytes_field(1, int_field(1, 2)))
    x = bytes_field(11, bytes_field(1, 'x') + bytes_field(2, bytes_field(1, int_field(1, 1) + shape)))
    y = bytes_field(12, bytes_field(1, 'y'))
    put('onnx', 'add', model(17, node('Add', 'xw', 'y'), bytes_field(5, floats), x, y))
    put('onnx', 'constant', model(17, node('Constant', '', 'w', ('value', bytes_field(5, floats), 4)), node('Mul', 'xw', 'y'), x, y))
    put('onnx', 'constants', model(13, node('Constant', '', 'a', ('value_ints', int_field(8, 1) + int_field(8, 2), 7)),
                                   node('Constant', '', 'b', ('value_float', b'\x15\0\0\x80?', 1)), node('Mul', 'bb', 'y'), y))
    put('onnx', 'softmax', model(11, node('ReduceSum', 'x', 'a', ('axes', int_field(8, 1), 7)), node('Softmax', 'a', 'y', ('axis', int_field(3, 1), 2)), x, y))
    put('onnx', 'dropout', model(11, node('Dropout', 'x', 'y', ('ratio', b'\x15\0\0\0?', 1)), x, y))
    put('onnx', 'subgraph', model(17, node('If', 'x', 'y', ('then_branch', bytes_field(6, node('Identity', 'x', 'z')), 5)), x, y))
    put('onnx', 'types', model(17, *(bytes_field(5, tensor('t%d' % kind, kind, [1], data)) for kind, data in (
        (1, bytes_field(4, b'\0\0\x80?')), (11, bytes_field(10, b'\0' * 8)), (7, bytes_field(7, b'\3')), (9, int_field(5, 1)), (8, bytes_field(6, 's')), (16, int_field(5, 9)), (13, int_field(11, 4))))))
    put('onnx', 'external', model(17, bytes_field(5, tensor('w', 1, [2], bytes_field(13, bytes_field(1, 'location') + bytes_field(2, 'f')), int_field(14, 1)))))
    put('onnx', 'digits', (ROOT / 'examples/digits/models/small/model.onnx').read_bytes())


def checkpoints():
    item = lambda name, *values: struct.pack('<Q', len(name)) + name + struct.pack('<Q', len(values)) + struct.pack('<%df' % len(values), *values)
    put('checkpoint', 'two_weights', struct.pack('<QQ', 7, 2) + item(b'w', 1, 2) + item(b'bias', 3) + struct.pack('<Q', 1) + item(b'', 4, 5))
    put('checkpoint', 'empty', struct.pack('<QQQ', 0, 0, 0))
    put('checkpoint', 'too_many', struct.pack('<QQ', 1, 2 ** 60) + item(b'w', 1))


def training_runs():
    put('training', 'settings', 's' + json.dumps({
        'task': 'regression', 'loss': 'huber', 'epochs': 3, 'optimizer': {'name': 'adamw', 'learningRate': 0.1}, 'head': {'classes': 2}, 'freeze': ['a*'],
        'schedule': {'name': 'cosine', 'warmupEpochs': 1}, 'earlyStopping': {'metric': 'rmse'}, 'augment': {'flip': True}, 'seed': 9}))
    record = {'epoch': 1, 'loss': 0.5, 'evaluationLoss': 0.25, 'metrics': {'f1': 0.5}, 'learningRate': 0.1, 'seconds': 2.5}
    state = {'identity': 'x', 'epoch': 1, 'batch': 2, 'lossSum': 1.5, 'samples': 8, 'learningRate': 0.1, 'epochSeconds': 0.5, 'seconds': 3.0, 'stopped': False,
             'bestEpoch': 1, 'bestValue': 0.25, 'trainerBytes': 3, 'history': [record], 'evaluation': {
                 'metrics': {'loss': 0.25}, 'confusion': [[1, 2], [3, 4]], 'worst': [{'index': 7, 'place': 'p', 'expected': 'a', 'predicted': 'b', 'loss': 2.5}]}}
    text = json.dumps(state).encode()
    put('training', 'checkpoint', b'c' + struct.pack('<Q', len(text)) + text + b'abcmodel')
    put('training', 'too_long', b'c' + struct.pack('<Q', 2 ** 63) + text)


def incremental_jobs():
    ids = base64.b64encode(struct.pack('>QQ', 5, 9)).decode()
    put('incremental', 'ledger', 'l' + json.dumps([{'round': 1, 'attempt': 2, 'trainProb': 0.5, 'seed': '7', 'train': ids, 'evaluate': ''},
                                                   {'round': 4, 'attempt': 1, 'trainProb': 1, 'seed': '7', 'train': ids, 'evaluate': ids}]))
    put('incremental', 'no_order', 'l' + json.dumps([{'round': 1, 'attempt': 1, 'trainProb': 0.5, 'seed': '7', 'evaluate': '',
                                                      'train': base64.b64encode(struct.pack('>QQ', 9, 5)).decode()}]))
    put('incremental', 'assignment', 'a' + json.dumps({'round': 3, 'attempt': 2, 'stage': 'Eval', 'consumed': [1, [5, 7]], 'refused': [2],
                                                       'trainProb': 0.8, 'seed': 9, 'base': {'version': '4'}, 'baseline': 5}))
    put('incremental', 'state', b's' + b'VARDALD1' + struct.pack('<3Q', 1, 2, 3) + struct.pack('<2Q', 1, 2) + struct.pack('<3d', 0.5, 1.5, 0.25))


def federated_tasks():
    file = {'sha256': 'a' * 64, 'bytes': 91234}
    task = {'id': '3-train-5f1c', 'kind': 'train', 'round': 3, 'rounds': 20, 'model': file, 'secondsLeft': 117.5,
            'train': {'localEpochs': 1, 'localSteps': 5, 'seed': 17, 'trainer': {'batchSize': 8}, 'proximal': 0.01, 'lossBefore': True, 'control': file},
            'update': {'encoding': 'topk', 'keep': 0.1, 'bytesMax': 104857600}, 'file': dict(file, labels=['a', 'b'], yaml='name: x')}
    put('federated_task', 'train', json.dumps(task))
    put('federated_task', 'secure', json.dumps(dict(task, update={'encoding': 'dense'}, secure={
        'sum': 'job/3-train-5f1c', 'client': 'default/w', 'length': 11, 'limit': 8, 'weightMax': 65536, 'clip': 1})))
    put('federated_task', 'evaluate', json.dumps({'id': 'e', 'kind': 'evaluate', 'model': file}))
    put('federated_task', 'end', json.dumps({'id': 'end', 'kind': 'end', 'failed': True, 'reason': 'NoQuorum', 'message': 'x'}))
    put('federated_task', 'when', json.dumps({'window': {'start': '22:00', 'end': '06:00', 'timezone': 'local'}, 'idle': 0.5, 'power': 'mains'}))
def learning():
    """Comparisons, settings and states of incremental learning."""
    frozen = {'name': 'frozen', 'samples': 360, 'baseRight': 300, 'candidateRight': 352, 'onlyBase': 2, 'onlyCandidate': 54,
              'classes': [{'name': '7', 'samples': 36, 'baseRight': 0, 'candidateRight': 33}]}
    ours = {'round': 3, 'selected': {'train': 61, 'evaluate': 15}, 'slices': [frozen, {**frozen, 'name': 'newest', 'classes': []}],
            'metrics': {'base': {'accuracy': 0.83, 'f1': [0.5, 0.25]}, 'candidate': {'accuracy': 0.98, 'f1': [0.75, 1]}},
            'milliseconds': {'base': 0.21, 'candidate': 0.21}, 'bytes': {'base': 91234, 'candidate': 91240}}
    put('learning', 'ours', 'c' + compact(ours))
    put('learning', 'values', 'c' + compact({'slices': [{'name': 'frozen', 'values': {'mae': {'base': [1, 2, 3], 'candidate': [0.5, 2, 1e-9]}}}],
                                             'metrics': {'base': {'mae': 2}, 'candidate': {'mae': 1.2}}}))
    put('learning', 'user', 'c' + compact({'accuracy': [0.9, 0.8], 'precision': [[0.9, 0.8], [0.7, 0.9]], 'loss': 0.1, 'note': 'x', 'bad': None}))
    put('learning', 'wrong', 'c' + compact({'slices': [{**frozen, 'onlyBase': 301}]}))
    put('learning', 'settings', 's' + compact({
        'trainSpec': {'trigger': {'condition': {'metric': 'num_of_samples', 'operator': '>=', 'threshold': '60'}, 'cooldownSeconds': '1h',
                                  'timer': {'start': '22:00', 'end': '4:00', 'timeZone': '-05:30'}, 'quotaPerDay': 3,
                                  'any': [{'hardShare': 0.2}, {'drift': {'method': 'ks'}}, {'all': [{'samples': 3}]}]},
                      'retry': {'attempts': 2, 'backoffSeconds': 5}},
        'evalSpec': {'gate': {'metric': 'loss', 'goal': 'minimize', 'significance': 0.01, 'test': 'exact', 'latencyFactorMax': 2}, 'template': {}},
        'deploySpec': {'trigger': {'condition': {'metric': 'precision_delta', 'operator': 'gt', 'threshold': 0.1}}, 'rollout': {'pauseSeconds': 3},
                       'trial': {'mode': 'shadow', 'answers': 20, 'agreementMin': 0.5}, 'rollback': {'hardShareRise': 0.3, 'crashes': 1}}}))
    state = {'format': 1, 'stage': 'Train', 'phase': 'Running', 'since': '2020-01-01T00:00:00.000Z', 'round': 3, 'attempt': 1, 'base': '1',
             'candidate': '4', 'serving': {'version': '1'}, 'previous': [{'version': '0'}], 'used': 5, 'samplesSeen': 9, 'consumed': [2],
             'starts': ['2020-01-01T00:00:00.000Z'], 'rounds': [{'round': 2, 'outcome': 'Refused', 'gain': -0.5}], 'watched': True,
             'answers': {'marks': {'a': {'since': 'x', 'answers': 3, 'scores': [1, 2]}}, 'carried': {'hard': 2}},
             'pageHinkley': {'count': 2, 'mean': 0.5, 'sum': 0.25, 'minimum': -0.5}}
    put('learning', 'state', lines('t' + compact(state), compact(ours)))
    put('learning', 'deploying', lines('t' + compact({**state, 'stage': 'Deploy', 'rolled': ['a'], 'trial': {}}), '{}'))
    put('learning', 'first', lines('t{}', compact({'accuracy': [0.9, 0.8]})))


def rounds():
    put('rounds', 'settings', 's' + json.dumps({
        'mode': 'async', 'rounds': 3, 'aggregator': {'name': 'FedAdam', 'parameters': {'tau': 0.1}}, 'quorum': 2, 'roundDeadline': '1d12h', 'fraction': 0.5,
        'stop': {'metric': 'loss', 'atMost': 0.1, 'patience': 2}, 'evaluation': {'every': 2, 'dataset': {'name': 'd'}},
        'compression': {'encoding': 'topk', 'keep': 0.1}, 'late': 'fold', 'bounds': {'normMax': 3}, 'seed': 4}))
    put('rounds', 'train', 's' + json.dumps({'localEpochs': 2, 'localSteps': 5, 'proximal': 0.1, 'seed': 3, 'trainer': {'batchSize': 4}}))
    digest = lambda c: c * 64
    update = {'client': 'a', 'digest': digest('a'), 'trainedOn': 1, 'samples': 3, 'norm': 1, 'controlNorm': 0, 'metrics': {'loss': 1}}
    state = {'format': 1, 'job': 'j', 'phase': 'Training', 'round': 1, 'attempt': 1, 'target': 2, 'least': 0, 'openMilliseconds': 5, 'leftMilliseconds': 9,
             'models': [{'round': 1, 'sha256': digest('1')}], 'present': ['a', 'b'], 'chosen': [{'client': 'a', 'refused': False}, {'client': 'b', 'refused': True}],
             'updates': [update], 'early': [], 'counted': [{'client': 'a', 'round': 1, 'digest': digest('a')}], 'refusals': [{'client': 'b', 'count': 2, 'reason': 'w'}],
             'history': [], 'withoutBetter': 0}
    put('rounds', 'training', 'r\x02\x00\x04\x1d\x14\x10\n' + json.dumps(state))
    after = dict(state, phase='Evaluating', chosen=[], updates=[], models=[{'round': 1, 'sha256': digest('1')}, {'round': 2, 'sha256': digest('2')}], evaluation={
        'round': 1, 'model': digest('2'), 'leftMilliseconds': 4, 'asked': ['a', 'b'], 'answers': [{'client': 'a', 'samples': 2, 'metrics': {'loss': 1}}]}, best=0.5)
    put('rounds', 'evaluating', 'r\x07\x00\x0d\x14\n' + json.dumps(after))
    put('rounds', 'finished', 'r\x00\x00\n' + json.dumps(dict(state, phase='Finished', failed=True, reason='NoQuorum', message='m')))


def graph_defs():
    models = ROOT / 'plugins/opencv/testdata'
    for name in ('faces/3/frozen.pb', 'maps/frozen.pb', 'caffe/model.prototxt', 'darknet/model.cfg'):
        put('graph_def', name.split('/')[0], (models / name).read_bytes())
    put('graph_def', 'older_prototxt', b'input: "a" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 9\ninput: "b" input_shape { dim: 1 }')


def enrolment_answers():
    answer = lambda **more: '200  ' + compact(dict({'certificate': '@cert', 'ca': '@ca', 'node': 'line7'}, **more))
    take = lambda name, *parts: put('enrolment_answers', name, b'\0' + lines(*parts).encode())
    take('enrolled', answer(), answer())
    take('other_authority', answer(ca='@ca2', certificate='@cert2'))
    take('other_node', answer(certificate='@node2'))
    take('admin', answer(certificate='@admin'))
    take('thief', answer(certificate='@thief'))
    take('none', '200  {}', '200  []', '200  x')
    take('busy', '503 7 ' + compact({'kind': 'Status', 'message': 'x', 'code': 503}), '429 2147483647 ', '408 -5 ', answer())
    take('refused', '403  ' + compact({'kind': 'Status', 'message': 'no', 'code': 403}), '401  ', answer())
    take('renewal', answer(), '503  ', answer(certificate='@thief'), answer())
    disk = lambda name, *parts: put('enrolment_answers', 'disk_' + name, b'\1' + '\0'.join(parts).encode())
    disk('whole', '@key', '@cert', '@ca')
    disk('new', '')
    disk('other_key', '@key2', '@cert', '@ca')
    disk('other_node', '@key', '@node2', '@ca')
    disk('no_ca', '@key', '@cert', '')
    disk('cut', '@key', '-----BEGIN CERTIFICATE-----\nMII', '@ca')
    disk('no_key', 'x', '@cert', '@ca')


def chunk_lists():
    record = lambda size, byte: struct.pack('<I', size) + bytes([byte]) * 16
    head = lambda size: b'VARDACH1' + struct.pack('<Q', size) + b'\1' * 32
    put('chunks', 'list', head(14097) + record(4096, 2) + record(10000, 3) + record(1, 4))
    put('chunks', 'list_size', head(2 ** 64 - 1) + record(65537, 2))
    put('chunks', 'list_empty', head(0))
    put('chunks', 'after', bytes(range(45)))
    put('chunks', 'before', bytes(range(128, 173)))
    put('chunks', 'mixed', bytes(range(20)) + bytes(range(148, 173)))
    put('chunks', 'repeated', b'\x85' * 100)


def secure_sums():
    key = base64.b64encode(bytes(range(1, 33))).decode()
    keys = {'client': 'd', 'cipherKey': key, 'maskKey': key}
    share = {'x': 3, 'y': key}
    put('secure_sum', 'keys', json.dumps(keys))
    put('secure_sum', 'signed', json.dumps(dict(keys, signer=key, signature=key)))
    put('secure_sum', 'steps', '\n'.join(json.dumps(one) for one in (
        keys, {'neighbours': [dict(keys, client='b'), dict(keys, client='c')], 'clients': 4},
        {'shares': {'a': base64.b64encode(bytes(93)).decode(), 'b': key}},
        {'selfShares': {'a': share}, 'keyShares': {'b': share}, 'survivors': ['a'], 'dropped': ['a']})))
    put('secure_sum', 'opened', '\n'.join(json.dumps(one) for one in (
        keys, {'shares': {name: base64.b64encode(bytes(93)).decode() for name in 'abc'}},
        {'unopened': ['a', 'b']}, {'members': ['a', 'b', 'c']})))


def proxy_headers():
    def header(name, command, family, addresses, *values, more=b''):
        body = addresses + b''.join(bytes([kind]) + len(value).to_bytes(2, 'big') + value for kind, value in values)
        put('proxy_header', name, b'\r\n\r\n\0\r\nQUIT\n' + bytes([command, family]) + len(body).to_bytes(2, 'big') + body + more)
    v4 = bytes([198, 51, 100, 7, 10, 42, 0, 7]) + (40000).to_bytes(2, 'big') + (7363).to_bytes(2, 'big')
    v6 = bytes(15) + b'\1' + bytes(15) + b'\2' + b'\1\2\3\4'
    names = (0xE0, b'line7'), (0xE1, b'default/train'), (0xE2, b'5f1c')
    header('signed', 0x21, 0x11, v4, *names, (0xE3, (1800000000).to_bytes(8, 'big')), (0xE4, bytes(range(70))), more=b'GET / HTTP/1.1\r\n\r\n')
    header('unsigned', 0x21, 0x00, b'', *names)
    header('v6', 0x21, 0x21, v6, (0x01, b'h2'), (0x03, bytes(4)))
    header('local', 0x20, 0x00, b'')
    header('unix', 0x21, 0x31, bytes(216), *names)
    header('twice', 0x21, 0x11, v4, *names, *names)


def grpc():
    def frame(kind, flags, stream, payload=b''):
        return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload

    def literal(name, value):  # HPACK: without index, new name
        return b'\0' + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    def headers(stream, path='/a.B/C', flags=4, **more):
        fields = b'\x83\x86' + literal(':path', path) + literal(':authority', 'x')
        fields += literal('content-type', more.pop('content_type', 'application/grpc')) + literal('te', 'trailers')
        for name, value in more.items():
            fields += literal(name.replace('_', '-'), value)
        return frame(1, flags, stream, fields)

    def data(stream, *messages, flags=0):
        return frame(0, flags, stream, b''.join(struct.pack('>BI', 0, len(m)) + m for m in messages))

    def session(name, *frames, step=6, mode=2 + 8):
        put('grpc', name, bytes([step, mode]) + frame(4, 0, 0) + b''.join(frames))

    session('unary', headers(1), data(1, b'hello', flags=1))
    session('stream', headers(1), data(1, b'a', b'', b'bc'), data(1, b'd'), frame(0, 1, 1))
    session('calls', headers(1), headers(3, '/a.B/D', key='value'), data(3, b'x', flags=1), data(1, b'y', flags=1))
    session('refused', headers(1), headers(3), data(3, b'x', flags=1), mode=2 + 16)
    session('not_read', headers(1), data(1, b'x' * 200, flags=1), mode=1)
    session('timeout', headers(1, grpc_timeout='5m'), data(1, b'x'))
    session('bad_timeout', headers(1, grpc_timeout='99999999999S'))
    session('html', headers(1, content_type='text/html', flags=5))
    session('gzip', headers(1, grpc_encoding='gzip'), frame(0, 1, 1, b'\1\0\0\0\1x'))
    session('large', headers(1), frame(0, 0, 1, b'\0' + struct.pack('>I', 90000) + b'x' * 20), headers(3),
            frame(0, 0, 3, b'\0' + struct.pack('>I', 90000) + b'x' * 20))
    session('too_large', headers(1), frame(0, 0, 1, b'\0\xff\xff\xff\xff'))
    session('cut', headers(1), frame(0, 1, 1, b'\0\0\0\0\5ab'))
    session('reset', headers(1), data(1, b'x'), frame(3, 0, 1, b'\0\0\0\x08'))
    session('window', headers(1), data(1, b'x' * 100), frame(8, 0, 1, b'\0\0\1\0'), frame(8, 0, 0, b'\0\0\1\0'))
    session('small_window', frame(4, 0, 0, b'\0\4\0\0\0\3'), headers(1), data(1, b'hello', flags=1))
    session('pings', *[frame(6, 0, 0, b'12345678')] * 3, frame(6, 1, 0, b'12345678'), frame(7, 0, 0, bytes(8)))
    session('flood', *[frame(4, 0, 0)] * 120)
    session('padded', headers(1), frame(0, 8, 1, b'\4' + b'\0\0\0\0\1x' + b'\0' * 4))
    session('continued', headers(1, flags=0)[:-3], frame(9, 4, 1, b''))
    session('trailers', headers(1), data(1, b'x'), frame(1, 5, 1, literal('a', 'b')))
    put('grpc', 'no_preface', bytes([3, 32]) + b'GET / HTTP/1.1\r\n\r\n')


def flower():
    def npy(text, data):
        text += b'\n'
        return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text + data

    def array(kind, shape, data, order='False'):
        return npy(f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}".encode(), data)

    for path in sorted((ROOT / 'src/flower/testdata').glob('*_res*.hex')):
        put('flower', path.stem, b'\0' + bytes.fromhex(path.read_text()))
    for name, data in {
        'floats': array('<f4', '(3,)', struct.pack('<3f', 1, 2, 3)),
        'doubles': array('<f8', '(1, 2)', struct.pack('<2d', 1, 1e300)),
        'halves': array('<f2', '(2,)', b'\0\x3c\0\x7c'),
        'fortran': array('<f4', '(2, 3)', struct.pack('<6f', 1, 4, 2, 5, 3, 6), 'True'),
        'cube': array('|i1', '(2, 2, 2)', bytes(range(8)), 'True'),
        'bools': array('|b1', '(2,)', b'\1\2'),
        'scalar': array('<i8', '()', struct.pack('<q', -5)),
        'empty': array('<f4', '(0, 4)', b''),
        'objects': array('|O', '(1,)', b'\x80\4N.'),
        'nan': array('<f4', '(1,)', struct.pack('<f', float('nan'))),
        'huge': array('<f4', '(9223372036854775807,)', b''),
    }.items():
        put('flower', 'array_' + name, b'\1' + data)


# --- federated learning; the first byte 0: a whole file, else a header line and the values

def federated():
    def tensor(dtype, shape, begin, end):
        return {'dtype': dtype, 'shape': shape, 'data_offsets': [begin, end]}

    def lined(header, values):
        return b'\1' + compact(header).encode() + b'\n' + values

    weights = {'__metadata__': {'format': 'pt', 'k': ''}, 'a': tensor('F32', [2], 0, 8), 'b': tensor('I64', [], 8, 16),
               'c': tensor('BF16', [1, 2], 16, 20), 'd': tensor('F16', [1], 20, 22), 'e': tensor('U8', [2], 22, 24), 'z': tensor('F64', [0, 3], 0, 0)}
    values = struct.pack('<ffqHHHBB', 1.5, -2, -7, 0x3fc0, 0xbf80, 0x3c00, 0, 255)
    put('safetensors', 'types', lined(weights, values))
    header = compact(weights).encode()
    put('safetensors', 'whole', b'\0' + struct.pack('<Q', len(header)) + header + values)
    put('safetensors', 'bool', lined({'m': tensor('BOOL', [3], 0, 3)}, b'\0\1\1'))
    put('safetensors', 'long', b'\0' + b'\xff' * 7 + b'\x7f{}')
    put('safetensors', 'overlap', lined({'a': tensor('F32', [1], 0, 4), 'b': tensor('F32', [1], 2, 6)}, bytes(6)))
    put('safetensors', 'empty', lined({}, b''))

    def update(name, tensors, values, **changes):
        metadata = {'format': 'varda-update/1', 'task': '3-train-5f1c', 'base': '9f' * 32, 'samples': '64', 'steps': '2', 'encoding': 'dense',
                    'metrics': '{"loss":0.5,"n":3}', **changes}
        put('updates', name, lined({'__metadata__': metadata, **tensors}, values))

    floats = lambda n: struct.pack('<%df' % n, *(i / 8 for i in range(n)))
    update('dense', {'a': tensor('F32', [3], 0, 12), 'c': tensor('F32', [260], 12, 1052)}, floats(263))
    update('halves', {'a': tensor('F16', [3], 0, 6), 'b': tensor('BF16', [2, 2], 6, 14)}, bytes(range(14)))
    update('doubles', {'a': tensor('F64', [3], 0, 24)}, struct.pack('<3d', 1e-300, -5, 1e38))
    update('int8', {'a#scale': tensor('F32', [1], 0, 4), 'c#scale': tensor('F32', [2], 4, 12), 'a': tensor('I8', [3], 12, 15),
                    'c': tensor('I8', [260], 15, 275)}, floats(3) + bytes(i % 256 for i in range(263)), encoding='int8')
    update('topk', {'c#index': tensor('U32', [3], 0, 12), 'c#value': tensor('F32', [3], 12, 24)}, struct.pack('<3I3f', 0, 7, 259, 1, -1, 3),
           encoding='topk')
    update('control', {'a': tensor('F32', [3], 0, 12), 'control/a': tensor('F32', [3], 12, 24), 'control/b': tensor('F16', [2, 2], 24, 32)},
           floats(8), control='yes')
    update('nan', {'a': tensor('F32', [3], 0, 12)}, struct.pack('<3f', 1, float('nan'), 2))
    update('falling', {'c#index': tensor('U32', [3], 0, 12), 'c#value': tensor('F16', [3], 12, 18)}, struct.pack('<3I3H', 9, 7, 300, 1, 2, 3))
    update('nothing', {}, b'')

    def masked(name, tensors, values, **changes):
        metadata = {'format': 'varda-masked/1', 'task': '1-train', 'base': hashlib.sha256(b'model').hexdigest(), 'metrics': '{"loss":0.5}', **changes}
        put('masked_updates', name, lined({'__metadata__': metadata, **tensors}, values))

    vector = {'masked': tensor('U32', [4], 0, 16)}
    masked('vector', vector, struct.pack('<4I', 1, 2 ** 32 - 1, 3, 2 ** 30))
    masked('short', {'masked': tensor('U32', [3], 0, 12)}, bytes(12))
    masked('floats', {'masked': tensor('F32', [4], 0, 16)}, bytes(16))
    masked('other_task', vector, bytes(16), task='2-train')
    masked('metrics', vector, bytes(16), metrics='[1]')


def kept_samples():
    facts = {'version': 1, 'id': '01M8GBMXQBMGHMPXWSEBVH565Z', 'time': '2026-11-28T05:57:00.779Z', 'model': 'digits', 'modelVersion': '4',
             'reason': 'hard', 'policy': 'Margin', 'format': 'png', 'bytes': 310, 'row': 1, 'rows': 2,
             'scores': {'confidence': 0.5, 'margin': 0.25, 'entropy': 0.75, 'energy': -3},
             'answers': [{'tier': 'edge', 'version': '4', 'best': [{'label': '7', 'score': 0.5}, {'label': '\u001b[31m<b>', 'score': 0.25}]},
                         {'tier': 'cloud', 'version': '', 'best': []}],
             'pseudoLabel': {'label': '9', 'score': 0.95, 'tier': 'cloud'}}
    put('kept_samples', 'facts', 'f' + compact(facts))
    put('kept_samples', 'small', 'f' + compact({'version': 1, 'id': facts['id'], 'reason': 'control', 'format': 'npy'}))
    put('kept_samples', 'config', 'c' + compact({'version': 1, 'policy': {'name': 'Energy', 'parameters': {'threshold_energy': '5', 'temperature': '2'}},
                                                 'controlShare': 0.02, 'bytesMax': 1048576, 'countMax': 1000, 'replacement': 'reservoir',
                                                 'pseudoLabels': {'minimum': 0.9}}))
    put('kept_samples', 'array', b'p' + b'\x93NUMPY\1\0' + struct.pack('<H', 58) + b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}" + b'\n' + bytes(16))


def main():
    for path in CORPUS.glob('*/*'):
        if not GROWN.fullmatch(path.name):
            path.unlink()
    for make in (texts, signatures, http, protobuf, archives, nodes, schemas, store_file, datasets, samples, snapshots, enrolment, gateway_requests,
                 worker_messages, tier_counters, container_runtime, tiers, pictures, node_reports, peers, artifact_answers, backups,
                 model_directories, model_files, onnx_files, checkpoints, training_runs, incremental_jobs, graph_defs, enrolment_answers, chunk_lists,
                 registry_requests, bucket_answers, federated, secure_sums, proxy_headers, federated_tasks, grpc, flower, rounds,
                 learning, kept_samples):
        make()
    files = [p for p in CORPUS.glob('*/*') if not GROWN.fullmatch(p.name)]
    print('%d seeds for %d targets, %d bytes' % (len(files), len(list(CORPUS.iterdir())), sum(p.stat().st_size for p in files)))


if __name__ == '__main__':
    main()
