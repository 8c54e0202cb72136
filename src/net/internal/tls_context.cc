#include "net/internal/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <string_view>

namespace varda::net::internal {
namespace {

struct Free {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};

std::unique_ptr<BIO, Free> text_bio(const std::string& pem) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Never asks on a terminal for the password of an encrypted key.
int no_password(char*, int, int, void*) { return 0; }

Status use_certificate(SSL_CTX* ctx, const std::string& certificate_pem, const std::string& key_pem) {
  auto certificates = text_bio(certificate_pem);
  std::unique_ptr<X509, Free> first(PEM_read_bio_X509(certificates.get(), nullptr, no_password, nullptr));
  if (!first || SSL_CTX_use_certificate(ctx, first.get()) != 1) {
    return Error(Code::kInvalid, "the TLS certificate is not PEM: " + tls_error("no certificate found"));
  }
  while (X509* next = PEM_read_bio_X509(certificates.get(), nullptr, no_password, nullptr)) {
    if (SSL_CTX_add0_chain_cert(ctx, next) != 1) {
      X509_free(next);
      return Error(Code::kInvalid, "the chain of the TLS certificate: " + tls_error("bad certificate"));
    }
  }
  ERR_clear_error();
  auto bio = text_bio(key_pem);
  std::unique_ptr<EVP_PKEY, Free> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (!key) return Error(Code::kInvalid, "the TLS key is not PEM: " + tls_error("no key found"));
  if (SSL_CTX_use_PrivateKey(ctx, key.get()) != 1 || SSL_CTX_check_private_key(ctx) != 1) {
    return Error(Code::kInvalid, "the TLS key does not belong to the certificate: " + tls_error("mismatch"));
  }
  return {};
}

Status trust(SSL_CTX* ctx, const std::string& ca_pem) {
  auto bio = text_bio(ca_pem);
  X509_STORE* store = SSL_CTX_get_cert_store(ctx);
  int count = 0;
  while (X509* raw = PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr)) {
    std::unique_ptr<X509, Free> certificate(raw);
    X509_STORE_add_cert(store, certificate.get());
    ++count;
  }
  ERR_clear_error();
  if (count == 0) return Error(Code::kInvalid, "the CA certificates are not PEM: no certificate found");
  return {};
}

Result<TlsContext> make_context(const SSL_METHOD* method) {
  TlsContext ctx(SSL_CTX_new(method), SSL_CTX_free);
  if (!ctx) return Error(Code::kInternal, "cannot make a TLS context: " + tls_error("out of memory"));
  SSL_CTX_set_min_proto_version(ctx.get(), TLS1_2_VERSION);
  // Buffers of idle connections are given back, writes may continue from another place: 17 kB a connection instead of 72.
  SSL_CTX_set_mode(ctx.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(ctx.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  return ctx;
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned in_size, void*) {
  static constexpr std::string_view kHttp11 = "http/1.1";
  for (unsigned i = 0; i < in_size;) {
    const unsigned size = in[i++];
    if (size > in_size - i) break;
    if (std::string_view(reinterpret_cast<const char*>(in + i), size) == kHttp11) {
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

Result<TlsContext> server_context(const TlsServer& options) {
  TRY(TlsContext ctx, make_context(TLS_server_method()));
  TRY_VOID(use_certificate(ctx.get(), options.certificate_pem, options.key_pem));
  if (!options.client_ca_pem.empty()) {
    TRY_VOID(trust(ctx.get(), options.client_ca_pem));
    SSL_CTX_set_verify(ctx.get(), SSL_VERIFY_PEER, nullptr);
  }
  // Sessions are not resumed: connections are kept alive, and tickets would cost memory and a write each.
  SSL_CTX_set_session_cache_mode(ctx.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(ctx.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(ctx.get(), 0);
  SSL_CTX_set_alpn_select_cb(ctx.get(), choose_protocol, nullptr);
  return ctx;
}

Result<TlsContext> client_context(const TlsClient& options) {
  TRY(TlsContext ctx, make_context(TLS_client_method()));
  if (!options.certificate_pem.empty()) TRY_VOID(use_certificate(ctx.get(), options.certificate_pem, options.key_pem));
  if (!options.verify) {
    SSL_CTX_set_verify(ctx.get(), SSL_VERIFY_NONE, nullptr);
  } else {
    SSL_CTX_set_verify(ctx.get(), SSL_VERIFY_PEER, nullptr);
    if (!options.ca_pem.empty()) {
      TRY_VOID(trust(ctx.get(), options.ca_pem));
    } else {
      SSL_CTX_set_default_verify_paths(ctx.get());
    }
  }
  static constexpr unsigned char kProtocols[] = "\x08http/1.1";
  SSL_CTX_set_alpn_protos(ctx.get(), kProtocols, sizeof(kProtocols) - 1);
  return ctx;
}

}  // namespace varda::net::internal
