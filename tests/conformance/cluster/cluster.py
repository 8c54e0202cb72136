"""The cluster under test: repeated requests, and the chaos in the middle of a step."""
import json, os, subprocess, time

import objects
from kubectl import Failed, wait_until


def true_condition(thing, kind):
    return any(c['type'] == kind and c['status'] == 'True' for c in thing.get('status', {}).get('conditions', []))


def labels_of(thing):
    return thing['metadata'].get('labels') or {}


class Cluster:
    def __init__(self, kubectl, options):
        self.kubectl, self.options, self.timeout = kubectl, options, options.timeout
        self.nodes, self.step, self.shaken, self.jobs = {}, '', '', 0

    # ---- nodes
    def look_at_nodes(self):
        self.nodes = {n['metadata']['name']: n for n in self.kubectl.items('nodes', everywhere=True)}

    def is_edge(self, node):
        return objects.EDGE_LABEL in labels_of(self.nodes[node])

    def cloud_nodes(self):
        return sorted(n for n in self.nodes if not self.is_edge(n) and true_condition(self.nodes[n], 'Ready')
                      and not self.nodes[n].get('spec', {}).get('unschedulable'))

    def has_containers(self, node=None):
        """False on nodes of `varda up`: these run pods as processes, without cluster addresses or
        files for termination messages."""
        some = [self.nodes[node]] if node else self.nodes.values()
        return not any(n.get('status', {}).get('nodeInfo', {}).get('containerRuntimeVersion', '').startswith('varda://') for n in some)

    # ---- waiting
    def wait(self, what, probe):
        return wait_until(what, probe, self.timeout)

    def settle(self, what, probe):
        """Waits for a state. With --chaos the command runs meanwhile, once a step, and the state
        must still hold after the command."""
        if not self.options.chaos or self.shaken == self.step:
            return self.wait(what, probe)
        self.shaken = self.step
        environment = dict(os.environ, VARDA_STEP=self.step, VARDA_NAMESPACE=self.kubectl.namespace or '')
        chaos = subprocess.Popen(['/bin/sh', '-c', self.options.chaos], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env=environment, start_new_session=True, text=True, errors='replace')
        try:
            self.wait(what, probe)
            output, _ = chaos.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            raise Failed('the chaos command has not ended within %d s' % self.timeout)
        finally:
            if chaos.poll() is None:
                os.killpg(chaos.pid, 15)
                chaos.wait()
        if chaos.returncode != 0:
            raise Failed('the chaos command ended with %d: %s' % (chaos.returncode, output[-500:]))
        return self.wait(what + ', after the chaos', probe)

    # ---- models
    def model(self, name):
        return self.kubectl.get('inferencemodels.ai.kubeedge.io', name)

    def serves(self, name, version):
        """A probe: the model is Ready with this version, and the status describes the current
        spec."""
        def probe():
            model = self.model(name)
            status = model.get('status', {})
            fresh = status.get('observedGeneration') == model['metadata']['generation']
            good = fresh and true_condition(model, 'Ready') and status.get('url') and status.get('servingVersion') == version
            return model if good else self.words(model)
        return lambda: self.only_objects(probe())

    @staticmethod
    def only_objects(found):
        if isinstance(found, dict):
            return found
        raise ValueError(found)

    @staticmethod
    def words(model):
        """One line that explains why a model is not in the expected state."""
        status = model.get('status', {})
        return '; '.join(['servingVersion %s' % status.get('servingVersion')] + [
            '%s=%s %s: %s' % (c['type'], c['status'], c.get('reason'), c.get('message')) for c in status.get('conditions', [])])

    def ready_pods(self, selector):
        return [p for p in self.kubectl.items('pods', '-l', selector) if not p['metadata'].get('deletionTimestamp') and true_condition(p, 'Ready')]

    # ---- runs of varda inside the cluster
    def start(self, purpose, args, place, report):
        self.jobs += 1
        name = '%s-%d' % (purpose, self.jobs)
        self.kubectl.apply(objects.job(name, self.options.image, args, place, report))
        return name

    def pods_of(self, job):
        return self.kubectl.items('pods', '-l', 'app=' + job)

    def ended(self, job):
        """A probe: (the report of the run, the number of restarts), once the run has ended."""
        def probe():
            status = self.kubectl.get('jobs', job).get('status', {})
            conditions = {c['type']: c for c in status.get('conditions', []) if c['status'] == 'True'}
            pods = self.pods_of(job)
            if 'Failed' in conditions:
                raise Failed('job %s: %s; %s' % (job, conditions['Failed'].get('message'), '; '.join(map(self.pod_message, pods))))
            if 'Complete' not in conditions:
                raise ValueError('; '.join(map(self.pod_message, pods)))
            for pod in pods:
                if pod['status'].get('phase') != 'Succeeded':
                    continue
                state = pod['status']['containerStatuses'][0]
                word = state['state'].get('terminated', {}).get('message')
                text = word if word else self.kubectl('logs', pod['metadata']['name'], timeout=30)
                begun = len(pods) - 1 + state.get('restartCount', 0)
                return json.loads(text[text.index('{'):]), begun
            return None
        return probe

    @staticmethod
    def pod_message(pod):
        """The phase of a pod, and the last output of its container."""
        out = [pod['metadata']['name'], pod['status'].get('phase', '')]
        for container in pod['status'].get('containerStatuses', []):
            for state in (container.get('state', {}), container.get('lastState', {})):
                for name, facts in state.items():
                    out.append(' '.join(str(x) for x in (name, facts.get('reason', ''), facts.get('message', '').strip()) if x))
        return ' '.join(out)

    def running(self, job):
        return lambda: any(p['status'].get('phase') in ('Running', 'Succeeded') for p in self.pods_of(job))

    def predict(self, model, url, place, report):
        """Sends the whole test split from inside the cluster."""
        patience = '%ds' % self.timeout
        return self.start('predict', ['predict', model, '--url', url, '--images', '/data/test-images.idx3-ubyte', '--labels',
                                      '/data/test-labels.idx1-ubyte', '--wait', patience, '-o', 'json'], place, report)

    def load(self, model, url, place, report, *more):
        return self.start('load', ['predict', model, '--url', url, '--images', '/data/test-images.idx3-ubyte', '--wait', '%ds' % self.timeout,
                                   '--rate', str(self.options.rate), '--longest', '%ds' % self.timeout, '-o', 'json', *more], place, report)

    # ---- diagnosis
    def diagnosis(self):
        """The objects and logs that a person would look at."""
        out = []
        for what in (('get', 'inferencemodels.ai.kubeedge.io,deployments,services,jobs,pods', '-o', 'wide'),
                     ('get', 'edgenodes.edgeai.io', '-o', 'wide'), ('get', 'events', '--sort-by=.lastTimestamp')):
            try:
                text = self.kubectl(*what, timeout=20)
            except Failed as e:
                text = str(e)
            out.append('$ kubectl ' + ' '.join(what) + '\n' + '\n'.join(text.splitlines()[-25:]))
        for model in ('digits', 'digits-cloud'):
            try:
                found = self.kubectl.get('inferencemodels.ai.kubeedge.io', model, missing=True, timeout=20)
                if found:
                    out.append(model + ': ' + self.words(found))
            except Failed:
                pass
        return '\n'.join(out)

    def pause(self, seconds):
        time.sleep(seconds)
