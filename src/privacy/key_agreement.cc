#include "privacy/key_agreement.h"

#include <algorithm>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>

#include "base/check.h"

namespace varda::privacy {

namespace {

constexpr std::size_t kNonceBytes = 12, kTagBytes = 16;

struct FreePkey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreePkeyContext {
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Pkey = std::unique_ptr<EVP_PKEY, FreePkey>;
using PkeyContext = std::unique_ptr<EVP_PKEY_CTX, FreePkeyContext>;
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

std::string_view text_of(const Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace

void wipe(Key& key) { OPENSSL_cleanse(key.data(), key.size()); }

Key random_key() {
  Key out;
  CHECK(RAND_bytes(out.data(), static_cast<int>(out.size())) == 1);
  return out;
}

AgreementKey AgreementKey::generate() {
  Key secret = random_key();
  AgreementKey out = of(secret);
  wipe(secret);
  return out;
}

AgreementKey AgreementKey::of(const Key& secret) {
  AgreementKey out;
  out.secret_ = secret;
  const Pkey key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, secret.data(), secret.size()));
  std::size_t size = out.public_.size();
  CHECK(key != nullptr && EVP_PKEY_get_raw_public_key(key.get(), out.public_.data(), &size) == 1);
  return out;
}

AgreementKey::~AgreementKey() { wipe(secret_); }

Result<Key> AgreementKey::shared(const Key& peer, std::string_view purpose) const {
  const Pkey mine(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, secret_.data(), secret_.size()));
  const Pkey theirs(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, peer.data(), peer.size()));
  const PkeyContext context(EVP_PKEY_CTX_new(mine.get(), nullptr));
  Key secret;
  std::size_t size = secret.size();
  const bool good = mine != nullptr && theirs != nullptr && context != nullptr &&
                    EVP_PKEY_derive_init(context.get()) == 1 &&
                    EVP_PKEY_derive_set_peer(context.get(), theirs.get()) == 1 &&
                    EVP_PKEY_derive(context.get(), secret.data(), &size) == 1;
  ERR_clear_error();
  if (!good || size != secret.size())
    return Error(Code::kInvalid, "the public key is no usable point of X25519");
  const Key out = derive(text_of(secret), purpose);
  wipe(secret);
  return out;
}

Key derive(std::string_view secret, std::string_view purpose) {
  const PkeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  Key out;
  std::size_t size = out.size();
  CHECK(context != nullptr && EVP_PKEY_derive_init(context.get()) == 1 &&
        EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) == 1 &&
        EVP_PKEY_CTX_set1_hkdf_key(context.get(), bytes_of(secret),
                                   static_cast<int>(secret.size())) == 1 &&
        EVP_PKEY_CTX_add1_hkdf_info(context.get(), bytes_of(purpose),
                                    static_cast<int>(purpose.size())) == 1 &&
        EVP_PKEY_derive(context.get(), out.data(), &size) == 1 && size == out.size());
  return out;
}

std::string seal(const Key& key, std::string_view plaintext, std::string_view associated) {
  std::string out(kNonceBytes + plaintext.size() + kTagBytes, '\0');
  CHECK(RAND_bytes(bytes_of(out), kNonceBytes) == 1);
  const Cipher cipher(EVP_CIPHER_CTX_new());
  unsigned char* text = bytes_of(out) + kNonceBytes;
  int size = 0;
  CHECK(cipher != nullptr &&
        EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, key.data(), bytes_of(out)) ==
            1 &&
        EVP_EncryptUpdate(cipher.get(), nullptr, &size, bytes_of(associated),
                          static_cast<int>(associated.size())) == 1 &&
        EVP_EncryptUpdate(cipher.get(), text, &size, bytes_of(plaintext),
                          static_cast<int>(plaintext.size())) == 1 &&
        EVP_EncryptFinal_ex(cipher.get(), text + size, &size) == 1 &&
        EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                            text + plaintext.size()) == 1);
  return out;
}

Result<std::string> open_sealed(const Key& key, std::string_view sealed,
                                std::string_view associated) {
  constexpr const char* kWrong = "the sealed message does not open: another key or changed bytes";
  if (sealed.size() < kNonceBytes + kTagBytes) return Error(Code::kCorrupt, kWrong);
  const std::string_view text = sealed.substr(kNonceBytes, sealed.size() - kNonceBytes - kTagBytes);
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  std::string out(text.size(), '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int size = 0;
  const bool good =
      cipher != nullptr &&
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, key.data(), bytes_of(sealed)) ==
          1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &size, bytes_of(associated),
                        static_cast<int>(associated.size())) == 1 &&
      EVP_DecryptUpdate(cipher.get(), bytes_of(out), &size, bytes_of(text),
                        static_cast<int>(text.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), bytes_of(out) + out.size(), &size) == 1;
  ERR_clear_error();
  if (!good) return Error(Code::kCorrupt, kWrong);
  return out;
}

}  // namespace varda::privacy
