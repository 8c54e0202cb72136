"""Calls of grpcio against the server of grpc_stock_test.cc: stock_client.py TARGET [CA.pem]. Prints "ok"."""
import sys
import threading
import time

import grpc

target, ca = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
options = [('grpc.max_receive_message_length', 64 << 20), ('grpc.max_send_message_length', 64 << 20)]
if ca:
    with open(ca, 'rb') as pem:
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(pem.read()), options)
else:
    channel = grpc.insecure_channel(target, options)
same = {'request_serializer': bytes, 'response_deserializer': bytes}
echo = channel.unary_unary('/test.Stock/Echo', **same)
fail = channel.unary_unary('/test.Stock/Fail', **same)
hang = channel.unary_unary('/test.Stock/Hang', **same)
join = channel.stream_stream('/test.Stock/Join', **same)


def error_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError('the call passed')


for size in 0, 1, 5, 16384, 65536, 1 << 20, 30 << 20:
    message = bytes([size % 251]) * size
    assert echo(message, timeout=60) == message, size

code, details = error_of(lambda: fail(b'', timeout=60))
assert (code, details) == (grpc.StatusCode.NOT_FOUND, 'no "digits", 100 % of \u20ac'), (code, details)
unknown = channel.unary_unary('/test.Stock/None', **same)
assert error_of(lambda: unknown(b'', timeout=60))[0] == grpc.StatusCode.UNIMPLEMENTED
assert error_of(lambda: hang(b'', timeout=0.3))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
assert error_of(lambda: echo(b'x' * ((32 << 20) + 1), timeout=60))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
compressed = error_of(lambda: echo(b'x' * 1000, timeout=60, compression=grpc.Compression.Gzip))
assert compressed[0] == grpc.StatusCode.UNIMPLEMENTED, compressed
assert echo(b'after all that', timeout=60, metadata=[('key', 'value'), ('data-bin', b'\0\1')]) == b'after all that'

# A cancelled call ends in the server too.
future = hang.future(b'')
time.sleep(0.05)
future.cancel()

# Streaming in both directions, with a slow reader in the middle.
count = 2000
answers = join((str(i).encode() * 50 for i in range(count)), timeout=60)
for i in range(count):
    assert next(answers) == b'<' + str(i).encode() * 50 + b'>', i
    if i == 100:
        time.sleep(0.2)
assert next(answers, None) is None
assert answers.code() == grpc.StatusCode.OK

# Many calls at once on one connection.
errors = []


def hammer(number):
    try:
        for i in range(50):
            message = f'{number}-{i}'.encode() * 100
            assert echo(message, timeout=60) == message
    except Exception as error:
        errors.append(error)


threads = [threading.Thread(target=hammer, args=(i,)) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
channel.close()
print('ok')
