// Schemas of CRDs with objects, JSON paths of columns, and regular expressions: all from users.
//
// Input: a schema, a newline, an object; the first line is also tried as a path and as an
// expression.
#include <string_view>

#include "base/check.h"
#include "codec/json.h"
#include "input.h"
#include "meta/json_path.h"
#include "schema/pattern.h"
#include "schema/schema.h"
#include "schema/structural.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varda;  // NOLINT: one function
  varda::fuzz::Input input(data, size);
  const std::string_view first = input.line(), second = input.rest();

  if (const auto pattern = schema::Pattern::compile(first); pattern.ok()) {
    CHECK(pattern->text() == first);
    const bool matches = pattern->matches(second);
    const auto again = schema::Pattern::compile("(?:" + pattern->text() + ")");
    if (again.ok()) CHECK(again->matches(second) == matches);
  }
  const auto document = varda::codec::parse_json(first);
  auto object = varda::codec::parse_json(second);
  if (object.ok()) {
    if (const auto path = meta::JsonPath::parse(first); path.ok()) (void)path->find(*object);
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
  // A defaulted and pruned object stays unchanged.
  varda::codec::Json again = *object;
  schema::apply_defaults(**compiled, again);
  CHECK(again == *object);
  // An unchanged object is always valid.
  CHECK(schema::validate(**compiled, *object, {.old = &*object, .field = ""}).empty());
  return 0;
}
