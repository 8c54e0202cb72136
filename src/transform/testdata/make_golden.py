#!/usr/bin/env python3
"""Generates golden.json: the expected results of the steps, from an independent implementation.

Numbers are exact: rationals (fractions), and 50 decimal digits for the exponential (decimal). No code is
shared with the C++ code; the definitions are those of docs/guides/transforms.md:
  nearest    the old pixel that contains the centre of the new pixel
  bilinear   a tent of width 2 around that centre; beyond the image the edge colour continues
  area       the integral over the new pixel's square, from its overlap with every old pixel
  softmax    exp(x_i) / sum exp(x_j)
"""
import json, pathlib
from decimal import Decimal, getcontext
from fractions import Fraction as F

getcontext().prec = 50


def noise(count, seed):
    """Bytes of a small linear congruential generator."""
    out, state = [], seed
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2 ** 31
        out.append(state >> 16 & 255)
    return out


def weights(kind, old, new, at):
    """Weights of the old pixels in the new pixel `at`, along one axis."""
    step = F(old, new)
    if kind == 'area':
        shares = [max(F(0), min((at + 1) * step, F(i + 1)) - max(at * step, F(i))) for i in range(old)]
        return [s / step for s in shares]
    centre = (at + F(1, 2)) * step
    if kind == 'nearest':
        return [F(int(i <= centre < i + 1)) for i in range(old)]
    out = [F(0)] * old
    for i in range(-old - 2, 2 * old + 2):  # beyond the edges too
        tent = max(F(0), 1 - abs(i + F(1, 2) - centre))
        out[min(max(i, 0), old - 1)] += tent
    return out


def resized(kind, pixels, width, height, channels, new_width, new_height):
    out = []
    for y in range(new_height):
        wy = weights(kind, height, new_height, y)
        for x in range(new_width):
            wx = weights(kind, width, new_width, x)
            for c in range(channels):
                out.append(float(sum(wy[j] * wx[i] * pixels[(j * width + i) * channels + c]
                                     for j in range(height) if wy[j] for i in range(width) if wx[i])))
    return out


def resizes():
    cases = []
    sizes = [(5, 4, 1, 3, 2), (5, 4, 3, 8, 7), (2, 2, 1, 4, 4), (7, 3, 3, 1, 1), (1, 1, 3, 4, 2), (9, 6, 1, 3, 3), (4, 9, 1, 6, 2), (8, 8, 3, 5, 11)]
    for number, (width, height, channels, new_width, new_height) in enumerate(sizes):
        pixels = noise(width * height * channels, number + 1)
        for kind in ('nearest', 'bilinear', 'area'):
            cases.append({'filter': kind, 'width': width, 'height': height, 'channels': channels, 'pixels': pixels, 'newWidth': new_width,
                          'newHeight': new_height, 'values': resized(kind, pixels, width, height, channels, new_width, new_height)})
    return cases


def softmaxes():
    cases = []
    for row in ([0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-1.5, 0.25, 4.0, 4.0], [1000.0, 999.0], [-1000.0, -1001.0, -1003.0], [88.0, -88.0, 0.0]):
        powers = [Decimal(x).exp() for x in row]
        cases.append({'logits': row, 'values': [float(p / sum(powers)) for p in powers]})
    return cases


def normalised():
    """(value * scale - mean) / std of the nine channels' values of three pixels, with ImageNet's numbers."""
    scale, mean, std = F('0.00392157'), [F('0.485'), F('0.456'), F('0.406')], [F('0.229'), F('0.224'), F('0.225')]
    pixels = [0, 128, 255, 17, 34, 51, 255, 255, 0]
    return {'pixels': pixels, 'values': [float((p * scale - mean[i % 3]) / std[i % 3]) for i, p in enumerate(pixels)]}


golden = {'resize': resizes(), 'softmax': softmaxes(), 'normalised': normalised()}
lines = ['"%s": %s' % (k, json.dumps(v, separators=(',', ':')) if isinstance(v, dict) else
                       '[\n' + ',\n'.join(json.dumps(x, separators=(',', ':')) for x in v) + '\n]') for k, v in golden.items()]
(pathlib.Path(__file__).resolve().parent / 'golden.json').write_text('{\n' + ',\n'.join(lines) + '\n}\n')
