// Event and Lease.
#include <algorithm>

#include "apiserver/kinds/core_kind.h"
#include "base/text.h"

namespace varda::apiserver {

namespace {

const Json& first_of(const Json& event) {
  return event["firstTimestamp"].is_string() ? event["firstTimestamp"] : event["eventTime"];
}

// Old events have a count and two times; newer ones have a series and an eventTime.
const Json& last_seen(const Json& event) {
  if (const Json& observed = event.at("series/lastObservedTime"); observed.is_string())
    return observed;
  if (event["lastTimestamp"].is_string()) return event["lastTimestamp"];
  return first_of(event);
}

class EventKind : public CoreKind {
 public:
  EventKind()
      : CoreKind({.info = {.resource = {"", "v1", "Event", "events", true},
                           .short_names = {"ev"},
                           .create_on_update = true}}) {}

  Causes validate_create(const Json& event) const override {
    const std::string& ns = event.at("metadata/namespace").as_string();
    const Json& about = event.at("involvedObject/namespace");
    const bool cluster_scoped = about.as_string().empty();
    const bool fits = cluster_scoped ? ns.empty() || ns == "default" || ns == "kube-system"
                                     : about.as_string() == ns;
    if (fits) return {};
    return {
        invalid("involvedObject.namespace", about.as_string(), "does not match event.namespace")};
  }

  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        column("Last Seen", "Time of the last occurrence."),
        column("Type", "Normal or Warning."),
        column("Reason", "Machine-readable reason, one CamelCase word."),
        column("Object", "The object that the event is about."),
        column("Subobject", "Part of the object.", 1),
        column("Source", "Component that reported the event.", 1),
        column("Message", "Human-readable description."),
        column("First Seen", "Time of the first occurrence.", 1),
        column("Count", "Number of occurrences.", 1),
        [] {
          Column name = name_column();
          name.priority = 1;
          return name;
        }(),
    };
    return columns;
  }

  std::vector<Json> cells(const Json& event, WallTime now) const override {
    const Json& about = event["involvedObject"];
    std::string object = lower(about["kind"].as_string());
    if (!about["name"].as_string().empty()) object += "/" + about["name"].as_string();
    const Json& source = event["source"];
    std::string caller = text_or(source["component"], event["reportingComponent"].as_string());
    const std::string host = text_or(source["host"], event["reportingInstance"].as_string());
    if (!host.empty()) caller += ", " + host;
    std::int64_t count = event["count"].as_integer();
    if (!event["series"].is_null()) count = event.at("series/count").as_integer();
    return {seen(last_seen(event), now),
            event["type"].as_string(),
            event["reason"].as_string(),
            object,
            about["fieldPath"].as_string(),
            caller,
            trim(event["message"].as_string()),
            seen(first_of(event), now),
            std::max<std::int64_t>(count, event["eventTime"].is_string() ? 1 : 0),
            event.at("metadata/name")};
  }

  const std::vector<std::string>& selectable_fields() const override {
    static const std::vector<std::string> fields = {"involvedObject.kind",
                                                    "involvedObject.namespace",
                                                    "involvedObject.name",
                                                    "involvedObject.uid",
                                                    "involvedObject.apiVersion",
                                                    "involvedObject.resourceVersion",
                                                    "involvedObject.fieldPath",
                                                    "reason",
                                                    "reportingComponent",
                                                    "source",
                                                    "type"};
    return fields;
  }
  std::string field(const Json& event, std::string_view name) const override {
    if (name == "source")
      return text_or(event.at("source/component"), event["reportingComponent"].as_string());
    if (name == "reportingComponent") return event["reportingComponent"].as_string();
    return CoreKind::field(event, name);
  }

 private:
  static std::string seen(const Json& time, WallTime now) { return age_cell(time, now); }
};

class LeaseKind : public CoreKind {
 public:
  LeaseKind()
      : CoreKind({.info = {.resource = {"coordination.k8s.io", "v1", "Lease", "leases", true},
                           .unconditional_update = false,
                           .create_on_update = true}}) {}

  Causes validate_create(const Json& lease) const override {
    Causes causes;
    const Json& spec = lease["spec"];
    if (const Json* seconds = spec.find("leaseDurationSeconds");
        seconds != nullptr && seconds->as_integer() <= 0) {
      causes.push_back(invalid("spec.leaseDurationSeconds", *seconds, "must be greater than 0"));
    }
    check_not_negative(spec, "leaseTransitions", "spec", causes);
    return causes;
  }
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("Holder", "Holder of the lease."), age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& lease, WallTime now) const override {
    return {lease.at("metadata/name"), lease.at("spec/holderIdentity").as_string(),
            age_of(lease, now)};
  }
};

}  // namespace

KindPtr make_event() { return std::make_shared<EventKind>(); }
KindPtr make_lease() { return std::make_shared<LeaseKind>(); }

}  // namespace varda::apiserver
