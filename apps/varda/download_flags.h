// Flags of the subcommands that download: proxies, trusted authorities, allowed addresses.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "artifact/credentials.h"
#include "base/result.h"
#include "net/client.h"
#include "net/destinations.h"

namespace varda::app {

struct DownloadFlags {
  // Nothing: the environment's value. "": no proxy.
  std::optional<std::string> http_proxy, https_proxy, no_proxy;
  std::string proxy_credentials_file, ca_file;
  std::vector<std::string> allow_sources;
};

void add_download_flags(CLI::App& command, DownloadFlags& flags);
/// Adds --allow-source alone, for a program that only passes the flag on.
void add_allow_source_flag(CLI::App& command, std::vector<std::string>& sources);
/// {"--allow-source", A, "--allow-source", B}. kInvalid: an entry is no block of addresses.
Result<std::vector<std::string>> allow_source_arguments(const std::vector<std::string>& sources);
/// Addresses of this machine, which `varda up` allows for every process it starts.
inline const std::vector<std::string> kLoopbackSources = {"127.0.0.0/8", "::1"};

/// The arguments that set the same flags in another process. Paths become absolute.
std::vector<std::string> arguments_of(const DownloadFlags& flags);
/// The proxy variables of this process's environment, for the environment of the other process.
std::map<std::string, std::string> proxy_environment();

/// Options for downloads of archives, from the flags, else from the environment. An error names the
/// flag or the variable and contains no secret.
Result<net::ClientOptions> download_client_options(const DownloadFlags& flags);

/// The files of a directory that holds a Secret as a pod mounts it, by name.
Result<std::map<std::string, std::string>> read_secret_directory(const std::string& directory);

/// Credentials from a directory that holds a Secret as a pod mounts it: one file for each key.
class DirectoryCredentials final : public artifact::CredentialReader {
 public:
  artifact::Outcome<artifact::Credentials> read(const Context& ctx,
                                                const std::string& directory) override;
};

}  // namespace varda::app
