// Flags of the subcommands that download: through which proxy, and whom they trust.
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
  std::optional<std::string> http_proxy, https_proxy, no_proxy;  // given: the environment does not count for them
  std::string proxy_credentials_file, ca_file;
  std::vector<std::string> allow_sources;
};

void add_download_flags(CLI::App& command, DownloadFlags& flags);
/// --allow-source alone, for a program that only passes it on.
void add_allow_source_flag(CLI::App& command, std::vector<std::string>& sources);
/// {"--allow-source", A, "--allow-source", B}. kInvalid: one is no block of addresses.
Result<std::vector<std::string>> allow_source_arguments(const std::vector<std::string>& sources);
/// Blocks of this machine itself, which `varda up` allows for everything it starts.
inline const std::vector<std::string> kLoopbackSources = {"127.0.0.0/8", "::1"};

/// The command line by which another process gets the same; paths made absolute.
std::vector<std::string> arguments_of(const DownloadFlags& flags);
/// And what of its environment counts for that.
std::map<std::string, std::string> proxy_environment();

/// What archives are downloaded with: the flags, else the environment. An error names the flag or the variable, and no secret.
Result<net::ClientOptions> download_client_options(const DownloadFlags& flags);

/// Credentials from the files of one directory, named as the keys of a Secret: how one is mounted into a pod.
class DirectoryCredentials final : public artifact::CredentialReader {
 public:
  artifact::Outcome<artifact::Credentials> read(const Context& ctx, const std::string& directory) override;
};

}  // namespace varda::app
