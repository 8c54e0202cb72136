#include "api/edgeai/job_node.h"

#include <algorithm>

#include "codec/digest.h"

namespace varda::api {
namespace {

constexpr std::size_t kNameDigits = 16, kTokenIdDigits = 12, kSecretDigits = 64;

bool is_job_token_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

std::string job_node_name(std::string_view uid) {
  return std::string(kJobNodePrefix) + codec::Sha256::of(uid).hex().substr(0, kNameDigits);
}

bool is_job_node(std::string_view name) { return name.starts_with(kJobNodePrefix); }

std::optional<JobToken> job_token_of(const meta::ObjectMeta& edge_node) {
  const auto found = edge_node.annotations.find(std::string(kJobTokenAnnotation));
  if (found == edge_node.annotations.end()) return {};
  const std::string& text = found->second;
  if (text.size() != kTokenIdDigits + 1 + kSecretDigits || text[kTokenIdDigits] != '.') return {};
  JobToken token{text.substr(0, kTokenIdDigits), text.substr(kTokenIdDigits + 1)};
  if (!is_job_token_hex(token.id, kTokenIdDigits) ||
      !is_job_token_hex(token.secret_sha256, kSecretDigits))
    return {};
  return token;
}

}  // namespace varda::api
