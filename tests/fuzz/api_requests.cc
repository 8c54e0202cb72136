// Requests to the API server: the first line of the input is "METHOD TARGET CONTENT-TYPE", the rest the body.
//
// The server lives on through all inputs, so what one has stored the next one meets. It must answer every request, and never with
// 500 for a body it stored itself.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apiserver/server.h"
#include "base/check.h"
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Fixture fixture;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto word = [&](char end) {
    const std::size_t at = std::min(text.find(end), text.size());
    const std::string_view out = text.substr(0, at);
    text.remove_prefix(std::min(at + 1, text.size()));
    return std::string(out);
  };
  varda::net::Request request;
  request.method = word(' ');
  request.target = word(' ');
  const std::string type = word('\n');
  if (!type.empty()) request.headers.add("Content-Type", type);
  request.body = text;
  bool answered = false;
  fixture.handler(std::move(request), varda::net::Responder([&](varda::net::Response response) {
                    answered = true;
                    CHECK(response.status >= 200 && response.status < 600);
                  }));
  CHECK(answered);
  return 0;
}
