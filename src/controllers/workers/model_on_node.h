// Which version of a worker's model a node has for its pods.
#pragma once

#include <string>

#include "controllers/workers/workers.h"

namespace varda::controllers {

struct ModelOnNode {
  std::string version;  // the one that is exposed; "" none yet. Of a model that nobody fetches: the one that is meant
  std::string url;      // of its archive, as a work list had it
  std::string sha256;   // of its archive; "" not known
  /// What is exposed under the name is what the work list means by it. Not so while another archive of that name is on its way.
  bool settled = true;
};

/// The worker's model is resolved.
ModelOnNode model_on(const Job& job, const Worker& worker, const api::EdgeNode& node);

}  // namespace varda::controllers
