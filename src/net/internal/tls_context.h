// OpenSSL contexts from PEM text.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "net/tls.h"

struct ssl_ctx_st;

namespace varda::net::internal {

using TlsContext = std::shared_ptr<ssl_ctx_st>;

/// kInvalid names what was wrong: certificate, key, that they do not belong together, or the CA.
Result<TlsContext> server_context(const TlsServer& options);
/// `extra_ca_pem` is trusted besides what the options trust; "" nothing more.
Result<TlsContext> client_context(const TlsClient& options, const std::string& extra_ca_pem = "");

/// The oldest error of this thread's OpenSSL queue, which is cleared; `otherwise` when there is none.
std::string tls_error(const std::string& otherwise);

}  // namespace varda::net::internal
