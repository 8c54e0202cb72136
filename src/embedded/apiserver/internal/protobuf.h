// Decodes Kubernetes' protobuf bodies. kubectl >= 1.32 sends them from `create KIND`, `run`,
// `debug`, `drain` and `auth`.
//
// Wire format: encoding documentation of protobuf. The tables of the built-in types (kinds/types.h)
// hold the field numbers. Answers are always JSON, which such clients accept too.
#pragma once

#include <string_view>

#include "base/result.h"
#include "codec/json.h"

namespace varda::apiserver {

inline constexpr std::string_view kProtobufType = "application/vnd.kubernetes.protobuf";

/// Decodes the envelope ("k8s\0", apiVersion and kind, the object's bytes) to the JSON form of the
/// object. kUnsupported: an unknown kind or field; no field is dropped silently. kInvalid:
/// malformed bytes.
Result<codec::Json> parse_kubernetes_protobuf(std::string_view bytes);

}  // namespace varda::apiserver
