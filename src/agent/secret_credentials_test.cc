#include "agent/secret_credentials.h"

#include <gtest/gtest.h>

#include "apiserver/identity.h"
#include "apiserver/testing/in_memory.h"
#include "codec/json.h"

namespace varda::agent {
namespace secret_credentials_test {

using artifact::Reason;
using codec::Json;

const Context kForever = Context::background();

class SecretCredentialsTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const char* keys) {
    Json secret = Json::object({{"apiVersion", "v1"},
                                {"kind", "Secret"},
                                {"metadata", Json::object({{"name", name}})},
                                {"stringData", codec::parse_json(keys).value()}});
    EXPECT_EQ(api.post("/api/v1/namespaces/default/secrets", secret).status, 201);
  }
  apiserver::InMemoryApiServer api;
};

TEST_F(SecretCredentialsTest, KeysOfASecretAreRead) {
  put("basic", R"({"username":"jane","password":"a:b\n"})");
  const kube::Client client(api.transport(), {});
  const auto basic = SecretCredentials(client).read(kForever, "default/basic");
  ASSERT_TRUE(basic.ok()) << basic.failure().error;
  EXPECT_EQ(basic->username, "jane");
  EXPECT_EQ(basic->password, "a:b");
}

TEST_F(SecretCredentialsTest, WhatIsNotThereOrHoldsNothingKnownIsMissing) {
  put("empty", R"({"user":"jane"})");
  put("half", R"({"username":"hush"})");
  const kube::Client client(api.transport(), {});
  for (const char* name : {"default/none", "default/empty", "default/half", "nonsense", "/x", "x/"}) {
    const auto outcome = SecretCredentials(client).read(kForever, name);
    ASSERT_FALSE(outcome.ok()) << name;
    EXPECT_EQ(outcome.failure().reason, Reason::kCredentialsMissing) << name;
    EXPECT_NE(outcome.failure().error.message().find(name), std::string::npos);
    EXPECT_EQ(outcome.failure().error.message().find("hush"), std::string::npos);
  }
}

TEST_F(SecretCredentialsTest, WhatThisNodeMayNotReadIsForbiddenAndTheMessageTellsTheCommand) {
  const auto rules = apiserver::node_authorizer();
  apiserver::InMemoryApiServer::Options options;
  options.server.authorizer = rules.get();
  apiserver::InMemoryApiServer strict(options);
  const auto edge = strict.transport_as({"system:node:edge0", {"system:nodes"}});
  const kube::Client client(*edge, {});
  const auto outcome = SecretCredentials(client).read(kForever, "team-a/files");
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().reason, Reason::kCredentialsForbidden);
  EXPECT_NE(outcome.failure().error.message().find("kubectl label namespace team-a edgeai.io/edge-secrets=allow"),
            std::string::npos)
      << outcome.failure().error;
}

TEST_F(SecretCredentialsTest, WithoutALinkItIsAFailedDownloadAndAStopIsAStop) {
  class NoLink final : public net::HttpClient {
   public:
    Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest) override {
      TRY_VOID(ctx.check());
      return Error(Code::kUnavailable, "connection refused");
    }
  } link;
  const kube::Client client(link, {});
  EXPECT_EQ(SecretCredentials(client).read(kForever, "default/x").failure().reason, Reason::kDownloadFailed);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(SecretCredentials(client).read(Context(stop.get_token()), "default/x").failure().reason, Reason::kCancelled);
}

}  // namespace secret_credentials_test
}  // namespace varda::agent
