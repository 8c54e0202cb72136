#!/usr/bin/env python3
"""Trains a classifier of csv rows with Python alone: the class with the nearest mean wins.

Needs sdk/python/varda_worker.py beside it. The model is JSON, and a checkpoint after each class
lets a killed pod continue.
"""
import csv, json

from varda_worker import Training


def rows_of(path):
    with open(path, newline='') as f:
        reader = csv.reader(f)
        next(reader)  # the names of the columns
        return [([float(x) for x in row[:-1]], row[-1]) for row in reader]


def nearest(centroids, features):
    return min(centroids, key=lambda c: sum((a - b) ** 2 for a, b in zip(centroids[c], features)))


with Training() as run:
    rows = rows_of(run.dataset)
    checkpoint = run.output / 'checkpoint.json'
    centroids = json.loads(checkpoint.read_text()) if checkpoint.exists() else {}
    classes = sorted({label for _, label in rows})
    for number, label in enumerate(classes, 1):
        if label not in centroids:
            own = [features for features, of in rows if of == label]
            centroids[label] = [sum(column) / len(own) for column in zip(*own)]
            checkpoint.write_text(json.dumps(centroids))
        wrong = sum(nearest(centroids, features) != of for features, of in rows) / len(rows)
        run.progress(epoch=number, epochs=len(classes), loss=wrong)
    test = rows_of(run.evaluation) if run.evaluation else rows
    right = sum(nearest(centroids, features) == of for features, of in test) / len(test)
    model = run.output / 'model.json'
    model.write_text(json.dumps(centroids))
    run.finish(model, metrics={'accuracy': right}, format='json', samples=len(rows))
