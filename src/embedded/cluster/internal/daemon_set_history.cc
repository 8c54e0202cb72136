#include "cluster/internal/daemon_set_history.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "meta/selector.h"

namespace varda::cluster {

namespace {

constexpr std::int64_t kLimit = 10;  // apps/v1's default

std::string hash_label(const meta::ObjectMeta& metadata) {
  const auto found = metadata.labels.find(std::string(kRevisionHashLabel));
  return found == metadata.labels.end() ? "" : found->second;
}

Json revision_of(const api::DaemonSet& set, const Json& pod_template, const std::string& hash,
                 std::int64_t number) {
  Json labels = pod_template.at("metadata/labels");
  labels.set(kRevisionHashLabel, hash);
  Json metadata = Json::object({{"name", set.metadata.name + "-" + hash},
                                {"namespace", set.metadata.ns},
                                {"labels", std::move(labels)}});
  if (!set.metadata.annotations.empty()) {
    Json annotations = Json::object();  // includes kubernetes.io/change-cause
    for (const auto& [name, value] : set.metadata.annotations) annotations.set(name, value);
    metadata.set("annotations", std::move(annotations));
  }
  // kubectl undo sends `data` to the DaemonSet unchanged.
  Json recorded = Json::object({{"$patch", "replace"}});
  for (const auto& [name, member] : pod_template.as_object()) recorded.set(name, member);
  return Json::object(
      {{"apiVersion", api::ControllerRevision::resource().api_version()},
       {"kind", api::ControllerRevision::resource().kind},
       {"metadata", std::move(metadata)},
       {"data", Json::object({{"spec", Json::object({{"template", std::move(recorded)}})}})},
       {"revision", number}});
}

}  // namespace

DaemonSetHistory plan_history(const api::DaemonSet& set, const std::vector<RevisionPtr>& revisions,
                              const PodList& pods) {
  DaemonSetHistory plan;
  const auto selector = meta::LabelSelector::from_json(set.spec.selector);
  if (!selector.ok() || selector->empty()) return plan;
  const Json pod_template = set.to_json()["spec"]["template"];
  const std::string hash = template_hash(pod_template);
  RevisionPtr present;
  std::vector<RevisionPtr> old;
  std::int64_t highest = 0;  // of the other templates
  for (const RevisionPtr& revision : revisions) {
    if (revision->metadata.deleting()) continue;
    const meta::OwnerReference* controller = revision->metadata.controller();
    if (controller ? controller->uid != set.metadata.uid
                   : !selector->matches(revision->metadata.labels))
      continue;
    if (!controller) plan.adopt.push_back(revision);
    if (hash_label(revision->metadata) == hash) {
      present = revision;
    } else {
      old.push_back(revision);
      highest = std::max(highest, revision->revision);
    }
  }
  plan.number = highest + 1;
  if (!present) {
    plan.create = revision_of(set, pod_template, hash, plan.number);
  } else if (present->revision < plan.number) {
    plan.renumber = present;
  }

  std::set<std::string> live;
  for (const PodPtr& pod : pods) live.insert(hash_label(pod->metadata));
  const auto limit = static_cast<std::size_t>(
      std::max<std::int64_t>(set.spec.revision_history_limit.value_or(kLimit), 0));
  std::sort(old.begin(), old.end(), [](const RevisionPtr& a, const RevisionPtr& b) {
    return std::pair(a->revision, a->metadata.name) < std::pair(b->revision, b->metadata.name);
  });
  for (const RevisionPtr& revision : old) {
    if (plan.remove.size() + limit >= old.size()) break;
    if (!live.contains(hash_label(revision->metadata))) plan.remove.push_back(revision);
  }
  return plan;
}

Status write_history(const Context& ctx, runtime::Writer& writer, const api::DaemonSet& set,
                     const DaemonSetHistory& history) {
  const runtime::ObjectRef owner = runtime::ObjectRef::of(set);
  for (const RevisionPtr& revision : history.adopt) {
    TRY_VOID(hand_over(ctx, writer, runtime::ObjectRef::of(*revision), "", &owner));
  }
  if (history.create) TRY_VOID(writer.create(ctx, *history.create, &owner));
  if (history.renumber) {
    TRY_VOID(writer.edit(ctx, runtime::ObjectRef::of(*history.renumber), runtime::Part::kWhole,
                         [&](Json& live) { live.set("revision", history.number); }));
  }
  for (const RevisionPtr& revision : history.remove)
    TRY_VOID(writer.remove(ctx, runtime::ObjectRef::of(*revision)));
  return {};
}

}  // namespace varda::cluster
