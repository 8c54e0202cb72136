#!/usr/bin/env python3
"""deploy/: generated files are fresh, and every kubectl renders the same objects.

The objects keep the promises of the guide: exact verbs, no Secret of the whole cluster, pods that
the standard `restricted` admits, flags that the programs have.

    manifests_test.py
"""
import glob, json, os, pathlib, re, subprocess, sys, unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'scripts'))
import manifests  # noqa: E402

KUSTOMIZE = ROOT / 'deploy/kustomize'
# namespace: its program
SYSTEM = {'varda-operator': 'varda-operator', 'varda-system': 'varda-gateway'}
COMPOSITIONS = ['default', 'kubeedge', 'namespaced', 'no-agent', 'registry']
# the registry for models, which stands alone
REGISTRIES = ['artifact-registry-volume', 'artifact-registry-bucket']


def objects_of(text):
    """The objects of a YAML file. Any kubectl converts YAML to JSON without a server if it changes
    the object."""
    done = subprocess.run([manifests.KUBECTL, 'annotate', '--local', '-f', '-', 'read=here', '-o', 'json'], input=text, capture_output=True, text=True,
                          timeout=120, env={'PATH': os.environ.get('PATH', ''), 'HOME': '/nonexistent'})
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    decoder, out, rest = json.JSONDecoder(), [], done.stdout.strip()
    while rest:
        one, end = decoder.raw_decode(rest)
        out.extend(one['items'] if one['kind'] == 'List' else [one])
        rest = rest[end:].strip()
    return out


def identity(one):
    return one['kind'], one['metadata'].get('namespace', ''), one['metadata']['name']


def by_identity(text):
    found = objects_of(text)
    out = {identity(one): one for one in found}
    assert len(out) == len(found), 'an object stands twice'
    return out


def check_flags(test, reference, container):
    """The program of the container has the flags that it gets; returns the flags."""
    command, *flags = container['args']
    section = reference.split('\n## varda %s\n' % command)[1].split('\n## ')[0]
    for flag in flags:
        test.assertRegex(section, r'\| `%s[ `]' % re.escape(flag.partition('=')[0]))
    return flags


