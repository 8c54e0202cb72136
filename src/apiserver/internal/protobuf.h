// Bodies in Kubernetes' protobuf form, which kubectl >= 1.32 sends from `create KIND`, `run`, `debug`, `drain` and `auth`.
//
// Wire format: encoding documentation of protobuf; field numbers stand in the tables of the built-in types (kinds/types.h). Answers
// are JSON always: such clients accept it too.
#pragma once

#include <string_view>

#include "base/result.h"
#include "codec/json.h"

namespace varda::apiserver {

inline constexpr std::string_view kProtobufType = "application/vnd.kubernetes.protobuf";

/// The envelope ("k8s\0", apiVersion and kind, the object's bytes) and what is in it, as the JSON form of the object.
/// kUnsupported: a kind or a field this reader does not know; nothing is ever dropped silently. kInvalid: broken bytes.
Result<codec::Json> parse_kubernetes_protobuf(std::string_view bytes);

}  // namespace varda::apiserver
