// Served certificate: follows the files of the server's certificate, key and client CA.
#pragma once

#include <functional>
#include <string>

#include "access.h"
#include "base/result.h"
#include "net/tls.h"
#include "os/file_system.h"

namespace varda::serve {

struct ServedFiles {
  os::Path certificate, key;  // PEM
  os::Path client_ca;         // PEM; "": none
};

/// Reads the files. kInvalid: the key does not belong to the certificate.
Result<net::TlsServer> read_served(const ServedFiles& files, const ReadFile& read_file);

/// Not thread-safe.
class ServedCertificate {
 public:
  using Use = std::function<Status(const net::TlsServer&)>;

  /// `served`: the files that the server uses now.
  ServedCertificate(ServedFiles files, net::TlsServer served, ReadFile read_file)
      : files_(std::move(files)), served_(std::move(served)), read_file_(std::move(read_file)) {}
  /// Reads the files and passes changed ones to `use`. The last good files stay in force while the
  /// files are unreadable, do not belong together or are refused. Each problem is logged once.
  void check(const Use& use);

 private:
  const ServedFiles files_;
  net::TlsServer served_;
  const ReadFile read_file_;
  std::string problem_;
};

}  // namespace varda::serve
