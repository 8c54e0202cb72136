#include "net/internal/tls_context.h"

#include <algorithm>
#include <chrono>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string_view>

#include "net/internal/x509.h"

namespace varda::net::internal {
namespace {

Status use_certificate(SSL_CTX* ctx, const std::string& certificate_pem,
                       const std::string& key_pem) {
  const Owned<BIO> certificates = text_bio(certificate_pem);
  const Owned<X509> first(
      PEM_read_bio_X509(certificates.get(), nullptr, without_password, nullptr));
  if (!first || SSL_CTX_use_certificate(ctx, first.get()) != 1) {
    return Error(Code::kInvalid,
                 "the TLS certificate is not PEM: " + tls_error("no certificate found"));
  }
  while (X509* next = PEM_read_bio_X509(certificates.get(), nullptr, without_password, nullptr)) {
    if (SSL_CTX_add0_chain_cert(ctx, next) != 1) {
      X509_free(next);
      return Error(Code::kInvalid,
                   "the chain of the TLS certificate: " + tls_error("bad certificate"));
    }
  }
  ERR_clear_error();
  const Owned<EVP_PKEY> key = read_private_key(key_pem);
  if (!key) return Error(Code::kInvalid, "the TLS key is not PEM: " + tls_error("no key found"));
  if (SSL_CTX_use_PrivateKey(ctx, key.get()) != 1 || SSL_CTX_check_private_key(ctx) != 1) {
    return Error(Code::kInvalid,
                 "the TLS key does not belong to the certificate: " + tls_error("mismatch"));
  }
  return {};
}

Status trust(SSL_CTX* ctx, const std::string& ca_pem) {
  const Owned<BIO> bio = text_bio(ca_pem);
  X509_STORE* store = SSL_CTX_get_cert_store(ctx);
  int count = 0;
  while (X509* raw = PEM_read_bio_X509(bio.get(), nullptr, without_password, nullptr)) {
    const Owned<X509> certificate(raw);
    // Makes OpenSSL cache the extensions now, instead of on the first server thread that needs
    // them.
    (void)X509_check_purpose(raw, -1, 0);
    X509_STORE_add_cert(store, certificate.get());
    ++count;
  }
  ERR_clear_error();
  if (count == 0)
    return Error(Code::kInvalid, "the CA certificates are not PEM: no certificate found");
  return {};
}

Result<TlsContext> make_context(const SSL_METHOD* method) {
  TlsContext ctx(SSL_CTX_new(method), SSL_CTX_free);
  if (!ctx)
    return Error(Code::kInternal, "cannot make a TLS context: " + tls_error("out of memory"));
  SSL_CTX_set_min_proto_version(ctx.get(), TLS1_2_VERSION);
  // Frees buffers of idle connections and lets writes continue from another address: 17 kB per
  // connection instead of 72.
  SSL_CTX_set_mode(ctx.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(ctx.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  return ctx;
}

/// The client's rules for a server of our own authority. Owned by the context.
struct OwnAuthority {
  std::string ca_sha256;
  std::optional<WallTime> not_earlier_than;
};

// "Not valid yet" only means that this clock is behind the authority's: no other party could have
// signed it.
int accept_not_yet_valid(int ok, X509_STORE_CTX* store) {
  if (ok == 0 && X509_STORE_CTX_get_error(store) == X509_V_ERR_CERT_NOT_YET_VALID) {
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
  }
  return ok;
}

// The server sends its CA. The CA with the right digest becomes trusted, and everything else is
// checked as usual.
int verify_server(X509_STORE_CTX* store, void* argument) {
  const auto& own = *static_cast<const OwnAuthority*>(argument);
  STACK_OF(X509)* const trusted = sk_X509_new_null();
  if (!own.ca_sha256.empty()) {
    STACK_OF(X509)* const sent = X509_STORE_CTX_get0_untrusted(store);
    for (int i = 0; i < sk_X509_num(sent); ++i) {
      X509* const certificate = sk_X509_value(sent, i);
      if (sha256_of(*certificate) == own.ca_sha256) sk_X509_push(trusted, certificate);
    }
    X509_STORE_CTX_set0_trusted_stack(store, trusted);
  }
  if (own.not_earlier_than) {
    const WallTime now = std::max(std::chrono::system_clock::now(), *own.not_earlier_than);
    X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(store),
                               std::chrono::system_clock::to_time_t(now));
    X509_STORE_CTX_set_verify_cb(store, accept_not_yet_valid);
  }
  const int ok = X509_verify_cert(store);
  sk_X509_free(trusted);
  return ok;
}

// Accepts a client certificate with wrong dates; all other errors still count. A certificate that
// is not valid yet was signed under a clock ahead of this one.
int accept_any_dates(int ok, X509_STORE_CTX* store) {
  const bool leaf = X509_STORE_CTX_get_error_depth(store) == 0;
  const int error = X509_STORE_CTX_get_error(store);
  if (ok == 0 && leaf &&
      (error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID)) {
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
  }
  return ok;
}

constexpr std::string_view kHttp11 = "http/1.1";
constexpr std::string_view kHttp2 = "h2";

/// `wanted` points to one of the names above.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* in, unsigned in_size, void* wanted) {
  for (unsigned i = 0; i < in_size;) {
    const unsigned size = in[i++];
    if (size > in_size - i) break;
    if (std::string_view(reinterpret_cast<const char*>(in + i), size) ==
        *static_cast<const std::string_view*>(wanted)) {
      *out = in + i;
      *out_size = static_cast<unsigned char>(size);
      return SSL_TLSEXT_ERR_OK;
    }
    i += size;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

std::string tls_error(const std::string& otherwise) {
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  if (code == 0) return otherwise;
  const char* reason = ERR_reason_error_string(code);
  return reason ? reason : otherwise;
}

Result<TlsContext> server_context(const TlsServer& options, Protocol protocol) {
  TRY(TlsContext ctx, make_context(TLS_server_method()));
  TRY_VOID(use_certificate(ctx.get(), options.certificate_pem, options.key_pem));
  if (!options.client_ca_pem.empty()) {
    TRY_VOID(trust(ctx.get(), options.client_ca_pem));
    SSL_CTX_set_verify(
        ctx.get(), SSL_VERIFY_PEER,
        options.expired_clients == TlsServer::Expired::kAccept ? accept_any_dates : nullptr);
  }
  // Sessions are not resumed: connections are kept alive, and each ticket would cost memory and a
  // write.
  SSL_CTX_set_session_cache_mode(ctx.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(ctx.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(ctx.get(), 0);
  SSL_CTX_set_alpn_select_cb(
      ctx.get(), choose_protocol,
      const_cast<std::string_view*>(protocol == Protocol::kHttp2 ? &kHttp2 : &kHttp11));
  return ctx;
}

Result<TlsContext> client_context(const TlsClient& options, const std::string& extra_ca_pem) {
  TRY(TlsContext ctx, make_context(TLS_client_method()));
  if (!options.certificate_pem.empty())
    TRY_VOID(use_certificate(ctx.get(), options.certificate_pem, options.key_pem));
  if (!options.verify) {
    SSL_CTX_set_verify(ctx.get(), SSL_VERIFY_NONE, nullptr);
  } else {
    SSL_CTX_set_verify(ctx.get(), SSL_VERIFY_PEER, nullptr);
    if (!options.ca_pem.empty()) {
      TRY_VOID(trust(ctx.get(), options.ca_pem));
    } else if (options.ca_sha256.empty()) {
      SSL_CTX_set_default_verify_paths(ctx.get());
    }
    if (!extra_ca_pem.empty()) TRY_VOID(trust(ctx.get(), extra_ca_pem));
    if (!options.ca_sha256.empty() || options.not_earlier_than) {
      auto own =
          std::make_shared<OwnAuthority>(OwnAuthority{options.ca_sha256, options.not_earlier_than});
      SSL_CTX_set_cert_verify_callback(ctx.get(), verify_server, own.get());
      SSL_CTX* const raw = ctx.get();
      ctx = TlsContext(
          raw, [own, until_then = ctx](SSL_CTX*) {});  // keeps the callback's argument alive
    }
  }
  static constexpr unsigned char kProtocols[] = "\x08http/1.1";
  SSL_CTX_set_alpn_protos(ctx.get(), kProtocols, sizeof(kProtocols) - 1);
  return ctx;
}

}  // namespace varda::net::internal
