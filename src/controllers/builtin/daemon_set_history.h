// What a DaemonSet was: a ControllerRevision for each pod template it had, as `kubectl rollout history` and `undo` read them.
//
// A revision is named NAME-HASH and numbered from 1; the present template always has the highest number. Going back to a template
// renumbers its revision. Beyond spec.revisionHistoryLimit (10) the oldest go, except those that pods still run.
// https://kubernetes.io/docs/tasks/manage-daemon/rollback-daemon-set/
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "api/core/controller_revision.h"
#include "api/core/daemon_set.h"
#include "controllers/builtin/workload.h"

namespace varda::controllers {

/// On pods and revisions: the hash of the template they were made from.
inline constexpr std::string_view kRevisionHashLabel = "controller-revision-hash";

using RevisionPtr = std::shared_ptr<const api::ControllerRevision>;

struct DaemonSetHistory {
  std::vector<RevisionPtr> adopt;  // of nobody, and our selector matches: left when a DaemonSet was deleted with --cascade=orphan
  std::optional<Json> create;      // the present template is new
  RevisionPtr renumber;            // the present template is the newest again, under `number`
  std::int64_t number = 0;
  std::vector<RevisionPtr> remove;
};

/// Pure. `revisions` are those of the namespace, `pods` those the DaemonSet controls.
DaemonSetHistory plan_history(const api::DaemonSet& set, const std::vector<RevisionPtr>& revisions, const PodList& pods);

/// Carries it out.
Status write_history(const Context& ctx, runtime::Writer& writer, const api::DaemonSet& set, const DaemonSetHistory& history);

}  // namespace varda::controllers
