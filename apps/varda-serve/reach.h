// Reach: the files that a confined model server can still open.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "flags.h"
#include "os/confinement.h"

namespace varda::serve {

/// Lists the models, the engines, all libraries, the files of name lookup and TLS, and the files
/// that flags name. Some variables of `environment` name more files: LD_LIBRARY_PATH,
/// VARDA_ONNXRUNTIME, SSL_CERT_FILE, SSL_CERT_DIR.
os::ReachableFiles reach_of(const Flags& flags, const std::vector<std::filesystem::path>& engines,
                            const std::map<std::string, std::string>& environment);

}  // namespace varda::serve
