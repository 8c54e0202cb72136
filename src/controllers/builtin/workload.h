// What the controllers that make pods have in common. Everything pure is a function of its arguments.
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

namespace varda::controllers {

using codec::Json;

inline constexpr std::string_view kTemplateHashLabel = "pod-template-hash";
inline constexpr std::size_t kBurst = 100;  // pods one round creates or removes at most; the rest follows

using PodPtr = std::shared_ptr<const api::Pod>;
using PodList = std::vector<PodPtr>;

/// Ten characters for a pod template: the same for the same template, whatever the order of its members.
std::string template_hash(const Json& pod_template);

enum class Round { kUp, kDown };
/// An IntOrString: a number, or a percentage of `total`; `otherwise` stands for one that is absent.
std::int64_t amount(const Json& value, std::int64_t total, Round round, std::string_view otherwise);

std::optional<WallTime> time_of(const std::string& text);

/// The earliest of the moments at which something changes by itself.
class Alarm {
 public:
  void after(Duration delay);
  std::optional<Duration> due() const { return due_; }

 private:
  std::optional<Duration> due_;
};

/// The phase is Succeeded or Failed.
bool finished(const api::Pod& pod);

/// When a pod counts as available.
struct Readiness {
  WallTime now;
  std::chrono::seconds min_ready{0};
};
/// Ready for at least that long. If it is only a matter of time, `alarm` rings then.
bool available(const api::Pod& pod, const Readiness& readiness, Alarm& alarm);

/// A failed pod waits this long, by its age, before it is replaced: a template whose pods fail at once must not make and delete
/// pods as fast as the machine can. True: its time has come.
bool may_replace(const api::Pod& failed, WallTime now, std::chrono::seconds delay, Alarm& alarm);

/// Those to go first come first: not bound, not running, not ready, cheap (annotation controller.kubernetes.io/pod-deletion-cost),
/// ready for the shortest time, youngest.
void by_dispensability(PodList& pods);

/// {apiVersion, kind: Pod, metadata: {generateName, namespace, labels, annotations}, spec} of a template.
Json pod_of_template(const Json& pod_template, const std::string& generate_name, const std::string& ns);

/// A condition of a workload whose lastTransitionTime moves with the status only.
struct Wording {
  std::string status, reason, message;
};
Json condition(const std::vector<api::CoreCondition>& before, std::string_view type, const Wording& wording, WallTime now);

/// Makes `owner` the controller of an object that has none, or that `from` (a uid) controls; lets go of it where `owner` is null.
Status hand_over(const Context& ctx, runtime::Writer& writer, const runtime::ObjectRef& object, const std::string& from,
                 const runtime::ObjectRef* owner);

/// What creating and removing pods came to.
struct PodChanges {
  std::vector<Json> create;
  PodList remove;
};
/// Does it, with an Event on the owner for each; all removals are tried, creation ends with the first that fails. The first error.
Status apply_pod_changes(const Context& ctx, runtime::Writer& writer, const runtime::ObjectRef& owner, const PodChanges& changes);

}  // namespace varda::controllers
