// Copies of messages with changes deep inside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "codec/protobuf.h"

namespace varda::onnx {

/// A copy of a message in which `change`, a Result<std::string>(std::string_view), maps each nested
/// message with this field number. All other bytes stay.
template <typename Change>
Result<std::string> rewrite(std::string_view message, std::uint32_t number, Change change) {
  codec::ProtoWriter out;
  codec::ProtoReader in(message);
  while (in.next()) {
    if (in.field() != number || !in.is_bytes()) {
      out.raw(in.raw());
      continue;
    }
    TRY(const std::string changed, change(in.bytes()));
    // An unchanged message keeps its bytes, also those of an unusual length prefix.
    if (changed == in.bytes())
      out.raw(in.raw());
    else
      out.element(number, changed);
  }
  TRY_VOID(in.status());
  return std::move(out).bytes();
}

}  // namespace varda::onnx
