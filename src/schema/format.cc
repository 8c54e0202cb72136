#include "schema/format.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <string>

#include "meta/object.h"

namespace varda::schema {

namespace {

bool digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_date(std::string_view text) {
  return text.size() == 10 && text[4] == '-' && text[7] == '-' && digits(text.substr(0, 4)) &&
         digits(text.substr(5, 2)) && digits(text.substr(8, 2)) &&
         meta::parse_time(std::string(text) + "T00:00:00Z").ok();
}

bool is_ip(int family, std::string_view text) {
  std::array<unsigned char, 16> address{};
  return inet_pton(family, std::string(text).c_str(), address.data()) == 1;
}

bool is_cidr(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos || !digits(text.substr(slash + 1)) || text.size() - slash > 4)
    return false;
  const int bits = std::stoi(std::string(text.substr(slash + 1)));
  const std::string_view address = text.substr(0, slash);
  return (is_ip(AF_INET, address) && bits <= 32) || (is_ip(AF_INET6, address) && bits <= 128);
}

bool is_uuid(std::string_view text) {
  std::string hex(text);
  std::erase(hex, '-');
  return hex.size() == 32 && (text.size() == 32 || text.size() == 36) &&
         std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

bool is_base64(std::string_view text) {
  const auto body = text.substr(0, text.find('='));
  return text.size() % 4 == 0 && text.size() - body.size() <= 2 &&
         std::all_of(
             body.begin(), body.end(),
             [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '/'; }) &&
         text.substr(body.size()).find_first_not_of('=') == std::string_view::npos;
}

bool is_email(std::string_view text) {
  const auto at = text.rfind('@');
  return at != std::string_view::npos && at > 0 && at + 1 < text.size() &&
         text.find(' ') == std::string_view::npos;
}

bool is_uri(std::string_view text) {
  const auto colon = text.find(':');
  if (text.starts_with("/")) return true;
  return colon != std::string_view::npos && colon > 0 &&
         std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
         text.find(' ') == std::string_view::npos;
}

struct Format {
  std::string_view name;
  bool (*check)(std::string_view);
};

constexpr std::array<Format, 12> kFormats = {{
    {"date-time", [](std::string_view t) { return meta::parse_time(t).ok(); }},
    {"datetime", [](std::string_view t) { return meta::parse_time(t).ok(); }},
    {"date", is_date},
    {"ipv4", [](std::string_view t) { return is_ip(AF_INET, t); }},
    {"ipv6", [](std::string_view t) { return is_ip(AF_INET6, t); }},
    {"cidr", is_cidr},
    {"uuid", is_uuid},
    {"byte", is_base64},
    {"email", is_email},
    {"uri", is_uri},
    {"hostname", [](std::string_view t) { return meta::check_dns_subdomain(t).empty(); }},
    {"password", [](std::string_view) { return true; }},
}};

const Format* find(std::string_view name) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(),
                                  [&](const Format& format) { return format.name == name; });
  return found == kFormats.end() ? nullptr : found;
}

}  // namespace

bool has_format(std::string_view format, std::string_view text) {
  const Format* known = find(format);
  return known == nullptr || known->check(text);
}

}  // namespace varda::schema
