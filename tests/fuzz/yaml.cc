// YAML: parsed documents and any JSON value are written and read back equal. Aliases and depth stay
// bounded.
#include "codec/yaml.h"

#include <string_view>

#include "base/check.h"
#include "codec/json.h"
#include "input.h"

namespace {

using varda::codec::Json;

std::size_t nodes_of(const Json& value) {
  std::size_t out = 1;
  for (const Json& item : value.as_array()) out += nodes_of(item);
  for (const auto& [name, member] : value.as_object()) out += nodes_of(member);
  return out;
}

void check_round_trip(const Json& value) {
  if (value.is_null()) return;  // an empty document counts as no document
  const auto again = varda::codec::parse_yaml(varda::codec::write_yaml(value));
  CHECK(again.ok() && *again == value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = varda::fuzz::Input(data, size).rest();
  if (const auto value = varda::codec::parse_json(text); value.ok()) check_round_trip(*value);
  const varda::codec::YamlLimits limits{.depth_max = 50, .nodes_max = 10'000};
  const auto documents = varda::codec::parse_yaml_stream(text, limits);
  if (!documents.ok()) return 0;
  std::size_t nodes = 0;
  for (const Json& document : *documents) {
    nodes += nodes_of(document);
    // Numbers that only YAML can express never enter our trees.
    CHECK(varda::codec::parse_json(varda::codec::write_json(document)).ok());
    check_round_trip(document);
  }
  CHECK(nodes <= limits.nodes_max);
  return 0;
}
