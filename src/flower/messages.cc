#include "flower/messages.h"

#include <optional>

#include "codec/protobuf.h"
#include "tensor/npy.h"

namespace varda::flower {
namespace {

using codec::ProtoReader;
using codec::ProtoWriter;

constexpr std::string_view kTensorType = "numpy.ndarray";

// Fields of ServerMessage and ClientMessage: the same kinds have the same numbers.
constexpr std::uint32_t kReconnect = 1, kProperties = 2, kParameters = 3, kFit = 4, kEvaluate = 5;

// Fields of Scalar.
constexpr std::uint32_t kDouble = 1, kUint64 = 6, kSint64 = 8, kBool = 13, kString = 14,
                        kBytes = 15;

void write_scalar(ProtoWriter& out, const Scalar& scalar) {
  if (const auto* real = std::get_if<double>(&scalar)) out.real64(kDouble, *real);
  if (const auto* number = std::get_if<std::int64_t>(&scalar)) out.sint64(kSint64, *number);
  if (const auto* number = std::get_if<std::uint64_t>(&scalar))
    out.item(kUint64, static_cast<std::int64_t>(*number));
  if (const auto* flag = std::get_if<bool>(&scalar)) out.item(kBool, *flag ? 1 : 0);
  if (const auto* text = std::get_if<std::string>(&scalar)) out.element(kString, *text);
  if (const auto* blob = std::get_if<Blob>(&scalar)) out.element(kBytes, blob->bytes);
}

void write_scalars(ProtoWriter& out, std::uint32_t field, const Scalars& scalars) {
  for (const auto& [name, scalar] : scalars) {
    out.message(field, [&, &key = name, &value = scalar](ProtoWriter& entry) {
      entry.text(1, key);
      entry.message(2, [&](ProtoWriter& inner) { write_scalar(inner, value); });
    });
  }
}

std::string with_config(std::uint32_t kind, const Scalars& config) {
  ProtoWriter out;
  out.message(kind, [&](ProtoWriter& inner) { write_scalars(inner, 1, config); });
  return std::move(out).bytes();
}

std::size_t varint_bytes(std::uint64_t value) {
  std::size_t out = 1;
  for (; value >= 0x80; value >>= 7) ++out;
  return out;
}

/// The tag and the length of a field with so many bytes.
void begin_field(std::string& out, std::uint32_t field, std::uint64_t bytes) {
  out += static_cast<char>(field << 3 | 2);
  for (; bytes >= 0x80; bytes >>= 7) out += static_cast<char>(bytes | 0x80);
  out += static_cast<char>(bytes);
}

std::size_t field_bytes(std::uint64_t bytes) { return 1 + varint_bytes(bytes) + bytes; }

class ClientMessageReader {
 public:
  explicit ClientMessageReader(const MessageLimits& limits) : limits_(limits) {}

  Result<ClientMessage> read(std::string_view bytes) {
    std::optional<ClientMessage> out;
    ProtoReader in(bytes);
    while (in.next()) {
      if (!in.is_bytes()) continue;
      // The last member of a oneof counts.
      switch (in.field()) {
        case kReconnect: {
          TRY(out, disconnect(in.bytes()));
          break;
        }
        case kProperties: {
          TRY(out, properties(in.bytes()));
          break;
        }
        case kParameters: {
          TRY(out, parameters_answer(in.bytes()));
          break;
        }
        case kFit: {
          TRY(out, fit(in.bytes()));
          break;
        }
        case kEvaluate: {
          TRY(out, evaluate(in.bytes()));
          break;
        }
        default:
          break;
      }
    }
    TRY_VOID(in.status());
    if (!out) return Error(Code::kInvalid, "the message has no known kind");
    return *std::move(out);
  }

 private:
  Result<std::string> text(const ProtoReader& in) const {
    if (in.bytes().size() > limits_.text_bytes_max)
      return Error(Code::kInvalid, "a text of the message is too long");
    return in.text();
  }

  Result<Outcome> outcome(std::string_view bytes) const {
    Outcome out;
    ProtoReader in(bytes);
    while (in.next()) {
      if (in.field() == 1) out.code = static_cast<Outcome::Code>(in.number());
      if (in.field() == 2) {
        TRY(out.message, text(in));
      }
    }
    TRY_VOID(in.status());
    return out;
  }

  Result<Scalar> scalar(std::string_view bytes) const {
    Scalar out = 0.0;
    ProtoReader in(bytes);
    while (in.next()) {
      switch (in.field()) {
        case kDouble:
          out = in.real64();
          break;
        case kUint64:
          out = static_cast<std::uint64_t>(in.number());
          break;
        case kSint64:
          out = in.sint64();
          break;
        case kBool:
          out = in.flag();
          break;
        case kString: {
          TRY(out, text(in));
          break;
        }
        case kBytes: {
          TRY(std::string value, text(in));
          out = Blob{std::move(value)};
          break;
        }
        default:
          break;
      }
    }
    TRY_VOID(in.status());
    return out;
  }

  Status add_scalar(Scalars& to, std::string_view entry) const {
    std::string name;
    Scalar value = 0.0;
    ProtoReader in(entry);
    while (in.next()) {
      if (in.field() == 1) {
        TRY(name, text(in));
      }
      if (in.field() == 2) {
        TRY(value, scalar(in.bytes()));
      }
    }
    TRY_VOID(in.status());
    if (to.size() >= limits_.scalars_max && !to.contains(name))
      return Error(Code::kInvalid, "the message has too many scalars");
    to.insert_or_assign(std::move(name), std::move(value));
    return {};
  }

