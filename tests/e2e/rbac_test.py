"""The roles of deploy/ allow exactly the API requests that operator and gateway make, according to
the API server's audit log."""
import base64, contextlib, json, os, pathlib, secrets, shutil, signal, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'structure'))
import joint as j  # noqa: E402
import machine as m  # noqa: E402
from manifests_test import ROOT, by_identity  # noqa: E402

NAMESPACE = {'operator': 'varda-operator', 'gateway': 'varda-system'}
OPERATOR, GATEWAY = ('system:serviceaccount:%s:varda-%s' % (NAMESPACE[name], name) for name in ('operator', 'gateway'))

# Rights that a run may leave unused, and their purpose.
KEPT = {
    ('varda-operator', 'update', 'ai.kubeedge.io', 'inferencemodels/finalizers'): 'clusters that guard blockOwnerDeletion ask for it',
    ('varda-operator', 'update', 'sedna.io', 'jointinferenceservices/finalizers'): 'as above',
    ('varda-operator', 'update', 'ai.kubeedge.io', 'trainingmodels/finalizers'): 'as above',
    ('varda-operator', 'update', 'sedna.io', 'federatedlearningjobs/finalizers'): 'as above',
    ('varda-operator', 'update', 'sedna.io', 'incrementallearningjobs/finalizers'): 'as above',
}
# Rights used after a conflict, a lost race or hours. Their calls share the code of the other calls.
RARE = {
    ('varda-operator', 'get', 'ai.kubeedge.io', 'inferencemodels'): 'a status is read again after a conflict',
    ('varda-operator', 'get', 'edgeai.io', 'datasets'): 'as above', ('varda-operator', 'get', 'sedna.io', 'datasets'): 'as above',
    ('varda-operator', 'get', 'edgeai.io', 'models'): 'as above', ('varda-operator', 'get', 'sedna.io', 'models'): 'as above',
    ('varda-operator', 'get', 'sedna.io', 'jointinferenceservices'): 'as above',
    ('varda-operator', 'get', 'ai.kubeedge.io', 'trainingmodels'): 'as above',
    ('varda-operator', 'get', 'sedna.io', 'federatedlearningjobs'): 'as above',
    ('varda-operator', 'get', 'sedna.io', 'incrementallearningjobs'): 'as above',
    ('varda-operator', 'get', 'batch', 'jobs'): 'as above',
    ('varda-operator', 'get', '', 'pods'): 'a child is read again after a conflict', ('varda-operator', 'get', '', 'services'): 'as above',
    ('varda-operator', 'get', 'apps', 'deployments'): 'as above', ('varda-operator-nodes', 'get', 'edgeai.io', 'edgenodes'): 'as above',
    **{('varda-operator', verb, 'autoscaling', 'horizontalpodautoscalers'): 'the embedded server has none to watch or write'
       for verb in ('get', 'watch', 'create', 'update', 'delete')},
    ('varda-operator', 'patch', '', 'events'): 'an event that repeats is counted, after it was written once',
    ('varda-operator', 'update', '', 'pods'): 'labels of a pod change in its place, as after an upgrade; any other change makes a new pod',
    ('varda-operator/varda-operator', 'patch', '', 'events'): 'as above',
    ('varda-edge/varda-gateway', 'update', '', 'secrets'): 'a token of a former authority is replaced',
    ('varda-system/varda-gateway', 'delete', '', 'secrets'): 'join tokens go a day after they expired',
    ('varda-system/varda-gateway', 'update', '', 'configmaps'): 'the authority is published again when another, ended one stands there',
    ('varda-runner-nodes', 'patch', '', 'nodes'): 'a Node that lost the labels or the taint of its layer gets them again',
    ('varda-gateway', 'get', '', 'events'): 'an agent counts an event that repeats', ('varda-gateway', 'patch', '', 'events'): 'as above',
}


