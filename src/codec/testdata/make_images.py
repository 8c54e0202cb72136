#!/usr/bin/env python3
"""Makes images/: JPEG and PNG files of known content, and images/expected.json with the pixels that are in them; and tests/fixtures/digit-3.jpg.

The PNGs are written by the few lines below and hold their pixels exactly. The JPEGs come from libjpeg-turbo (Debian's libturbojpeg0), called
by ctypes; a JPEG is lossy, so `tolerance` says by how much a decoded pixel may differ from what went in.
"""
import ctypes, json, pathlib, struct, zlib

OUT = pathlib.Path(__file__).resolve().parent / 'images'
expected = {}


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def png(name, width, height, colour, depth, rows, pixels, channels, palette=None, transparent=None, interlaced=None):
    """`rows` are the bytes of each line as they stand in the file; `pixels` what they mean in 8 bits."""
    raw = interlaced if interlaced is not None else b''.join(b'\0' + bytes(r) for r in rows)
    body = chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, depth, colour, 0, 0, 1 if interlaced is not None else 0))
    if palette:
        body += chunk(b'PLTE', bytes(palette))
    if transparent:
        body += chunk(b'tRNS', bytes(transparent))
    body += chunk(b'IDAT', zlib.compress(raw, 9)) + chunk(b'IEND', b'')
    (OUT / name).write_bytes(b'\x89PNG\r\n\x1a\n' + body)
    expected[name] = {'width': width, 'height': height, 'channels': channels, 'tolerance': 0, 'pixels': list(pixels)}


def pngs():
    png('grey8.png', 3, 2, 0, 8, [[0, 127, 255], [1, 2, 3]], [0, 127, 255, 1, 2, 3], 1)
    png('grey1.png', 9, 2, 0, 1, [[0b10101010, 0b10000000], [0b00001111, 0]], [255, 0] * 4 + [255] + [0] * 4 + [255] * 4 + [0], 1)
    png('grey4.png', 3, 1, 0, 4, [[0x0f, 0x70]], [0, 255, 119], 1)
    png('grey16.png', 2, 2, 0, 16, [[0x12, 0xff, 0xfe, 0x01], [0, 0x80, 0xff, 0xff]], [0x12, 0xfe, 0, 0xff], 1)
    png('grey_alpha.png', 2, 1, 4, 8, [[10, 0, 200, 255]], [10, 200], 1)
    png('rgb8.png', 2, 2, 2, 8, [[255, 0, 0, 0, 255, 0], [0, 0, 255, 9, 8, 7]], [255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7], 3)
    png('rgba8.png', 2, 1, 6, 8, [[1, 2, 3, 0, 250, 251, 252, 128]], [1, 2, 3, 250, 251, 252], 3)
    png('rgb16.png', 1, 1, 2, 16, [[0x10, 0xff, 0x20, 0x80, 0xf0, 0x01]], [0x10, 0x20, 0xf0], 3)
    colours = [10, 20, 30, 40, 50, 60, 70, 80, 90, 255, 0, 128]
    png('palette2.png', 4, 1, 3, 2, [[0b11100100]], colours[9:] + colours[6:9] + colours[3:6] + colours[:3], 3, palette=colours)
    png('palette_transparent.png', 2, 1, 3, 8, [[1, 0]], colours[3:6] + colours[:3], 3, palette=colours, transparent=[0, 128])
    png('one.png', 1, 1, 2, 8, [[7, 77, 177]], [7, 77, 177], 3)
    # Adam7 of 2x2: pass 1 has (0,0), pass 6 has (1,0), pass 7 the second row.
    png('interlaced.png', 2, 2, 0, 8, None, [11, 22, 33, 44], 1, interlaced=b'\0\x0b' + b'\0\x16' + b'\0\x21\x2c')


RGB, GREY, CMYK = 0, 6, 11  # TJPF_RGB, TJPF_GRAY, TJPF_CMYK
S444, S420, SGREY = 0, 2, 3  # TJSAMP_*
PROGRESSIVE = 16384  # TJFLAG_PROGRESSIVE


