#include "hosting/model_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda::hosting {
namespace model_keys_test {

using ::testing::HasSubstr;

const std::string kDigest(64, 'a');
// The output of minisign 0.11 of Debian 12; src/codec/minisign_test.cc has the commands.
constexpr const char* kMinisignKey = "RWSIEhFVdonumEJFr9JvOUG/tk1ka3CBEDnd9XqfOYKWdNCpbd7byzUT";
constexpr const char* kMinisignature =
    "untrusted comment: signature from minisign secret key\n"
    "RUSIEhFVdonumCYDn72iLNpyE1GwI94TEWPCw6mq4JCDdbu2HtOYG4XBN0pIC/yHhkc1eOkqfF99mFy1Cxrr+rOpAMZnkO"
    "BXEgI=\n"
    "trusted comment: timestamp:1795463158\tfile:line\thashed\n"
    "2fqN6NLPagHor3ooudATh1bqFYKVQMH8xkn4atNvd1nGfJKvFRFD2rRtMYvqBpM5FhrZFXK948bnTm+8u9BUAg==\n";
// The output of OpenSSL 3.0 for the same line:
//   openssl genpkey -algorithm ed25519 -out key.pem
//   openssl pkeyutl -sign -inkey key.pem -rawin -in line | base64 -w0
//   openssl pkey -in key.pem -pubout
constexpr const char* kPem =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAw+0+JmQzxau8zorn7FYO4J9dYgEWh8t9WSfVIfLgf84=\n"
    "-----END PUBLIC KEY-----\n";
constexpr const char* kPlain =
    "t6Zc9vNNBjgPKrQa9OneY8WdpbCn5o1ycnd3AudDkwsRNL7wQaFR1TcoeTZPc9V0+qzcq7AkmS2oMlE1fzmmCA==";

std::string refusal(const ModelKeys& keys, SignedVersion version) {
  const auto problem = keys.refusal(version);
  if (!problem) return "";
  EXPECT_EQ(problem->reason, "SignatureRefused");
  return problem->message;
}

SignedVersion digits(std::string_view signature) {
  return {.model = "digits", .version = "4", .sha256 = kDigest, .signature = signature};
}

TEST(ModelKeys, AcceptsSignaturesOfOpensslMinisignAndVarda) {
  const codec::Ed25519PrivateKey own = codec::Ed25519PrivateKey::generate();
  const auto keys = ModelKeys::parse("# keys of the release team\n\n" + std::string(kPem) +
                                     "untrusted comment: minisign public key\n" + kMinisignKey +
                                     "\r\n" + own.public_key().base64());
  ASSERT_TRUE(keys.ok()) << keys.error();
  EXPECT_EQ((*keys)->size(), 3u);
  EXPECT_EQ(refusal(**keys, digits(kPlain)), "");
  EXPECT_EQ(refusal(**keys, digits(kMinisignature)), "");
  const std::string signature = codec::base64(own.sign(digits("").line()));
  EXPECT_EQ(refusal(**keys, digits(signature)), "");
  EXPECT_EQ(refusal(**keys, digits("\n" + signature + "\n")), "");
  EXPECT_EQ(refusal(**keys, digits(signature)), "");  // remembered
}

// Otherwise an attacker could offer an old or a foreign archive under a name that clients trust.
TEST(ModelKeys, SignatureHoldsForOneModelVersionAndDigestOnly) {
  const auto keys = ModelKeys::parse(std::string(kPem) + kMinisignKey).value();
  for (const char* signature : {kPlain, kMinisignature}) {
    SignedVersion other = digits(signature);
    other.model = "letters";
    EXPECT_THAT(refusal(*keys, other), HasSubstr("bad signature"));
    other = digits(signature);
    other.version = "5";
    EXPECT_THAT(refusal(*keys, other), HasSubstr("version 5 has a bad signature"));
    other = digits(signature);
    const std::string digest(64, 'b');
    other.sha256 = digest;
    EXPECT_THAT(refusal(*keys, other), HasSubstr("bad signature"));
  }
}

TEST(ModelKeys, BlanksCannotMoveThePartsOfTheLine) {
  const codec::Ed25519PrivateKey own = codec::Ed25519PrivateKey::generate();
  const auto keys = ModelKeys::parse(own.public_key().base64()).value();
  const SignedVersion meant{.model = "a b", .version = "c", .sha256 = kDigest};
  const std::string signature = codec::base64(own.sign(meant.line()));
  const SignedVersion moved{
      .model = "a", .version = "b c", .sha256 = kDigest, .signature = signature};
  EXPECT_THAT(refusal(*keys, moved), HasSubstr("words without blanks"));
}

TEST(ModelKeys, RefusalNamesTheCause) {
  const auto keys = ModelKeys::parse(kPem).value();
  EXPECT_THAT(refusal(*keys, digits("")), HasSubstr("version 4 has no signature"));
  EXPECT_THAT(refusal(*keys, digits(" \n")), HasSubstr("has no signature"));
  EXPECT_THAT(refusal(*keys, digits("c2hvcnQ=")), HasSubstr("malformed signature: must be base64"));
  EXPECT_THAT(refusal(*keys, digits("untrusted comment: x\n")),
              HasSubstr("malformed signature: a minisign signature has 4 lines"));
  const auto other_minisign =
      ModelKeys::parse(std::string("RWSA") + (kMinisignKey + 4)).value();  // another key id
  EXPECT_THAT(refusal(*other_minisign, digits(kMinisignature)),
              HasSubstr("signed by the key 98EE897655111288, which is not in the operator's list"));
  EXPECT_THAT(refusal(*other_minisign, digits(kPlain)), HasSubstr("bad signature"));
}

// The key of a minisign pair may be listed without its id.
TEST(ModelKeys, PlainKeyVerifiesMinisign) {
  const std::string bytes = codec::unbase64(kMinisignKey).value();
  const auto keys = ModelKeys::parse(codec::base64(bytes.substr(10))).value();
  EXPECT_EQ(refusal(*keys, digits(kMinisignature)), "");
}

TEST(ModelKeys, ErrorNamesTheLine) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "there is no key"},
      {"# a comment\n", "there is no key"},
      {"# a comment\nkey\n", "line 2: must be a public key"},
      {std::string(kMinisignKey) + "\n" + kPlain, "line 2: must be a public key"},
      {"-----BEGIN PUBLIC KEY-----\nAAAA\n", "the last PEM block has no end"},
      {"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "line 3"},
      {codec::Ed25519PrivateKey::generate().pem(), "line 3"},
  };
  for (const auto& [text, message] : cases) {
    const auto keys = ModelKeys::parse(text);
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_EQ(keys.error().code(), Code::kInvalid);
    EXPECT_THAT(keys.error().message(), HasSubstr(message)) << text;
  }
  std::string many;
  for (int i = 0; i < 257; ++i) many += std::string(kMinisignKey) + "\n";
  EXPECT_FALSE(ModelKeys::parse(many).ok());
}

}  // namespace model_keys_test
}  // namespace varda::hosting
