// Requests to the registry: no path leaves the directory, a range lies within its total, and a
// version that was written reads the same.
//
// Input: a path, a Content-Range or Range, a digest, an Upload-Copy, one per line; then a version
// document.
#include <string>

#include "base/check.h"
#include "codec/json.h"
#include "input.h"
#include "registry/request.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

void check_component(const std::string& text) {
  CHECK(!text.empty() && text.front() != '.' && text.size() <= 253);
  CHECK(text.find('/') == std::string::npos && text.find('\0') == std::string::npos);
}

void check_route(const registry::Route& route) {
  using Kind = registry::Route::Kind;
  if (route.kind != Kind::kVersion && route.kind != Kind::kVersions) return;
  check_component(route.key.ns);
  check_component(route.key.name);
  if (route.kind == Kind::kVersion) check_component(route.key.version);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (const auto route = registry::parse_route(input.line()); route.ok()) check_route(*route);
  const std::string span(input.line());
  if (const auto range = registry::parse_range(span); range.ok())
    CHECK(range->first <= range->last);
  if (const auto range = registry::parse_content_range(span); range.ok()) {
    CHECK(range->length > 0 && range->first < range->total);
    CHECK(range->length <= range->total - range->first);
  }
  const std::string text(input.line());
  if (const auto digest = registry::parse_digest(text); digest.ok())
    CHECK(registry::write_digest(*digest) == text);
  const std::string copy(input.line());
  if (const auto source = registry::parse_copy_source(copy); source.ok()) {
    CHECK(source->length > 0 && source->first + source->length > source->first);
    const std::string again = registry::write_copy_source(*source);
    CHECK(registry::parse_copy_source(again)->digest == source->digest &&
          again.size() <= copy.size());
  }
  const auto json = codec::parse_json(input.rest());
  if (!json.ok()) return 0;
  if (const auto version = registry::Version::from_json(*json); version.ok()) {
    const auto again = registry::Version::from_json(version->to_json());
    CHECK(again.ok() && again->to_json() == version->to_json());
  }
  return 0;
}
