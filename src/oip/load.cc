#include "oip/load.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "oip/client.h"

namespace varda::oip {
namespace {

using codec::Json;

constexpr double kGrowth = 1.02;
constexpr std::size_t kBuckets = 1200;  // 1.02^1200 µs are more than 5 hours
constexpr std::chrono::seconds kRequestTimeout{30}, kMetricsTimeout{10};
constexpr std::chrono::milliseconds kAfterFailure{10};
// The end may move nearer while a client waits for its turn: the client looks this often.
constexpr std::chrono::milliseconds kPollPeriod{200};

std::size_t bucket_of(double microseconds) {
  if (microseconds <= 1) return 0;
  return std::min(kBuckets - 1,
                  static_cast<std::size_t>(std::log(microseconds) / std::log(kGrowth)));
}

double seconds_since(SteadyTime begin) {
  return std::chrono::duration<double>(system_clock().now() - begin).count();
}

void count(std::map<std::string, LoadReport::Span>& spans, const std::string& name, double at) {
  LoadReport::Span& span = spans[name];
  if (span.count++ == 0) span.first = at;
  span.last = at;
}

constexpr std::chrono::hours kTurnMax{24 * 365};  // a very low rate must not overflow

/// Counted since the server started.
Result<std::uint64_t> answered_by(const Context& ctx, net::HttpClient& http, std::string url,
                                  const std::string& model) {
  while (!url.empty() && url.back() == '/') url.pop_back();
  net::ClientRequest request;
  request.url = url + "/metrics";
  TRY(const auto answer, http.call(ctx.with_timeout(kMetricsTimeout), std::move(request)));
  if (answer.status != 200)
    return Error(Code::kUnavailable, "/metrics answered " + std::to_string(answer.status));
  return answered_requests(answer.body, model);
}

/// The state that all clients share, with the end of the load.
class Load {
 public:
  Load(const LoadOptions& options, const std::vector<Images>& images)
      : options_(options), images_(images) {
    for (const Images& batch : images) total_ += batch.count;
  }

  void run(const Context& ctx, std::size_t number, const Predictor& predictor, bool fresh) {
    LoadReport own;
    bool seen = options_.until_version.empty();
    for (std::uint64_t i = 0; !over(ctx);) {
      if (const auto wait = until_due(i, number); wait > Duration::zero()) {
        (void)ctx.sleep_for(std::min<Duration>(wait, kPollPeriod));
        continue;
      }
      ++i;
      const std::uint64_t request = next_++;
      std::size_t image = static_cast<std::size_t>(request % total_), batch = 0;
      while (image >= images_[batch].count) image -= images_[batch++].count;
      const double at = seconds_since(begin_);
      const SteadyTime start = system_clock().now();
      // The end of the load does not cut this request off: that would count as a failure.
      const auto answer = predictor.predict(Context::background().with_timeout(kRequestTimeout),
                                            images_[batch], image);
      ++own.requests;
      ++(fresh ? own.fresh : own.reused);
      if (!answer.ok()) {
        ++own.failures;
        const std::string& message = answer.error().message();
        if (own.errors.size() < LoadReport::kErrorsMax || own.errors.contains(message))
          count(own.errors, message, at);
        // Without a pause, a server that refuses at once would get requests at full speed.
        (void)ctx.sleep_for(kAfterFailure);
        continue;
      }
      own.latencies.add(system_clock().now() - start);
      count(own.versions, answer->version, at);
      if (!seen && answer->version == options_.until_version) {
        seen = true;
        if (++seen_ == options_.clients) end_from_now();
      }
    }
    add(own);
  }

  void begin() {
    begin_ = system_clock().now();
    end_ = (begin_ + options_.longest).time_since_epoch().count();
    if (options_.until_version.empty()) end_from_now();
  }

  LoadReport result() {
    const MutexLock lock(mutex_);
    report_.seconds = seconds_since(begin_);
    report_.clients = options_.clients;
    report_.url = options_.url;
    report_.model = options_.model;
    report_.reached = options_.until_version.empty() || seen_ == options_.clients;
    return std::move(report_);
  }

