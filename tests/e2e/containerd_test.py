"""Pods in a real containerd give the same results as processes, whatever is killed meanwhile."""
import base64, json, os, pathlib, shutil, signal, struct, subprocess, sys, tempfile, unittest, uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import containerd  # noqa: E402
import machine as m  # noqa: E402

TOOL = 'localhost/tool:1'
PROGRAMS = ['sh', 'sleep', 'cat', 'ls', 'id', 'env', 'touch', 'test', 'hostname', 'readlink']
FOREVER = 'trap "echo bye; exit 0" TERM; while :; do sleep 0.1; done'
BRIDGE = 'vt-' + uuid.uuid4().hex[:8]


def free_subnet():
    """The first three numbers of a network without a route on this machine."""
    routes = [line.split() for line in open('/proc/net/route').read().splitlines()[1:]]
    taken = [[struct.unpack('>I', bytes.fromhex(x)[::-1])[0] for x in (route[1], route[7])] for route in routes]
    for third in range(256):
        address = 10 << 24 | 241 << 16 | third << 8
        if all(mask == 0 or address & mask & 0xffffff00 != to & 0xffffff00 & mask for to, mask in taken):
            return '10.241.%d' % third
    return None


class WithoutContainerd(unittest.TestCase):
    def test_error_names_the_unreachable_containerd_socket(self):
        with m.Machine() as varda:
            done = varda.run([m.VARDA, 'up', '--data-dir', str(varda.dir), '--listen', '127.0.0.1:0', '--driver', 'containerd',
                              '--containerd-socket', str(varda.dir / 'nobody.sock')], check=False)
            self.assertNotEqual(done.returncode, 0)
            for words in 'nobody.sock', '--containerd-socket', 'containerd does not answer':
                self.assertIn(words, done.stderr)


