// Who a node is, on its disk: DATA/identity/{key.pem,ca.pem,cert.pem}, the directory 0700, the files 0600.
//
// The key is there, for good, before anybody is asked to certify it, and stays the same: whatever breaks afterwards, the same key
// asks again. cert.pem comes last and is replaced as a whole: with it there is an identity, without it there is none.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "net/certificates.h"
#include "os/file_system.h"

namespace varda::agent {

/// What a gateway answered, with what the certificate says.
struct NodeCertificate {
  std::string certificate_pem;
  std::string ca_pem;
  net::CertificateFacts facts;
};

/// Not thread-safe.
class IdentityStore {
 public:
  IdentityStore(os::FileSystem& fs, os::Path directory) : fs_(fs), directory_(std::move(directory)) {}

  /// The node's private key, PEM; made, and safe on the disk, if there was none. kCorrupt: the file holds no key.
  Result<std::string> key();
  /// Nothing: none was kept. kCorrupt: it cannot be read, or is of another key.
  Result<std::optional<NodeCertificate>> certificate(const std::string& key_pem);
  /// Replaces what was there, with one rename.
  Status keep(const NodeCertificate& certificate);

 private:
  Status prepare();
  Status make_durable();
  Result<std::optional<std::string>> read(const char* name);
  Error corrupt(const std::string& what) const;

  os::FileSystem& fs_;
  const os::Path directory_;
};

}  // namespace varda::agent
