#include "gateway/enrolment.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <thread>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/job_node.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "codec/digest.h"
#include "codec/yaml.h"
#include "gateway/caller.h"
#include "gateway/internal/allowance.h"
#include "gateway/join_token.h"
#include "gateway/node_key.h"
#include "net/certificates.h"

namespace varda::gateway {
namespace enrolment_test {

using namespace std::chrono_literals;
using codec::Json;

/// A clock that moves only by pass().
class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return SteadyTime(passed_.load()); }
  WallTime wall() const override {
    return begin_ + std::chrono::duration_cast<WallTime::duration>(passed_.load());
  }
  void pass(Duration time) { passed_ = passed_.load() + time; }

 private:
  const WallTime begin_ =
      std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  std::atomic<Duration> passed_{Duration(24h)};
};

class EnrolmentTest : public ::testing::Test {
 protected:
  static apiserver::InMemoryApiServer::Options with_edge_nodes() {
    apiserver::InMemoryApiServer::Options options;
    for (const Json& crd : api::crds()) {
      if (crd.at("spec/names/kind").as_string() == "EdgeNode") options.crds.push_back(crd);
    }
    return options;
  }
  EnrolmentTest() {
    EXPECT_TRUE(make_system_namespace(ctx_, client_).ok());  // like every gateway at its start
  }

  std::string token(const std::string& node, std::chrono::seconds ttl = 24h) {
    return create_join_token(ctx_, client_,
                             {.node = node, .ttl = ttl, .ca_sha256 = authority_.ca_sha256()},
                             clock_.wall(), *rng_)
        ->text();
  }
  Result<Enrolment*> started(Enrolment::Options options = {}) {
    options.clock = &clock_;
    options.upstream_timeout = 300s;
    options.metrics = &registry_;
    enrolment_.emplace(client_, authority_, options);
    return &*enrolment_;
  }
  struct Reply {
    int status = 0;
    Json body;
    std::string text, retry_after;
  };
  Reply post(const std::string& path, std::string body, net::Peer peer) {
    if (!enrolment_) (void)started();
    net::Request request;
    request.method = "POST";
    request.target = path;
    request.body = std::move(body);
    request.peer = std::move(peer);
    const auto response = enrolment_->handle(ctx_, request);
    EXPECT_TRUE(response) << path;
    const auto parsed = codec::parse_json(response->body);
    EXPECT_TRUE(parsed.ok()) << response->body;
    const auto retry = response->headers.find("Retry-After");
    return {response->status, *parsed, response->body, std::string(retry.value_or(""))};
  }
  Reply enroll(const std::string& token, const std::string& csr,
               const std::string& address = "10.0.0.7:4000") {
    return post("/gateway/v1/enroll",
                codec::write_json(Json::object({{"token", token}, {"csr", csr}})),
                {.address = address, .certificate_common_name = ""});
  }
  Reply renew(const std::string& csr, net::Peer peer) {
    return post("/gateway/v1/renew", codec::write_json(Json::object({{"csr", csr}})),
                std::move(peer));
  }
  net::Peer node(const std::string& name, WallTime not_after) {
    return {.address = "10.0.0.7:4000",
            .certificate_common_name = name,
            .certificate_organizations = {"system:nodes"},
            .certificate_not_after = not_after,
            .certificate_expired = not_after <= clock_.wall()};
  }
  std::uint64_t count(const std::string& request, const std::string& outcome) {
    return static_cast<std::uint64_t>(registry_
                                          .counter("varda_gateway_enrolments_total",
                                                   "Certificate requests by request and outcome.",
                                                   {{"request", request}, {"outcome", outcome}})
                                          .value());
  }
  void revoke_node(const std::string& name) {
    const Json edge_node = Json::object(
        {{"apiVersion", "edgeai.io/v1alpha1"},
         {"kind", "EdgeNode"},
         {"metadata",
          Json::object(
              {{"name", name}, {"annotations", Json::object({{"edgeai.io/revoked", "true"}})}})},
         {"spec", Json::object()}});
    ASSERT_TRUE(client_.create(ctx_, api::EdgeNode::resource(), edge_node).ok());
  }

