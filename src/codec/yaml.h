// YAML for files people write and read: manifests, model.yaml, kubeconfig, `-o yaml`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::codec {

struct YamlLimits {
  std::size_t depth_max = 200;
  std::size_t nodes_max = 1'000'000;       // after aliases are expanded
  std::size_t alias_bytes_max = 16 << 20;  // of text that anchors and aliases copy
};

/// Every document of a stream ("---" between them); empty ones are left out. Scalars resolve as sigs.k8s.io/yaml does (YAML 1.1
/// booleans y/yes/on, 0o and 0x integers, floats; quoted scalars are strings); keys become strings. Duplicate keys are kInvalid.
/// kInvalid: "line 4, column 7: what".
Result<std::vector<Json>> parse_yaml_stream(std::string_view text, const YamlLimits& limits = {});
/// Exactly one document.
Result<Json> parse_yaml(std::string_view text, const YamlLimits& limits = {});

/// Block style, names in the order of the tree; strings that would read as something else are quoted; multi-line ones use '|'.
std::string write_yaml(const Json& value);

}  // namespace varda::codec
