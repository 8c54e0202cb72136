// The agent's identity against the real enrolment over the in-memory API server, without sockets.
// With TLS sockets: identity_tls_test.cc.
#include "agent/identity/identity.h"

#include <gtest/gtest.h>
#include <set>
#include <thread>

#include "agent/testing/cloud.h"
#include "artifact/testing/manual_clock.h"
#include "gateway/authority.h"
#include "gateway/node_key.h"
#include "net/client.h"
#include "os/testing/crash_campaign.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::identity {
namespace identity_test {

using namespace std::chrono_literals;
using artifact::testing::ManualClock;
using codec::Json;
using os::testing::MemoryFileSystem;
using testing::Cloud;
using testing::kUrl;

constexpr const char* kDirectory = "/data/identity";

class IdentityTest : public ::testing::Test {
 protected:
  IdentityTest() {
    clock_.set_wall(std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  }

  Result<std::unique_ptr<Identity>> open(std::string token = "", std::string node = "line7") {
    return open_with(clock_, std::move(token), std::move(node));
  }
  Result<std::unique_ptr<Identity>> open_with(const Clock& clock, std::string token = "",
                                              std::string node = "line7") {
    Options options;
    options.node_name = std::move(node);
    options.gateway = kUrl;
    options.directory = kDirectory;
    if (!token.empty()) options.join_token = [token] { return Result<std::string>(token); };
    options.connect = [this](const net::TlsClient& tls) { return cloud_.connect(tls); };
    return Identity::open(std::move(options), fs_, clock, *rng_);
  }
  /// The gateway's name for this node.
  std::string response_of(Identity& identity) {
    auto answer = identity.transport().call(ctx_, {.url = std::string(kUrl) + "/whoami"});
    if (!answer.ok()) return answer.error().message();
    return std::to_string(answer->status) + " " + answer->body;
  }
  std::string file(const std::string& name) {
    auto text = os::read_file(fs_, os::Path(kDirectory) / name);
    return text.ok() ? *text : "";
  }
  void pass_until_due(Identity& identity) {
    clock_.advance(std::max(Duration(0), identity.due() - clock_.now()));
  }

  const Context ctx_ = Context().with_timeout(300s);
  ManualClock clock_;  // of both ends unless a test changes it
  MemoryFileSystem fs_;
  std::unique_ptr<Rng> rng_ = seeded_rng(3);
  Cloud cloud_{clock_};
};

TEST_F(IdentityTest, FirstStartEnrolsAndRestartNeedsNoTokenOrNetwork) {
  const std::string token = cloud_.token("line7");
  {
    const auto identity = open(" " + token + "\n");
    ASSERT_TRUE(identity.ok()) << identity.error();
    EXPECT_FALSE((*identity)->facts());
    EXPECT_EQ(response_of(**identity), "this node has not enrolled yet");
    ASSERT_TRUE((*identity)->enrol(ctx_).ok());
    EXPECT_EQ(response_of(**identity), "200 line7");
  }
  for (const char* name : {"key.pem", "cert.pem", "ca.pem"}) {
    EXPECT_EQ((*fs_.stat(os::Path(kDirectory) / name))->mode, 0600u) << name;
    EXPECT_EQ(file(name).find(token), std::string::npos);
  }
  EXPECT_EQ((*fs_.stat(kDirectory))->mode, 0700u);
  EXPECT_EQ(file("ca.pem"), cloud_.authority().ca_pem());

  cloud_.link(Cloud::Link::kDown);
  const std::string certificate = file("cert.pem");
  // Nothing is written, either: the disk may be full.
  fs_.on_call([](std::string_view call, const os::Path& path) -> Status {
    if (call == "open" || call == "read" || call == "stat" || call == "size" || call == "list")
      return {};
    return Error(Code::kExhausted, std::string(call) + " " + path.string());
  });
  const auto identity = open();
  ASSERT_TRUE(identity.ok()) << identity.error();
  ASSERT_TRUE((*identity)->enrol(ctx_).ok());
  EXPECT_EQ((*identity)->facts()->common_name, "line7");
  EXPECT_EQ(file("cert.pem"), certificate);
}

TEST_F(IdentityTest, EnrolmentIsRetriedWithBackoffUntilGatewayAnswers) {
  const auto identity = open(cloud_.token("line7"));
  std::vector<std::chrono::milliseconds> waits;
  for (const Cloud::Link link :
       {Cloud::Link::kDown, Cloud::Link::kUnavailable, Cloud::Link::kLosesAnswer}) {
    cloud_.link(link);
    for (int i = 0; i < 12; ++i) {
      const Status status = (*identity)->step(ctx_);
      ASSERT_FALSE(status.ok());
      EXPECT_FALSE(status.error().terminal()) << status.error();
      waits.push_back(
          std::chrono::duration_cast<std::chrono::milliseconds>((*identity)->due() - clock_.now()));
      pass_until_due(**identity);
    }
  }
  EXPECT_GE(waits[0], 750ms);
  EXPECT_LE(waits[0], 1250ms);
  EXPECT_GE(waits[3], 4 * waits[0] / 2);
  EXPECT_LE(*std::max_element(waits.begin(), waits.end()), 375s);
  EXPECT_GE(waits.back(), 225s);
  cloud_.link(Cloud::Link::kUp);
  ASSERT_TRUE((*identity)->step(ctx_).ok());  // the lost requests used the token with this same key
  EXPECT_EQ(response_of(**identity), "200 line7");
}

TEST_F(IdentityTest, BusyGatewaySetsRetryTime) {
  const auto identity = open(cloud_.token("line7"));
  cloud_.link(Cloud::Link::kUnavailable);
  ASSERT_FALSE((*identity)->step(ctx_).ok());
  EXPECT_GE((*identity)->due() - clock_.now(), 5s);  // 7 s ± 25 %
}

TEST_F(IdentityTest, MissingTokenFileIsPolledWithoutBackoff) {
  Options options;
  options.node_name = "line7";
  options.gateway = kUrl;
  options.directory = kDirectory;
  Result<std::string> token = Error(Code::kNotFound, "join/token: no such file");
  options.join_token = [&] { return token; };
  options.connect = [this](const net::TlsClient& tls) { return cloud_.connect(tls); };
  const auto identity = Identity::open(std::move(options), fs_, clock_, *rng_).value();
  for (int i = 0; i < 100; ++i) {
    const Status status = identity->step(ctx_);
    ASSERT_FALSE(status.ok());
    EXPECT_FALSE(status.error().terminal());
    EXPECT_EQ(identity->due() - clock_.now(),
              3s);  // a volume gets the Secret at any moment: no backoff
    pass_until_due(*identity);
  }
  EXPECT_EQ(cloud_.requests(), 0);
  token = cloud_.token("line7");
  ASSERT_TRUE(identity->enrol(ctx_).ok());
  EXPECT_EQ(response_of(*identity), "200 line7");
}

TEST_F(IdentityTest, RefusedTokenEndsEnrolmentAndErrorNamesCommand) {
  const std::string used = cloud_.token("line7"), expired = cloud_.token("line7", 1h);
  const std::string other = *net::make_csr(*net::make_key(), "line7");
  net::Request request;
  request.method = "POST";
  request.target = "/gateway/v1/enroll";
  request.peer.address = "10.0.0.9:1";
  request.body = codec::write_json(Json::object({{"token", used}, {"csr", other}}));
  ASSERT_EQ(cloud_.enrolment().handle(ctx_, request)->status, 200);
  clock_.advance(2h);
  for (const std::string& token : {used, expired}) {
    const auto identity = open(token);
    const Status status = (*identity)->enrol(ctx_);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), Code::kForbidden);
    EXPECT_NE(status.error().message().find("varda join-token --node line7"), std::string::npos)
        << status.error();
    EXPECT_EQ(status.error().message().find(token.substr(0, 40)), std::string::npos);
    EXPECT_EQ(file("cert.pem"), "");
  }
}

