// The agent's identity against the real enrolment over the in-memory API server, with TLS sockets.
#include <gtest/gtest.h>
#include <thread>

#include "agent/identity/identity.h"
#include "agent/testing/cloud.h"
#include "artifact/testing/manual_clock.h"
#include "gateway/authority.h"
#include "net/client.h"
#include "net/server.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::identity {
namespace tls_test {

using namespace std::chrono_literals;
using artifact::testing::ManualClock;
using codec::Json;
using os::testing::MemoryFileSystem;
using testing::Cloud;

constexpr const char* kDirectory = "/data/identity";

/// Behaviour that only TLS shows.
class IdentityOverTls : public ::testing::Test {
 protected:
  IdentityOverTls() {
    net::Server::Options options;
    options.tls = *cloud_.authority().server({});
    server_ = serve(options);
  }
  std::unique_ptr<net::Server> serve(const net::Server::Options& options) {
    return serve(options, cloud_, clock_);
  }
  std::unique_ptr<net::Server> serve(const net::Server::Options& options, Cloud& cloud,
                                     const Clock& clock) {
    return *net::Server::create(options, pool_.wrap([&](const net::Request& request) {
      if (auto answer = cloud.enrolment().handle(Context::background(), request))
        return std::move(*answer);
      net::Response response;
      const auto node = gateway::node_of(request.peer, clock.wall());
      if (!node.ok()) response.status = node.error().code() == Code::kUnauthenticated ? 401 : 403;
      response.body = node.ok() ? node->node : node.error().message();
      return response;
    }));
  }
  std::unique_ptr<Identity> open(const net::Server& server, std::string token,
                                 const Clock& clock = system_clock()) {
    Options options;
    options.node_name = "line7";
    options.gateway = "https://127.0.0.1:" + std::to_string(server.port());
    options.directory = kDirectory;
    options.request_timeout = 300s;
    options.backoff_first = 1ms;
    options.backoff_max = 2ms;
    if (!token.empty()) options.join_token = [token] { return Result<std::string>(token); };
    return *Identity::open(std::move(options), fs_, clock, system_rng());
  }
  std::string response_of(const net::Server& server, net::HttpClient& client) {
    auto answer = client.call(
        ctx_, {.url = "https://127.0.0.1:" + std::to_string(server.port()) + "/whoami"});
    if (!answer.ok()) return answer.error().message();
    return std::to_string(answer->status) + " " + answer->body;
  }

