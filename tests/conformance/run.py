#!/usr/bin/python3
"""Run the recorded API cases on our server and compare with the known differences.

  run.py BINARY [ARGS...] [-- apicases options]

BINARY is started as `BINARY [ARGS...] DIR 127.0.0.1:0`, or, when it is named varda, as `varda
apiserver --data-dir DIR --listen 127.0.0.1:0`; it prints a line with the word "ready". Exit code
0: every case outside known_differences.json agrees, and every case in it still differs. A case
that agrees must leave the list. Python 3 standard library only.
"""
import glob, json, os, signal, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def start(command, directory, log):
    if os.path.basename(command[0]) == 'varda':
        command = command + ['apiserver', '--data-dir', directory, '--listen', '127.0.0.1:0']
    else:
        command = command + [directory, '127.0.0.1:0']
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    for line in server.stdout:
        if 'ready' in line:
            return server
    sys.exit('%s ended with %s before it was ready:\n%s' % (command[0], server.wait(), open(log.name).read()[-2000:]))


def replay(directory, options, report):
    config = open(os.path.join(directory, 'kubeconfig')).read()
    url = next(line.split('server:')[1].strip() for line in config.splitlines() if 'server:' in line)
    token = next(t['token'] for t in json.load(open(os.path.join(directory, 'tokens.json'))) if 'system:masters' in t['groups'])
    topics = sorted(f for f in glob.glob(os.path.join(HERE, '*.json'))
                    if os.path.basename(f) not in ('fixtures.json', 'known_differences.json'))
    command = [sys.executable, os.path.join(HERE, 'apicases.py'), 'replay', '--server', url, '--token', token,
               '--ca', os.path.join(directory, 'pki', 'ca.crt'), '--quiet', '--report', report] + options + topics
    done = subprocess.run(command, text=True, capture_output=True, timeout=600)
    print(done.stdout.rstrip())
    if not os.path.exists(report):
        sys.exit('the runner failed:\n' + done.stderr[-3000:])
    return json.load(open(report))


def judge(report, known, partial):
    wrong = 0
    for name, outcome in sorted(report.items()):
        if not outcome['ok'] and name not in known:
            print('--- %s / %s differs' % (outcome['topic'], name))
            print('\n'.join(outcome['diff']))
            wrong += 1
        if outcome['ok'] and name in known:
            print('--- %s / %s agrees now: take it out of known_differences.json' % (outcome['topic'], name))
            wrong += 1
    if not partial:
        for name in sorted(set(known) - set(report)):
            print('--- known_differences.json names %s, which is no case' % name)
            wrong += 1
    agreeing = sum(1 for o in report.values() if o['ok'])
    print('%d of %d cases agree, %d differ knowingly, %d surprises' % (agreeing, len(report), len(report) - agreeing - wrong, wrong))
    return wrong


def main():
    arguments = sys.argv[1:]
    options = []
    if '--' in arguments:
        at = arguments.index('--')
        arguments, options = arguments[:at], arguments[at + 1:]
    if not arguments:
        sys.exit(__doc__)
    known = json.load(open(os.path.join(HERE, 'known_differences.json')))['cases']
    with tempfile.TemporaryDirectory(prefix='varda-conformance-') as directory:
        with open(os.path.join(directory, 'server.log'), 'w') as log:
            server = start(arguments, directory, log)
            try:
                report = replay(directory, options, os.path.join(directory, 'report.json'))
            finally:
                server.send_signal(signal.SIGTERM)
                try:
                    code = server.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    server.kill()
                    code = 'no answer to SIGTERM'
        wrong = judge(report, known, '--only' in options)
        if code != 0:
            print('the server ended with %s:\n%s' % (code, open(os.path.join(directory, 'server.log')).read()[-2000:]))
            wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == '__main__':
    main()
