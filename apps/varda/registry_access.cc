#include "registry_access.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "command.h"
#include "net/client.h"
#include "net/url.h"
#include "os/file_system.h"

namespace varda::app {
namespace {

/// Nothing: the file is missing.
Result<std::optional<std::string>> read_if_exists(const std::string& file, const char* flag) {
  auto text = os::read_file(os::real_file_system(), followed(file)).context(flag);
  if (!text.ok() && text.error().code() == Code::kNotFound) return std::optional<std::string>();
  TRY(std::string found, std::move(text));
  return std::optional(std::move(found));
}

}  // namespace

Result<std::unique_ptr<net::HttpClient>> connect_registry(const RegistryAccess& flags,
                                                          const std::string& without,
                                                          registry::Target& target) {
  if (flags.url.empty()) return std::unique_ptr<net::HttpClient>();
  TRY([[maybe_unused]] const net::Url checked, net::Url::parse(flags.url).context("--registry"));
  net::ClientOptions reach;
  if (!flags.token_file.empty()) {
    TRY(const auto token, read_if_exists(flags.token_file, "--registry-token-file"));
    if (!token) {
      log::warn("no token of the registry, " + without, {{"file", flags.token_file}});
      return std::unique_ptr<net::HttpClient>();
    }
    target.token = trim(*token);
  }
  if (!flags.ca_file.empty()) {
    TRY(const auto ca, read_if_exists(flags.ca_file, "--registry-ca-file"));
    if (!ca) log::warn("no authority of the registry", {{"file", flags.ca_file}});
    reach.extra_ca_pem = ca.value_or("");
  }
  target.url = flags.url;
  return net::make_client(reach);
}

}  // namespace varda::app
