// A Flower client that a test drives message by message.
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "codec/protobuf.h"
#include "flower/session.h"
#include "net/testing/grpc_peer.h"
#include "tensor/npy.h"

namespace varda::flower::testing {

/// The bytes that numpy.save() writes for an array of one axis.
inline std::string npy(std::span<const float> values) {
  return tensor::npy_header(tensor::DType::kFp32, {static_cast<std::int64_t>(values.size())}) +
         std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

/// A ServerMessage, as far as tests look at it.
struct Instruction {
  std::uint32_t kind = 0;  // the field's number: 1 reconnect … 5 evaluate
  std::int64_t seconds = 0;
  std::vector<std::string> tensors;
  std::map<std::string, std::string> config;  // each value as its Scalar message
  std::vector<float> floats(std::size_t index) const {
    const auto header = tensor::parse_npy_header(tensors.at(index));
    CHECK(header.ok());
    std::vector<float> out(header->data_bytes / sizeof(float));
    std::memcpy(out.data(), tensors[index].data() + header->data_at, header->data_bytes);
    return out;
  }
};

inline Instruction read_instruction(std::string_view bytes) {
  Instruction out;
  codec::ProtoReader in(bytes);
  CHECK(in.next());
  out.kind = in.field();
  codec::ProtoReader inner(in.bytes());
  while (inner.next()) {
    if (out.kind == 1) out.seconds = inner.number();
    if (out.kind >= 4 && inner.field() == 1) {
      codec::ProtoReader parameters(inner.bytes());
      while (parameters.next())
        if (parameters.field() == 1) out.tensors.push_back(parameters.text());
    }
    if (inner.field() == (out.kind >= 4 ? 2u : 1u) && out.kind != 1)
      out.config.insert(inner.entry());
  }
  CHECK(inner.status().ok() && !in.next() && in.status().ok());
  return out;
}

inline std::string parameters(std::span<const std::string> tensors) {
  codec::ProtoWriter out;
  for (const std::string& tensor : tensors) out.element(1, tensor);
  out.text(2, "numpy.ndarray");
  return std::move(out).bytes();
}

inline std::string fit_answer(std::span<const std::string> tensors, std::int64_t examples,
                              double loss = 0.5) {
  codec::ProtoWriter out;
  out.message(4, [&](codec::ProtoWriter& fit) {
    fit.message(1, [](codec::ProtoWriter& status) { status.text(2, "Success"); });
    fit.element(2, parameters(tensors)).number(3, examples);
    fit.message(4, [&](codec::ProtoWriter& entry) {
      entry.text(1, "train_loss");
      entry.message(2, [&](codec::ProtoWriter& scalar) { scalar.real64(1, loss); });
    });
  });
  return std::move(out).bytes();
}

inline std::string evaluate_answer(float loss, std::int64_t examples) {
  codec::ProtoWriter out;
  out.message(5, [&](codec::ProtoWriter& evaluate) {
    evaluate.message(1, [](codec::ProtoWriter&) {}).real(2, loss).number(3, examples);
  });
  return std::move(out).bytes();
}

inline std::string parameters_answer(std::span<const std::string> tensors) {
  codec::ProtoWriter out;
  out.message(3, [&](codec::ProtoWriter& answer) { answer.element(2, parameters(tensors)); });
  return std::move(out).bytes();
}

/// An answer of `kind` without content but this status.
inline std::string refusal(std::uint32_t kind, std::int64_t code) {
  codec::ProtoWriter out;
  out.message(kind, [&](codec::ProtoWriter& answer) {
    answer.message(1, [&](codec::ProtoWriter& status) { status.number(1, code); });
  });
  return std::move(out).bytes();
}

class Peer {
 public:
  explicit Peer(int port) : grpc_(port), stream_(grpc_.open(std::string(kJoinMethod))) {}
  /// nullopt: the call ended.
  std::optional<Instruction> read() {
    const auto bytes = grpc_.read(stream_);
    if (!bytes) return std::nullopt;
    return read_instruction(*bytes);
  }
  void send(std::string_view message) { grpc_.send(stream_, message); }
  net::testing::GrpcEnd wait_end() { return grpc_.wait_end(stream_); }
  net::testing::GrpcPeer& grpc() { return grpc_; }

 private:
  net::testing::GrpcPeer grpc_;
  std::int32_t stream_;
};

}  // namespace varda::flower::testing
