// Checks the worked examples published with the specifications.
#include "artifact/s3.h"

#include <gtest/gtest.h>

#include "artifact/internal/authorization.h"
#include "artifact/internal/http_date.h"
#include "artifact/testing/manual_clock.h"
#include "codec/digest.h"

namespace varda::artifact {
namespace s3_test {

const WallTime kThen = std::chrono::sys_days(std::chrono::year(2013) / 5 / 24);
const AwsKey kKey{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "",
                  "us-east-1"};

// Cases 1, 2 and 6 of RFC 4231.
TEST(HmacSha256, ResultsMatchTestCasesOfRfc4231) {
  EXPECT_EQ(codec::hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(codec::hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(codec::hex(hmac_sha256(std::string(131, '\xaa'),
                                   "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// "Example: GET Object" of the Amazon S3 API Reference, Signature Calculations for the
// Authorization Header.
TEST(AwsSignature, SignatureMatchesTheGetObjectExample) {
  net::ClientRequest request;
  request.headers.add("Range", "bytes=0-9");
  aws_sign(request, "examplebucket.s3.amazonaws.com", "/test.txt", kKey, kThen);
  EXPECT_EQ(request.headers.find("Authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(request.headers.find("X-Amz-Date"), "20130524T000000Z");
}

// "Example: GET Bucket (List Objects)" and "Example: GET Bucket Lifecycle" of the same page.
TEST(AwsSignature, SignaturesOfQueriesMatchTheExamples) {
  const auto signature = [](const std::string& target) {
    net::ClientRequest request;
    aws_sign(request, "examplebucket.s3.amazonaws.com", target, kKey, kThen);
    const std::string text(request.headers.find("Authorization").value());
    return text.substr(text.rfind('=') + 1);
  };
  EXPECT_EQ(signature("/?max-keys=2&prefix=J"),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  EXPECT_EQ(signature("/?lifecycle="),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(AwsSignature, SignatureCoversEveryRequestPart) {
  const auto signature = [](auto change) {
    net::ClientRequest request;
    request.headers.add("Range", "bytes=7-");
    AwsKey key = kKey;
    std::string host = "h:9000", path = "/b/k";
    WallTime now = kThen;
    change(request, key, host, path, now);
    aws_sign(request, host, path, key, now);
    const std::string text(request.headers.find("Authorization").value());
    return text.substr(text.rfind('='));
  };
  const std::string plain = signature([](auto&...) {});
  EXPECT_NE(plain, signature([](auto& r, auto&, auto&, auto&, auto&) {
              r.headers.set("Range", "bytes=8-");
            }));
  EXPECT_NE(plain, signature([](auto& r, auto&, auto&, auto&, auto&) {
              r.headers.set("If-Range", "\"a\"");
            }));
  EXPECT_NE(plain, signature([](auto& r, auto&, auto&, auto&, auto&) { r.method = "HEAD"; }));
  EXPECT_NE(plain, signature([](auto& r, auto&, auto&, auto&, auto&) { r.body = "x"; }));
  EXPECT_NE(plain, signature([](auto&, auto&, auto&, auto& path, auto&) { path += "?a="; }));
  EXPECT_NE(plain,
            signature([](auto&, auto& key, auto&, auto&, auto&) { key.session_token = "t"; }));
  EXPECT_NE(plain,
            signature([](auto&, auto& key, auto&, auto&, auto&) { key.region = "eu-central-1"; }));
  EXPECT_NE(plain, signature([](auto&, auto& key, auto&, auto&, auto&) { key.secret += "x"; }));
  EXPECT_NE(plain, signature([](auto&, auto&, auto& host, auto&, auto&) { host = "h:9001"; }));
  EXPECT_NE(plain, signature([](auto&, auto&, auto&, auto& path, auto&) { path = "/b/l"; }));
  EXPECT_NE(plain, signature([](auto&, auto&, auto&, auto&, auto& now) {
              now += std::chrono::seconds(1);
            }));
}

TEST(S3Address, AddressComesFromTheBucketOrTheEndpoint) {
  struct Case {
    const char* url;
    const char* region;
    const char* endpoint;
    const char* address;  // "": refused
  };
  for (const Case& c : {
           Case{"s3://models/a/b c", "", "", ""},
           Case{"s3://models/a/b%20c+d%25", "", "",
                "https://models.s3.us-east-1.amazonaws.com/a/b%20c%2Bd%25"},
           Case{"s3://models/x", "eu-central-1", "",
                "https://models.s3.eu-central-1.amazonaws.com/x"},
           Case{"s3://my.models/x", "", "", "https://s3.us-east-1.amazonaws.com/my.models/x"},
           Case{"s3://models/x", "", "http://10.0.0.1:9000", "http://10.0.0.1:9000/models/x"},
           Case{"s3://models/x", "", "https://minio.example/", "https://minio.example/models/x"},
           Case{"s3://models/x", "", "ftp://minio.example", ""},
           Case{"s3://models/x", "", "nonsense", ""},
           Case{"s3://models/", "", "", ""},
           Case{"s3://models/x?versionId=3", "", "", ""},
           Case{"s3://user@models/x", "", "", ""},
           Case{"s3://models:80/x", "", "", ""},
       }) {
    SCOPED_TRACE(c.url);
    const auto url = net::Url::parse(c.url);
    std::string found;
    if (url.ok()) {
      Credentials credentials;
      credentials.region = c.region;
      credentials.endpoint = c.endpoint;
      if (const auto address = s3_address(*url, credentials); address.ok())
        found = address->origin() + address->target;
    }
    EXPECT_EQ(found, c.address);
  }
}

TEST(S3Authorization, WrongClockIsReplacedByTheServerTimeOnce) {
  testing::ManualClock clock;
  clock.set_wall(std::chrono::sys_days(std::chrono::year(1970) / 1 / 2));
  Credentials credentials;
  credentials.access_key_id = "id";
  credentials.secret_access_key = "secret";
  const net::Url address = net::Url::parse("http://h:9000/b/k").value();
  const auto authorization = s3_authorization(address, credentials, clock);
  net::ClientRequest request;
  authorization->add(request);
  EXPECT_EQ(request.headers.find("X-Amz-Date"), "19700102T000000Z");
  EXPECT_EQ(request.headers.find("Host"), "h:9000");
  const net::Headers answer{{"Date", "Fri, 24 May 2013 00:00:00 GMT"}};
  EXPECT_TRUE(authorization->refused(answer));
  authorization->add(request);
  EXPECT_EQ(request.headers.find("X-Amz-Date"), "20130524T000000Z");
  EXPECT_FALSE(authorization->refused(answer)) << "it is not the time, then";
  clock.set_wall(kThen + std::chrono::minutes(2));
  EXPECT_FALSE(s3_authorization(address, credentials, clock)->refused(answer))
      << "two minutes are not why";
  EXPECT_EQ(s3_authorization(address, {}, clock), nullptr) << "public buckets are not signed for";
}

TEST(HttpDate, ValidDatesParseAndInvalidDatesAreRefused) {
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            WallTime(std::chrono::seconds(784111777)));
  for (const char* bad : {"", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 31 Feb 1994 08:49:37 GMT",
                          "Sun, 06 Nov 1994 25:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
                          "Sun, 06 Xxx 1994 08:49:37 GMT", "Sun, 0x Nov 1994 08:49:37 GMT"})
    EXPECT_EQ(parse_http_date(bad), std::nullopt) << bad;
}

TEST(HttpDate, DatesOutsideTheClockRangeAreClamped) {
  EXPECT_EQ(parse_http_date("Mon, 01 Jan 0001 00:00:00 GMT"), WallTime());
  const auto last = parse_http_date("Fri, 31 Dec 9999 23:59:59 GMT");
  ASSERT_TRUE(last);
  EXPECT_GT(*last, WallTime(std::chrono::sys_days(std::chrono::year(2262) / 1 / 1)));
}

TEST(RetryAfter, SecondsAndServerDatesAreUnderstood) {
  using std::chrono::seconds;
  const auto of = [](const char* value, const char* date) {
    return retry_after_of(net::Headers{{"Retry-After", value}, {"Date", date}});
  };
  EXPECT_EQ(of("120", ""), seconds(120));
  EXPECT_EQ(of("999999999", ""), seconds(3600));
  EXPECT_EQ(of("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:07 GMT"), seconds(30));
  EXPECT_EQ(of("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:00 GMT"), std::nullopt);
  EXPECT_EQ(of("Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT"), seconds(3600));
  EXPECT_EQ(of("Sun, 06 Nov 1994 08:49:37 GMT", ""), std::nullopt);
  EXPECT_EQ(of("-5", ""), std::nullopt);
  EXPECT_EQ(of("soon", ""), std::nullopt);
  EXPECT_EQ(retry_after_of({}), std::nullopt);
}

TEST(Credentials, KeysAreReadAndMissingKeysAreNamed) {
  const auto parse = [](std::map<std::string, std::string> keys) {
    return parse_credentials(keys);
  };
  EXPECT_EQ(parse({{"token", "t\n"}})->token, "t");
  EXPECT_EQ(parse({{"username", "u"}, {"password", "p\r\n"}})->password, "p");
  const auto s3 = parse({{"AWS_ACCESS_KEY_ID", "i"},
                         {"AWS_SECRET_ACCESS_KEY", "s"},
                         {"AWS_DEFAULT_REGION", "r"},
                         {"AWS_ENDPOINT_URL", "e"}});
  ASSERT_TRUE(s3.ok());
  EXPECT_EQ(s3->region + s3->endpoint, "re");
  EXPECT_TRUE(parse({{"ca.crt", "pem"}}).ok());
  for (const auto& [keys, message] :
       std::vector<std::pair<std::map<std::string, std::string>, std::string>>{
           {{}, "none of the keys"},
           {{{"other", "hush"}}, "none of the keys"},
           {{{"username", "hush"}}, "username and no password"},
           {{{"AWS_SECRET_ACCESS_KEY", "hush"}}, "AWS_SECRET_ACCESS_KEY and no AWS_ACCESS_KEY_ID"},
           {{{"token", "hush\r\nX-Injected: 1"}}, "line break"},
           {{{"username", "hu:sh"}, {"password", "p"}}, "colon"}}) {
    const auto refused = parse_credentials(keys);
    ASSERT_FALSE(refused.ok()) << message;
    EXPECT_NE(refused.error().message().find(message), std::string::npos) << refused.error();
    EXPECT_EQ(refused.error().message().find("hush"), std::string::npos);
  }
}

TEST(Credentials, SecretsMustNameTheirServers) {
  using Keys = std::map<std::string, std::string>;
  const auto reason = [](const SecretFacts& secret) {
    const auto outcome = credentials_of("Secret default/s", secret);
    if (outcome.ok()) return std::string();
    EXPECT_EQ(outcome.error().error.message().find("hush"), std::string::npos);
    EXPECT_EQ(outcome.error().error.message().find("Secret default/s"), 0u)
        << outcome.error().error;
    return std::string(to_string(outcome.error().reason));
  };
  const Keys token{{"token", "hush"}}, user{{"username", "u"}, {"password", "hush"}};
  const Keys aws{{"AWS_ACCESS_KEY_ID", "i"}, {"AWS_SECRET_ACCESS_KEY", "hush"}};
  for (const Keys& keys : {token, user, aws}) {
    EXPECT_EQ(reason({.keys = keys}), "CredentialsInvalid");
    EXPECT_EQ(reason({.keys = keys, .type = "Opaque"}), "CredentialsInvalid");
    EXPECT_EQ(reason({.keys = keys, .type = "edgeai.io/files"}), "");
    EXPECT_EQ(reason({.keys = keys, .annotations = {{"edgeai.io/hosts", "files.example"}}}), "");
    EXPECT_EQ(reason({.keys = keys,
                      .type = "kubernetes.io/service-account-token",
                      .annotations = {{"edgeai.io/hosts", "h"}}}),
              "CredentialsInvalid");
    Keys with = keys;
    with["hosts"] = "files.example";
    EXPECT_EQ(reason({.keys = with}), "");
    with["allow-http"] = "yes";
    EXPECT_EQ(reason({.keys = with}), "CredentialsMissing");
  }
  EXPECT_EQ(reason({.keys = {{"token", "hush"},
                             {"ca.crt", "pem"},
                             {"namespace", "default"},
                             {"hosts", "h"}}}),
            "CredentialsInvalid")
      << "as a service account's token looks in a pod";
  EXPECT_EQ(reason({.keys = {{"ca.crt", "pem"}}}), "") << "nothing in it is a secret";
  EXPECT_EQ(reason({.keys = {{"user", "hush"}}}), "CredentialsMissing");
  Keys minio = aws;
  minio["AWS_ENDPOINT_URL"] = "http://minio:9000";
  EXPECT_EQ(credentials_of("Secret default/s", {.keys = minio})->hosts->size(), 0u)
      << "its own server, and no other";
}

TEST(Credentials, CredentialsAreSentOnlyToNamedServers) {
  using Kind = Sending::Kind;
  const auto kind = [](const Credentials& credentials, const std::string& url,
                       const std::string& first = "https://files.example/m") {
    return sending_of(credentials, net::Url::parse(url).value(), first).kind;
  };
  Credentials own;
  own.token = "t";
  EXPECT_EQ(kind(own, "https://files.example/m"), Kind::kSent);
  EXPECT_EQ(kind(own, "https://FILES.example:443/other"), Kind::kSent);
  for (const char* other :
       {"https://files.example:8443/m", "https://mirror.example/m", "http://files.example/m"})
    EXPECT_EQ(kind(own, other), Kind::kWithheld) << other;
  EXPECT_EQ(kind(own, "s3://bucket/m"), Kind::kNothing);
  EXPECT_EQ(kind(own, "file:///m"), Kind::kNothing);
  EXPECT_EQ(kind({}, "https://files.example/m"), Kind::kNothing);
  for (const char* loopback : {"http://127.0.0.1:8000/m", "http://localhost/m", "http://[::1]/m"})
    EXPECT_EQ(kind(own, loopback, loopback), Kind::kSent) << loopback;
  EXPECT_EQ(kind(own, "http://files.example/m", "http://files.example/m"), Kind::kWithheld);
  own.allow_http = true;
  EXPECT_EQ(kind(own, "http://files.example/m", "http://files.example/m"), Kind::kSent);

  Credentials listed = *parse_credentials(
      {{"token", "t"}, {"hosts", "Files.example, *.site\nplain.example:8443 [fd00::1]\n"}});
  EXPECT_EQ(*listed.hosts, (std::vector<std::string>{"files.example", "*.site",
                                                     "plain.example:8443", "[fd00::1]"}));
  listed.hosts->at(1) = "*.site.example";
  for (const char* url :
       {"https://files.example/m", "https://files.example:1/m", "https://a.site.example/m",
        "https://plain.example:8443/m", "https://[fd00::1]/m", "https://a.b.site.example/m"})
    EXPECT_EQ(kind(listed, url), Kind::kSent) << url;
  for (const char* url :
       {"https://evil.example/m", "https://site.example/m", "https://asite.example/m",
        "https://plain.example/m", "https://files.example.evil/m", "https://xfiles.example/m",
        "https://[fd00::2]/m"})
    EXPECT_EQ(kind(listed, url, url), Kind::kWithheld) << url;
  EXPECT_NE(sending_of(listed, net::Url::parse("https://evil.example/m").value(), "")
                .why.find("evil.example"),
            std::string::npos);

  Credentials aws;
  aws.access_key_id = "i";
  aws.secret_access_key = "s";
  EXPECT_EQ(kind(aws, "s3://bucket/m", "s3://bucket/m"), Kind::kSent);
  EXPECT_EQ(kind(aws, "https://files.example/m"), Kind::kNothing);
  aws.hosts = {"files.example"};
  EXPECT_EQ(kind(aws, "s3://bucket/m"), Kind::kWithheld);
  aws.hosts = {"*.amazonaws.com"};
  EXPECT_EQ(kind(aws, "s3://bucket/m"), Kind::kSent);
  aws.hosts->clear();
  aws.endpoint = "http://minio:9000";
  EXPECT_EQ(kind(aws, "s3://bucket/m"), Kind::kSent) << "the Secret itself names that server";
}

}  // namespace s3_test
}  // namespace varda::artifact
