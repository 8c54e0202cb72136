// sim [--schedules N | --short N] [--first SEED | --seed-from TEXT] [--seconds S] [--failures N]
//     | --replay SEED[:INDEX] [--lines N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/log.h"
#include "schedule.h"

namespace {

using namespace varda;
using namespace varda::sim;

struct Options {
  std::uint64_t schedules = 1000;
  std::uint64_t first = 1;
  double seconds = 0;  // set: run as many as fit
  std::uint64_t lines = 400;
  bool brief = false;  // short schedules; `first` is a world
  std::string replay;
  std::uint64_t failures = 1;  // stop after this many
};

/// The first seed of a campaign that is named by a text, such as a commit. FNV-1a, in a readable
/// range.
std::uint64_t seed_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return 1'000'000 + hash % 1'000'000'000'000ULL;
}

/// Name of a schedule: a full one by its seed, a short one by its world and index.
std::string name_of(std::uint64_t seed, std::optional<std::uint64_t> index) {
  return std::to_string(seed) + (index ? ":" + std::to_string(*index) : "");
}

void print_outcome(const std::string& name, const Outcome& outcome, std::uint64_t lines) {
  const std::size_t from = outcome.trace.size() > lines ? outcome.trace.size() - lines : 0;
  if (from > 0) std::printf("... %zu lines before these\n", from);
  for (std::size_t i = from; i < outcome.trace.size(); ++i)
    std::printf("%s\n", outcome.trace[i].c_str());
  std::printf("%s: %s\n", name.c_str(), outcome.failure ? outcome.failure->c_str() : "holds");
}

int replay(const std::string& name, std::uint64_t lines) {
  Cluster cluster;
  char* end = nullptr;
  const std::uint64_t seed = std::strtoull(name.c_str(), &end, 10);
  Outcome outcome;
  if (*end != ':') {
    outcome = run_full(cluster, seed, {}, Trace::kKeep);
  } else {
    // Schedules start with the result of earlier ones in the same world.
    Batch batch(cluster, seed, {}, Trace::kKeep);
    outcome = batch.begin();
    const std::uint64_t index = std::strtoull(end + 1, nullptr, 10);
    for (std::uint64_t i = 0; i < index && !outcome.failure; ++i) outcome = batch.next();
  }
  print_outcome(name, outcome, lines);
  return outcome.failure ? 1 : 0;
}

class Campaign {
 public:
  Campaign(Options options, const char* program)
      : options_(std::move(options)), program_(program) {}

  int run() {
    std::printf("%s schedules, %s from %llu\n", options_.brief ? "short" : "full",
                options_.brief ? "worlds" : "seeds", number(options_.first));
    std::fflush(stdout);
    while (more() && failures_ < options_.failures) (void)(options_.brief ? world() : full());
    const double seconds = elapsed(),
                 count = static_cast<double>(std::max<std::uint64_t>(done_, 1));
    std::printf(
        "%llu %s schedules, %llu failed, %s %llu to %llu: %.1f s, %.2f ms each, %.0f steps and "
        "%.0f requests each, %zu different; "
        "fingerprint %016llx\n",
        number(done_), options_.brief ? "short" : "full", number(failures_),
        options_.brief ? "worlds" : "seeds", number(options_.first), number(next_ - 1), seconds,
        1000 * seconds / count, static_cast<double>(steps_) / count,
        static_cast<double>(requests_) / count, orders_.size(), number(fingerprint_));
    return failures_ > 0 ? 1 : 0;
  }

 private:
  static unsigned long long number(std::uint64_t value) { return value; }
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  bool more() const {
    return options_.seconds > 0 ? elapsed() < options_.seconds : done_ < options_.schedules;
  }

  bool full() {
    const std::uint64_t seed = next_++;
    return note(run_full(cluster_, seed), seed, std::nullopt);
  }
  bool world() {
    const std::uint64_t seed = next_++;
    Batch batch(cluster_, seed);
    // Not counted as a schedule, because many worlds start alike.
    if (const Outcome outcome = batch.begin(); outcome.failure) return failed(outcome, seed, 0);
    for (std::uint64_t i = 1; i <= Batch::kSchedules; ++i)
      if (!note(batch.next(), seed, i)) return false;
    return true;
  }
  bool note(const Outcome& outcome, std::uint64_t seed, std::optional<std::uint64_t> index) {
    ++done_;
    steps_ += outcome.steps;
    requests_ += outcome.requests;
    fingerprint_ = (fingerprint_ ^ outcome.fingerprint) * 1099511628211ULL;
    orders_.insert(outcome.order);
    return outcome.failure ? failed(outcome, seed, index) : true;
  }
  bool failed(const Outcome& outcome, std::uint64_t seed, std::optional<std::uint64_t> index) {
    const std::string name = name_of(seed, index);
    if (++failures_ == options_.failures && options_.lines > 0) (void)replay(name, options_.lines);
    std::printf("%s: %s\nto see it again: %s --replay %s\n", name.c_str(), outcome.failure->c_str(),
                program_, name.c_str());
    std::fflush(stdout);
    return false;
  }

  const Options options_;
  const char* const program_;
  Cluster cluster_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t next_ = options_.first;
  std::uint64_t done_ = 0, steps_ = 0, requests_ = 0, fingerprint_ = 0, failures_ = 0;
  std::unordered_set<std::uint64_t> orders_;
};

bool take(std::string_view name, const char* value, Options& options) {
  if (name == "--schedules" || name == "--short") {
    options.schedules = std::strtoull(value, nullptr, 10);
    options.brief = name == "--short";
  } else if (name == "--first") {
    options.first = std::strtoull(value, nullptr, 10);
  } else if (name == "--seed-from") {
    options.first = seed_of(value);
  } else if (name == "--seconds") {
    options.seconds = std::strtod(value, nullptr);
  } else if (name == "--lines") {
    options.lines = std::strtoull(value, nullptr, 10);
  } else if (name == "--failures") {
    options.failures = std::strtoull(value, nullptr, 10);
  } else if (name == "--replay") {
    options.replay = value;
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value == nullptr || !take(name, value, options)) {
      std::fprintf(stderr, "sim: %s is no flag with a value\n", argv[i]);
      return 2;
    }
  }
  log::configure(log::Format::kText, static_cast<log::Level>(4));
  if (!options.replay.empty()) return replay(options.replay, options.lines);
  return Campaign(std::move(options), argv[0]).run();
}
