// Served certificate: what the server shows over TLS, as files hold it now.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "net/tls.h"
#include "os/file_system.h"

namespace varda::serve {

struct ServedFiles {
  os::Path certificate, key;  // PEM
  os::Path client_ca;         // PEM; "" none
};

/// The files as the server takes them. kInvalid: the key does not belong to the certificate.
Result<net::TlsServer> read_served(const ServedFiles& files, os::FileSystem& fs);

/// Follows the files. Not thread-safe.
class ServedCertificate {
 public:
  using Use = std::function<Status(const net::TlsServer&)>;

  /// `served` is in use already. `fs` outlives it.
  ServedCertificate(ServedFiles files, net::TlsServer served, os::FileSystem& fs)
      : files_(std::move(files)), served_(std::move(served)), fs_(fs) {}
  /// Gives changed files to `use`. The last good files stay in force while the files cannot be
  /// read, do not belong together or are refused; the log says so once.
  void look(const Use& use);

 private:
  const ServedFiles files_;
  net::TlsServer served_;
  os::FileSystem& fs_;
  std::string problem_;
};

}  // namespace varda::serve
