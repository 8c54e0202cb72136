#include "agent/workers/api.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "agent/workers/answers.h"
#include "base/log.h"
#include "net/url.h"

namespace varda::agent::workers {
namespace {

using codec::Json;
using net::Request;
using net::Response;

constexpr std::string_view kAssignment = "/v1/assignment", kRegister = "/v1/register",
                           kProgress = "/v1/progress", kMetrics = "/v1/metrics",
                           kResults = "/v1/results/", kArtifacts = "/v1/artifacts/",
                           kStreams = "/v1/streams/";
constexpr std::size_t kAllowancesMax = 2 * Manager::kWorkersMax;

/// Request name for metrics and logs, such as "assignment". Unknown paths are "other".
std::string_view name_of(const Request& request) {
  for (const std::string_view path : {kAssignment, kRegister, kProgress, kMetrics})
    if (request.path() == path) return path.substr(4);
  if (request.path().starts_with(kArtifacts)) return "artifacts";
  if (request.path().starts_with(kStreams)) return "streams";
  return request.path().starts_with(kResults) ? "results" : "other";
}

}  // namespace

bool Allowance::take(SteadyTime now) {
  if (filled_)
    left_ =
        std::min(rate_.burst,
                 left_ + rate_.per_second * std::chrono::duration<double>(now - *filled_).count());
  filled_ = now;
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> all{
      {"GET", "/v1/assignment"},        {"POST", "/v1/register"},
      {"PUT", "/v1/progress"},          {"PUT", "/v1/metrics"},
      {"PUT", "/v1/results/{name}"},    {"PUT", "/v1/artifacts/{name}"},
      {"HEAD", "/v1/artifacts/{name}"}, {"GET", "/v1/streams/{name}"}};
  return all;
}

Api::Api(Options options, Manager& manager)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      manager_(manager),
      unauthenticated_(options_.unauthenticated),
      pool_({.threads = 2, .queue_max = 256}) {}

net::Handler Api::handler() {
  return [this](Request request, net::Responder respond) {
    // Shared, because later answers are stored in copyable functions.
    auto responder = std::make_shared<net::Responder>(std::move(respond));
    const std::string_view name = name_of(request);
    answer(request, [this, responder, name](Response response) {
      count(name, response.status);
      (*responder)(std::move(response));
    });
  };
}

void Api::count(std::string_view request, int status) {
  if (options_.metrics == nullptr) return;
  options_.metrics
      ->counter("varda_agent_worker_requests_total",
                "Requests of workers by request and status code.",
                {{"request", std::string(request)}, {"code", std::to_string(status)}})
      .add();
}

void Api::log_refusal(const std::string& worker, std::string_view request,
                      const Response& response) {
  if (response.status >= 500) return;  // server errors are logged at their source
  std::string message;
  if (response.status >= 400) {
    const auto body = codec::parse_json(response.body);
    message = body.ok() ? (*body)["message"].as_string() : response.body;
  }
  {
    const MutexLock lock(mutex_);
    const auto known = allowances_.find(worker);
    if (known == allowances_.end() ||
        !known->second.complaints[request].should_log(message, clock_.now()))
      return;
  }
  log::warn(
      "worker request rejected",
      {{"worker", worker}, {"request", request}, {"status", response.status}, {"error", message}});
}

std::optional<Error> Api::over_limit(const Manager::Caller& caller, bool writes) {
  const MutexLock lock(mutex_);
  const SteadyTime now = clock_.now();
  if (allowances_.size() >= kAllowancesMax && !allowances_.contains(caller.name.key()))
    allowances_.clear();
  auto& own =
      allowances_
          .try_emplace(
              caller.name.key(),
              Allowances{caller.uid, Allowance(options_.requests), Allowance(options_.writes), {}})
          .first->second;
  if (own.uid != caller.uid)
    own = {caller.uid, Allowance(options_.requests), Allowance(options_.writes), {}};
  if (own.requests.take(now) && (!writes || own.writes.take(now))) return std::nullopt;
  const auto& rate = writes ? options_.writes : options_.requests;
  return Error(Code::kUnavailable,
               "worker " + caller.name.key() + " sends too many requests: at most " +
                   std::to_string(static_cast<int>(rate.per_second)) + " a second" +
                   (writes ? " of registrations and results" : ""));
}

void Api::answer(const Request& request, const Reply& respond) {
  const auto token = bearer(request);
  const auto caller = token ? manager_.find_by_token(*token) : std::nullopt;
  if (!caller) {
    {
      const MutexLock lock(mutex_);
      if (!unauthenticated_.take(clock_.now()))
        return respond(problem(429, "TooManyRequests", "too many requests without a valid token"));
    }
    return respond(problem(
        401, "Unauthorized",
        token ? "no worker of this node has that token: read the file again, because the token may "
                "have been replaced"
              : "expected Authorization: Bearer TOKEN, with the token in the worker's file"));
  }
  const Reply reply = [this, respond, worker = caller->name.key(),
                       name = name_of(request)](Response response) {
    log_refusal(worker, name, response);
    respond(std::move(response));
  };
  const std::string_view path = request.path();
  if (path.starts_with(kArtifacts)) {
    if (const auto over = over_limit(*caller, /*writes=*/false))
      return reply(problem(429, "TooManyRequests", over->message()));
    if (request.method == "HEAD") {
      Response found = find_artifact(*caller, std::string(path.substr(kArtifacts.size())));
      // A worker asks before each upload, and a missing file is the usual answer.
      const bool usual = found.status == 404;
      return (usual ? respond : reply)(std::move(found));
    }
    Response response = problem(405, "MethodNotAllowed", "this path takes PUT and HEAD only");
    response.headers.add("Allow", "PUT, HEAD");
    return reply(std::move(response));
  }
  if (path.starts_with(kStreams)) {
    if (const auto over = over_limit(*caller, /*writes=*/false))
      return reply(problem(429, "TooManyRequests", over->message()));
    return open_stream(*caller, request, reply);
  }
  const bool result = path.starts_with(kResults) && path.size() > kResults.size();
  std::string_view method;
  for (const Route& route : routes())
    if (route.path == path || (result && route.path.starts_with(kResults))) method = route.method;
  const bool writes = request.method == method && (result || path == kRegister);
  if (const auto over = over_limit(*caller, writes))
    return reply(problem(429, "TooManyRequests", over->message()));
  if (method.empty()) {
    std::string known;
    for (const Route& route : routes())
      known +=
          (known.empty() ? "" : ", ") + std::string(route.method) + " " + std::string(route.path);
    return reply(problem(404, "NotFound", "no such path; paths are " + known));
  }
  if (request.method != method) {
    Response response =
        problem(405, "MethodNotAllowed", "this path takes " + std::string(method) + " only");
    response.headers.add("Allow", std::string(method));
    return reply(std::move(response));
  }
  if (path == kAssignment) return get_assignment(*caller, request, reply);
  if (!request.query().empty())
    return reply(problem(400, "BadRequest", "this path accepts no parameters"));
  if (request.body.size() > kBodyBytesMax)
    return reply(problem(413, "RequestEntityTooLarge",
                         "the body has " + std::to_string(request.body.size()) + " bytes, and " +
                             std::to_string(kBodyBytesMax) + " are allowed"));
  put(*caller, request, reply);
}

Json Api::body_of(const Manager::Assignment& assignment) const {
  return Json::object({{"worker", assignment.key},
                       {"uid", assignment.uid},
                       {"owner", assignment.owner},
                       {"node", options_.node_name},
                       {"revision", assignment.revision},
                       {"assignment", assignment.assignment}});
}

void Api::get_assignment(const Manager::Caller& caller, const Request& request,
                         const Reply& reply) {
  std::string after;
  int seconds = kTimeoutSecondsDefault;
  const net::Query query = net::Query::parse(request.query());
  for (const auto& [name, value] : query.all()) {
    if (name == "after") {
      after = value;
    } else if (name == "timeoutSeconds") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
      if (error != std::errc() || end != value.data() + value.size() || seconds < 0 ||
          seconds > kTimeoutSecondsMax)
        return reply(problem(400, "BadRequest",
                             "timeoutSeconds: expected a whole number from 0 to " +
                                 std::to_string(kTimeoutSecondsMax)));
    } else {
      return reply(problem(400, "BadRequest", "unknown parameter, expected after, timeoutSeconds"));
    }
  }
  manager_.assignment(caller, after, std::chrono::seconds(seconds),
                      [this, reply](Result<Manager::Assignment> now) {
                        reply(now.ok() ? json_response(200, body_of(*now)) : problem(now.error()));
                      });
}

