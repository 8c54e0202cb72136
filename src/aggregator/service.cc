#include "aggregator/service.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "artifact/file_server.h"
#include "base/log.h"
#include "base/text.h"
#include "codec/text.h"
#include "federated/update_scan.h"
#include "net/url.h"

namespace varda::aggregator {
namespace {

using codec::Json;
using codec::Sha256;
using federated::Verdict;
using net::Request;
using net::Response;

constexpr std::size_t kEvaluationBytesMax = 64 << 10;
constexpr std::size_t kSecureBytesMax = 256 << 10;  // sealed shares for 254 neighbours
constexpr std::size_t kTaskBytesMax = 128;
constexpr std::size_t kScansMax = 128;  // 64 KiB each; the files of further uploads are read again
constexpr std::string_view kDigest = "sha256:";
constexpr std::string_view kUpdates = "/v1/updates/", kModels = "/v1/models/",
                           kEvaluations = "/v1/evaluations/", kSecure = "/v1/secure/",
                           kTask = "/v1/task";

Response json_response(int status, const Json& body) {
  return {.status = status,
          .headers = {{"Content-Type", "application/json"}},
          .body = codec::write_json(body) + "\n"};
}

Response refuse(int status, const std::string& reason, const std::string& message) {
  Response out = json_response(status, Json::object({{"reason", reason}, {"message", message}}));
  if (status == 503) out.headers.add("Retry-After", "1");
  return out;
}

Response refuse(const Error& error) {
  switch (error.code()) {
    case Code::kInvalid:
      return refuse(400, "Invalid", error.message());
    case Code::kUnauthenticated:
      return refuse(401, "Unauthenticated", error.message());
    case Code::kForbidden:
      return refuse(403, "NotAParticipant", error.message());
    case Code::kNotFound:
      return refuse(404, "NotFound", error.message());
    case Code::kCorrupt:
      return refuse(422, "Digest", error.message());
    case Code::kExhausted:
      return refuse(507, "NoRoom", error.message());
    case Code::kConflict:
      return refuse(409, "Conflict", error.message());
    case Code::kUnavailable:
      return refuse(503, "Unavailable", error.message());
    default:
      log::error("request failed", {{"error", error}});
      return refuse(500, "Internal", error.message());
  }
}

Response not_allowed(const std::string& methods) {
  Response out = refuse(405, "Method", "the methods here are " + methods);
  out.headers.add("Allow", methods);
  return out;
}

Result<Sha256> digest_of_path(std::string_view text) {
  if (!text.starts_with(kDigest))
    return Error(Code::kInvalid, "the path must end with sha256: and 64 hex digits");
  text.remove_prefix(kDigest.size());
  return Sha256::parse(text);
}

struct UpdatePath {
  std::string task;
  Sha256 digest;
};

/// "/v1/updates/TASK/sha256:HEX"
Result<UpdatePath> parse_update_path(std::string_view path) {
  path.remove_prefix(kUpdates.size());
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash > kTaskBytesMax)
    return Error(Code::kNotFound, "the path must be /v1/updates/TASK/sha256:HEX");
  UpdatePath out{.task = std::string(path.substr(0, slash))};
  TRY(out.digest, digest_of_path(path.substr(slash + 1)));
  return out;
}

struct SecurePath {
  std::string task;
  SecureRound::Message message = SecureRound::Message::kKeys;
};

/// "/v1/secure/TASK/keys"
Result<SecurePath> parse_secure_path(std::string_view path) {
  path.remove_prefix(kSecure.size());
  const std::size_t slash = path.find('/');
  const auto message =
      slash == std::string_view::npos ? std::nullopt : parse_secure_message(path.substr(slash + 1));
  if (!message || slash == 0 || slash > kTaskBytesMax)
    return Error(Code::kNotFound,
                 "the path must be /v1/secure/TASK/ and keys, shares, opened or unmask");
  return SecurePath{std::string(path.substr(0, slash)), *message};
}

/// The piece that a PUT announces.
Result<UploadPiece> parse_piece(const Request& head) {
  const auto length =
      parse_integer<std::uint64_t>(head.headers.find("Content-Length").value_or(""));
  if (!length) return Error(Code::kUnsupported, "an upload needs Content-Length");
  const auto range = head.headers.find("Content-Range");
  if (!range) return UploadPiece{.first = 0, .length = *length, .total = *length};
  const Error wrong(Code::kInvalid, "Content-Range must be: bytes FIRST-LAST/TOTAL");
  std::string_view text = *range;
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return wrong;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return wrong;
  const auto first = parse_integer<std::uint64_t>(text.substr(0, dash)),
             last = parse_integer<std::uint64_t>(text.substr(dash + 1, slash - dash - 1)),
             total = parse_integer<std::uint64_t>(text.substr(slash + 1));
  if (!first || !last || !total || *first > *last || *last >= *total) return wrong;
  if (*last - *first + 1 != *length)
    return Error(Code::kInvalid, "Content-Range has " + std::to_string(*last - *first + 1) +
                                     " bytes, but the body has " + std::to_string(*length));
  return UploadPiece{.first = *first, .length = *length, .total = *total};
}

}  // namespace

