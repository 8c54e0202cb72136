"""Joint inference while something fails or dies between edge and cloud.

Every request that can be answered is answered, by the best tier that is reachable.

Two model servers are joined by a link with the faults of real links. A second set-up has a packet
filter that loses packets. joint_kill_test.py kills processes of a whole machine.
"""
import os, pathlib, subprocess, sys, tempfile, shutil, time, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import joint as j  # noqa: E402
import machine as m  # noqa: E402
from faulty_link import FaultyLink  # noqa: E402

POLICY = 'CrossEntropy', 0.7
# set where this file runs itself in a separate network namespace
INSIDE = 'VARDA_JOINT_FAULT_NAMESPACE'
# directories of nft and ip, also for users other than root
PATH = os.environ.get('PATH', os.defpath) + ':/usr/sbin:/sbin'
# the end of unshare ends all processes inside
ENTER = ['unshare', '--user', '--map-root-user', '--net', '--pid', '--fork', '--kill-child']


class Pair:
    """A little model at the edge that asks a big model through a link, and two clients that never
    stop. `fronted` puts a link before the edge too."""

    def __init__(self, test, deadline_ms=1000, linked=True, fronted=False):
        self.test = test
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-joint-'))
        test.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.images, self.labels = j.test_split()
        self.cloud = self.server('digits-big', 'big')
        self.link = FaultyLink(self.cloud.port) if linked else None
        if linked:
            test.addCleanup(self.link.close)
        self.edge = j.Server(self.work / 'edge', 'digits', 'small', '--drain-delay', '0')
        self.edge.write('joint.json', j.joint_file('http://127.0.0.1:%d' % (self.link.port if linked else self.cloud.port), *POLICY, cloud_deadline_ms=deadline_ms))
        test.addCleanup(self.edge.kill)
        self.edge.start()
        self.url = self.edge.url
        if fronted:
            self.front = FaultyLink(self.edge.port)
            test.addCleanup(self.front.close)
            self.url = 'http://127.0.0.1:%d' % self.front.port
        self.client = j.Client(self.url, 'digits', self.images)
        self.client.prepare()
        self.seen = self.statistics()['counters']
        self.whole('the big model is asked')
        self.load = m.Load(self.url, 'digits', self.images, kind=j.Client)
        test.addCleanup(self.load.stop)

    def server(self, name, version):
        server = j.Server(self.work / name, name, version, '--drain-delay', '0')
        self.test.addCleanup(server.kill)
        server.start()
        return server

    def statistics(self):
        return j.statistics(self.edge.url, 'digits')

    def counters(self):
        """The current counters. Fails if a counter decreased."""
        now = self.statistics()['counters']
        self.test.assertEqual(j.decreased(self.seen, now), [])
        self.seen = now
        return now

    def whole(self, what):
        """Waits until every image of the split is answered as if nothing had failed."""
        def probe():
            found = j.hard_and_right(self.client.all_once(), self.labels)
            if found != j.expected(*POLICY):
                raise m.Failed('hard and right: %s' % (found,))
            return 'degraded' not in self.statistics()
        m.wait_until(what, probe)

    def edge_answers(self, what):
        """Waits until the service reports degraded and new answers show it; returns `degraded`."""
        degraded = m.wait_until('%s: degraded' % what, lambda: self.statistics().get('degraded'))
        since = time.monotonic()
        m.wait_until('%s: a hard answer of the edge' % what, lambda: any(a.fallback for a in j.answers(self.load.samples(since=since))))
        return degraded

    def end(self):
        """Stops the clients. Fails if a request failed, or if an answer without the cloud lacks its
        reason."""
        samples = self.load.stop()
        self.test.assertEqual(m.failures(samples), [])
        given = j.answers(samples)
        self.test.assertTrue(given)
        self.test.assertEqual([a for a in given if bool(a.fallback) != (a.hard and a.tier == 'edge')], [])
        self.test.assertEqual({a.tier for a in given}, {'edge', 'cloud'})
        self.counters()
        return given


def reasons(answers):
    return {a.fallback.split(': ')[1] for a in answers if a.fallback}


