"""JointInferenceServices with kubectl against `varda up`: accepted and refused specs, messages.

tests/conformance/validation has every cause of every refusal. This file checks the user's view.
"""
import json, pathlib, shutil, sys, tempfile, unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / x) for x in ('support', 'conformance/kubectl')]
import machine as m  # noqa: E402
import session  # noqa: E402

EXAMPLES = m.ROOT / 'src/api/testdata/sedna'


def service(edge=None, cloud=None, name='digits', **spec):
    """A valid service, except for the given parts."""
    made = {'edgeWorker': dict({'model': {'name': 'digits-small'}, 'nodeName': 'edge0',
                                'hardExampleMining': {'name': 'CrossEntropy', 'parameters': [
                                    {'key': 'threshold_cross_entropy', 'value': '0.8'}]}}, **(edge or {})),
            'cloudWorker': dict({'model': {'name': 'digits-big'}}, **(cloud or {}))}
    made.update(spec)
    return {'apiVersion': 'sedna.io/v1alpha1', 'kind': 'JointInferenceService', 'metadata': {'name': name},
            'spec': {k: v for k, v in made.items() if v is not None}}


def mining(name, **parameters):
    return {'hardExampleMining': {'name': name, 'parameters': [{'key': k, 'value': v} for k, v in parameters.items()]}}


def tier(name, **more):
    return dict({'name': name, 'model': {'name': 'm'}}, **more)


def tiers(*given):
    made = service(tiers=list(given))
    del made['spec']['edgeWorker'], made['spec']['cloudWorker']
    return made


