// Volumes of a pod: directories and files below its own directory, or on the machine.
#pragma once

#include <vector>

#include "node/internal/environment.h"
#include "os/file_system.h"

namespace varda::node::internal {

/// Makes the pod's volumes; what is there already stays (emptyDir) or is replaced as a whole (configuration): containers that run
/// go on with what they have mounted. Nothing is ever written into a directory that a container has. Errors name the volume.
Status make_volumes(os::FileSystem& fs, const os::Path& pod_directory, const PodRecord& record, const std::string& host_ip,
                    ConfigSource& source);

/// The mounts of one container; configuration is always read-only. kInvalid: a mount names no volume, or leaves it ("..", or a link
/// in a subPath). What is named is looked at now and mounted later: a container that writes to the volume in between can still put
/// a link there.
Result<std::vector<os::Mount>> make_mounts(os::FileSystem& fs, const os::Path& pod_directory, const PodRecord& record,
                                           const Json& container, const std::map<std::string, std::string>& environment);

}  // namespace varda::node::internal
