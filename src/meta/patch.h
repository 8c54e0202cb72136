// Patches of JSON trees: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386), and the three-way
// merge of our writers.
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

/// RFC 6902 as in Kubernetes: `replace` of a missing member adds it, negative array indexes count
/// from the end. kInvalid: bad patch, failed `test`, bad path. kExhausted: more than
/// `operations_max` operations, or more than `work_max` members and items read or moved in total.
/// The default `work_max` is about half a second; ten thousand operations on three thousand members
/// stay below.
Result<Json> apply_json_patch(Json document, const Json& patch, std::size_t operations_max = 10'000,
                              std::size_t work_max = 30'000'000);
/// RFC 7386.
Json apply_merge_patch(Json document, const Json& patch);
/// The merge patch that turns `from` into `to`.
Json make_merge_patch(const Json& from, const Json& to);

/// The key members of a list with items that merge one by one ({"name"} for containers,
/// {"containerPort","protocol"} for ports). Absent: the list is replaced whole. `path` is like
/// "spec.template.spec.containers".
using ListKeys = std::function<std::optional<std::vector<std::string>>(std::string_view path)>;
/// List maps of the core kinds (apiserver's x-kubernetes-list-map-keys and patchMergeKey of core/v1
/// and apps/v1).
std::optional<std::vector<std::string>> core_list_keys(std::string_view path);

/// Merges `wanted` into `live`; `last` is what the writer applied before. Members in `last` but not
/// in `wanted` are removed, members of `wanted` are set, and all others stay. Lists merge by
/// `keys`; items with keys from `last` or `wanted` belong to the writer. Pure.
Json three_way_merge(const Json& last, const Json& wanted, const Json& live, const ListKeys& keys);

}  // namespace varda::meta
