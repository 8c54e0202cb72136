// The server's processor time per GET of one object. The reference is nginx with the same bytes
// over the same kind of connection.
#include <chrono>
#include <thread>

#include "apiserver/cases.h"

namespace varda::bench {
namespace {

constexpr int kRounds = 21;
constexpr int kClients = 8;
constexpr int kCallsPerRound = 800;  // per client

// Microseconds of processor time per request.
double cpu_per_get(const Endpoint& endpoint, const Child& server, const std::string& path) {
  const std::string get = request("GET", path, endpoint.token);
  std::vector<std::unique_ptr<Wire>> wires;
  for (int i = 0; i < kClients; ++i) {
    wires.push_back(std::make_unique<Wire>(endpoint.port, endpoint.security));
    for (int warm = 0; warm < 20; ++warm) (void)wires.back()->exchange(get, 200);
  }
  const double before = server.cpu_seconds();
  std::vector<std::jthread> clients;
  for (auto& wire : wires) {
    clients.emplace_back([&get, wire = wire.get()] {
      for (int i = 0; i < kCallsPerRound; ++i) (void)wire->exchange(get, 200);
    });
  }
  clients.clear();
  return 1e6 * (server.cpu_seconds() - before) / (kClients * kCallsPerRound);
}

void measure(Report& report, Security security) {
  const bool tls = security == Security::kTls;
  const Scratch scratch;
  const ApiServer api(scratch.path() / "api", security);
  fill(api.endpoint(), "object-", 1);
  const std::string path = std::string(kConfigMaps) + "/object-0";
  std::string body;
  {
    Wire wire(api.endpoint().port, security);
    body = wire.exchange(request("GET", path, api.endpoint().token), 200);
  }
  const std::string name = std::string("server CPU per GET of one object (") +
                           std::to_string(body.size()) + " bytes), " + (tls ? "TLS" : "plain HTTP");
  std::vector<double> measured, file, memory;
  if (!Nginx::installed()) {
    for (int i = 0; i < kRounds; ++i)
      measured.push_back(cpu_per_get(api.endpoint(), api.process(), path));
    report.add({.what = name, .measured = median(measured), .unit = "µs"});
    if (!tls)
      report.note("nginx is not installed: `bash scripts/deps.sh bench` brings the references.");
    return;
  }
  const Nginx nginx(scratch.path() / "nginx", body, security, scratch.path() / "api" / "pki");
  for (int i = 0; i < kRounds; ++i) {
    measured.push_back(cpu_per_get(api.endpoint(), api.process(), path));
    file.push_back(cpu_per_get(nginx.endpoint(), nginx.process(), "/object"));
    memory.push_back(cpu_per_get(nginx.endpoint(), nginx.process(), "/memory"));
  }
  report.add({.what = name,
              .measured = median(measured),
              .reference = median(file),
              .unit = "µs",
              .against = "nginx, a file",
              .ratio = median(measured) / median(file),
              .aim = "≤ 1.5x",
              .met = median(measured) <= 1.5 * median(file)});
  report.add({.what = "the same",
              .measured = median(measured),
              .reference = median(memory),
              .unit = "µs",
              .against = "nginx, `return` of a literal",
              .ratio = median(measured) / median(memory)});
}

}  // namespace

void measure_gets(Report& report) {
  measure(report, Security::kPlain);
  measure(report, Security::kTls);
}

}  // namespace varda::bench