  const Context ctx_ = Context().with_timeout(300s);
  apiserver::InMemoryApiServer api_{with_edge_nodes()};
  kube::Client client_{api_.transport(), {}};
  const Authority authority_ = *Authority::of(*net::make_ca("edge-ca", 24h * 3650));
  HandClock clock_;
  std::unique_ptr<Rng> rng_ = seeded_rng(11);
  metrics::Registry registry_;
  std::optional<Enrolment> enrolment_;
  const std::string key_ = *net::make_key();
  const std::string csr_ = *net::make_csr(key_, "line7");
  const std::string other_csr_ = *net::make_csr(*net::make_key(), "line7");
};

TEST_F(EnrolmentTest, TokenAndRequestGiveNodeCertificate) {
  const Reply reply = enroll(token("line7"), csr_);
  ASSERT_EQ(reply.status, 200) << reply.text;
  EXPECT_EQ(reply.body["node"].as_string(), "line7");
  EXPECT_EQ(reply.body["ca"].as_string(), authority_.ca_pem());
  const auto facts = net::certificate_facts(reply.body["certificate"].as_string());
  ASSERT_TRUE(facts.ok()) << facts.error();
  EXPECT_EQ(facts->common_name, "line7");
  EXPECT_EQ(facts->organizations, std::vector<std::string>{"system:nodes"});
  EXPECT_EQ(facts->key_sha256, *net::key_sha256(key_));
  EXPECT_EQ(facts->not_after, clock_.wall() + kNodeCertificateValid);
}

TEST_F(EnrolmentTest, AgentOfAJobEnrolsWhileItsEdgeNodeExists) {
  const JoinToken token = JoinToken::make(authority_.ca_sha256(), *rng_);
  const std::string name = api::job_node_name("uid-of-the-run");
  const auto enrol = [&](const JoinToken& shown, const std::string& node, const std::string& csr) {
    return post(
        "/gateway/v1/enroll",
        codec::write_json(Json::object({{"token", shown.text()}, {"csr", csr}, {"node", node}})),
        {.address = "10.0.0.7:4000", .certificate_common_name = ""});
  };
  EXPECT_EQ(enrol(token, name, csr_).status, 403) << "there is no EdgeNode";
  Json annotations = Json::object();
  annotations.set(api::kJobTokenAnnotation,
                  api::JobToken{token.id, codec::Sha256::of(token.secret).hex()}.text());
  const Json edge_node =
      Json::object({{"apiVersion", "edgeai.io/v1alpha1"},
                    {"kind", "EdgeNode"},
                    {"metadata", Json::object({{"name", name}, {"annotations", annotations}})},
                    {"spec", Json::object()}});
  ASSERT_TRUE(client_.create(ctx_, api::EdgeNode::resource(), edge_node).ok());
  JoinToken wrong = token;
  wrong.secret = std::string(64, '0');
  EXPECT_EQ(enrol(wrong, name, csr_).status, 403);
  EXPECT_EQ(enrol(token, api::job_node_name("another"), csr_).status, 403);
  // Each pod of the run has another key, and no key is remembered.
  EXPECT_EQ(enrol(token, name, csr_).status, 200);
  EXPECT_EQ(enrol(token, name, other_csr_).status, 200);
  EXPECT_FALSE(*has_node_key(ctx_, client_, name));
  const net::Peer peer = node(name, clock_.wall() + 1h);
  EXPECT_EQ(renew(csr_, peer).status, 200);
  EXPECT_FALSE(*has_node_key(ctx_, client_, name));
  ASSERT_TRUE(client_.remove(ctx_, api::EdgeNode::resource(), {"", name}, {}).ok());
  EXPECT_EQ(enrol(token, name, csr_).status, 403);
  EXPECT_EQ(renew(csr_, peer).status, 403) << "the run has ended";
}