@unittest.skipIf(containerd.missing(), containerd.missing())
class Containerd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.subnet = free_subnet()
        network = {'cniVersion': '0.4.0', 'name': 'test', 'plugins': [
            {'type': 'bridge', 'bridge': BRIDGE, 'ipam': {'type': 'host-local', 'dataDir': tempfile.mkdtemp(prefix='varda-ipam-', dir='/tmp'),
                                                          'subnet': '%s.0/24' % cls.subnet}}]}
        cls.addClassCleanup(subprocess.run, ['rm', '-rf', network['plugins'][0]['ipam']['dataDir']])
        cls.bridged = bool(cls.subnet and os.path.exists(containerd.CNI + '/bridge') and shutil.which('ip')) and \
            subprocess.run(['ip', 'link', 'add', BRIDGE, 'type', 'bridge'], capture_output=True).returncode == 0
        if cls.bridged:
            cls.addClassCleanup(subprocess.run, ['ip', 'link', 'delete', BRIDGE], capture_output=True)
        cls.containerd = containerd.Containerd(network if cls.bridged else None)
        cls.addClassCleanup(cls.containerd.close)
        cls.containerd.import_image(TOOL, PROGRAMS, Entrypoint=['/bin/sh', '-c'])
        cls.varda = m.Machine(nodes=['edge0'])
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up('--driver', 'containerd', '--containerd-socket', cls.containerd.socket)
        cls.varda.nodes_ready()

    def apply(self, *objects):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def run_pod(self, name, script=FOREVER, container=None, **spec):
        """Applies a pod with one container. The test itself waits for a result."""
        wanted = {'name': 'c', 'image': TOOL, 'args': [script], **(container or {})}
        self.addCleanup(self.varda.kubectl, 'delete', 'pod', name, '--ignore-not-found', '--grace-period=1')
        self.apply({'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name},
                    'spec': {'nodeName': 'edge0', 'hostNetwork': True, 'terminationGracePeriodSeconds': 1, 'containers': [wanted], **spec}})

    def status(self, name):
        return self.varda.get('pod', name)['status']

    def container(self, name):
        return self.status(name)['containerStatuses'][0]

    def ready(self, name):
        return m.wait_until('pod %s ready' % name, lambda: self.container(name)['ready'] and self.container(name))

    def container_id(self, name):
        scheme, _, id = self.container(name)['containerID'].partition('://')
        self.assertEqual(scheme, 'containerd')
        return id

    def pid(self, name):
        return self.containerd.tasks()[self.container_id(name)]

    def of_pod(self, name):
        """Ids of all containers of a pod in containerd, sandboxes included."""
        return [c for c in self.containerd.containers() if self.containerd.labels(c).get('io.kubernetes.pod.name') == name]

    def up_again(self, *flags):
        self.varda.down()
        self.varda.up(*flags)

    def start_containerd(self):
        if self.containerd.process.poll() is not None:
            self.containerd.start()

    def agent(self):
        return json.loads((self.varda.dir / 'nodes/edge0/agent.json').read_text())['pid']

    def test_container_follows_the_spec_of_its_pod(self):
        host = self.varda.dir / 'shared'
        host.mkdir()
        (host / 'file').write_text('from the host\n')
        self.apply({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'settings'}, 'data': {'mode': 'fast'}},
                   {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'key'}, 'data': {'key': base64.b64encode(b'xyzzy').decode()}})
        script = '''echo $GREETING $(cat /settings/mode) $(cat /key/key) $(cat /host/file)
                    id -u; id -g
                    touch /denied 2>/dev/null || echo read-only root
                    touch /host/new 2>/dev/null || echo read-only mount
                    echo kept > /scratch/file && cat /scratch/file
                    while read -r line; do case "$line" in CapEff*|NoNewPrivs*) echo $line;; esac; done < /proc/self/status
                    echo at $POD_IP
                    ''' + FOREVER
        mounts = [('settings', '/settings', False), ('key', '/key', False), ('host', '/host', True), ('scratch', '/scratch', False)]
        self.run_pod('full', script, {
            'env': [{'name': 'GREETING', 'value': 'hello from the pod'}],
            'volumeMounts': [{'name': name, 'mountPath': path, 'readOnly': ro} for name, path, ro in mounts],
            'resources': {'limits': {'cpu': '500m', 'memory': '64Mi'}},
            'securityContext': {'runAsUser': 1234, 'runAsGroup': 2345, 'runAsNonRoot': True, 'readOnlyRootFilesystem': True,
                                'allowPrivilegeEscalation': False, 'capabilities': {'drop': ['ALL']}},
            'readinessProbe': {'exec': {'command': ['/bin/test', '-e', '/scratch/file']}, 'periodSeconds': 1},
        }, volumes=[{'name': 'settings', 'configMap': {'name': 'settings'}}, {'name': 'key', 'secret': {'secretName': 'key'}},
                    {'name': 'host', 'hostPath': {'path': str(host), 'type': 'Directory'}}, {'name': 'scratch', 'emptyDir': {}}])
        self.ready('full')
        status = self.status('full')
        lines = m.wait_until('the log', lambda: [x for x in [self.varda.kubectl('logs', 'full')] if 'at ' in x])[0].splitlines()
        self.assertEqual(lines, ['hello from the pod fast xyzzy from the host', '1234', '2345', 'read-only root', 'read-only mount', 'kept',
                                'CapEff: 0000000000000000', 'NoNewPrivs: 1', 'at ' + status['podIP']])
        self.assertEqual(self.varda.varda('logs', 'full', '--tail', '1').strip(), lines[-1])
        spec = json.loads(self.containerd.ctr('containers', 'info', self.container_id('full')).stdout)['Spec']['linux']
        self.assertEqual(spec['resources']['memory']['limit'], 64 << 20)
        cpu = spec['resources']['cpu']
        self.assertEqual((cpu['quota'], cpu['period'], cpu['shares']), (50000, 100000, 512))
        self.assertEqual(os.path.dirname(spec['cgroupsPath']), '/varda')

    def test_root_in_a_container_cannot_change_the_host(self):
        pattern = pathlib.Path('/proc/sys/kernel/core_pattern').read_text()
        script = '(echo "$(cat /proc/sys/kernel/core_pattern)" > /proc/sys/kernel/core_pattern) 2>/dev/null || echo refused; id -u; id -g; ' + FOREVER
        self.run_pod('root', script, {'securityContext': {'runAsGroup': 2000}})
        self.ready('root')
        m.wait_until('the log', lambda: self.varda.kubectl('logs', 'root').split() == ['refused', '0', '2000'])
        self.assertEqual(pathlib.Path('/proc/sys/kernel/core_pattern').read_text(), pattern)
        spec = json.loads(self.containerd.ctr('containers', 'info', self.container_id('root')).stdout)['Spec']['linux']
        self.assertLessEqual({'/proc/kcore', '/proc/keys', '/proc/timer_list', '/sys/firmware'}, set(spec['maskedPaths']))
        self.assertLessEqual({'/proc/sys', '/proc/sysrq-trigger', '/proc/irq'}, set(spec['readonlyPaths']))

    def test_pod_ends_gracefully_after_containerd_returns(self):
        marks = self.varda.dir / 'asked'
        marks.mkdir()
        self.run_pod('asked', 'trap "echo bye > /marks/bye; exit 0" TERM; while :; do sleep 0.1; done',
                     {'volumeMounts': [{'name': 'marks', 'mountPath': '/marks'}]}, terminationGracePeriodSeconds=60,
                     volumes=[{'name': 'marks', 'hostPath': {'path': str(marks)}}])
        self.ready('asked')
        self.addCleanup(self.start_containerd)
        self.containerd.stop()
        self.varda.kubectl('delete', 'pod', 'asked', '--wait=false')
        log = self.varda.dir / 'nodes/edge0/agent.log'
        m.wait_until('it was tried', lambda: 'a container cannot be ended yet' in log.read_text())
        self.containerd.start()
        m.wait_until('the pod is gone', lambda: 'pod/asked' not in self.varda.kubectl('get', 'pods', '-o', 'name').split())
        self.assertEqual((marks / 'bye').read_text(), 'bye\n')

    def test_killed_container_restarts_and_keeps_its_log(self):
        self.run_pod('restarts', 'echo I run; ' + FOREVER)
        self.ready('restarts')
        os.kill(self.pid('restarts'), signal.SIGKILL)
        m.wait_until('a second run', lambda: self.container('restarts')['restartCount'] == 1 and self.container('restarts')['ready'])
        self.assertEqual(self.container('restarts')['lastState']['terminated']['exitCode'], 137)
        m.wait_until('its log', lambda: 'I run' in self.varda.kubectl('logs', 'restarts'))
        self.assertIn('I run', self.varda.kubectl('logs', 'restarts', '--previous'))

    def test_deleted_pod_ends_gracefully_and_leaves_no_files(self):
        marks = self.varda.dir / 'marks'
        marks.mkdir()
        self.run_pod('leaves', 'trap "echo bye > /marks/bye; exit 0" TERM; while :; do sleep 0.1; done',
                     {'volumeMounts': [{'name': 'marks', 'mountPath': '/marks'}]}, terminationGracePeriodSeconds=60,
                     volumes=[{'name': 'marks', 'hostPath': {'path': str(marks)}}])
        self.ready('leaves')
        self.assertEqual(len(self.of_pod('leaves')), 2)
        self.varda.kubectl('delete', 'pod', 'leaves')
        self.assertEqual((marks / 'bye').read_text(), 'bye\n')
        self.assertEqual(self.of_pod('leaves'), [])
        self.assertEqual(list(self.varda.dir.glob('nodes/edge0/data/pods/default_leaves_*')), [])

    def test_finished_pod_reports_its_end_and_keeps_only_its_log(self):
        self.run_pod('job', 'echo working; echo no luck > /dev/termination-log; exit 3', restartPolicy='Never')
        m.wait_until('the end', lambda: self.status('job')['phase'] == 'Failed')
        ended = self.container('job')['state']['terminated']
        self.assertEqual((ended['exitCode'], ended['reason'], ended['message']), (3, 'Error', 'no luck\n'))
        m.wait_until('nothing in containerd', lambda: self.of_pod('job') == [])
        self.assertEqual(self.varda.kubectl('logs', 'job'), 'working\n')

    def test_killed_runner_adopts_its_containers(self):
        self.run_pod('stays')
        self.run_pod('ends', 'while ! test -e /gate/open; do sleep 0.05; done; exit 5', {'volumeMounts': [{'name': 'gate', 'mountPath': '/gate'}]},
                     restartPolicy='Never', volumes=[{'name': 'gate', 'hostPath': {'path': str(self.varda.dir), 'type': 'Directory'}}])
        self.ready('stays')
        self.ready('ends')
        pid = self.pid('stays')
        ending = self.container_id('ends')
        agent = self.agent()
        # the stopped agent lives, so no new agent starts before the kill
        os.kill(agent, signal.SIGSTOP)
        (self.varda.dir / 'open').touch()
        m.wait_until('the end of the task', lambda: ending not in self.containerd.tasks())
        os.kill(agent, signal.SIGKILL)
        m.wait_until('the end is reported', lambda: self.status('ends')['phase'] == 'Failed')
        self.assertEqual(self.container('ends')['state']['terminated']['exitCode'], 5)
        self.assertEqual(self.container('stays')['restartCount'], 0)
        self.assertEqual(self.pid('stays'), pid)
        self.assertEqual(len(self.of_pod('stays')), 2)
        self.varda.kubectl('delete', 'pod', 'stays')
        self.assertEqual(self.of_pod('stays'), [])

    def test_containers_keep_running_while_containerd_is_down(self):
        self.run_pod('lives')
        self.ready('lives')
        pid = self.pid('lives')
        self.addCleanup(self.start_containerd)
        self.containerd.stop()
        self.run_pod('waits')
        m.wait_until('it says why', lambda: 'cannot connect' in json.dumps(self.container('waits')['state'].get('waiting', {})))
        os.kill(pid, 0)
        self.containerd.start()
        self.ready('waits')
        self.assertEqual(self.pid('lives'), pid)
        self.assertEqual(self.container('lives')['restartCount'], 0)
        os.kill(pid, signal.SIGKILL)
        m.wait_until('a second run', lambda: self.container('lives')['restartCount'] == 1 and self.container('lives')['ready'])

    def test_killed_sandbox_is_created_again(self):
        self.run_pod('housed')
        self.ready('housed')
        running = self.containerd.tasks()
        sandbox = [c for c in self.of_pod('housed') if self.containerd.labels(c).get('io.cri-containerd.kind') == 'sandbox'][0]
        os.kill(running[sandbox], signal.SIGKILL)
        m.wait_until('no sandbox', lambda: sandbox not in self.containerd.tasks())
        os.kill(self.pid('housed'), signal.SIGKILL)
        m.wait_until('another', lambda: self.container('housed')['restartCount'] == 1 and self.container('housed')['ready'])
        self.assertEqual(len(self.of_pod('housed')), 2)
        self.assertNotIn(sandbox, self.of_pod('housed'))

    def test_error_for_a_missing_image_explains_the_import(self):
        name = 'imported-%s' % uuid.uuid4().hex[:8]
        self.run_pod('late', container={'image': name})
        waiting = m.wait_until('it says so', lambda: self.container('late')['state'].get('waiting', {}).get('message') and
                               self.container('late')['state']['waiting'])
        self.assertEqual(waiting['reason'], 'ErrImageNeverPull')
        for words in 'docker.io/library/%s:latest' % name, 'images import', self.containerd.socket:
            self.assertIn(words, waiting['message'])
        self.assertEqual(self.of_pod('late'), [])
        self.containerd.import_image('docker.io/library/%s:latest' % name, PROGRAMS, Entrypoint=['/bin/sh', '-c'])
        self.ready('late')

    def test_pod_without_host_network_has_its_cni_address(self):
        if not self.bridged:
            self.skipTest('there are no CNI plug-ins, or no bridges')
        self.run_pod('netted', 'hostname; ls /sys/class/net; echo at $POD_IP; ' + FOREVER, hostNetwork=False, hostname='inside')
        self.ready('netted')
        ip = self.status('netted')['podIP']
        self.assertTrue(ip.startswith(self.subnet + '.'), ip)
        m.wait_until('the log', lambda: self.varda.kubectl('logs', 'netted').split() == ['inside', 'eth0', 'lo', 'at', ip])

    def test_z_down_ends_all_containers_and_up_restarts_them(self):
        self.run_pod('resumes')
        self.ready('resumes')
        self.varda.down()
        self.assertEqual(self.containerd.containers(), [])
        self.varda.up()  # `varda up` has stored the driver and the socket
        m.wait_until('it runs again', lambda: self.container('resumes')['restartCount'] == 1 and self.container('resumes')['ready'])
        self.assertEqual(len(self.of_pod('resumes')), 2)
        self.up_again('--pod-network', 'node')
        self.run_pod('beside', 'echo at $POD_IP; readlink /proc/self/ns/net; ' + FOREVER, hostNetwork=False)
        self.ready('beside')
        ip = self.status('beside')['podIP']
        self.assertTrue(ip.startswith('127.'), ip)
        m.wait_until('the log', lambda: self.varda.kubectl('logs', 'beside').split() == ['at', ip, os.readlink('/proc/self/ns/net')])
        self.varda.kubectl('delete', 'pod', 'beside')
        self.up_again('--driver', 'process', '--image', 'tool=/bin/sh -c')
        m.wait_until('it is a process', lambda: self.container('resumes')['containerID'].startswith('process://') and
                     self.container('resumes')['ready'])
        self.assertEqual(self.containerd.containers(), [])


if __name__ == '__main__':
    unittest.main()
