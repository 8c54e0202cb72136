#include "gateway/join_token.h"

#include <gtest/gtest.h>
#include <set>

#include "apiserver/testing/in_memory.h"
#include "codec/digest.h"

namespace varda::gateway {
namespace join_token_test {

using namespace std::chrono_literals;
using codec::Json;

const std::string kHash(64, 'c');

JoinToken token_of(std::uint64_t seed = 1) {
  const auto rng = seeded_rng(seed);
  return JoinToken::make(kHash, *rng);
}

const WallTime kNow = std::chrono::system_clock::from_time_t(1'700'000'000);
constexpr const char* kPeer = "10.0.0.7:4000";

JoinTokenRecord record_of(const JoinToken& token) {
  JoinTokenRecord record;
  record.id = token.id;
  record.node = "line7";
  record.secret_sha256 = codec::Sha256::of(token.secret).hex();
  record.expires = kNow + 1h;
  return record;
}

TEST(JoinToken, TokenSurvivesTextRoundTrip) {
  const JoinToken token = token_of();
  for (const std::string& text : {token.text(), " \n" + token.text() + "\r\n"}) {
    const auto read = JoinToken::parse(text);
    ASSERT_TRUE(read.ok()) << read.error();
    EXPECT_EQ(read->id, token.id);
    EXPECT_EQ(read->secret, token.secret);
    EXPECT_EQ(read->ca_sha256, kHash);
  }
  EXPECT_NE(token.id, token_of(2).id);
  EXPECT_NE(token.secret, token_of(2).secret);
}

TEST(JoinToken, InvalidTextIsRefusedWithoutLeakingTheSecret) {
  const std::string good = token_of().text();
  std::vector<std::string> texts = {"",
                                    " \n ",
                                    "varda-join.",
                                    "varda-join...",
                                    good + "0",
                                    good + "." + kHash,
                                    "x" + good,
                                    good + "\n" + good,
                                    good.substr(0, good.size() - 1)};
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string text = good;
    text[i] = i % 2 == 0 ? 'G' : '/';  // neither hex nor a dot nor part of the prefix
    texts.push_back(text);
    text[i] = '\0';
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    const auto read = JoinToken::parse(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code(), Code::kInvalid);
    EXPECT_EQ(read.error().message().find(token_of().secret.substr(0, 8)), std::string::npos);
  }
}

TEST(JoinToken, ReasonsAreDistinguishedOnlyWithTheRightSecret) {
  const JoinToken token = token_of();
  JoinToken wrong = token;
  wrong.secret = std::string(64, '0');
  const JoinTokenRecord fresh = record_of(token);
  JoinTokenRecord used = fresh, revoked = fresh, all = fresh;
  used.used_by = "key-a";
  revoked.revoked = true;
  all.used_by = "key-b";
  all.revoked = true;
  const struct {
    const JoinTokenRecord& record;
    const JoinToken& token;
    WallTime now;
    Verdict verdict;
  } cases[] = {
      {fresh, token, kNow, Verdict::kGood},         {fresh, token, kNow + 1h - 1s, Verdict::kGood},
      {fresh, token, kNow + 1h, Verdict::kExpired}, {used, token, kNow, Verdict::kGood},
      {used, token, kNow + 1h, Verdict::kExpired},  {all, wrong, kNow + 2h, Verdict::kWrongSecret},
      {all, token, kNow + 2h, Verdict::kRevoked},   {revoked, token, kNow, Verdict::kRevoked},
  };
  for (const auto& c : cases)
    EXPECT_EQ(to_string(judge(c.record, c.token, "key-a", kPeer, c.now)), to_string(c.verdict));
  EXPECT_EQ(judge(used, token, "key-c", kPeer, kNow), Verdict::kUsedByAnotherKey);
}

TEST(JoinToken, TokenIsAcceptedFromItsNetworksOnly) {
  const JoinToken token = token_of();
  JoinTokenRecord record = record_of(token);
  for (const char* text : {"10.1.0.0/16", "192.0.2.7", "fd00:1::/32"})
    record.networks.push_back(*net::parse_ip_block(text));
  EXPECT_EQ(text_of(record.networks), "10.1.0.0/16,192.0.2.7/32,fd00:1::/32");
  for (const char* peer :
       {"10.1.255.1:4000", "192.0.2.7:1", "[fd00:1:2::9]:4000", "[::ffff:10.1.0.1]:4000"}) {
    EXPECT_EQ(judge(record, token, "key-a", peer, kNow), Verdict::kGood) << peer;
  }
  for (const char* peer :
       {"10.2.0.1:4000", "192.0.2.8:1", "[fd00:2::9]:4000", "[::ffff:10.2.0.1]:4000",
        "127.0.0.1:4000", "[::1]:4000", "[fe80::1%eth0]:4000", "loopback", ""}) {
    EXPECT_EQ(judge(record, token, "key-a", peer, kNow), Verdict::kOtherNetwork) << peer;
  }
  JoinToken wrong = token;
  wrong.secret = std::string(64, '0');
  EXPECT_EQ(judge(record, wrong, "key-a", "10.2.0.1:4000", kNow), Verdict::kWrongSecret)
      << "the secret first";
  record.networks = {*net::parse_ip_block("fe80::/10")};
  EXPECT_EQ(judge(record, token, "key-a", "[fe80::1%eth0]:4000", kNow), Verdict::kGood);
}

TEST(JoinToken, RecordSurvivesRoundTripWithoutTheTokenSecret) {
  const JoinToken token = token_of();
  JoinTokenRecord record = record_of(token);
  record.used_by = std::string(64, 'a');
  record.revoked = true;
  record.layer = Layer::kDevice;
  record.networks = {*net::parse_ip_block("10.1.0.0/16"), *net::parse_ip_block("fd00:1::/32")};
  const Json secret = record.to_secret();
  std::string all = codec::write_json(secret);
  for (const auto& [name, value] : secret["data"].as_object())
    all += *codec::unbase64(value.as_string());
  EXPECT_EQ(all.find(token.secret), std::string::npos);
  const auto read = JoinTokenRecord::from_secret(secret);
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->id, record.id);
  EXPECT_EQ(read->node, "line7");
  EXPECT_EQ(read->secret_sha256, record.secret_sha256);
  EXPECT_EQ(read->expires, record.expires);
  EXPECT_EQ(read->used_by, record.used_by);
  EXPECT_TRUE(read->revoked);
  EXPECT_EQ(read->layer, Layer::kDevice);
  EXPECT_EQ(text_of(read->networks), "10.1.0.0/16,fd00:1::/32");
}

TEST(JoinToken, InvalidSecretIsCorrupt) {
  const auto changed = [](const char* path, Json value) {
    Json secret = record_of(token_of()).to_secret();
    secret.make(path) = std::move(value);
    return JoinTokenRecord::from_secret(secret);
  };
  EXPECT_TRUE(changed("data/x", "").ok());
  for (const auto& [path, value] :
       std::vector<std::pair<const char*, Json>>{{"type", "Opaque"},
                                                 {"type", nullptr},
                                                 {"metadata/name", "other"},
                                                 {"data", nullptr},
                                                 {"data/node", codec::base64("Not A Node")},
                                                 {"data/node", codec::base64("")},
                                                 {"data/node", codec::base64(std::string(65, 'n'))},
                                                 {"data/layer", codec::base64("moon")},
                                                 {"data/from", ""},
                                                 {"data/from", codec::base64("10.0.0.0/8,moon")},
                                                 {"data/secret-sha256", codec::base64("abc")},
                                                 {"data/secret-sha256", "%%%"},
                                                 {"data/expires", codec::base64("tomorrow")},
                                                 {"data/expires", 7}}) {
    const auto read = changed(path, value);
    ASSERT_FALSE(read.ok()) << path;
    EXPECT_EQ(read.error().code(), Code::kCorrupt) << path;
  }
}

class JoinTokens : public ::testing::Test {
 protected:
  Result<JoinToken> make(const std::string& node, std::chrono::seconds ttl, WallTime now = kNow) {
    return create_join_token(ctx_, client_, {.node = node, .ttl = ttl, .ca_sha256 = kHash}, now,
                             *rng_);
  }
  std::set<std::string> ids() {
    std::set<std::string> out;
    for (const JoinTokenRecord& record : *list_join_tokens(ctx_, client_)) out.insert(record.id);
    return out;
  }

