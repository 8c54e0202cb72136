// 100,000 objects in the store: start time of the server, and memory per object.
#include <chrono>
#include <thread>

#include "apiserver/cases.h"
#include "store/store.h"

namespace varda::bench {
namespace {

constexpr int kObjects = 100'000;

// Writes objects directly to the store, as copies of one that the server stored.
void multiply(const std::filesystem::path& data_dir, int count) {
  auto opened = store::open_sqlite(data_dir / "store.db");
  if (!opened.ok()) die(opened.error().message());
  store::Store& store = **opened;
  const std::string prefix = "/registry/core/configmaps/default/";
  const auto sample = store.get(prefix + "object-000000");
  if (!sample.ok() || !*sample) die("the sample is not in the store");
  const std::string text(*(*sample)->value);
  const std::size_t name = text.find("object-000000"), uid = text.find("\"uid\":\"");
  std::vector<store::Op> ops;
  for (int i = 1; i < count; ++i) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%06d", i);
    std::string value = text;
    value.replace(name + 7, 6, digits);
    value.replace(uid + 7, 6, digits);
    ops.emplace_back(
        store::Put{.key = prefix + "object-" + digits, .value = std::move(value), .expected = 0});
    if (ops.size() < 500 && i + 1 < count) continue;
    if (auto done = store.commit(std::exchange(ops, {})); !done.ok()) die(done.error().message());
  }
}

struct State {
  double start_ms = 0;
  double rss = 0;
};

State start(const std::filesystem::path& data_dir) {
  const auto begin = std::chrono::steady_clock::now();
  ApiServer api(data_dir, Security::kTls);
  Wire wire(api.endpoint().port, api.endpoint().security);
  (void)wire.exchange(request("GET", "/api/v1/namespaces/default", api.endpoint().token), 200);
  State state;
  state.start_ms =
      1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // Then the server's controllers read everything, and their caches count too. Done when the
  // processor is idle.
  for (double before = -1, now = api.process().cpu_seconds(); now - before > 0.005;
       now = api.process().cpu_seconds()) {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  state.rss = api.process().rss_bytes();
  return state;
}

}  // namespace

void measure_objects(Report& report) {
  const Scratch scratch;
  const std::filesystem::path data_dir = scratch.path() / "api";
  {
    const ApiServer api(data_dir, Security::kTls);
    Wire wire(api.endpoint().port, api.endpoint().security);
    (void)wire.exchange(
        request("POST", kConfigMaps, api.endpoint().token, config_map("object-000000")), 201);
  }
  std::vector<double> empty_ms, empty_rss, full_ms, full_rss;
  for (int i = 0; i < 3; ++i) {
    const State state = start(data_dir);
    empty_ms.push_back(state.start_ms);
    empty_rss.push_back(state.rss);
  }
  multiply(data_dir, kObjects);
  for (int i = 0; i < 3; ++i) {
    const State state = start(data_dir);
    full_ms.push_back(state.start_ms);
    full_rss.push_back(state.rss);
  }
  const double each = (median(full_rss) - median(empty_rss)) / kObjects / 1024;
  report.add({.what = "start with 100,000 objects, to the first answer",
              .measured = median(full_ms),
              .reference = median(empty_ms),
              .unit = "ms",
              .against = "with one object",
              .ratio = 0,
              .aim = "< 2000 ms",
              .met = median(full_ms) < 2000});
  report.add({.what = "RSS of each 1 KiB object",
              .measured = each,
              .unit = "KiB",
              .aim = "≤ 4 KiB",
              .met = each <= 4});
  report.add({.what = "RSS in total",
              .measured = median(full_rss) / (1 << 20),
              .reference = median(empty_rss) / (1 << 20),
              .unit = "MiB",
              .against = "with one object"});
}

}  // namespace varda::bench
