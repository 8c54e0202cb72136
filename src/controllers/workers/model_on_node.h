// The version of a worker's model that a node offers to pods.
#pragma once

#include <string>

#include "controllers/workers/workers.h"

namespace varda::controllers::workers {

struct ModelOnNode {
  std::string version;  // exposed version, or "". Without archives: the wanted version
  std::string url;      // of the archive, as in a work list
  std::string sha256;   // of the archive; "" unknown
  /// True if the exposed files match the work list. False while another archive under the same
  /// version name is being installed.
  bool settled = true;
  /// A path of the node that its administrator allows, for a Model without archives. "": none.
  std::string path = {};
};

/// Requires a resolved worker.model.
ModelOnNode model_on(const Job& job, const Worker& worker, const api::EdgeNode& node);

}  // namespace varda::controllers::workers
