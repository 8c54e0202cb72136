#include "access.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "codec/digest.h"
#include "net/certificates.h"
#include "oip/route.h"

namespace varda::serve {
namespace {

constexpr std::chrono::seconds kRereadAfter{1};

bool is_open(const net::Request& request) {
  const std::string_view path = request.path();
  if (path == "/healthz" || path == "/readyz") return true;
  const oip::RouteResult found = oip::parse_route(request.method, path);
  if (!found.route) return false;
  switch (found.route->call) {
    case oip::Call::kServerLive:
    case oip::Call::kServerReady:
    case oip::Call::kModelReady:
    case oip::Call::kModelJoint:
    case oip::Call::kModelSamples:
    case oip::Call::kRepositoryIndex:
      return true;
    default:
      return false;
  }
}

std::optional<std::string_view> bearer_token(const net::Request& request) {
  const auto header = request.headers.find("Authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (!header || header->size() <= kScheme.size()) return std::nullopt;
  return starts_ignoring_case(*header, kScheme) ? std::optional(header->substr(kScheme.size()))
                                                : std::nullopt;
}

net::Response unauthorized(const std::string& message) {
  net::Response out{401, {{"Content-Type", "application/json"}}, oip::error_body(message), nullptr};
  out.headers.add("WWW-Authenticate", "Bearer");
  return out;
}

}  // namespace

Result<std::string> read_through_links(os::FileSystem& fs, os::Path path) {
  constexpr int kLinksMax = 16;
  for (int links = 0; links < kLinksMax; ++links) {
    TRY(const auto info, fs.stat(path));
    if (!info || info->kind != os::FileKind::kSymlink) return os::read_file(fs, path);
    TRY(const std::string target, fs.read_link(path));
    path = path.parent_path() / target;
  }
  return Error(Code::kInvalid, path.string() + ": too many links");
}

ReadFile read_from(os::FileSystem& fs) {
  return [&fs](const os::Path& path) { return read_through_links(fs, path); };
}

std::vector<std::string> token_lines(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) out.emplace_back(line);
  }
  return out;
}

Status check_pair(const std::string& certificate_pem, const std::string& key_pem) {
  TRY(const net::CertificateFacts facts, net::certificate_facts(certificate_pem));
  TRY(const std::string key, net::key_sha256(key_pem));
  if (key != facts.key_sha256)
    return Error(Code::kInvalid, "the key does not belong to the certificate");
  return {};
}

Result<std::unique_ptr<TokenFile>> TokenFile::open(os::Path path, ReadFile read_file,
                                                   const Clock& clock) {
  std::unique_ptr<TokenFile> out(new TokenFile(std::move(path), std::move(read_file), clock));
  MutexLock lock(out->mutex_);
  TRY_VOID(out->read());
  return out;
}

Status TokenFile::read() {
  read_at_ = clock_.now();
  TRY(const std::string text, read_file_(path_));
  std::vector<std::string> tokens = token_lines(text);
  if (tokens.empty()) return Error(Code::kInvalid, path_.string() + " has no token");
  tokens_ = std::move(tokens);
  return {};
}

bool TokenFile::knows(std::string_view token) {
  MutexLock lock(mutex_);
  if (clock_.now() - read_at_ >= kRereadAfter) {
    if (const Status status = read(); !status.ok())
      log::warn("token file not readable, keeping its last tokens", {{"error", status.error()}});
  }
  bool known = false;
  for (const std::string& one : tokens_) known |= codec::same_secret(one, token);
  return known;
}

net::Handler guarded(net::Handler handler, Access access) {
  return [handler = std::move(handler), access](net::Request request, net::Responder respond) {
    const bool open = is_open(request);
    if (!open && access.needs_client_certificate && request.peer.certificate_name.empty())
      return respond(unauthorized("a client certificate is required"));
    if (!open && access.tokens != nullptr) {
      const auto token = bearer_token(request);
      if (!token) return respond(unauthorized("a token is required: Authorization: Bearer TOKEN"));
      if (!access.tokens->knows(*token)) return respond(unauthorized("the token is not valid"));
    }
    handler(std::move(request), std::move(respond));
  };
}

}  // namespace varda::serve
