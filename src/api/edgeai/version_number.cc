#include "api/edgeai/version_number.h"

#include <algorithm>
#include <string>

#include "codec/digest.h"

namespace varda::api {

namespace {

// First number of other names, and of further archives. All numbers are below 2^53, for JSON.
constexpr std::uint64_t kNames = 1'000'000'000, kArchives = 1'000'000'000'000'000;

std::uint64_t spread(const std::string& text, std::uint64_t count) {
  std::uint64_t value = 0;
  const codec::Sha256 digest = codec::Sha256::of(text);
  for (std::size_t i = 0; i < 8; ++i) value = value << 8 | digest.bytes[i];
  return value % count;
}

bool is_number(std::string_view version) {
  return !version.empty() && version.size() <= 9 && version.front() != '0' &&
         std::all_of(version.begin(), version.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::uint64_t version_number(std::string_view version) {
  if (is_number(version)) return std::stoull(std::string(version));
  return kNames + spread(std::string(version), kArchives - kNames);
}

std::uint64_t version_number(std::string_view version, std::string_view sha256) {
  return kArchives + spread(std::string(version) + " " + std::string(sha256), kArchives);
}

}  // namespace varda::api