class Rights:
    """The roles of the rendered file, and their bindings."""

    def __init__(self, objects):
        self.roles = {key: one['rules'] for key, one in objects.items() if key[0] in ('Role', 'ClusterRole')}
        self.bound = []  # (user, namespace or None for all, ClusterRole or NAMESPACE/Role, rules)
        for key, one in objects.items():
            if key[0] in ('RoleBinding', 'ClusterRoleBinding'):
                ref = one['roleRef']
                for subject in one['subjects']:
                    self.bind('system:serviceaccount:%s:%s' % (subject['namespace'], subject['name']), ref['name'],
                              key[1] if key[0] == 'RoleBinding' else None, ref['kind'])

    def bind(self, user, role, namespace, kind='ClusterRole'):
        rules = self.roles[kind, namespace if kind == 'Role' else '', role]
        self.bound.append((user, namespace, '%s/%s' % (namespace, role) if kind == 'Role' else role, rules))

    def uses(self, user, verb, group, resource, namespace, name):
        """Every (role, verb, group, resource) that allows the request."""
        for subject, where, role, rules in self.bound:
            if subject != user or (where is not None and where != namespace):
                continue
            for rule in rules:
                # The authoriser sees no name in a create.
                named = 'resourceNames' not in rule or (name in rule['resourceNames'] and verb != 'create')
                if verb in rule['verbs'] and group in rule['apiGroups'] and resource in rule['resources'] and named:
                    yield role, verb, group, resource

    def all(self):
        return {(role, verb, group, resource) for _, _, role, rules in self.bound for rule in rules
                for verb in rule['verbs'] for group in rule['apiGroups'] for resource in rule['resources']}


