// The three-way merge, and the list maps of the core kinds.
#include <algorithm>
#include <map>
#include <set>

#include "meta/patch.h"

namespace varda::meta {
namespace {

using Keys = std::vector<std::string>;

const Json kNothing;

std::string member_path(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : std::string(path) + "." + std::string(name);
}

std::string_view last_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string_view parent_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

/// The identity of a list item as text; absent for an item without one.
std::optional<std::string> identity(const Json& item, const Keys& keys) {
  if (!item.is_object()) return std::nullopt;
  std::string out;
  bool any = false;
  for (const std::string& key : keys) {
    const Json* value = item.find(key);
    const bool has = value && !value->is_null();
    any |= has;
    // The API server defaults to TCP, so a port without protocol is the TCP port.
    out += has ? codec::write_json(*value) : key == "protocol" ? "\"TCP\"" : "null";
    out += '\0';
  }
  if (!any) return std::nullopt;
  return out;
}

/// All identities of a list; absent if an item has none, because such a list cannot be merged.
std::optional<std::vector<std::string>> identities(const Json& list, const Keys& keys) {
  std::vector<std::string> out;
  std::map<std::string, int> seen;
  for (const Json& item : list.as_array()) {
    auto id = identity(item, keys);
    if (!id) return std::nullopt;
    // Duplicates (two env entries of one name) are paired by order.
    const int nth = seen[*id]++;
    if (nth > 0) *id += "#" + std::to_string(nth);
    out.push_back(std::move(*id));
  }
  return out;
}

/// The identity shared by duplicates.
std::string_view family(std::string_view identity) {
  return identity.substr(0, identity.rfind('\0') + 1);
}

/// True if `live` has everything in `wanted`; `live` may have more members (the server's defaults).
bool contains(const Json& live, const Json& wanted) {
  if (wanted.is_object()) {
    if (!live.is_object()) return false;
    return std::all_of(wanted.as_object().begin(), wanted.as_object().end(),
                       [&](const auto& member) {
                         const Json* have = live.find(member.first);
                         return have ? contains(*have, member.second) : member.second.is_null();
                       });
  }
  if (!wanted.is_array()) return live == wanted;
  return live.is_array() && std::equal(live.as_array().begin(), live.as_array().end(),
                                       wanted.as_array().begin(), wanted.as_array().end(),
                                       [](const Json& a, const Json& b) { return contains(a, b); });
}

/// Maps with many writers: labels, annotations, data of a ConfigMap. Dropping such a map means
/// dropping our entries. Any other object (a probe, a volume's source) is a unit and is removed
/// with the server's additions.
bool shared_map(std::string_view path) {
  return path.find('.') == std::string_view::npos || last_of(path) == "metadata" ||
         last_of(parent_of(path)) == "metadata";
}

class Merger {
 public:
  explicit Merger(const ListKeys& keys) : keys_(keys) {}

  Json merge(const Json& last, const Json& wanted, const Json& live,
             const std::string& path) const {
    if (wanted.is_object()) return merge_object(last, wanted, live, path);
    if (wanted.is_array()) return merge_list(last, wanted, live, path);
    return wanted;
  }

 private:
  Json merge_object(const Json& last, const Json& wanted, const Json& live,
                    const std::string& path) const {
    Json out = live.is_object() ? live : Json::object();
    for (const auto& [name, value] : last.as_object()) {
      if (value.is_null() || !wanted[name].is_null() || !out.contains(name)) continue;
      drop(out, name, value, member_path(path, name));
    }
    for (const auto& [name, value] : wanted.as_object()) {
      if (value.is_null()) continue;  // null counts as absent
      Json merged =
          merge(last[name], value, out.contains(name) ? std::as_const(out)[name] : kNothing,
                member_path(path, name));
      out.set(name, std::move(merged));
    }
    return out;
  }

  /// Removes a member that was ours.
  void drop(Json& out, const std::string& name, const Json& last, const std::string& path) const {
    const Json& live = std::as_const(out)[name];
    Json merged;
    if (last.is_object() && live.is_object() && shared_map(path)) {
      merged = merge_object(last, Json::object(), live, path);
    } else if (last.is_array() && live.is_array() && keys_ && keys_(path)) {
      merged = merge_list(last, Json::array(), live, path);
    }
    if (merged.empty()) {
      out.erase(name);
    } else {
      out.set(name, std::move(merged));
    }
  }

