// Permission of a worker to hand files over to its node, which uploads them to the registry.
#pragma once

#include <cstdint>

#include "codec/json.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

struct WorkerUploads {
  std::int64_t max_bytes = 0;  // of one file, and of all files of the worker that wait on the node
  Json unknown;
  friend bool operator==(const WorkerUploads&, const WorkerUploads&) = default;
  static void describe(Type<WorkerUploads>& t);
};

}  // namespace varda::api
