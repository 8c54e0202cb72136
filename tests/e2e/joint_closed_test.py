"""A closed JointInferenceService under `varda up`: HTTPS by certificates that Varda issues, a token for clients, and both between tiers."""
import base64, http.client, json, pathlib, shutil, ssl, sys, tempfile, unittest, urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import joint as j  # noqa: E402
import machine as m  # noqa: E402

TOKEN = 'let-me-in'


class Client(j.Client):
    """Over HTTPS, with what it trusts and a token."""

    def __init__(self, url, model, images, context, token=TOKEN):
        super().__init__(url, model, images)
        self.context, self.token = context, token

    def connect(self):
        return http.client.HTTPSConnection(self.address, timeout=m.REQUEST_SECONDS, context=self.context)

    def headers(self):
        return {'Authorization': 'Bearer ' + self.token} if self.token else {}


class ClosedService(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-e2e-'))
        (cls.work / 'www').mkdir()
        cls.files = m.FileServer(cls.work / 'www')
        cls.varda = m.Machine(cls.work / 'data', nodes=['cloud=cloud', 'edge0=edge'])
        cls.varda.up()
        cls.varda.nodes_ready()
        cls.images, cls.labels = j.test_split()

    @classmethod
    def tearDownClass(cls):
        cls.varda.close()
        cls.files.stop()
        shutil.rmtree(cls.work, ignore_errors=True)

    def secret(self, name):
        return {k: base64.b64decode(v).decode() for k, v in self.varda.get('secret', name)['data'].items()}

    def trusting(self, name):
        """As a client that knows the authority, and checks the name that it asks."""
        return ssl.create_default_context(cadata=self.secret(name)['ca.crt'])

    def status_of(self, url, context, token=None):
        c = http.client.HTTPSConnection(urllib.parse.urlsplit(url).netloc, timeout=m.seconds(60), context=context)
        try:
            c.request('GET', '/v2/models/digits', headers={'Authorization': 'Bearer ' + token} if token else {})
            return c.getresponse().status
        finally:
            c.close()

    def setUp(self):
        self.tokens(**{'digits-token': TOKEN})
        for size in ('small', 'big'):
            archive = self.work / 'www' / ('%s.tar.gz' % size)
            sha = m.pack(self.varda, size, archive)
            self.apply(j.model('digits-' + size, self.files.url(archive.name), sha))
            self.archives = dict(getattr(self, 'archives', {}), **{size: (self.files.url(archive.name), sha)})

    def tearDown(self):
        self.varda.kubectl('delete', 'jointinferenceservices,inferencemodels,models.sedna.io,secrets', '--all', check=False)
        m.wait_until('pods of the test gone', lambda: not self.varda.pods())

    def apply(self, *objects):
        self.varda.kubectl('apply', '-f', '-', input=json.dumps({'apiVersion': 'v1', 'kind': 'List', 'items': list(objects)}))

    def tokens(self, **secrets):
        self.apply(*({'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': name}, 'stringData': {'token': token}}
                     for name, token in secrets.items()))

    def test_tiers_and_clients_use_tls_and_a_token(self):
        security = {'tls': True, 'tokenSecretName': 'digits-token'}
        self.apply(j.service('digits', 'digits-small', 'digits-big', 'AlwaysCloud', deadline='30s', security=security))
        status = j.ready(self.varda, 'digits')
        urls = [tier['url'] for tier in status['tiers']]
        self.assertEqual([url.split('://')[0] for url in urls], ['https', 'https'], urls)
        self.assertEqual(self.varda.get('inferencemodel', 'digits-cloud')['spec']['security'], security)
        trusting = self.trusting('digits-tls')
        for url in urls:
            with self.subTest(url=url):
                self.assertEqual([self.status_of(url, trusting, token) for token in (None, 'wrong')], [401, 401])
                with self.assertRaises((http.client.HTTPException, OSError)):
                    j.http_status('http' + url[len('https'):], '/v2/health/ready')
        client = Client(urls[0], 'digits', self.images[:50], trusting)
        client.prepare()
        self.assertEqual({a.tier for a in j.answers(client.all_once())}, {'cloud'})
        # The command finds the authority in the Secret.
        (self.work / 'token').write_text(TOKEN + '\n')
        predict = ['predict', 'jis/digits', '--images', m.DIGITS / 'png/digit-7.png']
        self.assertIn('by cloud', self.varda.varda(*predict, '--token-file', self.work / 'token'))
        self.assertIn('a token is required', self.varda.varda(*predict, check=False).stderr)
        # The first tier answers alone where its policy says so: both tiers have their say.
        self.varda.kubectl('patch', 'jis', 'digits', '--type=merge', '-p', json.dumps(
            {'spec': {'edgeWorker': {'hardExampleMining': j.mining('NeverCloud')}}}))
        m.wait_until('the edge answers', lambda: {a.tier for a in j.answers(client.all_once())} == {'edge'})

    def test_tier_that_refuses_the_token_is_named_and_the_edge_answers(self):
        closed = {'tls': True, 'tokenSecretName': 'other-token'}
        self.tokens(**{'other-token': 'something else'})
        self.apply(m.inference_model('shared', 'cloud', [('1', *self.archives['big'])], '1', security=closed))
        self.varda.ready('shared', '1')
        service = j.service('digits', 'digits-small', 'shared', 'AlwaysCloud', deadline='30s',
                            security={'tls': True, 'tokenSecretName': 'digits-token'})
        service['spec']['cloudWorker']['model']['kind'] = 'InferenceModel'
        self.apply(service)

        def refused():
            why = j.condition(self.varda, 'digits', 'Ready', 'False')
            return why if why['reason'] == 'TierNotReached' and 'HTTP 401: the token is not valid' in why['message'] else None
        m.wait_until('the refusal in the status', refused)
        url = self.varda.get('jointinferenceservice', 'digits')['status']['url']
        client = Client(url, 'digits', self.images[:5], self.trusting('digits-tls'))
        client.prepare()
        self.assertEqual({a.tier for a in j.answers(client.all_once())}, {'edge'})
        # Once it knows the token it is asked.
        self.varda.kubectl('patch', 'inferencemodel', 'shared', '--type=merge', '-p', json.dumps(
            {'spec': {'security': {'tokenSecretName': 'digits-token'}}}))
        j.ready(self.varda, 'digits')
        m.wait_until('the cloud answers', lambda: {a.tier for a in j.answers(client.all_once())} == {'cloud'})


if __name__ == '__main__':
    unittest.main()