  const Context ctx_ = Context().with_timeout(300s);
  const Clock& clock_ = system_clock();
  MemoryFileSystem fs_;
  Cloud cloud_{clock_};
  net::HandlerPool pool_{{.threads = 2}};
  std::unique_ptr<net::Server> server_;
};

TEST_F(IdentityOverTls, NodeEnrolsByPinnedDigestAndAuthenticatesByCertificate) {
  const auto identity = open(*server_, cloud_.token("line7"));
  ASSERT_TRUE(identity->enrol(ctx_).ok());
  EXPECT_EQ(response_of(*server_, identity->transport()), "200 line7");
  const WallTime before = identity->facts()->not_after;
  ASSERT_TRUE(identity->step(ctx_).ok());
  EXPECT_GE(identity->facts()->not_after, before);
  EXPECT_EQ(response_of(*server_, identity->transport()), "200 line7");
  EXPECT_EQ(response_of(*server_, open(*server_, "")->transport()), "200 line7");
}

TEST_F(IdentityOverTls, TokenIsNotSentToServerOfAnotherCa) {
  const auto other = *gateway::Authority::of(*net::make_ca("edge-ca", 24h));
  net::Server::Options options;
  options.tls = *other.server({});
  std::atomic<int> received{0};
  const auto middle = *net::Server::create(options, net::inline_handler([&](const net::Request&) {
                                             ++received;
                                             return net::Response();
                                           }));
  const auto identity = open(*middle, cloud_.token("line7"));
  for (int i = 0; i < 3; ++i) {
    const Status status = identity->step(ctx_);
    ASSERT_FALSE(status.ok());
    EXPECT_FALSE(status.error().terminal());  // it may be a captive portal
    EXPECT_NE(status.error().message().find("certificate"), std::string::npos) << status.error();
  }
  EXPECT_EQ(received, 0);
  // An enrolled node is not misled, either.
  ASSERT_TRUE(open(*server_, cloud_.token("line7"))->enrol(ctx_).ok());
  const auto enrolled = open(*middle, "");
  EXPECT_FALSE(enrolled->step(ctx_).ok());
  EXPECT_EQ(received, 0);
}

TEST_F(IdentityOverTls, OnlyNodeCertificatesOfTheCaAreAccepted) {
  const std::string& ca = cloud_.authority().ca_pem();
  const auto as = [&](const net::KeyPair& pair) {
    const auto client = net::make_client({.tls = {.ca_pem = ca,
                                                  .certificate_pem = pair.certificate_pem,
                                                  .key_pem = pair.key_pem,
                                                  .server_name = ""}});
    return response_of(*server_, *client);
  };
  // Signed by the same CA, which an administrator may use for more than the edge.
  const net::KeyPair edge_ca = *net::make_ca("edge-ca", 24h);
  const auto authority = *gateway::Authority::of(edge_ca);
  net::Server::Options options;
  options.tls = *authority.server({});
  const auto server = serve(options);
  const auto status_for = [&](const std::string& name, std::vector<std::string> organizations) {
    net::CertificateRequest request;
    request.common_name = name;
    request.organizations = std::move(organizations);
    const net::KeyPair pair = *net::make_certificate(edge_ca, request);
    const auto client = net::make_client({.tls = {.ca_pem = edge_ca.certificate_pem,
                                                  .certificate_pem = pair.certificate_pem,
                                                  .key_pem = pair.key_pem,
                                                  .server_name = ""}});
    return response_of(*server, *client).substr(0, 4);
  };
  EXPECT_EQ(status_for("line7", {"system:nodes"}), "200 ");
  EXPECT_EQ(status_for("line7", {"system:masters"}), "403 ");
  EXPECT_EQ(status_for("line7", {"system:nodes", "system:masters"}), "403 ");
  EXPECT_EQ(status_for("system:admin", {"system:nodes"}), "403 ");
  EXPECT_EQ(status_for("line7", {}), "403 ");
  // Another CA with the same name: the connection fails.
  net::CertificateRequest request;
  request.common_name = "line7";
  request.organizations = {"system:nodes"};
  EXPECT_EQ(as(*net::make_certificate(edge_ca, request)).find("200"), std::string::npos);
}

TEST_F(IdentityOverTls, NodeWithClockOneYearBehindEnrolsAndAuthenticates) {
  // The node's certificate starts a year after this machine's clock, as if the node were a year
  // behind.
  ManualClock cloud_clock;
  cloud_clock.set_wall(std::chrono::floor<std::chrono::seconds>(clock_.wall() + 24h * 365));
  Cloud cloud(cloud_clock);
  net::Server::Options options;
  options.tls = *cloud.authority().server({});
  const auto server = serve(options, cloud, cloud_clock);
  const auto identity = open(*server, cloud.token("line7"));
  const Status status = identity->enrol(ctx_);
  ASSERT_TRUE(status.ok()) << status.error();
  EXPECT_GT(identity->facts()->not_before, clock_.wall() + 24h * 364);
  EXPECT_EQ(response_of(*server, identity->transport()), "200 line7");
}

TEST_F(IdentityOverTls, RenewalKeepsAnOpenWatch) {
  // A watch that was opened with the first certificate stays open after the renewal.
  struct Pipe {
    Mutex mutex;
    std::string bytes GUARDED_BY(mutex);
    std::function<void()> wake GUARDED_BY(mutex);
    void put(const std::string& more) {
      std::function<void()> call;
      {
        const MutexLock lock(mutex);
        bytes += more;
        call = wake;
      }
      if (call) call();
    }
  };
  struct PipeStream final : net::BodyStream {
    explicit PipeStream(std::shared_ptr<Pipe> p) : pipe(std::move(p)) {}
    ~PipeStream() override {
      const MutexLock lock(pipe->mutex);
      pipe->wake = nullptr;
    }
    std::optional<std::string> read() override {
      const MutexLock lock(pipe->mutex);
      return std::exchange(pipe->bytes, {});
    }
    void on_ready(std::function<void()> wake) override {
      const MutexLock lock(pipe->mutex);
      pipe->wake = std::move(wake);
    }
    std::shared_ptr<Pipe> pipe;
  };
  const auto pipe = std::make_shared<Pipe>();
  std::atomic<bool> refuse{false};
  net::Server::Options options;
  options.tls = *cloud_.authority().server({});
  const auto server = *net::Server::create(options, pool_.wrap([&](const net::Request& request) {
    if (auto answer = cloud_.enrolment().handle(Context::background(), request)) {
      refuse = false;
      return std::move(*answer);
    }
    net::Response response;
    if (request.path() == "/watch") response.stream = std::make_unique<PipeStream>(pipe);
    if (request.path() == "/whoami" && refuse)
      response.status = 401;  // as if the certificate had expired
    return response;
  }));
  ASSERT_TRUE(open(*server, cloud_.token("line7"))->enrol(ctx_).ok());
  const auto identity = open(*server, "");
  const std::string first = identity->facts()->sha256;
  auto watch = identity->transport().send(
      ctx_, {.url = "https://127.0.0.1:" + std::to_string(server->port()) + "/watch"});
  ASSERT_TRUE(watch.ok()) << watch.error();
  pipe->put("one");
  EXPECT_EQ(watch->body->read()->value(), "one");

  std::jthread renewal([&](const std::stop_token& stop) { identity->run(Context(stop)); });
  refuse = true;
  EXPECT_EQ(response_of(*server, identity->transport()), "401 ");
  while (identity->facts()->sha256 == first) ASSERT_TRUE(ctx_.sleep_for(1ms).ok());
  pipe->put("two");
  EXPECT_EQ(watch->body->read()->value(), "two");
  EXPECT_EQ(response_of(*server, identity->transport()), "200 ");
  renewal.request_stop();
  renewal.join();
  watch->body.reset();
  server->stop(0ms);
}

}  // namespace tls_test
}  // namespace varda::agent::identity