TEST_F(IdentityTest, InvalidTokenFailsEnrolmentAtOnce) {
  const struct {
    std::string token, message;
  } cases[] = {
      {"", "needs a join token"},
      {"nonsense", "not a join token"},
      {cloud_.token("line7").substr(0, 100), "not a join token"},
      {cloud_.token("line8"), "is for node \"line8\""},
  };
  for (const auto& c : cases) {
    const auto identity = open(c.token);
    ASSERT_TRUE(identity.ok()) << identity.error();
    const Status status = (*identity)->enrol(ctx_);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), Code::kInvalid);
    EXPECT_NE(status.error().message().find(c.message), std::string::npos) << status.error();
    EXPECT_EQ(file("cert.pem"), "");
  }
}

TEST_F(IdentityTest, IdentityOfAnotherNodeIsRefused) {
  ASSERT_TRUE((*open(cloud_.token("line7")))->enrol(ctx_).ok());
  const auto other = open("", "line8");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message().find("is the identity of node \"line7\""), std::string::npos)
      << other.error();
}

TEST_F(IdentityTest, DamagedIdentityFileIsNamedInError) {
  ASSERT_TRUE((*open(cloud_.token("line7")))->enrol(ctx_).ok());
  const std::string key = file("key.pem"), ca = file("ca.pem"), certificate = file("cert.pem");
  const struct {
    const char* name;
    std::string bytes;
    const char* message;
  } cases[] = {
      {"key.pem", "nonsense", "key.pem contains no key"},
      {"key.pem", *net::make_key(), "does not belong to the key"},
      {"cert.pem", "", "cert.pem contains no certificate"},
      {"ca.pem", key, "ca.pem contains no certificate"},
  };
  for (const auto& c : cases) {
    ASSERT_TRUE(os::write_file_atomically(fs_, os::Path(kDirectory) / c.name, c.bytes, 0600).ok());
    const auto identity = open();
    ASSERT_FALSE(identity.ok()) << c.message;
    EXPECT_EQ(identity.error().code(), Code::kCorrupt);
    EXPECT_NE(identity.error().message().find(c.message), std::string::npos) << identity.error();
    ASSERT_TRUE(os::write_file_atomically(fs_, os::Path(kDirectory) / "key.pem", key, 0600).ok());
    ASSERT_TRUE(os::write_file_atomically(fs_, os::Path(kDirectory) / "ca.pem", ca, 0600).ok());
    ASSERT_TRUE(
        os::write_file_atomically(fs_, os::Path(kDirectory) / "cert.pem", certificate, 0600).ok());
  }
  EXPECT_TRUE(open().ok());
}

