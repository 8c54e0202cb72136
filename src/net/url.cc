#include "net/url.h"

#include <arpa/inet.h>

#include "base/text.h"

namespace varda::net {
namespace {

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool digit(char c) { return c >= '0' && c <= '9'; }

enum class Bad { kRefuse, kKeep };

/// nullopt: a bad escape; only with Bad::kRefuse.
std::optional<std::string> decode(std::string_view text, Bad bad, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '+' && plus_is_space) {
      out += ' ';
    } else if (c != '%') {
      out += c;
    } else if (i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else if (bad == Bad::kKeep) {
      out += c;
    } else {
      return std::nullopt;
    }
  }
  return out;
}

int default_port(std::string_view scheme) {
  return scheme == "http" ? 80 : scheme == "https" ? 443 : 0;
}

}  // namespace

Result<Url> Url::parse(std::string_view text) {
  const auto fail = [&](std::string_view what) {
    return Error(Code::kInvalid,
                 "URL \"" + std::string(text.substr(0, 200)) + "\": " + std::string(what));
  };
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f)
      return fail("blanks and control characters must be percent-encoded");
  }
  Url url;
  const auto colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0) return fail("expected scheme://host");
  for (const char c : text.substr(0, colon)) {
    if (!letter(c) && !digit(c) && c != '+' && c != '-' && c != '.') return fail("bad scheme");
    url.scheme += lower(c);
  }
  if (!letter(url.scheme[0])) return fail("bad scheme");

  std::string_view rest = text.substr(colon + 3);
  const auto end = rest.find_first_of("/?#");
  std::string_view authority = rest.substr(0, end);
  std::string_view target = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  target = target.substr(0, target.find('#'));
  url.target = target.starts_with('/') ? std::string(target) : "/" + std::string(target);

  if (const auto at = authority.rfind('@'); at != std::string_view::npos) {
    auto user = decode(authority.substr(0, at), Bad::kRefuse, false);
    if (!user) return fail("bad escape in the user name");
    url.user = std::move(*user);
    authority = authority.substr(at + 1);
  }
  std::string_view port;
  if (authority.starts_with('[')) {
    const auto close = authority.find(']');
    if (close == std::string_view::npos) return fail("no ] after the IPv6 address");
    url.host = authority.substr(1, close - 1);
    in6_addr address;
    // inet_pton() stops at a zero byte.
    if (url.host.find('\0') != std::string::npos ||
        inet_pton(AF_INET6, url.host.c_str(), &address) != 1)
      return fail("bad IPv6 address");
    port = authority.substr(close + 1);
    if (!port.empty() && port[0] != ':') return fail("expected :port after ]");
  } else {
    const auto mark = authority.find(':');
    auto host = decode(authority.substr(0, mark), Bad::kRefuse, false);
    if (!host) return fail("bad escape in the host");
    for (char& c : *host) {
      if (!letter(c) && !digit(c) && c != '-' && c != '.' && c != '_')
        return fail("bad character in the host");
      c = lower(c);
    }
    url.host = std::move(*host);
    port = mark == std::string_view::npos ? std::string_view() : authority.substr(mark);
  }
  const bool web = url.scheme == "http" || url.scheme == "https";
  if (web && url.host.empty()) return fail("no host");
  url.port = default_port(url.scheme);
  if (port.size() > 1) {
    port.remove_prefix(1);
    const auto number = parse_integer<int>(port);
    if (!number || *number < 1 || *number > 65535)
      return fail("the port must be a number from 1 to 65535");
    url.port = *number;
  }
  return url;
}

std::string Url::origin() const {
  std::string out =
      scheme + "://" + (host.find(':') == std::string::npos ? host : "[" + host + "]");
  if (port != default_port(scheme)) out += ":" + std::to_string(port);
  return out;
}

std::string percent_encode(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (letter(c) || digit(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

Result<std::string> percent_decode(std::string_view text) {
  if (text.find('%') == std::string_view::npos) return std::string(text);
  auto out = decode(text, Bad::kRefuse, false);
  if (!out)
    return Error(Code::kInvalid,
                 "bad percent escape in \"" + std::string(text.substr(0, 200)) + "\"");
  return std::move(*out);
}

Query Query::parse(std::string_view text) {
  Query query;
  while (!text.empty()) {
    const auto end = text.find('&');
    const std::string_view pair = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    query.pairs_.emplace_back(*decode(pair.substr(0, equals), Bad::kKeep, true),
                              *decode(value, Bad::kKeep, true));
  }
  return query;
}

std::optional<std::string_view> Query::find(std::string_view name) const {
  for (const auto& [key, value] : pairs_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::string_view Query::get(std::string_view name, std::string_view otherwise) const {
  return find(name).value_or(otherwise);
}

}  // namespace varda::net
