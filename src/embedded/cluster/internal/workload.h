// Shared parts of the controllers that create pods. Everything pure depends on its arguments only.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/pod.h"
#include "base/clock.h"
#include "meta/object.h"
#include "runtime/writer.h"

namespace varda::cluster {

using codec::Json;

inline constexpr std::string_view kTemplateHashLabel = "pod-template-hash";
inline constexpr std::size_t kBurst = 100;  // limit of pods that one reconcile creates or removes

using PodPtr = std::shared_ptr<const api::Pod>;
using PodList = std::vector<PodPtr>;

/// Ten characters that identify a pod template; the order of members does not matter.
std::string template_hash(const Json& pod_template);

enum class Round { kUp, kDown };
/// Value of an IntOrString: a number, or a percentage of `total`. `otherwise` replaces a missing
/// value.
std::int64_t amount(const Json& value, std::int64_t total, Round round, std::string_view otherwise);

std::optional<WallTime> time_of(const std::string& text);

/// Keeps the earliest of several times at which something changes by itself.
class Timer {
 public:
  void after(Duration delay);
  std::optional<Duration> due() const { return due_; }

 private:
  std::optional<Duration> due_;
};

/// True if the phase is Succeeded or Failed.
bool finished(const api::Pod& pod);

/// Parameters of availability.
struct Readiness {
  WallTime now;
  std::chrono::seconds min_ready{0};
};
/// True if the pod has been ready that long. If it will be, sets `alarm` to that time.
bool available(const api::Pod& pod, const Readiness& readiness, Timer& timer);

/// True once a failed pod is old enough to be replaced. The delay limits the rate at which pods of
/// a broken template are created and deleted.
bool may_replace(const api::Pod& failed, WallTime now, std::chrono::seconds delay, Timer& timer);

/// Sorts pods by the order of removal: unbound, not running, not ready, cheap (annotation
/// controller.kubernetes.io/pod-deletion-cost), ready for the shortest time, youngest.
void by_dispensability(PodList& pods);

/// The Pod for a template: {apiVersion, kind: Pod, metadata: {generateName, namespace, labels,
/// annotations}, spec}.
Json pod_of_template(const Json& pod_template, const std::string& generate_name,
                     const std::string& ns);

/// A condition of a workload; its lastTransitionTime changes with the status only.
struct Phrasing {
  std::string status, reason, message;
};
Json condition(const std::vector<api::CoreCondition>& before, std::string_view type,
               const Phrasing& phrasing, WallTime now);

/// Makes `owner` the controller of an object without controller, or controlled by `from` (a uid). A
/// null `owner` removes the controller.
Status hand_over(const Context& ctx, runtime::Writer& writer, const runtime::ObjectRef& object,
                 const std::string& from, const runtime::ObjectRef* owner);

/// Pods to create and remove.
struct PodChanges {
  std::vector<Json> create;
  PodList remove;
};
/// Applies the changes, with an Event on the owner for each. Tries every removal; stops creating at
/// the first error. Returns the first error.
Status apply_pod_changes(const Context& ctx, runtime::Writer& writer,
                         const runtime::ObjectRef& owner, const PodChanges& changes);

}  // namespace varda::cluster
