// Finds processes by the marks that the process driver puts into their environment. Sees only
// processes of the same user.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "node/driver.h"
#include "os/process.h"

namespace varda::node::internal {

inline constexpr const char* kMarkRunner = "VARDA_RUNNER";
inline constexpr const char* kMarkPod = "VARDA_POD_UID";
inline constexpr const char* kMarkContainer = "VARDA_CONTAINER";
inline constexpr const char* kMarkAttempt = "VARDA_ATTEMPT";
inline constexpr const char* kMarkExec = "VARDA_EXEC";  // a command beside the container

struct MarkedProcess {
  os::ProcessId id;
  ContainerName name;
  bool leads_group = false;
  bool exec = false;
};

/// The runner's name in the marks: equal for all spellings of the path.
std::string runner_mark(const os::Path& root);

/// All processes of the runner with that root, oldest first.
std::vector<MarkedProcess> find_marked(const os::Path& root);

}  // namespace varda::node::internal
