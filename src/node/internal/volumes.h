// Volumes of a pod: directories and files below the pod's directory, or on the machine.
#pragma once

#include <vector>

#include "node/internal/environment.h"
#include "os/file_system.h"

namespace varda::node::internal {

/// Makes the pod's volumes. An existing emptyDir stays; configuration is replaced as a whole, and
/// running containers keep their mounted version. Errors name the volume.
Status make_volumes(os::FileSystem& fs, const os::Path& pod_directory, const PodRecord& record,
                    const std::string& host_ip, ConfigSource& source);

/// Whether a volume holds ConfigMaps, Secrets or fields of the pod.
bool has_configuration(const PodRecord& record);
/// Brings changed configuration into volumes that running containers have mounted. Each changed
/// file is replaced as a whole; no file is removed. Containers mount these volumes read-only, so
/// no link in a volume comes from a container. Writes nothing when nothing differs.
Status refresh_volumes(os::FileSystem& fs, const os::Path& pod_directory, const PodRecord& record,
                       const std::string& host_ip, ConfigSource& source);

/// The mounts of one container; configuration is always read-only. kInvalid: a mount names no
/// volume, or leaves it ("..", or a link in a subPath). Paths are checked now and mounted later. A
/// container that writes to the volume in between can still plant a link.
Result<std::vector<os::Mount>> make_mounts(os::FileSystem& fs, const os::Path& pod_directory,
                                           const PodRecord& record, const Json& container,
                                           const std::map<std::string, std::string>& environment);

}  // namespace varda::node::internal