TEST_F(IdentityTest, CertificateRenewsAtTwoThirdsAndServesNewRequests) {
  const auto identity = open(cloud_.token("line7"));
  ASSERT_TRUE((*identity)->enrol(ctx_).ok());
  const auto first = *(*identity)->facts();
  const Duration wait = (*identity)->due() - clock_.now();
  EXPECT_GE(wait, 24h * 59);
  EXPECT_LE(wait, 24h * 68);
  pass_until_due(**identity);
  const std::string key = file("key.pem");
  ASSERT_TRUE((*identity)->step(ctx_).ok());
  const auto second = *(*identity)->facts();
  EXPECT_GT(second.not_after, first.not_after);
  EXPECT_EQ(second.key_sha256, first.key_sha256);
  EXPECT_EQ(file("key.pem"), key);
  EXPECT_EQ(net::certificate_facts(file("cert.pem"))->sha256, second.sha256);
  clock_.advance(24h * 40);  // the first certificate has expired
  EXPECT_EQ(response_of(**identity), "200 line7");
  EXPECT_EQ((*open())->facts()->sha256, second.sha256);
}

TEST_F(IdentityTest, RenewalTimesAreSpreadAcrossStarts) {
  std::set<Duration> waits;
  ASSERT_TRUE((*open(cloud_.token("line7")))->enrol(ctx_).ok());
  for (int i = 0; i < 20; ++i) waits.insert((*open())->due() - clock_.now());
  EXPECT_GE(waits.size(), 15u);
  EXPECT_GE(*waits.rbegin() - *waits.begin(), 24h);
}

TEST_F(IdentityTest, FailedRenewalIsRetriedEvenAfterExpiry) {
  const auto identity = open(cloud_.token("line7"));
  ASSERT_TRUE((*identity)->enrol(ctx_).ok());
  cloud_.link(Cloud::Link::kDown);
  const WallTime end = (*identity)->facts()->not_after;
  int attempts = 0;
  while (clock_.wall() < end + 24h * 29) {
    pass_until_due(**identity);
    if (++attempts < 40) {
      ASSERT_FALSE((*identity)->step(ctx_).ok());
      EXPECT_GT((*identity)->due(), clock_.now());
    } else {
      clock_.advance(24h);
    }
  }
  cloud_.link(Cloud::Link::kUp);
  EXPECT_EQ(response_of(**identity).substr(0, 4), "401 ");
  ASSERT_TRUE((*identity)->step(ctx_).ok());
  EXPECT_EQ(response_of(**identity), "200 line7");
}

