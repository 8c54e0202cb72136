"""SIGKILL at seeded moments, while objects are written, versions installed and targets switched.

After every kill, each acknowledged write exists, no artifact is partial, and no server runs twice.
At the end all objects converge. VARDA_KILLS sets the number of kills (default 15; 1000 with
VARDA_SOAK=1). VARDA_SEED sets the seed.
"""
import collections, contextlib, json, os, pathlib, random, shutil, signal, sys, tempfile, threading, time, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

KILLS = int(os.environ.get('VARDA_KILLS', 1000 if os.environ.get('VARDA_SOAK') else 15))
SEED = int(os.environ.get('VARDA_SEED', 20))


def dying(pid):
    """True if SIGKILL is pending: the process only waits for a processor."""
    with contextlib.suppress(OSError):
        fields = dict(line.split(':', 1) for line in pathlib.Path('/proc/%d/status' % pid).read_text().splitlines())
        return bool((int(fields['SigPnd'], 16) | int(fields['ShdPnd'], 16)) & 1 << (signal.SIGKILL - 1))
    return True


def parent(pid):
    with contextlib.suppress(OSError), open('/proc/%d/stat' % pid) as f:
        return int(f.read().rsplit(')', 1)[1].split()[1])
    return None


class Writer(threading.Thread):
    """Creates config maps one after another and remembers the acknowledged ones."""

    def __init__(self, varda):
        super().__init__(daemon=True)
        self.varda, self.stopping, self.acknowledged, self.number = varda, threading.Event(), set(), 0

    def run(self):
        import http.client, ssl
        connection = None
        while not self.stopping.is_set():
            try:
                if connection is None:
                    # The address may change after a restart, so each connection reads it again.
                    text = pathlib.Path(self.varda.kubeconfig).read_text()
                    server = text.split('server:')[1].split()[0].strip('"\'')
                    token = text.split('token:')[1].split()[0].strip('"\'')
                    connection = http.client.HTTPSConnection(server.split('//')[1], timeout=m.seconds(30), context=ssl._create_unverified_context())
                name = 'w-%d' % self.number
                self.number += 1
                body = json.dumps({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name}, 'data': {'n': name}})
                connection.request('POST', '/api/v1/namespaces/default/configmaps', body,
                                   {'Authorization': 'Bearer ' + token, 'Content-Type': 'application/json'})
                r = connection.getresponse()
                r.read()
                if r.status == 201:
                    self.acknowledged.add(name)
            except (OSError, http.client.HTTPException, IndexError):
                connection = None
                time.sleep(0.02)


