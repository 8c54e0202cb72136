"""A typical session of kubectl, as data, for every version of kubectl.

tests/e2e/kubectl_test.py runs it against `varda up`, with every installed kubectl. Python 3
standard library only.

Every step has its expectations: the exit code, text in the output (stdout and stderr), and text
that must be absent. {ns} is a namespace of this session. {tag} is unique to the session; names of
objects without a namespace end in it.
"""
import collections, glob, json, os, shlex, subprocess

Step = collections.namedtuple('Step', 'command stdin code has lacks since until editor')


def step(command, *has, stdin=None, code=0, lacks=(), since=(1, 0), until=(1, 99), editor=None):
    """A step; `has` lists texts in the output. `since` and `until`: versions of kubectl that know
    the command."""
    return Step(command, stdin, code, has, (lacks,) if isinstance(lacks, str) else lacks, since, until, editor)


def object_of(api_version, kind, name, **members):
    metadata = {'name': name, **members.pop('metadata', {})}
    return {'apiVersion': api_version, 'kind': kind, 'metadata': metadata, **members}


CONFIG = object_of('v1', 'ConfigMap', 'settings', metadata={'labels': {'tier': 'a'}}, data={'k': 'v'})
CHANGED = dict(CONFIG, data={'k': 'w'})
MISTAKEN = dict(CONFIG, metadata={'name': 'mistaken'}, dada={'k': 'v'})
OTHER = object_of('v1', 'ConfigMap', 'other', metadata={'labels': {'tier': 'a'}}, data={'k': 'v'})
POD_TEMPLATE = {'metadata': {'labels': {'app': 'many'}}, 'spec': {'containers': [
    {'name': 'c', 'image': 'example.com/c:1', 'ports': [{'containerPort': 80}], 'env': [{'name': 'A', 'value': '1'}]}]}}
DAEMON_SET = object_of('apps/v1', 'DaemonSet', 'each', spec={
    'selector': {'matchLabels': {'app': 'many'}}, 'template': dict(POD_TEMPLATE, spec=dict(POD_TEMPLATE['spec'], nodeSelector={'no': 'node'}))})
NODE = object_of('v1', 'Node', 'node-{tag}', metadata={'labels': {'zone': 'x'}})
STRAY = object_of('v1', 'Pod', 'stray', spec={'nodeName': 'node-{tag}', 'terminationGracePeriodSeconds': 0, 'containers': [
    {'name': 'c', 'image': 'example.com/c:1'}]})
WIDGETS = object_of('apiextensions.k8s.io/v1', 'CustomResourceDefinition', 'widgets.{tag}.example.com', spec={
    'group': '{tag}.example.com', 'scope': 'Namespaced', 'names': {'plural': 'widgets', 'kind': 'Widget', 'shortNames': ['wd{tag}']},
    'versions': [{
        'name': 'v1', 'served': True, 'storage': True,
        'subresources': {'status': {}, 'scale': {'specReplicasPath': '.spec.size', 'statusReplicasPath': '.status.size'}},
        'additionalPrinterColumns': [{'name': 'Size', 'type': 'integer', 'jsonPath': '.spec.size'}],
        'schema': {'openAPIV3Schema': {'type': 'object', 'description': 'A thing to sell.', 'properties': {
            'spec': {'type': 'object', 'required': ['color'], 'properties': {
                'size': {'type': 'integer', 'default': 3, 'minimum': 1, 'description': 'How large.'},
                'color': {'type': 'string', 'enum': ['red', 'green']}}},
            'status': {'type': 'object', 'properties': {'size': {'type': 'integer'}}}}}}}]})
WIDGET = object_of('{tag}.example.com/v1', 'Widget', 'a', spec={'color': 'red'})
EVENT = object_of('v1', 'Event', 'settings.1', involvedObject={
    'apiVersion': 'v1', 'kind': 'ConfigMap', 'name': 'settings', 'namespace': '{ns}'}, reason='Noticed', message='somebody looked',
    type='Warning', source={'component': 'tester'}, firstTimestamp='2024-05-01T10:00:00Z', lastTimestamp='2024-05-01T10:00:00Z', count=1)