TEST_F(IdentityTest, NewTokenReenrolsNodeAfterGracePeriod) {
  ASSERT_TRUE((*open(cloud_.token("line7")))->enrol(ctx_).ok());
  clock_.advance(24h * 200);
  {
    const auto identity = open();
    EXPECT_LE((*identity)->due(), clock_.now());
    const Status status = (*identity)->step(ctx_);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), Code::kForbidden);
    EXPECT_GE((*identity)->due() - clock_.now(), 40min);
  }
  const auto identity = open(cloud_.token("line7"));
  ASSERT_TRUE((*identity)->step(ctx_).ok());
  EXPECT_EQ(response_of(**identity), "200 line7");
}

TEST_F(IdentityTest, NewTokenReplacesCertificateOfAnotherLayer) {
  ASSERT_TRUE((*open(cloud_.token("line7")))->enrol(ctx_).ok());
  const std::string key = *net::key_sha256(file("key.pem"));
  ASSERT_TRUE(
      gateway::set_node_key(ctx_, cloud_.client(), "line7", key, gateway::Layer::kDevice).ok());
  {
    const auto identity = open();
    pass_until_due(**identity);
    const Status refused = (*identity)->step(ctx_);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message().find(
                  "is for the layer edge, and the node is of the layer device"),
              std::string::npos)
        << refused.error();
  }
  const auto identity = open(cloud_.token("line7"));
  pass_until_due(**identity);
  ASSERT_TRUE((*identity)->step(ctx_).ok());
  EXPECT_EQ((*identity)->facts()->organizational_units, std::vector<std::string>{"edge"});
}

TEST_F(IdentityTest, RevokedNodeIsRefusedUntilAnnotationIsRemoved) {
  const auto identity = open(cloud_.token("line7"));
  ASSERT_TRUE((*identity)->enrol(ctx_).ok());
  cloud_.annotate("line7", "true");
  pass_until_due(**identity);
  EXPECT_EQ((*identity)->step(ctx_).error().code(), Code::kForbidden);
  cloud_.annotate("line7", nullptr);
  pass_until_due(**identity);
  EXPECT_TRUE((*identity)->step(ctx_).ok());
}

TEST_F(IdentityTest, NodeWithClockAt1970EnrolsAndRenews) {
  ManualClock wrong;
  wrong.set_wall(WallTime());
  {
    const auto identity = open_with(wrong, cloud_.token("line7"));
    ASSERT_TRUE((*identity)->enrol(ctx_).ok());
    // The clock is proven now, so the renewal follows the lifetime.
    const Duration wait = (*identity)->due() - wrong.now();
    EXPECT_GE(wait, 24h * 59);
    EXPECT_LE(wait, 24h * 68);
  }
  // After a restart the certificate's age is unknown, so it is renewed soon.
  ManualClock again;
  again.set_wall(WallTime());
  const auto identity = open_with(again);
  const Duration wait = (*identity)->due() - again.now();
  EXPECT_GE(wait, 30s);
  EXPECT_LE(wait, 300s);
  again.advance(wait);
  ASSERT_TRUE((*identity)->step(ctx_).ok());
  EXPECT_GE((*identity)->due() - again.now(), 24h * 59);
  // Once the clock is set, it is used again.
  again.set_wall(clock_.wall() + 24h * 80);
  EXPECT_EQ(response_of(*identity.value()), "200 line7");
}

TEST_F(IdentityTest, ClockYearsAheadCausesNoRenewalLoop) {
  ManualClock wrong;
  wrong.set_wall(clock_.wall() + 24h * 2000);
  const auto identity = open_with(wrong, cloud_.token("line7"));
  ASSERT_TRUE((*identity)->enrol(ctx_).ok());
  EXPECT_GE((*identity)->due() - wrong.now(), 24h * 59);
  const auto again = open_with(wrong);
  EXPECT_LE((*again)->due(), wrong.now());  // it seems to have expired ...
  ASSERT_TRUE((*again)->step(ctx_).ok());
  EXPECT_GE((*again)->due() - wrong.now(),
            24h * 59);  // ... and the answer proves that the clock is wrong
}

