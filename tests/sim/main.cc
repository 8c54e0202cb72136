// sim [--schedules N] [--first SEED] [--seconds S] | --replay SEED [--lines N]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/log.h"
#include "schedule.h"

namespace {

using namespace varda;
using namespace varda::sim;

struct Options {
  std::uint64_t schedules = 1000;
  std::uint64_t first = 1;
  double seconds = 0;  // set: as many as fit
  std::uint64_t lines = 400;
  bool replay = false;
};

int replay(Cluster& cluster, std::uint64_t seed, std::uint64_t lines) {
  Schedule schedule(cluster, seed, {}, Trace::kKeep);
  const Outcome outcome = schedule.run();
  const std::size_t from = outcome.trace.size() > lines ? outcome.trace.size() - lines : 0;
  if (from > 0) std::printf("... %zu lines before these\n", from);
  for (std::size_t i = from; i < outcome.trace.size(); ++i) std::printf("%s\n", outcome.trace[i].c_str());
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), outcome.failure ? outcome.failure->c_str() : "holds");
  return outcome.failure ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--schedules") options.schedules = std::strtoull(value, nullptr, 10);
    if (name == "--first") options.first = std::strtoull(value, nullptr, 10);
    if (name == "--seconds") options.seconds = std::strtod(value, nullptr);
    if (name == "--lines") options.lines = std::strtoull(value, nullptr, 10);
    if (name == "--replay") {
      options.first = std::strtoull(value, nullptr, 10);
      options.replay = true;
    }
  }
  log::configure(log::Format::kText, static_cast<log::Level>(4));
  Cluster cluster;
  if (options.replay) return replay(cluster, options.first, options.lines);

  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  std::uint64_t done = 0, steps = 0, requests = 0;
  while (options.seconds > 0 ? elapsed() < options.seconds : done < options.schedules) {
    const std::uint64_t seed = options.first + done;
    Outcome outcome;
    {
      Schedule schedule(cluster, seed, {}, Trace::kNone);
      outcome = schedule.run();
    }
    ++done;
    steps += outcome.steps;
    requests += outcome.requests;
    if (!outcome.failure) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), outcome.failure->c_str());
    Cluster fresh;
    (void)replay(fresh, seed, options.lines);
    std::printf("to see it again: %s --replay %llu\n", argv[0], static_cast<unsigned long long>(seed));
    return 1;
  }
  const double seconds = elapsed();
  std::printf("%llu schedules hold, seeds %llu to %llu: %.1f s, %.2f ms each, %.0f steps and %.0f requests each\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(options.first),
              static_cast<unsigned long long>(options.first + done - 1), seconds, 1000 * seconds / static_cast<double>(done),
              static_cast<double>(steps) / static_cast<double>(done), static_cast<double>(requests) / static_cast<double>(done));
  return 0;
}
