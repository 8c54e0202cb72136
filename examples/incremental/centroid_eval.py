#!/usr/bin/env python3
"""Compares the candidate of a round with its base, for models of centroid_train.py."""
import json

from centroid_train import rows_of
from varda_worker import Training


def classify(model, features):
    return min(model, key=lambda c: sum((a - b) ** 2 for a, b in zip(model[c]['mean'], features)))


def accuracy(directory, rows):
    model = json.loads((directory / 'model.json').read_text())
    return sum(classify(model, features) == label for features, label in rows) / max(1, len(rows))


if __name__ == '__main__':
    with Training() as run:
        rows = rows_of(run.test) + (rows_of(run.evaluation) if run.evaluation else [])
        run.compare({'accuracy': [accuracy(model, rows) for model in run.models]}, samples=len(rows))
