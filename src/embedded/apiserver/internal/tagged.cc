#include "apiserver/internal/tagged.h"

#include <algorithm>

#include "codec/digest.h"

namespace varda::apiserver {

namespace {

bool names(std::string_view header, std::string_view tag) {
  while (!header.empty()) {
    const std::size_t end = std::min(header.find(','), header.size());
    std::string_view one = header.substr(0, end);
    header.remove_prefix(std::min(end + 1, header.size()));
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one == "*" || one == tag) return true;
  }
  return false;
}

}  // namespace

std::string hash_of(std::string_view document) {
  std::string hex = codec::Sha256::of(document).hex();
  for (char& c : hex) c = static_cast<char>(c >= 'a' && c <= 'f' ? c - 'a' + 'A' : c);
  return hex;
}

net::Response tagged(const net::Request& request, net::Response response, std::string_view hash) {
  const std::string tag = "\"" + std::string(hash) + "\"";
  response.headers.add("ETag", tag);
  if (const auto known = request.headers.find("If-None-Match"); known && names(*known, tag)) {
    response.status = 304;
    response.body.clear();
  }
  return response;
}

}  // namespace varda::apiserver
