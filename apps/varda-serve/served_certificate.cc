#include "served_certificate.h"

#include "base/log.h"

namespace varda::serve {
namespace {

bool same_files(const net::TlsServer& a, const net::TlsServer& b) {
  return a.certificate_pem == b.certificate_pem && a.key_pem == b.key_pem &&
         a.client_ca_pem == b.client_ca_pem;
}

}  // namespace

Result<net::TlsServer> read_served(const ServedFiles& files, const ReadFile& read_file) {
  net::TlsServer tls;
  TRY(tls.certificate_pem, read_file(files.certificate));
  TRY(tls.key_pem, read_file(files.key));
  TRY_VOID(check_pair(tls.certificate_pem, tls.key_pem).context(files.certificate.string()));
  if (!files.client_ca.empty()) {
    TRY(tls.client_ca_pem, read_file(files.client_ca));
  }
  return tls;
}

void ServedCertificate::check(const Use& use) {
  Result<net::TlsServer> found = read_served(files_, read_file_);
  Status status = found.ok() ? Status() : Status(found.error());
  if (found.ok() && !same_files(*found, served_)) {
    status = use(*found);
    if (status.ok()) {
      served_ = std::move(*found);
      log::info("serving with the changed certificate", {{"file", files_.certificate.string()}});
    }
  }
  const std::string problem = status.ok() ? "" : status.error().message();
  if (problem != problem_ && !problem.empty())
    log::warn("changed certificate not usable, keeping the last one", {{"error", problem}});
  problem_ = problem;
}

}  // namespace varda::serve