 private:
  /// The time until request `i` of client `number` is due; negative if it is late.
  Duration until_due(std::uint64_t i, std::size_t number) const {
    if (options_.rate <= 0) return Duration::zero();
    return begin_ + turn_of(options_, i, number) - system_clock().now();
  }
  bool over(const Context& ctx) const {
    return ctx.done() || system_clock().now().time_since_epoch().count() >= end_;
  }
  void end_from_now() {
    const auto wanted = (system_clock().now() + options_.duration).time_since_epoch().count();
    end_ = std::min<Duration::rep>(end_, wanted);
  }

  void add(const LoadReport& one) {
    const MutexLock lock(mutex_);
    report_.requests += one.requests;
    report_.failures += one.failures;
    report_.reused += one.reused;
    report_.fresh += one.fresh;
    report_.latencies.add(one.latencies);
    for (const auto& [from, to] :
         {std::pair(&one.versions, &report_.versions), std::pair(&one.errors, &report_.errors)}) {
      for (const auto& [name, span] : *from) {
        if (to == &report_.errors && to->size() >= LoadReport::kErrorsMax && !to->contains(name))
          continue;
        LoadReport::Span& all = (*to)[name];
        all.first = all.count == 0 ? span.first : std::min(all.first, span.first);
        all.last = std::max(all.last, span.last);
        all.count += span.count;
      }
    }
  }

  const LoadOptions& options_;
  const std::vector<Images>& images_;
  std::uint64_t total_ = 0;
  SteadyTime begin_;
  std::atomic<Duration::rep> end_ = 0;
  std::atomic<std::size_t> seen_ = 0;
  std::atomic<std::uint64_t> next_ = 0;
  Mutex mutex_;
  LoadReport report_ GUARDED_BY(mutex_);
};

Json spans_json(const std::map<std::string, LoadReport::Span>& spans, const char* name) {
  const auto round = [](double seconds) { return std::round(seconds * 1e3) / 1e3; };
  Json out = Json::array();
  for (const auto& [text, span] : spans) {
    out.push_back(Json::object({{name, text.substr(0, 200)},
                                {"requests", span.count},
                                {"firstSecond", round(span.first)},
                                {"lastSecond", round(span.last)}}));
  }
  return out;
}

}  // namespace

Duration turn_of(const LoadOptions& options, std::uint64_t i, std::size_t number) {
  if (options.rate <= 0) return Duration::zero();
  const std::chrono::duration<double> due(static_cast<double>(i * options.clients + number) /
                                          options.rate);
  return due < kTurnMax ? std::chrono::duration_cast<Duration>(due) : kTurnMax;
}

Result<std::uint64_t> answered_requests(std::string_view metrics, const std::string& model) {
  constexpr double kMost = 0x1p53;  // a larger double cannot count single requests
  const std::string label = "model=\"" + model + "\"";
  double sum = 0;
  bool found = false;
  while (!metrics.empty()) {
    const std::string_view line = metrics.substr(0, metrics.find('\n'));
    metrics.remove_prefix(std::min(metrics.size(), line.size() + 1));
    const std::size_t labels_end = line.rfind("} ");
    if (!line.starts_with("nv_inference_request_success{") || labels_end == std::string_view::npos)
      continue;
    const std::string_view labels = line.substr(0, labels_end);
    std::size_t at = labels.find(label);
    while (at != std::string_view::npos && labels[at - 1] != '{' && labels[at - 1] != ',')
      at = labels.find(label, at + 1);
    if (at == std::string_view::npos) continue;
    const std::string_view value = line.substr(labels_end + 2);  // a timestamp may follow
    double number = 0;
    const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || !(number >= 0 && number <= kMost)) continue;
    sum = std::min(kMost, sum + number);
    found = true;
  }
  if (!found) return Error(Code::kNotFound, "no request is counted for model " + model);
  return static_cast<std::uint64_t>(sum);
}

LatencyBuckets::LatencyBuckets() : counts_(kBuckets) {}

void LatencyBuckets::add(Duration latency) {
  const double microseconds = std::chrono::duration<double, std::micro>(latency).count();
  ++counts_[bucket_of(microseconds)];
  ++total_;
  max_ = std::max(max_, microseconds / 1e3);
}

void LatencyBuckets::add(const LatencyBuckets& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  total_ += other.total_;
  max_ = std::max(max_, other.max_);
}

double LatencyBuckets::milliseconds_at(double share) const {
  std::uint64_t before = 0;
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(total_));
  for (std::size_t i = 0; i < kBuckets; ++i) {
    before += counts_[i];
    if (counts_[i] > 0 && (before > wanted || before == total_))
      return std::min(max_, std::pow(kGrowth, static_cast<double>(i) + 0.5) / 1e3);
  }
  return 0;
}

