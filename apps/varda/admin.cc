#include "admin.h"

#include "base/log.h"
#include "net/browser_guard.h"

namespace varda::app {
namespace {

net::Response text(int status, std::string body, std::string type = "text/plain; charset=utf-8") {
  return {
      .status = status, .headers = {{"Content-Type", std::move(type)}}, .body = std::move(body)};
}

}  // namespace

Result<std::unique_ptr<net::Server>> serve_admin(
    const std::string& listen, const metrics::Registry& registry, std::function<bool()> ready,
    std::vector<const metrics::Collector*> collectors) {
  net::Server::Options options;
  options.listen = listen;
  auto handler =
      net::inline_handler([&registry, ready = std::move(ready),
                           collectors = std::move(collectors)](const net::Request& request) {
        if (request.method != "GET" && request.method != "HEAD") return text(405, "only GET");
        const std::string_view path = request.path();
        if (path == "/healthz" || path == "/livez") return text(200, "ok");
        if (path == "/readyz") return ready() ? text(200, "ok") : text(503, "not ready");
        if (path == "/metrics")
          return text(200, registry.text() + metrics::text_of(collectors),
                      "text/plain; version=0.0.4; charset=utf-8");
        return text(404, "not found: there are /healthz, /readyz and /metrics");
      });
  TRY(auto server,
      net::Server::create(
          std::move(options),
          net::guard_from_browsers({.listen = listen, .cors_origins = {}}, std::move(handler)))
          .context("--admin " + listen));
  log::info("serving health and metrics", {{"address", server->address()}});
  return server;
}

}  // namespace varda::app
