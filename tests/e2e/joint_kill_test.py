"""Joint inference under `varda up` while agents, servers and the control plane are killed under
load."""
import contextlib, os, pathlib, shutil, signal, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import joint as j  # noqa: E402
import machine as m  # noqa: E402

POLICY = 'CrossEntropy', 0.7


class Kills(unittest.TestCase):
    def test_kills_fail_no_answerable_request_and_lose_no_count(self):
        work = pathlib.Path(tempfile.mkdtemp(prefix='varda-joint-'))
        self.addCleanup(shutil.rmtree, work, ignore_errors=True)
        (work / 'www').mkdir()
        files = m.FileServer(work / 'www')
        self.addCleanup(files.stop)
        self.images, self.labels = j.test_split()
        with m.Machine(work / 'data', nodes=['cloud=cloud', 'edge0=edge']) as self.varda:
            self.varda.up()
            j.deploy(self.varda, files, work / 'www', *POLICY)
            url = j.ready(self.varda, 'digits')['url']
            self.client = j.Client(url, 'digits', self.images)
            self.client.prepare()
            self.seen, self.decreased = 0, []
            self.whole('the service asks the cloud')

            load = m.Load(url, 'digits', self.images, kind=j.Client)
            self.addCleanup(load.stop)
            for what in ('agent edge0', 'agent cloud', 'server cloud', 'control plane'):
                with self.subTest(kill=what):
                    j.wait_for_tier(load, 'cloud')
                    victims = self.kill(what)
                    if what == 'control plane':
                        self.varda.up()
                    m.wait_until('another ' + what, lambda: set(self.running(what)) - set(victims))
                    self.whole('the cloud answers after the end of ' + what)
                    if what in ('agent edge0', 'control plane'):  # these processes carry the counts
                        sent = len(load.samples()) + len(self.client.samples)
                        m.wait_until('%d counted after the end of %s' % (sent, what), lambda: self.counted() >= sent)
            samples = load.stop()
            self.assertEqual(m.failures(samples), [])
            sent = len(samples) + len(self.client.samples)
            m.wait_until('%d counted' % sent, lambda: self.counted() == sent)
            m.wait_until('not degraded', lambda: j.condition(self.varda, 'digits', 'Degraded', 'False'))

            # All processes end in order, right after the last answer.
            self.client.all_once()
            sent = len(samples) + len(self.client.samples)
            self.varda.down()
            self.varda.up()
            m.wait_until('%d counted' % sent, lambda: self.counted() == sent)

            # A killed server loses the counts it has not reported. Reported counts stay; the number
            # above was reported before this server started.
            m.wait_until('the edge server', lambda: j.http_status(url, '/v2/models/digits/ready') == 200)
            self.kill('server edge0')
            m.wait_until('an answer', self.client.one)
            self.whole('the edge server is back')
            m.wait_until('what came after is counted on top', lambda: self.counted() > sent)
        self.assertEqual(self.decreased, [])

    def counted(self):
        number = self.varda.get('jointinferenceservice', 'digits')['status']['inferenceNumber']
        if number < self.seen:
            # checked at the end: wait_until() retries after a failure
            self.decreased.append((self.seen, number))
        self.seen = number
        return number

    def whole(self, what):
        def probe():
            found = j.hard_and_right(self.client.all_once(), self.labels)
            if found != j.expected(*POLICY):
                raise m.Failed('hard and right: %s' % (found,))
            return True
        m.wait_until(what, probe)
        with contextlib.suppress(m.Failed):  # the control plane may be down
            self.counted()

    def running(self, what):
        kind, _, node = what.partition(' ')
        below = str(self.varda.dir / 'nodes' / node) + '/'

        def serves(pid, c):
            with contextlib.suppress(OSError):  # a child that tried a load may have ended meanwhile
                return 'varda-serve' in c.split(' ')[0] and os.readlink('/proc/%d/cwd' % pid).startswith(below)
        wanted = {'control': lambda pid, c: ' up ' in c, 'agent': lambda pid, c: ' agent ' in c and node in c.split(), 'server': serves}[kind]
        return [pid for pid, c in self.varda.processes().items() if wanted(pid, c)]

    def kill(self, what):
        victims = self.running(what)
        self.assertTrue(victims, what)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return victims


if __name__ == '__main__':
    unittest.main()
