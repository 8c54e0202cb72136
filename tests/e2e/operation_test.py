"""The operator's guarantees: exact resume, upgrades, backups, bounded history, full disks, the
audit log, clean shutdown."""
import base64, collections, contextlib, http.client, json, os, pathlib, random, shutil, signal, socket, sqlite3, ssl, subprocess, sys, tarfile, \
    tempfile, threading, time, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / 'fixtures'
MAPS = '/api/v1/namespaces/default/configmaps'


class Api:
    """Raw requests with the credentials of a kubeconfig, which is read again for each
    connection."""

    def __init__(self, kubeconfig):
        self.kubeconfig, self.connection = pathlib.Path(kubeconfig), None

    def connect(self, timeout=m.seconds(120)):
        text = self.kubeconfig.read_text()
        server = text.split('server:')[1].split()[0].strip('"\'')
        self.token = text.split('token:')[1].split()[0].strip('"\'')
        return http.client.HTTPSConnection(server.split('//')[1], timeout=timeout, context=ssl._create_unverified_context())

    def begin(self, connection, method, path, body=None):
        kind = 'application/merge-patch+json' if method == 'PATCH' else 'application/json'
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {'Authorization': 'Bearer ' + self.token, 'Content-Type': kind})
        return connection.getresponse()

    def __call__(self, method, path, body=None):
        """Returns (status, answer). A GET is retried once on a new connection, because a server
        closes idle connections. Other requests raise the error: the server may have executed
        them."""
        idle = self.connection is not None
        try:
            if self.connection is None:
                self.connection = self.connect()
            response = self.begin(self.connection, method, path, body)
            text = response.read()
            if response.will_close:
                self.close()
            return response.status, json.loads(text)
        except (OSError, http.client.HTTPException):
            self.close()
            if idle and method == 'GET':
                return self(method, path, body)
            raise

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def make(self, name, data):
        return self('POST', MAPS, {'metadata': {'name': name}, 'data': data})


class Writers:
    """Threads that create config maps `NAME-THREAD-0`, `-1` ..., each after the acknowledgement of
    the one before."""

    def __init__(self, kubeconfig, name, threads=3):
        # name: resourceVersion
        self.stopping, self.lock, self.acknowledged = threading.Event(), threading.Lock(), {}
        self.threads = [threading.Thread(target=self.work, args=(kubeconfig, '%s-%d' % (name, i)), daemon=True) for i in range(threads)]
        for t in self.threads:
            t.start()

    def work(self, kubeconfig, name):
        api, number = Api(kubeconfig), 0
        while not self.stopping.is_set():
            try:
                status, answer = api.make('%s-%d' % (name, number), {'n': str(number)})
            except (OSError, http.client.HTTPException, ValueError, IndexError):
                time.sleep(0.02)
                continue
            if status == 201:
                with self.lock:
                    self.acknowledged[answer['metadata']['name']] = int(answer['metadata']['resourceVersion'])
            if status in (201, 409):  # 409: the object exists, only the answer was lost
                number += 1

    def so_far(self):
        with self.lock:
            return dict(self.acknowledged)

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(30)
        return self.so_far()


class Watcher(threading.Thread):
    """Watches the config maps from a version on, reconnects with the last seen version, and never
    lists."""

    def __init__(self, kubeconfig, version):
        super().__init__(daemon=True)
        self.api, self.version, self.events, self.errors, self.opened = Api(kubeconfig), version, [], [], 0
        self.stopping = threading.Event()
        self.start()

    def run(self):
        while not self.stopping.is_set():
            connection = None
            try:
                connection = self.api.connect(timeout=m.seconds(3))
                response = self.api.begin(connection, 'GET', '%s?watch=1&resourceVersion=%d&timeoutSeconds=600' % (MAPS, self.version))
                self.opened += 1
                while line := response.readline():
                    if not line.endswith(b'\n'):
                        break  # a truncated event is sent again
                    event = json.loads(line)
                    if event['type'] == 'ERROR':
                        self.errors.append(event['object'])
                        return
                    self.version = int(event['object']['metadata']['resourceVersion'])
                    self.events.append((event['type'], event['object']['metadata']['name'], self.version))
            except (OSError, http.client.HTTPException, ValueError, IndexError):
                time.sleep(0.02)
            finally:
                if connection:
                    connection.close()

    def stop(self):
        self.stopping.set()
        self.join(10)