class Link(unittest.TestCase):
    def test_edge_answers_during_a_link_fault_and_the_cloud_afterwards(self):
        pair = Pair(self)
        # Every fault may also read as a timeout: two busy cores can miss the deadline.
        for fault, wanted in (('down', {'Unreachable', 'BreakerOpen', 'Timeout'}),
                              ('stall', {'Timeout', 'BreakerOpen', 'InFlightLimit', 'Unreachable'}),
                              ('portal', {'Failed', 'BreakerOpen', 'Unreachable', 'Timeout'})):
            with self.subTest(fault=fault):
                begin = time.monotonic()
                pair.link.set(fault)
                degraded = pair.edge_answers(fault)
                self.assertEqual(degraded['reason'], 'BreakerOpen')
                self.assertIn('cloud', degraded['message'])
                pair.link.set('none')
                pair.whole('the cloud is back after ' + fault)
                self.assertLessEqual(reasons(j.answers(pair.load.samples(since=begin))), wanted)
                pair.counters()
        pair.end()

    def test_edge_answers_if_the_link_is_slower_than_the_deadline(self):
        pair = Pair(self, deadline_ms=450)
        pair.link.set('slow')  # 300 ms in each direction
        pair.edge_answers('slow')
        m.wait_until('timeouts counted', lambda: pair.counters()['errors']['cloud'].get('Timeout', 0) > 0)
        pair.link.set('none')
        pair.whole('the cloud is in time again')
        self.assertLessEqual(reasons(pair.end()), {'Timeout', 'BreakerOpen', 'InFlightLimit', 'Unreachable'})

    def test_connections_that_break_within_messages_fail_no_request(self):
        pair = Pair(self)
        pair.link.set('cut')
        since = time.monotonic()
        m.wait_until('many connections broken', lambda: pair.link.hits > 20)
        m.wait_until('answers of the cloud all the same', lambda: any(a.tier == 'cloud' for a in j.answers(pair.load.samples(since=since))))
        pair.link.set('none')
        pair.whole('connections last again')
        pair.end()


class Kill(unittest.TestCase):
    def test_kill_of_the_cloud_server_fails_no_request(self):
        pair = Pair(self)
        for _ in range(2):
            pair.cloud.kill()
            pair.edge_answers('the cloud was killed')
            pair.cloud.start()
            pair.link.target = pair.cloud.port
            pair.whole('the cloud serves again')
            pair.counters()
        pair.end()

    def test_kill_of_the_edge_server_fails_only_requests_in_flight(self):
        pair = Pair(self, fronted=True)
        instance = pair.statistics()['instance']
        j.wait_for_tier(pair.load, 'cloud')
        killed = time.monotonic()
        pair.edge.kill()
        pair.edge.start()
        pair.front.target = pair.edge.port
        back = time.monotonic()
        j.wait_for_tier(pair.load, 'cloud')
        samples = pair.load.stop()
        # Requests in flight at the kill started before it.
        self.assertEqual([x for x in m.failures(samples) if x[0] + x[1] < killed or x[0] > back], [])
        self.assertNotEqual(pair.statistics()['instance'], instance)
        pair.client.close()
        pair.whole('as before')


LOSS = 'numgen random mod 5 == 0 drop'


def rules(port, verdict):
    """A script for nft that applies the verdict to packets from and to the port; None removes the
    filter."""
    script = 'table inet faults\ndelete table inet faults\n'
    if verdict:
        both = ''.join('oifname "lo" tcp %s %d %s\n' % (side, port, verdict) for side in ('dport', 'sport'))
        script += 'table inet faults {\nchain out {\ntype filter hook output priority 0\n%s}\n}\n' % both
    return script


class Packets(unittest.TestCase):
    """Runs in a separate network namespace. A filter drops packets to the cloud's port, like a bad
    radio link."""

    def rule(self, verdict=None):
        subprocess.run(['nft', '-f', '-'], input=rules(self.pair.cloud.port, verdict), text=True, check=True, capture_output=True)

    def setUp(self):
        if os.environ.get(INSIDE):
            self.pair = Pair(self, deadline_ms=300, linked=False)
            return
        environment = dict(os.environ, PATH=PATH)
        able = all(shutil.which(program, path=PATH) for program in ('unshare', 'nft', 'ip')) and subprocess.run(
            ENTER + ['sh', '-c', 'ip link set lo up && nft -f -'], input=rules(1, LOSS), text=True, capture_output=True, env=environment).returncode == 0
        if not able:
            self.skipTest('no network namespace with a packet filter is permitted here')
        test = '.'.join(self.id().split('.')[-2:])
        done = subprocess.run(ENTER + ['sh', '-c', 'ip link set lo up && exec "$@"', 'sh', sys.executable, '-W', 'ignore', __file__, test],
                              env=dict(environment, **{INSIDE: '1'}), capture_output=True, text=True, timeout=m.seconds(600))
        self.inside = done

    def done_inside(self):
        if os.environ.get(INSIDE):
            return False
        self.assertEqual(self.inside.returncode, 0, self.inside.stderr)
        return True

    def test_edge_answers_while_packets_are_dropped(self):
        if self.done_inside():
            return
        pair = self.pair
        self.rule('drop')
        self.assertEqual(pair.edge_answers('no packet arrives')['reason'], 'BreakerOpen')
        self.rule()
        pair.whole('packets arrive again')
        self.assertLessEqual(reasons(pair.end()), {'Timeout', 'BreakerOpen', 'InFlightLimit', 'Unreachable'})

    def test_loss_of_every_fifth_packet_fails_no_request(self):
        if self.done_inside():
            return
        pair = self.pair
        self.rule(LOSS)
        since = time.monotonic()
        m.wait_until('an answer of the cloud and one without it', lambda: {'edge', 'cloud'} <= {
            a.tier for a in j.answers(pair.load.samples(since=since)) if a.hard})
        self.rule()
        pair.whole('no packet is lost any more')
        pair.end()


if __name__ == '__main__':
    unittest.main()
