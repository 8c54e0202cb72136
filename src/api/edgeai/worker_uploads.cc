#include "api/edgeai/worker_uploads.h"

#include "api/describe.h"

namespace varda::api {

void WorkerUploads::describe(Type<WorkerUploads>& t) {
  t.doc("Files that a worker may hand over to its node. The node uploads them to the registry.");
  t.field("maxBytes", &WorkerUploads::max_bytes,
          "Limit of one file, and of all files of the worker that wait on the node.")
      .required()
      .format("int64")
      .range(1, 1'000'000'000'000'000);
  t.keep_unknown(&WorkerUploads::unknown);
}

}  // namespace varda::api
