#include "net/internal/stream.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "net/internal/x509.h"

namespace varda::net::internal {
namespace {

using Kind = IoResult::Kind;

class PlainStream final : public Stream {
 public:
  explicit PlainStream(int fd) : fd_(fd) {}

  IoResult handshake() override { return {}; }

  IoResult read(std::span<char> into) override {
    const ssize_t count = ::recv(fd_, into.data(), into.size(), 0);
    if (count > 0) return {Kind::kBytes, static_cast<std::size_t>(count)};
    if (count == 0) return {Kind::kEnd};
    return failure(Kind::kWantRead);
  }

  IoResult write(std::string_view first, std::string_view second) override {
    iovec parts[2] = {{const_cast<char*>(first.data()), first.size()},
                      {const_cast<char*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = second.empty() ? 1 : 2;
    const ssize_t count = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (count >= 0) return {Kind::kBytes, static_cast<std::size_t>(count)};
    return failure(Kind::kWantWrite);
  }

  void finish() override { ::shutdown(fd_, SHUT_WR); }
  bool short_read_means_empty() const override { return true; }
  void describe_certificate(Peer&) const override {}
  std::string error() const override { return std::strerror(error_); }

 private:
  IoResult failure(Kind want) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {want};
    error_ = errno;
    return {Kind::kError};
  }

  const int fd_;
  int error_ = 0;
};

// OpenSSL's socket BIO, but with MSG_NOSIGNAL. A library must not change the process's SIGPIPE
// handling, which children inherit.
int bio_write(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t count = ::send(static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))),
                               data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(count);
}

int bio_read(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t count = ::recv(static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))),
                               data, static_cast<std::size_t>(size), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (count == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(count);
}

long bio_ctrl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
  return 0;
}

BIO* socket_bio(int fd) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "varda socket");
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_ctrl(m, bio_ctrl);
    return m;
  }();
  BIO* bio = BIO_new(method);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

class TlsStream final : public Stream {
 public:
  // A small header and body are sent as one record; a larger body is not copied.
  static constexpr std::size_t kRecordBytes = 16 << 10;

  TlsStream(int fd, const TlsContext& ctx) : ctx_(ctx), ssl_(SSL_new(ctx.get())), fd_(fd) {
    BIO* bio = socket_bio(fd);
    SSL_set_bio(ssl_, bio, bio);
  }
  ~TlsStream() override { SSL_free(ssl_); }
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  SSL* ssl() { return ssl_; }

  IoResult handshake() override {
    ERR_clear_error();
    const OSSL_HANDSHAKE_STATE before = SSL_get_state(ssl_);
    const int result = SSL_do_handshake(ssl_);
    const std::size_t steps = SSL_get_state(ssl_) == before ? 0 : 1;
    if (result == 1) {
      ready_ = true;
      return {IoResult::Kind::kBytes, steps};
    }
    const long verify = SSL_get_verify_result(ssl_);
    IoResult io = failure(result);
    io.count = steps;
    if (io.kind == Kind::kError && verify != X509_V_OK) {
      error_ = std::string("certificate verify failed: ") + X509_verify_cert_error_string(verify);
    }
    if (io.kind == Kind::kEnd) {
      error_ = "the peer closed the connection during the TLS handshake";
      return {Kind::kError};
    }
    return io;
  }

  IoResult read(std::span<char> into) override {
    ERR_clear_error();
    std::size_t count = 0;
    const int result = SSL_read_ex(ssl_, into.data(), into.size(), &count);
    if (result == 1) return {Kind::kBytes, count};
    return failure(result);
  }