TEST_F(EnrolmentTest, NodeGetsTheLayerOfTheToken) {
  const auto issue_token = [&](const std::string& node, Layer layer) {
    const auto made = create_join_token(
        ctx_, client_, {.node = node, .layer = layer, .ca_sha256 = authority_.ca_sha256()},
        clock_.wall(), *rng_);
    EXPECT_EQ(enroll(made->text(), csr_).status, 200);
    return layer_of_node(ctx_, client_, node).value();
  };
  EXPECT_EQ(layer_of_node(ctx_, client_, "line7").value(), Layer::kEdge) << "none was ever let in";
  EXPECT_EQ(issue_token("line7", Layer::kCloud), Layer::kCloud);
  EXPECT_EQ(issue_token("line7", Layer::kDevice), Layer::kDevice) << "the same key, another token";
  EXPECT_EQ(issue_token("line8", Layer::kCloud), Layer::kCloud);
  EXPECT_TRUE(forget_node_key(ctx_, client_, "line8").ok());
  EXPECT_EQ(layer_of_node(ctx_, client_, "line8").value(), Layer::kEdge)
      << "another machine may come under the name";
}

TEST_F(EnrolmentTest, CertificateHasLayerOfTokenNotOfRequest) {
  const auto units = [](const Reply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.text;
    return net::certificate_facts(reply.body["certificate"].as_string())->organizational_units;
  };
  const auto issue_token = [&](Layer layer) {
    return create_join_token(ctx_, client_,
                             {.node = "line7", .layer = layer, .ca_sha256 = authority_.ca_sha256()},
                             clock_.wall(), *rng_)
        ->text();
  };
  std::ifstream file(std::string(VARDA_TESTDATA) + "/asks-for-layer-cloud.csr.pem");
  const std::string cloud_csr{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(units(enroll(token("line7"), csr_)), std::vector<std::string>{"edge"});
  EXPECT_EQ(units(enroll(issue_token(Layer::kDevice), cloud_csr)),
            std::vector<std::string>{"device"});
  EXPECT_EQ(units(enroll(issue_token(Layer::kCloud), csr_)), std::vector<std::string>{"cloud"});
}

TEST_F(EnrolmentTest, TokenWithNetworkIsAcceptedFromThatNetworkOnly) {
  const auto made = create_join_token(ctx_, client_,
                                      {.node = "line7",
                                       .networks = {*net::parse_ip_block("10.0.0.0/24")},
                                       .ca_sha256 = authority_.ca_sha256()},
                                      clock_.wall(), *rng_);
  const Reply refused = enroll(made->text(), csr_, "10.0.1.7:4000");
  EXPECT_EQ(refused.status, 403) << refused.text;
  EXPECT_EQ(refused.text.find("10.0.0.0"), std::string::npos) << "the answer names no network";
  EXPECT_EQ(count("enroll", "from another network"), 1u);
  EXPECT_TRUE(find_join_token(ctx_, client_, made->id).value()->record.used_by.empty())
      << "the token can still be used";
  EXPECT_EQ(enroll(made->text(), csr_, "10.0.0.7:4000").status, 200);
}

TEST_F(EnrolmentTest, RenewalNeedsCertificateOfTheRecordedLayer) {
  const std::string key = *net::csr_key_sha256(csr_);
  ASSERT_TRUE(set_node_key(ctx_, client_, "line7", key, Layer::kDevice).ok());
  net::Peer peer = node("line7", clock_.wall() + 1h);
  const struct {
    std::vector<std::string> units;
    int status;
  } cases[] = {{{}, 200},        {{"device"}, 200}, {{"edge"}, 403},
               {{"cloud"}, 403}, {{"moon"}, 403},   {{"device", "cloud"}, 403}};
  for (const auto& c : cases) {
    peer.certificate_organizational_units = c.units;
    const Reply reply = renew(csr_, peer);
    EXPECT_EQ(reply.status, c.status) << reply.text;
    if (c.status != 200) continue;
    const auto facts = net::certificate_facts(reply.body["certificate"].as_string());
    EXPECT_EQ(facts->organizational_units, std::vector<std::string>{"device"});
  }
  peer.certificate_organizational_units = {"cloud"};
  const Reply reply = renew(csr_, peer);
  EXPECT_NE(reply.text.find("is for the layer cloud, and the node is of the layer device"),
            std::string::npos)
      << reply.text;
  EXPECT_NE(reply.text.find("varda join-token --node line7"), std::string::npos) << reply.text;
  EXPECT_EQ(count("renew", "another layer"), 3u);
  EXPECT_EQ(enroll(token("line7"), csr_).status, 200) << "a new token admits the node again";
}

TEST_F(EnrolmentTest, NodeRecordWithoutLayerMeansEdge) {
  ASSERT_TRUE(set_node_key(ctx_, client_, "line7", std::string(64, 'a'), Layer::kCloud).ok());
  const meta::ObjectKey key{"varda-system", "node-key-line7"};
  const auto write = [&](Json layer) {
    return client_.patch(ctx_, secrets(), key, kube::PatchType::kMerge,
                         Json::object({{"data", Json::object({{"layer", std::move(layer)}})}}));
  };
  ASSERT_TRUE(write(nullptr).ok());
  EXPECT_EQ(layer_of_node(ctx_, client_, "line7").value(), Layer::kEdge);
  ASSERT_TRUE(write(codec::base64("moon")).ok());
  EXPECT_EQ(layer_of_node(ctx_, client_, "line7").error().code(), Code::kCorrupt);
}

TEST_F(EnrolmentTest, NameInTheRequestIsIgnored) {
  const Reply reply = enroll(token("line7"), *net::make_csr(key_, "line8"));
  ASSERT_EQ(reply.status, 200) << reply.text;
  EXPECT_EQ(net::certificate_facts(reply.body["certificate"].as_string())->common_name, "line7");
}

TEST_F(EnrolmentTest, TokenIsBoundToOneKeyWhichMayRetry) {
  const std::string text = token("line7");
  ASSERT_EQ(enroll(text, csr_).status, 200);
  clock_.pass(23h);
  EXPECT_EQ(enroll(text, csr_).status, 200);  // the first answer was lost
  EXPECT_EQ(enroll(text, other_csr_).status, 403);
  EXPECT_EQ(count("enroll", "used by another key"), 1u);
  clock_.pass(1h);
  EXPECT_EQ(enroll(text, csr_).status, 403);
  EXPECT_EQ(count("enroll", "expired"), 1u);
}

TEST_F(EnrolmentTest, RefusalHidesItsReason) {
  const std::string good = token("line7"), used = token("line7"), expired = token("line7", 1h),
                    revoked = token("line7");
  ASSERT_EQ(enroll(used, other_csr_).status, 200);
  ASSERT_TRUE(revoke_join_token(ctx_, client_, JoinToken::parse(revoked)->id).ok());
  JoinToken wrong = *JoinToken::parse(good), unknown = *JoinToken::parse(good);
  wrong.secret = std::string(64, '0');
  unknown.id = std::string(12, '0');
  revoke_node("stolen");
  const std::string stolen = token("stolen");
  clock_.pass(2h);
  const std::pair<std::string, std::string> cases[] = {
      {used, "used by another key"},  {expired, "expired"},        {revoked, "revoked"},
      {wrong.text(), "wrong secret"}, {unknown.text(), "unknown"}, {"x", "malformed"},
      {stolen, "node revoked"},
  };
  std::string first_reply;
  for (const auto& [text, outcome] : cases) {
    const Reply reply = enroll(text, csr_);
    EXPECT_EQ(reply.status, 403) << outcome;
    EXPECT_EQ(count("enroll", outcome), 1u) << outcome;
    if (first_reply.empty()) first_reply = reply.text;
    EXPECT_EQ(reply.text, first_reply) << outcome;
  }
  EXPECT_EQ(enroll(good, csr_).status, 200);  // the failures did not use it up
}

TEST_F(EnrolmentTest, MalformedRequestsAreRejectedAndKeepTheToken) {
  const std::string good = token("line7");
  const auto body = [](Json token, Json csr) {
    return codec::write_json(Json::object({{"token", std::move(token)}, {"csr", std::move(csr)}}));
  };
  std::string altered = csr_;
  altered[altered.size() / 2] = altered[altered.size() / 2] == 'A' ? 'B' : 'A';
  const std::pair<std::string, int> cases[] = {
      {"", 400},
      {"nonsense", 400},
      {"[]", 400},
      {"{}", 400},
      {std::string(20, '['), 400},
      {body(good, nullptr), 400},
      {body(nullptr, csr_), 400},
      {body(7, csr_), 400},
      {body(good, "nonsense"), 400},
      {body("x", "nonsense"), 400},
      {body(good, altered), 400},
      {body(good, authority_.ca_pem()), 400},
      {body(good, std::string(20'000, 'x')), 400},
      {body(good, std::string(40'000, 'x')), 413},
  };
  (void)started({.failures_in_a_row = 100});
  for (const auto& [text, status] : cases) {
    EXPECT_EQ(
        post("/gateway/v1/enroll", text, {.address = "10.0.0.7:1", .certificate_common_name = ""})
            .status,
        status)
        << text.substr(0, 200);
  }
  net::Request get;
  get.target = "/gateway/v1/enroll";
  EXPECT_EQ(enrolment_->handle(ctx_, get)->status, 405);
  get.target = "/gateway/v1/other";
  EXPECT_FALSE(enrolment_->handle(ctx_, get));
  EXPECT_FALSE(Enrolment::is_for(get));
  EXPECT_EQ(enroll(good, csr_).status, 200);
}

TEST_F(EnrolmentTest, SecretOfAnotherTypeIsNoToken) {
  const JoinToken forged = JoinToken::make(authority_.ca_sha256(), *rng_);
  ASSERT_TRUE(make_system_namespace(ctx_, client_).ok());
  JoinTokenRecord record;
  record.id = forged.id;
  record.node = "line7";
  record.secret_sha256 = codec::Sha256::of(forged.secret).hex();
  record.expires = clock_.wall() + 1h;
  Json secret = record.to_secret();
  secret.set("type", "Opaque");
  ASSERT_TRUE(client_.create(ctx_, secrets(), secret).ok());
  EXPECT_EQ(enroll(forged.text(), csr_).status, 403);
  EXPECT_EQ(count("enroll", "unreadable"), 1u);
}

TEST_F(EnrolmentTest, ConcurrentKeysAtTwoGatewaysAdmitOne) {
  for (int round = 0; round < 4; ++round) {
    const std::string text = token("line7");
    (void)started({.failures_in_a_row = 100});
    Enrolment other(client_, authority_,
                    {.upstream_timeout = 300s, .failures_in_a_row = 100, .clock = &clock_});
    std::vector<std::string> csrs;
    for (int i = 0; i < 8; ++i) csrs.push_back(*net::make_csr(*net::make_key(), "line7"));
    std::vector<int> status(csrs.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < csrs.size(); ++i) {
        threads.emplace_back([&, i] {
          net::Request request;
          request.method = "POST";
          request.target = "/gateway/v1/enroll";
          request.body = codec::write_json(Json::object({{"token", text}, {"csr", csrs[i]}}));
          request.peer.address = "10.0.0.7:1";
          status[i] = (i % 2 == 0 ? *enrolment_ : other).handle(ctx_, request)->status;
        });
      }
    }
    EXPECT_EQ(std::count(status.begin(), status.end(), 200), 1);
    EXPECT_EQ(std::count(status.begin(), status.end(), 403), 7);
    // The key that was admitted may ask again.
    const auto winner =
        static_cast<std::size_t>(std::find(status.begin(), status.end(), 200) - status.begin());
    EXPECT_EQ(enroll(text, csrs[winner]).status, 200);
  }
}

TEST_F(EnrolmentTest, RenewalIsAllowedUntilThirtyDaysAfterExpiry) {
  const struct {
    Duration ended_ago;
    int status;
  } cases[] = {{-24h, 200}, {0h, 200}, {24h * 29, 200}, {24h * 30, 403}, {24h * 400, 403}};
  for (const auto& c : cases) {
    const Reply reply = renew(
        csr_,
        node("line7", clock_.wall() - std::chrono::duration_cast<WallTime::duration>(c.ended_ago)));
    EXPECT_EQ(reply.status, c.status) << reply.text;
    if (c.status == 200) {
      const auto facts = net::certificate_facts(reply.body["certificate"].as_string());
      EXPECT_EQ(facts->common_name, "line7");
      EXPECT_EQ(facts->not_after, clock_.wall() + kNodeCertificateValid);
      EXPECT_EQ(reply.body["ca"].as_string(), authority_.ca_pem());
    }
  }
  EXPECT_EQ(renew(csr_, {.address = "10.0.0.7:1", .certificate_common_name = ""}).status, 401);
  EXPECT_EQ(renew("nonsense", node("line7", clock_.wall() + 1h)).status, 400);
}

TEST_F(EnrolmentTest, CertificatesOfOtherKindsCannotRenew) {
  const WallTime later = clock_.wall() + 1h;
  for (const std::vector<std::string>& organizations :
       std::vector<std::vector<std::string>>{{},
                                             {"system:masters"},
                                             {"system:masters", "system:nodes"},
                                             {"system:nodes", "system:masters"},
                                             {"system:nodes "}}) {
    net::Peer peer = node("line7", later);
    peer.certificate_organizations = organizations;
    EXPECT_EQ(renew(csr_, peer).status, 403);
    EXPECT_FALSE(node_of(peer, clock_.wall()).ok());
  }
  for (const std::string& name :
       {std::string(), std::string("system:node:line7"), std::string("Line7"), std::string("a/b"),
        std::string("line7\0x", 7), std::string(65, 'n')}) {
    EXPECT_NE(renew(csr_, node(name, later)).status, 200) << name;
    EXPECT_FALSE(node_of(node(name, later), clock_.wall()).ok()) << name;
  }
  EXPECT_EQ(node_of(node("line7", later), clock_.wall())->node, "line7");
}

TEST_F(EnrolmentTest, RevokedNodeIsRefusedUntilAnnotationIsRemoved) {
  revoke_node("line7");
  EXPECT_EQ(renew(csr_, node("line7", clock_.wall() + 1h)).status, 403);
  EXPECT_EQ(count("renew", "node revoked"), 1u);
  EXPECT_EQ(renew(csr_, node("line8", clock_.wall() + 1h)).status, 200);
  const Json patch = Json::object(
      {{"metadata",
        Json::object({{"annotations", Json::object({{"edgeai.io/revoked", nullptr}})}})}});
  ASSERT_TRUE(
      client_.patch(ctx_, api::EdgeNode::resource(), {"", "line7"}, kube::PatchType::kMerge, patch)
          .ok());
  EXPECT_EQ(renew(csr_, node("line7", clock_.wall() + 1h)).status, 200);
}

TEST_F(EnrolmentTest, UnavailableUpstreamGives503AndCountsNoFailure) {
  const auto broken = net::loopback(net::inline_handler([](const net::Request&) {
    net::Response response;
    response.status = 503;
    return response;
  }));
  const kube::Client away(*broken, {});
  Enrolment enrolment(away, authority_, {.failures_in_a_row = 1, .clock = &clock_});
  for (int i = 0; i < 3; ++i) {  // an unreachable upstream is not a failure
    net::Request request;
    request.method = "POST";
    request.target = "/gateway/v1/enroll";
    request.body = codec::write_json(Json::object(
        {{"token", JoinToken::make(authority_.ca_sha256(), *rng_).text()}, {"csr", csr_}}));
    request.peer.address = "10.0.0.7:1";
    const auto response = enrolment.handle(ctx_, request);
    EXPECT_EQ(response->status, 503);
    EXPECT_TRUE(response->headers.find("Retry-After"));
    request.target = "/gateway/v1/renew";
    request.peer = node("line7", clock_.wall() + 1h);
    EXPECT_EQ(enrolment.handle(ctx_, request)->status, 503);
  }
}

TEST_F(EnrolmentTest, FailedTokenIsThrottledWithoutAffectingOthers) {
  const std::string good = token("line7"), used = token("line7");
  ASSERT_EQ(enroll(used, other_csr_).status, 200);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(enroll(used, csr_, "10.0.0.9:" + std::to_string(1000 + i)).status, 403);
  const Reply limited = enroll(used, csr_, "10.0.0.9:5");
  EXPECT_EQ(limited.status, 429);
  EXPECT_EQ(limited.retry_after, "6");
  // The rightful owner of the token at another address does not wait.
  EXPECT_EQ(enroll(used, other_csr_, "10.0.0.8:5").status, 200);
  EXPECT_EQ(enroll(good, csr_, "10.0.0.9:5").status, 200);
  // A node with a certificate has its own limit.
  net::Peer peer = node("line7", clock_.wall() + 1h);
  peer.address = "10.0.0.9:6";
  EXPECT_EQ(renew(csr_, peer).status, 200);
  clock_.pass(6s);
  EXPECT_EQ(enroll(used, csr_, "10.0.0.9:5").status, 403);
  EXPECT_EQ(enroll(used, csr_, "10.0.0.9:5").status, 429);
}

TEST_F(EnrolmentTest, RepeatedBadTokenDoesNotBlockGoodTokens) {
  JoinToken old = JoinToken::make(authority_.ca_sha256(), *rng_);
  int looked_at = 0;
  for (int i = 0; i < 1200; ++i) {
    looked_at += enroll(old.text(), csr_).status == 403 ? 1 : 0;
    clock_.pass(500ms);
    if (i % 100 == 99) {
      EXPECT_EQ(enroll(token("line" + std::to_string(i)), csr_).status, 200) << i;
    }
  }
  EXPECT_NEAR(looked_at, 10 + 100, 2);  // failures examined in ten minutes
}

TEST_F(EnrolmentTest, InventedTokensAreThrottledPerAddress) {
  const std::string good = token("line7");
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(
        enroll(JoinToken::make(authority_.ca_sha256(), *rng_).text(), csr_, "10.0.0.9:5").status,
        403)
        << i;
  }
  EXPECT_EQ(
      enroll(JoinToken::make(authority_.ca_sha256(), *rng_).text(), csr_, "10.0.0.9:5").status,
      429);
  EXPECT_EQ(enroll(good, csr_, "10.0.0.9:5").retry_after, "1");
  EXPECT_EQ(enroll(good, csr_, "10.0.0.8:5").status, 200);
  clock_.pass(600ms);
  EXPECT_EQ(enroll(good, csr_, "10.0.0.9:5").status, 200);
  // All texts that are no token share one limit.
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(enroll("x" + std::to_string(i), csr_, "10.0.0.6:5").status, 403);
  EXPECT_EQ(enroll("y", csr_, "10.0.0.6:5").status, 429);
}

TEST_F(EnrolmentTest, FormerKeyDoesNotThrottleCurrentKey) {
  ASSERT_EQ(enroll(token("line7"), csr_).status, 200);
  net::Peer former = node("line7", clock_.wall() + 1h);
  former.address = "192.0.2.9:1";
  for (int i = 0; i < 10; ++i) EXPECT_EQ(renew(other_csr_, former).status, 403);
  EXPECT_EQ(renew(other_csr_, former).status, 429);
  EXPECT_EQ(count("renew", "another key"), 10u);
  EXPECT_EQ(renew(csr_, node("line7", clock_.wall() + 1h)).status, 200);
}

TEST_F(EnrolmentTest, EnrolmentDeletesExpiredTokens) {
  const std::string old = token("line7", 1h);
  clock_.pass(48h);
  ASSERT_EQ(enroll(token("line8"), csr_).status, 200);
  const auto left = *list_join_tokens(ctx_, client_);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].node, "line8");
}

TEST(Allowance, MemoryIsBoundedAndWorstCallerIsRemembered) {
  internal::Allowance limit({.burst = 2, .period = 1000ms, .callers_max = 100});
  const SteadyTime now{};
  for (int i = 0; i < 5; ++i) limit.spend("worst", now);
  for (int i = 0; i < 10'000; ++i)
    limit.spend("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250), now);
  EXPECT_LE(limit.size(), 100u);
  EXPECT_EQ(limit.wait("worst", now), 4000ms);
  EXPECT_EQ(limit.wait("worst", now + 4s), 0ms);
  EXPECT_EQ(limit.wait("never seen", now), 0ms);
}

TEST(Allowance, AddressKeyIsIpv4AddressOrIpv6Prefix) {
  using internal::address_of;
  EXPECT_EQ(address_of("10.0.0.7:41234"), "10.0.0.7");
  EXPECT_EQ(address_of("[::ffff:10.0.0.7]:1"), "10.0.0.7");
  EXPECT_EQ(address_of("[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1:2::/64");
  EXPECT_EQ(address_of("[2001:db8:1:2::9]:2"), "2001:db8:1:2::/64");
  EXPECT_NE(address_of("[2001:db8:1:3::9]:2"), "2001:db8:1:2::/64");
  EXPECT_EQ(address_of("loopback"), "loopback");
}

}  // namespace enrolment_test
}  // namespace varda::gateway