TEST_F(IdentityTest, RejectedCertificateIsRenewedAtOnceDespiteNodeClock) {
  ManualClock stopped;  // stands at the time of the enrolment, like a machine without a battery
  stopped.set_wall(clock_.wall());
  ASSERT_TRUE((*open_with(stopped, cloud_.token("line7")))->enrol(ctx_).ok());
  clock_.advance(24h * 100);
  const auto identity = open_with(stopped);
  EXPECT_GT((*identity)->due(), stopped.now() + 24h * 30);
  EXPECT_EQ(response_of(**identity).substr(0, 4), "401 ");
  EXPECT_LE((*identity)->due(), stopped.now());
  ASSERT_TRUE((*identity)->step(ctx_).ok());
  EXPECT_EQ(response_of(**identity), "200 line7");
  EXPECT_GT((*identity)->due(), stopped.now() + 24h * 30);
}

TEST_F(IdentityTest, Repeated401DoesNotShortenRenewalBackoff) {
  const auto identity = open(cloud_.token("line7"));
  ASSERT_TRUE((*identity)->enrol(ctx_).ok());
  clock_.advance(24h * 91);
  EXPECT_EQ(response_of(**identity).substr(0, 4), "401 ");
  cloud_.link(Cloud::Link::kDown);
  ASSERT_FALSE((*identity)->step(ctx_).ok());
  const int before = cloud_.requests();
  const SteadyTime due = (*identity)->due();
  EXPECT_GT(due, clock_.now());
  cloud_.link(Cloud::Link::kUp);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(response_of(**identity).substr(0, 4), "401 ");
  EXPECT_EQ((*identity)->due(), due);
  EXPECT_EQ(cloud_.requests(), before + 5);
}

TEST_F(IdentityTest, InvalidEnrolmentAnswerChangesNothing) {
  const std::string key = *net::make_key();
  const net::KeyPair ca = *net::make_ca("edge-ca", 24h);
  const auto certificate = [&](const std::string& node, const std::string& csr,
                               std::vector<std::string> organizations) {
    net::CertificateRequest request;
    request.common_name = node;
    request.organizations = std::move(organizations);
    return *net::sign_csr(ca, csr, request);
  };
  using Make = std::function<Json(const std::string& csr)>;
  const auto answer = [&](Json certificate_pem, Json ca_pem) {
    return Json::object({{"certificate", std::move(certificate_pem)},
                         {"ca", std::move(ca_pem)},
                         {"node", "line7"}});
  };
  const std::vector<Make> makes = {
      [&](const std::string&) { return Json("nonsense"); },
      [&](const std::string&) { return Json::object(); },
      [&](const std::string&) { return answer("x", ca.certificate_pem); },
      [&](const std::string& csr) {
        return answer(certificate("line7", csr, {"system:nodes"}), "");
      },
      [&](const std::string& csr) {
        return answer(certificate("line8", csr, {"system:nodes"}), ca.certificate_pem);
      },
      [&](const std::string& csr) {
        return answer(certificate("line7", csr, {"system:masters"}), ca.certificate_pem);
      },
      [&](const std::string&) {
        return answer(certificate("line7", *net::make_csr(key, "line7"), {"system:nodes"}),
                      ca.certificate_pem);
      },
      // A valid answer, but from another authority than in the token.
      [&](const std::string& csr) {
        return answer(certificate("line7", csr, {"system:nodes"}), ca.certificate_pem);
      },
  };
  for (std::size_t i = 0; i < makes.size(); ++i) {
    Options options;
    options.node_name = "line7";
    options.gateway = kUrl;
    options.directory = kDirectory;
    options.join_token = [&] { return Result<std::string>(cloud_.token("line7")); };
    options.connect = [&](const net::TlsClient&) {
      return net::loopback(net::inline_handler([&](const net::Request& request) {
        net::Response response;
        response.body =
            codec::write_json(makes[i]((*codec::parse_json(request.body))["csr"].as_string()));
        return response;
      }));
    };
    const auto identity = Identity::open(std::move(options), fs_, clock_, *rng_);
    ASSERT_TRUE(identity.ok()) << identity.error();
    EXPECT_FALSE((*identity)->step(ctx_).ok()) << i;
    EXPECT_FALSE((*identity)->facts()) << i;
    EXPECT_EQ(file("cert.pem"), "") << i;
  }
}

