#include "kube/config.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "codec/digest.h"
#include "codec/yaml.h"
#include "net/client.h"
#include "net/url.h"

namespace varda::kube {
namespace {

namespace fs = std::filesystem;

constexpr int kWaitsMax = 10;
constexpr std::string_view kUserMembers[] = {"client-certificate",
                                             "client-certificate-data",
                                             "client-key",
                                             "client-key-data",
                                             "token",
                                             "tokenFile",
                                             "extensions"};
constexpr std::chrono::seconds kDeadAfter{10};

Result<std::string> read_file(const fs::path& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    const int why = errno;
    return Error(
        why == EACCES ? Code::kForbidden : Code::kNotFound,
        "cannot read " + path.string() + (why != 0 ? ": " + std::string(std::strerror(why)) : ""));
  }
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) return Error(Code::kUnavailable, "cannot read " + path.string());
  return std::move(text).str();
}

// A file without permission counts as present: then the read fails, instead of a silent change to
// another server.
bool may_exist(const fs::path& path) {
  std::error_code why;
  return fs::exists(path, why) || why == std::errc::permission_denied;
}

Error bad(std::string what) { return {Code::kInvalid, std::move(what)}; }

// The lists of a kubeconfig, and the members that contain file names.
constexpr std::pair<const char*, const char*> kListsOfKubeconfig[] = {
    {"clusters", "cluster"}, {"users", "user"}, {"contexts", "context"}};
constexpr const char* kFileMembers[] = {"certificate-authority", "client-certificate", "client-key",
                                        "tokenFile"};

/// Reads one file of $KUBECONFIG. Paths in it become absolute, because the files of a list may be
/// in different directories.
Result<Json> read_listed_file(const fs::path& path) {
  TRY(const std::string text, read_file(path));
  if (trim(text).empty()) return Json::object();  // kubectl accepts an empty file too
  TRY(Json file, codec::parse_yaml(text).context(path.string()));
  if (!file.is_object())
    return bad(path.string() +
               ": a kubeconfig must be an object with clusters, users and contexts");
  const fs::path directory = fs::absolute(path).parent_path();
  for (const auto& [list, inner] : kListsOfKubeconfig) {
    Json entries = Json::array();
    for (Json item : std::as_const(file)[list].as_array()) {
      for (const char* member : kFileMembers) {
        const std::string named = std::as_const(item)[inner][member].as_string();
        if (!named.empty()) item[inner].set(member, (directory / named).string());
      }
      entries.push_back(std::move(item));
    }
    file.set(list, std::move(entries));
  }
  return file;
}

/// Merges `file` behind earlier files of the list. As in kubectl, an earlier entry hides later
/// entries of the same name as a whole, and the first current-context wins.
void merge_behind(Json& merged, const Json& file) {
  if (merged["current-context"].as_string().empty())
    merged.set("current-context", file["current-context"].as_string());
  for (const auto& [list, inner] : kListsOfKubeconfig) {
    Json entries =
        std::as_const(merged)[list].is_array() ? std::as_const(merged)[list] : Json::array();
    for (const Json& item : file[list].as_array()) {
      const auto& present = std::as_const(entries).as_array();
      const bool hidden = std::any_of(present.begin(), present.end(), [&item](const Json& one) {
        return one["name"] == item["name"];
      });
      if (!hidden) entries.push_back(item);
    }
    merged.set(list, std::move(entries));
  }
}

/// The member `inner` of the entry called `name` in the list `list` ({name, cluster: {...}}).
Result<const Json*> entry(const Json& config, const char* list, const char* inner,
                          const std::string& name) {
  for (const Json& item : config[list].as_array()) {
    if (item["name"].as_string() != name) continue;
    if (!item[inner].is_object())
      return bad(std::string(list) + "[name=" + name + "]." + inner + ": must be an object");
    return &item[inner];
  }
  return Error(Code::kNotFound, std::string("no ") + inner + " \"" + name + "\" in " + list);
}

/// PEM from "X-data" (base64, wins) or from the file "X"; "" if neither is there.
Result<std::string> pem(const Json& from, const std::string& name, const fs::path& directory) {
  if (const Json& data = from[name + "-data"]; !data.is_null()) {
    auto text = codec::unbase64(trim(data.as_string()));
    if (!text.ok()) return bad(name + "-data: must be base64");
    return std::move(*text);
  }
  if (const Json& file = from[name]; !file.is_null())
    return read_file(directory / file.as_string()).context(name);
  return std::string();
}

/// A token in a file that is replaced from time to time (service accounts).
class FileToken {
 public:
  explicit FileToken(fs::path path) : path_(std::move(path)) {}

  std::string get() {
    MutexLock lock(mutex_);
    if (token_.empty() || system_clock().now() - read_ > std::chrono::seconds(10)) read();
    return token_;
  }

