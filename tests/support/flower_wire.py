"""The messages of Flower's transport.proto for Google's protobuf, and a client on stock grpcio.

Names and numbers: github.com/adap/flower, src/proto/flwr/proto/transport.proto at v1.0.0, with the
uint64 scalar of later versions. `flower_wire.py --golden DIR` writes the messages that the unit
tests compare; needs python3-grpcio, python3-protobuf and, for --golden, python3-numpy.
"""
import pathlib
import queue
import struct
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_T = descriptor_pb2.FieldDescriptorProto
_TYPES = {'int64': _T.TYPE_INT64, 'float': _T.TYPE_FLOAT, 'double': _T.TYPE_DOUBLE, 'bool': _T.TYPE_BOOL,
          'string': _T.TYPE_STRING, 'bytes': _T.TYPE_BYTES, 'sint64': _T.TYPE_SINT64, 'uint64': _T.TYPE_UINT64}
# message: {field: (number, type)}; "*T" is repeated, "map" is map<string, Scalar>, "|T" is in a oneof.
_MESSAGES = {
    'Scalar': {'double': (1, '|double'), 'uint64': (6, '|uint64'), 'sint64': (8, '|sint64'), 'bool': (13, '|bool'),
               'string': (14, '|string'), 'bytes': (15, '|bytes')},
    'Status': {'code': (1, 'int64'), 'message': (2, 'string')},
    'Parameters': {'tensors': (1, '*bytes'), 'tensor_type': (2, 'string')},
    'ReconnectIns': {'seconds': (1, 'int64')},
    'GetPropertiesIns': {'config': (1, 'map')},
    'GetParametersIns': {'config': (1, 'map')},
    'FitIns': {'parameters': (1, 'Parameters'), 'config': (2, 'map')},
    'EvaluateIns': {'parameters': (1, 'Parameters'), 'config': (2, 'map')},
    'ServerMessage': {'reconnect_ins': (1, '|ReconnectIns'), 'get_properties_ins': (2, '|GetPropertiesIns'),
                      'get_parameters_ins': (3, '|GetParametersIns'), 'fit_ins': (4, '|FitIns'),
                      'evaluate_ins': (5, '|EvaluateIns')},
    'DisconnectRes': {'reason': (1, 'int64')},
    'GetPropertiesRes': {'status': (1, 'Status'), 'properties': (2, 'map')},
    'GetParametersRes': {'status': (1, 'Status'), 'parameters': (2, 'Parameters')},
    'FitRes': {'status': (1, 'Status'), 'parameters': (2, 'Parameters'), 'num_examples': (3, 'int64'),
               'metrics': (4, 'map')},
    'EvaluateRes': {'status': (1, 'Status'), 'loss': (2, 'float'), 'num_examples': (3, 'int64'), 'metrics': (4, 'map')},
    'ClientMessage': {'disconnect_res': (1, '|DisconnectRes'), 'get_properties_res': (2, '|GetPropertiesRes'),
                      'get_parameters_res': (3, '|GetParametersRes'), 'fit_res': (4, '|FitRes'),
                      'evaluate_res': (5, '|EvaluateRes')},
}


def _classes():
    file = descriptor_pb2.FileDescriptorProto(name='wire.proto', package='flwr.proto', syntax='proto3')
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if any(kind.startswith('|') for _, kind in fields.values()):
            message.oneof_decl.add(name='one')
        for field, (number, kind) in fields.items():
            entry = message.field.add(name=field, number=number, label=_T.LABEL_OPTIONAL)
            if kind[0] == '*':
                entry.label = _T.LABEL_REPEATED
            if kind[0] == '|':
                entry.oneof_index = 0
            kind = kind.lstrip('*|')
            if kind == 'map':
                pair = message.nested_type.add(name=field.title() + 'Entry')
                pair.options.map_entry = True
                pair.field.add(name='key', number=1, label=_T.LABEL_OPTIONAL, type=_T.TYPE_STRING)
                pair.field.add(name='value', number=2, label=_T.LABEL_OPTIONAL, type=_T.TYPE_MESSAGE,
                               type_name='.flwr.proto.Scalar')
                entry.label = _T.LABEL_REPEATED
                entry.type, entry.type_name = _T.TYPE_MESSAGE, f'.flwr.proto.{name}.{pair.name}'
            elif kind in _TYPES:
                entry.type = _TYPES[kind]
            else:
                entry.type, entry.type_name = _T.TYPE_MESSAGE, f'.flwr.proto.{kind}'
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(pool.FindMessageTypeByName(f'flwr.proto.{name}')) for name in _MESSAGES}


globals().update(_classes())


def npy(shape, values):
    """The bytes of an array of float32, without NumPy."""
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + ''.join(f'{size},' for size in shape) + '), }'
    text += ' ' * (-(10 + len(text) + 1) % 64) + '\n'
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text.encode() + struct.pack(f'<{len(values)}f', *values)


def values_of(array):
    """The values of an array of float32 in C order."""
    start = 10 + struct.unpack('<H', array[8:10])[0]
    assert b"'<f4'" in array[:start] and b"'fortran_order': False" in array[:start], array[:start]
    return list(struct.unpack(f'<{(len(array) - start) // 4}f', array[start:]))


def shape_of(array):
    text = array[10:10 + struct.unpack('<H', array[8:10])[0]].decode()
    inner = text[text.index('(') + 1:text.index(')')]
    return [int(size) for size in inner.split(',') if size.strip()]


