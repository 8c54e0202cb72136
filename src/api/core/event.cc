#include "api/core/event.h"

#include "api/describe.h"

namespace varda::api {

void ObjectReference::describe(Type<ObjectReference>& t) {
  t.field("apiVersion", &ObjectReference::api_version, "apiVersion of the object.");
  t.field("kind", &ObjectReference::kind, "Its kind.");
  t.field("namespace", &ObjectReference::ns, "Its namespace.");
  t.field("name", &ObjectReference::name, "Its name.");
  t.field("uid", &ObjectReference::uid, "Its uid.");
  t.field("resourceVersion", &ObjectReference::resource_version, "Its version.");
  t.field("fieldPath", &ObjectReference::field_path, "The part of it.");
  t.keep_unknown(&ObjectReference::unknown);
}

void Event::describe(Type<Event>& t) {
  t.field("metadata", &Event::metadata, "Metadata.");
  t.field("involvedObject", &Event::involved_object, "What it is about.").always();
  t.field("type", &Event::type, "Normal or Warning.");
  t.field("reason", &Event::reason, "Why, as one word.");
  t.field("message", &Event::message, "What happened.");
  t.field("source", &Event::source, "Who saw it.");
  t.field("firstTimestamp", &Event::first_timestamp, "First seen.");
  t.field("lastTimestamp", &Event::last_timestamp, "Last seen.");
  t.field("eventTime", &Event::event_time, "When it happened.");
  t.field("count", &Event::count, "How often.");
  t.field("action", &Event::action, "What was done.");
  t.field("reportingComponent", &Event::reporting_component, "Who reports.");
  t.field("reportingInstance", &Event::reporting_instance, "Which one of them.");
  t.keep_unknown(&Event::unknown);
}

const meta::Resource& Event::resource() {
  static const meta::Resource resource{"", "v1", "Event", "events", true};
  return resource;
}

Result<Event> Event::from_json(const Json& object) { return read_object<Event>(object); }
Json Event::to_json() const { return write_object(*this); }

}  // namespace varda::api
