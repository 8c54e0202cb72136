#include "apiserver/internal/strategic.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "meta/members.h"

namespace varda::apiserver {

namespace {

constexpr std::string_view kSetOrder = "$setElementOrder/";
constexpr std::string_view kDeleteFrom = "$deleteFromPrimitiveList/";

std::string child(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : std::string(path) + "." + std::string(name);
}

class Merger {
 public:
  explicit Merger(const Kind& kind) : kind_(kind) {}

  Outcome<Json> merge_map(Json original, const Json& patch, const std::string& path) {
    const std::string& directive = patch["$patch"].as_string();
    if (directive == "replace") {
      Json out = patch;
      out.erase("$patch");
      return strip(std::move(out));
    }
    if (directive == "delete") return Json::object();
    if (patch.contains("$patch") && directive != "merge")
      return internal("Unknown patch type: " + directive);
    if (!original.is_object()) original = Json::object();

    if (const Json* keys = patch.find("$retainKeys")) {
      std::set<std::string_view> retained;
      for (const Json& key : keys->as_array()) retained.insert(key.as_string());
      TRY_VOID(check_retained(retained, patch));
      std::erase_if(original.object_members(),
                    [&](const Json::Member& member) { return !retained.contains(member.first); });
    }
    TRY_VOID(merge_members(original, patch, path));
    return original;
  }

 private:
  Outcome<void> merge_members(Json& document, const Json& patch, const std::string& path) {
    meta::MemberEditor original(document);
    meta::MemberIndex members(patch);
    for (const Json::Member& member : patch.as_object()) {
      if (!member.first.starts_with(kDeleteFrom)) continue;
      Json* list = original.find(std::string_view(member.first).substr(kDeleteFrom.size()));
      if (list == nullptr || !list->is_array()) continue;
      std::unordered_set<std::string> removed;
      for (const Json& item : member.second.as_array()) removed.insert(codec::write_json(item));
      std::erase_if(list->array_items(),
                    [&](const Json& item) { return removed.contains(codec::write_json(item)); });
    }
    for (const auto& [name, value] : patch.as_object()) {
      if (name.starts_with("$")) continue;
      if (value.is_null()) {
        original.remove(name);
        continue;
      }
      const std::string at = child(path, name);
      const Json* present = original.find(name);
      if (value.is_object()) {
        const bool deletes = value["$patch"].as_string() == "delete";
        TRY(Json merged, merge_map(present != nullptr ? *present : Json::object(), value, at));
        if (deletes) {
          original.remove(name);
        } else {
          original.set(name, std::move(merged));
        }
      } else if (value.is_array()) {
        TRY(Json merged, merge_list(present != nullptr ? *present : Json::array(), value,
                                    members.find(std::string(kSetOrder) + name), at));
        original.set(name, std::move(merged));
      } else {
        original.set(name, value);
      }
    }
    // An order directive may come without items.
    for (const auto& [name, value] : patch.as_object()) {
      if (!name.starts_with(kSetOrder)) continue;
      const std::string list_name = name.substr(kSetOrder.size());
      if (members.contains(list_name)) continue;
      Json* list = original.find(list_name);
      if (list == nullptr || !list->is_array()) continue;
      const auto rule = rule_of(child(path, list_name));
      if (rule) order(*list, Json(*list), value, rule->key);
    }
    return {};
  }

  std::optional<ListMerge> rule_of(const std::string& path) const {
    if (path == "metadata.finalizers")
      return ListMerge{.merge = true, .key = "", .retain_keys = false};
    if (path == "metadata.ownerReferences")
      return ListMerge{.merge = true, .key = "uid", .retain_keys = false};
    auto rule = kind_.list_merge(path);
    if (!rule || !rule->merge) return std::nullopt;
    return rule;
  }

  // Removes directives from a value that is taken unchanged.
  static Json strip(Json value) {
    if (value.is_object()) {
      std::erase_if(value.object_members(), [](const Json::Member& member) {
        return member.first.starts_with("$") || member.second.is_null();
      });
      for (auto& [name, item] : value.object_members()) item = strip(std::move(item));
    } else if (value.is_array()) {
      for (Json& item : value.array_items()) item = strip(std::move(item));
    }
    return value;
  }

  static Outcome<void> check_retained(const std::set<std::string_view>& retained,
                                      const Json& patch) {
    for (const Json::Member& member : patch.as_object()) {
      const std::string& name = member.first;
      if (name.starts_with("$") || member.second.is_null()) continue;
      if (!retained.contains(name)) {
        return internal("$retainKeys and the map to be patched don't match: " + name +
                        " is not retained");
      }
    }
    return {};
  }

