// Reach: the files that a confined model server can still open.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "flags.h"
#include "os/confinement.h"

namespace varda::serve {

/// The files of the flags for tokens, certificates and keys.
enum class Credentials {
  kInside,   // the confined process reads them
  kOutside,  // the broker reads them; models cannot
};
std::vector<std::filesystem::path> credential_files(const Flags& flags);

/// Lists the models, the engines, all libraries, the files of name lookup and TLS, and the files
/// that flags name. Some variables of `environment` name more files: LD_LIBRARY_PATH,
/// VARDA_ONNXRUNTIME, SSL_CERT_FILE, SSL_CERT_DIR.
os::ReachableFiles reach_of(const Flags& flags, const std::vector<std::filesystem::path>& engines,
                            const std::map<std::string, std::string>& environment,
                            Credentials credentials);

}  // namespace varda::serve