  IoResult write(std::string_view first, std::string_view second) override {
    std::string_view data = first.empty() ? second : first;
    if (!first.empty() && !second.empty() && first.size() < kRecordBytes) {
      // A retry passes the same bytes, so rebuilding the record is allowed
      // (SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER).
      record_.assign(first);
      record_.append(second.substr(0, kRecordBytes - first.size()));
      data = record_;
    }
    ERR_clear_error();
    std::size_t count = 0;
    const int result = SSL_write_ex(ssl_, data.data(), data.size(), &count);
    if (record_.capacity() > 0 && result == 1) std::string().swap(record_);
    if (result == 1) return {Kind::kBytes, count};
    return failure(result);
  }

  void finish() override {
    ERR_clear_error();
    if (ready_ && !broken_) SSL_shutdown(ssl_);
    ERR_clear_error();
    ::shutdown(fd_, SHUT_WR);
  }

  bool short_read_means_empty() const override { return false; }

  void describe_certificate(Peer& peer) const override {
    X509* const certificate = SSL_get0_peer_certificate(ssl_);
    if (!certificate || SSL_get_verify_result(ssl_) != X509_V_OK) return;
    auto names = subject_parts(*certificate, NID_commonName);
    peer.certificate_name = name_of(*certificate);
    peer.certificate_common_name = names.empty() ? "" : std::move(names.front());
    peer.certificate_organizations = subject_parts(*certificate, NID_organizationName);
    peer.certificate_organizational_units = subject_parts(*certificate, NID_organizationalUnitName);
    peer.certificate_not_after = time_of(X509_get0_notAfter(certificate));
    peer.certificate_expired = X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
  }

  std::string error() const override { return error_; }

 private:
  IoResult failure(int result) {
    const int error = SSL_get_error(ssl_, result);
    switch (error) {
      case SSL_ERROR_WANT_READ:
        return {Kind::kWantRead};
      case SSL_ERROR_WANT_WRITE:
        return {Kind::kWantWrite};
      case SSL_ERROR_ZERO_RETURN:
        return {Kind::kEnd};
      default:
        break;
    }
    broken_ = true;
    const int number = errno;
    if (error == SSL_ERROR_SYSCALL && ERR_peek_error() == 0) {
      error_ = number ? std::strerror(number) : "connection closed";
    } else {
      error_ = tls_error("TLS error");
    }
    return {Kind::kError};
  }

  const TlsContext ctx_;
  SSL* const ssl_;
  const int fd_;
  bool ready_ = false;
  bool broken_ = false;
  std::string record_;
  std::string error_;
};

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

std::unique_ptr<Stream> plain_stream(int fd) { return std::make_unique<PlainStream>(fd); }

std::unique_ptr<Stream> tls_accept(int fd, const TlsContext& ctx) {
  auto stream = std::make_unique<TlsStream>(fd, ctx);
  SSL_set_accept_state(stream->ssl());
  return stream;
}

Result<std::unique_ptr<Stream>> tls_connect(int fd, const TlsContext& ctx,
                                            const ServerNames& names) {
  auto stream = std::make_unique<TlsStream>(fd, ctx);
  SSL* ssl = stream->ssl();
  SSL_set_connect_state(ssl);
  X509_VERIFY_PARAM* param = SSL_get0_param(ssl);
  const std::string& verified =
      names.verified_name.empty() ? names.server_name : names.verified_name;
  bool ok = is_address(names.server_name) ||
            SSL_set_tlsext_host_name(ssl, names.server_name.c_str()) == 1;
  if (is_address(verified)) {
    ok = ok && X509_VERIFY_PARAM_set1_ip_asc(param, verified.c_str()) == 1;
  } else {
    // A name that is a role must be in the SAN, which only the authority writes. The subject's
    // common name may be anything.
    const unsigned subject = names.verified_name.empty() ? 0 : X509_CHECK_FLAG_NEVER_CHECK_SUBJECT;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | subject);
    ok = ok && X509_VERIFY_PARAM_set1_host(param, verified.data(), verified.size()) == 1;
  }
  if (!ok) return Error(Code::kInvalid, "bad TLS server name \"" + names.server_name + "\"");
  return std::unique_ptr<Stream>(std::move(stream));
}

}  // namespace varda::net::internal
