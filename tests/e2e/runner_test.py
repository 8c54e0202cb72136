"""run.py and tests/skips.py, tested with small generated test files."""
import json, os, pathlib, re, shutil, subprocess, sys, tempfile, textwrap, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402

RUN = pathlib.Path(__file__).resolve().with_name('run.py')
SKIPS = RUN.parents[1] / 'skips.py'


class Base(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix='varda-runner-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.expect('')

    def expect(self, text):
        (self.work / 'expected').write_text(text)

    def write(self, name, text):
        (self.work / name).write_text('import os, subprocess, sys, time, unittest\n\n' + textwrap.dedent(text))

    def python(self, script, *words, **environment):
        done = subprocess.run([sys.executable, script, *map(str, words)], capture_output=True, text=True, timeout=m.seconds(300),
                              env={**{k: v for k, v in os.environ.items() if k != 'VARDA_SOAK'}, **environment})
        return done.returncode, done.stdout + done.stderr


class Runner(Base):
    def run_files(self, *words, **environment):
        """(exit code, output, last line of the output)"""
        code, output = self.python(RUN, '--directory', self.work, '--expected', self.work / 'expected', *words, **environment)
        return code, output, output.splitlines()[-1]

    def test_passing_files_are_counted_and_their_output_is_hidden(self):
        self.write('a_test.py', '''
            class A(unittest.TestCase):
                def test_one(self):
                    print('said by one')
                def test_two(self):
                    open(os.path.join(os.path.dirname(__file__), 'a.dir'), 'w').write(os.environ['TMPDIR'])
        ''')
        self.write('b_test.py', '''
            class B(unittest.TestCase):
                def test_three(self):
                    open(os.path.join(os.path.dirname(__file__), 'b.dir'), 'w').write(os.environ['TMPDIR'])
        ''')
        code, output, last = self.run_files()
        directories = {(self.work / name).read_text() for name in ('a.dir', 'b.dir')} | {tempfile.gettempdir()}
        self.assertEqual(len(directories), 3, 'a TMPDIR of its own for each part')
        self.assertEqual((code, last), (0, '3 passed, 0 failed, 0 skipped'), output)
        self.assertRegex(output, r'(?m)^ok +[0-9.]+ s  a_test\.py: 2 passed$')
        self.assertRegex(output, r'(?m)^ +[0-9.]+ s  b_test\.B\.test_three$')
        self.assertNotIn('said by one', output)
        self.assertEqual(self.run_files('b_test.py')[2], '1 passed, 0 failed, 0 skipped')
        self.assertEqual(self.run_files('a_test.A.test_one', 'b_test.B')[2], '2 passed, 0 failed, 0 skipped')
        self.assertEqual(self.run_files('c_test.py')[0], 1)

    def test_every_kind_of_failure_fails_the_run(self):
        cases = {
            'assertion': ('class A(unittest.TestCase):\n    def test_x(self):\n        self.assertTrue(0, "why it failed")\n', 'why it failed'),
            'sub-test': ('class A(unittest.TestCase):\n    def test_x(self):\n        with self.subTest(n=7):\n            self.fail()\n', 'n=7'),
            'set-up': ('class A(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        raise OSError("no set-up")\n'
                       '    def test_x(self):\n        pass\n', 'no set-up'),
            'tear-down': ('class A(unittest.TestCase):\n    @classmethod\n    def tearDownClass(cls):\n        raise OSError("no end")\n'
                          '    def test_x(self):\n        pass\n', 'no end'),
            'surprise': ('class A(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_x(self):\n        pass\n', 'unexpected success'),
            'import': ('import nothing_of_this_name\n', 'nothing_of_this_name'),
            'death': ('class A(unittest.TestCase):\n    def test_x(self):\n        os._exit(3)\n', 'ended with 3'),
            'no test': ('', 'ran no test'),
        }
        for name, (text, expected) in cases.items():
            with self.subTest(name):
                self.write('a_test.py', text)
                code, output, last = self.run_files()
                self.assertEqual(code, 1, output)
                self.assertIn(expected, output)
                self.assertRegex(last, r'^\d+ passed, [1-9]\d* failed, 0 skipped$')

    def test_hanging_part_is_killed_with_its_group(self):
        self.write('a_test.py', '''
            class A(unittest.TestCase):
                def test_a_before(self):
                    pass
                def test_hangs(self):
                    print(subprocess.Popen(['sleep', '1000']).pid, 'is its child', flush=True)
                    time.sleep(1000)
        ''')
        code, output, last = self.run_files('--limit', '20', VARDA_E2E_SLOWNESS='1')
        self.assertEqual((code, last), (1, '1 passed, 1 failed, 0 skipped'), output)
        self.assertIn('killed after 20 s', output)
        child = int(re.search(r'(\d+) is its child', output)[1])
        m.wait_until('its end', lambda: not os.path.exists('/proc/%d' % child) or ') Z ' in pathlib.Path('/proc/%d/stat' % child).read_text())

    def test_process_that_outlives_its_part_is_killed_and_named(self):
        self.write('a_test.py', '''
            class A(unittest.TestCase):
                def test_leaves(self):
                    subprocess.Popen(['sleep', '1001'], start_new_session=True, cwd=os.environ['TMPDIR'] + '/..',
                                     env={'VARDA_HERE': os.environ['TMPDIR']})
        ''')
        code, output, last = self.run_files()
        self.assertEqual((code, last), (1, '1 passed, 1 failed, 0 skipped'), output)
        self.assertIn('left processes behind: sleep 1001', output)
        for words in '', ', env={}', ', start_new_session=True':
            self.write('a_test.py', '''
                class A(unittest.TestCase):
                    def test_leaves(self):
                        subprocess.Popen(['sleep', '1002']%s)
            ''' % words)
            self.assertIn('left processes behind: sleep 1002', self.run_files()[1], words)

    def test_signal_ends_every_part(self):
        for name in 'ab':
            self.write(name + '_test.py', '''
                class A(unittest.TestCase):
                    def test_hangs(self):
                        open(os.path.join(os.path.dirname(__file__), str(os.getpid()) + '.pid'), 'w').close()
                        time.sleep(1000)
            ''')
        runner = subprocess.Popen([sys.executable, RUN, '--directory', self.work, '--expected', self.work / 'expected'], stdout=subprocess.DEVNULL)
        self.addCleanup(runner.kill)
        m.wait_until('both parts', lambda: len(list(self.work.glob('*.pid'))) == 2)
        runner.terminate()
        runner.terminate()
        self.assertEqual(runner.wait(m.seconds(180)), 143)
        self.assertEqual([p for p in self.work.glob('*.pid') if os.path.exists('/proc/' + p.stem)], [])

    def test_long_file_is_split_and_durations_are_recorded(self):
        self.write('a_test.py', '''
            class A(unittest.TestCase):
                def test_x(self):
                    pass
            class B(A):
                pass
        ''')
        self.write('b_test.py', '''
            class C(unittest.TestCase):
                def test_x(self):
                    pass
        ''')
        (self.work / 'durations.json').write_text(json.dumps({'a_test.A': 1000, 'a_test.B': 1, 'b_test.C': 50, 'gone_test.D': 3}))
        code, output, last = self.run_files('--jobs', '1', '--learn')
        self.assertEqual((code, last), (0, '3 passed, 0 failed, 0 skipped'), output)
        self.assertEqual(re.findall(r'(?m)^ok +[0-9.]+ s  (\S+):', output), ['a_test.A', 'b_test.py', 'a_test.B'])
        learnt = json.loads((self.work / 'durations.json').read_text())
        self.assertEqual(set(learnt), {'a_test.A', 'a_test.B', 'b_test.C'})
        self.assertLess(max(learnt.values()), 50)

    def test_skips_are_listed_and_must_be_expected(self):
        self.write('a_test.py', '''
            class A(unittest.TestCase):
                @unittest.skipUnless(os.environ.get('PLENTY'), 'takes long')
                def test_long(self):
                    pass
                def test_x(self):
                    pass
            class B(unittest.TestCase):
                @classmethod
                def setUpClass(cls):
                    raise unittest.SkipTest('nothing there')
                def test_y(self):
                    pass
        ''')
        code, output, last = self.run_files()
        self.assertEqual((code, last), (1, '1 passed, 0 failed, 2 skipped'), output)
        self.assertIn('unexpected skip: a_test.A.test_long: takes long', output)
        self.assertIn('unexpected skip: a_test.B.setUpClass: nothing there', output)
        self.expect('# a comment\n\na_test.A.test_long unless=PLENTY long\na_test.B.* machine it lacks something\nother_test.* always elsewhere\n')
        code, output, last = self.run_files()
        self.assertEqual((code, last), (0, '1 passed, 0 failed, 2 skipped'), output)
        self.assertEqual(self.run_files(PLENTY='1')[::2], (0, '2 passed, 0 failed, 1 skipped'))
        self.expect('a_test.A.test_long if=PLENTY long\na_test.B.* machine it lacks something\n')
        code, output, _ = self.run_files(PLENTY='1')
        self.assertEqual(code, 1)
        self.assertIn('line 1 of the expected skips is out of date: a_test.A.test_long ran', output)


GTEST = '''<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="0" disabled="1" errors="0" time="2" timestamp="2026-01-01T00:00:00" name="AllTests">
  <testsuite name="Tree" tests="3" failures="0" disabled="1" skipped="1" errors="0" time="2" timestamp="2026-01-01T00:00:00">
    <testcase name="IsRead" file="a.cc" line="1" status="run" result="completed" time="1.25" timestamp="2026-01-01T00:00:00" classname="Tree" />
    <testcase name="IsRefused" file="a.cc" line="2" status="run" result="skipped" time="0" timestamp="2026-01-01T00:00:00" classname="Tree">
      <skipped message="a.cc:3&#x0A;root may read everything"><![CDATA[a.cc:3
root may read everything]]></skipped>
    </testcase>
    <testcase name="DISABLED_Later" file="a.cc" line="4" status="notrun" result="suppressed" time="0" timestamp="2026-01-01T00:00:00" classname="Tree" />
  </testsuite>
</testsuites>
'''
CTEST = '''<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="Linux-c++" tests="3" failures="0" disabled="0" skipped="1" hostname="" time="3" timestamp="2026-01-01T00:00:00">
  <testcase name="tree" classname="tree" time="2.5" status="run">
    <system-out>[ RUN      ] Tree.IsRefused
[  SKIPPED ] Tree.IsRefused (0 ms)
[==========] 3 tests from 1 test suite ran. (0 ms total)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Tree.IsRefused
</system-out>
  </testcase>
  <testcase name="cli_reference" classname="cli_reference" time="0.1" status="notrun">
    <skipped message="SKIP_RETURN_CODE=77"/>
  </testcase>
</testsuite>
'''


class Junit(Base):
    def test_skips_of_ctest_and_gtest_must_be_expected(self):
        (self.work / 'gtest.xml').write_text(GTEST)
        (self.work / 'ctest.xml').write_text(CTEST)
        self.expect('cli_reference always x\n')
        words = ['junit', self.work / 'gtest.xml', self.work / 'ctest.xml', '--expected', self.work / 'expected', '--slowest', '20']
        code, output = self.python(SKIPS, *words)
        self.assertEqual(code, 1, output)
        self.assertEqual([line for line in output.splitlines() if line.startswith('unexpected')], [
            'unexpected skip: Tree.IsRefused: a.cc:3 root may read everything', 'unexpected skip: Tree.DISABLED_Later: disabled'])
        self.assertRegex(output, r'(?s)the 2 slowest tests:\n +2\.50 s  tree\n +1\.25 s  Tree\.IsRead\n3 skipped:\n')
        self.expect('cli_reference always x\nTree.* machine x\n')
        self.assertEqual(self.python(SKIPS, *words)[0], 0)
        # The results of ctest alone contain these skips too.
        self.expect('cli_reference always x\n')
        code, output = self.python(SKIPS, 'junit', self.work / 'ctest.xml', '--expected', self.work / 'expected')
        self.assertEqual(code, 1)
        self.assertIn('unexpected skip: Tree.IsRefused: skipped, says the output of tree', output)

    def test_invalid_files_are_refused(self):
        (self.work / 'empty.xml').write_text('<testsuite/>')
        self.assertEqual(self.python(SKIPS, 'junit', self.work / 'empty.xml')[0], 1)
        (self.work / 'ctest.xml').write_text(CTEST)
        for line in ('cli_reference', 'cli_reference sometimes x', 'cli_reference if= x'):
            self.expect(line + '\n')
            code, output = self.python(SKIPS, 'junit', self.work / 'ctest.xml', '--expected', self.work / 'expected')
            self.assertNotEqual(code, 0)
            self.assertIn('line 1 is not', output)


if __name__ == '__main__':
    unittest.main()