class Kills(unittest.TestCase):
    def test_seeded_kills_lose_duplicate_and_leak_nothing(self):
        rng = random.Random(SEED)
        work = pathlib.Path(tempfile.mkdtemp(prefix='varda-kill-'))
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)
        (work / 'www').mkdir()
        files = m.FileServer(work / 'www')
        self.addCleanup(files.stop)
        with m.Machine(work / 'data', nodes=['cloud=cloud', 'edge0=edge']) as varda:
            varda.up()
            entries = []
            for v in ('3', '4'):
                out = work / 'www' / ('digits-%s.tar.gz' % v)
                entries.append((v, files.url(out.name), m.pack(varda, v, out)))
            content = {sha: {p.name: p.read_bytes() for p in (m.DIGITS / 'models' / v).iterdir() if p.is_file()} for v, _, sha in entries}
            varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('digits', 'edge', entries, '3', node='edge0')))
            varda.ready('digits', '3')
            varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('web', 'cloud', entries, '3', replicas=2)))
            varda.ready('web', '3')
            writer = Writer(varda)
            writer.start()
            target = {'digits': '3', 'web': '3'}
            kinds = collections.Counter()
            for round_number in range(KILLS):
                what = rng.choice(['control', 'control', 'edge0', 'edge0', 'cloud', 'server', 'everything'])
                kinds[what] += 1
                with self.subTest(round=round_number, seed=SEED, kill=what):
                    act = rng.choice(['switch', 'switch', 'reinstall', 'web'])
                    with contextlib.suppress(m.Failed):  # the kill may hit the command itself
                        if act == 'switch':
                            wanted = '4' if target['digits'] == '3' else '3'
                            varda.kubectl('patch', 'inferencemodel', 'digits', '--type=merge', '-p', json.dumps({'spec': {'targetVersion': wanted}}))
                            target['digits'] = wanted
                        elif act == 'web':
                            wanted = '4' if target['web'] == '3' else '3'
                            varda.kubectl('patch', 'inferencemodel', 'web', '--type=merge', '-p', json.dumps({'spec': {'targetVersion': wanted}}))
                            target['web'] = wanted
                        else:
                            # The test creates and deletes a third model: installs and removals
                            # happen between kills.
                            if rng.random() < 0.5:
                                varda.kubectl('apply', '-f', '-', input=json.dumps(m.inference_model('extra', 'edge', entries, '3', node='edge0', port=8085)))
                            else:
                                varda.kubectl('delete', 'inferencemodel', 'extra', '--ignore-not-found', '--wait=false')
                    time.sleep(rng.random() * 0.4)
                    self.kill(varda, what)
                    if what in ('control', 'everything'):
                        varda.up()
                    self.check_artifacts(work, content)
                    self.check_not_doubled(varda)
            writer.stopping.set()
            writer.join(60)
            print('kills: %s, %d acknowledged writes' % (dict(kinds), len(writer.acknowledged)), file=sys.stderr)
            self.assertGreater(len(writer.acknowledged), KILLS)
            stored = {c['metadata']['name'] for c in varda.get('configmaps')['items']}
            self.assertEqual(writer.acknowledged - stored, set())
            varda.kubectl('delete', 'inferencemodel', 'extra', '--ignore-not-found')
            for name in ('digits', 'web'):
                url = varda.ready(name, target[name], timeout=300)['status']['url']
                c = m.Client(url, name, [bytes(64)])
                # the reported state of a server may be older than its end
                m.wait_until('an answer of ' + name, lambda: c.prepare() or c.one())
            m.wait_until('as many servers as pods', lambda: len(self.servers(varda)) == len(varda.pods()) == 3, 180)
            varda.down()
            self.assertEqual(varda.processes(), {})

    def kill(self, varda, what):
        processes = varda.processes()
        if what == 'control':
            victims = [p for p, c in processes.items() if ' up ' in c]
        elif what in ('edge0', 'cloud'):
            victims = [p for p, c in processes.items() if ' agent ' in c and what in c.split()]
        elif what == 'server':
            victims = sorted(self.servers(varda))[:1]
        else:
            victims = list(processes)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @staticmethod
    def servers(varda):
        all_of_them = {p: c for p, c in varda.processes().items() if 'varda-serve' in c.split(' ')[0]}
        # A server tries a load in a child process, which can briefly survive a killed server.
        return {p: c for p, c in all_of_them.items() if parent(p) not in all_of_them and not dying(p)}

    def check_not_doubled(self, varda):
        """Two servers for one pod would share a working directory."""
        places = collections.defaultdict(list)
        for pid in self.servers(varda):
            with contextlib.suppress(OSError):
                places[os.readlink('/proc/%d/cwd' % pid)].append(pid)
        self.assertFalse({k: v for k, v in places.items() if len(v) > 1})

    def check_artifacts(self, work, content):
        """Every directory named by a digest is complete."""
        # unlike rglob(), os.walk() ignores directories that disappear meanwhile
        for directory, _, _ in os.walk(work / 'data/nodes'):
            path = pathlib.Path(directory)
            if path.name in content and 'scratch' not in path.parts:
                with contextlib.suppress(FileNotFoundError):  # evicted meanwhile
                    self.assertEqual({p.name: p.read_bytes() for p in path.iterdir() if p.is_file()}, content[path.name])


if __name__ == '__main__':
    unittest.main()
