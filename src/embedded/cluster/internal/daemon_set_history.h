// History of a DaemonSet: one ControllerRevision per pod template, as `kubectl rollout history` and
// `undo` read it.
//
// A revision is named NAME-HASH and numbered from 1; the current template always has the highest
// number. A rollback renumbers the old template's revision. Beyond spec.revisionHistoryLimit (10)
// the oldest revisions are deleted, unless pods still run them.
// https://kubernetes.io/docs/tasks/manage-daemon/rollback-daemon-set/
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "api/core/controller_revision.h"
#include "api/core/daemon_set.h"
#include "cluster/internal/workload.h"

namespace varda::cluster {

/// On pods and revisions: hash of the template.
inline constexpr std::string_view kRevisionHashLabel = "controller-revision-hash";

using RevisionPtr = std::shared_ptr<const api::ControllerRevision>;

struct DaemonSetHistory {
  std::vector<RevisionPtr>
      adopt;  // matching the selector, without controller: left by --cascade=orphan
  std::optional<Json> create;  // set if the current template is new
  RevisionPtr renumber;        // set if an old template became current again: it gets `number`
  std::int64_t number = 0;
  std::vector<RevisionPtr> remove;
};

/// Pure. `revisions`: all of the namespace; `pods`: those that the DaemonSet controls.
DaemonSetHistory plan_history(const api::DaemonSet& set, const std::vector<RevisionPtr>& revisions,
                              const PodList& pods);

/// Applies the plan.
Status write_history(const Context& ctx, runtime::Writer& writer, const api::DaemonSet& set,
                     const DaemonSetHistory& history);

}  // namespace varda::cluster
