// Patches and their invariants. Input: a document, a patch, a third document, each as JSON on one
// line.
#include <string>
#include <vector>

#include "apiserver/internal/strategic.h"
#include "apiserver/kinds/core.h"
#include "base/check.h"
#include "codec/json.h"
#include "input.h"
#include "meta/patch.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
using codec::Json;

constexpr std::size_t kDepthMax = 450;

std::size_t depth_of(const Json& value) {
  std::size_t deepest = 0;
  for (const Json& item : value.as_array()) deepest = std::max(deepest, depth_of(item));
  for (const auto& [name, member] : value.as_object())
    deepest = std::max(deepest, depth_of(member));
  return deepest + 1;
}

bool has_null_member(const Json& value) {
  for (const auto& [name, member] : value.as_object()) {
    if (member.is_null() || has_null_member(member)) return true;
  }
  return false;
}

Json operation(const char* op, Json value) {
  return Json::object({{"op", op}, {"path", ""}, {"value", std::move(value)}});
}

void json_patch(const Json& document, const Json& patch) {
  CHECK(meta::apply_json_patch(document, Json::array()).value() == document);
  CHECK(meta::apply_json_patch(document, Json::array({operation("test", document)})).value() ==
        document);
  CHECK(meta::apply_json_patch(document, Json::array({operation("replace", patch)})).value() ==
        patch);
  const auto patched = meta::apply_json_patch(document, patch, 100);
  if (!patched.ok()) return;
  CHECK(depth_of(*patched) <= kDepthMax);
  // A `test` operation on the whole document finds the patched value.
  Json tested = patch;
  tested.push_back(operation("test", *patched));
  CHECK(meta::apply_json_patch(document, tested, 101).ok());
}

void merge_patch(const Json& document, const Json& patch) {
  const Json merged = meta::apply_merge_patch(document, patch);
  CHECK(meta::apply_merge_patch(merged, patch) == merged);
  if (patch.is_object()) CHECK(!has_null_member(meta::apply_merge_patch(Json::object(), patch)));
  // A merge patch cannot set a member to null (RFC 7386, 1).
  if (!has_null_member(patch) && document.is_object() && patch.is_object())
    CHECK(meta::apply_merge_patch(document, meta::make_merge_patch(document, patch)) == patch);
}

void three_way(const Json& last, const Json& wanted, const Json& live) {
  const Json merged = meta::three_way_merge(last, wanted, live, meta::core_list_keys);
  CHECK(meta::three_way_merge(last, wanted, merged, meta::core_list_keys) == merged);
  CHECK(meta::three_way_merge(wanted, wanted, merged, meta::core_list_keys) == merged);
}

void strategic(const Json& document, const Json& patch) {
  static const std::vector<apiserver::KindPtr> kinds = apiserver::core_kinds();
  if (!document.is_object() || !patch.is_object()) return;
  for (const auto& kind : kinds) {
    const std::string& name = kind->resource().kind;
    if (name != "Pod" && name != "Deployment" && name != "Service" && name != "ConfigMap") continue;
    const auto patched = apiserver::apply_strategic_patch(document, patch, *kind);
    if (!patched.ok()) continue;
    CHECK(depth_of(patched.value()) <= kDepthMax);
    CHECK(apiserver::apply_strategic_patch(document, Json::object(), *kind).value() == document);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto document = codec::parse_json(input.line());
  const auto patch = codec::parse_json(input.line());
  const auto third = codec::parse_json(input.line());
  if (!document.ok() || !patch.ok()) return 0;
  json_patch(*document, *patch);
  merge_patch(*document, *patch);
  strategic(*document, *patch);
  if (third.ok() && document->is_object() && patch->is_object() && third->is_object())
    three_way(*document, *patch, *third);
  return 0;
}