  Outcome<Json> merge_list(const Json& original, const Json& patch, const Json* wanted_order,
                           const std::string& path) {
    const auto rule = rule_of(path);
    if (!rule) return strip(patch);
    if (rule->key.empty()) {
      Json out = original.is_array() ? original : Json::array();
      std::unordered_set<std::string> have;
      for (const Json& item : std::as_const(out).as_array()) have.insert(codec::write_json(item));
      for (const Json& item : patch.as_array()) {
        if (have.insert(codec::write_json(item)).second) out.push_back(item);
      }
      order(out, original, wanted_order != nullptr ? *wanted_order : patch, "");
      return out;
    }
    const std::string& key = rule->key;
    for (const Json& item : patch.as_array()) {
      if (!item.is_object()) return internal("the items of " + path + " must be objects");
      const std::string& directive = item["$patch"].as_string();
      if (directive == "replace" && item.size() == 1) {
        Json out = Json::array();
        for (const Json& other : patch.as_array()) {
          if (!other.contains("$patch")) out.push_back(strip(other));
        }
        return out;
      }
      if (!item.contains(key))
        return internal("map: " + codec::write_json(item) +
                        " does not contain declared merge key: " + key);
    }
    if (wanted_order != nullptr) TRY_VOID(check_order(patch, *wanted_order, key));
    Json out = original.is_array() ? original : Json::array();
    auto& items = out.array_items();
    const auto identity_of = [&](const Json& item) { return codec::write_json(item[key]); };
    std::unordered_set<std::string> deleted;
    for (const Json& item : patch.as_array()) {
      if (item["$patch"].as_string() == "delete") deleted.insert(identity_of(item));
    }
    if (!deleted.empty())
      std::erase_if(items, [&](const Json& item) { return deleted.contains(identity_of(item)); });
    std::unordered_map<std::string, std::size_t> places;  // of the first item per key
    for (std::size_t i = 0; i < items.size(); ++i) places.emplace(identity_of(items[i]), i);
    for (const Json& item : patch.as_array()) {
      const std::string identity = identity_of(item);
      const std::string& directive = item["$patch"].as_string();
      if (directive == "delete") continue;
      if (item.contains("$patch") && directive != "merge" && directive != "replace") {
        return internal("Unknown patch type: " + directive);
      }
      const auto present = places.find(identity);
      TRY(Json merged,
          merge_map(present != places.end() ? items[present->second] : Json::object(), item, path));
      if (present != places.end()) {
        items[present->second] = std::move(merged);
      } else {
        places.emplace(identity, items.size());
        items.push_back(std::move(merged));
      }
    }
    order(out, original, wanted_order != nullptr ? *wanted_order : patch, key);
    return out;
  }

  static const Json& key_of(const Json& item, const std::string& key) {
    return key.empty() ? item : item[key];
  }

  static Outcome<void> check_order(const Json& patch, const Json& wanted, const std::string& key) {
    std::size_t at = 0;
    const auto& list = wanted.as_array();
    for (const Json& item : patch.as_array()) {
      if (item["$patch"].as_string() == "delete") continue;
      while (at < list.size() && !(key_of(list[at], key) == key_of(item, key))) ++at;
      if (at++ >= list.size()) {
        return internal("The order in patch list:\n" + codec::write_json(patch) +
                        "\n doesn't match $setElementOrder list:\n" + codec::write_json(wanted) +
                        "\n");
      }
    }
    return {};
  }

  // Positions of the items in a sequence, by merge key.
  class Ranks {
   public:
    Ranks(const Json& sequence, const std::string& key) : key_(key) {
      for (const Json& item : sequence.as_array())
        ranks_.emplace(codec::write_json(key_of(item, key_)), ranks_.size());
    }
    std::optional<std::size_t> of(const Json& item) const {
      const auto found = ranks_.find(codec::write_json(key_of(item, key_)));
      if (found == ranks_.end()) return std::nullopt;
      return found->second;
    }

   private:
    const std::string& key_;
    std::unordered_map<std::string, std::size_t> ranks_;
  };

  // Sorts the items named by the order directive. Server-only items keep the position relative to
  // items in both lists; new items come before them.
  static void order(Json& list, const Json& original, const Json& wanted, const std::string& key) {
    const Ranks ranks(wanted, key);
    const Ranks before(original, key);
    std::vector<std::pair<std::size_t, Json>> named;
    std::vector<Json> others;
    for (Json& item : list.array_items()) {
      if (const auto rank = ranks.of(item)) {
        named.emplace_back(*rank, std::move(item));
      } else {
        others.push_back(std::move(item));
      }
    }
    std::stable_sort(named.begin(), named.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Json::Array out;
    std::size_t left = 0;
    std::size_t right = 0;
    while (left < named.size() || right < others.size()) {
      bool take_left = right >= others.size();
      if (!take_left && left < named.size()) {
        const auto a = before.of(named[left].second);
        const auto b = before.of(others[right]);
        take_left = !a || !b || *a <= *b;
      }
      out.push_back(std::move(take_left ? named[left++].second : others[right++]));
    }
    list = Json(std::move(out));
  }

  const Kind& kind_;
};

}  // namespace

Outcome<Json> apply_strategic_patch(const Json& object, const Json& patch, const Kind& kind) {
  return Merger(kind).merge_map(object, patch, "");
}

}  // namespace varda::apiserver
