#include "cluster/internal/workload.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "codec/digest.h"

namespace varda::cluster {

namespace {

using std::chrono::seconds;

std::int64_t deletion_cost(const api::Pod& pod) {
  const auto found = pod.metadata.annotations.find("controller.kubernetes.io/pod-deletion-cost");
  if (found == pod.metadata.annotations.end()) return 0;
  return parse_integer<std::int64_t>(found->second).value_or(0);
}

std::string ready_since(const api::Pod& pod) {
  const api::CoreCondition* ready = api::find_condition(pod.status.conditions, "Ready");
  return ready && pod.ready() ? ready->last_transition_time : "";
}

}  // namespace

std::string template_hash(const Json& pod_template) {
  // The alphabet of generated names, without vowels, so that no word appears.
  static constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
  const codec::Sha256 digest = codec::Sha256::of(codec::write_json(codec::sorted(pod_template)));
  std::string out;
  for (std::size_t i = 0; i < 10; ++i) out += kAlphabet[digest.bytes[i] % kAlphabet.size()];
  return out;
}

std::int64_t amount(const Json& value, std::int64_t total, Round round,
                    std::string_view otherwise) {
  if (value.is_integer()) return std::max<std::int64_t>(value.as_integer(), 0);
  const std::string text = value.is_string() ? value.as_string() : std::string(otherwise);
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.ends_with('%')) return std::max<std::int64_t>(number, 0);
  return std::max<std::int64_t>((number * total + (round == Round::kUp ? 99 : 0)) / 100, 0);
}

std::optional<WallTime> time_of(const std::string& text) {
  auto time = meta::parse_time(text);
  if (!time.ok()) return std::nullopt;
  return *time;
}

void Timer::after(Duration delay) {
  const Duration positive = std::max<Duration>(delay, std::chrono::milliseconds(1));
  if (!due_ || positive < *due_) due_ = positive;
}

bool finished(const api::Pod& pod) {
  return pod.status.phase == "Succeeded" || pod.status.phase == "Failed";
}

bool available(const api::Pod& pod, const Readiness& readiness, Timer& timer) {
  if (!pod.ready()) return false;
  if (readiness.min_ready <= seconds(0)) return true;
  const auto since = time_of(ready_since(pod));
  if (!since) return false;
  const auto left = *since + readiness.min_ready - readiness.now;
  if (left <= left.zero()) return true;
  timer.after(std::chrono::duration_cast<Duration>(left));
  return false;
}

bool may_replace(const api::Pod& failed, WallTime now, seconds delay, Timer& timer) {
  const auto created = time_of(failed.metadata.creation_timestamp);
  const auto left = created ? *created + delay - now : WallTime::duration::zero();
  if (left <= left.zero()) return true;
  timer.after(std::chrono::duration_cast<Duration>(left));
  return false;
}

void by_dispensability(PodList& pods) {
  std::sort(pods.begin(), pods.end(), [](const PodPtr& a, const PodPtr& b) {
    const auto rank = [](const api::Pod& pod) {
      const int phase = pod.status.phase == "Running" ? 2 : pod.status.phase == "Unknown" ? 1 : 0;
      return std::tuple(!pod.spec.node_name.empty(), phase, pod.ready(), deletion_cost(pod));
    };
    if (rank(*a) != rank(*b)) return rank(*a) < rank(*b);
    // RFC 3339 times in UTC sort as text. The younger pod is first.
    if (ready_since(*a) != ready_since(*b)) return ready_since(*a) > ready_since(*b);
    if (a->metadata.creation_timestamp != b->metadata.creation_timestamp) {
      return a->metadata.creation_timestamp > b->metadata.creation_timestamp;
    }
    return a->metadata.name < b->metadata.name;
  });
}

Json pod_of_template(const Json& pod_template, const std::string& generate_name,
                     const std::string& ns) {
  Json metadata = Json::object({{"generateName", generate_name}, {"namespace", ns}});
  for (const char* name : {"labels", "annotations", "finalizers"}) {
    if (const Json* member = pod_template["metadata"].find(name)) metadata.set(name, *member);
  }
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Pod"},
                       {"metadata", std::move(metadata)},
                       {"spec", pod_template["spec"]}});
}

Json condition(const std::vector<api::CoreCondition>& before, std::string_view type,
               const Phrasing& phrasing, WallTime now) {
  const api::CoreCondition* was = api::find_condition(before, type);
  const bool same = was && was->status == phrasing.status && !was->last_transition_time.empty();
  return Json::object(
      {{"type", type},
       {"status", phrasing.status},
       {"lastTransitionTime", same ? was->last_transition_time : meta::format_time(now)},
       {"reason", phrasing.reason},
       {"message", phrasing.message}});
}

Status hand_over(const Context& ctx, runtime::Writer& writer, const runtime::ObjectRef& object,
                 const std::string& from, const runtime::ObjectRef* owner) {
  return writer.edit(ctx, object, runtime::Part::kWhole, [&](Json& live) {
    if (live["metadata"].contains("deletionTimestamp")) return;
    Json references = Json::array();
    for (const Json& reference : std::as_const(live)["metadata"]["ownerReferences"].as_array()) {
      if (!reference["controller"].as_bool()) {
        references.push_back(reference);
      } else if (reference["uid"].as_string() != from) {
        return;  // another controller has the object by now
      }
    }
    if (owner) {
      references.push_back(Json::object({{"apiVersion", owner->resource->api_version()},
                                         {"kind", owner->resource->kind},
                                         {"name", owner->key.name},
                                         {"uid", owner->uid},
                                         {"controller", true},
                                         {"blockOwnerDeletion", true}}));
    }
    if (references.empty()) {
      live["metadata"].erase("ownerReferences");
    } else {
      live["metadata"].set("ownerReferences", std::move(references));
    }
  });
}

Status apply_pod_changes(const Context& ctx, runtime::Writer& writer,
                         const runtime::ObjectRef& owner, const PodChanges& changes) {
  Status first;
  for (const PodPtr& pod : changes.remove) {
    Status removed = writer.remove(ctx, runtime::ObjectRef::of(*pod));
    if (removed.ok()) {
      writer.event(owner, runtime::EventType::kNormal, "SuccessfulDelete",
                   "Deleted pod: " + pod->metadata.name);
    } else if (first.ok()) {
      first = std::move(removed);
    }
  }
  for (const Json& pod : changes.create) {
    auto created = writer.create(ctx, pod, &owner);
    if (!created.ok()) {
      writer.event(owner, runtime::EventType::kWarning, "FailedCreate",
                   "Error creating: " + created.error().message());
      if (first.ok()) first = std::move(created).error();
      break;
    }
    writer.event(owner, runtime::EventType::kNormal, "SuccessfulCreate",
                 "Created pod: " + std::as_const(*created)["metadata"]["name"].as_string());
  }
  return first;
}

}  // namespace varda::cluster
