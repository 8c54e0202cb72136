"""A client of a federated job that trains a linear classifier of digits with scikit-learn.

    varda-aggregate --model digits.safetensors --out out/ --rounds 10 --trust-clients --clients 3
    python3 client.py http://127.0.0.1:7363 0     # and 1, and 2: each has a third of the images

`python3 client.py init digits.safetensors` writes the initial model. Needs numpy and scikit-learn, and
varda_federated.py beside this file.
"""
import pathlib, sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / 'sdk/python'))
import numpy as np
from varda_federated import Client, write_safetensors

CLASSES, PIXELS, CLIENTS = 10, 64, 3


def data(number):
    """A client's part of the images; every seventh image only evaluates."""
    from sklearn.datasets import load_digits
    digits = load_digits()
    mine = np.arange(len(digits.target)) % CLIENTS == number
    images, labels = digits.data[mine] / 16, digits.target[mine]
    test = np.arange(len(labels)) % 7 == 0
    return images[~test], labels[~test], images[test], labels[test]


def classifier(weights):
    from sklearn.linear_model import SGDClassifier
    model = SGDClassifier(loss='log_loss', learning_rate='constant', eta0=0.05)
    model.classes_ = np.arange(CLASSES)
    model.coef_, model.intercept_ = weights['coef'].astype(float).copy(), weights['intercept'].astype(float).copy()
    return model


def main(url, number):
    images, labels, test_images, test_labels = data(number)

    def train(weights, task):
        model = classifier(weights)
        for _ in range(task['train']['localEpochs']):
            model.partial_fit(images, labels, classes=np.arange(CLASSES))
        return {'coef': model.coef_, 'intercept': model.intercept_}, len(labels), {'accuracy': model.score(images, labels)}

    def evaluate(weights, task):
        return len(test_labels), {'accuracy': classifier(weights).score(test_images, test_labels)}
    Client(url, 'site-%d' % number, 'client-%d' % number).run(train, evaluate)


if __name__ == '__main__':
    if sys.argv[1] == 'init':
        zeros = {'coef': np.zeros((CLASSES, PIXELS), '<f4'), 'intercept': np.zeros(CLASSES, '<f4')}
        pathlib.Path(sys.argv[2]).write_bytes(write_safetensors(zeros, {}))
    else:
        main(sys.argv[1], int(sys.argv[2]))
