"""scripts/as_user.sh: file permissions restrict the command even when root runs it, and the run
leaves nothing behind."""
import os, pathlib, shutil, subprocess, tempfile, unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOSED = 'f=$(mktemp) && echo secret > "$f" && chmod 0 "$f" && cat "$f"; code=$?; rm -f "$f"; exit $code'


class AsUser(unittest.TestCase):
    def run_in(self, checkout, script, environment=None):
        return subprocess.run([checkout / 'scripts/as_user.sh', 'sh', '-c', script], capture_output=True, text=True, timeout=60, cwd=checkout,
                              env=environment)

    def checkout(self, mode):
        """A checkout in a directory with this mode, with a build made by root."""
        parent = pathlib.Path(tempfile.mkdtemp(prefix='varda-checkout-'))
        self.addCleanup(shutil.rmtree, parent)
        tree = parent / 'varda'
        (tree / 'scripts').mkdir(parents=True)
        (tree / 'build/dev').mkdir(parents=True)
        (tree / 'build/dev/CTestTestfile.cmake').touch()
        (tree / 'Makefile').touch()
        shutil.copy(ROOT / 'scripts/as_user.sh', tree / 'scripts')
        parent.chmod(mode)
        return tree

    def test_unreadable_file_stays_unreadable(self):
        for mode in 0o755, 0o700:
            done = self.run_in(self.checkout(mode), CLOSED)
            self.assertEqual((done.returncode, done.stdout), (1, ''), done.stderr)
            self.assertIn('Permission denied', done.stderr)

    def test_exit_code_of_the_command_is_returned(self):
        self.assertEqual(self.run_in(self.checkout(0o755), 'exit 7').returncode, 7)

    @unittest.skipUnless(os.geteuid() == 0, 'an ordinary user has no closed programs in PATH')
    def test_root_skips_programs_that_the_user_cannot_reach(self):
        checkout = self.checkout(0o755)
        hidden = checkout.parent / 'hidden'
        hidden.mkdir(mode=0o700)
        (hidden / 'sh').write_text('#!/bin/sh\necho hidden\n')
        (hidden / 'sh').chmod(0o755)
        done = self.run_in(checkout, 'echo found', {**os.environ, 'PATH': '%s:%s' % (hidden, os.environ['PATH'])})
        self.assertEqual((done.returncode, done.stdout), (0, 'found\n'), done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, 'an ordinary user stays the same user')
    def test_root_switches_to_a_user_with_fresh_directories(self):
        for mode, user in (0o755, 'nobody'), (0o700, 'root'):
            checkout = self.checkout(mode)
            done = self.run_in(checkout, 'id -un; touch "$HOME/a" "$TMPDIR/b" build/dev/Testing/c && echo "$HOME"')
            self.assertEqual(done.returncode, 0, done.stderr)
            name, home = done.stdout.split()
            self.assertEqual(name, user)
            self.assertFalse(os.path.exists(home))
            self.assertTrue((checkout / 'build/dev/Testing/c').exists())
            self.assertIn('as nobody' if user == 'nobody' else 'cannot reach', done.stderr)


if __name__ == '__main__':
    unittest.main()