def check_restricted(test, pod):
    test.assertEqual(pod['securityContext']['seccompProfile'], {'type': 'RuntimeDefault'})
    test.assertTrue(pod['securityContext']['runAsNonRoot'])
    test.assertNotIn('hostNetwork', pod)
    for container in pod['containers']:
        test.assertEqual(container['securityContext'], {'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True, 'capabilities': {'drop': ['ALL']}})
        test.assertTrue(all('hostPort' not in port for port in container['ports']))


def other_kubectls():
    """kubectl binaries newer than Debian's, where this machine has any."""
    found = sorted(glob.glob('/usr/lib/google-cloud-sdk/bin/kubectl.1.*'))
    return sorted(set(found[:1] + found[-1:]))


class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = {name: manifests.rendered(KUSTOMIZE / name) for name in COMPOSITIONS}
        cls.objects = {name: by_identity(text) for name, text in cls.text.items()}
        cls.all = cls.objects['default']

    def test_generated_files_are_up_to_date(self):
        done = subprocess.run([sys.executable, str(ROOT / 'scripts/manifests.py'), '--check'], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_directory_is_in_a_composition(self):
        used = set()
        for path in KUSTOMIZE.glob('*/kustomization.yaml'):
            used |= set(re.findall(r'^- \.\./([a-z-]+)$', path.read_text(), re.M))
        self.assertEqual({path.name for path in KUSTOMIZE.iterdir()} - used, set(COMPOSITIONS + REGISTRIES) - {'default'})

    def test_newer_kubectls_render_the_same_objects(self):
        if not other_kubectls():
            self.skipTest('no kubectl but that of .deps on this machine')
        for kubectl in other_kubectls():
            for name in COMPOSITIONS:
                self.assertEqual(by_identity(manifests.rendered(KUSTOMIZE / name, kubectl)), self.objects[name], (kubectl, name))

    def test_rules_contain_no_wildcards_or_unknown_members(self):
        for name, objects in self.objects.items():
            for key, one in objects.items():
                for rule in one.get('rules', []) if one['kind'] in ('Role', 'ClusterRole') else []:
                    self.assertEqual(set(rule) - {'apiGroups', 'resources', 'resourceNames', 'verbs'}, set(), key)
                    for part in rule.values():
                        self.assertNotIn('*', ' '.join(part), (name, key))

    def test_no_account_reads_secrets_of_the_whole_cluster(self):
        for name, objects in self.objects.items():
            secret_roles = {key[2] for key, one in objects.items() if key[0] == 'ClusterRole'
                            and any('secrets' in rule['resources'] for rule in one['rules'])}
            self.assertEqual(secret_roles, {'varda-edge-secrets', 'varda-certificates', 'varda-cloud-jobs'}, name)
            for key, one in objects.items():
                if key[0] in ('ClusterRoleBinding', 'RoleBinding'):
                    unbound = {'varda-edge-secrets', 'varda-runner-nodes', 'varda-certificates', 'varda-cloud-jobs', 'cluster-admin'}
                    self.assertNotIn(one['roleRef']['name'], unbound, (name, key))
                if key[0] == 'Role' and any('secrets' in rule['resources'] for rule in one['rules']):
                    self.assertIn(key[1], {'varda-system', 'varda-edge', 'varda-operator'}, (name, key))

    def test_every_binding_has_an_existing_role_and_account(self):
        for name, objects in self.objects.items():
            for key, one in objects.items():
                if key[0] not in ('ClusterRoleBinding', 'RoleBinding'):
                    continue
                ref = one['roleRef']
                self.assertIn((ref['kind'], key[1] if ref['kind'] == 'Role' else '', ref['name']), objects, (name, key))
                for subject in one['subjects']:
                    self.assertIn(('ServiceAccount', subject['namespace'], subject['name']), objects, (name, key))

    def test_accounts_that_create_secrets_have_their_own_namespace(self):
        """Any right to create Secrets covers every ServiceAccount of the namespace: a Secret of
        type service-account-token gets a token. The same holds for a TokenRequest."""
        for name, objects in self.objects.items():
            grants = []  # (namespace or '' for all, account, written resources)
            for key, one in objects.items():
                if key[0] in ('RoleBinding', 'ClusterRoleBinding'):
                    ref = one['roleRef']
                    rules = objects[ref['kind'], key[1] if ref['kind'] == 'Role' else '', ref['name']]['rules']
                    written = {resource for rule in rules if set(rule['verbs']) & {'create', 'update', 'patch'} for resource in rule['resources']}
                    grants.extend((key[1], (subject['namespace'], subject['name']), written) for subject in one['subjects'])
            entitled, makers = {who for _, who, _ in grants}, 0
            for namespace, who, written in grants:
                if written & {'secrets', 'serviceaccounts/token'}:
                    makers += 1
                    self.assertNotEqual(namespace, '', (name, who))
                    self.assertEqual({other for other in entitled if other[0] == namespace} - {who}, set(), '%s: %s can be them' % (name, who))
            self.assertGreater(makers, 0, name)

    def pods(self, objects):
        for key, one in objects.items():
            if key[0] in ('Deployment', 'DaemonSet'):
                yield key, one, one['spec']['template']['spec']

    def test_system_pods_satisfy_the_restricted_standard(self):
        for name, objects in self.objects.items():
            for namespace in SYSTEM:
                labels = objects['Namespace', '', namespace]['metadata']['labels']
                self.assertEqual({labels['pod-security.kubernetes.io/' + mode] for mode in ('enforce', 'audit', 'warn')}, {'restricted'})
            for key, _, pod in self.pods(objects):
                if key[1] not in SYSTEM:
                    continue
                check_restricted(self, pod)
                # Only gateway and operator have files, and start without them.
                registry = {'name': 'registry', 'secret': {'secretName': 'varda-registry', 'optional': True}}
                self.assertEqual(pod.get('volumes', []), [registry] if key[2] in ('varda-gateway', 'varda-operator') else [], key)

    def test_gateway_reaches_the_registry(self):
        registry = by_identity(manifests.rendered(KUSTOMIZE / 'artifact-registry-volume'))
        service = registry['Service', 'varda-registry', 'varda-registry']
        port = service['spec']['ports'][0]['port']
        for name, objects in self.objects.items():
            container, = objects['Deployment', 'varda-system', 'varda-gateway']['spec']['template']['spec']['containers']
            flags = dict(flag.partition('=')[::2] for flag in container['args'])
            self.assertEqual(flags['--registry'], 'https://%s.%s.svc:%d' % (service['metadata']['name'], service['metadata']['namespace'], port), name)
            mount, = container['volumeMounts']
            for flag in ('--registry-token-file', '--registry-ca-file'):
                self.assertEqual(str(pathlib.PurePosixPath(flags[flag]).parent), mount['mountPath'])
            egress, aggregators = objects['NetworkPolicy', 'varda-system', 'varda-gateway']['spec']['egress']
            self.assertEqual(aggregators, {'ports': [{'port': 7363, 'protocol': 'TCP'}]})
            self.assertEqual(egress['to'], [{'namespaceSelector': {'matchLabels': {'kubernetes.io/metadata.name': 'varda-registry'}}}])
            pods = registry['Deployment', 'varda-registry', 'varda-registry']['spec']['template']['spec']['containers'][0]['ports']
            self.assertIn(egress['ports'][0]['port'], [port['containerPort'] for port in pods])

    def test_operator_reads_the_authority_of_the_edge_and_nothing_else_there(self):
        for name, objects in self.objects.items():
            subjects = {key: one['roleRef']['name'] for key, one in objects.items() if key[:2] == ('RoleBinding', 'varda-system')
                        and ('varda-operator', 'varda-operator') in {(s['namespace'], s['name']) for s in one['subjects']}}
            self.assertEqual(subjects, {('RoleBinding', 'varda-system', 'varda-operator'): 'varda-operator'}, name)
            self.assertEqual(objects['Role', 'varda-system', 'varda-operator']['rules'],
                             [{'apiGroups': [''], 'resources': ['configmaps'], 'resourceNames': ['varda-gateway'], 'verbs': ['get']}])

    def test_agent_has_one_host_directory_and_no_token(self):
        for name in ('default', 'kubeedge'):
            pod = self.objects[name]['DaemonSet', 'varda-edge', 'varda-agent']['spec']['template']['spec']
            self.assertIs(pod['automountServiceAccountToken'], False)
            self.assertEqual([v['hostPath']['path'] for v in pod['volumes'] if 'hostPath' in v], ['/var/lib/varda'])
            container, = pod['containers']
            self.assertIn({'name': 'data', 'mountPath': '/var/lib/varda'}, container['volumeMounts'])
            self.assertEqual(container['securityContext']['capabilities'], {'drop': ['ALL']})
            self.assertTrue(container['securityContext']['readOnlyRootFilesystem'])
            self.assertFalse(container['securityContext']['allowPrivilegeEscalation'])
            env = {e['name']: e['valueFrom']['fieldRef']['fieldPath'] for e in container['env']}
            self.assertEqual(env, {'NODE_NAME': 'spec.nodeName', 'HOST_IP': 'status.hostIP'})
            self.assertIn('--address=$(HOST_IP)', container['args'])
            port = int(next(a for a in container['args'] if a.startswith('--admin=')).rsplit(':', 1)[1])
            for probe in ('livenessProbe', 'readinessProbe'):
                self.assertEqual((container[probe]['httpGet']['host'], container[probe]['httpGet']['port']), ('127.0.0.1', port))

    def test_programs_have_the_flags_they_get(self):
        reference = (ROOT / 'docs/reference/cli.md').read_text()
        for name, objects in self.objects.items():
            for key, _, pod in self.pods(objects):
                for container in pod['containers']:
                    flags = check_flags(self, reference, container)
                    names = {env['name'] for env in container.get('env', [])}
                    for source in container.get('envFrom', []):
                        names |= set(objects['ConfigMap', key[1], source['configMapRef']['name']].get('data', {}))
                    self.assertEqual(set(re.findall(r'\$\((\w+)\)', ' '.join(flags))), names, key)

    def test_user_settings_are_absent_from_the_manifest(self):
        """`kubectl apply` overwrites members that its file sets. It keeps a member that was never
        in the file."""
        container, = self.all['DaemonSet', 'varda-edge', 'varda-agent']['spec']['template']['spec']['containers']
        self.assertEqual([source['configMapRef']['name'] for source in container['envFrom']], ['varda-agent-defaults', 'varda-agent'])
        self.assertNotIn('data', self.all['ConfigMap', 'varda-edge', 'varda-agent'])
        self.assertEqual(set(self.objects['kubeedge']['ConfigMap', 'varda-edge', 'varda-agent']['data']), {'gateway'})

    def test_ports_probes_and_selectors_agree(self):
        for key, one, pod in self.pods(self.all):
            self.assertEqual(one['spec']['selector']['matchLabels'], one['spec']['template']['metadata']['labels'], key)
            for container in pod['containers']:
                self.assertIn('limits', container['resources'], key)
                for probe in ('livenessProbe', 'readinessProbe'):
                    port = container[probe]['httpGet']['port']
                    self.assertTrue(isinstance(port, int) or port in {p['name'] for p in container['ports']}, key)
        for namespace, name in SYSTEM.items():
            deployment = self.all['Deployment', namespace, name]
            labels = deployment['spec']['selector']['matchLabels']
            self.assertEqual(self.all['PodDisruptionBudget', namespace, name]['spec']['selector']['matchLabels'], labels)
            policy = self.all['NetworkPolicy', namespace, name]['spec']
            self.assertEqual(policy['podSelector']['matchLabels'], labels)
            opened = {port['port'] for rule in policy['ingress'] for port in rule['ports']}
            self.assertEqual(opened, {port['containerPort'] for port in deployment['spec']['template']['spec']['containers'][0]['ports']})
        for name in ('varda-deny-others', 'varda-to-api-server'):
            self.assertEqual(*(self.all['NetworkPolicy', namespace, name]['spec'] for namespace in SYSTEM))
        service = self.all['Service', 'varda-system', 'varda-gateway']['spec']
        self.assertEqual(service['selector'], self.all['Deployment', 'varda-system', 'varda-gateway']['spec']['selector']['matchLabels'])
        self.assertEqual((service['type'], service['ports'][0]['nodePort']), ('NodePort', 30443))

    def test_images_have_the_version_of_this_release(self):
        version = re.search(r'project\(varda VERSION (\S+)', (ROOT / 'CMakeLists.txt').read_text()).group(1)
        ours = {'localhost/%s:%s' % (name, version) for name in ('varda', 'varda-serve', 'varda-train', 'varda-aggregate')}
        for text in (self.text['default'], self.text['namespaced']):
            self.assertEqual(set(re.findall(r'localhost/[a-z-]+:\S+', text)), ours)
        self.assertEqual(set(re.findall(r'\S+/varda[a-z-]*:\S+', self.text['registry'])), {o.replace('localhost', 'registry.example') for o in ours})


class Registries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = {name: manifests.rendered(KUSTOMIZE / name) for name in REGISTRIES}
        cls.objects = {name: by_identity(text) for name, text in cls.text.items()}

    def test_every_object_is_in_the_namespace_of_the_registry(self):
        for name, objects in self.objects.items():
            kinds = ['Deployment', 'Namespace', 'NetworkPolicy', 'Service', 'ServiceAccount']
            self.assertEqual(sorted(key[0] for key in objects), sorted(kinds + ['PersistentVolumeClaim'] if name.endswith('volume') else kinds))
            for key, one in objects.items():
                self.assertEqual(key[1:], ('', 'varda-registry') if key[0] == 'Namespace' else ('varda-registry', 'varda-registry'))
                if key[0] == 'Namespace':
                    labels = one['metadata']['labels']
                    self.assertEqual({labels['pod-security.kubernetes.io/' + mode] for mode in ('enforce', 'audit', 'warn')}, {'restricted'})

    def test_one_pod_owns_the_storage_and_has_no_rights(self):
        reference = (ROOT / 'docs/reference/cli.md').read_text()
        for name, objects in self.objects.items():
            get = lambda kind: objects[kind, 'varda-registry', 'varda-registry']
            spec = get('Deployment')['spec']
            self.assertEqual((spec['replicas'], spec['strategy']), (1, {'type': 'Recreate'}))
            pod = spec['template']['spec']
            check_restricted(self, pod)
            self.assertIs(pod['automountServiceAccountToken'], False)
            container, = pod['containers']
            self.assertEqual({mount['name'] for mount in container['volumeMounts']}, {volume['name'] for volume in pod['volumes']})
            flags = dict(flag.partition('=')[::2] for flag in check_flags(self, reference, container))
            paths = {mount['mountPath'] for mount in container['volumeMounts']}
            for flag, value in flags.items():
                if value.startswith('/'):
                    self.assertTrue(value in paths or str(pathlib.PurePosixPath(value).parent) in paths, (name, flag))
            self.assertEqual('--s3' in flags, name.endswith('bucket'))
            # Every client needs the token, and no byte goes in the clear.
            self.assertLessEqual({'--token-file', '--tls-cert', '--tls-key'}, set(flags))
            labels = spec['selector']['matchLabels']
            self.assertEqual(labels, spec['template']['metadata']['labels'])
            self.assertEqual(get('Service')['spec']['selector'], labels)
            ports = {port['name']: port['containerPort'] for port in container['ports']}
            self.assertEqual({flags['--' + flag].rsplit(':', 1)[1] for flag in ('listen', 'admin')}, {str(port) for port in ports.values()})
            self.assertIn(get('Service')['spec']['ports'][0]['targetPort'], ports)
            policy = get('NetworkPolicy')['spec']
            self.assertEqual(policy['podSelector']['matchLabels'], labels)
            self.assertEqual({port['port'] for rule in policy['ingress'] for port in rule['ports']}, set(ports.values()))

    def test_image_has_the_version_of_this_release(self):
        version = re.search(r'project\(varda VERSION (\S+)', (ROOT / 'CMakeLists.txt').read_text()).group(1)
        for text in self.text.values():
            self.assertEqual(set(re.findall(r'image: (\S+)', text)), {'localhost/varda:' + version})

    def test_newer_kubectls_render_the_same_objects(self):
        if not other_kubectls():
            self.skipTest('no kubectl but that of .deps on this machine')
        for kubectl in other_kubectls():
            for name in REGISTRIES:
                self.assertEqual(by_identity(manifests.rendered(KUSTOMIZE / name, kubectl)), self.objects[name], (kubectl, name))


if __name__ == '__main__':
    unittest.main(verbosity=1)
