// Selectors and patches, as they come in queries and bodies.
#include <cstdint>
#include <string_view>

#include "codec/json.h"
#include "meta/patch.h"
#include "meta/selector.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto selector = varda::meta::LabelSelector::parse(text); selector.ok()) {
    // Its own text means the same.
    const auto again = varda::meta::LabelSelector::parse(selector->str());
    if (!again.ok() || again->str() != selector->str()) __builtin_trap();
  }
  (void)varda::meta::FieldSelector::parse(text);
  const auto split = text.find('\n');
  if (split == std::string_view::npos) return 0;
  const auto document = varda::codec::parse_json(text.substr(0, split));
  const auto patch = varda::codec::parse_json(text.substr(split + 1));
  if (!document.ok() || !patch.ok()) return 0;
  (void)varda::meta::apply_json_patch(*document, *patch, 100);
  (void)varda::meta::apply_merge_patch(*document, *patch);
  (void)varda::meta::three_way_merge(*patch, *document, *patch, varda::meta::core_list_keys);
  return 0;
}
