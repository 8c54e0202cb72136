"""Deployments, DaemonSets and Jobs on one machine, with every installed kubectl and real
processes."""
import glob, json, os, pathlib, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

FOREVER = ['sh', '-c', 'trap "exit 0" TERM; while :; do sleep 0.1; done']


def newest_kubectl():
    found = glob.glob('/usr/lib/google-cloud-sdk/bin/kubectl.1.*')
    return max(found, key=lambda path: int(path.rsplit('.', 1)[1])) if found else m.KUBECTL


def pods(labels, command, **spec):
    container = {'name': 'c', 'image': 'tool', 'command': command}
    return {'metadata': {'labels': labels}, 'spec': dict({'containers': [container], 'terminationGracePeriodSeconds': 2}, **spec)}


class Workloads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.varda = m.Machine()
        cls.addClassCleanup(cls.varda.close)
        cls.varda.up('--image', 'tool=/bin/sh')
        cls.varda.nodes_ready()  # a DaemonSet without known nodes counts as rolled out

    def kubectl(self, *args, **kw):
        """Runs the newest kubectl; returns its output."""
        return self.varda.run([newest_kubectl(), '--cache-dir', str(self.varda.dir / 'new-cache'), *args], **kw)

    def apply(self, api, kind, name, **spec):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': api, 'kind': kind, 'metadata': {'name': name}, 'spec': spec}))

    def deployment(self, name, replicas):
        self.apply('apps/v1', 'Deployment', name, replicas=replicas, selector={'matchLabels': {'app': name}},
                   strategy={'rollingUpdate': {'maxSurge': 1, 'maxUnavailable': 0}}, template=pods({'app': name}, FOREVER))

    def sets(self, name):
        """{revision: wanted replicas} of a Deployment's ReplicaSets."""
        return {s['metadata']['annotations']['deployment.kubernetes.io/revision']: s['spec']['replicas']
                for s in self.varda.get('rs', '-l', 'app=' + name)['items']}

    def env(self, name):
        return {p['spec']['containers'][0].get('env', [{'value': ''}])[0]['value'] for p in self.varda.pods('app=' + name)
                if 'deletionTimestamp' not in p['metadata']}

    def test_deployment_rolls_out_and_back_with_both_kubectls(self):
        self.deployment('web', 2)
        for kubectl in self.varda.kubectl, self.kubectl:
            self.assertIn('successfully rolled out', kubectl('rollout', 'status', 'deployment/web', '--timeout=%ds' % m.seconds(180)))
        self.kubectl('set', 'env', 'deployment/web', 'A=two')
        self.varda.kubectl('annotate', 'deployment/web', 'kubernetes.io/change-cause=second')
        self.assertIn('successfully rolled out', self.kubectl('rollout', 'status', 'deployment/web', '--timeout=%ds' % m.seconds(180)))
        self.assertEqual(self.env('web'), {'two'})
        m.wait_until('both revisions', lambda: self.sets('web') == {'1': 0, '2': 2})
        m.wait_until('the cause', lambda: 'second' in self.varda.kubectl('rollout', 'history', 'deployment/web'))
        self.kubectl('rollout', 'undo', 'deployment/web')
        self.varda.kubectl('rollout', 'status', 'deployment/web', '--timeout=%ds' % m.seconds(180))
        self.assertEqual(self.env('web'), {''})
        m.wait_until('the old one as the third', lambda: self.sets('web') == {'2': 0, '3': 2})
        shown = self.varda.kubectl('describe', 'deployment/web')
        for words in 'NewReplicaSetAvailable', 'MinimumReplicasAvailable', 'NewReplicaSet:', 'Scaled up replica set web-':
            self.assertIn(words, shown)

    def test_deployment_pauses_resumes_restarts_and_restores_its_scale(self):
        self.deployment('idle', 1)
        self.varda.kubectl('rollout', 'status', 'deployment/idle', '--timeout=%ds' % m.seconds(180))
        self.varda.kubectl('rollout', 'pause', 'deployment/idle')
        self.varda.kubectl('set', 'env', 'deployment/idle', 'A=later')

        def paused():
            d = self.varda.get('deployment', 'idle')
            reasons = {c['reason'] for c in d['status']['conditions']}
            return 'DeploymentPaused' in reasons and d['status']['observedGeneration'] == d['metadata']['generation']
        m.wait_until('paused', paused)
        self.assertEqual(self.sets('idle'), {'1': 1})
        self.varda.kubectl('rollout', 'resume', 'deployment/idle')
        self.varda.kubectl('rollout', 'status', 'deployment/idle', '--timeout=%ds' % m.seconds(180))
        self.assertEqual(self.env('idle'), {'later'})
        self.varda.kubectl('rollout', 'restart', 'deployment/idle')
        self.varda.kubectl('rollout', 'status', 'deployment/idle', '--timeout=%ds' % m.seconds(180))
        m.wait_until('three revisions', lambda: self.sets('idle') == {'1': 0, '2': 0, '3': 1})
        name = next(s['metadata']['name'] for s in self.varda.get('rs', '-l', 'app=idle')['items'] if s['spec']['replicas'])
        self.varda.kubectl('scale', 'rs/' + name, '--replicas=3')
        m.wait_until('scaled back', lambda: self.sets('idle')['3'] == 1 and len(self.varda.pods('app=idle')) == 1)

    def test_daemonset_has_a_pod_on_every_node_and_rolls_out(self):
        self.apply('apps/v1', 'DaemonSet', 'd', selector={'matchLabels': {'app': 'd'}}, template=pods({'app': 'd'}, FOREVER))
        self.assertIn('successfully rolled out', self.kubectl('rollout', 'status', 'ds/d', '--timeout=%ds' % m.seconds(180)))

        def living():
            return [p for p in self.varda.pods('app=d') if 'deletionTimestamp' not in p['metadata']]

        def places():
            return sorted(p['spec'].get('nodeName', '') for p in living())
        self.assertEqual(places(), ['cloud', 'edge0'])
        before = {p['metadata']['uid'] for p in living()}
        self.kubectl('rollout', 'restart', 'ds/d')
        self.assertIn('successfully rolled out', self.varda.kubectl('rollout', 'status', 'ds/d', '--timeout=%ds' % m.seconds(180)))
        self.assertFalse(before & {p['metadata']['uid'] for p in living()})
        self.varda.kubectl('label', 'node', 'edge0', 'where=far')
        self.varda.kubectl('patch', 'ds', 'd', '-p', json.dumps({'spec': {'template': {'spec': {'nodeSelector': {'where': 'far'}}}}}))
        m.wait_until('only the far one', lambda: places() == ['edge0'])
        self.varda.kubectl('label', 'node', 'edge0', 'where-')
        m.wait_until('none', lambda: places() == [])

    def revisions(self, name):
        """{number: value of the variable A} of a DaemonSet's ControllerRevisions."""
        return {r['revision']: r['data']['spec']['template']['spec']['containers'][0].get('env', [{'value': ''}])[0]['value']
                for r in self.varda.get('controllerrevisions', '-l', 'app=' + name)['items']}

    def test_daemonset_history_and_rollbacks_with_both_kubectls(self):
        # Two former templates are kept besides the current one. After a roll-out only the current
        # one has pods.
        self.apply('apps/v1', 'DaemonSet', 'h', selector={'matchLabels': {'app': 'h'}}, revisionHistoryLimit=2,
                   template=pods({'app': 'h'}, FOREVER))

        def rolled(kubectl):
            self.assertIn('successfully rolled out', kubectl('rollout', 'status', 'ds/h', '--timeout=%ds' % m.seconds(120)))
        rolled(self.kubectl)
        for kubectl, value in (self.varda.kubectl, 'two'), (self.kubectl, 'three'):
            kubectl('annotate', '--overwrite', 'ds/h', 'kubernetes.io/change-cause=to ' + value)
            kubectl('set', 'env', 'ds/h', 'A=' + value)
            rolled(kubectl)
            self.assertEqual(self.env('h'), {value})
        self.assertEqual(self.revisions('h'), {1: '', 2: 'two', 3: 'three'})
        for kubectl in self.varda.kubectl, self.kubectl:
            lines = [line.split(None, 1) for line in kubectl('rollout', 'history', 'ds/h').splitlines()]
            self.assertEqual([line for line in lines if line and line[0].isdigit()], [['1', '<none>'], ['2', 'to two'], ['3', 'to three']])
            self.assertRegex(kubectl('rollout', 'history', 'ds/h', '--revision=2'), r'A:\s+two')
        # Undo goes to the previous revision, to a number, and to a revision that is no longer kept.
        self.varda.kubectl('rollout', 'undo', 'ds/h')
        rolled(self.varda.kubectl)
        self.assertEqual((self.env('h'), self.revisions('h')), ({'two'}, {1: '', 3: 'three', 4: 'two'}))
        self.kubectl('rollout', 'undo', 'ds/h', '--to-revision=1')
        rolled(self.kubectl)
        self.assertEqual((self.env('h'), self.revisions('h')), ({''}, {3: 'three', 4: 'two', 5: ''}))
        self.kubectl('rollout', 'restart', 'ds/h')
        rolled(self.varda.kubectl)
        m.wait_until('the oldest gone', lambda: sorted(self.revisions('h')) == [4, 5, 6])
        for kubectl in self.varda.kubectl, self.kubectl:
            refused = kubectl('rollout', 'undo', 'ds/h', '--to-revision=3', check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn('revision 3', refused.stderr)
        hashes = {r['metadata']['labels']['controller-revision-hash'] for r in self.varda.get('controllerrevisions', '-l', 'app=h')['items']
                  if r['revision'] == 6}
        self.assertEqual({p['metadata']['labels']['controller-revision-hash'] for p in self.varda.pods('app=h')
                          if 'deletionTimestamp' not in p['metadata']}, hashes)
        self.varda.kubectl('delete', 'ds', 'h')
        m.wait_until('its history gone', lambda: not self.revisions('h'))

    def job(self, name, command, **spec):
        more = {'restartPolicy': spec.pop('restartPolicy', 'Never')}
        self.apply('batch/v1', 'Job', name, template=pods({}, command, **more), **spec)

    def test_jobs_end_with_the_expected_status(self):
        self.kubectl('create', 'job', 'hello', '--image=tool', '--', 'sh', '-c', 'echo hello from a job')
        self.job('fails', ['sh', '-c', 'exit 3'], backoffLimit=0)
        self.job('parts', ['sh', '-c', 'echo part $JOB_COMPLETION_INDEX'], completions=4, parallelism=2, completionMode='Indexed')
        self.job('slow', FOREVER, activeDeadlineSeconds=2)
        self.job('short', ['sh', '-c', 'exit 0'], ttlSecondsAfterFinished=1)
        self.job('later', ['sh', '-c', 'echo at last'], suspend=True)
        self.varda.kubectl('wait', '--for=condition=complete', 'job/hello', '--timeout=%ds' % m.seconds(180))
        self.assertEqual(self.kubectl('logs', 'job/hello'), 'hello from a job\n')
        self.varda.kubectl('wait', '--for=condition=failed', 'job/fails', '--timeout=%ds' % m.seconds(180))
        failed = self.varda.get('job', 'fails')['status']
        self.assertEqual((failed['failed'], failed['conditions'][-1]['reason']), (1, 'BackoffLimitExceeded'))
        self.kubectl('wait', '--for=condition=complete', 'job/parts', '--timeout=%ds' % m.seconds(180))
        self.assertEqual(self.varda.get('job', 'parts')['status']['completedIndexes'], '0-3')
        said = sorted(self.varda.kubectl('logs', p['metadata']['name']) for p in self.varda.pods('job-name=parts'))
        self.assertEqual(said, ['part %d\n' % i for i in range(4)])
        self.kubectl('wait', '--for=condition=failed', 'job/slow', '--timeout=%ds' % m.seconds(180))
        self.assertEqual(self.varda.get('job', 'slow')['status']['conditions'][-1]['reason'], 'DeadlineExceeded')
        self.assertFalse(self.varda.pods('job-name=later'))
        self.kubectl('patch', 'job', 'later', '-p', '{"spec": {"suspend": false}}')
        self.varda.kubectl('wait', '--for=condition=complete', 'job/later', '--timeout=%ds' % m.seconds(180))
        m.wait_until('its time to live over', lambda: 'short' not in [j['metadata']['name'] for j in self.varda.get('jobs')['items']])
        self.varda.kubectl('delete', 'job', 'hello', 'parts')
        m.wait_until('their pods gone', lambda: not self.varda.pods('job-name in (hello, parts, short)'))

    def test_orphaned_pods_of_a_deleted_job_can_be_deleted(self):
        self.job('left', FOREVER)
        m.wait_until('its pod', lambda: self.varda.pods('job-name=left'))
        self.kubectl('delete', 'job', 'left', '--cascade=orphan')
        self.assertEqual(len(self.varda.pods('job-name=left')), 1)
        self.varda.varda('delete', 'pods', '-l', 'job-name=left')
        self.job('gone', FOREVER)
        m.wait_until('its pod', lambda: self.varda.pods('job-name=gone'))
        self.varda.varda('delete', 'job', 'gone')
        m.wait_until('no pod', lambda: not self.varda.pods('job-name=gone'))

    def pod(self, name, image, script, **security):
        container = {'name': 'c', 'image': image, 'command': ['sh', '-c', script], 'securityContext': security}
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({
            'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name}, 'spec': {'restartPolicy': 'Never', 'containers': [container]}}))

    def test_processes_follow_their_spec_and_see_no_credentials(self):
        tokens = self.varda.dir / 'tokens.json'
        self.assertTrue(tokens.exists())
        self.pod('curious', 'tool', 'cat %s; ls -A %s; id -u; echo > note && echo wrote' % (tokens, self.varda.dir))
        self.pod('own', 'varda', 'id -u; cat %s; grep CapEff /proc/self/status' % tokens, runAsNonRoot=True)
        self.pod('numbered', 'tool', 'id -u; touch /var/tmp/varda-x', runAsUser=4711, readOnlyRootFilesystem=True)
        self.pod('refused', 'tool', 'true', **({'runAsNonRoot': True} if os.geteuid() == 0 else {'privileged': True}))
        for name in 'curious', 'own':
            m.wait_until('the end of ' + name, lambda: self.varda.get('pod', name)['status'].get('phase') == 'Succeeded')
        shown = self.varda.kubectl('logs', 'curious')
        self.assertNotIn('"', shown)
        self.assertTrue(shown.endswith('nodes\n%d\nwrote\n' % os.geteuid()), shown)
        self.assertRegex(self.varda.kubectl('logs', 'own'), r'(?s)^%d\n.*CapEff:\s+0+\n$' % (os.geteuid() or 65532))
        m.wait_until('its end', lambda: self.varda.get('pod', 'numbered')['status'].get('phase') == 'Failed')
        self.assertRegex(self.varda.kubectl('logs', 'numbered'), r'(?s)^4711\n.*Read-only file system')

        def waits():
            states = self.varda.get('pod', 'refused')['status'].get('containerStatuses', [])
            return states and states[0]['state'].get('waiting', {}).get('reason') == 'CreateContainerConfigError'
        m.wait_until('the refusal', waits)


if __name__ == '__main__':
    unittest.main()
