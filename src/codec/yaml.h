// YAML for files edited by people: manifests, model.yaml, kubeconfig, `-o yaml`.
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
  std::size_t alias_bytes_max = 16 << 20;  // text copied by anchors and aliases
};

/// All documents of a stream (separated by "---"), without empty ones. Scalars resolve as in
/// sigs.k8s.io/yaml: YAML 1.1 booleans y/yes/on, 0o and 0x integers, floats; quoted scalars are
/// strings. Keys become strings. kInvalid: "line 4, column 7: what", also for duplicate keys.
Result<std::vector<Json>> parse_yaml_stream(std::string_view text, const YamlLimits& limits = {});
/// Exactly one document.
Result<Json> parse_yaml(std::string_view text, const YamlLimits& limits = {});

/// Block style, names in tree order. Quotes strings that would read as another type; multi-line
/// strings use '|'.
std::string write_yaml(const Json& value);

}  // namespace varda::codec
