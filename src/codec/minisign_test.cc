#include "codec/minisign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/digest.h"

namespace varda::codec {
namespace minisign_test {

using ::testing::HasSubstr;

// The output of minisign 0.11 of Debian 12:
//   printf 'varda-model-v1 digits 4 %s\n' $(printf 'a%.0s' $(seq 64)) > line
//   minisign -G -W -p k.pub -s k.key
//   minisign -S -s k.key -m line -x hashed.minisig
//   minisign -S -l -s k.key -m line -x pure.minisig -t 'digits version 4'
const std::string kLine = "varda-model-v1 digits 4 " + std::string(64, 'a') + "\n";
constexpr const char* kKey = "RWSIEhFVdonumEJFr9JvOUG/tk1ka3CBEDnd9XqfOYKWdNCpbd7byzUT";
const std::string kHashed =
    "untrusted comment: signature from minisign secret key\n"
    "RUSIEhFVdonumCYDn72iLNpyE1GwI94TEWPCw6mq4JCDdbu2HtOYG4XBN0pIC/yHhkc1eOkqfF99mFy1Cxrr+rOpAMZnkO"
    "BXEgI=\n"
    "trusted comment: timestamp:1795463158\tfile:line\thashed\n"
    "2fqN6NLPagHor3ooudATh1bqFYKVQMH8xkn4atNvd1nGfJKvFRFD2rRtMYvqBpM5FhrZFXK948bnTm+8u9BUAg==\n";
const std::string kPure =
    "untrusted comment: signature from minisign secret key\n"
    "RWSIEhFVdonumGdMd2+em4dqDZiR71mDbKxkeb1kiZ7SkbHt7KXjRU588W4oLqxrdA6AwF4ouor4uHhFCN+8iBAoJ0nlJN"
    "av8QY=\n"
    "trusted comment: digits version 4\n"
    "OWPyz7U/0/2ahB5F6a76DVCASumJXVW2sGFdW+02lJZKEfvG5d5a9G3SfjmndorMFXsWPYEP42W6b/ORCkaaAg==\n";

MinisignPublicKey key() { return MinisignPublicKey::from_bytes(unbase64(kKey).value()).value(); }

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(Minisign, VerifiesPureAndPrehashedSignaturesOfTheTool) {
  EXPECT_EQ(to_string(key().id), "98EE897655111288");
  for (const std::string& text : {kHashed, kPure}) {
    const auto signature = MinisignSignature::parse(text);
    ASSERT_TRUE(signature.ok()) << signature.error();
    EXPECT_EQ(signature->key_id, key().id);
    EXPECT_EQ(signature->prehashed, text == kHashed);
    EXPECT_TRUE(signature->verifies(key().key, kLine));
    EXPECT_FALSE(signature->verifies(key().key, kLine + "\n"));
    EXPECT_FALSE(signature->verifies(Ed25519PrivateKey::generate().public_key(), kLine));
  }
}

TEST(Minisign, ChangedTrustedCommentIsInvalid) {
  const auto signature = MinisignSignature::parse(replaced(kPure, "version 4", "version 5"));
  ASSERT_TRUE(signature.ok()) << signature.error();
  EXPECT_EQ(signature->trusted_comment, "digits version 5");
  EXPECT_FALSE(signature->verifies(key().key, kLine));
}

TEST(Minisign, AnotherAlgorithmNameIsInvalid) {
  // "RW" is the base64 of "Ed", "RU" that of "ED".
  const auto signature = MinisignSignature::parse(replaced(kPure, "RWSI", "RUSI"));
  ASSERT_TRUE(signature.ok()) << signature.error();
  EXPECT_FALSE(signature->verifies(key().key, kLine));
}

// An editor or YAML may change the ends of lines.
TEST(Minisign, LineEndsDoNotMatter) {
  std::string windows;
  for (const char c : kPure) windows += c == '\n' ? "\r\n" : std::string(1, c);
  for (const std::string& text : {windows, kPure.substr(0, kPure.size() - 1), kPure + "\n\n"}) {
    const auto signature = MinisignSignature::parse(text);
    ASSERT_TRUE(signature.ok()) << signature.error();
    EXPECT_TRUE(signature->verifies(key().key, kLine));
  }
}

TEST(Minisign, ErrorNamesTheWrongLine) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "has 4 lines"},
      {kPure + "more\n", "has 4 lines, not 5"},
      {replaced(kPure, "untrusted comment:", "comment:"), "line 1"},
      {replaced(kPure, "RWSI", "****"), "line 2"},
      {replaced(kPure, "RWSI", "AAAA"), "line 2"},
      {replaced(kPure, "RWSI", ""), "line 2"},
      {replaced(kPure, "trusted comment: d", "comment: d"), "line 3"},
      {replaced(kPure, "OWPy", ""), "line 4"},
  };
  for (const auto& [text, message] : cases) {
    const auto signature = MinisignSignature::parse(text);
    ASSERT_FALSE(signature.ok()) << text;
    EXPECT_EQ(signature.error().code(), Code::kInvalid);
    EXPECT_THAT(signature.error().message(), HasSubstr(message)) << text;
  }
}

TEST(Minisign, OtherPublicKeysAreInvalid) {
  const std::string bytes = unbase64(kKey).value();
  for (const std::string& text :
       {std::string(), bytes.substr(1), bytes + "x", "ED" + bytes.substr(2)})
    EXPECT_FALSE(MinisignPublicKey::from_bytes(text).ok());
}

}  // namespace minisign_test
}  // namespace varda::codec
