#!/usr/bin/env python3
"""Trains a network on a csv file with PyTorch, and hands over an ONNX file.

    pip install torch onnx      # in the image; sdk/python/varda_worker.py beside this file

Parameters of the TrainingModel: epochs (20), hidden (64), learningRate (0.01). A killed pod goes on
from its last epoch.
"""
import numpy, torch

from varda_worker import Training


def table(path):
    rows = numpy.genfromtxt(path, delimiter=',', skip_header=1, dtype=numpy.float32)
    return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, -1].astype(numpy.int64))


with Training() as run:
    torch.manual_seed(run.parameter('seed', 1))
    features, labels = table(run.dataset)
    test = table(run.evaluation) if run.evaluation else (features, labels)
    hidden, epochs = run.parameter('hidden', 64), run.parameter('epochs', 20)
    model = torch.nn.Sequential(torch.nn.Linear(features.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, int(labels.max()) + 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=run.parameter('learningRate', 0.01))
    checkpoint, begin = run.output / 'checkpoint.pt', 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        begin = saved['epoch']
        model.load_state_dict(saved['model'])
        optimizer.load_state_dict(saved['optimizer'])
    for epoch in range(begin, epochs):
        for batch in torch.randperm(len(labels)).split(32):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(features[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        part = checkpoint.with_suffix('.part')
        torch.save({'epoch': epoch + 1, 'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, part)
        part.replace(checkpoint)
        run.progress(epoch=epoch + 1, epochs=epochs, loss=loss.item())
    accuracy = (model(test[0]).argmax(1) == test[1]).float().mean().item()
    path = run.output / 'model.onnx'
    torch.onnx.export(model, features[:1], path, input_names=['features'], output_names=['scores'],
                      dynamic_axes={'features': {0: 'batch'}, 'scores': {0: 'batch'}})
    run.finish(path, metrics={'accuracy': accuracy}, samples=len(labels))
