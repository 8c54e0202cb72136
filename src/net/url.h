// URLs and query strings (RFC 3986): just what HTTP needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace varda::net {

struct Url {
  std::string scheme;  // lower case
  std::string user;    // "user:password", usually empty
  std::string host;    // without brackets for IPv6
  int port = 0;        // the scheme's default where none is given (http 80, https 443)
  std::string target;  // path and query, at least "/"

  /// kInvalid with what was wrong. Schemes other than http and https keep port 0 unless given.
  static Result<Url> parse(std::string_view text);
  /// "scheme://host:port" without the default port.
  std::string origin() const;
};

std::string percent_encode(std::string_view text);          // everything but unreserved characters
Result<std::string> percent_decode(std::string_view text);  // kInvalid: a bad escape; '+' stays '+'

/// Query parameters in order, decoded ('+' is a space).
class Query {
 public:
  /// Bad escapes are kept as they are: servers answer such requests instead of refusing them.
  static Query parse(std::string_view text);
  std::optional<std::string_view> find(std::string_view name) const;
  std::string_view get(std::string_view name, std::string_view otherwise = "") const;
  const std::vector<std::pair<std::string, std::string>>& all() const { return pairs_; }

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
};

}  // namespace varda::net
