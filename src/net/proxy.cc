#include "net/proxy.h"

#include <openssl/evp.h>

#include "base/text.h"
#include "net/ip.h"
#include "net/url.h"

namespace varda::net {
namespace {

constexpr int kProxyPort = 1080;

std::optional<int> number(std::string_view text) {
  const auto value = parse_integer<int>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

bool in_block(const Ip& ip, std::string_view text) {
  const auto block = parse_ip_block(text);
  return block && block->contains(ip);
}

/// Removes ":PORT" from the entry; -1: the entry has none.
int take_port(std::string_view& entry) {
  const auto colon = entry.rfind(':');
  if (colon == std::string_view::npos) return -1;
  if (entry.find(':') != colon && entry.find(']') != colon - 1) return -1;  // an IPv6 address
  const auto port = number(entry.substr(colon + 1));
  if (!port) return -1;
  entry = entry.substr(0, colon);
  return *port;
}

bool covers(std::string_view entry, const std::string& host, const Ip& ip, int port) {
  if (entry == "*") return true;
  if (const int only = take_port(entry); only >= 0 && only != port) return false;
  if (ip.bits != 0) return in_block(ip, entry);
  std::string name = lower(entry);
  if (name.starts_with("*.")) name.erase(0, 1);
  if (name.starts_with('.')) name.erase(0, 1);
  if (name.ends_with('.')) name.pop_back();
  if (name.empty()) return false;
  return host == name || (host.size() > name.size() && host.ends_with(name) &&
                          host[host.size() - name.size() - 1] == '.');
}

}  // namespace

Result<std::string> parse_proxy(std::string_view text) {
  if (text.empty()) return std::string();
  const bool bare = text.find("://") == std::string_view::npos;
  const std::string whole = (bare ? "http://" : "") + std::string(text);
  // The error omits the text, which may hold a password.
  const auto url = Url::parse(whole);
  if (!url.ok()) return Error(Code::kInvalid, "a proxy must be http://HOST:PORT");
  if (url->scheme != "http")
    return Error(Code::kInvalid,
                 "a proxy of scheme " + url->scheme + " is not supported; use http://HOST:PORT");
  if (!url->user.empty())
    return Error(Code::kInvalid,
                 "a proxy URL must not contain a user or password; use --proxy-credentials-file");
  if (url->target != "/")
    return Error(Code::kInvalid, "a proxy must be http://HOST:PORT, without a path");
  Url origin = *url;
  const std::string authority = whole.substr(whole.find("://") + 3);
  const bool has_port =
      authority.find(':', authority.find(']') == std::string::npos ? 0 : authority.find(']')) !=
      std::string::npos;
  if (!has_port) origin.port = kProxyPort;
  return origin.origin();
}

Result<Proxies> proxies_from_environment(const std::function<const char*(const char*)>& getenv,
                                         std::string* left_out) {
  const auto read = [&](const char* one, const char* other, const char* fallback,
                        const char* last) -> std::string {
    for (const char* name : {one, other, fallback, last}) {
      if (name == nullptr) continue;
      const char* value = getenv(name);
      if (value == nullptr || *value == '\0') continue;
      const std::string_view text(value);
      const bool for_others = (name == fallback || name == last) &&
                              text.find("://") != std::string_view::npos &&
                              !text.starts_with("http://");
      if (!for_others) return value;  // all_proxy often names a SOCKS proxy
    }
    return "";
  };
  const auto without_user = [&](std::string text) {
    const auto scheme = text.find("://");
    const auto from = scheme == std::string::npos ? 0 : scheme + 3;
    const auto at = text.rfind('@', text.find('/', from));
    if (at == std::string::npos || at < from) return text;
    text.erase(from, at + 1 - from);
    if (left_out != nullptr) *left_out = text;
    return text;
  };
  Proxies out;
  TRY(out.http,
      parse_proxy(without_user(read("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")))
          .context("http_proxy"));
  TRY(out.https,
      parse_proxy(without_user(read("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")))
          .context("https_proxy"));
  out.none = read("no_proxy", "NO_PROXY", nullptr, nullptr);
  return out;
}

bool bypasses_proxy(std::string_view none, std::string_view host, int port) {
  const Ip ip = parse_ip(host);
  std::string name = lower(host);
  if (name.ends_with('.')) name.pop_back();
  while (!none.empty()) {
    const auto end = none.find_first_of(", \t");
    const std::string_view entry = none.substr(0, end);
    none = end == std::string_view::npos ? std::string_view() : none.substr(end + 1);
    if (!entry.empty() && covers(entry, name, ip, port)) return true;
  }
  return false;
}

std::optional<std::string> proxy_for(const Proxies& proxies, std::string_view scheme,
                                     std::string_view host, int port) {
  const std::string& proxy = scheme == "https" ? proxies.https : proxies.http;
  if (proxy.empty() || bypasses_proxy("localhost,127.0.0.0/8,::1", host, port) ||
      bypasses_proxy(proxies.none, host, port))
    return std::nullopt;
  return proxy;
}

std::string proxy_authorization(const Proxies& proxies) {
  if (proxies.credentials.empty()) return "";
  std::string base64((proxies.credentials.size() + 2) / 3 * 4 + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(base64.data()),
                      reinterpret_cast<const unsigned char*>(proxies.credentials.data()),
                      static_cast<int>(proxies.credentials.size()));
  base64.resize(static_cast<std::size_t>(size));
  return "Proxy-Authorization: Basic " + base64 + "\r\n";
}

}  // namespace varda::net
