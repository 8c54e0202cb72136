#include "apiserver/internal/registry.h"

#include <algorithm>
#include <set>

#include "apiserver/kinds/core.h"
#include "apiserver/kinds/crd.h"
#include "base/log.h"

namespace varda::apiserver {

KindSet::KindSet(std::vector<KindPtr> kinds) : kinds_(std::move(kinds)) {
  for (const KindPtr& kind : kinds_) {
    const meta::Resource& resource = kind->resource();
    by_path_.emplace(std::tuple(resource.group, resource.version, resource.plural), kind);
    if (!kind->info().answered && by_prefix_.emplace(kind->storage_prefix(), kind).second)
      stored_.push_back(kind);
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const Group& g) { return g.name == resource.group; });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{resource.group, {}});
    auto version =
        std::find_if(group->versions.begin(), group->versions.end(),
                     [&](const GroupVersion& v) { return v.version == resource.version; });
    if (version == group->versions.end())
      version = group->versions.insert(group->versions.end(), GroupVersion{resource.version, {}});
    version->kinds.push_back(kind);
  }
  for (Group& group : groups_) {
    std::stable_sort(group.versions.begin(), group.versions.end(),
                     [](const GroupVersion& a, const GroupVersion& b) {
                       return preferred_version(a.version, b.version);
                     });
  }
}

KindPtr KindSet::find(std::string_view group, std::string_view version,
                      std::string_view plural) const {
  const auto found =
      by_path_.find(std::tuple(std::string(group), std::string(version), std::string(plural)));
  return found == by_path_.end() ? nullptr : found->second;
}

KindPtr KindSet::find(std::string_view group, std::string_view plural) const {
  for (const KindPtr& kind : stored_) {
    if (kind->resource().group == group && kind->resource().plural == plural) return kind;
  }
  return nullptr;
}

KindPtr KindSet::by_kind(std::string_view api_version, std::string_view kind) const {
  const std::size_t slash = api_version.find('/');
  const std::string_view group =
      slash == std::string_view::npos ? std::string_view() : api_version.substr(0, slash);
  for (const KindPtr& candidate : stored_) {
    if (candidate->resource().group == group && candidate->resource().kind == kind)
      return candidate;
  }
  return nullptr;
}

KindSet::Located KindSet::locate(std::string_view storage_key) const {
  // "/registry/GROUP/PLURAL/..." : the prefix ends behind the fourth slash.
  std::size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    at = storage_key.find('/', at + 1);
    if (at == std::string_view::npos) return {};
  }
  const auto found = by_prefix_.find(storage_key.substr(0, at + 1));
  if (found == by_prefix_.end()) return {};
  Located located{found->second, {}};
  const std::string_view rest = storage_key.substr(at + 1);
  if (!located.kind->resource().namespaced) {
    located.key.name = rest;
    return located;
  }
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return {};
  located.key = {std::string(rest.substr(0, slash)), std::string(rest.substr(slash + 1))};
  return located;
}

const KindSet::GroupVersion* KindSet::group_version(std::string_view group,
                                                    std::string_view version) const {
  for (const Group& g : groups_) {
    if (g.name != group) continue;
    for (const GroupVersion& v : g.versions) {
      if (v.version == version) return &v;
    }
  }
  return nullptr;
}

Registry::Registry(store::Store& store, NativeRules rules)
    : store_(store),
      rules_(std::move(rules)),
      core_(core_kinds()),
      kinds_(std::make_shared<KindSet>(core_)) {}

std::shared_ptr<const KindSet> Registry::kinds() const {
  MutexLock lock(mutex_);
  return kinds_;
}

Status Registry::refresh() {
  MutexLock only_one(refreshing_);
  const std::string prefix =
      "/registry/" + std::string(kCrdGroup) + "/" + std::string(kCrdPlural) + "/";
  TRY(store::Page page, store_.list({.prefix = prefix}));
  std::vector<store::Entry> entries = std::move(page.entries);
  // The oldest definition wins a name conflict.
  std::sort(entries.begin(), entries.end(),
            [](const store::Entry& a, const store::Entry& b) { return a.created < b.created; });
  std::map<std::string, Known> next;
  std::vector<std::vector<KindPtr>> made;
  std::set<std::pair<std::string, std::string>> taken;
  for (const store::Entry& entry : entries) {
    const auto known = crds_.find(entry.key);
    std::vector<KindPtr> kinds;
    Json spec;
    if (known != crds_.end() && known->second.modified == entry.modified) {
      kinds = known->second.kinds;
      spec = known->second.spec;
    } else {
      auto crd = codec::parse_json(*entry.value);
      if (!crd.ok()) {
        log::error("stored CRD is unreadable", {{"name", entry.key}, {"error", crd.error()}});
        continue;
      }
      auto parsed = kinds_from_crd(*crd, rules_);
      if (!parsed.ok()) {
        log::warn("CRD is not served", {{"name", entry.key}, {"error", parsed.error()}});
      } else {
        kinds = std::move(parsed).value();
      }
      spec = std::as_const(*crd)["spec"];
      // Changes of CRD status and metadata must not end watches of its objects.
      if (known != crds_.end() && kinds.empty() == known->second.kinds.empty() &&
          spec == known->second.spec)
        kinds = known->second.kinds;
    }
    next[entry.key] = {entry.modified, std::move(spec), kinds};
    if (kinds.empty() ||
        !taken.emplace(kinds[0]->resource().group, kinds[0]->resource().kind).second)
      continue;
    made.push_back(std::move(kinds));
  }
  std::sort(made.begin(), made.end(), [](const auto& a, const auto& b) {
    const meta::Resource& x = a[0]->resource();
    const meta::Resource& y = b[0]->resource();
    return std::tie(x.group, x.plural) < std::tie(y.group, y.plural);
  });
  std::vector<KindPtr> all = core_;
  for (const auto& kinds : made) all.insert(all.end(), kinds.begin(), kinds.end());
  crds_ = std::move(next);
  auto set = std::make_shared<const KindSet>(std::move(all));
  MutexLock lock(mutex_);
  kinds_ = std::move(set);
  return {};
}

}  // namespace varda::apiserver