  /// Returns the token to use after the server refused `refused`.
  std::string again(const std::string& refused) {
    MutexLock lock(mutex_);
    if (token_ == refused) read();
    return token_;
  }

 private:
  void read() REQUIRES(mutex_) {
    // If the file is unreadable or empty for a moment, the last token stays in use.
    if (auto text = read_file(path_); text.ok()) {
      if (const std::string_view token = trim(*text); !token.empty()) token_ = token;
    }
    read_ = system_clock().now();
  }

  const fs::path path_;
  Mutex mutex_;
  std::string token_ GUARDED_BY(mutex_);
  SteadyTime read_ GUARDED_BY(mutex_);
};

/// Takes the proxies of the environment, unless the file has one.
Status find_proxies(Config& config) {
  if (!config.proxies.https.empty()) return {};
  std::string left_out;
  TRY(config.proxies,
      net::proxies_from_environment([](const char* name) { return std::getenv(name); }, &left_out));
  if (!left_out.empty())
    log::warn("user and password of a proxy in the environment are not used",
              {{"proxy", left_out}});
  return {};
}

}  // namespace

namespace {

Result<Config> config_of(const Json& file, const fs::path& directory, std::string_view context) {
  if (!file.is_object())
    return bad("a kubeconfig must be an object with clusters, users and contexts");
  const std::string name =
      context.empty() ? file["current-context"].as_string() : std::string(context);
  if (name.empty()) return bad("current-context: is not set; name a context");
  TRY(const Json* const chosen, entry(file, "contexts", "context", name));
  TRY(const Json* const cluster,
      entry(file, "clusters", "cluster", (*chosen)["cluster"].as_string()));

  Config out;
  out.server = (*cluster)["server"].as_string();
  while (out.server.ends_with('/')) out.server.pop_back();
  const auto url = net::Url::parse(out.server);
  if (!url.ok()) return bad("cluster.server: " + url.error().message());
  if (url->scheme != "https" && url->scheme != "http") {
    return bad("cluster.server: must begin with https:// or http://, not " + url->scheme + "://");
  }
  TRY(out.tls.ca_pem, pem(*cluster, "certificate-authority", directory));
  out.tls.verify = !(*cluster)["insecure-skip-tls-verify"].as_bool();
  out.tls.server_name = (*cluster)["tls-server-name"].as_string();
  if (const std::string& proxy = (*cluster)["proxy-url"].as_string(); !proxy.empty()) {
    TRY(out.proxies.https, net::parse_proxy(proxy).context("cluster.proxy-url"));
    out.proxies.http = out.proxies.https;
  }
  out.ns = (*chosen)["namespace"].string_or("default");
  if (out.ns.empty()) out.ns = "default";

  const std::string& user_name = (*chosen)["user"].as_string();
  if (user_name.empty()) return out;
  TRY(const Json* const user, entry(file, "users", "user", user_name));
  for (const char* plugin : {"exec", "auth-provider"}) {
    if (user->contains(plugin)) {
      return Error(Code::kUnsupported,
                   "user \"" + user_name + "\" needs the credential plug-in \"" + plugin +
                       "\", which is not supported: use a token or a client certificate");
    }
  }
  // Fail instead of acting as another user, or as an anonymous one.
  for (const auto& [member, value] : user->as_object()) {
    const bool known = std::find(std::begin(kUserMembers), std::end(kUserMembers), member) !=
                       std::end(kUserMembers);
    const bool is_set = !value.is_null() && !(value.is_string() && value.as_string().empty());
    if (!known && is_set)
      return Error(
          Code::kUnsupported,
          "user \"" + user_name + "\" has \"" + member +
              "\", which is not supported: use a token or a client certificate of its own");
  }
  TRY(out.tls.certificate_pem, pem(*user, "client-certificate", directory));
  TRY(out.tls.key_pem, pem(*user, "client-key", directory));
  if (out.tls.certificate_pem.empty() != out.tls.key_pem.empty()) {
    return bad("user \"" + user_name + "\": client-certificate and client-key must come together");
  }
  out.token = (*user)["token"].as_string();
  if (const std::string& token_file = (*user)["tokenFile"].as_string(); !token_file.empty())
    out.token_file = directory / token_file;
  return out;
}

/// `present` has at least one file.
Result<Config> load_list(const std::vector<fs::path>& present) {
  if (present.size() == 1) return load_kubeconfig(present.front());
  Json merged = Json::object();
  std::string names;
  for (const fs::path& path : present) {
    TRY(const Json file, read_listed_file(path));
    merge_behind(merged, file);
    names += (names.empty() ? "" : ":") + path.string();
  }
  TRY(Config config, config_of(merged, {}, "").context(names));
  TRY_VOID(find_proxies(config));
  return config;
}

}  // namespace

