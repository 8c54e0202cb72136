#include "download_flags.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/log.h"
#include "net/proxy.h"

namespace varda::app {
namespace {

constexpr const char* kDownloadGroup = "Downloads of archives";
constexpr std::size_t kSmallFileBytesMax = 1 << 20;

// Follows links, unlike the os room: the files of a mounted Secret are links.
Result<std::string> read_small_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kSmallFileBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (!in.is_open())) return Error(Code::kInvalid, path.string() + ": cannot be read");
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kSmallFileBytesMax)
    return Error(Code::kInvalid, path.string() + ": larger than 1 MiB");
  return text;
}

}  // namespace

void add_download_flags(CLI::App& command, DownloadFlags& flags) {
  // CLI11 turns an empty argument for a std::optional into nullopt, which would mean the
  // environment's value.
  const auto text = [&command](const char* flag, std::optional<std::string>& value,
                               const std::string& what) {
    command
        .add_option_function<std::string>(
            flag, [&value](const std::string& argument) { value = argument; }, what)
        ->group(kDownloadGroup);
  };
  text("--http-proxy", flags.http_proxy,
       "proxy for http URLs of archives: http://HOST:PORT; \"\" none; default: $http_proxy");
  text("--https-proxy", flags.https_proxy,
       "proxy for https and s3 URLs of archives; \"\" none; default: $https_proxy");
  text("--no-proxy", flags.no_proxy,
       "hosts reached without a proxy: names, addresses, blocks of them, separated by commas; "
       "default: $no_proxy");
  command
      .add_option("--proxy-credentials-file", flags.proxy_credentials_file,
                  "file with USER:PASSWORD for the proxy")
      ->group(kDownloadGroup);
  command
      .add_option(
          "--ca-file", flags.ca_file,
          "PEM certificates of file servers to trust, in addition to the machine's certificates")
      ->group(kDownloadGroup);
  add_allow_source_flag(command, flags.allow_sources);
}

void add_allow_source_flag(CLI::App& command, std::vector<std::string>& sources) {
  command
      .add_option("--allow-source", sources,
                  "address or block, such as 127.0.0.0/8, to allow as a source of archives "
                  "although loopback, link-local, "
                  "multicast and metadata addresses are refused (repeatable)")
      ->allow_extra_args(false)
      ->group(kDownloadGroup);
}

Result<std::vector<std::string>> allow_source_arguments(const std::vector<std::string>& sources) {
  TRY([[maybe_unused]] const net::Destinations checked,
      net::Destinations::create(sources).context("--allow-source"));
  std::vector<std::string> out;
  for (const std::string& source : sources) out.insert(out.end(), {"--allow-source", source});
  return out;
}

std::vector<std::string> arguments_of(const DownloadFlags& flags) {
  std::vector<std::string> out;
  const auto text = [&out](const char* flag, const std::optional<std::string>& value) {
    if (value) out.insert(out.end(), {flag, *value});
  };
  const auto file = [&out](const char* flag, const std::string& path) {
    if (!path.empty())
      out.insert(out.end(), {flag, std::filesystem::absolute(path).lexically_normal().string()});
  };
  text("--http-proxy", flags.http_proxy);
  text("--https-proxy", flags.https_proxy);
  text("--no-proxy", flags.no_proxy);
  file("--proxy-credentials-file", flags.proxy_credentials_file);
  file("--ca-file", flags.ca_file);
  for (const std::string& source : flags.allow_sources)
    out.insert(out.end(), {"--allow-source", source});
  return out;
}

std::map<std::string, std::string> proxy_environment() {
  std::map<std::string, std::string> out;
  const auto remember = [&out](const char* name) -> const char* {
    const char* const value = std::getenv(name);
    if (value != nullptr) out[name] = value;
    return nullptr;  // as if unset, so that every name is looked up
  };
  (void)net::proxies_from_environment(remember, nullptr);
  return out;
}

Result<net::ClientOptions> download_client_options(const DownloadFlags& flags) {
  net::ClientOptions options;
  options.redirects_max = 10;
  TRY(options.destinations,
      net::Destinations::create(flags.allow_sources).context("--allow-source"));
  std::string left_out;
  TRY(options.proxies,
      net::proxies_from_environment([](const char* name) { return std::getenv(name); }, &left_out));
  if (!left_out.empty())
    log::warn(
        "user and password of a proxy in the environment are not used; give them with "
        "--proxy-credentials-file",
        {{"proxy", left_out}});
  if (flags.http_proxy) {
    TRY(options.proxies.http, net::parse_proxy(*flags.http_proxy).context("--http-proxy"));
  }
  if (flags.https_proxy) {
    TRY(options.proxies.https, net::parse_proxy(*flags.https_proxy).context("--https-proxy"));
  }
  if (flags.no_proxy) options.proxies.none = *flags.no_proxy;
  if (!flags.proxy_credentials_file.empty()) {
    TRY(std::string text,
        read_small_file(flags.proxy_credentials_file).context("--proxy-credentials-file"));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    if (text.find(':') == std::string::npos || text.find_first_of("\r\n") != std::string::npos)
      return Error(Code::kInvalid, "--proxy-credentials-file: must contain one line USER:PASSWORD");
    options.proxies.credentials = std::move(text);
  }
  if (!flags.ca_file.empty()) {
    TRY(options.extra_ca_pem, read_small_file(flags.ca_file).context("--ca-file"));
    if (options.extra_ca_pem.find("-----BEGIN CERTIFICATE-----") == std::string::npos)
      return Error(Code::kInvalid, "--ca-file: the file has no PEM certificate");
  }
  return options;
}

Result<std::map<std::string, std::string>> read_secret_directory(const std::string& directory) {
  std::map<std::string, std::string> keys;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code unknown;  // a dangling link is no key
    if (name.starts_with('.') || !entry->is_regular_file(unknown)) continue;
    TRY(std::string text, read_small_file(entry->path()));
    keys.emplace(name, std::move(text));
  }
  if (error) return Error(Code::kNotFound, directory + ": " + error.message());
  // An optional Secret that does not exist is an empty directory.
  if (keys.empty()) return Error(Code::kNotFound, directory + ": there is no such Secret");
  return keys;
}

artifact::Outcome<artifact::Credentials> DirectoryCredentials::read(const Context&,
                                                                    const std::string& directory) {
  const auto keys = read_secret_directory(directory);
  if (!keys.ok()) return artifact::Failure{artifact::Reason::kCredentialsMissing, keys.error()};
  // A mounted Secret shows neither its type nor its annotations.
  return artifact::credentials_of(directory, {.keys = *keys});
}

}  // namespace varda::app
