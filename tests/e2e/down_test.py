"""`varda down` leaves no process, whatever was killed or is starting; `varda up` replaces dead
processes at once."""
import os, pathlib, pty, signal, subprocess, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import machine as m  # noqa: E402


class Down(unittest.TestCase):
    def start(self, varda):
        return subprocess.Popen([m.VARDA, 'up', '--data-dir', str(varda.dir), '--listen', '127.0.0.1:0'], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def test_down_ends_a_starting_up(self):
        with m.Machine(nodes=['cloud=cloud', 'edge0=edge']) as varda:
            varda.up()
            varda.down()
            for sign in ('up.lock', 'nodes/edge0/agent.kubeconfig', 'nodes/edge0/agent.json'):
                with self.subTest(started=sign):
                    (varda.dir / sign).unlink(missing_ok=True)
                    up = self.start(varda)
                    m.wait_until(sign, (varda.dir / sign).exists, every=0.001)
                    varda.down()
                    self.assertEqual(up.wait(180), 0)
                    self.assertEqual(varda.processes(), {})

    def in_a_terminal(self, varda, *before):
        """Returns the test's end of a terminal, and `varda up` as the session leader of that
        terminal."""
        controller, terminal = pty.openpty()
        command = [*before, m.VARDA, 'up', '--data-dir', str(varda.dir), '--listen', '127.0.0.1:0', '--node', 'edge0=edge']
        # A child inherits an ignored SIGHUP, and the tests may run under nohup.
        up = subprocess.Popen(['setsid', '--ctty', *command], stdin=terminal, stdout=terminal, stderr=terminal,
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        os.close(terminal)
        output = b''
        while b'varda is ready' not in output:
            output += os.read(controller, 4096)
        return controller, up

    def test_closed_terminal_ends_up_and_its_processes(self):
        with m.Machine() as varda:
            terminal, up = self.in_a_terminal(varda)
            self.assertTrue(any(' agent ' in c for c in varda.processes().values()))
            os.close(terminal)
            self.assertEqual(up.wait(180), 0)
            self.assertEqual(varda.processes(), {})

    def test_up_outlives_its_terminal_under_nohup(self):
        with m.Machine() as varda:
            terminal, up = self.in_a_terminal(varda, 'sh', '-c', 'trap "" HUP; exec "$@"', 'sh')
            os.close(terminal)
            self.assertIn('edge0', varda.varda('get', 'nodes'))
            self.assertIsNone(up.poll())
            varda.down()
            self.assertEqual(up.wait(180), 0)

    def test_down_ends_processes_after_kills(self):
        with m.Machine(nodes=['cloud=cloud', 'edge0=edge']) as varda:
            for victims in ((' up ',), (' up ', ' agent '), (' agent ',)):
                with self.subTest(killed=victims):
                    varda.up()
                    for pid, command in varda.processes().items():
                        if any(v in command for v in victims):
                            os.kill(pid, signal.SIGKILL)
                    varda.down()
                    self.assertEqual(varda.processes(), {})

    def test_down_ends_unrecorded_agents(self):
        with m.Machine(nodes=['edge0=edge']) as varda:
            varda.up()
            m.wait_until('an agent', lambda: any(' agent ' in c for c in varda.processes().values()))
            for pid, command in varda.processes().items():
                if ' up ' in command:
                    os.kill(pid, signal.SIGKILL)
            (varda.dir / 'nodes/edge0/agent.json').unlink(missing_ok=True)
            varda.down()
            self.assertEqual(varda.processes(), {})

    def test_up_replaces_one_that_was_just_killed(self):
        with m.Machine(nodes=['edge0=edge']) as varda:
            varda.up()
            for _ in range(5):
                for pid, command in varda.processes().items():
                    if ' up ' in command:
                        os.kill(pid, signal.SIGKILL)
                varda.up()
            m.wait_until('one agent', lambda: sum(' agent ' in c for c in varda.processes().values()) == 1)


if __name__ == '__main__':
    unittest.main()