  const Context ctx_ = Context().with_timeout(300s);
  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
  std::unique_ptr<Rng> rng_ = seeded_rng(7);
};

TEST_F(JoinTokens, TokensAreCreatedListedAndRevoked) {
  const auto first = make("line7", 24h),
             second = make("line8", 1h);  // the first call makes the namespace
  ASSERT_TRUE(first.ok()) << first.error();
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(ids(), (std::set<std::string>{first->id, second->id}));
  ASSERT_TRUE(revoke_join_token(ctx_, client_, first->id).ok());
  const auto stored = find_join_token(ctx_, client_, first->id);
  ASSERT_TRUE(stored.ok() && *stored);
  EXPECT_TRUE((*stored)->record.revoked);
  EXPECT_EQ((*stored)->record.node, "line7");
  EXPECT_FALSE((*find_join_token(ctx_, client_, second->id))->record.revoked);
  EXPECT_EQ(revoke_join_token(ctx_, client_, "000000000000").error().code(), Code::kNotFound);
  EXPECT_EQ(revoke_join_token(ctx_, client_, "../x").error().code(), Code::kInvalid);
}

TEST_F(JoinTokens, InvalidNodeNameIsRefused) {
  for (const std::string& node :
       {std::string(), std::string("Line 7"), std::string("system:node:x"),
        std::string("varda-gateway"), std::string(65, 'n')}) {
    EXPECT_EQ(make(node, 1h).error().code(), Code::kInvalid) << node;
  }
  EXPECT_TRUE(make(std::string(64, 'n'), 1h).ok());
}

TEST_F(JoinTokens, TokensAreRemovedOneDayAfterExpiry) {
  const auto early = make("line7", 1h), late = make("line8", 48h);
  EXPECT_EQ(*remove_old_join_tokens(ctx_, client_, kNow + 24h), 0);
  EXPECT_EQ(*remove_old_join_tokens(ctx_, client_, kNow + 25h), 1);
  EXPECT_EQ(ids(), std::set<std::string>{late->id});
  EXPECT_EQ(*remove_old_join_tokens(ctx_, client_, kNow + 72h), 1);
  EXPECT_TRUE(ids().empty());
}

TEST_F(JoinTokens, SecondUseOfTheSameReadConflicts) {
  const auto token = make("line7", 1h);
  const auto stored = find_join_token(ctx_, client_, token->id);
  ASSERT_TRUE(stored.ok() && *stored);
  EXPECT_TRUE(use_join_token(ctx_, client_, **stored, std::string(64, 'a')).ok());
  EXPECT_EQ(use_join_token(ctx_, client_, **stored, std::string(64, 'b')).error().code(),
            Code::kConflict);
  EXPECT_EQ((*find_join_token(ctx_, client_, token->id))->record.used_by, std::string(64, 'a'));
}

}  // namespace join_token_test
}  // namespace varda::gateway
