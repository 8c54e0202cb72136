// JSON and YAML: what parses is written and read back the same; nothing crashes.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/json.h"
#include "codec/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto value = varda::codec::parse_json(text); value.ok()) {
    const auto again = varda::codec::parse_json(varda::codec::write_json(*value));
    if (!again.ok() || !(*again == *value)) std::abort();
    const auto yaml = varda::codec::parse_yaml_stream(varda::codec::write_yaml(*value));
    if (!yaml.ok()) std::abort();
  }
  (void)varda::codec::parse_yaml_stream(text, {.nodes_max = 10'000});
  return 0;
}