STEPS = [
    # -- the server
    step('version', 'v1.33.0', lacks='error'),
    step('cluster-info', 'is running at'),
    step('api-resources -o wide', 'configmaps', 'deployments', 'controllerrevisions', 'customresourcedefinitions'),
    step('api-resources --namespaced=false -o name', 'nodes', lacks='pods'),
    step('api-versions', 'apps/v1', 'authorization.k8s.io/v1'),
    step('auth can-i create deployments', 'yes'),
    step('auth can-i get /healthz', 'yes'),
    step('auth can-i delete nodes --as jane', 'no', code=1),
    step('auth can-i --list', '*.*'),
    step('auth whoami', 'system:masters', since=(1, 27)),
    step('get configmaps --as jane', 'Forbidden', 'User "jane" cannot list resource "configmaps"', code=1),
    step('create namespace {ns}', 'created'),
    step('create namespace {ns} --dry-run=server', 'AlreadyExists', code=1),

    # -- objects
    step('create -f -', 'configmap/settings created', stdin=CONFIG),
    step('create -f -', 'AlreadyExists', stdin=CONFIG, code=1),
    step('create -f - --dry-run=server', 'created (server dry run)', stdin=OTHER),
    step('get configmap other', 'NotFound', code=1),
    step('apply -f - --dry-run=client', '(dry run)', stdin=CHANGED),
    step('apply -f - --dry-run=server -o jsonpath={{.data.k}}', 'w', stdin=CHANGED),
    step('get configmap settings -o jsonpath={{.data.k}}', 'v'),
    step('diff -f -', '+  k: w', stdin=CHANGED, code=1),
    step('apply -f -', 'configmap/settings configured', stdin=CHANGED),
    step('apply -f -', 'unchanged', stdin=CHANGED),
    step('diff -f -', stdin=CHANGED),
    step('apply view-last-applied configmap settings', 'k: w'),
    step('replace -f -', 'replaced', stdin=CONFIG),
    step('replace --force -f -', 'replaced', stdin=CONFIG),
    step('apply --server-side -f -', 'this server has no server-side apply', stdin=CONFIG, code=1),
    step('create -f - --validate=strict', 'unknown field "dada"', stdin=MISTAKEN, code=1, since=(1, 25)),
    step('create -f - --validate=warn', 'Warning: unknown field "dada"', 'created', stdin=MISTAKEN, since=(1, 25)),
    step('apply -f - --validate=ignore', 'configured', stdin=MISTAKEN, lacks='unknown field', since=(1, 25)),
    step('create -f - --validate=false', 'created', stdin=MISTAKEN, until=(1, 24)),
    step('apply -f - -l tier=a', 'created', stdin=OTHER),
    step('apply -f - -l tier=a --prune --prune-allowlist=core/v1/ConfigMap', 'other pruned', stdin=CHANGED, since=(1, 26)),
    step('apply -f - -l tier=a --prune --prune-whitelist=core/v1/ConfigMap', 'other pruned', stdin=CHANGED, until=(1, 25)),

    # -- reading
    step('get configmaps', 'NAME', 'DATA', 'AGE', 'settings'),
    step('get cm settings -o wide', 'settings'),
    step('get cm settings -o yaml', 'kind: ConfigMap'),
    step('get cm settings -o json', '"kind": "ConfigMap"'),
    step('get cm settings -o name', 'configmap/settings'),
    step('get cm -o custom-columns=N:.metadata.name,L:.metadata.labels.tier', 'settings', 'a'),
    step('get cm settings -o go-template={{{{.metadata.name}}}}', 'settings'),
    step('get cm --chunk-size=1', 'settings', 'mistaken'),
    step('get cm --sort-by=.metadata.creationTimestamp', 'settings'),
    step('get cm -l tier=a --show-labels', 'tier=a', lacks='mistaken'),
    step('get cm -L tier', 'TIER'),
    step('get cm --field-selector=metadata.name=settings', 'settings', lacks='mistaken'),
    step('get pods -A --field-selector=spec.nodeName=nowhere,status.phase!=Running', 'No resources found'),
    step('get pods --field-selector=spec.color=red', 'field label not supported: spec.color', code=1),
    step('get cm -l "a in"', 'unable to parse requirement', code=1),
    step('get cm nothere', 'NotFound', code=1),
    step('get cm nothere --ignore-not-found', lacks='nothere'),
    step('get frobs', 'the server doesn\'t have a resource type "frobs"', code=1),
    step('get --raw /api/v1/namespaces/{ns}/configmaps/settings', '"ConfigMap"'),
    step('get all', lacks='error'),
    step('describe configmap settings', 'Name:', 'tier=a'),
    step('describe namespace {ns}', 'Active'),
    step('describe serviceaccount default', 'Name:'),

    # -- changing
    step('label cm settings note=x', 'labeled'),
    step('label cm settings note=y', 'already has a value', code=1),
    step('label cm settings note=y --overwrite', 'labeled'),
    step('label cm settings note-', 'label'),
    step('annotate cm settings note=x', 'annotate'),
    step("patch cm settings -p '{{\"data\":{{\"s\":\"1\"}}}}'", 'patched'),
    step("patch cm settings --type=merge -p '{{\"data\":{{\"s\":null}}}}'", 'patched'),
    step("patch cm settings --type=json -p '[{{\"op\":\"add\",\"path\":\"/data/z\",\"value\":\"1\"}}]'", 'patched'),
    step("patch cm settings --type=json -p '[{{\"op\":\"test\",\"path\":\"/data/z\",\"value\":\"2\"}}]'", 'invalid', code=1),
    step("patch cm settings -p '{{\"data\":{{\"z\":\"9\"}}}}' --dry-run=server -o jsonpath={{.data.z}}", '9', since=(1, 27)),
    step('edit cm settings', 'edited', editor='s/k: w/k: edited/'),
    step('edit cm settings', 'Edit cancelled', editor='s/a/a/'),
    step('get cm settings -o jsonpath={{.data}}', 'edited', '"z":"1"'),
    step('apply set-last-applied -f - --create-annotation', 'configured', stdin=CONFIG),

    # -- kubectl create KIND (protobuf from 1.32 on)
    step('create configmap literal --from-literal=a=b', 'created'),
    step('create secret generic hidden --from-literal=p=q', 'created'),
    step('create secret docker-registry registry --docker-server=s --docker-username=u --docker-password=p', 'created'),
    step('create serviceaccount bot', 'created'),
    step('create deployment web --image=example.com/web:1 --replicas=2 --port=80', 'created'),
    step('create job once --image=example.com/once:1 -- /bin/true', 'created'),
    step('create service clusterip inside --tcp=80:8080', 'created'),
    step('create service nodeport outside --tcp=80:8080', 'created'),
    step('create service externalname alias --external-name=example.com', 'created'),
    step('create token default', 'issues no service account tokens', code=1, since=(1, 24)),
    step('run lone --image=example.com/x:1 --env=A=B --labels=app=lone --port=80', 'created'),
    step('run lone --image=example.com/x:1', 'AlreadyExists', code=1),
    step('expose deployment web --port=80', 'exposed'),
    step('describe service inside', 'Endpoints'),
    step('describe secret hidden', '1 byte'),
    step('describe pod lone', 'example.com/x:1'),
    step('describe job once', 'example.com/once:1'),
    step('describe deployment web', 'example.com/web:1', 'RollingUpdate'),
    step('get deployments,services,jobs -o wide', 'web', 'inside', 'once'),

    # -- workloads
    step('scale deployment web --replicas=1', 'scaled'),
    step('scale deployment web --replicas=3 --current-replicas=7', 'Expected replicas to be 7', code=1),
    step('get deployment web --subresource=scale', 'DESIRED', since=(1, 24)),
    step('get deployment web --subresource=status', 'web', since=(1, 24)),
    step("patch deployment web --subresource=scale --type=merge -p '{{\"spec\":{{\"replicas\":2}}}}'", 'patched', since=(1, 24)),
    step("patch deployment web -p '{{\"spec\":{{\"template\":{{\"spec\":{{\"containers\":[{{\"name\":\"web\",\"workingDir\":\"/srv\"}}]}}}}}}}}'",
         'patched'),
    step('set image deployment/web web=example.com/web:2', 'image updated'),
    step('set env deployment/web A=B', 'env updated'),
    step('set env deployment/web --list', 'A=B'),
    step('set resources deployment/web --limits=cpu=200m,memory=64Mi --requests=cpu=100m', 'resource requirements updated'),
    step('set serviceaccount deployment/web bot', 'serviceaccount updated'),
    step("set selector service inside app=web", 'selector updated'),
    step('rollout pause deployment/web', 'paused'),
    step('rollout resume deployment/web', 'resumed'),
    step('rollout restart deployment/web', 'restarted'),
    step('rollout history deployment/web', 'deployment.apps/web'),
    step('get deployment web -o jsonpath={{.spec.template.spec.containers[0]}}', 'example.com/web:2', '/srv', '200m'),
    step('edit deployment web', 'edited', editor='s/minReadySeconds: .*//; s/^  replicas: .*/  replicas: 4/'),
    step('apply -f -', 'daemonset.apps/each created', stdin=DAEMON_SET),
    step('rollout restart daemonset/each', 'restarted'),
    step('describe daemonset each', 'example.com/c:1'),
    step('wait --for=condition=Available deployment/nothere --timeout=1s', 'not found', code=1),
    step("wait --for=jsonpath='{{.data.z}}'=1 configmap/settings --timeout=120s", 'condition met', since=(1, 24)),
    step('wait --for=delete configmap/nothere --timeout=120s', since=(1, 27)),

    # -- nodes
    step('create -f -', 'created', stdin=NODE),
    step('taint nodes node-{tag} a=b:NoSchedule', 'tainted'),
    step('taint nodes node-{tag} a-', 'untainted'),
    step('cordon node-{tag}', 'cordoned'),
    step('get node node-{tag}', 'SchedulingDisabled'),
    step('create -f -', 'created', stdin=STRAY),
    step('drain node-{tag} --force --ignore-daemonsets --timeout=120s', 'evicted', 'drained', since=(1, 22)),
    # this version sees no group "policy"
    step('drain node-{tag} --force --ignore-daemonsets --timeout=120s', 'pod/stray deleted', until=(1, 21)),
    step('uncordon node-{tag}', 'uncordoned'),
    step('describe node node-{tag}', 'Unschedulable:      false'),
    step('delete node node-{tag}', 'deleted'),

    # -- events
    step('create -f -', 'created', stdin=EVENT),
    step('get events --field-selector=involvedObject.name=settings,type=Warning', 'Noticed'),
    step('events --for configmap/settings', 'somebody looked', since=(1, 27)),

    # -- custom kinds
    step('apply -f -', 'created', stdin=WIDGETS),
    step('wait --for=condition=Established crd/widgets.{tag}.example.com --timeout=120s', 'condition met'),
    step('apply -f -', 'created', stdin=WIDGET),
    step('get wd{tag}', 'SIZE', '3'),
    step('apply -f -', 'Unsupported value: "blue"', stdin=dict(WIDGET, spec={'color': 'blue'}), code=1),
    step('create -f -', 'unknown field "spec.tint"', stdin=dict(WIDGET, metadata={'name': 'b'}, spec={'color': 'red', 'tint': 1}), code=1,
         since=(1, 27)),
    step('scale widget.{tag}.example.com a --replicas=5', 'scaled'),
    step("patch wd{tag} a --type=merge -p '{{\"spec\":{{\"size\":0}}}}'", 'should be greater than or equal to 1', code=1),
    step("patch wd{tag} a -p '{{\"spec\":{{\"size\":4}}}}'", 'application/merge-patch+json', code=1),
    step("patch wd{tag} a --subresource=status --type=merge -p '{{\"status\":{{\"size\":2}}}}'", 'patched', since=(1, 24)),
    step('edit wd{tag} a', 'edited', editor='s/color: red/color: green/'),
    step('describe wd{tag} a', 'green'),
    step('explain widget.{tag}.example.com.spec', 'How large.', since=(1, 99)),
    step('explain widgets.spec --api-version={tag}.example.com/v1', 'How large.', since=(1, 27)),
    step('delete crd widgets.{tag}.example.com', 'deleted'),
    step('get wd{tag}', code=1),

    # -- explaining
    step('explain pod', 'PodSpec', since=(1, 27)),
    step('explain pod.spec.containers.ports', 'containerPort', since=(1, 27)),
    step('explain deployment.spec.strategy --recursive', 'maxSurge', 'IntOrString', since=(1, 27)),
    step('explain job.spec', 'backoffLimit', 'PodFailurePolicy', since=(1, 27)),
    step('explain controllerrevision', 'revision', since=(1, 27)),
    step('explain pod.spec.color', 'does not exist', code=1, since=(1, 27)),

    # -- deleting
    step('delete pod lone --grace-period=0 --force', 'force deleted'),
    step('delete deployment web --cascade=orphan', 'deleted'),
    step('delete daemonset each --cascade=foreground', 'deleted'),
    step('delete job once --cascade=background', 'deleted'),
    step('delete configmap -l tier=a', 'settings" deleted'),
    step('delete services --all', 'inside" deleted'),
    step('delete configmap nothere', 'NotFound', code=1),
    step('delete configmap nothere --ignore-not-found'),
    step('delete secret hidden --dry-run=server', '(server dry run)'),
    step('get secret hidden', 'hidden'),
    step('delete namespace {ns}', 'deleted'),
    step('get namespace {ns}', 'NotFound', code=1),
]


