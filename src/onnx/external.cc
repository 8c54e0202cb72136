#include "onnx/external.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/text.h"
#include "codec/protobuf.h"
#include "onnx/internal/rewrite.h"
#include "onnx/model.h"
#include "tensor/tensor.h"

namespace varda::onnx {
namespace {

using codec::ProtoReader;
using codec::ProtoWriter;

constexpr std::uint64_t kFileBytesMax = std::numeric_limits<std::int32_t>::max();

/// TensorProto's fields of an external tensor.
struct External {
  std::string name, location;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  std::int64_t data_type = 0;
  tensor::Shape dims;
  bool external = false;
};

bool stays_below(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.find('\0') != path.npos) return false;
  const auto parts = split(path, '/');
  return std::find(parts.begin(), parts.end(), "..") == parts.end();
}

class Embedding {
 public:
  Embedding(std::size_t file_bytes, const ReadRange& read) : bytes_(file_bytes), read_(read) {}

  Result<std::string> file(std::string_view bytes) {
    const auto tensor = [&](std::string_view message) { return this->tensor(message); };
    return rewrite(bytes, 7, [&](std::string_view graph) -> Result<std::string> {
      TRY(const std::string initializers, rewrite(graph, 5, tensor));
      return rewrite(initializers, 1, [&](std::string_view node) {
        return rewrite(node, 5,
                       [&](std::string_view attribute) { return rewrite(attribute, 5, tensor); });
      });
    });
  }

 private:
  Result<std::string> tensor(std::string_view message) {
    TRY(const External facts, read_facts(message));
    if (!facts.external) return std::string(message);
    auto values = values_of(facts);
    if (!values.ok()) return std::move(values).error().context("tensor \"" + facts.name + "\"");
    ProtoWriter out;
    ProtoReader in(message);
    while (in.next())
      if (in.field() != 9 && in.field() != 13 && in.field() != 14) out.raw(in.raw());
    out.element(9, *values);
    return std::move(out).bytes();
  }

  static Result<External> read_facts(std::string_view message) {
    External out;
    ProtoReader in(message);
    while (in.next()) {
      if (in.field() == 1 && in.is_number()) out.dims.push_back(in.number());
      if (in.field() == 1 && in.is_bytes()) {
        ProtoReader packed(in.bytes());
        while (packed.next_number()) out.dims.push_back(packed.number());
      }
      if (in.field() == 2) out.data_type = in.number();
      if (in.field() == 8) out.name = in.text();
      if (in.field() == 14 && in.number() == 1) out.external = true;
      if (in.field() != 13) continue;
      out.external = true;
      const auto [key, value] = in.entry();
      if (key == "location") out.location = value;
      if (key != "offset" && key != "length") continue;
      const auto number = parse_integer<std::uint64_t>(value);
      if (!number)
        return Error(Code::kInvalid, "the " + key + " of external values is \"" + value + "\"");
      if (key == "offset")
        out.offset = *number;
      else
        out.length = number;
    }
    TRY_VOID(in.status());
    return out;
  }

  Result<std::string> values_of(const External& facts) {
    if (!stays_below(facts.location))
      return Error(Code::kInvalid, "its values are in \"" + facts.location +
                                       "\", which is no path below the model's directory");
    const auto dtype = dtype_of(facts.data_type);
    if (!dtype || *dtype == tensor::DType::kBytes)
      return Error(Code::kUnsupported, "it has the type " + std::to_string(facts.data_type) +
                                           " of ONNX and external values");
    TRY(const std::size_t count, tensor::elements(facts.dims));
    const std::size_t width = tensor::element_bytes(*dtype);
    if (count > (kFileBytesMax - std::min(bytes_, kFileBytesMax)) / width)
      return Error(Code::kExhausted, "the model is larger than 2 GiB with all values inside");
    const std::uint64_t size = count * width;
    if (facts.length.value_or(size) != size ||
        facts.offset > std::numeric_limits<std::uint64_t>::max() - size)
      return Error(Code::kInvalid, "its values have " + std::to_string(size) +
                                       " bytes, not the range in \"" + facts.location + "\"");
    bytes_ += size;
    TRY(std::string out, read_(facts.location, facts.offset, size));
    if (out.size() != size)
      return Error(Code::kInvalid, "\"" + facts.location + "\" ends within its values");
    return out;
  }

  std::uint64_t bytes_;
  const ReadRange& read_;
};

}  // namespace

Result<std::string> embed_external(std::string_view file, const ReadRange& read) {
  return Embedding(file.size(), read).file(file);
}

}  // namespace varda::onnx
