// ConfigMaps and Secrets of one pod: read from the host, and cached on disk for starts without it.
#pragma once

#include <memory>

#include "node/internal/environment.h"
#include "node/pod_runner.h"

namespace varda::node::internal {

std::unique_ptr<ConfigSource> make_config_cache(Host& host, os::FileSystem& fs, os::Path file,
                                                std::string ns);

}  // namespace varda::node::internal
