#!/usr/bin/env python3
"""The aggregation worker of a federated job, with Python alone: averages straight lines.

Needs sdk/python/varda_worker.py beside it. Each round it waits for an update of every participant,
or for 30 seconds. The protocol is its own: a line of JSON in each direction.
"""
import json, os, pathlib, socket, threading

from varda_worker import Agent

ROUNDS = int(os.environ.get('exit_round', '5'))
WAIT = 30  # seconds for the updates of a round


class Rounds:
    def __init__(self, expected):
        self.changed, self.expected = threading.Condition(), expected
        self.round, self.weights, self.updates = 1, [0.0, 0.0], {}

    def serve(self, connection):
        """Tasks for one training worker, until the end."""
        with connection, connection.makefile('rw') as lines:
            worker = json.loads(lines.readline())['worker']
            done = 0
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.round > done)
                    task = {'round': self.round, 'weights': self.weights, 'end': self.round > ROUNDS}
                lines.write(json.dumps(task) + '\n')
                lines.flush()
                answer = None if task['end'] else lines.readline()
                if not answer:
                    return
                with self.changed:
                    done = task['round']
                    if self.round == done:
                        self.updates[worker] = json.loads(answer)
                        self.changed.notify_all()

    def aggregate(self):
        """Returns after the round, with its participants and its loss."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.updates) >= self.expected, WAIT)
            self.changed.wait_for(lambda: self.updates)
            total = sum(u['samples'] for u in self.updates.values())
            self.weights = [sum(u['weights'][i] * u['samples'] for u in self.updates.values()) / total for i in (0, 1)]
            loss = sum(u['loss'] * u['samples'] for u in self.updates.values()) / total
            names, self.updates = sorted(self.updates), {}
            self.round += 1
            self.changed.notify_all()
            return names, loss, total


def main():
    rounds, agent = Rounds(int(os.environ['PARTICIPANTS_COUNT'])), Agent()
    agent.send('POST', '/v1/register', {'version': '1.0', 'instance': str(os.getpid())})
    server = socket.create_server((os.environ['POD_IP'], int(os.environ['AGG_BIND_PORT'])))

    def accept():
        while True:
            threading.Thread(target=rounds.serve, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    for number in range(1, ROUNDS + 1):
        names, loss, samples = rounds.aggregate()
        print('round %d: %d participants, loss %.4f' % (number, len(names), loss), flush=True)
        agent.send('PUT', '/v1/progress', {'phase': 'Training', 'step': number, 'steps': ROUNDS, 'data': {
            'joined': len(names), 'metrics': {'loss': loss}, 'participants': {os.environ['NAMESPACE'] + '/' + n: 'Uploaded' for n in names}}})
    model = pathlib.Path(os.environ['MODEL_URL']) / 'line.json'
    model.write_text(json.dumps(rounds.weights))
    agent.upload(model, 'line')
    agent.send('PUT', '/v1/results/final', {'data': {'artifact': 'line', 'file': 'line.json', 'format': 'json', 'metrics': {'loss': loss},
                                                     'participants': len(names), 'samples': samples}})


if __name__ == '__main__':
    main()
