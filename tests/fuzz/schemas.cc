// Schemas of CRDs and the objects under them, JSON paths of columns, and quantities: all come from users.
//
// Input: a schema, a newline, an object; each line is also tried as a path and as a quantity.
#include <cstdint>
#include <string_view>

#include "apiserver/kinds/json_path.h"
#include "apiserver/kinds/types.h"
#include "apiserver/schema/schema.h"
#include "apiserver/schema/structural.h"
#include "codec/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varda::apiserver;  // NOLINT: one function
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto split = text.find('\n');
  const std::string_view first = text.substr(0, split);
  const std::string_view second = split == std::string_view::npos ? std::string_view() : text.substr(split + 1);

  if (const auto quantity = canonical_quantity(first); quantity.ok()) {
    const auto again = canonical_quantity(*quantity);
    if (!again.ok() || *again != *quantity) __builtin_trap();
  }
  const auto document = varda::codec::parse_json(first);
  auto object = varda::codec::parse_json(second);
  if (object.ok()) {
    if (const auto path = JsonPath::parse(first); path.ok()) (void)path->find(*object);
  }
  if (!document.ok() || !object.ok()) return 0;
  (void)schema::check_structural(*document, "s");
  const auto compiled = schema::compile(*document);
  if (!compiled.ok()) return 0;
  std::vector<std::string> unknown;
  schema::prune(**compiled, *object, unknown);
  (void)schema::validate(**compiled, *object, {});
  (void)schema::validate_lists(**compiled, *object, "");
  (void)schema::validate_embedded(**compiled, *object, "");
  schema::apply_defaults(**compiled, *object);
  // An unchanged object cannot be wrong.
  if (!schema::validate(**compiled, *object, {.old = &*object, .field = ""}).empty()) __builtin_trap();
  return 0;
}
