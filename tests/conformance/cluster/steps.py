"""The steps in the order of the run. Each returns lines about what it saw, or raises Failed or
Skipped."""
import json

import data, objects
from cluster import labels_of, true_condition
from kubectl import Failed, wait_until
from report import Skipped

CRDS = ('inferencemodels.ai.kubeedge.io', 'edgenodes.edgeai.io', 'datasets.edgeai.io', 'models.edgeai.io')
EDGE, CLOUD = 'digits', 'digits-cloud'
SWITCH_ATTEMPTS = 4


def check(condition, what):
    if not condition:
        raise Failed(what)


class Steps:
    """In order: (name, the steps it depends on, the method)."""

    def __init__(self, cluster):
        self.c, self.kubectl, self.options = cluster, cluster.kubectl, cluster.options
        self.versions = data.versions()
        self.node, self.url, self.edge_url, self.cloud_url = '', self.options.files_url, '', ''
        self.all = [
            ('preflight', [], self.preflight), ('files', ['preflight'], self.files),
            ('edge-apply', ['files'], self.edge_apply), ('edge-predict', ['edge-apply'], self.edge_predict),
            ('edge-switch', ['edge-predict'], self.edge_switch), ('edge-wrong-digest', ['edge-switch'], self.edge_wrong_digest),
            ('edge-back', ['edge-switch'], self.edge_back),
            ('cloud-apply', ['files'], self.cloud_apply), ('cloud-balance', ['cloud-apply'], self.cloud_balance),
            ('cloud-scale', ['cloud-apply'], self.cloud_scale), ('cloud-heal', ['cloud-scale'], self.cloud_heal),
            ('cloud-cluster-ip', ['cloud-apply'], self.cloud_cluster_ip),
            ('dataset', ['preflight'], self.dataset), ('events', ['edge-wrong-digest'], self.events), ('delete', ['files'], self.delete)]

    # ---- preconditions
    def preflight(self):
        lines = []
        version = json.loads(self.kubectl('version', '-o', 'json'))
        lines.append('server %s, kubectl %s' % (version['serverVersion']['gitVersion'], version['clientVersion']['gitVersion']))
        missing = [name for name in CRDS if not true_condition(
            self.kubectl.get('customresourcedefinitions', name, missing=True, everywhere=True) or {}, 'Established')]
        check(not missing, 'not established: %s; install Varda first (kubectl apply -f deploy/varda.yaml)' % ', '.join(missing))
        self.c.look_at_nodes()
        lines.append(self.operator())

        def ready_nodes():
            self.c.look_at_nodes()
            return [n for n in self.c.nodes if true_condition(self.c.nodes[n], 'Ready')]
        # A new cluster has no Ready node for a while.
        ready = wait_until('a node to be Ready', ready_nodes, self.options.timeout)
        lines.append('nodes: ' + ', '.join('%s%s' % (n, '' if n in ready else ' (not Ready)') for n in sorted(self.c.nodes)))
        self.node, why = self.edge_node()
        lines.append('edge steps on %s' % self.node if self.node else 'edge steps are skipped: ' + why)
        if not self.c.cloud_nodes():
            lines.append('cloud steps are skipped: every Ready node is an edge node')
        self.kubectl.apply(objects.namespace(self.kubectl.namespace), everywhere=True)
        self.kubectl.apply(data.test_split(), data.config_map('archives', {v.file: v.bytes for v in self.versions.values()}))
        return lines

    def operator(self):
        def leases():
            found = [x for x in self.kubectl.items('leases.coordination.k8s.io', '-A', everywhere=True) if x['metadata']['name'] == 'varda-operator']
            return {x['metadata']['namespace']: x['spec'] for x in found}
        before = leases()
        if not before:
            check(not self.c.has_containers(), 'no Lease varda-operator: no operator has ever led here; see kubectl -n varda-operator get pods')
            return 'the operator is that of varda up'

        # A renewal is a change of renewTime: comparing it with a local clock would fail where
        # clocks differ. A Lease without renewals may belong to a removed installation.
        def renewed():
            for namespace, lease in leases().items():
                if lease.get('holderIdentity') and lease.get('renewTime') != before.get(namespace, {}).get('renewTime'):
                    return 'operator %s leads (Lease %s/varda-operator)' % (lease['holderIdentity'], namespace)
            return None
        return self.c.wait('an operator to renew its Lease varda-operator', renewed)

    def edge_node(self):
        """(name, '') or ('', the reason why no edge node was found)."""
        wanted = self.options.node
        nodes = {n['metadata']['name']: n for n in self.kubectl.items('edgenodes.edgeai.io', everywhere=True)}

        def reported(name):
            return name in nodes and name in self.c.nodes and nodes[name].get('status', {}).get('modelRoot') and true_condition(nodes[name], 'Connected')
        if wanted:
            check(wanted in self.c.nodes, 'there is no node %s' % wanted)

            def agent_connected():
                nodes.update({n['metadata']['name']: n for n in self.kubectl.items('edgenodes.edgeai.io', everywhere=True)})
                return reported(wanted)
            self.c.wait('the agent of node %s to report and be Connected (EdgeNode %s)' % (wanted, wanted), agent_connected)
            return wanted, ''
        # Nodes with the edge label come before nodes that only have an agent.
        found = sorted((n for n in nodes if reported(n)), key=lambda n: (not self.c.is_edge(n), n))
        return (found[0], '') if found else ('', 'no EdgeNode is Connected and has reported (%s): does the agent run?' % (', '.join(sorted(nodes)) or 'none exists'))

    def files(self):
        if self.url:
            return ['archives are taken from ' + self.url]
        name = self.options.files_node or (self.c.cloud_nodes() or [self.node])[0]
        check(name in self.c.nodes, 'there is no node %s' % name)
        own_network = not self.options.files_pod_network
        self.kubectl.apply(objects.file_server(self.options.image, self.options.files_port, objects.on_node(name), own_network))
        pod = self.c.settle('the file server', lambda: self.c.ready_pods('app=files') or self.pod_problem('app=files'))[0]
        address = pod['status']['podIP']
        self.url = 'http://%s:%d' % ('[%s]' % address if ':' in address else address, self.options.files_port)
        return ['%s on node %s' % (self.url, name)]

    def pod_problem(self, selector):
        for pod in self.kubectl.items('pods', '-l', selector):
            states = pod.get('status', {}).get('containerStatuses', [])
            waiting = [s['state']['waiting'] for s in states if 'waiting' in s.get('state', {})]
            raise ValueError('%s is %s: %s' % (pod['metadata']['name'], pod.get('status', {}).get('phase'), waiting))

    def entries(self, *names):
        return [(v.name, self.url.rstrip('/') + '/' + v.file, v.sha256) for v in (self.versions[n] for n in names)]

    # ---- on the edge
    def needs_edge(self):
        if not self.node:
            raise Skipped('there is no edge node with an agent')

    def edge_model(self, entries, target):
        return objects.model(EDGE, 'edge', entries, target, self.options.edge_port, node=self.node)

    def edge_place(self):
        return objects.on_node(self.options.clients_node or self.node), self.c.has_containers(self.options.clients_node or self.node)

    def edge_apply(self):
        self.needs_edge()
        self.kubectl.apply(self.edge_model(self.entries('3', '4'), '3'))
        model = self.c.settle('InferenceModel digits to serve version 3', self.c.serves(EDGE, '3'))
        self.edge_url = model['status']['url']
        pod = self.kubectl.get('pods', EDGE)
        check(pod['spec'].get('nodeName') == self.node, 'the pod runs on %s and not on %s' % (pod['spec'].get('nodeName'), self.node))
        return ['version 3 serves on %s at %s' % (self.node, self.edge_url)]

    def predicted(self, model, url, version, place, report):
        """Sends the real test split and compares the result with the accuracy from training."""
        result, _ = self.c.settle('predictions of ' + model, self.c.ended(self.c.predict(model, url, place, report)))
        reported = self.versions[version].accuracy
        check(result['version'] == version, 'version %s answered, not %s' % (result['version'], version))
        check(result['count'] == data.samples(), '%d of %d images were answered' % (result['count'], data.samples()))
        check(abs(result['accuracy'] - reported) < 1e-9, 'accuracy is %.6f; the training reported %.6f' % (result['accuracy'], reported))
        return 'version %s: accuracy %.4f over %d images, as trained' % (version, result['accuracy'], result['count'])

    def edge_predict(self):
        self.needs_edge()
        return [self.predicted(EDGE, self.edge_url, '3', *self.edge_place())]

    def target(self, version):
        self.kubectl('patch', 'inferencemodels.ai.kubeedge.io', EDGE, '--type=merge', '-p', json.dumps({'spec': {'targetVersion': version}}))

    def edge_switch(self):
        self.needs_edge()
        lines = []
        for attempt in range(SWITCH_ATTEMPTS):
            if attempt:
                self.target('3')
                self.c.wait('version 3 again', self.c.serves(EDGE, '3'))
            before = self.kubectl.get('pods', EDGE)['metadata']['uid']
            job = self.c.load(EDGE, self.edge_url, *self.edge_place(), '--until-version', '4', '--duration',
                              '%ds' % self.options.load_seconds, '--clients', '4')
            self.c.wait('the load to begin', self.c.running(job))
            self.c.pause(2)  # time for requests to version 3; without any, the switch is repeated
            self.target('4')
            self.c.settle('InferenceModel digits to serve version 4', self.c.serves(EDGE, '4'))
            result, begun = self.c.wait('the load to end', self.c.ended(job))
            seen = {v['version']: v['requests'] for v in result['versions']}
            check(result['failures'] == 0, '%d of %d requests failed: %s' % (result['failures'], result['requests'], json.dumps(result['errors'])))
            check(result['reachedVersion'], 'not every client got an answer of version 4: %s' % json.dumps(result['versions']))
            check(result['requests'] > 0 and result['connections']['new'] > 0, 'no requests were sent')
            check(set(seen) <= {'3', '4'}, 'answers of versions %s' % sorted(seen))
            same = self.kubectl.get('pods', EDGE)['metadata']['uid'] == before
            check(same or self.options.chaos, 'the switch replaced the pod')
            if '3' in seen or begun:
                break
        else:
            raise Failed('in %d attempts the switch was over before the load had begun' % SWITCH_ATTEMPTS)
        lines.append('%d requests, 0 failed, %d of them over new connections; version 3 answered %d, version 4 %d; p99 %.1f ms, longest %.1f ms' % (
            result['requests'], result['connections']['new'], seen.get('3', 0), seen['4'], result['latencyMs']['p99'], result['latencyMs']['max']))
        if begun:
            lines.append('the load was restarted %d times: its node was lost' % begun)
        lines.append(self.predicted(EDGE, self.edge_url, '4', *self.edge_place()))
        return lines

    def edge_wrong_digest(self):
        self.needs_edge()
        real, wrong = self.versions['4'].sha256, 'b' * 64
        bad = self.entries('3', '4') + [('5', self.entries('4')[0][1], wrong)]
        self.kubectl.apply(self.edge_model(bad, '5'))

        def reported():
            model = self.c.model(EDGE)
            named = [c for c in model['status']['conditions'] if wrong in c.get('message', '') and real in c.get('message', '')]
            return (named[0], model) if named else self.c.only_objects(self.c.words(model))
        condition, model = self.c.settle('a condition that names both digests', reported)
        check(model['status'].get('servingVersion') == '4', 'servingVersion is %s' % model['status'].get('servingVersion'))
        lines = ['%s=%s %s: %s' % (condition['type'], condition['status'], condition.get('reason'), condition['message'])]
        result, _ = self.c.wait('predictions', self.c.ended(self.c.predict(EDGE, self.edge_url, *self.edge_place())))
        check(result['version'] == '4', 'version %s answers' % result['version'])
        return lines + ['version 4 keeps answering']

    def edge_back(self):
        self.needs_edge()
        self.kubectl.apply(self.edge_model(self.entries('3', '4'), '3'))
        model = self.c.settle('version 3 to serve again', self.c.serves(EDGE, '3'))
        check('b' * 64 not in json.dumps(model['status']['conditions']), 'the condition still names the wrong digest: ' + self.c.words(model))
        return [self.predicted(EDGE, self.edge_url, '3', *self.edge_place())]

    # ---- in the cloud
    def needs_cloud(self):
        if not self.c.cloud_nodes():
            raise Skipped('every Ready node is an edge node')

    def cloud_place(self):
        return objects.CLOUD, all(self.c.has_containers(n) for n in self.c.cloud_nodes())

    def cloud_pods(self, count):
        def probe():
            pods = self.c.ready_pods(objects.MODEL_LABEL + '=' + CLOUD)
            return pods if len(pods) == count else self.pod_problem(objects.MODEL_LABEL + '=' + CLOUD)
        return probe

    def cloud_model(self, replicas, service):
        return objects.model(CLOUD, 'cloud', self.entries('3', '4'), '4', 8080, replicas=replicas, service=service)

    def settled(self, replicas):
        """A probe: all replicas are ready, and the model reports it."""
        pods, serves = self.cloud_pods(replicas), self.c.serves(CLOUD, '4')

        def probe():
            model, found = serves(), pods()
            return (model, found) if found else None
        return probe

    def cloud_apply(self):
        self.needs_cloud()
        self.kubectl.apply(self.cloud_model(2, 'NodePort'))
        model, pods = self.c.settle('two ready pods of digits-cloud', self.settled(2))
        service = self.kubectl.get('services', CLOUD)
        check(service['spec']['type'] == 'NodePort' and service['spec']['ports'][0].get('nodePort'), 'the Service is %s' % service['spec'])
        self.kubectl.get('deployments', CLOUD)
        self.cloud_url = model['status']['url']
        check(self.cloud_url.endswith(':%d' % service['spec']['ports'][0]['nodePort']), 'status.url %s is not the NodePort' % self.cloud_url)
        return ['2 pods on %s, at %s' % (', '.join(sorted({p['spec']['nodeName'] for p in pods})), self.cloud_url),
                self.predicted(CLOUD, self.cloud_url, '4', *self.cloud_place())]

    def balance(self, url):
        """Sends a load over many new connections; returns the number of requests that each pod
        answered."""
        def probe():
            _, pods = self.settled(2)()
            return pods
        pods = self.c.wait('two ready pods', probe)
        urls = ['http://%s:8080' % ('[%s]' % a if ':' in a else a) for a in (p['status']['podIP'] for p in pods)]
        job = self.c.load(CLOUD, url, *self.cloud_place(), '--duration', '%ds' % self.options.load_seconds, '--clients', '4',
                          *[x for u in urls for x in ('--replica', u)])
        result, begun = self.c.wait('the load to end', self.c.ended(job))
        check(result['failures'] == 0, '%d of %d requests failed: %s' % (result['failures'], result['requests'], json.dumps(result['errors'])))
        counts = [r['answered'] for r in result['replicas']]
        check(all(counts), 'not every pod answered: %s' % json.dumps(result['replicas']))
        return '%d requests through %s, %d new connections: the pods answered %s' % (
            result['requests'], url, result['connections']['new'], ' and '.join(map(str, counts)))

    def cloud_balance(self):
        self.needs_cloud()
        lines = self.balance(self.cloud_url)
        self.c.settle('two ready pods still', self.settled(2))
        return [lines]

    def cloud_scale(self):
        self.needs_cloud()
        self.kubectl('scale', 'inferencemodels.ai.kubeedge.io', CLOUD, '--replicas=3')
        self.c.settle('three ready pods', self.settled(3))
        deployment = self.kubectl.get('deployments', CLOUD)
        check(deployment['spec']['replicas'] == 3, 'the Deployment wants %s' % deployment['spec']['replicas'])
        return ['3 pods are ready']

    def cloud_heal(self):
        self.needs_cloud()
        victim = self.c.ready_pods(objects.MODEL_LABEL + '=' + CLOUD)[0]['metadata']
        self.kubectl('delete', 'pod', victim['name'], '--wait=false', '--ignore-not-found')
        probe = self.settled(3)

        def healed():
            model, pods = probe() or (None, [])
            return model if pods and all(p['metadata']['uid'] != victim['uid'] for p in pods) else None
        self.c.settle('three ready pods, none of them %s' % victim['name'], healed)
        return ['%s was deleted; 3 pods are ready again' % victim['name'], self.predicted(CLOUD, self.c.model(CLOUD)['status']['url'], '4', *self.cloud_place())]

    def cloud_cluster_ip(self):
        self.needs_cloud()
        self.kubectl.apply(self.cloud_model(2, 'ClusterIP'))

        def changed():
            service = self.kubectl.get('services', CLOUD)
            found = self.settled(2)()
            return (service, found[0]) if service['spec']['type'] == 'ClusterIP' and found else None
        service, model = self.c.settle('a Service of type ClusterIP and two ready pods', changed)
        check(not service['spec']['ports'][0].get('nodePort'), 'a node port is left: %s' % service['spec']['ports'])
        if not self.c.has_containers():
            url = model['status']['url']
            self.predicted(CLOUD, url, '4', *self.cloud_place())
            return ['%s answers; nodes of varda up have no cluster addresses, so there is nothing to balance' % url]
        address = service['spec']['clusterIP']
        lines = [self.balance('http://%s:%d' % ('[%s]' % address if ':' in address else address, service['spec']['ports'][0]['port']))]
        if not self.kubectl.get('services', 'kube-dns', '--namespace', 'kube-system', missing=True, everywhere=True):
            return lines + ['no DNS in this cluster (Service kube-system/kube-dns): status.url %s is not asked' % model['status']['url']]
        return lines + [self.predicted(CLOUD, model['status']['url'], '4', *self.cloud_place()) + ', at ' + model['status']['url']]

    # ---- further steps
    def dataset(self):
        path = self.options.dataset_path
        self.needs_edge()
        self.kubectl.apply(objects.dataset('samples', path, self.options.dataset_format, self.node))

        def counted():
            status = self.kubectl.get('datasets.edgeai.io', 'samples').get('status', {})
            if 'numberOfSamples' in status and status.get('exact', True):
                return status
            raise ValueError(json.dumps(status))
        status = self.c.settle('the dataset to be counted', counted)
        wanted = self.options.dataset_samples
        check(wanted is None or status['numberOfSamples'] == wanted, '%s samples were counted, not %s' % (status['numberOfSamples'], wanted))
        self.kubectl('delete', 'datasets.edgeai.io', 'samples', '--ignore-not-found')
        return ['%d samples of %s' % (status['numberOfSamples'], path)]

    def events(self):
        self.needs_edge()

        def all_events():
            return [e for e in self.kubectl.items('events') if e.get('involvedObject', {}).get('kind') == 'InferenceModel' and e['involvedObject'].get('name') == EDGE]

        def warned():
            found = all_events()
            if any(e.get('type') == 'Warning' and wrong in e.get('message', '') for e in found):
                return found
            raise ValueError(sorted({'%s %s' % (e.get('type'), e.get('reason')) for e in found}))
        wrong = 'b' * 64
        self.c.settle('events of InferenceModel %s' % EDGE, all_events)
        if self.options.chaos:
            # Events are best effort: an operator that is killed loses those that it has not written.
            wrong = 'c' * 64
            self.kubectl.apply(self.edge_model(self.entries('3', '4') + [('6', self.entries('4')[0][1], wrong)], '6'))
        found = self.c.wait('a Warning of InferenceModel %s that names the wrong digest' % EDGE, warned)
        return ['%d events of InferenceModel %s: %s' % (len(found), EDGE, ', '.join(sorted({e.get('reason', '') for e in found})))]

    def delete(self):
        key = self.kubectl.namespace + '/' + EDGE
        self.kubectl('delete', 'inferencemodels.ai.kubeedge.io', EDGE, CLOUD, '--ignore-not-found', '--wait=false')

        def all_deleted():
            left = [i['kind'] + ' ' + i['metadata']['name'] for i in self.kubectl.items('inferencemodels.ai.kubeedge.io,deployments,services,pods')
                    if i['metadata']['name'] in (EDGE, CLOUD) or objects.MODEL_LABEL in labels_of(i)]
            if self.node:
                edge = self.kubectl.get('edgenodes.edgeai.io', self.node, everywhere=True)
                left += ['%s of EdgeNode %s' % (part, self.node) for part in ('spec', 'status') if key in json.dumps(edge.get(part, {}).get('models') or [])]
            if left:
                raise ValueError(left)
            return True
        self.c.settle('all that the models had made to be gone', all_deleted)
        return ['no pod, Deployment or Service is left' + ('; node %s shows no file of them' % self.node if self.node else '')]
