#include "codec/ed25519.h"

#include <algorithm>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <utility>

#include "base/check.h"
#include "codec/digest.h"

namespace varda::codec {

namespace {

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeKey>;
using BioPtr = std::unique_ptr<BIO, FreeBio>;
using DigestPtr = std::unique_ptr<EVP_MD_CTX, FreeDigest>;

const unsigned char* data_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

constexpr std::size_t kPemMax = 16384;

// Limits the text, because OpenSSL takes sizes as int.
BioPtr bio_of(std::string_view pem) {
  return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(std::min(pem.size(), kPemMax))));
}

// OpenSSL would otherwise ask for a passphrase at the terminal.
int no_passphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*user*/) { return -1; }

Status check_algorithm(const KeyPtr& key, const char* block) {
  ERR_clear_error();
  if (key == nullptr)
    return Error(Code::kInvalid, std::string("not a PEM block \"") + block + "\" of Ed25519");
  if (EVP_PKEY_id(key.get()) != EVP_PKEY_ED25519)
    return Error(Code::kInvalid, "the key has another algorithm: must be Ed25519");
  return {};
}

}  // namespace

Result<Ed25519PublicKey> Ed25519PublicKey::from_bytes(std::string_view bytes) {
  Ed25519PublicKey out;
  if (bytes.size() != out.bytes.size())
    return Error(Code::kInvalid,
                 "a public key of Ed25519 has 32 bytes, not " + std::to_string(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), out.bytes.begin());
  return out;
}

Result<Ed25519PublicKey> Ed25519PublicKey::from_pem(std::string_view pem) {
  const BioPtr bio = bio_of(pem);
  const KeyPtr key(PEM_read_bio_PUBKEY(bio.get(), nullptr, no_passphrase, nullptr));
  TRY_VOID(check_algorithm(key, "PUBLIC KEY"));
  Ed25519PublicKey out;
  std::size_t size = out.bytes.size();
  CHECK(EVP_PKEY_get_raw_public_key(key.get(), out.bytes.data(), &size) == 1);
  return out;
}

std::string Ed25519PublicKey::base64() const {
  return codec::base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool verify(const Ed25519PublicKey& key, std::string_view message, std::string_view signature) {
  if (signature.size() != kEd25519SignatureBytes) return false;
  const KeyPtr parsed(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.bytes.data(), key.bytes.size()));
  const DigestPtr context(EVP_MD_CTX_new());
  const bool good =
      parsed != nullptr && context != nullptr &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, parsed.get()) == 1 &&
      EVP_DigestVerify(context.get(), data_of(signature), signature.size(), data_of(message),
                       message.size()) == 1;
  ERR_clear_error();
  return good;
}

struct Ed25519PrivateKey::Impl {
  KeyPtr key;
};

Ed25519PrivateKey::Ed25519PrivateKey(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ed25519PrivateKey::~Ed25519PrivateKey() = default;
Ed25519PrivateKey::Ed25519PrivateKey(Ed25519PrivateKey&&) noexcept = default;
Ed25519PrivateKey& Ed25519PrivateKey::operator=(Ed25519PrivateKey&&) noexcept = default;

Ed25519PrivateKey Ed25519PrivateKey::generate() {
  KeyPtr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  CHECK(key != nullptr);
  return Ed25519PrivateKey(std::make_unique<Impl>(Impl{std::move(key)}));
}

Result<Ed25519PrivateKey> Ed25519PrivateKey::from_pem(std::string_view pem) {
  const BioPtr bio = bio_of(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  TRY_VOID(check_algorithm(key, "PRIVATE KEY"));
  return Ed25519PrivateKey(std::make_unique<Impl>(Impl{std::move(key)}));
}

std::string Ed25519PrivateKey::pem() const {
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  CHECK(PEM_write_bio_PKCS8PrivateKey(bio.get(), impl_->key.get(), nullptr, nullptr, 0, nullptr,
                                      nullptr) == 1);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

Ed25519PublicKey Ed25519PrivateKey::public_key() const {
  Ed25519PublicKey out;
  std::size_t size = out.bytes.size();
  CHECK(EVP_PKEY_get_raw_public_key(impl_->key.get(), out.bytes.data(), &size) == 1);
  return out;
}

std::string Ed25519PrivateKey::sign(std::string_view message) const {
  const DigestPtr context(EVP_MD_CTX_new());
  std::string out(kEd25519SignatureBytes, '\0');
  std::size_t size = out.size();
  CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, impl_->key.get()) == 1 &&
        EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size,
                       data_of(message), message.size()) == 1 &&
        size == out.size());
  return out;
}

}  // namespace varda::codec