def kubectls():
    """{(1, 20): path} of the real kubectl binaries on this machine."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    paths = [os.path.join(root, '.deps/kubectl/usr/bin/kubectl'), *sorted(glob.glob('/usr/lib/google-cloud-sdk/bin/kubectl.1.*')),
             *sorted(glob.glob('/usr/local/bin/kubectl*')), '/usr/bin/kubectl']
    found = {}
    for path in paths:
        try:
            text = subprocess.run([path, 'version', '--client', '-o', 'json'], capture_output=True, text=True, timeout=30).stdout
            version = json.loads(text)['clientVersion']
            found.setdefault((int(version['major']), int(version['minor'].rstrip('+'))), path)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError):
            pass
    return found


class Session:
    """One kubectl against one server."""

    def __init__(self, version, path, kubeconfig, home):
        self.version, self.path, self.home = version, path, str(home)
        self.tag = 'v%dx%d' % version
        self.words = {'ns': 'session-' + self.tag, 'tag': self.tag}
        self.environment = dict(os.environ, KUBECONFIG=str(kubeconfig), HOME=self.home, LC_ALL='C')

    def steps(self):
        return [s for s in STEPS if s.since <= self.version <= s.until]

    def fill(self, value):
        if isinstance(value, dict):
            return {self.fill(k): self.fill(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.fill(v) for v in value]
        return value.format(**self.words) if isinstance(value, str) else value

    def run(self, s):
        """Runs a step; returns the problem, or nothing."""
        words = shlex.split(s.command.format(**self.words))
        # Flags come after the verb: some verbs are plugins in old versions, and plugins take no
        # flags before the verb.
        command = [self.path] + words[:1] + ['--cache-dir', os.path.join(self.home, 'cache'), '-n', self.words['ns']] + words[1:]
        environment = dict(self.environment)
        if s.editor:
            environment['KUBE_EDITOR'] = "sed -i -e '%s'" % s.editor
        text = None if s.stdin is None else json.dumps(self.fill(s.stdin))
        done = subprocess.run(command, capture_output=True, text=True, input=text, env=environment, timeout=300)
        output = done.stdout + done.stderr
        wrong = []
        if done.returncode != s.code:
            wrong.append('exit code %d instead of %d' % (done.returncode, s.code))
        wrong += ['no %r' % word.format(**self.words) for word in s.has if word.format(**self.words) not in output]
        wrong += ['there is %r' % word for word in s.lacks if word in output]
        if wrong:
            return 'kubectl %d.%d %s: %s\n%s' % (*self.version, ' '.join(words), '; '.join(wrong), output[-1500:])
        return ''
