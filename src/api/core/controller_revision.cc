#include "api/core/controller_revision.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void ControllerRevision::describe(Type<ControllerRevision>& t) {
  t.field("metadata", &ControllerRevision::metadata, "Metadata.");
  t.field("data", &ControllerRevision::data, "The part of the workload that made this revision.");
  t.field("revision", &ControllerRevision::revision, "Grows with each revision.").always();
  t.keep_unknown(&ControllerRevision::unknown);
}

const meta::Resource& ControllerRevision::resource() { return meta::core::controller_revisions(); }

Result<ControllerRevision> ControllerRevision::from_json(const Json& object) {
  return read_object<ControllerRevision>(object);
}
Json ControllerRevision::to_json() const { return write_object(*this); }

}  // namespace varda::api