/// Writes the body of one piece.
class Service::Receiver final : public net::BodyReceiver {
 public:
  Receiver(Service& service, std::string client, UpdatePath path, const UploadPiece& piece,
           std::unique_ptr<Upload> upload)
      : service_(service),
        client_(std::move(client)),
        path_(std::move(path)),
        upload_(std::move(upload)) {
    // A piece of a file has too few bytes, and many slow uploads at once too many scans.
    if (piece.length != piece.total) return;
    scans_ = service.scans_.fetch_add(1, std::memory_order_relaxed) < kScansMax;
    if (scans_)
      scan_.emplace(service.coordinator_.layout(), piece.total);
    else
      service.scans_.fetch_sub(1, std::memory_order_relaxed);
  }
  ~Receiver() override {
    if (scans_) service_.scans_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::optional<Response> write(std::string_view bytes) override {
    const Status written = upload_->write(bytes);
    if (!written.ok()) return refuse(written.error());
    if (scan_) scan_->feed(bytes);
    service_.coordinator_.count_bytes(bytes.size(), 0);
    if (service_.received_bytes_ != nullptr)
      service_.received_bytes_->add(static_cast<double>(bytes.size()));
    return std::nullopt;
  }
  void finish(net::Responder respond) override {
    service_.pool_.wrap([&service = service_, client = client_, path = path_,
                         norm = scan_ ? scan_->norm() : std::nullopt,
                         upload = std::shared_ptr<Upload>(std::move(upload_))](const Request&) {
      return service.finish(*upload, norm, client, path.task, path.digest);
    })(Request(), std::move(respond));
  }

 private:
  Service& service_;
  const std::string client_;
  const UpdatePath path_;
  std::unique_ptr<Upload> upload_;
  bool scans_ = false;
  std::optional<federated::UpdateScan> scan_;
};

/// Drops the body of an update that counts already. Many clients cannot read an answer before they
/// have sent the body.
class Service::Ignore final : public net::BodyReceiver {
 public:
  std::optional<Response> write(std::string_view) override { return std::nullopt; }
  void finish(net::Responder respond) override {
    respond(json_response(200, Json::object({{"accepted", true}})));
  }
};

Service::Service(Coordinator& coordinator, Options options)
    : coordinator_(coordinator),
      options_(std::move(options)),
      pool_({.threads = options_.threads, .queue_max = 4096}) {
  if (options_.metrics != nullptr) {
    metrics::Registry& all = *options_.metrics;
    accepted_ = &all.counter("varda_aggregate_updates_accepted_total", "Updates that count");
    received_bytes_ =
        &all.counter("varda_aggregate_received_bytes_total", "Bytes of updates from clients");
    sent_bytes_ =
        &all.counter("varda_aggregate_sent_bytes_total", "Bytes of models that clients asked for");
  }
  coordinator_.on_change([this] {
    const MutexLock lock(mutex_);
    tasks_changed_ = true;
    changed_.notify_all();
  });
  polls_thread_ = std::jthread([this](const std::stop_token& stop) { answer_polls(stop); });
}

Service::~Service() { drain(); }

net::Server::Options Service::server_options() {
  net::Server::Options out;
  out.io_threads = 2;  // a write that waits for the disk delays half of the connections
  out.connections_max = 12'000;
  out.json_refusals = true;
  out.body_bytes_max = std::numeric_limits<std::size_t>::max();
  out.body_bytes_max_of = [](std::string_view, std::string_view target) {
    return target.starts_with(kSecure) ? kSecureBytesMax : kEvaluationBytesMax;
  };
  out.stream_buffer_bytes_max = 256 << 10;
  out.receive = [this](const Request& head) { return receive(head); };
  return out;
}

net::Handler Service::handler() {
  auto blocking = pool_.wrap([this](const Request& request) { return answer(request); });
  return [this, blocking](Request request, net::Responder respond) {
    const bool polls = request.path() == kTask || request.path().starts_with(kSecure);
    if (polls && request.method == "GET")
      poll(request, std::move(respond));
    else
      blocking(std::move(request), std::move(respond));
  };
}

// ---- polls ----

void Service::poll(const Request& request, net::Responder respond) {
  const auto client = options_.client_of(request);
  if (!client.ok()) return respond(refuse(client.error()));
  const Status seen = coordinator_.seen(*client);
  if (!seen.ok()) {
    Response out = refuse(seen.error());
    if (seen.error().code() == Code::kExhausted) out.status = 503;
    return respond(std::move(out));
  }
  {
    const MutexLock lock(mutex_);
    polled_.insert(*client);
  }
  const net::Query query = net::Query::parse(request.query());
  PollKey key{.client = *client, .secure = request.path() != kTask};
  std::string after(query.get("after"));
  std::optional<SecureAsk> secure;
  if (key.secure) {
    auto path = parse_secure_path(request.path());
    if (!path.ok()) return respond(refuse(path.error()));
    secure = SecureAsk{std::move(path->task), path->message};
  }
  std::chrono::seconds wait{0};
  if (const auto text = query.find("wait")) {
    const auto number = parse_integer<std::int64_t>(*text);
    if (!number || *number < 0)
      return respond(refuse(400, "Invalid", "wait must be a number of seconds"));
    wait = std::min<std::chrono::seconds>(std::chrono::seconds(*number), options_.wait_max);
  }
  if (auto response = ready(key, after, secure)) return respond(std::move(*response));
  if (wait.count() == 0) return respond({.status = 204});
  Poll poll{.after = std::move(after),
            .secure = std::move(secure),
            .until = system_clock().now() + wait,
            .respond = std::move(respond)};
  std::optional<Poll> replaced;
  {
    const MutexLock lock(mutex_);
    if (!draining_) {
      const auto at = polls_.find(key);
      if (at == polls_.end()) {
        polls_.emplace(key, std::move(poll));
      } else {
        // A client has one poll of a kind. The earlier connection is probably broken.
        replaced.emplace(std::move(at->second));
        polls_.erase(at);
        polls_.emplace(key, std::move(poll));
      }
      // The answer may have changed since the look above.
      tasks_changed_ = true;
      changed_.notify_all();
    } else {
      replaced.emplace(std::move(poll));
    }
  }
  if (replaced) replaced->respond({.status = 204});
}

std::optional<Response> Service::ready(const PollKey& key, const std::string& after,
                                       const std::optional<SecureAsk>& secure) {
  if (secure) {
    const auto answer = coordinator_.secure_answer(key.client, secure->task, secure->message);
    if (!answer.ok()) return refuse(answer.error());
    if (!*answer) return std::nullopt;
    return json_response(200, **answer);
  }
  const auto task = coordinator_.task_for(key.client);
  const bool end = task && task->kind == federated::Task::Kind::kEnd;
  if (!task || (!end && task->id == after)) return std::nullopt;
  return task_response(key.client, *task);
}

void Service::answer_polls(const std::stop_token& stop) {
  struct Waiting {
    PollKey key;
    std::string after;
    std::optional<SecureAsk> secure;
  };
  while (!stop.stop_requested()) {
    std::vector<Waiting> waiting;
    std::vector<std::pair<std::string, net::Responder>> expired;
    {
      const MutexLock lock(mutex_);
      while (!tasks_changed_ && !draining_ && !stop.stop_requested()) {
        SteadyTime until = system_clock().now() + std::chrono::hours(1);
        for (const auto& [key, poll] : polls_) until = std::min(until, poll.until);
        // Deadlines close together wake the thread once.
        if (!changed_.wait_until(mutex_, stop, until + std::chrono::milliseconds(20))) break;
      }
      const SteadyTime now = system_clock().now();
      for (auto at = polls_.begin(); at != polls_.end();) {
        if (now < at->second.until && !draining_ && !stop.stop_requested()) {
          if (tasks_changed_) waiting.push_back({at->first, at->second.after, at->second.secure});
          ++at;
          continue;
        }
        expired.emplace_back(at->first.client, std::move(at->second.respond));
        at = polls_.erase(at);
      }
      tasks_changed_ = false;
      if (draining_ && expired.empty() && polls_.empty() && !stop.stop_requested())
        changed_.wait(mutex_, stop);
    }
    for (auto& [client, respond] : expired) {
      (void)coordinator_.seen(client);  // it was there until now
      respond({.status = 204});
    }
    for (const Waiting& one : waiting) {
      auto response = ready(one.key, one.after, one.secure);
      if (!response) continue;
      std::optional<Poll> poll;
      {
        const MutexLock lock(mutex_);
        const auto at = polls_.find(one.key);
        if (at == polls_.end()) continue;
        // A newer poll may ask for another message; the next look answers it.
        if (at->second.secure.has_value() != one.secure.has_value() ||
            (one.secure && (at->second.secure->task != one.secure->task ||
                            at->second.secure->message != one.secure->message))) {
          tasks_changed_ = true;
          continue;
        }
        poll.emplace(std::move(at->second));
        polls_.erase(at);
      }
      poll->respond(std::move(*response));
    }
  }
}

Response Service::task_response(const std::string& client, const federated::Task& task) {
  Response out = json_response(200, coordinator_.task_json(client, task));
  if (task.kind == federated::Task::Kind::kEnd) {
    const MutexLock lock(mutex_);
    dismissed_.insert(client);
    changed_.notify_all();
  }
  return out;
}

void Service::wait_for_ends(const Context& ctx) {
  const MutexLock lock(mutex_);
  while (!ctx.done() && (polled_.empty() || dismissed_.size() < polled_.size()))
    if (!changed_.wait_until(mutex_, ctx.stop_token(),
                             ctx.deadline().value_or(system_clock().now() + std::chrono::hours(1))))
      break;
}

void Service::drain() {
  const MutexLock lock(mutex_);
  draining_ = true;
  changed_.notify_all();
}

std::size_t Service::pollers() {
  const MutexLock lock(mutex_);
  return polled_.size();
}

std::size_t Service::polls() {
  const MutexLock lock(mutex_);
  return polls_.size();
}

// ---- updates ----

Response Service::verdict_response(Verdict verdict, const std::string& message,
                                   const std::string& reason) {
  switch (verdict) {
    case Verdict::kWanted:
      return json_response(201, Json::object({{"accepted", true}}));
    case Verdict::kDuplicate:
      return json_response(200, Json::object({{"accepted", true}}));
    case Verdict::kSecond:
      return refuse(409, "Second", "another update of this client counts already");
    case Verdict::kLate:
      return refuse(409, "Late", "the round of this task is over");
    case Verdict::kUnknownTask:
      return refuse(409, "UnknownTask", "this job has no such training task");
    case Verdict::kNotChosen:
      return refuse(403, "NotChosen", "the client does not take part in this round");
    case Verdict::kExcluded:
      return refuse(403, "Excluded", "updates of this client were refused too often");
    case Verdict::kRefused:
      return refuse(
          422, reason.empty() ? "Refused" : reason,
          message.empty() ? "an update of this client was refused in this round" : message);
  }
  return refuse(500, "Internal", "");
}

net::Reception Service::receive(const Request& head) {
  if (head.method != "PUT" || !head.path().starts_with(kUpdates)) return {};
  const auto refusal = [](Response response) {
    return net::Reception{.receiver = nullptr, .refusal = std::move(response)};
  };
  const auto client = options_.client_of(head);
  if (!client.ok()) return refusal(refuse(client.error()));
  if (const Status seen = coordinator_.seen(*client); !seen.ok())
    return refusal(refuse(seen.error()));
  auto path = parse_update_path(head.path());
  if (!path.ok()) return refusal(refuse(path.error()));
  const auto piece = parse_piece(head);
  if (!piece.ok()) {
    Response out = refuse(piece.error());
    if (piece.error().code() == Code::kUnsupported) out.status = 411;
    return refusal(std::move(out));
  }
  const Verdict verdict = coordinator_.judge(*client, path->task, path->digest);
  if (verdict == Verdict::kDuplicate)
    return {.receiver = std::make_unique<Ignore>(), .refusal = std::nullopt};
  if (verdict != Verdict::kWanted) return refusal(verdict_response(verdict, "", ""));
  if (piece->total > coordinator_.update_bytes_max())
    return refusal(refuse(
        413, "TooLarge",
        "an update has at most " + std::to_string(coordinator_.update_bytes_max()) + " bytes"));
  if (piece->total == 0) return refusal(refuse(422, "format", "the update is empty"));
  auto upload = coordinator_.store().begin(*client, path->digest, *piece);
  if (!upload.ok()) {
    Response out = refuse(upload.error());
    if (upload.error().code() == Code::kConflict)
      out.headers.add(
          "Upload-Offset",
          std::to_string(coordinator_.store().offset(*client, path->digest).value_or(0)));
    return refusal(std::move(out));
  }
  return {.receiver = std::make_unique<Receiver>(*this, *client, std::move(*path), *piece,
                                                 std::move(*upload)),
          .refusal = std::nullopt};
}

Response Service::finish(Upload& upload, std::optional<double> norm, const std::string& client,
                         const std::string& task, const Sha256& digest) {
  const auto file = upload.finish();
  if (!file.ok()) return refuse(file.error());
  if (!*file) {
    Response out = json_response(202, Json::object());
    out.headers.add("Upload-Offset",
                    std::to_string(coordinator_.store().offset(client, digest).value_or(0)));
    return out;
  }
  const auto submitted = coordinator_.submit(client, task, digest, {**file, norm});
  if (!submitted.ok()) return refuse(submitted.error());
  if (submitted->verdict == Verdict::kWanted && accepted_ != nullptr) accepted_->add();
  return verdict_response(
      submitted->verdict, submitted->message,
      submitted->reason ? std::string(to_string(*submitted->reason)) : std::string());
}

Response Service::update_head(const Request& request, const std::string& client) {
  const auto path = parse_update_path(request.path());
  if (!path.ok()) return refuse(path.error());
  const Verdict verdict = coordinator_.judge(client, path->task, path->digest);
  if (verdict != Verdict::kWanted) return verdict_response(verdict, "", "");
  Response out = refuse(404, "NotFound", "the update is not accepted");
  out.headers.add("Upload-Offset",
                  std::to_string(coordinator_.store().offset(client, path->digest).value_or(0)));
  return out;
}

// ---- other requests ----

Response Service::answer(const Request& request) {
  const std::string_view path = request.path();
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (!path.starts_with("/v1/")) return refuse(404, "NotFound", "there is no such path");
  const auto client = options_.client_of(request);
  if (!client.ok()) return refuse(client.error());
  if (const Status seen = coordinator_.seen(*client); !seen.ok()) return refuse(seen.error());
  if (path == kTask) return not_allowed("GET");
  if (path.starts_with(kModels)) return reads ? file(request) : not_allowed("GET, HEAD");
  if (path.starts_with(kUpdates))
    return request.method == "HEAD" ? update_head(request, *client) : not_allowed("HEAD, PUT");
  if (path.starts_with(kSecure))
    return request.method == "PUT" ? put_secure(request, *client) : not_allowed("GET, PUT");
  if (path.starts_with(kEvaluations))
    return request.method == "PUT" ? evaluation(request, *client) : not_allowed("PUT");
  return refuse(404, "NotFound", "there is no such path");
}

Response Service::file(const Request& request) {
  const auto digest = digest_of_path(request.path().substr(kModels.size()));
  if (!digest.ok()) return refuse(digest.error());
  auto& store = coordinator_.store();
  auto file = store.open(*digest);
  if (!file.ok()) return refuse(404, "NotFound", "the file is not part of the present round");
  const auto size = (*file)->size();
  if (!size.ok()) return refuse(size.error());
  Response out = artifact::serve_content({.size_bytes = *size,
                                          .tag = "\"sha256:" + digest->hex() + "\"",
                                          .modified = {},
                                          .open = artifact::bytes_of_file(std::move(*file))},
                                         request);
  if (out.stream) {
    const auto length =
        parse_integer<std::uint64_t>(out.headers.find("Content-Length").value_or("")).value_or(0);
    coordinator_.count_bytes(0, length);
    if (sent_bytes_ != nullptr) sent_bytes_->add(static_cast<double>(length));
  }
  return out;
}

Response Service::put_secure(const Request& request, const std::string& client) {
  const auto path = parse_secure_path(request.path());
  if (!path.ok()) return refuse(path.error());
  const auto body = codec::parse_json(request.body, {.depth_max = 8, .nodes_max = 4000});
  if (!body.ok() || !body->is_object())
    return refuse(400, "Invalid", "the body must be a JSON object");
  const Status status = coordinator_.put_secure(client, path->task, path->message, *body);
  return status.ok() ? json_response(200, Json::object()) : refuse(status.error());
}

Response Service::evaluation(const Request& request, const std::string& client) {
  const auto body = codec::parse_json(request.body, {.depth_max = 8, .nodes_max = 1000});
  if (!body.ok() || !body->is_object())
    return refuse(400, "Invalid", "the body must be a JSON object");
  const Json& samples = (*body)["samples"];
  const Json& values = (*body)["metrics"];
  if (!samples.is_number() || !(samples.as_double() >= 0) || !std::isfinite(samples.as_double()))
    return refuse(400, "Invalid", "samples must be a number, and not negative");
  federated::Metrics metrics;
  for (const auto& [name, value] : values.as_object()) {
    if (!value.is_number() || name.empty() || name.size() > 64 || metrics.size() == 64)
      return refuse(400, "Invalid", "metrics must be at most 64 numbers with short names");
    metrics.emplace(name, value.as_double());
  }
  // A client without data for the evaluation reports no samples, so that the others do not wait.
  if (metrics.empty() && samples.as_double() > 0)
    return refuse(400, "Invalid", "metrics must be an object of numbers");
  const std::string task(request.path().substr(kEvaluations.size()));
  const Status status = coordinator_.evaluated(client, task, samples.as_double(), metrics);
  return status.ok() ? json_response(200, Json::object()) : refuse(status.error());
}

// ---- metrics ----

void JobMetrics::collect(metrics::Samples& out) const {
  const Snapshot job = coordinator_.snapshot();
  const auto gauge = [&](const char* name, const char* help, double value) {
    out.gauge(name, help).add({}, value);
  };
  gauge("varda_aggregate_round", "The open round, or the last", static_cast<double>(job.round));
  gauge("varda_aggregate_rounds", "Rounds of the job", static_cast<double>(job.rounds));
  gauge("varda_aggregate_round_updates", "Updates that count in the open round",
        static_cast<double>(job.updates));
  gauge("varda_aggregate_round_updates_wanted", "Updates that close the open round at once",
        static_cast<double>(job.target));
  gauge("varda_aggregate_round_attempt", "Deadlines of the open round, from 1 on",
        static_cast<double>(job.attempt));
  auto& phases = out.gauge("varda_aggregate_phase", "1 for the present phase of the job");
  phases.add({{"phase", to_string(job.phase)}}, 1);
  std::map<std::string_view, double> states;
  for (const auto& client : job.clients) states[to_string(client.state)] += 1;
  auto& clients = out.gauge("varda_aggregate_clients", "Clients of the job by state");
  for (const auto& [state, count] : states) clients.add({{"state", state}}, count);
  if (job.history.empty()) return;
  const federated::RoundRecord& last = job.history.back();
  gauge("varda_aggregate_last_round_seconds", "Duration of the last complete round", last.seconds);
  gauge("varda_aggregate_last_round_refused", "Clients with refused updates in the last round",
        static_cast<double>(last.refused));
  auto& training = out.gauge("varda_aggregate_training_metric",
                             "Mean of the clients' training metrics in the last round");
  for (const auto& [name, value] : last.training) training.add({{"metric", name}}, value);
  auto& evaluation = out.gauge("varda_aggregate_evaluation_metric",
                               "Mean of the clients' metrics in the last evaluation");
  for (auto at = job.history.rbegin(); at != job.history.rend(); ++at) {
    if (at->evaluation.empty()) continue;
    for (const auto& [name, value] : at->evaluation) evaluation.add({{"metric", name}}, value);
    break;
  }
}

}  // namespace varda::aggregator