void Api::open_stream(const Manager::Caller& caller, const Request& request, const Reply& reply) {
  if (request.method != "GET") {
    Response response = problem(405, "MethodNotAllowed", "this path takes GET only");
    response.headers.add("Allow", "GET");
    return reply(std::move(response));
  }
  if (!request.query().empty())
    return reply(problem(400, "BadRequest", "this path accepts no parameters"));
  if (!net::wants_upgrade(request, net::kStreamProtocol)) {
    Response response =
        problem(426, "UpgradeRequired",
                "expected Connection: Upgrade and Upgrade: " + std::string(net::kStreamProtocol));
    response.headers.add("Upgrade", std::string(net::kStreamProtocol));
    return reply(std::move(response));
  }
  if (options_.streams == nullptr)
    return reply(problem(503, "ServiceUnavailable", "this agent forwards no streams"));
  options_.streams->open(caller.name.key(), caller.uid,
                         std::string(request.path().substr(kStreams.size())),
                         [reply](Result<Streams::Start> start) {
                           if (start.ok())
                             return reply(net::upgrade_response(net::kStreamProtocol, *start));
                           if (start.error().code() == Code::kNotFound)
                             return reply(problem(404, "NotFound", start.error().message()));
                           reply(problem(start.error()));
                         });
}