def control_plane(varda):
    return json.loads((varda.dir / 'up.json').read_text())['pid']


def kill_control_plane(varda):
    pid = control_plane(varda)
    os.kill(pid, signal.SIGKILL)
    m.wait_until('its end', lambda: not os.path.exists('/proc/%d' % pid) or 'Z' in pathlib.Path('/proc/%d/stat' % pid).read_text().rsplit(')', 1)[1])


def audit_events(path):
    """Complete lines only: the last one may be in the middle of a write."""
    return [json.loads(line) for line in path.read_text().split('\n')[:-1]]


class Resume(unittest.TestCase):
    def test_kill_under_load_loses_no_watch_event_and_no_list(self):
        with m.Machine(nodes=['cloud=cloud', 'edge0=edge']) as varda:
            audit = varda.dir / 'audit.jsonl'
            varda.up('--audit-log', audit)
            api = Api(varda.kubeconfig)
            m.wait_until('both agents', lambda: len(varda.get('edgenodes')['items']) == 2 and
                         all(c['status'] == 'True' for n in varda.get('nodes')['items'] for c in n['status']['conditions'] if c['type'] == 'Ready'))
            self.assertEqual(api('POST', '/api/v1/namespaces/default/secrets', {'metadata': {'name': 's'}, 'stringData': {'p': 'never-told'}})[0], 201)
            for i in range(5):
                self.assertEqual(api.make('page-%d' % i, {})[0], 201)
            # The first page of a list, and the complete current list.
            page = api('GET', MAPS + '?limit=2')[1]
            whole = api('GET', MAPS)[1]
            version = int(whole['metadata']['resourceVersion'])
            self.assertEqual(api('DELETE', MAPS + '/page-4')[0], 200)

            watcher, writers = Watcher(varda.kubeconfig, version), Writers(varda.kubeconfig, 'w')
            before, addresses = [], {json.loads((varda.dir / 'up.json').read_text())['address']}
            for _ in range(2):
                known = len(writers.so_far())
                m.wait_until('writes', lambda: len(writers.so_far()) > known + 30)
                before.append(len(audit_events(audit)))
                kill_control_plane(varda)
                varda.up('--audit-log', audit)
                addresses.add(json.loads((varda.dir / 'up.json').read_text())['address'])
            known = len(writers.so_far())
            m.wait_until('writes', lambda: len(writers.so_far()) > known + 30)
            acknowledged = writers.stop()
            last = max(acknowledged.values())
            m.wait_until('the last event', lambda: watcher.version >= last)

            # Every event arrives once, in order, without a list.
            watcher.stop()
            self.assertEqual(watcher.errors, [])
            self.assertGreaterEqual(watcher.opened, 3)
            versions = [v for _, _, v in watcher.events]
            self.assertEqual(versions, sorted(set(versions)))
            added = collections.Counter(name for kind, name, _ in watcher.events if kind == 'ADDED')
            self.assertEqual({n: c for n, c in added.items() if c != 1}, {})
            seen = {name: v for kind, name, v in watcher.events if kind == 'ADDED'}
            self.assertEqual({n: v for n, v in acknowledged.items() if seen.get(n) != v}, {})
            self.assertEqual(watcher.events[0][:2], ('DELETED', 'page-4'))

            api.close()  # the connection to the first server
            # Paging continues on the list's own snapshot. A list of an exact version reads the same
            # snapshot.
            names = [c['metadata']['name'] for c in page['items']]
            while page['metadata'].get('continue'):
                page = api('GET', MAPS + '?limit=2&continue=' + page['metadata']['continue'])[1]
                self.assertEqual(int(page['metadata']['resourceVersion']), version)
                names += [c['metadata']['name'] for c in page['items']]
            self.assertEqual(names, [c['metadata']['name'] for c in whole['items']])
            exact = api('GET', MAPS + '?resourceVersionMatch=Exact&resourceVersion=%d' % version)[1]
            self.assertEqual(exact['items'], whole['items'])

            # The agents resume their watches: no agent lists after a kill.
            def agents_back():
                later = audit_events(audit)[before[1]:]
                return {e['user'].get('username') for e in later if e['verb'] == 'watch'} >= {'system:node:cloud', 'system:node:edge0'}
            m.wait_until('watches of the agents', agents_back)
            events = audit_events(audit)
            lists = [e['requestURI'] for e in events[before[0]:] if e['verb'] == 'list' and e['user'].get('username', '').startswith('system:node:')]
            # another address means that the port was taken and the agents were restarted
            if len(addresses) == 1:
                self.assertEqual(lists, [])
            self.assertGreater(len([e for e in events if e['verb'] == 'list' and e['user'].get('username') == 'system:node:edge0']), 0)

            # The audit log names the request and omits the content.
            varda.varda('backup', varda.dir / 'b.tar.zst', '--data-dir', varda.dir)
            taken = m.wait_until('its event', lambda: [e for e in audit_events(audit) if e['requestURI'] == '/backup'])[0]
            self.assertEqual((taken['user']['username'], taken['responseStatus']['code']), ('varda-admin', 200))
            made = next(e for e in events if e.get('objectRef', {}).get('resource') == 'secrets' and e['verb'] == 'create')
            self.assertEqual((made['kind'], made['apiVersion'], made['stage'], made['level']), ('Event', 'audit.k8s.io/v1', 'ResponseComplete', 'Metadata'))
            self.assertEqual((made['user']['username'], made['responseStatus']['code'], made['sourceIPs']), ('varda-admin', 201, ['127.0.0.1']))
            self.assertNotIn('never-told', audit.read_text())
            self.assertEqual(audit.stat().st_mode & 0o777, 0o600)

            # Expired history gives 410 with the message of kube-apiserver.
            token = api('GET', MAPS + '?limit=1')[1]['metadata']['continue']
            varda.down()
            varda.up('--history-events-max', '10')
            for i in range(12):
                m.wait_until('a write', lambda: api.make('late-%d' % i, {})[0] in (201, 409))
            watch = api('GET', MAPS + '?watch=1&resourceVersion=%d' % version)[1]
            self.assertEqual((watch['type'], watch['object']['code'], watch['object']['reason']), ('ERROR', 410, 'Expired'))
            self.assertRegex(watch['object']['message'], r'^too old resource version: %d \(\d+\)$' % version)
            status, answer = api('GET', MAPS + '?limit=1&continue=' + token)
            self.assertEqual((status, answer['reason']), (410, 'Expired'))
            self.assertIn('The provided continue parameter is too old', answer['message'])
            status, answer = api('GET', MAPS + '?resourceVersionMatch=Exact&resourceVersion=%d' % version)
            self.assertEqual((status, answer['reason']), (410, 'Expired'))

    def test_followed_log_ends_cleanly_when_varda_goes_down(self):
        with m.Machine(nodes=['edge0=edge']) as varda:
            varda.up('--image', 'shell=/bin/sh')
            pod = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'talk'}, 'spec': {'nodeName': 'edge0', 'containers': [
                {'name': 'c', 'image': 'shell', 'args': ['-c', 'echo hello; while true; do sleep 1; done']}]}}
            varda.kubectl('apply', '-f', '-', input=json.dumps(pod))
            m.wait_until('a running pod', lambda: varda.get('pod', 'talk')['status'].get('phase') == 'Running')
            m.wait_until('its line', lambda: 'hello' in varda.kubectl('logs', 'talk'))
            api = Api(varda.kubeconfig)
            connection = api.connect(timeout=m.seconds(60))
            response = api.begin(connection, 'GET', '/api/v1/namespaces/default/pods/talk/log?follow=true')
            self.assertEqual(response.readline(), b'hello\n')
            follow = subprocess.Popen([m.KUBECTL, '--kubeconfig', varda.kubeconfig, 'logs', '-f', 'talk'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(follow.stdout.readline(), b'hello\n')
            varda.down()
            self.assertEqual(response.read(), b'')  # a cut connection would raise IncompleteRead
            connection.close()
            _, errors = follow.communicate(timeout=m.seconds(180))
            self.assertEqual((follow.returncode, errors), (0, b''))


class Upgrade(unittest.TestCase):
    def test_data_directory_of_the_first_format_is_upgraded(self):
        work = pathlib.Path(tempfile.mkdtemp(prefix='varda-upgrade-'))
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)
        with tarfile.open(FIXTURES / 'data-directory-1.tar.gz') as tar:
            tar.extractall(work / 'data')
        (work / 'data').chmod(0o700)
        # Another process may own this address now.
        state = json.loads((work / 'data/up.json').read_text())
        taken = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(taken.close)
        state['address'] = '127.0.0.1:%d' % taken.getsockname()[1]
        (work / 'data/up.json').write_text(json.dumps(state))
        token = (work / 'data/kubeconfig').read_text().split('token:')[1].split()[0]
        with m.Machine(work / 'data') as varda:
            self.assertIn('nodes cloud, edge0', varda.up())
            self.assertEqual(varda.get('configmap', 'kept')['data'], {'n': '3'})
            self.assertEqual(base64.b64decode(varda.get('secret', 'password')['data']['p']), b'not-a-secret')
            self.assertEqual(varda.model('digits')['spec']['targetVersion'], '1')
            self.assertEqual((work / 'data/kubeconfig').read_text().split('token:')[1].split()[0], token)
            # The upgrade keeps the history: a watch resumes from a version of the old program.
            created = int(varda.get('secret', 'password')['metadata']['resourceVersion'])
            api = Api(varda.kubeconfig)
            connection = api.connect()
            response = api.begin(connection, 'GET', MAPS + '?watch=1&resourceVersion=%d&timeoutSeconds=60' % created)
            event = json.loads(response.readline())
            self.assertEqual((event['type'], event['object']['metadata']['name']), ('DELETED', 'gone'))
            connection.close()
            m.wait_until('reports of both nodes', lambda: all(
                c['status'] == 'True' for n in varda.get('nodes')['items'] for c in n['status']['conditions'] if c['type'] == 'Ready'))
            varda.down()
            self.assertEqual(json.loads((work / 'data/version.json').read_text())['format'], 2)
            for store in ('store.db', 'nodes/cloud/data/agent.db', 'nodes/edge0/data/agent.db'):
                for name, number in ((store, 2), (store + '.format-1', 1)):
                    with contextlib.closing(sqlite3.connect(work / 'data' / name)) as db:
                        self.assertEqual(db.execute('PRAGMA user_version').fetchone()[0], number, name)
            inode = (work / 'data/store.db.format-1').stat().st_ino
            varda.up()
            self.assertEqual(varda.get('configmap', 'kept')['data'], {'n': '3'})
            varda.down()
            # no migration step ran twice
            self.assertEqual((work / 'data/store.db.format-1').stat().st_ino, inode)

            # Data of a later program is refused and stays unchanged.
            (work / 'data/version.json').write_text('{"format": 9, "needs": "3.1.0", "writtenBy": "3.2.0"}')
            done = varda.run([m.VARDA, 'up', '--data-dir', varda.dir, '--listen', '127.0.0.1:0'], check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn('use varda 3.1.0 or newer', done.stderr)


class Backup(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-backup-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def refused(self, varda, file, directory):
        """The message of a restore that fails without leaving files."""
        done = varda.run([m.VARDA, 'restore', file, '--data-dir', directory], check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual([p.name for p in self.work.iterdir() if p.name.startswith(directory.name)], [])
        return done.stderr

    def test_backup_under_load_is_one_snapshot_and_can_be_restored(self):
        out = self.work / 'out'
        out.mkdir()
        file = out / 'backup.tar.zst'
        with m.Machine(self.work / 'first', nodes=['edge0=edge']) as varda:
            varda.up()
            writers = Writers(varda.kubeconfig, 'w')
            m.wait_until('writes', lambda: len(writers.so_far()) > 50)
            before = writers.so_far()
            self.assertIn('objects at revision', varda.varda('backup', file, '--data-dir', varda.dir, '--with-credentials'))
            self.assertEqual(file.stat().st_mode & 0o777, 0o600)
            plain = out / 'plain.tar.zst'
            with open(plain, 'wb') as to:
                subprocess.run([m.VARDA, 'backup', '-', '--data-dir', varda.dir], stdout=to, check=True)
            m.wait_until('more writes', lambda: len(writers.so_far()) > len(before) + 50)

            # The backup needs an administrator's token, without impersonation.
            api, node = Api(varda.kubeconfig), Api(varda.dir / 'nodes/edge0/agent.kubeconfig')
            admin, agent = api.connect(), node.connect()
            for connection, headers, expected in ((admin, {}, 401), (admin, {'Authorization': 'Bearer wrong'}, 401),
                                                  (agent, {'Authorization': 'Bearer ' + node.token}, 403),
                                                  (admin, {'Authorization': 'Bearer ' + api.token, 'impersonate-user': 'bob'}, 403),
                                                  (admin, {'Authorization': 'Bearer ' + api.token}, 200)):
                connection.request('GET', '/backup?credentials=true', headers=headers)
                response = connection.getresponse()
                self.assertEqual((response.status, response.read().startswith(b'\x28\xb5\x2f\xfd')), (expected, expected == 200))
            admin.close(), agent.close()

            # A kill at any moment leaves no partial file and no temporary file.
            rng, whole = random.Random(1), 0
            for i in range(12):
                target = out / ('killed-%d' % i)
                running = subprocess.Popen([m.VARDA, 'backup', target, '--data-dir', varda.dir], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(rng.random() * 0.2)
                running.kill()
                running.wait()
                if target.exists():
                    whole += 1
                    varda.varda('restore', target, '--data-dir', self.work / ('killed-%d' % i))
            self.assertEqual({p.name for p in out.iterdir() if not p.name.startswith('killed-')}, {'backup.tar.zst', 'plain.tar.zst'})
            self.assertEqual(len(list(out.glob('killed-*'))), whole)

            acknowledged = writers.stop()
            last = max(acknowledged.values())
            content = file.read_bytes()
            done = varda.run([m.VARDA, 'backup', file, '--data-dir', varda.dir], check=False)
            self.assertEqual((done.returncode, file.read_bytes()), (1, content))
            self.assertIn('is not replaced', done.stderr)
            # The file size limit is too small.
            small = varda.run(['sh', '-c', 'ulimit -f 1; trap "" XFSZ; exec "$@"', 'sh', m.VARDA, 'backup', out / 'small', '--data-dir', varda.dir], check=False)
            self.assertEqual(small.returncode, 1)
            self.assertFalse((out / 'small').exists())
            varda.down()

            # A damaged backup is refused before any file is written.
            (out / 'cut').write_bytes(content[:-20])
            (out / 'flipped').write_bytes(content[:len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1:])
            (out / 'other').write_bytes(b'hello' * 1000)
            for name in ('cut', 'flipped', 'other'):
                self.refused(varda, out / name, self.work / 'second')
            self.assertIn('not a backup of varda', self.refused(varda, out / 'other', self.work / 'second'))
            self.assertIn('is not empty', varda.run([m.VARDA, 'restore', file, '--data-dir', varda.dir], check=False).stderr)
            listed = subprocess.run(['tar', '--zstd', '-tf', plain], capture_output=True, text=True)
            if listed.returncode == 0:
                self.assertNotIn('tokens.json', listed.stdout)
            token = Api(varda.kubeconfig)
            token.connect()

        with m.Machine(self.work / 'second') as other:
            (self.work / 'linked').symlink_to(other.dir)
            other.dir.mkdir()
            other.varda('restore', file, '--data-dir', '%s/linked/' % self.work)
            # The restored server uses another name and address.
            other.run([m.VARDA, 'up', '--data-dir', other.dir, '--listen', 'localhost:0', '--detach'])
            self.assertEqual(list(json.loads((other.dir / 'up.json').read_text())['nodes'][0].values()), ['edge0', 'edge'])
            api = Api(other.kubeconfig)
            listed = api('GET', MAPS)[1]
            names = {c['metadata']['name'] for c in listed['items']}
            self.assertEqual(set(before) - names, set())
            # The backup is one snapshot: it contains a prefix of each writer's sequence of writes.
            for thread in range(3):
                numbers = sorted(int(n.rsplit('-', 1)[1]) for n in names if n.startswith('w-%d-' % thread))
                self.assertEqual(numbers, list(range(len(numbers))))
            # Restored versions are later than any version a client saw. A watch from an old version
            # must list again.
            self.assertEqual(api.token, token.token)
            self.assertGreater(int(listed['metadata']['resourceVersion']), last)
            self.assertGreater(min(int(c['metadata']['resourceVersion']) for c in listed['items']), last)
            watch = api('GET', MAPS + '?watch=1&resourceVersion=%d' % last)[1]
            self.assertEqual((watch['object']['code'], watch['object']['reason']), (410, 'Expired'))
            m.wait_until('its node', lambda: any(c['type'] == 'Ready' and c['status'] == 'True'
                                                 for c in other.get('node', 'edge0')['status'].get('conditions', [])))
            other.down()
            # This backup is of a stopped server. Its second restore again gives later versions.
            last = int(listed['metadata']['resourceVersion'])
            other.varda('backup', out / 'stopped', '--data-dir', other.dir)
        with m.Machine(self.work / 'third') as third:
            third.varda('restore', out / 'stopped', '--data-dir', third.dir)
            third.up()
            again = Api(third.kubeconfig)
            self.assertEqual({c['metadata']['name'] for c in again('GET', MAPS)[1]['items']} - names, set())
            self.assertGreater(int(again('GET', MAPS)[1]['metadata']['resourceVersion']), last)
            self.assertNotEqual(again.token, api.token)  # the backup contains no credentials


class Tokens(unittest.TestCase):
    def test_rotated_token_replaces_the_former_one_at_runtime(self):
        work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)
        with m.Machine(work / 'tokens', nodes=['edge0=edge']) as varda:
            varda.up()
            varda.nodes_ready()
            kubeconfig, agent = Api(varda.kubeconfig), Api(varda.dir / 'nodes/edge0/agent.kubeconfig')
            own = '/apis/edgeai.io/v1alpha1/edgenodes/edge0'
            self.assertEqual((kubeconfig('GET', MAPS)[0], agent('GET', own)[0]), (200, 200))
            former = kubeconfig.token, agent.token
            self.assertEqual(varda.varda('token', '--rotate', 'varda-admin', '--data-dir', varda.dir), '')
            self.assertEqual(varda.varda('token', '--rotate', 'system:node:edge0', '--data-dir', varda.dir), '')
            m.wait_until('the former tokens end', lambda: (kubeconfig('GET', MAPS)[0], agent('GET', own)[0]) == (401, 401))
            kubeconfig.close(), agent.close()
            self.assertEqual((kubeconfig('GET', MAPS)[0], agent('GET', own)[0]), (200, 200))
            self.assertFalse({kubeconfig.token, agent.token} & set(former))
            # The running agent reconnects with the new token, and opens a new watch.
            seen = varda.get('edgenode', 'edge0')['status']['conditions']
            self.assertEqual({c['type']: c['status'] for c in seen}['Connected'], 'True')
            uid = varda.get('node', 'edge0')['metadata']['uid']
            varda.kubectl('delete', 'node', 'edge0')
            m.wait_until('the agent makes its Node again', lambda: varda.get('node', 'edge0')['metadata']['uid'] != uid)
            listed = varda.varda('token', '--list', '--data-dir', varda.dir)
            self.assertIn('system:node:edge0', listed)
            for token in (*former, kubeconfig.token, agent.token):
                self.assertNotIn(token, listed)
            kubeconfig.close(), agent.close()


class FullDisk(unittest.TestCase):
    def test_full_disk_allows_reads_and_deletions_and_writes_resume(self):
        if subprocess.run(['unshare', '-mr', 'true'], capture_output=True).returncode != 0:
            self.skipTest('no private mounts on this machine (user namespaces are off)')
        work = pathlib.Path(tempfile.mkdtemp(prefix='varda-full-'))
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)
        mount = 'mount -t tmpfs -o size=40m tmpfs "$1" && shift && exec "$@"'
        running = subprocess.Popen(['unshare', '-mr', 'sh', '-c', mount, 'sh', work, m.VARDA, 'up', '--data-dir', work, '--listen', '127.0.0.1:0',
                                    '--node', 'edge0=edge', '--audit-log', work / 'audit.jsonl'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.wait, m.seconds(180))
        self.addCleanup(running.terminate)
        self.assertIn('ready', running.stdout.readline())
        # unshare and sh have become varda
        inside = pathlib.Path('/proc/%d/root' % running.pid) / str(work)[1:]
        api = Api(inside / 'kubeconfig')
        self.assertEqual(api.make('first', {'k': 'v'})[0], 201)
        # A filler nearly fills the disk. The store fills the rest.
        with open(inside / 'filler', 'wb', buffering=0) as filler:
            while os.fstatvfs(filler.fileno()).f_bavail * os.fstatvfs(filler.fileno()).f_frsize > 2 << 20:
                filler.write(bytes(1 << 16))
        made, refusal = [], None
        for i in range(200):
            status, answer = api.make('big-%d' % i, {'k': 'x' * 100_000})
            if status != 201:
                refusal = (status, answer)
                break
            made.append('big-%d' % i)
        self.assertIsNotNone(refusal)
        self.assertGreater(len(made), 0)
        self.assertEqual((refusal[0], refusal[1]['reason']), (507, 'InsufficientStorage'))
        self.assertIn(str(work), refusal[1]['message'])
        self.assertIn('free some room there', refusal[1]['message'])
        self.assertEqual(api('GET', MAPS + '/first')[1]['data'], {'k': 'v'})
        self.assertEqual(len(api('GET', MAPS + '?limit=500')[1]['items']), len(made) + 1)
        self.assertEqual(api('DELETE', MAPS + '/first')[0], 200)
        for name in made:
            self.assertEqual(api('DELETE', MAPS + '/' + name)[0], 200)
        metrics = api.connect()
        text = api.begin(metrics, 'GET', '/metrics').read().decode()
        metrics.close()
        self.assertIn('varda_store_file_bytes{part="database"}', text)
        # Writes resume without intervention once there is room.
        (inside / 'filler').unlink()
        m.wait_until('a write', lambda: api.make('after', {'k': 'x' * 100_000})[0] == 201)
        self.assertIsNone(running.poll())


if __name__ == '__main__':
    unittest.main()
