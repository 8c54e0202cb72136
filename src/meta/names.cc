// Kubernetes' rules for names, with Kubernetes' error texts (apimachinery util/validation), which
// clients show and match.
#include <algorithm>

#include "meta/object.h"

namespace varda::meta {
namespace {

constexpr std::string_view kSubdomain =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
constexpr std::string_view kLabel =
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
constexpr std::string_view k1035 =
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with "
    "an "
    "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')";
constexpr std::string_view kQualified =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. "
    "'MyName',  "
    "or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
constexpr std::string_view kValue =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

bool lower_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool alnum(char c) { return lower_alnum(c) || (c >= 'A' && c <= 'Z'); }

bool is_label(std::string_view text) {
  return !text.empty() && lower_alnum(text.front()) && lower_alnum(text.back()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return lower_alnum(c) || c == '-'; });
}

bool is_subdomain(std::string_view text) {
  while (true) {
    const auto dot = text.find('.');
    if (!is_label(text.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

bool is_qualified(std::string_view text) {
  return !text.empty() && alnum(text.front()) && alnum(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return alnum(c) || c == '-' || c == '_' || c == '.'; });
}

std::string too_long(std::size_t limit) {
  return "must be no more than " + std::to_string(limit) + " characters";
}

// Joins several errors about one name.
void add(std::string& all, std::string_view one) {
  if (one.empty()) return;
  if (!all.empty()) all += "; ";
  all += one;
}

}  // namespace

std::string check_dns_subdomain(std::string_view name) {
  std::string all;
  if (name.size() > 253) add(all, too_long(253));
  if (!is_subdomain(name)) add(all, kSubdomain);
  return all;
}

std::string check_dns_label(std::string_view name) {
  std::string all;
  if (name.size() > 63) add(all, too_long(63));
  if (!is_label(name)) add(all, is_subdomain(name) ? "must not contain dots" : kLabel);
  return all;
}

std::string check_dns1035_label(std::string_view name) {
  std::string all;
  if (name.size() > 63) add(all, too_long(63));
  if (!is_label(name) || !(name.front() >= 'a' && name.front() <= 'z')) add(all, k1035);
  return all;
}

std::string check_label_key(std::string_view key) {
  std::string all;
  std::string_view name = key;
  if (const auto slash = key.find('/'); slash != std::string_view::npos) {
    const std::string_view prefix = key.substr(0, slash);
    name = key.substr(slash + 1);
    if (name.find('/') != std::string_view::npos) {
      return "a qualified name " + std::string(kQualified) +
             " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
    }
    if (prefix.empty()) {
      add(all, "prefix part must be non-empty");
    } else if (const std::string why = check_dns_subdomain(prefix); !why.empty()) {
      add(all, "prefix part " + why);
    }
  }
  if (name.empty()) {
    add(all, "name part must be non-empty");
  } else if (name.size() > 63) {
    add(all, "name part " + too_long(63));
  }
  if (!is_qualified(name)) add(all, "name part " + std::string(kQualified));
  return all;
}

std::string check_label_value(std::string_view value) {
  std::string all;
  if (value.size() > 63) add(all, too_long(63));
  if (!value.empty() && !is_qualified(value)) add(all, kValue);
  return all;
}

}  // namespace varda::meta
