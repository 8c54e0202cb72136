#include "agent/models/secret_credentials.h"

#include <gtest/gtest.h>

#include "apiserver/identity.h"
#include "apiserver/testing/in_memory.h"
#include "codec/json.h"

namespace varda::agent::models {
namespace secret_credentials_test {

using artifact::Reason;
using codec::Json;

const Context kForever = Context::background();

class SecretCredentialsTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const char* keys, const std::string& type = "Opaque",
           Json annotations = Json::object()) {
    Json secret = Json::object(
        {{"apiVersion", "v1"},
         {"kind", "Secret"},
         {"type", type},
         {"metadata", Json::object({{"name", name}, {"annotations", std::move(annotations)}})},
         {"stringData", codec::parse_json(keys).value()}});
    EXPECT_EQ(api.post("/api/v1/namespaces/default/secrets", secret).status, 201);
  }
  apiserver::InMemoryApiServer api;
};

TEST_F(SecretCredentialsTest, KeysOfASecretAreRead) {
  put("basic", R"({"username":"jane","password":"a:b\n","hosts":"files.example"})");
  const kube::Client client(api.transport(), {});
  const auto basic = SecretCredentials(client).read(kForever, "default/basic");
  ASSERT_TRUE(basic.ok()) << basic.error().error;
  EXPECT_EQ(basic->username, "jane");
  EXPECT_EQ(basic->password, "a:b");
}

TEST_F(SecretCredentialsTest, TokenSecretIsAcceptedByTypeOrAnnotations) {
  put("opaque", R"({"token":"hush"})");
  put("typed", R"({"token":"hush"})", "edgeai.io/files");
  put("annotated", R"({"token":"hush"})", "Opaque",
      Json::object({{"edgeai.io/hosts", "files.example"}, {"edgeai.io/allow-http", "true"}}));
  const kube::Client client(api.transport(), {});
  SecretCredentials reader(client);
  const auto opaque = reader.read(kForever, "default/opaque");
  ASSERT_FALSE(opaque.ok());
  EXPECT_EQ(opaque.error().reason, Reason::kCredentialsInvalid);
  EXPECT_NE(opaque.error().error.message().find("hosts"), std::string::npos)
      << opaque.error().error;
  const auto typed = reader.read(kForever, "default/typed");
  ASSERT_TRUE(typed.ok()) << typed.error().error;
  EXPECT_FALSE(typed->hosts);
  const auto annotated = reader.read(kForever, "default/annotated");
  ASSERT_TRUE(annotated.ok()) << annotated.error().error;
  EXPECT_EQ(annotated->hosts, std::vector<std::string>{"files.example"});
  EXPECT_TRUE(annotated->allow_http);
}

TEST_F(SecretCredentialsTest, AbsentOrIncompleteSecretIsMissing) {
  put("empty", R"({"user":"jane"})");
  put("half", R"({"username":"hush"})");
  const kube::Client client(api.transport(), {});
  for (const char* name :
       {"default/none", "default/empty", "default/half", "nonsense", "/x", "x/"}) {
    const auto outcome = SecretCredentials(client).read(kForever, name);
    ASSERT_FALSE(outcome.ok()) << name;
    EXPECT_EQ(outcome.error().reason, Reason::kCredentialsMissing) << name;
    EXPECT_NE(outcome.error().error.message().find(name), std::string::npos);
    EXPECT_EQ(outcome.error().error.message().find("hush"), std::string::npos);
  }
}

TEST_F(SecretCredentialsTest, ForbiddenSecretErrorNamesLabelCommand) {
  const auto rules = apiserver::node_authorizer();
  apiserver::InMemoryApiServer::Options options;
  options.server.authorizer = rules.get();
  apiserver::InMemoryApiServer strict(options);
  const auto edge = strict.transport_as({"system:node:edge0", {"system:nodes"}});
  const kube::Client client(*edge, {});
  const auto outcome = SecretCredentials(client).read(kForever, "team-a/files");
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kCredentialsForbidden);
  EXPECT_NE(outcome.error().error.message().find(
                "kubectl label namespace team-a edgeai.io/edge-secrets=allow"),
            std::string::npos)
      << outcome.error().error;
}

TEST_F(SecretCredentialsTest, LinkFailureIsDownloadFailedAndStopIsCancelled) {
  class NoLink final : public net::HttpClient {
   public:
    Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest) override {
      TRY_VOID(ctx.check());
      return Error(Code::kUnavailable, "connection refused");
    }
  } link;
  const kube::Client client(link, {});
  EXPECT_EQ(SecretCredentials(client).read(kForever, "default/x").error().reason,
            Reason::kDownloadFailed);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(SecretCredentials(client).read(Context(stop.get_token()), "default/x").error().reason,
            Reason::kCancelled);
}

}  // namespace secret_credentials_test
}  // namespace varda::agent::models
