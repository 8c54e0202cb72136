"""Charts in SVG: accuracy over the share of requests sent to the cloud, and over rounds of training."""
import html

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 64, 62
STYLE = """
text { font: 13px system-ui, 'Helvetica Neue', Arial, sans-serif; fill: #33373d }
.title { font-size: 17px; font-weight: 600; fill: #14171a }
.note { fill: #6a7078 }
.grid { stroke: #e6e8eb; stroke-width: 1 }
.axis { stroke: #9aa0a8; stroke-width: 1 }
""".strip()
COLOURS = ('#2563a8', '#c2762b')


def curve(path, title, note, lines, points):
    """`lines` are [(name, [(share, accuracy)])], in the order of the share. `points` are measured:
    [(label, share, accuracy)]. Shares and accuracies are from 0 to 1."""
    values = [y for _, line in lines for _, y in line] + [y for _, _, y in points]
    low = int(min(values) * 50 - 0.5) / 50  # the next multiple of 2 % below
    high = 1.0

    def x(share):
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(accuracy):
        return TOP + (high - accuracy) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = head(title, note)
    steps = round((high - low) * 50)
    for i in range(steps + 1):
        at = low + i / 50
        out.append('<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (x(0), y(at), x(1), y(at)))
        out.append(text(LEFT - 10, y(at) + 4, '%d %%' % round(100 * at), 'end'))
    for share in (0, .2, .4, .6, .8, 1):
        out.append('<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (x(share), y(low), x(share), y(low) + 5))
        out.append(text(x(share), y(low) + 21, '%d %%' % round(100 * share), 'middle'))
    out.append('<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (x(0), y(low), x(1), y(low)))
    out.append(text((x(0) + x(1)) / 2, HEIGHT - 14, 'requests sent to the cloud', 'middle'))
    middle = (y(low) + y(high)) / 2
    out.append('<g transform="rotate(-90 18 %.1f)">%s</g>' % (middle, text(18, middle, 'right answers', 'middle')))
    for i, (name, line) in enumerate(lines):
        out.append('<polyline fill="none" stroke="%s" stroke-width="2"%s points="%s"/>' % (
            COLOURS[i], ' stroke-dasharray="5 4"' if i else '', ' '.join('%.1f,%.1f' % (x(a), y(b)) for a, b in line)))
        key = y(low) - 18 - 22 * (len(lines) - 1 - i)
        out.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2"%s/>' % (
            x(1) - 290, key - 4, x(1) - 262, key - 4, COLOURS[i], ' stroke-dasharray="5 4"' if i else ''))
        out.append(text(x(1) - 254, key, name))
    key = y(low) - 18 - 22 * len(lines)
    out.append('<circle cx="%.1f" cy="%.1f" r="5" fill="%s" stroke="#fff" stroke-width="1.5"/>' % (x(1) - 276, key - 4, COLOURS[0]))
    out.append(text(x(1) - 254, key, 'measured through the service'))
    for label, share, accuracy in points:
        out.append('<circle cx="%.1f" cy="%.1f" r="5" fill="%s" stroke="#fff" stroke-width="1.5"/>' % (x(share), y(accuracy), COLOURS[0]))
        if share > 0.9:
            out.append(text(x(share) - 4, y(accuracy) + 22, label, 'end'))
        else:
            out.append(text(x(share) + 10, y(accuracy) + 17, label))
    out.append('</svg>')
    path.write_text('\n'.join(out) + '\n')


def rounds(path, title, note, lines, levels, first=1):
    """`lines` are [(name, [accuracy of round 1, of round 2, …])]; `levels` are [(name, accuracy)],
    drawn as horizontal lines. Accuracies are from 0 to 1. `first` is the number of the first round."""
    count = max(len(line) for _, line in lines)
    values = [y for _, line in lines for y in line] + [y for _, y in levels]
    low, high = int(min(values) * 10) / 10, 1.0

    def x(number):
        return LEFT + (number - 1) / max(count - 1, 1) * (WIDTH - LEFT - RIGHT)

    def y(accuracy):
        return TOP + (high - accuracy) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = head(title, note)
    for i in range(round((high - low) * 10) + 1):
        at = low + i / 10
        out.append('<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (x(1), y(at), x(count), y(at)))
        out.append(text(LEFT - 10, y(at) + 4, '%d %%' % round(100 * at), 'end'))
    for number in sorted({1, count, *range(5, count, 5)} if count > 5 else range(1, count + 1)):
        out.append(text(x(number), y(low) + 21, str(number + first - 1), 'middle'))
    out.append('<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (x(1), y(low), x(count), y(low)))
    out.append(text((x(1) + x(count)) / 2, HEIGHT - 14, 'round', 'middle'))
    for name, at in levels:
        out.append('<line class="axis" stroke-dasharray="2 4" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (x(1), y(at), x(count), y(at)))
        out.append(text(x(count) - 4, y(at) - 5, name, 'end', 'note'))
    for i, (name, line) in enumerate(lines):
        style = 'stroke="%s" stroke-width="2"%s' % (COLOURS[i], ' stroke-dasharray="5 4"' if i else '')
        out.append('<polyline fill="none" %s points="%s"/>' % (style, ' '.join('%.1f,%.1f' % (x(n + 1), y(a)) for n, a in enumerate(line))))
        key = y(low) - 18 - 22 * (len(lines) - 1 - i)
        out.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>' % (x(count) - 290, key - 4, x(count) - 262, key - 4, style))
        out.append(text(x(count) - 254, key, name))
    out.append('</svg>')
    path.write_text('\n'.join(out) + '\n')


def head(title, note):
    """The first elements of a chart."""
    return ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">' % (WIDTH, HEIGHT, WIDTH, HEIGHT),
            '<title>%s</title>' % html.escape(title), '<style>%s</style>' % STYLE, '<rect width="%d" height="%d" fill="#fff"/>' % (WIDTH, HEIGHT),
            text(LEFT, 28, title, kind='title'), text(LEFT, 48, note, kind='note')]


def text(x, y, content, anchor='start', kind=''):
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' % (x, y, anchor, ' class="%s"' % kind if kind else '', html.escape(content))