EDGE, CLOUD, HEM = 'spec.edgeWorker', 'spec.cloudWorker', 'spec.edgeWorker.hardExampleMining'
DEADLINE = 'must be a whole number followed by ms, s or m, from 1ms to 10m'
REFUSED = [  # a spec, then the field and the message of each problem
    (service(spec=None, name='not_a_name'), [('metadata.name', 'must consist of lower case alphanumeric characters')]),
    (service(name='d' * 49), [('metadata.name', 'followed by at most 47 lower case letters, digits')]),
    (service(edge={'model': None}), [(EDGE + '.model', 'Required value')]),
    (service(edge={'model': 'digits-small'}), [(EDGE + '.model', 'must be of type object: "string"')]),
    (service(edge={'model': {'name': 'm', 'kind': 'Dataset'}}),
     [(EDGE + '.model.kind', 'Unsupported value: "Dataset": supported values: "Model", "InferenceModel"')]),
    (service(edge={'nodeName': None}), [(EDGE + '.nodeName', 'Required value: exactly one of nodeName and selector')]),
    (service(edge={'selector': {'matchLabels': {'a': 'b'}}}), [(EDGE + '.selector', 'Forbidden: may not be set together with nodeName')]),
    (service(edge={'nodeName': None, 'selector': {'matchExpressions': [{'key': 'a', 'operator': 'Near', 'values': ['b']}]}}),
     [(EDGE + '.selector.matchExpressions[0].operator', 'Unsupported value: "Near": supported values: "In", "NotIn", "Exists", "DoesNotExist"')]),
    (service(edge={'nodeName': None, 'selector': {'matchExpressions': [{'key': 'a', 'operator': 'In'}]}}),
     [(EDGE + '.selector.matchExpressions[0].values', "must be specified when operator is 'In' or 'NotIn'")]),
    (service(edge={'replicas': 3}), [(EDGE + '.replicas', 'must be 0 or 1 with a nodeName and without a workerSpec or template')]),
    (service(edge={'workerSpec': {}}), [(EDGE + '.workerSpec.containers', 'Required value')]),
    (service(edge={'workerSpec': {'containers': []}}), [(EDGE + '.workerSpec.containers', 'should have at least 1 items')]),
    (service(edge={'workerSpec': {'containers': [{'name': 'w'}]}}), [(EDGE + '.workerSpec.containers[0].image', 'Required value')]),
    (service(edge={'workerSpec': {'containers': [{'image': 'a', 'env': [{'name': 'n', 'value': 0.6}]}]}}),
     [(EDGE + '.workerSpec.containers[0].env[0].value', 'must be of type string: "number"')]),
    (service(edge={'workerSpec': {'containers': [{'image': 'a', 'volumeMounts': [{'name': 'v', 'mountPath': '/v'}]}]}}),
     [(EDGE + '.workerSpec.containers[0].volumeMounts[0].name', 'must be the name of one of volumes')]),
    (service(cloud={'workerSpec': {'containers': [{'image': 'a'}]}, 'template': {'spec': {'containers': [{'image': 'a'}]}}}),
     [(CLOUD + '.template', 'Forbidden: may not be set together with workerSpec')]),
    (service(edge={'template': {'spec': {'nodeName': 'edge1', 'containers': [{'image': 'a'}]}}}),
     [(EDGE + '.template.spec.nodeName', 'must be the nodeName of the worker')]),
    (service(edge=mining('CrossEntropi')), [(HEM + '.name', 'Unsupported value: "CrossEntropi": supported values: "Threshold", "CrossEntropy"')]),
    (service(edge=mining('CrossEntropy', threshold_cross_entropy='abc')), [(HEM + '.parameters[0].value', 'must be a number from 0 to 1')]),
    (service(edge=mining('IBT', threshold_img='1.5', threshold_box='NaN')),
     [(HEM + '.parameters[0].value', 'Invalid value: "1.5": must be a number from 0 to 1'),
      (HEM + '.parameters[1].value', 'Invalid value: "NaN": must be a number from 0 to 1')]),
    (service(edge=mining('CrossEntropy', threshold='0.5')),
     [(HEM + '.parameters[0].key', 'Unsupported value: "threshold": supported values: "threshold_cross_entropy"')]),
    (service(edge=mining('AlwaysCloud', threshold='0.5')), [(HEM + '.parameters[0].key', 'Forbidden: AlwaysCloud takes no parameters')]),
    (service(edge=mining('Labels')), [(HEM + '.parameters', 'Required value: Labels needs the parameter labels')]),
    (service(deadline='2 seconds'), [('spec.deadline', DEADLINE)]),
    (service(deadline='1h'), [('spec.deadline', DEADLINE)]),
    (service(deadline='1s', cloud={'deadline': '2s'}), [('spec.deadline', 'must not be shorter than that of cloudWorker, 2s')]),
    (service(edgeWorker=None, cloudWorker=None), [(EDGE, 'Required value: edgeWorker and cloudWorker, or tiers, are required')]),
    (service(cloudWorker=None), [(CLOUD, 'Required value: cloudWorker is required beside edgeWorker')]),
    (service(tiers=[tier('a', layer='edge'), tier('b', layer='cloud')]),
     [(EDGE, 'Forbidden: may not be set together with tiers'), (CLOUD, 'Forbidden: may not be set together with tiers')]),
    (tiers(tier('a', layer='edge')), [('spec.tiers', 'should have at least 2 items')]),
    (tiers(*[tier('t%d' % i, layer='edge') for i in range(9)]), [('spec.tiers', 'must have at most 8 items')]),
    (tiers(tier('a', layer='edge'), tier('b')), [('spec.tiers[1].nodeName', 'exactly one of nodeName and layer says where the tier is')]),
    (tiers(tier('a', layer='edge'), tier('a', layer='cloud')), [('spec.tiers[1]', 'Duplicate value')]),
    (tiers(tier('a', layer='cloud'), tier('b', layer='edge')), [('spec.tiers[1].layer', 'from the device to the edge to the cloud')]),
    (tiers(tier('a', layer='edge'), tier('b', layer='cloud', policy={'name': 'Random'})),
     [('spec.tiers[1].policy', 'Forbidden: the last tier must not have a policy')]),
]