void Api::put(const Manager::Caller& caller, const Request& request, const Reply& reply) {
  const std::string_view path = request.path();
  if (path == kProgress || path == kMetrics) {
    auto message = path == kProgress ? read_progress(request.body) : read_metrics(request.body);
    if (!message.ok()) return reply(problem(message.error()));
    const Status done = path == kProgress ? manager_.put_progress(caller, std::move(*message))
                                          : manager_.put_metrics(caller, std::move(*message));
    return reply(
        done.ok() ? acknowledgement(path == kProgress ? "progress" : "metrics", /*durable=*/false)
                  : problem(done.error()));
  }
  if (path == kRegister) {
    auto message = read_registration(caller.name, request.body);
    if (!message.ok()) return reply(problem(message.error()));
    return manager_.put_registration(
        caller, std::move(*message), [this, caller, reply](const Status& done) {
          if (!done.ok()) return reply(problem(done.error()));
          manager_.assignment(
              caller, "", Duration::zero(), [this, reply](Result<Manager::Assignment> now) {
                reply(now.ok() ? json_response(200, body_of(*now)) : problem(now.error()));
              });
        });
  }
  const std::string name(path.substr(kResults.size()));
  if (const std::string wrong = check_result_name(name); !wrong.empty())
    return reply(problem(400, "BadRequest", wrong));
  auto message = read_result(caller.name, request.body);
  if (!message.ok()) return reply(problem(message.error()));
  manager_.put_result(caller, name, std::move(*message), [reply, name](const Status& done) {
    reply(done.ok() ? acknowledgement("results/" + name, /*durable=*/true) : problem(done.error()));
  });
}

}  // namespace varda::agent::workers
