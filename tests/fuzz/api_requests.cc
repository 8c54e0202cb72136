// Requests to the API server: the first line of the input is "METHOD TARGET CONTENT-TYPE", the rest the body.
//
// The server lives on through all inputs, so what one has stored the next one meets. It must answer every request, with JSON that
// parses where it says so; what it created it must give back.
#include <string_view>

#include "apiserver/server.h"
#include "base/check.h"
#include "codec/json.h"
#include "input.h"
#include "net/http.h"
#include "store/store.h"

namespace {

struct Fixture {
  Fixture() : store(varda::store::open_memory({.history_events_max = 1000})) {
    varda::apiserver::Server::Options options;
    options.store = store.get();
    options.controllers = false;
    options.limits.watches_max = 8;
    server = varda::apiserver::Server::create(std::move(options)).value();
    handler = server->handler();
  }
  std::unique_ptr<varda::store::Store> store;
  std::unique_ptr<varda::apiserver::Server> server;
  varda::net::Handler handler;
};

varda::net::Response ask(Fixture& fixture, varda::net::Request request) {
  std::optional<varda::net::Response> out;
  fixture.handler(std::move(request), varda::net::Responder([&](varda::net::Response response) { out = std::move(response); }));
  CHECK(out.has_value());
  CHECK(out->status >= 200 && out->status < 600);
  return std::move(*out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Begun anew now and then, so that the store does not outgrow the memory a run may have.
  static std::unique_ptr<Fixture> current;
  static int served = 0;
  if (served++ % 5000 == 0) {
    current.reset();
    current = std::make_unique<Fixture>();
  }
  Fixture& fixture = *current;
  varda::fuzz::Input input(data, size);
  varda::net::Request request;
  request.method = input.until(' ');
  request.target = input.until(' ');
  if (const auto type = input.line(); !type.empty()) request.headers.add("Content-Type", std::string(type));
  request.body = input.rest();
  const std::string method = request.method;
  const std::string path(request.path());
  const varda::net::Response response = ask(fixture, std::move(request));
  if (response.stream || response.headers.find("Content-Type").value_or("") != "application/json") return 0;
  if (method == "HEAD") return 0;
  const auto body = varda::codec::parse_json(response.body);
  CHECK(body.ok());
  if (response.status >= 400) CHECK((*body)["kind"].as_string() == "Status" && (*body)["code"].as_integer() == response.status);
  // Created, and not just for show: it is there, as it was told.
  const std::string& version = body->at("metadata/resourceVersion").as_string();
  if (method == "POST" && response.status == 201 && !version.empty() && (*body)["kind"].as_string() != "Status") {
    const std::string& name = body->at("metadata/name").as_string();
    const auto found = ask(fixture, {.method = "GET", .target = path + (path.ends_with('/') ? "" : "/") + name});
    if (found.status == 200) CHECK(varda::codec::parse_json(found.body).value().at("metadata/name").as_string() == name);
  }
  return 0;
}
