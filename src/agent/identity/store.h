// A node's identity on disk: DATA/identity/{key.pem,ca.pem,cert.pem}, directory mode 0700, files
// 0600.
//
// The key is durable before any request to certify it, and never changes. After any failure the
// same key asks again. cert.pem is written last and replaced as a whole: the identity exists if and
// only if cert.pem does.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "net/certificates.h"
#include "os/file_system.h"

namespace varda::agent::identity {

/// A gateway's answer, with the facts in the certificate.
struct NodeCertificate {
  std::string certificate_pem;
  std::string ca_pem;
  net::CertificateFacts facts;
};

/// Not thread-safe.
class Store {
 public:
  Store(os::FileSystem& fs, os::Path directory) : fs_(fs), directory_(std::move(directory)) {}

  /// The node's private key, PEM. A missing key is created and synced to disk. kCorrupt: the file
  /// holds no key.
  Result<std::string> key();
  /// Nothing: not stored yet. kCorrupt: unreadable, or issued for another key.
  Result<std::optional<NodeCertificate>> certificate(const std::string& key_pem);
  /// Replaces the stored certificate with one rename.
  Status keep(const NodeCertificate& certificate);

 private:
  Status prepare();
  Status make_durable();
  Result<std::optional<std::string>> read(const char* name);
  Error corrupt(const std::string& what) const;

  os::FileSystem& fs_;
  const os::Path directory_;
};

}  // namespace varda::agent::identity
