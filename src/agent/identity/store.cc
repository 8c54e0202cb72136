#include "agent/identity/store.h"

namespace varda::agent::identity {
namespace {

constexpr std::uint64_t kFileBytesMax = 256 << 10;

}  // namespace

Error Store::corrupt(const std::string& what) const {
  return Error(Code::kCorrupt,
               directory_.string() + ": " + what +
                   "; remove this directory and let the node join with a new token");
}

Status Store::prepare() {
  TRY_VOID(fs_.make_directories(directory_.parent_path(), 0755));
  TRY_VOID(fs_.make_directories(directory_, 0700));
  TRY(const auto info, fs_.stat(directory_));
  if (info && info->mode != 0700) TRY_VOID(fs_.set_mode(directory_, 0700));
  return os::remove_leftovers(fs_, directory_);
}

// A lost key wastes the join token. The parent directories must survive too, including those that a
// killed process created without a sync.
Status Store::make_durable() {
  TRY_VOID(fs_.sync_directory(directory_));
  TRY_VOID(fs_.sync_directory(directory_.parent_path()));
  for (os::Path path = directory_.parent_path(); path.has_relative_path();
       path = path.parent_path()) {
    if (!fs_.sync_directory(path.parent_path()).ok())
      break;  // not ours to open, so not created by us
  }
  return {};
}

Result<std::optional<std::string>> Store::read(const char* name) {
  TRY(const auto info, fs_.stat(directory_ / name));
  if (!info) return std::optional<std::string>();
  TRY(std::string text, os::read_file(fs_, directory_ / name, kFileBytesMax));
  return std::optional<std::string>(std::move(text));
}

Result<std::string> Store::key() {
  TRY(std::optional<std::string> present, read("key.pem"));
  if (present && !net::key_sha256(*present).ok()) return corrupt("key.pem contains no key");
  // With a certificate, the key is already durable, so a start needs no write.
  TRY(const auto certified, fs_.stat(directory_ / "cert.pem"));
  if (present && certified) return std::move(*present);
  TRY_VOID(prepare());
  if (!present) {
    TRY(present, net::make_key());
    TRY_VOID(os::write_file_atomically(fs_, directory_ / "key.pem", *present, 0600));
  }
  TRY_VOID(make_durable());
  return std::move(*present);
}

Result<std::optional<NodeCertificate>> Store::certificate(const std::string& key_pem) {
  TRY(std::optional<std::string> certificate, read("cert.pem"));
  if (!certificate) return std::optional<NodeCertificate>();
  TRY(std::optional<std::string> ca, read("ca.pem"));
  if (!ca || !net::certificate_facts(*ca).ok()) return corrupt("ca.pem contains no certificate");
  auto facts = net::certificate_facts(*certificate);
  if (!facts.ok()) return corrupt("cert.pem contains no certificate");
  TRY(const std::string key, net::key_sha256(key_pem));
  if (facts->key_sha256 != key) return corrupt("cert.pem does not belong to the key in key.pem");
  return std::optional(NodeCertificate{std::move(*certificate), std::move(*ca), std::move(*facts)});
}

Status Store::keep(const NodeCertificate& certificate) {
  TRY_VOID(prepare());
  TRY(const std::optional<std::string> ca, read("ca.pem"));
  if (!ca || *ca != certificate.ca_pem) {
    TRY_VOID(os::write_file_atomically(fs_, directory_ / "ca.pem", certificate.ca_pem, 0600));
  }
  return os::write_file_atomically(fs_, directory_ / "cert.pem", certificate.certificate_pem, 0600);
}

}  // namespace varda::agent::identity
