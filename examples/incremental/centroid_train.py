#!/usr/bin/env python3
"""Trains one round of incremental learning with Python alone: the class with the nearest mean wins.

Needs sdk/python/varda_worker.py beside it. The model is JSON, {CLASS: {count, mean}}, so that new
rows move a mean by their weight, and no old row is needed.
"""
import csv, json

from varda_worker import Training


def rows_of(path):
    with open(path, newline='') as f:
        reader = csv.reader(f)
        next(reader)  # the names of the columns
        return [([float(x) for x in row[:-1]], row[-1]) for row in reader]


def learn(model, rows):
    for features, label in rows:
        one = model.setdefault(label, {'count': 0, 'mean': [0.0] * len(features)})
        one['count'] += 1
        one['mean'] = [m + (x - m) / one['count'] for m, x in zip(one['mean'], features)]
    return model


if __name__ == '__main__':
    with Training() as run:
        rows = rows_of(run.dataset)
        model = learn(json.loads((run.base_model / 'model.json').read_text()), rows)
        out = run.output / 'model.json'
        out.write_text(json.dumps(model, sort_keys=True))
        run.finish(out, format='json', samples=len(rows))
