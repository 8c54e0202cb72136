#include "codec/ed25519.h"

#include <gtest/gtest.h>

#include "codec/digest.h"

namespace varda::codec {
namespace ed25519_test {

std::string unhex(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  return out;
}

std::string pem(const std::string& block, const std::string& bytes) {
  return "-----BEGIN " + block + "-----\n" + base64(bytes) + "\n-----END " + block + "-----\n";
}

// RFC 8410: the bytes before a seed in PKCS #8, and before a public key.
const std::string kPrivate = unhex("302e020100300506032b657004220420");
const std::string kPublic = unhex("302a300506032b6570032100");

struct Vector {
  const char *seed, *key, *message, *signature;
};

// RFC 8032, 7.1.
constexpr Vector kVectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
     "b46bd25bf5f0595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
     "1d8c387b2eaeb4302aeeb00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984d"
     "c6594a7c15e9716ed28dc027beceea1ec40a"},
};

TEST(Ed25519, SignsAndVerifiesTheVectorsOfRfc8032) {
  for (const Vector& vector : kVectors) {
    const auto secret =
        Ed25519PrivateKey::from_pem(pem("PRIVATE KEY", kPrivate + unhex(vector.seed)));
    ASSERT_TRUE(secret.ok()) << secret.error();
    const auto key = Ed25519PublicKey::from_bytes(unhex(vector.key)).value();
    EXPECT_EQ(secret->public_key(), key);
    EXPECT_EQ(hex(secret->sign(unhex(vector.message))), vector.signature);
    EXPECT_TRUE(verify(key, unhex(vector.message), unhex(vector.signature)));
  }
}

TEST(Ed25519, ChangeOfAnyBitMakesASignatureInvalid) {
  const Vector& vector = kVectors[1];
  const auto key = Ed25519PublicKey::from_bytes(unhex(vector.key)).value();
  const std::string message = unhex(vector.message), signature = unhex(vector.signature);
  EXPECT_FALSE(verify(key, "s", signature));
  EXPECT_FALSE(verify(key, message + '\0', signature));
  for (std::size_t bit = 0; bit < signature.size() * 8; ++bit) {
    std::string changed = signature;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(verify(key, message, changed)) << bit;
  }
  EXPECT_FALSE(
      verify(Ed25519PublicKey::from_bytes(unhex(kVectors[0].key)).value(), message, signature));
}

TEST(Ed25519, SignatureOfAnotherSizeIsInvalid) {
  const auto key = Ed25519PublicKey::from_bytes(unhex(kVectors[0].key)).value();
  const std::string signature = unhex(kVectors[0].signature);
  EXPECT_FALSE(verify(key, "", ""));
  EXPECT_FALSE(verify(key, "", signature.substr(1)));
  EXPECT_FALSE(verify(key, "", signature + "x"));
}

TEST(Ed25519, GeneratedKeySurvivesItsPem) {
  const Ed25519PrivateKey key = Ed25519PrivateKey::generate();
  const auto again = Ed25519PrivateKey::from_pem("a comment\n" + key.pem());
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(again->public_key(), key.public_key());
  EXPECT_TRUE(verify(key.public_key(), "text", again->sign("text")));
  EXPECT_NE(Ed25519PrivateKey::generate().public_key(), key.public_key());
}

TEST(Ed25519, PublicKeyIsReadFromPem) {
  const auto key = Ed25519PublicKey::from_pem(pem("PUBLIC KEY", kPublic + unhex(kVectors[0].key)));
  ASSERT_TRUE(key.ok()) << key.error();
  EXPECT_EQ(*key, Ed25519PublicKey::from_bytes(unhex(kVectors[0].key)).value());
  EXPECT_EQ(unbase64(key->base64()).value(), unhex(kVectors[0].key));
}

TEST(Ed25519, OtherPemBlocksAreInvalid) {
  const std::string secret = Ed25519PrivateKey::generate().pem();
  // openssl genpkey -algorithm x25519 | openssl pkey -pubout
  const std::string other =
      pem("PUBLIC KEY", unhex("302a300506032b656e032100") + std::string(32, '\x09'));
  // openssl genpkey -algorithm ed25519 -aes256 -pass pass:secret
  const std::string closed =
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
      "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgb2PYUyJfLEQICCAAw\n"
      "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEJ+pxhm5v+GJCtzEqvUMwC8EQAw/\n"
      "dK2QP16CEiMTHUVbu623ZnqycrWZ+cnsHotWTzLftWDr+MSEv8q5y07LlB6dZN17\n"
      "dHq8rr7V+ouE18d+70k=\n"
      "-----END ENCRYPTED PRIVATE KEY-----\n";
  for (const std::string& text : {std::string(), std::string("key"), secret, other}) {
    const auto key = Ed25519PublicKey::from_pem(text);
    ASSERT_FALSE(key.ok()) << text;
    EXPECT_EQ(key.error().code(), Code::kInvalid);
  }
  for (const std::string& text : {std::string(), other, closed}) {
    const auto key = Ed25519PrivateKey::from_pem(text);
    ASSERT_FALSE(key.ok()) << text;
    EXPECT_EQ(key.error().code(), Code::kInvalid);
  }
  EXPECT_FALSE(Ed25519PublicKey::from_bytes("short").ok());
}

}  // namespace ed25519_test
}  // namespace varda::codec
