#include "serving/handler.h"

#include <memory>
#include <utility>

#include "codec/json.h"
#include "oip/metadata.h"
#include "oip/route.h"

namespace varda::serving {
namespace {

using codec::Json;
using net::Request;
using net::Responder;
using net::Response;

Response text(int status, std::string body) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(body), nullptr};
}

Response json(int status, std::string body) { return {status, {{"Content-Type", "application/json"}}, std::move(body), nullptr}; }

Response failure(const Error& error) {
  Response out = json(oip::http_status(error.code()), oip::error_body(error.message()));
  if (error.code() == Code::kExhausted) out.headers.add("Retry-After", "1");
  return out;
}

double microseconds(Duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

// One inference request, from its bytes to its answer.
class InferJob final : public Job {
 public:
  InferJob(std::shared_ptr<ModelVersion> version, Request request, Responder responder, const oip::Limits& limits)
      : version_(std::move(version)),
        json_length_(request.headers.find(oip::kJsonLengthHeader)),
        body_(std::make_shared<const std::string>(std::move(request.body))),
        responder_(std::move(responder)),
        limits_(limits),
        arrived_(system_clock().now()) {}

  std::size_t bytes() const override { return body_->size(); }

  void run() override {
    const SteadyTime start = system_clock().now();
    VersionStats& stats = version_->stats();
    stats.queue_us.add(microseconds(start - arrived_));
    auto answer = infer(start - arrived_);
    if (answer.ok()) {
      stats.success.add();
    } else {
      stats.failure.add();
    }
    Response response = answer.ok() ? std::move(answer).value() : failure(answer.error());
    stats.request_us.add(microseconds(system_clock().now() - arrived_));
    responder_(std::move(response));
  }

  /// Answers without a run.
  void refuse(const Error& error) {
    version_->stats().failure.add();
    responder_(failure(error));
  }

 private:
  Result<Response> infer(Duration waited) {
    const auto queue_timeout = version_->config().queue_timeout;
    if (queue_timeout.count() > 0 && waited > queue_timeout) return late(waited);
    std::optional<std::string_view> length;
    if (json_length_) length = *json_length_;
    TRY(oip::InferRequest request, oip::parse_infer_request(body_, length, limits_));
    if (request.timeout && waited > *request.timeout) return late(waited);

    std::vector<std::string> names;
    std::vector<oip::Encoding> encodings;
    for (const oip::RequestedOutput& output : request.outputs) {
      names.push_back(output.name);
      encodings.push_back(output.encoding);
    }
    TRY(std::vector<tensor::Named> outputs, version_->run(request.inputs, names));
    if (encodings.empty()) encodings.assign(outputs.size(), request.encoding);
    oip::Message message =
        oip::write_infer_response({version_->model(), version_->version(), std::move(request.id), std::move(outputs)}, encodings);
    Response response{200, {{"Content-Type", std::string(message.content_type())}}, std::move(message.body), nullptr};
    if (message.json_length) response.headers.add(std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length));
    return response;
  }

  static Error late(Duration waited) {
    return Error(Code::kTimeout, "the request waited " +
                                     std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()) +
                                     " ms for an instance, longer than it may");
  }

  const std::shared_ptr<ModelVersion> version_;
  const std::optional<std::string> json_length_;
  const std::shared_ptr<const std::string> body_;
  Responder responder_;
  const oip::Limits& limits_;
  const SteadyTime arrived_;
};

class ModelServer {
 public:
  explicit ModelServer(const Service& service) : service_(service) {}

  void handle(Request request, Responder respond) const {
    const std::string_view path = request.path();
    const oip::RouteResult found = oip::parse_route(request.method, path);
    if (found.route && found.route->call == oip::Call::kModelInfer) {
      infer(*found.route, std::move(request), std::move(respond));
    } else if (found.route) {
      respond(answer(*found.route, request));
    } else if (found.wrong_method) {
      Response response =
          json(405, oip::error_body(request.method + " is not allowed here, " + found.wrong_method->allowed + " is"));
      response.headers.add("Allow", found.wrong_method->allowed);
      respond(std::move(response));
    } else if (path == "/healthz") {
      respond(text(200, "ok\n"));
    } else if (path == "/readyz") {
      respond(ready_text());
    } else {
      respond(json(404, oip::error_body("there is nothing at " + std::string(path))));
    }
  }

