// Requests to the API server. The first line of the input is "METHOD TARGET CONTENT-TYPE" or
// "METHOD TARGET CONTENT-TYPE|ACCEPT", the rest is the body.
//
// The server lives through many inputs, so stored objects meet later inputs. It must answer every
// request, with valid JSON, YAML or protobuf as labelled. It must return created objects and accept
// its own continue tokens.
#include <string_view>

#include "apiserver/server.h"
#include "base/check.h"
#include "codec/json.h"
#include "codec/yaml.h"
#include "input.h"
#include "net/http.h"
#include "net/url.h"
#include "store/store.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

struct Fixture {
  Fixture() : store(varda::store::open_memory({.history_events_max = 1000})) {
    apiserver::Server::Options options;
    options.store = store.get();
    options.controllers = false;
    options.limits.watches_max = 8;
    server = apiserver::Server::create(std::move(options)).value();
    handler = server->handler();
  }
  std::unique_ptr<varda::store::Store> store;
  std::unique_ptr<apiserver::Server> server;
  net::Handler handler;
};

net::Response send(Fixture& fixture, net::Request request) {
  std::optional<net::Response> out;
  fixture.handler(std::move(request),
                  net::Responder([&](net::Response response) { out = std::move(response); }));
  CHECK(out.has_value());
  CHECK(out->status >= 200 && out->status < 600);
  return std::move(*out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Restarted from time to time, so that the store stays within the memory limit of a run.
  static std::unique_ptr<Fixture> current;
  static int served = 0;
  if (served++ % 5000 == 0) {
    current.reset();
    current = std::make_unique<Fixture>();
  }
  Fixture& fixture = *current;
  fuzz::Input input(data, size);
  net::Request request;
  request.method = input.until(' ');
  request.target = input.until(' ');
  const std::string_view types = input.line();
  const std::size_t bar = types.find('|');
  if (const auto type = types.substr(0, bar); !type.empty())
    request.headers.add("Content-Type", std::string(type));
  if (bar != std::string_view::npos)
    request.headers.add("Accept", std::string(types.substr(bar + 1)));
  request.body = input.rest();
  const std::string method = request.method;
  const std::string path(request.path());
  const net::Query query = net::Query::parse(request.query());
  const net::Headers headers = request.headers;
  const net::Response response = send(fixture, std::move(request));
  if (response.stream || method == "HEAD") return 0;
  const std::string type(response.headers.find("Content-Type").value_or(""));
  if (type == "application/vnd.kubernetes.protobuf")
    CHECK(response.body.starts_with(std::string("k8s\0", 4)));
  if (type == "application/yaml") CHECK(codec::parse_yaml(response.body).ok());
  if (!type.starts_with("application/json")) return 0;
  const auto body = codec::parse_json(response.body);
  CHECK(body.ok());
  if (response.status >= 400)
    CHECK((*body)["kind"].as_string() == "Status" &&
          (*body)["code"].as_integer() == response.status);
  if (const std::string& token = body->at("metadata/continue").as_string();
      method == "GET" && !token.empty() &&
      ((*body)["items"].is_array() || (*body)["rows"].is_array())) {
    const auto next =
        send(fixture, {.method = "GET",
                       .target = path + "?limit=2&continue=" + net::percent_encode(token),
                       .headers = headers});
    CHECK(next.status == 200);
    if (next.headers.find("Content-Type") == type)
      CHECK(codec::parse_json(next.body).value()["kind"].as_string() ==
            (*body)["kind"].as_string());
  }
  // A real creation: the object must exist under the reported name.
  const std::string& version = body->at("metadata/resourceVersion").as_string();
  const std::string last = path.substr(path.rfind('/') + 1);
  const bool for_show = query.find("dryRun").has_value() || last == "binding" ||
                        last == "eviction" || last == "token";
  if (!for_show && method == "POST" && response.status == 201 && !version.empty() &&
      (*body)["kind"].as_string() != "Status") {
    const std::string& name = body->at("metadata/name").as_string();
    const auto found =
        send(fixture, {.method = "GET", .target = path + (path.ends_with('/') ? "" : "/") + name});
    CHECK(found.status == 200);
    CHECK(codec::parse_json(found.body).value().at("metadata/name").as_string() == name);
  }
  return 0;
}