  Result<Parameters> parameters(std::string_view bytes) const {
    Parameters out;
    ProtoReader in(bytes);
    while (in.next()) {
      if (in.field() == 1 && in.is_bytes()) {
        if (out.tensors.size() >= limits_.tensors_max)
          return Error(Code::kInvalid, "the message has too many tensors");
        out.tensors.push_back(in.bytes());
      }
      if (in.field() == 2) {
        TRY(out.tensor_type, text(in));
      }
    }
    TRY_VOID(in.status());
    if (!out.tensors.empty() && out.tensor_type != kTensorType)
      return Error(Code::kInvalid, "tensor_type is not " + std::string(kTensorType));
    return out;
  }

  Result<Disconnect> disconnect(std::string_view bytes) const {
    Disconnect out;
    ProtoReader in(bytes);
    while (in.next())
      if (in.field() == 1) out.reason = in.number();
    TRY_VOID(in.status());
    return out;
  }

  Result<Properties> properties(std::string_view bytes) const {
    Properties out;
    ProtoReader in(bytes);
    while (in.next()) {
      if (in.field() == 1) {
        TRY(out.outcome, outcome(in.bytes()));
      }
      if (in.field() == 2) TRY_VOID(add_scalar(out.properties, in.bytes()));
    }
    TRY_VOID(in.status());
    return out;
  }

  Result<ParametersAnswer> parameters_answer(std::string_view bytes) const {
    ParametersAnswer out;
    ProtoReader in(bytes);
    while (in.next()) {
      if (in.field() == 1) {
        TRY(out.outcome, outcome(in.bytes()));
      }
      if (in.field() == 2) {
        TRY(out.parameters, parameters(in.bytes()));
      }
    }
    TRY_VOID(in.status());
    return out;
  }

  Result<FitAnswer> fit(std::string_view bytes) const {
    FitAnswer out;
    ProtoReader in(bytes);
    while (in.next()) {
      if (in.field() == 1) {
        TRY(out.outcome, outcome(in.bytes()));
      }
      if (in.field() == 2) {
        TRY(out.parameters, parameters(in.bytes()));
      }
      if (in.field() == 3) out.examples = in.number();
      if (in.field() == 4) TRY_VOID(add_scalar(out.metrics, in.bytes()));
    }
    TRY_VOID(in.status());
    return out;
  }

  Result<EvaluateAnswer> evaluate(std::string_view bytes) const {
    EvaluateAnswer out;
    ProtoReader in(bytes);
    while (in.next()) {
      if (in.field() == 1) {
        TRY(out.outcome, outcome(in.bytes()));
      }
      if (in.field() == 2) out.loss = in.real();
      if (in.field() == 3) out.examples = in.number();
      if (in.field() == 4) TRY_VOID(add_scalar(out.metrics, in.bytes()));
    }
    TRY_VOID(in.status());
    return out;
  }

  const MessageLimits& limits_;
};

}  // namespace

std::string encode_reconnect(std::int64_t seconds) {
  ProtoWriter out;
  out.message(kReconnect, [&](ProtoWriter& inner) { inner.number(1, seconds); });
  return std::move(out).bytes();
}

std::string encode_get_properties(const Scalars& config) {
  return with_config(kProperties, config);
}

std::string encode_get_parameters(const Scalars& config) {
  return with_config(kParameters, config);
}

Result<std::string> encode_instruction(Instruction kind, std::span<const tensor::Named> tensors,
                                       const Scalars& config) {
  // The lengths are known in advance, so the values of a large model are copied once.
  std::vector<std::string> headers;
  std::uint64_t parameters = field_bytes(kTensorType.size());
  for (const tensor::Named& named : tensors) {
    const tensor::DType dtype = named.tensor.dtype();
    if (dtype == tensor::DType::kBytes || dtype == tensor::DType::kBf16) {
      return Error(Code::kUnsupported,
                   named.name + ": NumPy has no type " + std::string(tensor::to_string(dtype)));
    }
    headers.push_back(tensor::npy_header(dtype, named.tensor.shape()));
    parameters += field_bytes(headers.back().size() + named.tensor.bytes().size());
  }
  ProtoWriter scalars;
  write_scalars(scalars, 2, config);
  const std::uint64_t instruction = field_bytes(parameters) + scalars.bytes().size();
  std::string out;
  out.reserve(field_bytes(instruction));
  begin_field(out, kind == Instruction::kFit ? kFit : kEvaluate, instruction);
  begin_field(out, 1, parameters);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto values = tensors[i].tensor.bytes();
    begin_field(out, 1, headers[i].size() + values.size());
    out += headers[i];
    out.append(reinterpret_cast<const char*>(values.data()), values.size());
  }
  begin_field(out, 2, kTensorType.size());
  out += kTensorType;
  out += scalars.bytes();
  return out;
}

Result<ClientMessage> parse_client_message(std::string_view bytes, const MessageLimits& limits) {
  return ClientMessageReader(limits).read(bytes);
}

}  // namespace varda::flower
