// Bodies in Kubernetes' protobuf form, for the kinds that `kubectl create KIND` and `kubectl run` send that way.
//
// Wire format: encoding documentation of protobuf; field numbers: the published .proto files of k8s.io/api. Answers are JSON
// always: such clients accept it too.
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
