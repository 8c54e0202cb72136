#include "onnx/weights.h"

#include <set>

#include "codec/protobuf.h"
#include "onnx/internal/rewrite.h"
#include "onnx/model.h"

namespace varda::onnx {
namespace {

using codec::ProtoReader;
using codec::ProtoWriter;

/// Walks the fields from the file down to the tensors and copies the rest.
class Replacement {
 public:
  explicit Replacement(const std::map<std::string, tensor::Tensor>& weights) : weights_(weights) {}

  Result<std::string> file(std::string_view bytes) {
    return rewrite(bytes, 7, [&](std::string_view graph) { return this->graph(graph); });
  }
  const std::set<std::string>& done() const { return done_; }

 private:
  Result<std::string> graph(std::string_view bytes) {
    TRY(const std::string with_initializers, rewrite(bytes, 5, [&](std::string_view initializer) {
          return tensor(initializer, name_of(initializer));
        }));
    return rewrite(with_initializers, 1, [&](std::string_view node) { return this->node(node); });
  }

  /// Replaces the tensor of a Constant node.
  Result<std::string> node(std::string_view bytes) {
    std::string op, output;
    ProtoReader in(bytes);
    while (in.next()) {
      if (in.field() == 2) output = in.text();
      if (in.field() == 4) op = in.text();
    }
    if (op != "Constant" || !weights_.contains(output)) return std::string(bytes);
    return rewrite(bytes, 5, [&](std::string_view attribute) {
      return rewrite(attribute, 5, [&](std::string_view value) { return tensor(value, output); });
    });
  }

  static std::string name_of(std::string_view initializer) {
    std::string out;
    ProtoReader in(initializer);
    while (in.next())
      if (in.field() == 8) out = in.text();
    return out;
  }

  static bool is_data(std::uint32_t field) {
    return (field >= 4 && field <= 7) || (field >= 9 && field <= 11);
  }

  Result<std::string> tensor(std::string_view bytes, const std::string& name) {
    const auto it = weights_.find(name);
    if (it == weights_.end()) return std::string(bytes);
    const tensor::Tensor& weight = it->second;
    tensor::Shape dims;
    std::int64_t data_type = 0;
    ProtoReader in(bytes);
    ProtoWriter out;
    bool written = false;
    const auto write = [&] {
      if (!written)
        out.element(9,
                    {reinterpret_cast<const char*>(weight.bytes().data()), weight.bytes().size()});
      written = true;
    };
    while (in.next()) {
      if (in.field() == 13 || (in.field() == 14 && in.number() != 0))
        return Error(Code::kUnsupported, "weight \"" + name + "\" has its values in another file");
      if (in.field() == 1 && in.is_number()) dims.push_back(in.number());
      if (in.field() == 1 && in.is_bytes()) {
        ProtoReader packed(in.bytes());
        while (packed.next_number()) dims.push_back(packed.number());
      }
      if (in.field() == 2) data_type = in.number();
      if (is_data(in.field()))
        write();
      else
        out.raw(in.raw());
    }
    TRY_VOID(in.status());
    write();
    if (dims != weight.shape() || data_type != data_type_of(weight.dtype()))
      return Error(Code::kInvalid, "weight \"" + name + "\" has the shape " +
                                       tensor::to_string(dims) + " in the file, not " +
                                       tensor::to_string(weight.shape()) + ", or another type");
    done_.insert(name);
    return std::move(out).bytes();
  }

  const std::map<std::string, tensor::Tensor>& weights_;
  std::set<std::string> done_;
};

}  // namespace

Result<std::string> replace_weights(std::string_view file,
                                    const std::map<std::string, tensor::Tensor>& weights) {
  Replacement replacement(weights);
  TRY(std::string out, replacement.file(file));
  for (const auto& [name, weight] : weights)
    if (!replacement.done().contains(name))
      return Error(Code::kNotFound, "the file has no weight \"" + name + "\"");
  return out;
}

}  // namespace varda::onnx