  void admin(const Request& request, Responder respond) const {
    const std::string_view path = request.path();
    if (path == "/metrics") {
      respond({200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, service_.registry.text(), nullptr});
    } else if (path == "/healthz") {
      respond(text(200, "ok\n"));
    } else if (path == "/readyz") {
      respond(ready_text());
    } else {
      respond(text(404, "there are /healthz, /readyz and /metrics\n"));
    }
  }

 private:
  // Why the server is not ready, or "".
  std::string_view not_ready() const {
    if (service_.draining.load()) return "the server is going away";
    if (!service_.repository.settled()) return "models are loading";
    return "";
  }

  Response ready_text() const {
    const std::string_view why = not_ready();
    return why.empty() ? text(200, "ok\n") : text(503, std::string(why) + "\n");
  }

  Response answer(const oip::Route& route, const Request& request) const {
    switch (route.call) {
      case oip::Call::kServerLive:
        return json(200, R"({"live":true})");
      case oip::Call::kServerReady:
        return not_ready().empty() ? json(200, R"({"ready":true})") : json(503, R"({"ready":false})");
      case oip::Call::kServerMetadata:
        return json(
            200, oip::write(oip::ServerMetadata{service_.server_name, VARDA_VERSION, {"binary_tensor_data", "model_repository"}}));
      case oip::Call::kModelMetadata: {
        const auto version = service_.repository.find(route.model, route.version);
        return version.ok() ? json(200, oip::write((*version)->metadata())) : failure(version.error());
      }
      case oip::Call::kModelReady:
        return model_ready(route);
      case oip::Call::kRepositoryIndex:
        return index(request);
      case oip::Call::kModelInfer:
        break;
    }
    return failure(Error(Code::kInternal, "no answer for this call"));
  }

  Response model_ready(const oip::Route& route) const {
    const auto version = service_.repository.find(route.model, route.version);
    if (!version.ok() && version.error().code() == Code::kNotFound) return failure(version.error());
    const bool draining = service_.draining.load();
    Json out = Json::object({{"name", route.model}, {"ready", version.ok() && !draining}});
    if (!version.ok()) out.set("reason", version.error().message());
    if (version.ok() && draining) out.set("reason", "the server is going away");
    return json(version.ok() && !draining ? 200 : 503, codec::write_json(out));
  }

  Response index(const Request& request) const {
    bool ready_only = false;
    if (!request.body.empty()) {
      const auto body = codec::parse_json(request.body);
      if (!body.ok()) return failure(body.error());
      ready_only = (*body)["ready"].as_bool();
    }
    std::vector<oip::IndexEntry> entries = service_.repository.index();
    if (ready_only) std::erase_if(entries, [](const oip::IndexEntry& entry) { return entry.state != "READY"; });
    return json(200, oip::write(entries));
  }

  void infer(const oip::Route& route, Request request, Responder respond) const {
    auto version = service_.repository.find(route.model, route.version);
    if (!version.ok()) return respond(failure(version.error()));
    // Kept here too: the job may be gone before submit() returns, and with it the last reference to the executor's owner.
    const std::shared_ptr<ModelVersion> keeper = *version;
    std::unique_ptr<Job> job = std::make_unique<InferJob>(keeper, std::move(request), std::move(respond), service_.limits);
    if (const auto status = keeper->executor().submit(job); !status.ok()) {
      static_cast<InferJob&>(*job).refuse(Error(status.error()).context("model \"" + route.model + "\""));
    }
  }

  const Service service_;
};

}  // namespace

net::Handler make_handler(const Service& service) {
  return [server = std::make_shared<const ModelServer>(service)](Request request, Responder respond) {
    server->handle(std::move(request), std::move(respond));
  };
}

net::Handler make_admin_handler(const Service& service) {
  return [server = std::make_shared<const ModelServer>(service)](Request request, Responder respond) {
    server->admin(request, std::move(respond));
  };
}

}  // namespace varda::serving