class Specs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-joint-spec-'))
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.varda.up()

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        shutil.rmtree(cls.work, ignore_errors=True)

    def apply(self, given, **kw):
        return self.varda.kubectl('apply', '-f', '-', input=json.dumps(given), **kw)

    def test_invalid_spec_is_refused_with_field_and_expectation(self):
        for written, wrong in REFUSED:
            with self.subTest(wrong=wrong):
                done = self.apply(written, check=False)
                self.assertNotEqual(done.returncode, 0)
                for field, expected in wrong:
                    # kubectl prints "* spec.a: Invalid value ..." in a list, and "...: spec.a:
                    # Invalid value ..." for a single problem.
                    line = next((x for x in done.stderr.splitlines() if field + ': ' in x and expected in x), None)
                    self.assertIsNotNone(line, '%s: %s\n%s' % (field, expected, done.stderr))
        self.assertEqual(self.varda.get('jis')['items'], [])

    def test_invalid_change_is_refused_and_the_old_spec_stays(self):
        self.addCleanup(self.varda.kubectl, 'delete', 'jis', '--all')
        self.apply(service())
        patch = {'spec': {'edgeWorker': {'hardExampleMining': {'parameters': [{'key': 'threshold_cross_entropy', 'value': '8'}]}}}}
        done = self.varda.kubectl('patch', 'jis', 'digits', '--type=merge', '-p', json.dumps(patch), check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('Invalid value: "8": must be a number from 0 to 1', done.stderr)
        stored = self.varda.get('jis', 'digits')['spec']['edgeWorker']['hardExampleMining']
        self.assertEqual(stored['parameters'], [{'key': 'threshold_cross_entropy', 'value': '0.8'}])
        patch['spec']['edgeWorker']['hardExampleMining']['parameters'][0]['value'] = '0.6'
        self.varda.kubectl('patch', 'jis', 'digits', '--type=merge', '-p', json.dumps(patch))

    def test_both_spellings_of_a_worker_are_accepted_and_kept(self):
        self.addCleanup(self.varda.kubectl, 'delete', 'jis', '--all')
        for name, stored in {'worker_spec': ('example', 'workerSpec'), 'template': ('helmets', 'template'), 'models': ('digits', None)}.items():
            self.varda.kubectl('apply', '-f', str(EXAMPLES / (name + '.yaml')))
            edge = self.varda.get('jis', stored[0])['spec']['edgeWorker']
            self.assertEqual([x for x in ('workerSpec', 'template') if x in edge], [stored[1]] if stored[1] else [])
        pod = self.varda.get('jis', 'example')['spec']['edgeWorker']['workerSpec']
        self.assertEqual(pod['containers'][0]['resources'], {'requests': {'memory': '64Mi', 'cpu': '100m'}, 'limits': {'memory': '512Mi'}})
        self.assertEqual(pod['volumes'], [{'name': 'localvideo', 'emptyDir': {}}])
        # Fields of core/v1 that the schema does not list are kept.
        self.assertEqual(self.varda.get('jis', 'helmets')['spec']['cloudWorker']['template']['spec']['dnsPolicy'], 'ClusterFirstWithHostNet')

    def test_get_shows_the_columns_of_a_service(self):
        self.addCleanup(self.varda.kubectl, 'delete', 'jis', '--all')
        self.apply(service())
        self.assertEqual(self.varda.kubectl('get', 'jis').split('\n')[0].split(),
                         ['NAME', 'READY', 'DEGRADED', 'URL', 'INFERENCES', 'HARD', 'CLOUD', 'AGE'])
        wide = self.varda.kubectl('get', 'jointinferenceservices.sedna.io', '-o', 'wide').split('\n')
        self.assertEqual(wide[0].split()[1:-1],
                         ['READY', 'DEGRADED', 'URL', 'INFERENCES', 'HARD', 'CLOUD', 'REASON', 'MESSAGE', 'ACTIVE', 'FAILED'])
        self.assertTrue(wide[1].startswith('digits'), wide)
        self.assertIn('jointinferenceservice.sedna.io/digits', self.varda.kubectl('get', 'edgeai', '-o', 'name'))

    def test_kubectl_explain_describes_the_fields(self):
        served = json.loads(self.varda.kubectl('get', '--raw', '/openapi/v3/apis/sedna.io/v1alpha1'))
        described = [x for x in served['components']['schemas'] if x.endswith('.JointInferenceService')]
        self.assertEqual(len(described), 1)
        for (major, minor), path in sorted(session.kubectls().items()):
            if (major, minor) < (1, 27):  # older versions use OpenAPI v2, which lacks our kinds
                continue
            with self.subTest(kubectl='%d.%d' % (major, minor)):
                for field, expected in {'jis.spec.edgeWorker.hardExampleMining.name': 'CrossEntropy: hard if 1 +',
                                    'jis.spec.edgeWorker.workerSpec.containers.env': 'Put numbers in quotes',
                                    'jis.spec.tiers': 'from the device to the cloud'}.items():
                    explanation = self.varda.run([path, '--cache-dir', str(self.work / ('cache-%d' % minor)), 'explain', field])
                    self.assertIn(expected, ' '.join(explanation.split()))


if __name__ == '__main__':
    unittest.main()