def scalars(**values):
    kinds = {bool: 'bool', int: 'sint64', float: 'double', str: 'string', bytes: 'bytes'}
    return {name: Scalar(**{kinds[type(value)]: value}) for name, value in values.items()}


def plain(mapping):
    return {name: getattr(scalar, scalar.WhichOneof('one')) for name, scalar in mapping.items()}


class Client:
    """Joins as flwr's grpc_connection() does: one call, the answers from a queue."""

    def __init__(self, target, options=(), channel=None):
        import grpc
        self.channel = channel or grpc.insecure_channel(target, options=[
            ('grpc.max_send_message_length', 1 << 29), ('grpc.max_receive_message_length', 1 << 29), *options])
        self.answers = queue.Queue(maxsize=1)
        join = self.channel.stream_stream('/flwr.proto.FlowerService/Join',
                                          request_serializer=ClientMessage.SerializeToString,
                                          response_deserializer=ServerMessage.FromString)
        self.instructions = join(iter(self.answers.get, None))

    def receive(self):
        return next(self.instructions)

    def send(self, **answer):
        self.answers.put(ClientMessage(**answer), block=False)

    def close(self):
        self.answers.put(None)
        self.channel.close()


def run(target, step, examples, rounds=None):
    """Trains by adding `step` to each weight until the server sends the client away. Returns its tasks."""
    client, tasks = Client(target), []
    ok = Status(message='Success')
    try:
        while True:
            message = client.receive()
            kind = message.WhichOneof('one')
            tasks.append(kind)
            if kind == 'reconnect_ins':
                client.send(disconnect_res=DisconnectRes(reason=1))
                return tasks
            if kind == 'get_properties_ins':
                client.send(get_properties_res=GetPropertiesRes(status=Status(code=1)))
            if kind == 'get_parameters_ins':
                client.send(get_parameters_res=GetParametersRes(
                    status=ok, parameters=Parameters(tensors=[npy([2], [0, 0])], tensor_type='numpy.ndarray')))
            if kind == 'fit_ins':
                arrays = [npy(shape_of(one), [value + step for value in values_of(one)])
                          for one in message.fit_ins.parameters.tensors]
                client.send(fit_res=FitRes(status=ok, num_examples=examples, metrics=scalars(train_loss=0.5),
                                           parameters=Parameters(tensors=arrays, tensor_type='numpy.ndarray')))
            if kind == 'evaluate_ins':
                client.send(evaluate_res=EvaluateRes(status=ok, loss=0.25, num_examples=examples))
    finally:
        client.close()


def write_golden(directory):
    import io

    import numpy

    def save(array):
        out = io.BytesIO()
        numpy.save(out, array, allow_pickle=False)
        return out.getvalue()

    def put(name, message):
        text = message.SerializeToString(deterministic=True).hex()
        lines = [text[i:i + 96] for i in range(0, len(text), 96)]
        (pathlib.Path(directory) / f'{name}.hex').write_text('\n'.join(lines) + '\n')

    model = Parameters(tensors=[save(numpy.arange(6, dtype=numpy.float32).reshape(2, 3)),
                                save(numpy.array([-0.5], numpy.float32)), save(numpy.float32(7))],
                       tensor_type='numpy.ndarray')
    put('fit_ins', ServerMessage(fit_ins=FitIns(parameters=model, config=scalars(lr=0.1))))
    put('evaluate_ins', ServerMessage(evaluate_ins=EvaluateIns(parameters=model, config=scalars(batch=-32))))
    put('fit_ins_empty', ServerMessage(fit_ins=FitIns(parameters=Parameters(tensor_type='numpy.ndarray'))))
    put('get_parameters_ins', ServerMessage(get_parameters_ins=GetParametersIns(config=scalars(flag=False))))
    put('get_properties_ins', ServerMessage(get_properties_ins=GetPropertiesIns(config=scalars(text='hé'))))
    put('reconnect_ins', ServerMessage(reconnect_ins=ReconnectIns(seconds=5)))
    put('reconnect_ins_0', ServerMessage(reconnect_ins=ReconnectIns()))
    trained = Parameters(tensors=[save(numpy.asfortranarray([[1, 2, 3], [4, 5, 6]], numpy.float32)),
                                  save(numpy.array([1, 2, 3], numpy.float64))], tensor_type='numpy.ndarray')
    metrics = scalars(accuracy=0.75, epochs=-3, done=True, host='edge0', raw=b'\0\xff')
    metrics['count'] = Scalar(uint64=2**64 - 1)
    put('fit_res', ClientMessage(fit_res=FitRes(status=Status(message='Success'), parameters=trained, num_examples=640,
                                                metrics=metrics)))
    put('fit_res_not_implemented', ClientMessage(fit_res=FitRes(status=Status(code=3))))
    put('evaluate_res', ClientMessage(evaluate_res=EvaluateRes(status=Status(), loss=0.25, num_examples=100,
                                                              metrics=scalars(accuracy=0.5))))
    put('get_parameters_res', ClientMessage(get_parameters_res=GetParametersRes(
        status=Status(), parameters=Parameters(tensors=[save(numpy.zeros(2, numpy.float32))],
                                               tensor_type='numpy.ndarray'))))
    put('get_properties_res', ClientMessage(get_properties_res=GetPropertiesRes(
        status=Status(), properties=scalars(name='edge0'))))
    put('disconnect_res', ClientMessage(disconnect_res=DisconnectRes(reason=1)))


if __name__ == '__main__':
    if sys.argv[1] == '--golden':
        write_golden(sys.argv[2])
    else:
        print(run(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
