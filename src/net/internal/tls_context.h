// OpenSSL contexts from PEM text.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "net/tls.h"

struct ssl_ctx_st;

namespace varda::net::internal {

using TlsContext = std::shared_ptr<ssl_ctx_st>;

/// The protocol that ALPN selects.
enum class Protocol { kHttp1, kHttp2 };

/// kInvalid names the bad part: the certificate, the key, their mismatch, or the CA.
Result<TlsContext> server_context(const TlsServer& options, Protocol protocol = Protocol::kHttp1);
/// `extra_ca_pem` is trusted in addition to the CA in the options; "" adds nothing.
Result<TlsContext> client_context(const TlsClient& options, const std::string& extra_ca_pem = "");

/// Returns the oldest error of this thread's OpenSSL queue and clears the queue; `otherwise` if the
/// queue is empty.
std::string tls_error(const std::string& otherwise);

}  // namespace varda::net::internal
