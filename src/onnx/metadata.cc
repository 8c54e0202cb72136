#include "onnx/metadata.h"

#include <utility>

#include "codec/protobuf.h"

namespace varda::onnx {
namespace {

namespace metadata_props {

constexpr std::uint32_t kField = 14;  // ModelProto.metadata_props

std::pair<std::string, std::string> entry_of(std::string_view bytes) {
  std::pair<std::string, std::string> out;
  codec::ProtoReader in(bytes);
  while (in.next()) {
    if (in.field() == 1) out.first = in.text();
    if (in.field() == 2) out.second = in.text();
  }
  return out;
}

}  // namespace metadata_props

}  // namespace

std::optional<std::string> metadata(const Model& model, std::string_view key) {
  codec::ProtoReader in(model.rest);
  while (in.next())
    if (in.field() == metadata_props::kField)
      if (auto entry = metadata_props::entry_of(in.bytes()); entry.first == key)
        return std::move(entry.second);
  return std::nullopt;
}

void set_metadata(Model& model, std::string_view key, std::string_view value) {
  codec::ProtoWriter out;
  codec::ProtoReader in(model.rest);
  while (in.next())
    if (in.field() != metadata_props::kField || metadata_props::entry_of(in.bytes()).first != key)
      out.raw(in.raw());
  out.message(metadata_props::kField, [&](codec::ProtoWriter& entry) {
    entry.element(1, key);
    entry.element(2, value);
  });
  model.rest = std::move(out).bytes();
}

}  // namespace varda::onnx
