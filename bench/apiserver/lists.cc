// Lists of 1,000 and 10,000 objects, and the effect of a big list on concurrent GETs.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "apiserver/cases.h"

namespace varda::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Cost {
  std::vector<double> wall_ms, cpu_ms;
};

void once(Wire& wire, const std::string& get, const Child& server, Cost& cost) {
  const double before = server.cpu_seconds();
  const auto begin = Clock::now();
  (void)wire.exchange(get, 200);
  cost.wall_ms.push_back(1e3 * seconds_since(begin));
  cost.cpu_ms.push_back(1e3 * (server.cpu_seconds() - before));
}

void measure_list(Report& report, const ApiServer& api, const std::filesystem::path& scratch,
                  int count) {
  const std::string get = request(
      "GET", kConfigMaps + std::string("?limit=") + std::to_string(count), api.endpoint().token);
  Wire wire(api.endpoint().port, Security::kPlain);
  const std::string body(wire.exchange(get, 200));
  std::string copy(body.size(), '\0');
  Cost measured, reference;
  std::vector<double> copies;
  std::unique_ptr<Nginx> nginx;
  std::unique_ptr<Wire> other;
  if (Nginx::installed()) {
    nginx = std::make_unique<Nginx>(scratch / ("nginx" + std::to_string(count)), body,
                                    Security::kPlain, "");
    other = std::make_unique<Wire>(nginx->endpoint().port, Security::kPlain);
  }
  for (int round = 0; round < 15; ++round) {
    once(wire, get, api.process(), measured);
    if (nginx) once(*other, request("GET", "/object", ""), nginx->process(), reference);
    const auto begin = Clock::now();
    std::memcpy(copy.data(), body.data(), body.size());
    copies.push_back(1e3 * seconds_since(begin));
  }
  const std::string name = "list of " + std::to_string(count) + " objects (" +
                           std::to_string(body.size() >> 10) + " KiB)";
  report.add({.what = name + ", to its last byte",
              .measured = median(measured.wall_ms),
              .reference = median(reference.wall_ms),
              .unit = "ms",
              .against = nginx ? "nginx, a file" : "",
              .ratio = nginx ? median(measured.wall_ms) / median(reference.wall_ms) : 0});
  report.add({.what = "  server CPU",
              .measured = median(measured.cpu_ms),
              .reference = median(copies),
              .unit = "ms",
              .against = "memcpy of its bytes",
              .ratio = median(measured.cpu_ms) / median(copies)});
}

std::vector<double> gets(const Endpoint& endpoint, const std::string& name,
                         std::chrono::milliseconds time) {
  Wire wire(endpoint.port, endpoint.security);
  const std::string get = request("GET", std::string(kConfigMaps) + "/" + name, endpoint.token);
  std::vector<double> times;
  for (const auto begin = Clock::now(); Clock::now() - begin < time;) {
    const auto sent = Clock::now();
    (void)wire.exchange(get, 200);
    times.push_back(1e3 * seconds_since(sent));
  }
  return times;
}

}  // namespace

void measure_lists(Report& report) {
  const Scratch scratch;
  const ApiServer api(scratch.path() / "api", Security::kPlain);
  fill(api.endpoint(), "object-", 10'000);
  measure_list(report, api, scratch.path(), 1'000);
  measure_list(report, api, scratch.path(), 10'000);

  const auto time = std::chrono::milliseconds(3000);
  const std::vector<double> alone = gets(api.endpoint(), "object-7", time);
  std::atomic<bool> done{false};
  std::jthread lister([&] {
    Wire wire(api.endpoint().port, Security::kPlain);
    const std::string get = request("GET", kConfigMaps, api.endpoint().token);
    while (!done) (void)wire.exchange(get, 200);
  });
  const std::vector<double> during_lists = gets(api.endpoint(), "object-7", time);
  done = true;
  report.add({.what = "GET p99 while a client lists 10,000 objects without pause",
              .measured = percentile(during_lists, 0.99),
              .reference = percentile(alone, 0.99),
              .unit = "ms",
              .against = "p99 without other clients",
              .ratio = percentile(during_lists, 0.99) / percentile(alone, 0.99)});
}

}  // namespace varda::bench