  Json merge_list(const Json& last, const Json& wanted, const Json& live,
                  const std::string& path) const {
    const auto keys = keys_ ? keys_(path) : std::nullopt;
    if (const auto wanted_ids = keys ? identities(wanted, *keys) : std::nullopt) {
      const auto live_ids = identities(live, *keys), before = identities(last, *keys);
      if (live_ids && before)
        return merge_items(last, *before, wanted, *wanted_ids, live, *live_ids, path);
      // Our list replaces the live one item by item: a null counts as absent, as in the next merge.
      return merge_items(kNothing, {}, wanted, *wanted_ids, kNothing, {}, path);
    }
    if (!live.is_array()) return wanted;
    // While the live list contains our unchanged list, the server's additions are not a difference.
    if (wanted == last && contains(live, wanted)) return live;
    return wanted;
  }

  using Ids = std::vector<std::string>;

  Json merge_items(const Json& last, const Ids& before, const Json& wanted, const Ids& wanted_ids,
                   const Json& live, const Ids& live_ids, const std::string& path) const {
    const auto index = [](const Ids& ids) {
      std::map<std::string_view, std::size_t> out;
      for (std::size_t i = 0; i < ids.size(); ++i) out.emplace(ids[i], i);
      return out;
    };
    const auto last_at = index(before), wanted_at = index(wanted_ids), live_at = index(live_ids);
    const auto item = [](const Json& list, const auto& at, std::string_view id) -> const Json& {
      const auto found = at.find(id);
      return found == at.end() ? kNothing : list.as_array()[found->second];
    };
    std::set<std::string_view> families;  // all items of these identities are ours: a foreign
                                          // duplicate could hide or undo ours
    for (const Ids* ids : {&before, &wanted_ids}) {
      for (const std::string& id : *ids) families.insert(family(id));
    }
    std::size_t next = 0;
    Json out = Json::array();
    const auto push_wanted = [&] {
      out.push_back(merge(item(last, last_at, wanted_ids[next]), wanted.as_array()[next],
                          item(live, live_at, wanted_ids[next]), path));
      ++next;
    };
    // Foreign items keep their places. Our places are filled with our items in the wanted order
    // (env entries refer to earlier ones).
    for (std::size_t i = 0; i < live_ids.size(); ++i) {
      if (wanted_at.contains(live_ids[i])) {
        push_wanted();
      } else if (!families.contains(family(live_ids[i]))) {
        out.push_back(live.as_array()[i]);
      }
    }
    while (next < wanted_ids.size()) push_wanted();
    return out;
  }

  const ListKeys& keys_;
};

}  // namespace

std::optional<std::vector<std::string>> core_list_keys(std::string_view path) {
  const std::string_view name = last_of(path), parent = parent_of(path), holder = last_of(parent);
  const bool in_container =
      holder == "containers" || holder == "initContainers" || holder == "ephemeralContainers";
  if (name == "containers" || name == "initContainers" || name == "ephemeralContainers")
    return Keys{"name"};
  if (in_container) {
    if (name == "env") return Keys{"name"};
    if (name == "ports") return Keys{"containerPort", "protocol"};
    if (name == "volumeMounts") return Keys{"mountPath"};
    if (name == "volumeDevices") return Keys{"devicePath"};
  }
  if (path == "spec.ports") return Keys{"port", "protocol"};
  if (name == "ownerReferences" && holder == "metadata") return Keys{"uid"};
  if (path == "status.conditions") return Keys{"type"};
  if (path == "status.addresses") return Keys{"type"};
  if (path == "secrets" || path == "imagePullSecrets") return Keys{"name"};
  if (holder == "spec") {
    if (name == "volumes" || name == "imagePullSecrets" || name == "schedulingGates" ||
        name == "resourceClaims")
      return Keys{"name"};
    if (name == "hostAliases") return Keys{"ip"};
    if (name == "topologySpreadConstraints") return Keys{"topologyKey", "whenUnsatisfiable"};
  }
  if (path == "status.podIPs" || path == "status.hostIPs") return Keys{"ip"};
  return std::nullopt;
}

Json three_way_merge(const Json& last, const Json& wanted, const Json& live, const ListKeys& keys) {
  return Merger(keys).merge(last, wanted, live, "");
}

}  // namespace varda::meta
