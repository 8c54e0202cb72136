// Unauthenticated input of a gateway: join tokens, certificate requests, and bodies of enrolment
// and renewal. Also the Secrets behind the tokens.
//
// A token up to the first line break. Then the body of a request (first byte even), or the Secret
// on the API server.
#include "gateway/enrolment.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "codec/json.h"
#include "gateway/caller.h"
#include "gateway/join_secret.h"
#include "gateway/join_token.h"
#include "input.h"
#include "kube/client.h"
#include "net/certificates.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

/// Answers every read with the same text, except for remembered node keys, and accepts every write.
class Upstream final : public net::HttpClient {
 public:
  Upstream(int status, std::string_view text) : status_(status), text_(text) {}
  Result<net::ClientResponse> send(const Context&, net::ClientRequest request) override {
    class Body final : public net::BodyReader {
     public:
      explicit Body(std::string text) : text_(std::move(text)) {}
      Result<std::optional<std::string>> read() override {
        if (text_.empty()) return std::optional<std::string>();
        return std::optional(std::exchange(text_, {}));
      }

     private:
      std::string text_;
    };
    net::ClientResponse out;
    const bool writes = request.method == "PUT" || request.method == "POST";
    const bool key = request.method == "GET" && request.url.find("/node-key-") != std::string::npos;
    out.status = key ? 404 : status_;
    out.body = std::make_unique<Body>(writes ? request.body
                                      : key  ? std::string("{}")
                                             : std::string(text_));
    return out;
  }

 private:
  const int status_;
  const std::string_view text_;
};

const gateway::Authority& authority() {
  static const gateway::Authority made =
      gateway::Authority::of(net::make_ca("edge", std::chrono::hours(24)).value()).value();
  return made;
}

const std::string& csr() {
  static const std::string made = net::make_csr(net::make_key().value(), "line7").value();
  return made;
}

void check_token(std::string_view text) {
  const auto token = gateway::JoinToken::parse(text);
  if (!token.ok()) {
    if (text.size() > 20) CHECK(token.error().message().find(text) == std::string::npos);
    return;
  }
  CHECK(text.find(token->text()) != std::string_view::npos);
  CHECK(gateway::JoinToken::parse(token->text()).value().secret == token->secret);
}

void check_secret(std::string_view text) {
  const auto json = codec::parse_json(text);
  if (!json.ok()) return;
  const auto record = gateway::JoinTokenRecord::from_secret(*json);
  if (!record.ok()) return;
  const auto again = gateway::JoinTokenRecord::from_secret(record->to_secret()).value();
  CHECK(again.id == record->id && again.node == record->node &&
        again.secret_sha256 == record->secret_sha256);
  CHECK(again.expires == record->expires && again.used_by == record->used_by &&
        again.revoked == record->revoked);
  CHECK(record->node.size() <= gateway::kNodeNameBytesMax);
}

/// 200: the answer names a node; otherwise it must be a Status.
int post(gateway::Enrolment& enrolment, std::string path, std::string body, net::Peer peer) {
  net::Request request;
  request.method = "POST";
  request.target = std::move(path);
  request.body = std::move(body);
  request.peer = std::move(peer);
  const auto answer = enrolment.handle(Context(), request);
  CHECK(answer.has_value());
  const auto json = codec::parse_json(answer->body).value();
  if (answer->status == 200) {
    const auto facts = net::certificate_facts(json["certificate"].as_string()).value();
    CHECK(facts.common_name == json["node"].as_string());
    CHECK(facts.organizations ==
          std::vector<std::string>{std::string(gateway::kNodesOrganization)});
  } else {
    CHECK(answer->status >= 400 && json["kind"].as_string() == "Status");
    CHECK(json["code"].as_integer() == answer->status);
  }
  return answer->status;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = [] {
    log::configure(log::Format::kText, log::Level::kError);
    return true;
  }();
  (void)quiet;
  fuzz::Input input(data, size);
  const bool has_secret = (input.byte() & 1) != 0;
  const std::string token(input.line());
  const std::string body(input.rest());
  check_token(token);
  check_secret(body);
  (void)net::certificate_facts(body);
  if (const auto key = net::csr_key_sha256(body); key.ok()) CHECK(key->size() == 64);

  Upstream transport(has_secret ? 200 : 404,
                     has_secret ? std::string_view(body) : std::string_view("{}"));
  const kube::Client client(transport, {});
  gateway::Enrolment enrolment(client, authority(), {.failures_in_a_row = 1000});
  gateway::Enrolment of_agents(
      client, authority(),
      {.failures_in_a_row = 1000, .join_secret = meta::ObjectKey{"edge", "join"}});
  const net::Peer node{.address = "10.0.0.7:1",
                       .certificate_common_name = "line7",
                       .certificate_organizations = {"system:nodes"},
                       .certificate_not_after = system_clock().wall() + std::chrono::hours(1)};
  if (has_secret) {
    (void)post(enrolment, "/gateway/v1/enroll",
               codec::write_json(codec::Json::object({{"token", token}, {"csr", csr()}})),
               {.address = "10.0.0.7:1"});
    // A Secret alone does not prove that the node and its agent exist.
    const int status = post(
        of_agents, "/gateway/v1/enroll",
        codec::write_json(codec::Json::object({{"token", token}, {"csr", csr()}, {"node", token}})),
        {.address = "10.0.0.7:1"});
    const auto shared = gateway::find_shared_join_token(Context(), client, {"edge", "join"});
    if (shared.ok() && *shared) CHECK(status != 200);
  } else {
    // Without a Secret every enrolment is refused.
    CHECK(post(enrolment, "/gateway/v1/enroll", body, {.address = "10.0.0.7:1"}) != 200);
    CHECK(post(of_agents, "/gateway/v1/enroll", body, {.address = "10.0.0.7:1"}) != 200);
    CHECK(post(enrolment, "/gateway/v1/renew", body,
               {.address = "10.0.0.7:1", .certificate_common_name = token}) != 200);
    (void)post(enrolment, "/gateway/v1/renew", body, node);
  }
  return 0;
}