class Rbac(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        self.processes, self.files, self.passed = [], None, False
        self.addCleanup(self.clean_up)
        self.data, self.audit = self.work / 'api', self.work / 'audit.jsonl'
        self.data.mkdir()
        # The embedded server has no roles. Both users may do everything, and the audit log names
        # the user.
        tokens = {user: secrets.token_hex(16) for user in (OPERATOR, GATEWAY)}
        (self.data / 'tokens.json').write_text(json.dumps([{'user': user, 'token': token, 'groups': ['system:masters']}
                                                           for user, token in tokens.items()]))
        self.start('api', m.VARDA, 'apiserver', '--data-dir', self.data, '--listen', '127.0.0.1:0', '--audit-log', self.audit)
        self.cluster = m.Machine(self.data)
        m.wait_until('the API server', lambda: pathlib.Path(self.cluster.kubeconfig).exists() and self.cluster.get('namespaces'))
        config = pathlib.Path(self.cluster.kubeconfig).read_text()
        admin = next(line for line in config.splitlines() if line.strip().startswith('token:'))
        for user, token in tokens.items():
            path = self.work / user.rsplit('-', 1)[1]
            path.write_text(config.replace(admin, admin.split('token:')[0] + 'token: ' + token))

        self.deploy = by_identity((ROOT / 'deploy/varda.yaml').read_text())
        known = [one for key, one in self.deploy.items() if key[0] in ('Namespace', 'CustomResourceDefinition', 'ServiceAccount', 'ConfigMap')]
        self.apply(*known)

    def clean_up(self):
        for process, _ in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process, _ in self.processes:
            try:
                process.wait(m.seconds(60))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if not self.passed:
            for _, log in self.processes:
                print('--- last lines of %s' % log, *log.read_text(errors='replace').splitlines()[-30:], sep='\n', file=sys.stderr)
        if self.files:
            self.files.stop()
        for pid in m.processes_below(self.work):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.work, ignore_errors=True)

    # ---- processes
    def start(self, name, *command):
        log = self.work / ('%s.log' % name)
        environment = {k: v for k, v in os.environ.items() if k != 'KUBECONFIG'}
        with open(log, 'ab') as out:
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        self.processes.append((process, log))
        return process, log

    def start_deployed(self, name, kind, *more):
        """Starts a container of deploy/varda.yaml with its own arguments, except for the
        addresses."""
        container, = self.deploy['Deployment', NAMESPACE[kind], 'varda-' + kind]['spec']['template']['spec']['containers']
        values = {}
        for env in container.get('env', []):
            ref = env['valueFrom']['configMapKeyRef']
            values[env['name']] = self.deploy['ConfigMap', NAMESPACE[kind], ref['name']]['data'][ref['key']]
        arguments = []
        for argument in container['args']:
            for key, value in values.items():
                argument = argument.replace('$(%s)' % key, value)
            flag, _, value = argument.partition('=')
            argument = argument.replace('/var/run/varda', str(self.work / kind) + '-secrets')
            arguments.append(flag + '=127.0.0.1:0' if flag in ('--admin', '--listen') else argument)
        return self.start(name, m.VARDA, *arguments, '--kubeconfig', self.work / kind, *more)

    def line(self, log, name, text):
        """The value of `name` in the first log line that contains `text`."""
        def found():
            for line in log.read_text(errors='replace').splitlines():
                if text in line and line.startswith('{'):
                    return json.loads(line).get(name)
            return None
        return m.wait_until('"%s" in %s' % (text, log), found)

    def join(self, node, runner, *more, shared=None):
        token = self.work / (node + '.token')
        token.write_text(shared or self.cluster.varda('join-token', '--node', node))
        token.chmod(0o600)
        return self.start(node, m.VARDA, 'agent', *m.LOOPBACK, '--node', node, '--gateway', 'https://' + self.gateway, '--join-token-file', token, '--runner', runner,
                          '--on-stop', 'end', '--watch-seconds', '2', '--data-dir', self.work / node, *more)

    def bind(self, pod, node):
        """Binds the pod like a scheduler; the test runs none."""
        self.cluster.kubectl('create', '--raw', '/api/v1/namespaces/default/pods/%s/binding' % pod, '-f', '-', input=json.dumps(
            {'apiVersion': 'v1', 'kind': 'Binding', 'metadata': {'name': pod}, 'target': {'kind': 'Node', 'name': node}}))

    def join_as_daemon(self, node):
        """Joins as an agent of the DaemonSet, with the gateway's shared token. The Pod is made by
        hand, the rest is as deployed."""
        daemons = self.deploy['DaemonSet', 'varda-edge', 'varda-agent']
        self.apply(daemons, {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': node}})
        owner = self.cluster.get('daemonset', 'varda-agent', '-n', 'varda-edge')['metadata']
        pod = dict(daemons['spec']['template'], apiVersion='v1', kind='Pod')
        pod['metadata'] = dict(pod['metadata'], name='varda-agent-1', namespace='varda-edge', ownerReferences=[
            {'apiVersion': 'apps/v1', 'kind': 'DaemonSet', 'name': owner['name'], 'uid': owner['uid'], 'controller': True}])
        pod['spec'] = dict(pod['spec'], nodeName=node)
        self.apply(pod)
        secret = m.wait_until('the shared token', lambda: self.cluster.get('secret', 'varda-agent-join', '-n', 'varda-edge')['data'])
        self.join(node, 'none', shared=base64.b64decode(secret['token']).decode())

    # ---- the cloud
    def apply(self, *objects):
        text = json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)})
        self.cluster.kubectl('apply', '-f', '-', input=text)

    def condition(self, kind, name, condition):
        for one in self.cluster.get(kind, name).get('status', {}).get('conditions', []):
            if one['type'] == condition:
                return one['status'], one['reason']
        return None

    def model(self, name, layer, target='3', **more):
        versions = [(v, self.files.url('digits-%s.tar.gz' % v), self.digests[v]) for v in ('3', '4')]
        return m.inference_model(name, layer, versions, target, **more)

    def train(self, name, node, version):
        """A run from its start to its end."""
        self.apply({'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'TrainingModel', 'metadata': {'name': name, 'namespace': 'default'},
                    'spec': {'modelName': 'trained', 'nodeName': node, 'image': 'train:1', 'output': {'version': version}}})
        self.finish('trainingmodel', name, node, version)

    def train_in_job(self, name, version):
        """A run without a node, suspended, changed, and brought to its end."""
        spec = {'modelName': 'trained', 'deployToLayer': 'cloud', 'image': 'train:1', 'output': {'version': version}}
        self.apply({'apiVersion': 'ai.kubeedge.io/v1alpha1', 'kind': 'TrainingModel', 'metadata': {'name': name, 'namespace': 'default'}, 'spec': spec})
        job = lambda: self.cluster.get('job', name)['spec']
        image = lambda: job()['template']['spec']['containers'][0]['image']
        patch = lambda change: self.cluster.kubectl('patch', 'trainingmodel', name, '--type=merge', '-p', json.dumps({'spec': change}))
        m.wait_until('its Job', lambda: image() == 'train:1')
        patch({'suspend': True})
        m.wait_until('the suspended Job', lambda: job().get('suspend'))
        patch({'suspend': False, 'image': 'train:2'})
        m.wait_until('another Job', lambda: image() == 'train:2')
        node = self.cluster.get('trainingmodel', name)['status']['node']
        self.finish('trainingmodel', name, node, version)
        m.wait_until('no node is left', lambda: not [n for n in json.loads(self.cluster.kubectl('get', 'edgenodes', '-o', 'json'))['items'] if n['metadata']['name'] == node])

    def federate(self, name, node, version):
        """A federated job from its start to its end, with a Model of Sedna's group."""
        pod = {'containers': [{'image': 'train:1'}]}
        self.apply({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'FederatedLearningJob', 'metadata': {'name': name, 'namespace': 'default'},
                    'spec': {'aggregationWorker': {'model': {'name': 'shared', 'group': 'sedna.io'}, 'nodeName': node, 'workerSpec': pod},
                             'trainingWorkers': [{'nodeName': node, 'workerSpec': pod}]}})
        self.finish('federatedlearningjob', name, node, version)

    def learn(self, name, node):
        """The service of an incremental job, from its start to its end."""
        self.apply({'apiVersion': 'sedna.io/v1alpha1', 'kind': 'IncrementalLearningJob', 'metadata': {'name': name, 'namespace': 'default'},
                    'spec': {'nodeName': node, 'dataset': {'name': 'train', 'group': 'edgeai.io'}, 'initialModel': {'name': 'small'},
                             'trainSpec': {'trigger': {'manual': True}}, 'evalSpec': {}, 'deploySpec': {'model': {'name': name}, 'servingPort': 18095}}})
        m.wait_until('its InferenceModel', lambda: self.cluster.get('inferencemodel', name)['spec']['nodeName'] == node)
        m.wait_until('its status', lambda: self.condition('incrementallearningjob', name, 'Train'))
        self.cluster.kubectl('delete', 'incrementallearningjob', name)

    def finish(self, kind, name, node, version):
        """The node reports the result of a run."""
        m.wait_until('its worker', lambda: [w for w in self.cluster.get('edgenode', node)['spec'].get('workers', []) if w['owner'].endswith(name)])
        path = '/apis/edgeai.io/v1alpha1/edgenodes/' + node

        def reported():
            live = json.loads(self.cluster.kubectl('get', '--raw', path))
            worker = [w for w in live['spec']['workers'] if w['owner'].endswith(name) and 'uploads' in w][0]
            live.setdefault('status', {})['workers'] = [{'key': worker['key'], 'uid': worker['uid'], 'report': {
                'artifacts': {'model': {'sha256': version * 64, 'bytes': 9, 'sent': 9, 'state': 'Uploaded'}},
                'results': {'final': {'data': {'artifact': 'model', 'metrics': {'accuracy': 0.9}}}}}}]
            return self.cluster.kubectl('replace', '--raw', path + '/status', '-f', '-', input=json.dumps(live), check=False).returncode == 0
        m.wait_until('the report written', reported)
        m.wait_until('its end', lambda: self.condition(kind, name, 'Complete') == ('True', 'Trained'))
        self.cluster.kubectl('delete', kind, name)

    def exercise(self):
        """Does every task of a user, each to its end."""
        served = self.work / 'served'
        served.mkdir()
        self.files = m.FileServer(served)
        self.digests = {v: m.pack(self.cluster, v, served / ('digits-%s.tar.gz' % v)) for v in ('3', '4')}
        (self.work / 'train.csv').write_text('name,age\nAnn,3\n')

        secret = self.work / 'operator-secrets' / 'registry'  # the registry itself does not answer
        secret.mkdir(parents=True)
        (secret / 'token').write_text('token')
        first, log = self.start_deployed('operator-1', 'operator', '--registry', 'http://127.0.0.1:1')
        _, gateway_log = self.start_deployed('gateway-1', 'gateway')
        self.gateway = self.line(gateway_log, 'gateway', 'gateway listens for nodes')
        m.wait_until('the authority published', lambda: self.cluster.get('configmap', 'varda-gateway', '-n', 'varda-system'))
        self.join('line7', 'process', '--dataset-root', self.work, '--image', 'varda-serve=' + str(m.BIN / 'varda-serve'))
        self.join('line8', 'none')
        self.join_as_daemon('line9')
        for node in ('line7', 'line8', 'line9'):
            m.wait_until(node + ' connected', lambda: self.condition('edgenode', node, 'Connected') == ('True', 'AgentConnected'))

        # A model at the edge with a Secret. Another version stays in the same pod, another port
        # makes a new pod.
        self.cluster.kubectl('label', 'namespace', 'default', 'edgeai.io/edge-secrets=allow')
        self.cluster.kubectl('create', 'secret', 'generic', 'store', '--from-literal=username=ann', '--from-literal=password=x',
                             '--from-literal=hosts=127.0.0.1')
        edge = self.model('digits', 'edge', node='line7', port=18080)
        for entry in edge['spec']['manifest']:
            entry['credentials'] = {'secretName': 'store'}
        self.apply(edge)
        m.wait_until('the pod of digits', lambda: self.cluster.get('pod', 'digits'))
        self.bind('digits', 'line7')
        self.cluster.ready('digits', '3')
        self.cluster.kubectl('patch', 'inferencemodel', 'digits', '--type', 'merge', '-p', '{"spec": {"targetVersion": "4"}}')
        self.cluster.ready('digits', '4')
        before = self.cluster.get('pod', 'digits')['metadata']['uid']
        self.cluster.kubectl('patch', 'inferencemodel', 'digits', '--type', 'merge', '-p', '{"spec": {"servingPort": 18090}}')
        m.wait_until('the next pod', lambda: self.cluster.get('pod', 'digits')['metadata']['uid'] != before)
        self.bind('digits', 'line7')
        self.cluster.ready('digits', '4')

        # A model in the cloud layer: a Deployment and a Service are changed and deleted.
        self.apply(self.model('cloud', 'cloud', port=18081))
        m.wait_until('its Deployment', lambda: self.cluster.get('deployment', 'cloud') and self.cluster.get('service', 'cloud'))
        self.apply(self.model('cloud', 'cloud', target='4', port=18082, replicas=2))
        m.wait_until('the change in both', lambda: self.cluster.get('deployment', 'cloud')['spec']['replicas'] == 2
                     and self.cluster.get('service', 'cloud')['spec']['ports'][0]['port'] == 18082)
        # The model moves to the edge. Its cloud objects are deleted.
        self.cluster.kubectl('patch', 'inferencemodel', 'cloud', '--type', 'merge', '-p',
                             '{"spec": {"deployToLayer": "edge", "nodeName": "line8", "replicas": 1}}')
        m.wait_until('the Deployment gone', lambda: not self.cluster.get('deployments')['items'] and not self.cluster.get('services', '-l', 'edgeai.io/model')['items'])
        self.cluster.kubectl('delete', 'inferencemodel', 'cloud')

        # Closed by a certificate of the operator's, which follows the names of the model.
        self.apply(self.model('closed', 'cloud', port=18084, security={'tls': True}))

        def certificate():
            return self.cluster.get('secret', 'closed-tls')['data']['tls.crt']
        issued = m.wait_until('its certificate', certificate)
        self.cluster.kubectl('patch', 'inferencemodel', 'closed', '--type', 'merge', '-p', '{"spec": {"deployToLayer": "edge", "nodeName": "line8"}}')
        m.wait_until('the next certificate', lambda: certificate() != issued)
        self.cluster.kubectl('delete', 'inferencemodel', 'closed')

        # Datasets and Models of both groups.
        for group in ('edgeai.io', 'sedna.io'):
            url = 'dataUrl' if group == 'edgeai.io' else 'url'
            self.apply({'apiVersion': group + '/v1alpha1', 'kind': 'Dataset', 'metadata': {'name': 'train', 'namespace': 'default'},
                        'spec': {url: str(self.work / 'train.csv'), 'format': 'csv', 'nodeName': 'line7'}})
            url = 'modelUrl' if group == 'edgeai.io' else 'url'
            self.apply({'apiVersion': group + '/v1alpha1', 'kind': 'Model', 'metadata': {'name': 'ages', 'namespace': 'default'},
                        'spec': {url: self.files.url('digits-3.tar.gz'), 'format': 'onnx'}})
            m.wait_until('%s: the count' % group, lambda: self.cluster.get('datasets.' + group, 'train').get('status', {}).get('numberOfSamples') == 1)
            m.wait_until('%s: the Model seen' % group, lambda: self.cluster.get('models.' + group, 'ages').get('status', {}).get('conditions'))

        # A service of two tiers: the InferenceModel of the cloud tier is created, changed and
        # deleted.
        spec = {'edgeWorker': {'model': {'name': 'small'}, 'nodeName': 'line8'}, 'cloudWorker': {'model': {'name': 'big'}}}
        self.apply(*(j.model(name, self.files.url('digits-3.tar.gz'), self.digests['3']) for name in ('small', 'big')),
                   {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'JointInferenceService', 'metadata': {'name': 'joint'}, 'spec': spec})
        m.wait_until('its InferenceModel', lambda: self.cluster.get('inferencemodel', 'joint-cloud'))
        m.wait_until('its status', lambda: self.condition('jointinferenceservice', 'joint', 'CloudReady'))
        self.apply(j.model('big', self.files.url('digits-4.tar.gz'), self.digests['4']))
        m.wait_until('the change', lambda: self.digests['4'].startswith(self.cluster.get('inferencemodel', 'joint-cloud')['spec']['targetVersion']))
        self.cluster.kubectl('patch', 'jointinferenceservice', 'joint', '--type', 'merge', '-p',
                             '{"spec": {"cloudWorker": {"model": {"name": "digits", "kind": "InferenceModel"}}}}')
        m.wait_until('its end', lambda: 'joint-cloud' not in [o['metadata']['name'] for o in self.cluster.get('inferencemodels')['items']])
        self.cluster.kubectl('delete', 'jointinferenceservice', 'joint')

        # A run ends with a new Model, and another one with a new version. No agent runs on the
        # node, and the test writes the report.
        self.apply({'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'line10'}},
                   {'apiVersion': 'edgeai.io/v1alpha1', 'kind': 'EdgeNode', 'metadata': {'name': 'line10'}, 'spec': {}})
        for version in ('5', '6'):
            self.train('ages-' + version, 'line10', version)
            self.federate('all-' + version, 'line10', version)
        self.learn('better', 'line8')
        self.train_in_job('inside', '7')

        # The service is deleted. Events have recorded its life.
        m.wait_until('events', lambda: [e for e in self.cluster.get('events')['items'] if e['source'].get('component') == 'varda-operator'])
        self.cluster.kubectl('delete', 'inferencemodel', 'digits')
        m.wait_until('the pod gone', lambda: not self.cluster.get('pods', '-l', 'edgeai.io/model=digits')['items'])

        # The leader ends. The next leader takes over and reconciles new objects.
        _, log = self.start_deployed('operator-2', 'operator')
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(60), 0)
        self.apply(self.model('later', 'cloud', port=18083))
        m.wait_until('the next leader at work', lambda: self.cluster.get('deployment', 'later'))

    # ---- requests
    def calls(self):
        """{(user, verb, group, resource, namespace, name or ''): status code} for operator and
        gateway."""
        out = {}
        for line in self.audit.read_text().splitlines():
            event = json.loads(line)
            ref, user = event.get('objectRef'), event['user']['username']
            if user not in (OPERATOR, GATEWAY) or ref is None or event['stage'] not in ('ResponseStarted', 'ResponseComplete'):
                continue  # any user may read non-resource paths (/version, /apis)
            resource = ref['resource'] + ('/' + ref['subresource'] if ref.get('subresource') else '')
            out[user, event['verb'], ref.get('apiGroup', ''), resource, ref.get('namespace', ''), ref.get('name', '')] = event['responseStatus']['code']
        return out

    def test_roles_allow_exactly_the_requests_made(self):
        self.exercise()
        for process, _ in self.processes[1:]:
            process.send_signal(signal.SIGTERM)
        for process, _ in self.processes[1:]:
            process.wait(m.seconds(60))
        api, _ = self.processes[0]
        api.send_signal(signal.SIGTERM)  # flushes the audit log
        self.assertEqual(api.wait(60), 0)

        rights = Rights(self.deploy)
        # the guide asks for this binding in a namespace with credentials
        rights.bind(GATEWAY, 'varda-edge-secrets', 'default')
        # and for this one on machines that run pods themselves
        rights.bind(GATEWAY, 'varda-runner-nodes', None)
        # and for this one where the operator issues certificates
        rights.bind(OPERATOR, 'varda-certificates', 'default')
        rights.bind(OPERATOR, 'varda-cloud-jobs', 'default')
        calls, used, missing = self.calls(), set(), set()
        self.assertGreater(len(calls), 30)
        for user, verb, group, resource, namespace, name in calls:
            allowed = set(rights.uses(user, verb, group, resource, namespace, name))
            used |= allowed
            if not allowed:
                missing.add((user.rsplit(':', 1)[1], verb, group, resource, namespace, name))
        self.assertEqual(missing, set(), 'asked for, and no role of deploy/ allows it')
        unused = rights.all() - used
        self.assertEqual(unused - set(KEPT) - set(RARE), set(), 'allowed by a role of deploy/, and never asked for')
        self.assertEqual(set(KEPT) - unused, set(), 'is asked for after all')
        self.assertEqual(set(RARE) - rights.all(), set(), 'no role has it')
        self.passed = True


if __name__ == '__main__':
    unittest.main()
