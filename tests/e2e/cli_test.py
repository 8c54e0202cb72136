"""The command line without a server: error messages for wrong arguments, and the files that pack
and fetch read and write."""
import json, os, pathlib, re, shutil, subprocess, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-cli-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def run_varda(self, *words, program='varda', environment={}):
        environment = {'PATH': os.environ['PATH'], 'HOME': str(self.work), **environment}
        return subprocess.run([str(m.BIN / program), *map(str, words)], capture_output=True, text=True, timeout=m.seconds(300), env=environment, cwd=self.work)

    def test_usage_error_names_the_argument_and_points_to_help(self):
        for words, named in [(['get', '--bogus'], '--bogus'), (['bogus'], 'bogus'), (['down', 'extra'], 'extra'), (['get'], 'resource'),
                             (['scale', 'im/x', '--replicas', '-1'], '--replicas'), (['predict', 'x', '--images', 'y', '--limit', '-1'], '--limit')]:
            done = self.run_varda(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ''), words)
            self.assertIn(named, done.stderr)
            self.assertIn('--help', done.stderr)
        self.assertIn('Subcommands', self.run_varda().stderr)
        self.assertIn('--bogus', self.run_varda('--bogus', program='varda-serve').stderr)

    def test_config_file_is_read_and_its_errors_are_located(self):
        (self.work / 'wrong.conf').write_text('# a comment\nlisen = 127.0.0.1:0\n')
        for command in ('up', 'apiserver', 'operator', 'gateway', 'agent'):
            words = ['--data-dir', self.work / 'd'] if command in ('up', 'apiserver', 'agent') else []
            missing = self.run_varda(command, '--config', self.work / 'missing.conf', *words)
            self.assertEqual((missing.returncode, missing.stdout), (2, ''), command)
            self.assertIn('missing.conf: No such file', missing.stderr)
            wrong = self.run_varda(command, '--config', self.work / 'wrong.conf', *words)
            self.assertEqual((wrong.returncode, wrong.stdout), (2, ''), command)
            self.assertIn('wrong.conf:2: `varda %s` has no flag "lisen"' % command, wrong.stderr)
        # The file gives the required flag, so the program goes further and finds the directory in
        # use.
        (self.work / 'file').write_text('')
        (self.work / 'right.conf').write_text('data-dir = %s\nlisten = 127.0.0.1:0\n' % (self.work / 'file'))
        right = self.run_varda('apiserver', '--config', self.work / 'right.conf')
        self.assertEqual(right.returncode, 1)
        self.assertIn(str(self.work / 'file'), right.stderr)

    def test_missing_kubeconfig_is_an_error(self):
        (self.work / '.local/share/varda').mkdir(parents=True)
        (self.work / '.local/share/varda/kubeconfig').write_text('another server')
        for words, environment in ((['get', 'im'], {'KUBECONFIG': '/nonexistent'}), (['get', 'im', '--kubeconfig', '/nonexistent'], {})):
            done = self.run_varda(*words, environment=environment)
            self.assertEqual((done.returncode, done.stdout), (1, ''))
            self.assertIn('/nonexistent', done.stderr)
            self.assertNotIn('.local/share', done.stderr)

    def test_version_help_and_completion_are_printed(self):
        version = self.run_varda('--version').stdout
        self.assertRegex(version, r'^varda \d+\.\d+\.\d+\n$')
        for words in (['version'], ['-v']):
            self.assertEqual(self.run_varda(*words).stdout, version)
        self.assertEqual(self.run_varda('help').stdout, self.run_varda('--help').stdout)
        self.assertEqual(self.run_varda('help', 'artifacts', 'ls').stdout, self.run_varda('artifacts', 'ls', '--help').stdout)
        self.assertEqual(self.run_varda('help', 'nothing').returncode, 2)
        self.assertIn('`varda artifacts ls --help`', self.run_varda('artifacts', 'ls').stderr)
        self.assertIn('takes no argument "digits.yaml"; name a file with -f', self.run_varda('apply', 'digits.yaml').stderr)
        self.assertIn('complete -o default', self.run_varda('completion', 'bash').stdout)

    def test_error_without_a_server_explains_how_to_start_one(self):
        for words in (['get', 'pods'], ['doctor'], ['apply', '-f', '-'], ['get', 'pods', '--kubeconfig', self.work / 'nope']):
            done = self.run_varda(*words)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn('varda up', done.stderr)

    def test_invalid_server_table_stops_up_at_start(self):
        table = self.work / 'servers.yaml'
        for text, named in [('tensorflow: {}', 'servers'), ('servers: {tensorflow: {args: x}}', 'tensorflow'), ('servers: {sorcery: {image: a}}', 'sorcery')]:
            table.write_text(text)
            done = self.run_varda('up', '--data-dir', self.work / 'data', '--listen', '127.0.0.1:0', '--servers', table)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn(named, done.stderr)
            self.assertIn('servers.yaml', done.stderr)

    def test_pack_derives_names_from_the_directory(self):
        shutil.copytree(m.DIGITS / 'models/3', self.work / '3')
        done = self.run_varda('pack', '3/')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("version: '3', downloadURL: 'http://HOST/3.tar.gz'", done.stdout)
        self.assertTrue((self.work / '3.tar.gz').exists())
        refused = self.run_varda('pack', '3', '--version-name', 'a b')
        self.assertEqual(refused.returncode, 1)
        self.assertIn('--version-name', refused.stderr)

    def test_pack_accepts_one_file_and_checks_settings(self):
        shutil.copy(m.DIGITS / 'models/3/model.onnx', self.work / 'net.onnx')
        done = self.run_varda('pack', 'net.onnx')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('packed 1 file, ', done.stderr)
        self.assertIn("version: 'net', downloadURL: 'http://HOST/net.tar.gz'", done.stdout)
        shutil.copytree(m.DIGITS / 'models/3', self.work / '3')
        (self.work / '3/model.yaml').write_text('instance: 2\n')
        refused = self.run_varda('pack', '3')
        self.assertEqual(refused.returncode, 1)
        self.assertIn('model.yaml: unknown setting instance', refused.stderr)
        (self.work / '3/model.yaml').unlink()
        inside = self.run_varda('pack', '3', '-o', '3/out.tar.gz')
        self.assertEqual(inside.returncode, 1)
        self.assertIn('-o FILE', inside.stderr)

    def test_example_manifest_contains_the_digests_of_pack(self):
        manifest = (m.DIGITS / 'digits.yaml').read_text()
        for version in ('3', '4'):
            printed = self.run_varda('pack', m.DIGITS / 'models' / version, '-o', self.work / 'x.tar.gz').stdout
            self.assertIn(re.search(r'sha256sum: ([0-9a-f]{64})', printed).group(1), manifest)

    def test_joint_examples_contain_the_digests_of_pack(self):
        def digest(directory):
            printed = self.run_varda('pack', directory, '-o', self.work / 'x.tar.gz').stdout
            return re.search(r'sha256sum: ([0-9a-f]{64})', printed).group(1)
        manifest = (m.ROOT / 'examples/joint/models.yaml').read_text()
        named = dict(re.findall(r'name: (digits-\w+)}.*?sha256: ([0-9a-f]{64})', manifest, re.S))
        self.assertEqual(named, {'digits-' + name: digest(m.DIGITS / 'models' / version) for name, version in (('small', 'small'), ('big', 'big'), ('middle', '4'))})
        guide = (m.ROOT / 'docs/guides/joint-inference.md').read_text()
        declared, = re.findall(r"printf '(preprocess.*)' \| tee", guide)
        for size in 'small', 'big':
            shutil.copytree(m.DIGITS / 'models' / size, self.work / size)
            (self.work / size / 'model.yaml').write_text(declared.replace('\\n', '\n'))
            self.assertIn('digits-%s-png.tar.gz", sha256: %s' % (size, digest(self.work / size)), guide)

    def test_fetch_in_a_pipe_is_quiet_and_keeps_foreign_files(self):
        (self.work / 'www').mkdir()
        printed = self.run_varda('pack', m.DIGITS / 'models/3', '-o', self.work / 'www/3.tar.gz').stdout
        digest = re.search(r'[0-9a-f]{64}', printed).group(0)
        files = m.FileServer(self.work / 'www')
        self.addCleanup(files.stop)
        (self.work / 'thesis').mkdir()
        (self.work / 'thesis/chapter').write_text('years')
        done = self.run_varda('fetch', *m.LOOPBACK, '--url', files.url('3.tar.gz'), '--sha256', digest, '--to', self.work / 'thesis')
        self.assertEqual(done.returncode, 1)
        self.assertIn('thesis', done.stderr)
        self.assertEqual((self.work / 'thesis/chapter').read_text(), 'years')
        done = self.run_varda('fetch', *m.LOOPBACK, '--url', files.url('3.tar.gz'), '--sha256', digest, '--to', self.work / '3')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn('\r', done.stdout + done.stderr)
        self.assertTrue((self.work / '3/model.onnx').exists())

    def test_dataset_count_resumes_after_growth(self):
        (self.work / 'rows.csv').write_bytes(b'name,text\r\n1,"a\r\nb"\r\n2,"c""d"\r\n3,e,f\r\n')
        words = ['dataset', 'count', 'rows.csv', '--format', 'csv', '--state', 'rows.state', '-o', 'json']
        first = json.loads(self.run_varda(*words).stdout)
        self.assertEqual((first['samples'], first['malformed'], first['exact'], first['header'], first['fromByte']), (2, 1, True, 'yes', 0))
        self.assertEqual((first['firstMalformed']['line'], first['firstMalformed']['byte']), (5, 31))
        with open(self.work / 'rows.csv', 'ab') as rows:
            rows.write(b'4,g\r\n')
        again = json.loads(self.run_varda(*words).stdout)
        self.assertEqual((again['samples'], again['fromByte']), (3, first['bytes']))
        self.assertEqual(again['fingerprint'], json.loads(self.run_varda('dataset', 'count', 'rows.csv', '--format', 'csv', '-o', 'json').stdout)['fingerprint'])
        refused = self.run_varda('dataset', 'count', 'rows.csv', '--format', 'parquet')
        self.assertEqual(refused.returncode, 1)
        self.assertIn('imagefolder', refused.stderr)
        self.assertIn('PATH is empty', self.run_varda('dataset', 'count', '', '--format', 'csv').stderr)
        outside = self.run_varda('dataset', 'count', '/etc/passwd', '--format', 'txt', '--allow-files-below', self.work)
        self.assertEqual(outside.returncode, 1)
        self.assertIn('/etc/passwd', outside.stderr)


if __name__ == '__main__':
    unittest.main()