codec::Json LoadReport::to_json() const {
  Json out = Json::object({{"model", model},
                           {"url", url},
                           {"seconds", std::round(seconds * 1e3) / 1e3},
                           {"clients", std::uint64_t{clients}},
                           {"requests", requests},
                           {"failures", failures},
                           {"connections", Json::object({{"kept", reused}, {"new", fresh}})},
                           {"versions", spans_json(versions, "version")},
                           {"errors", spans_json(errors, "message")},
                           {"reachedVersion", reached},
                           {"latencyMs", Json::object({{"p50", latencies.milliseconds_at(0.5)},
                                                       {"p99", latencies.milliseconds_at(0.99)},
                                                       {"max", latencies.milliseconds_max()}})}});
  if (replicas.empty()) return out;
  Json list = Json::array();
  for (const Replica& replica : replicas) {
    Json one = Json::object({{"url", replica.url}, {"answered", replica.answered}});
    if (!replica.error.empty()) one.set("error", replica.error);
    list.push_back(std::move(one));
  }
  out.set("replicas", std::move(list));
  return out;
}

std::string LoadReport::to_text() const {
  char line[256];
  std::snprintf(
      line, sizeof line,
      "%llu requests in %.1f s, %llu failed; latency p50 %.2f ms, p99 %.2f ms, longest %.2f ms\n",
      static_cast<unsigned long long>(requests), seconds, static_cast<unsigned long long>(failures),
      latencies.milliseconds_at(0.5), latencies.milliseconds_at(0.99),
      latencies.milliseconds_max());
  std::string out = line;
  const auto append = [&](const char* what, const std::string& name, const Span& span) {
    std::snprintf(line, sizeof line, "%llu, from second %.1f to %.1f",
                  static_cast<unsigned long long>(span.count), span.first, span.last);
    out += what + name + ": " + line + "\n";
  };
  for (const auto& [version, span] : versions) append("version ", version, span);
  for (const auto& [message, span] : errors) append("failed: ", message, span);
  for (const Replica& replica : replicas)
    out +=
        replica.url + ": " +
        (replica.error.empty() ? std::to_string(replica.answered) + " answered" : replica.error) +
        "\n";
  if (!reached) out += "the version waited for did not answer every client\n";
  return out;
}

Result<LoadReport> put_load(const Context& ctx, const LoadOptions& options,
                            const std::vector<Images>& images) {
  const auto make_client = [&](std::size_t idle_connections_max) {
    return options.make_client ? options.make_client(idle_connections_max)
                               : net::make_client({.idle_connections_max = idle_connections_max});
  };
  const auto keeping = make_client(std::max<std::size_t>(16, options.clients));
  const auto renewing = make_client(0);
  const Client reusing(*keeping, options.url), fresh(*renewing, options.url);
  TRY(const Predictor by_reused, Predictor::open(ctx, reusing, options.model).context(options.url));
  TRY(const Predictor by_fresh, Predictor::open(ctx, fresh, options.model).context(options.url));

  std::vector<Result<std::uint64_t>> before;
  for (const std::string& url : options.replicas)
    before.push_back(answered_by(ctx, *renewing, url, options.model));

  Load load(options, images);
  load.begin();
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < options.clients; ++i) {
      const bool takes_new = i % 2 == 1;
      threads.emplace_back([&ctx, &load, i, takes_new, &by_reused, &by_fresh] {
        load.run(ctx, i, takes_new ? by_fresh : by_reused, takes_new);
      });
    }
  }
  LoadReport report = load.result();
  for (std::size_t i = 0; i < options.replicas.size(); ++i) {
    LoadReport::Replica replica{.url = options.replicas[i], .answered = 0, .error = ""};
    const auto after = answered_by(Context::background(), *renewing, replica.url, options.model);
    if (!after.ok()) {
      replica.error = after.error().message();
    } else {
      // The count starts at 0 if the first reading failed or the server has restarted since.
      const std::uint64_t then = before[i].ok() ? *before[i] : 0;
      replica.answered = *after >= then ? *after - then : *after;
    }
    report.replicas.push_back(std::move(replica));
  }
  return report;
}

}  // namespace varda::oip
