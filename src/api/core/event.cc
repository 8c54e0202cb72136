#include "api/core/event.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void ObjectReference::describe(Type<ObjectReference>& t) {
  t.field("apiVersion", &ObjectReference::api_version, "apiVersion of the object.");
  t.field("kind", &ObjectReference::kind, "Kind of the object.");
  t.field("namespace", &ObjectReference::ns, "Namespace of the object.");
  t.field("name", &ObjectReference::name, "Name of the object.");
  t.field("uid", &ObjectReference::uid, "UID of the object.");
  t.field("resourceVersion", &ObjectReference::resource_version, "resourceVersion of the object.");
  t.field("fieldPath", &ObjectReference::field_path, "Part of the object.");
  t.keep_unknown(&ObjectReference::unknown);
}

void Event::describe(Type<Event>& t) {
  t.field("metadata", &Event::metadata, "Metadata.");
  t.field("involvedObject", &Event::involved_object, "The object that the event is about.")
      .always();
  t.field("type", &Event::type, "Normal or Warning.");
  t.field("reason", &Event::reason, "Machine-readable reason, one CamelCase word.");
  t.field("message", &Event::message, "Human-readable description.");
  t.field("source", &Event::source, "Component that reported the event.");
  t.field("firstTimestamp", &Event::first_timestamp, "Time of the first occurrence.");
  t.field("lastTimestamp", &Event::last_timestamp, "Time of the last occurrence.");
  t.field("eventTime", &Event::event_time, "Time of the event.");
  t.field("count", &Event::count, "Number of occurrences.");
  t.field("action", &Event::action, "Action of the controller.");
  t.field("reportingComponent", &Event::reporting_component, "Controller that reports the event.");
  t.field("reportingInstance", &Event::reporting_instance, "Instance of the reporting controller.");
  t.keep_unknown(&Event::unknown);
}

const meta::Resource& Event::resource() { return meta::core::events(); }

Result<Event> Event::from_json(const Json& object) { return read_object<Event>(object); }
Json Event::to_json() const { return write_object(*this); }

}  // namespace varda::api