Result<Config> parse_kubeconfig(std::string_view yaml, const std::filesystem::path& directory,
                                std::string_view context) {
  TRY(const Json file, codec::parse_yaml(yaml));
  return config_of(file, directory, context);
}

Result<Config> load_kubeconfig(const std::filesystem::path& path, std::string_view context) {
  TRY(const std::string text, read_file(path));
  TRY(Config config,
      parse_kubeconfig(text, fs::absolute(path).parent_path(), context).context(path.string()));
  TRY_VOID(find_proxies(config));
  return config;
}

Result<Config> in_cluster(const std::filesystem::path& root) {
  const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
  std::error_code ignored;
  if (!host || !port || !fs::exists(root / "token", ignored))
    return Error(Code::kNotFound, "not running in a pod of a cluster");
  Config out;
  const std::string_view name = host;
  out.server = "https://" +
               (name.find(':') == std::string_view::npos ? std::string(name)
                                                         : "[" + std::string(name) + "]") +
               ":" + port;
  TRY(out.tls.ca_pem, read_file(root / "ca.crt"));
  out.token_file = root / "token";
  if (auto ns = read_file(root / "namespace"); ns.ok()) out.ns = trim(*ns);
  TRY_VOID(find_proxies(out));
  return out;
}

Result<Config> find_config(const std::filesystem::path& flag,
                           const std::filesystem::path& fallback) {
  if (!flag.empty()) return load_kubeconfig(flag);
  std::string tried;
  if (const char* list = std::getenv("KUBECONFIG"); list && *list) {
    std::istringstream paths(list);
    std::vector<fs::path> present;
    bool named = false;
    for (std::string path; std::getline(paths, path, ':');) {
      named = named || !path.empty();
      if (!path.empty() && may_exist(path)) present.emplace_back(path);
    }
    if (!present.empty()) return load_list(present);
    // The requests must not reach a server other than the named one.
    if (named)
      return Error(Code::kNotFound,
                   "$KUBECONFIG names no file that exists: " + std::string(list) +
                       "; correct it, or unset it to use the server of `varda up`");
  }
  if (!fallback.empty()) {
    if (may_exist(fallback)) return load_kubeconfig(fallback);
    tried += fallback.string() + ", ";
  }
  if (auto config = in_cluster(); config.ok() || config.error().code() != Code::kNotFound)
    return config;
  return Error(
      Code::kNotFound,
      "no kubeconfig found (tried " + tried +
          "the pod's service account): start `varda up`, or name a file with --kubeconfig");
}

std::string write_kubeconfig(const Config& config) {
  Json cluster = Json::object({{"server", config.server}});
  if (!config.tls.ca_pem.empty())
    cluster.set("certificate-authority-data", codec::base64(config.tls.ca_pem));
  if (!config.tls.verify) cluster.set("insecure-skip-tls-verify", true);
  if (!config.proxies.https.empty()) cluster.set("proxy-url", config.proxies.https);
  if (!config.tls.server_name.empty()) cluster.set("tls-server-name", config.tls.server_name);
  Json user = Json::object();
  if (!config.token.empty()) user.set("token", config.token);
  if (!config.token_file.empty()) user.set("tokenFile", config.token_file.string());
  if (!config.tls.certificate_pem.empty())
    user.set("client-certificate-data", codec::base64(config.tls.certificate_pem));
  if (!config.tls.key_pem.empty()) user.set("client-key-data", codec::base64(config.tls.key_pem));
  const Json context =
      Json::object({{"cluster", "varda"}, {"user", "varda"}, {"namespace", config.ns}});
  return codec::write_yaml(Json::object({
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"clusters",
       Json::array({Json::object({{"name", "varda"}, {"cluster", std::move(cluster)}})})},
      {"users", Json::array({Json::object({{"name", "varda"}, {"user", std::move(user)}})})},
      {"contexts", Json::array({Json::object({{"name", "varda"}, {"context", context}})})},
      {"current-context", "varda"},
  }));
}

std::unique_ptr<Client> connect(const Config& config, Client::Options options) {
  options.base_url = config.server;
  options.token = config.token;
  if (!config.token_file.empty()) {
    auto token = std::make_shared<FileToken>(config.token_file);
    options.token_source = [token] { return token->get(); };
    options.token_again = [token](const std::string& refused) { return token->again(refused); };
  }
  options.waits_max = kWaitsMax;
  net::ClientOptions transport;
  transport.tls = config.tls;
  transport.proxies = config.proxies;
  transport.dead_after = kDeadAfter;
  return std::make_unique<Client>(net::make_client(std::move(transport)), std::move(options));
}

}  // namespace varda::kube
