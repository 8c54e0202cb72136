"""Plays Varda's main job against a cluster, with kubectl only, and reports the result of each
step."""
import argparse, pathlib, random, shutil, signal, sys, tempfile, time, traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import data  # noqa: E402
from cluster import Cluster  # noqa: E402
from kubectl import Failed, Kubectl, wait_until  # noqa: E402
from report import Report, Skipped  # noqa: E402
from steps import Steps  # noqa: E402

STOPS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
LAYERS = {'edge': ('edge-apply', 'edge-predict', 'edge-switch', 'edge-wrong-digest', 'edge-back', 'events'),
          'cloud': ('cloud-apply', 'cloud-balance', 'cloud-scale', 'cloud-heal', 'cloud-cluster-ip')}


def options_of(arguments):
    p = argparse.ArgumentParser(prog='cluster.sh', description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument('--kubeconfig', metavar='FILE', help='the cluster, with a user who may do everything (default: that of kubectl)')
    p.add_argument('--context', metavar='NAME', help='context of the kubeconfig')
    p.add_argument('--kubectl', metavar='PATH', default='kubectl', help='any version from 1.20 on')
    p.add_argument('--node', metavar='NAME', help='the edge node (default: the first EdgeNode that is connected)')
    p.add_argument('--timeout', metavar='SECONDS', type=int, default=600, help='time limit of a step for each state')
    p.add_argument('--image', metavar='IMAGE', default='localhost/varda:0.1.0', help='image of varda, for the file server and the clients')
    p.add_argument('--files-url', metavar='URL', default='', help='file server with the archives of --write-archives')
    p.add_argument('--files-node', metavar='NAME', default='', help='node of the file server without --files-url (default: one outside of the edge)')
    p.add_argument('--files-port', metavar='PORT', type=int, default=random.randrange(20000, 24000), help='port of the file server')
    p.add_argument('--files-pod-network', action='store_true', help='run the file server in the network of pods, not at its node\'s address')
    p.add_argument('--edge-port', metavar='PORT', type=int, default=random.randrange(24000, 28000), help='port of the edge model on its node')
    p.add_argument('--clients-node', metavar='NAME', default='', help='node of the clients of the edge model (default: the model\'s node)')
    p.add_argument('--rate', metavar='N', type=float, default=40, help='requests of a load per second')
    p.add_argument('--load-seconds', metavar='SECONDS', type=int, default=5, help='time of a load after the awaited event')
    p.add_argument('--dataset-path', metavar='PATH', default='', help='path on the edge node, below an allowed dataset root')
    p.add_argument('--dataset-format', metavar='FORMAT', default='csv', help='format of the dataset')
    p.add_argument('--dataset-samples', metavar='N', type=int, help='expected number of samples')
    p.add_argument('--chaos', metavar='CMD', default='', help='shell command that runs in the middle of each step ($VARDA_STEP names it)')
    p.add_argument('--skip', metavar='STEP', action='append', default=[], help='leave out a step, or "edge" or "cloud"; repeatable')
    p.add_argument('--namespace', metavar='NAME', default='', help='namespace that the run makes and removes (default: a new name)')
    p.add_argument('--keep', action='store_true', help='keep all objects at the end')
    p.add_argument('--write-archives', metavar='DIR', help='only write the model archives there')
    return p.parse_args(arguments)


def play(steps, report, options):
    off = {s: 'left out by --skip' for word in options.skip for s in LAYERS.get(word, (word,))}
    unknown = set(off) - {name for name, _, _ in steps.all}
    if unknown:
        raise SystemExit('cluster.sh: --skip %s: there is no such step' % ', '.join(sorted(unknown)))
    if not options.dataset_path:
        off.setdefault('dataset', 'not asked for (--dataset-path)')
    for name, needs, work in steps.all:
        begin, lines = time.monotonic(), []
        steps.c.step = name
        try:
            if name in off:
                outcome, lines = 'off', [off[name]]
            elif not report.held(*needs):
                failed = any(report.outcomes.get(n) == 'fail' for n in needs)
                outcome, lines = 'fail' if failed else 'skip', ['%s did not pass' % ', '.join(n for n in needs if not report.held(n))]
            else:
                outcome, lines = 'pass', work()
        except Skipped as e:
            outcome, lines = 'skip', [str(e)]
        except Failed as e:
            outcome, lines = 'fail', str(e).splitlines()
        # the answer has an unexpected form
        except (AttributeError, LookupError, TypeError, ValueError, OSError):
            outcome, lines = 'fail', traceback.format_exc().strip().splitlines()[::-1]
        report.add_step(name, outcome, time.monotonic() - begin, lines)
        if outcome == 'fail' and name != 'preflight' and report.count('fail') == 1:
            report.say(steps.c.diagnosis())


def clean_up(kubectl, report, options):
    """Deletes models and datasets first, while the operator still cleans up their nodes; then the
    namespace with the rest."""
    begin = time.monotonic()
    try:
        if kubectl.get('namespaces', kubectl.namespace, missing=True, everywhere=True) is None:
            return
        for kind in ('inferencemodels.ai.kubeedge.io', 'datasets.edgeai.io'):
            kubectl('delete', kind, '--all', '--ignore-not-found', '--wait=false')
        wait_until('models and datasets to go', lambda: not kubectl.items('inferencemodels.ai.kubeedge.io,datasets.edgeai.io'), options.timeout)
        kubectl('delete', 'namespace', kubectl.namespace, '--ignore-not-found', '--wait=false', everywhere=True)
        wait_until('namespace %s to go' % kubectl.namespace,
                   lambda: kubectl.get('namespaces', kubectl.namespace, missing=True, everywhere=True) is None, options.timeout)
        report.add_step('clean-up', 'pass', time.monotonic() - begin, ['namespace %s is gone' % kubectl.namespace])
    except Failed as e:
        report.add_step('clean-up', 'fail', time.monotonic() - begin, str(e).splitlines())


def main():
    options = options_of(sys.argv[1:])
    if options.write_archives:
        for version in data.versions().values():
            path = pathlib.Path(options.write_archives) / version.file
            path.write_bytes(version.bytes)
            print('%s  %s' % (version.sha256, path))
        return 0
    begin, report = time.monotonic(), Report()
    cache = tempfile.mkdtemp(prefix='varda-conformance-')
    kubectl = Kubectl(options.kubectl, options.kubeconfig, options.context, cache, options.timeout)
    kubectl.namespace = options.namespace or 'varda-conformance-%05x' % random.randrange(16 ** 5)

    def stop(number, frame):
        raise KeyboardInterrupt(signal.Signals(number).name)
    for number in STOPS:
        signal.signal(number, stop)
    interrupted = False
    try:
        play(Steps(Cluster(kubectl, options)), report, options)
    except KeyboardInterrupt as e:
        interrupted = True
        print('stopped by %s; cleaning up' % e, file=sys.stderr, flush=True)
    finally:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)  # a second signal waits for the clean-up
        if options.keep:
            print('namespace %s is kept' % kubectl.namespace, flush=True)
        else:
            clean_up(kubectl, report, options)
        shutil.rmtree(cache, ignore_errors=True)
    if kubectl.retries:
        print('%d calls of kubectl were repeated' % kubectl.retries)
    code = report.summary(begin)
    return 130 if interrupted else code


if __name__ == '__main__':
    sys.exit(main())
