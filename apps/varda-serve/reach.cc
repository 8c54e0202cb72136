#include "reach.h"

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "os/process.h"

namespace varda::serve {

namespace {

constexpr std::string_view kOfTheSystem[] = {"/lib",
                                             "/lib64",
                                             "/usr/lib",
                                             "/usr/lib64",
                                             "/usr/local/lib",
                                             "/etc/ld.so.cache",
                                             "/etc/resolv.conf",
                                             "/etc/hosts",
                                             "/etc/host.conf",
                                             "/etc/nsswitch.conf",
                                             "/etc/gai.conf",
                                             "/etc/services",
                                             "/etc/localtime",
                                             "/usr/share/zoneinfo",
                                             "/etc/ssl",
                                             "/etc/pki",
                                             "/usr/share/ca-certificates",
                                             "/usr/local/share/ca-certificates",
                                             "/dev/zero",
                                             "/dev/random",
                                             "/dev/urandom",
                                             "/sys"};

/// Adds the targets of links: an engine's libraries may lie elsewhere, with a link beside the
/// engine.
void add_links(const std::filesystem::path& directory, std::vector<os::Path>& out) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_symlink(error)) continue;
    if (const auto target = std::filesystem::canonical(at->path(), error); !error)
      out.push_back(target);
  }
}

bool is_mount_point(const std::filesystem::path& directory) {
  if (!directory.is_absolute() || directory == "/") return false;
  std::ifstream mounts("/proc/self/mountinfo");  // "36 35 98:0 /root /mounted/at rw - ext4 ..."
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string field;
    for (int i = 0; i < 5; ++i) fields >> field;
    if (field == directory.string()) return true;
  }
  return false;
}

/// Kubernetes replaces a Secret's files by swapping a link in their directory. `varda agent`
/// renames files into the directory that it mounts. Any other directory stays closed, since it may
/// hold unrelated files.
void add_followed(const std::vector<std::filesystem::path>& files, std::vector<os::Path>& out) {
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const bool directory =
        std::filesystem::is_symlink(file, error) || is_mount_point(file.parent_path());
    out.push_back(directory ? file.parent_path() : file);
  }
}

}  // namespace

std::vector<std::filesystem::path> credential_files(const Flags& flags) {
  std::vector<std::filesystem::path> out;
  for (const std::string& path : {flags.tls_cert, flags.tls_key, flags.client_ca, flags.token_file,
                                  flags.tier_ca, flags.tier_token_file})
    if (!path.empty()) out.emplace_back(path);
  return out;
}

os::ReachableFiles reach_of(const Flags& flags, const std::vector<std::filesystem::path>& engines,
                            const std::map<std::string, std::string>& environment,
                            Credentials credentials) {
  os::ReachableFiles out;
  out.read = {flags.model_repository, os::self_path()};
  for (const std::string_view path : kOfTheSystem) out.read.emplace_back(path);
  for (const auto& directory : engines) {
    out.read.push_back(directory);
    add_links(directory, out.read);
  }
  for (const std::string& path : flags.also_read) out.read.emplace_back(path);
  if (credentials == Credentials::kInside) add_followed(credential_files(flags), out.read);
  for (const char* name :
       {"LD_LIBRARY_PATH", "VARDA_ONNXRUNTIME", "SSL_CERT_FILE", "SSL_CERT_DIR"}) {
    const auto value = environment.find(name);
    if (value == environment.end()) continue;
    std::istringstream paths(value->second);
    for (std::string path; std::getline(paths, path, ':');)
      if (path.starts_with('/')) out.read.emplace_back(path);
  }
  // Landlock grants /proc as a whole or not at all: the directory of a later child is unknown here.
  // Reading is harmless, since a confined process cannot inspect the memory and the environment of
  // others. Writing would reach /proc/sys.
  out.read.emplace_back("/proc");
  out.read_write = {"/dev/null"};
  if (!flags.samples_directory.empty()) out.own.emplace_back(flags.samples_directory);
  return out;
}

}  // namespace varda::serve