TEST_F(IdentityTest, FullDiskDelaysEnrolmentAndTokenStaysValid) {
  const std::string token = cloud_.token("line7");
  for (const char* call : {"open", "write", "sync", "rename", "sync_directory"}) {
    const auto identity = open(token);
    ASSERT_TRUE(identity.ok()) << call << identity.error();
    fs_.on_call([&](std::string_view name, const os::Path& path) -> Status {
      if (name != call || (name == "open" && path.filename() == "key.pem")) return {};
      return Error(Code::kExhausted, "no space left on device");
    });
    const Status status = (*identity)->step(ctx_);
    fs_.on_call({});
    ASSERT_FALSE(status.ok()) << call;
    EXPECT_FALSE(status.error().terminal());
  }
  const auto identity = open(token);
  ASSERT_TRUE(identity.ok()) << identity.error();
  ASSERT_TRUE((*identity)->enrol(ctx_).ok());
}

/// A gateway as a value: the key that used its only token. Each world after a crash has a separate
/// copy.
struct TokenState {
  std::string used_by;
};

net::Response issue(const gateway::Authority& authority, TokenState& state, WallTime now,
                    const net::Request& request) {
  const Json body = *codec::parse_json(request.body);
  net::Response response;
  if (request.path() == "/gateway/v1/enroll") {
    const std::string key = *net::csr_key_sha256(body["csr"].as_string());
    if (state.used_by.empty()) state.used_by = key;
    if (state.used_by != key) response.status = 403;
  }
  if (response.status == 200) {
    response.body = codec::write_json(
        Json::object({{"certificate", *authority.issue("line7", gateway::Layer::kEdge,
                                                       body["csr"].as_string(), now)},
                      {"ca", authority.ca_pem()},
                      {"node", "line7"}}));
  }
  return response;
}

/// One life of a node: enrolment and renewals, with a power cut at any call.
TEST(IdentityCrash, PowerCutLeavesWholeOrNoIdentityAndTokenStaysValid) {
  using os::testing::CrashCampaign;
  using os::testing::CrashingFileSystem;
  const auto authority = *gateway::Authority::of(*net::make_ca("edge-ca", 24h * 3650));
  const std::string token = gateway::JoinToken::make(authority.ca_sha256(), system_rng()).text();
  const Context ctx = Context::background();
  CrashCampaign campaign("agent_test --gtest_filter=IdentityCrash.*", 200);
  while (campaign.next_seed()) {
    ManualClock clock;
    const auto rng = seeded_rng(campaign.seed());
    TokenState world;
    const auto open = [&](os::FileSystem& fs, TokenState& state) {
      Options options;
      options.node_name = "line7";
      options.gateway = kUrl;
      options.directory = "/var/lib/varda/identity";
      options.join_token = [&] { return Result<std::string>(token); };
      options.connect = [&](const net::TlsClient&) {
        return net::loopback(net::inline_handler([&](const net::Request& request) {
          return issue(authority, state, clock.wall(), request);
        }));
      };
      return Identity::open(std::move(options), fs, clock, *rng);
    };
    std::uint64_t promises = 0;
    WallTime best_expiry{};  // expiry of the certificate that step() succeeded for
    CrashingFileSystem fs(campaign.seed());
    CHECK(fs.make_directories("/var", 0755).ok() && fs.sync_directory("/").ok());
    const auto check = [&](CrashingFileSystem& left, Rng&) -> std::string {
      TokenState after = world;
      auto identity = open(left, after);
      if (!identity.ok()) return "cannot open: " + identity.error().message();
      const auto facts = (*identity)->facts();
      if (best_expiry != WallTime() && !facts) return "the identity is lost";
      if (facts && facts->not_after < best_expiry) return "an older certificate came back";
      if (const Status status = (*identity)->enrol(ctx); !status.ok())
        return "cannot enrol: " + status.error().message();
      return "";
    };
    fs.on_call([&](std::string_view, const os::Path&) {
      campaign.point(fs, promises, check);
      return Status();
    });
    {
      const auto identity = open(fs, world);
      ASSERT_TRUE(identity.ok()) << identity.error();
      for (int i = 0; i < 3 && !campaign.over(); ++i) {
        ASSERT_TRUE((*identity)->step(ctx).ok());
        best_expiry = (*identity)->facts()->not_after;
        ++promises;
        clock.advance(1h);
      }
    }
    fs.on_call({});
  }
  EXPECT_EQ(campaign.failure(), "");
}

}  // namespace identity_test
}  // namespace varda::agent::identity