def compress(pixels, width, height, pixel_format, sampling, flags=0, quality=95):
    jpeg = ctypes.CDLL('libturbojpeg.so.0')
    jpeg.tjInitCompress.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(jpeg.tjInitCompress())
    buffer, size = ctypes.POINTER(ctypes.c_ubyte)(), ctypes.c_ulong(0)
    done = jpeg.tjCompress2(handle, bytes(pixels), width, 0, height, pixel_format, ctypes.byref(buffer), ctypes.byref(size), sampling, quality, flags)
    assert done == 0, done
    out = bytes(buffer[:size.value])
    jpeg.tjFree(buffer)
    jpeg.tjDestroy(handle)
    return out


def jpg(name, data, width, height, channels, pixels, tolerance):
    (OUT / name).write_bytes(data)
    expected[name] = {'width': width, 'height': height, 'channels': channels, 'tolerance': tolerance, 'pixels': list(pixels)}


def oriented(data, orientation):
    """The file with an EXIF block behind its first marker that says how a viewer should turn it."""
    tiff = b'II*\0' + struct.pack('<I', 8) + struct.pack('<HHHIHHI', 1, 0x0112, 3, 1, orientation, 0, 0)
    body = b'Exif\0\0' + tiff
    return data[:2] + b'\xff\xe1' + struct.pack('>H', len(body) + 2) + body + data[2:]


def jpegs():
    ramp = [v for y in range(12) for x in range(16) for v in (16 * x, 20 * y, 128)]
    grey = [10 * x + 5 * y for y in range(12) for x in range(16)]
    jpg('ramp.jpg', compress(ramp, 16, 12, RGB, S444), 16, 12, 3, ramp, 8)
    jpg('ramp_progressive.jpg', compress(ramp, 16, 12, RGB, S444, PROGRESSIVE), 16, 12, 3, ramp, 8)
    red = [200, 30, 60] * (9 * 7)
    jpg('red_420.jpg', compress(red, 9, 7, RGB, S420), 9, 7, 3, red, 3)
    jpg('grey.jpg', compress(grey, 16, 12, GREY, SGREY), 16, 12, 1, grey, 5)
    jpg('one.jpg', compress([7, 77, 177], 1, 1, RGB, S444), 1, 1, 3, [7, 77, 177], 4)
    jpg('turned.jpg', oriented(compress(ramp, 16, 12, RGB, S444), 6), 16, 12, 3, ramp, 8)
    (OUT / 'cmyk.jpg').write_bytes(compress([0, 50, 100, 150] * 64, 8, 8, CMYK, S444))


def digit():
    """tests/fixtures/digit-3.jpg: examples/digits/png/digit-3.png, each of its 8x8 grey pixels 8x8 pixels in colour."""
    root = pathlib.Path(__file__).resolve().parents[3]
    data, raw = (root / 'examples/digits/png/digit-3.png').read_bytes(), b''
    at = 8
    while at < len(data):
        size, kind = struct.unpack('>I4s', data[at:at + 8])
        raw += data[at + 8:at + 8 + size] if kind == b'IDAT' else b''
        at += size + 12
    lines = zlib.decompress(raw)
    assert len(lines) == 72 and not any(lines[::9]), 'lines without filters'
    pixels = [lines[9 * (y // 8) + 1 + x // 8] for y in range(64) for x in range(64) for _ in range(3)]
    (root / 'tests/fixtures/digit-3.jpg').write_bytes(compress(pixels, 64, 64, RGB, S420, quality=90))


OUT.mkdir(exist_ok=True)
digit()
pngs()
jpegs()
(OUT / 'expected.json').write_text('{\n' + ',\n'.join('"%s": %s' % (k, json.dumps(v, separators=(',', ':'))) for k, v in sorted(expected.items())) + '\n}\n')
