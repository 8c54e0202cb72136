// Patches of JSON trees: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386), and the three-way merge our writers use.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::meta {

using codec::Json;

/// RFC 6902 as Kubernetes applies it: `replace` of a missing member adds it, negative array indexes count from the end.
/// kInvalid: bad patch, failed `test`, bad path. kExhausted: more operations than `operations_max`, or all of them together look at
/// or move more members and items than `work_max` (the default: half a second; ten thousand operations on an object of three
/// thousand members stay below).
Result<Json> apply_json_patch(Json document, const Json& patch, std::size_t operations_max = 10'000,
                              std::size_t work_max = 30'000'000);
/// RFC 7386.
Json apply_merge_patch(Json document, const Json& patch);
/// The merge patch that turns `from` into `to`.
Json make_merge_patch(const Json& from, const Json& to);

/// The key members of a list whose items are merged one by one ({"name"} for containers, {"containerPort","protocol"} for ports),
/// or nothing: the list is replaced as a whole. `path` is like "spec.template.spec.containers".
using ListKeys = std::function<std::optional<std::vector<std::string>>(std::string_view path)>;
/// List maps of the core kinds (apiserver's x-kubernetes-list-map-keys and patchMergeKey of core/v1 and apps/v1).
std::optional<std::vector<std::string>> core_list_keys(std::string_view path);

/// What `live` becomes when its writer's last wish was `last` and is now `wanted`: members that were in `last` and are not in
/// `wanted` go away, members of `wanted` are set, everything else stays. Lists merge by `keys`; items of our keys are ours. Pure.
Json three_way_merge(const Json& last, const Json& wanted, const Json& live, const ListKeys& keys);

}  // namespace varda::meta
