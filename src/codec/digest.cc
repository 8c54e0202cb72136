#include "codec/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/check.h"

namespace varda::codec {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

namespace {

// Fetched once: OpenSSL 3 searches its providers at each EVP_sha256(), which costs more than a
// short digest.
const EVP_MD* sha256() {
  static const EVP_MD* const found = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return found;
}

}  // namespace

struct Sha256Stream::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  Impl() { CHECK(context && EVP_DigestInit_ex(context, sha256(), nullptr) == 1); }
  ~Impl() { EVP_MD_CTX_free(context); }
};

Sha256Stream::Sha256Stream() : impl_(std::make_unique<Impl>()) {}
Sha256Stream::~Sha256Stream() = default;
Sha256Stream::Sha256Stream(Sha256Stream&&) noexcept = default;

void Sha256Stream::update(std::string_view bytes) {
  CHECK(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1);
}

Sha256 Sha256Stream::finish() {
  Sha256 out;
  unsigned length = 0;
  CHECK(EVP_DigestFinal_ex(impl_->context, out.bytes.data(), &length) == 1 &&
        length == out.bytes.size());
  return out;
}

Result<Sha256> Sha256::parse(std::string_view text) {
  Sha256 out;
  bool good = text.size() == 64;
  for (std::size_t i = 0; good && i < out.bytes.size(); ++i) {
    const int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    out.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  if (!good)
    return Error(Code::kInvalid, "a sha256 is 64 lower-case hex digits, not \"" +
                                     std::string(text.substr(0, 80)) + "\"");
  return out;
}

Sha256 Sha256::of(std::string_view bytes) {
  Sha256Stream stream;
  stream.update(bytes);
  return stream.finish();
}

std::string Sha256::hex() const {
  return codec::hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string hex(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out += kHexDigits[static_cast<unsigned char>(c) >> 4];
    out += kHexDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t rest = bytes.size() - i;
    const auto at = [&](std::size_t k) {
      return k < rest ? static_cast<unsigned>(static_cast<unsigned char>(bytes[i + k])) : 0u;
    };
    const unsigned bits = at(0) << 16 | at(1) << 8 | at(2);
    out += kBase64[bits >> 18];
    out += kBase64[bits >> 12 & 63];
    out += rest > 1 ? kBase64[bits >> 6 & 63] : '=';
    out += rest > 2 ? kBase64[bits & 63] : '=';
  }
  return out;
}

Result<std::string> unbase64(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    if (c != '\n' && c != '\r') clean += c;  // like Go's decoder, ignores line breaks
  }
  const Error bad(Code::kInvalid, "not valid base64");
  if (clean.size() % 4 != 0) return bad;
  std::string out;
  out.reserve(clean.size() / 4 * 3);
  for (std::size_t i = 0; i < clean.size(); i += 4) {
    unsigned bits = 0;
    int padding = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const char c = clean[i + k];
      if (c == '=') {
        if (i + 4 != clean.size() || k < 2) return bad;
        ++padding;
        bits <<= 6;
        continue;
      }
      const auto at = std::string_view(kBase64).find(c);
      if (at == std::string_view::npos || padding > 0) return bad;
      bits = bits << 6 | static_cast<unsigned>(at);
    }
    out += static_cast<char>(bits >> 16);
    if (padding < 2) out += static_cast<char>(bits >> 8 & 255);
    if (padding < 1) out += static_cast<char>(bits & 255);
  }
  return out;
}

bool same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace varda::codec
