#include "serving/handler.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/caught.h"
#include "codec/json.h"
#include "net/server.h"
#include "oip/metadata.h"
#include "oip/route.h"
#include "serving/inference.h"
#include "serving/joint/tiered_request.h"

namespace varda::serving {
namespace {

using codec::Json;
using net::Request;
using net::Responder;
using net::Response;

Response text(int status, std::string body) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(body), nullptr};
}

Response json(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body), nullptr};
}

double microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// The part of a request in the trial of a model.
struct TrialPart {
  enum class Role {
    kServing,   // the serving version answers
    kOnTrial,   // the version on trial answers
    kFallback,  // the version on trial has failed; the serving version answers
  };
  std::shared_ptr<trial::Trial> trial;  // null: none
  Role role = Role::kServing;
};

// One inference request, from its bytes to its answer.
class InferJob final : public Job {
 public:
  InferJob(std::shared_ptr<ModelVersion> version, TrialPart part,
           std::shared_ptr<const sampling::Plan> samples, InferCall call, Responder responder,
           const oip::Limits& limits)
      : version_(std::move(version)),
        part_(std::move(part)),
        samples_(std::move(samples)),
        call_(std::move(call)),
        responder_(std::move(responder)),
        limits_(limits) {}

  std::size_t bytes() const override { return call_.bytes(); }

  void waits(std::uint64_t place) override {
    // The handler's call, which alone may register a callback, may have ended.
    if (part_.role == TrialPart::Role::kFallback) return;
    // Weak: the connection's callback must not keep a replaced version alive.
    responder_.on_disconnect([weak_version = std::weak_ptr<ModelVersion>(version_), place] {
      const std::shared_ptr<ModelVersion> version = weak_version.lock();
      if (version == nullptr) return;
      if (const auto job = version->executor().withdraw(place)) version->stats().abandoned.add();
    });
  }

  void run() override {
    VersionStats& stats = version_->stats();
    const SteadyTime start = system_clock().now();
    stats.queue_us.add(microseconds(start - call_.arrived));
    const sampling::Plan* const samples = plan();
    auto inferred = infer(*version_, call_, reads(), limits_);
    const Duration took = system_clock().now() - start;
    const bool ran = inferred.ok();
    std::vector<tensor::Named> outputs, all;
    if (ran) outputs = inferred->outputs;  // copies share the bytes
    const bool counts_hard = part_.trial != nullptr && part_.trial->counts_hard_answers();
    if (ran && (samples != nullptr || counts_hard)) all = all_outputs(*inferred);
    if (!ran && samples != nullptr) sampling::note_failure(*samples, inferred.error().code());
    Response response = respond_with(std::move(inferred));
    if (part_.role == TrialPart::Role::kOnTrial && response.status != 200) return fall_back();
    (ran ? stats.success : stats.failure).add();
    stats.request_us.add(microseconds(system_clock().now() - call_.arrived));
    const int status = response.status;
    responder_(std::move(response));
    count(status, took, std::move(outputs), all);
    if (samples != nullptr && !all.empty())
      sampling::note_answer(samples_, {call_, std::move(all), {}});
  }

  /// Answers without running the model.
  void refuse(const Error& error) {
    if (part_.role == TrialPart::Role::kOnTrial) return fall_back();
    version_->stats().failure.add();
    if (plan() != nullptr) sampling::note_failure(*plan(), error.code());
    responder_(error_response(error));
    count(oip::http_status(error.code()), {}, {}, {});
  }

 private:
  // Hands the request to the serving version.
  void fall_back() {
    const std::shared_ptr<ModelVersion> serving = part_.trial->serving();
    InferCall call = call_;
    // The time that the version on trial took is no reason to refuse.
    call.arrived = system_clock().now();
    std::unique_ptr<Job> job =
        std::make_unique<InferJob>(serving, TrialPart{part_.trial, TrialPart::Role::kFallback},
                                   samples_, std::move(call), std::move(responder_), limits_);
    if (const auto status = serving->executor().submit(job); !status.ok()) {
      static_cast<InferJob&>(*job).refuse(
          Error(status.error()).context("model \"" + serving->model() + "\""));
    }
  }

  // After the answer, so that counts delay nothing.
  void count(int status, Duration took, std::vector<tensor::Named> outputs,
             const std::vector<tensor::Named>& all) {
    if (status != 200) {
      if (status == 400 || status == 404 || status == 501) return;  // the request is wrong
      version_->live().failed();
      if (part_.trial != nullptr) part_.trial->serving_failed();
      return;
    }
    version_->live().answered(took, outputs);
    if (part_.trial == nullptr) return;
    trial::Trial& trial = *part_.trial;
    if (part_.role == TrialPart::Role::kOnTrial) return trial.answered(took, outputs, all);
    // A request that both versions fail says nothing about the version on trial.
    if (part_.role == TrialPart::Role::kFallback) trial.failed();
    trial.serving_answered(took, outputs, all);
    if (trial.mode() == trial::Mode::kShadow)
      trial.runner().offer(part_.trial, call_, std::move(outputs), limits_);
  }

  // The plan fits the outputs of the serving version. Null: the request is not kept.
  const sampling::Plan* plan() const {
    return part_.role == TrialPart::Role::kOnTrial ? nullptr : samples_.get();
  }

  // A plan, bound to the serving version, reads what the policy of a trial reads.
  std::span<const std::string> reads() const {
    if (part_.role == TrialPart::Role::kOnTrial) return part_.trial->reads();
    const sampling::Plan* const samples = plan();
    return samples != nullptr ? std::span<const std::string>(samples->reads)
                              : std::span<const std::string>();
  }

  Response respond_with(Result<Inferred> inferred) const {
    if (!inferred.ok()) return error_response(inferred.error());
    try {
      return infer_response(version_->model(), version_->version(), std::move(inferred).value());
    } catch (...) {
      return error_response(caught_error());
    }
  }

  const std::shared_ptr<ModelVersion> version_;
  const TrialPart part_;
  const std::shared_ptr<const sampling::Plan> samples_;  // null: no request is kept
  const InferCall call_;
  Responder responder_;
  const oip::Limits limits_;
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
      Response response = json(405, oip::error_body(request.method + " is not allowed here, " +
                                                    found.wrong_method->allowed + " is"));
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
      respond({200,
               {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
               service_.registry.text(),
               nullptr});
    } else if (path == "/healthz") {
      respond(text(200, "ok\n"));
    } else if (path == "/readyz") {
      respond(ready_text());
    } else {
      respond(text(404, "there are /healthz, /readyz and /metrics\n"));
    }
  }

 private:
  // Why the server is not ready; "" if it is.
  std::string_view not_ready() const {
    if (service_.draining.load()) return "the server is shutting down";
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
        return not_ready().empty() ? json(200, R"({"ready":true})")
                                   : json(503, R"({"ready":false})");
      case oip::Call::kServerMetadata:
        return json(200, oip::write(server_metadata()));
      case oip::Call::kModelMetadata: {
        const auto version = service_.repository.find(route.model, route.version);
        return version.ok() ? json(200, oip::write((*version)->metadata()))
                            : error_response(version.error());
      }
      case oip::Call::kModelReady:
        return model_ready(route);
      case oip::Call::kRepositoryIndex:
        return index(request);
      case oip::Call::kModelJoint: {
        const auto reported = service_.repository.describe_tiers(route.model);
        return reported.ok() ? json(200, codec::write_json(*reported))
                             : error_response(reported.error());
      }
      case oip::Call::kModelTrial: {
        const auto reported = service_.repository.describe_trial(route.model);
        return reported.ok() ? json(200, codec::write_json(*reported))
                             : error_response(reported.error());
      }
      case oip::Call::kModelSamples: {
        const auto reported = service_.repository.describe_samples(route.model);
        return reported.ok() ? json(200, codec::write_json(*reported))
                             : error_response(reported.error());
      }
      case oip::Call::kModelInfer:
        break;
    }
    return error_response(Error(Code::kInternal, "no answer for this call"));
  }

  // Whether the endpoint answers: later tiers may answer while no local version is loaded.
  oip::ServerMetadata server_metadata() const {
    oip::ServerMetadata out{
        service_.server_name, VARDA_VERSION, {"binary_tensor_data", "model_repository"}};
    if (service_.confined) out.extensions.emplace_back("confined_files");
    return out;
  }

  Response model_ready(const oip::Route& route) const {
    const Repository::Serving serving = service_.repository.serving(route.model);
    const auto version = route.version.empty()
                             ? serving.version
                             : service_.repository.find(route.model, route.version);
    if (!version.ok() && version.error().code() == Code::kNotFound)
      return error_response(version.error());
    const bool others = route.version.empty() && serving.plan != nullptr &&
                        joint::later_tier_answers(*serving.plan);
    const bool draining = service_.draining.load();
    const bool ready = (version.ok() || others) && !draining;
    Json out = Json::object({{"name", route.model}, {"ready", ready}});
    if (draining) {
      out.set("reason", "the server is shutting down");
    } else if (!version.ok()) {
      out.set("reason", version.error().message());
    }
    return json(ready ? 200 : 503, codec::write_json(out));
  }

  Response index(const Request& request) const {
    bool ready_only = false;
    if (!request.body.empty()) {
      const auto body = codec::parse_json(request.body);
      if (!body.ok()) return error_response(body.error());
      ready_only = (*body)["ready"].as_bool();
    }
    std::vector<oip::IndexEntry> entries = service_.repository.index();
    if (ready_only)
      std::erase_if(entries, [](const oip::IndexEntry& entry) { return entry.state != "READY"; });
    return json(200, oip::write(entries));
  }

  void infer(const oip::Route& route, Request request, Responder respond) const {
    if (route.version.empty()) {
      Repository::Serving serving = service_.repository.serving(route.model);
      if (service_.joint != nullptr && serving.plan != nullptr) {
        return joint::begin(
            *service_.joint,
            {std::move(serving.plan), std::move(serving.samples), std::move(serving.version),
             InferCall::of(std::move(request), system_clock().now())},
            std::move(respond), service_.limits);
      }
      TrialPart part{std::move(serving.trial)};
      if (part.trial != nullptr && part.trial->mode() == trial::Mode::kCanary &&
          part.trial->takes_next()) {
        part.role = TrialPart::Role::kOnTrial;
        serving.version = part.trial->version();
      }
      return infer(std::move(serving.version), std::move(part), std::move(serving.samples),
                   std::move(request), std::move(respond));
    }
    infer(service_.repository.find(route.model, route.version), {}, nullptr, std::move(request),
          std::move(respond));
  }

  void infer(Result<std::shared_ptr<ModelVersion>> version, TrialPart part,
             std::shared_ptr<const sampling::Plan> samples, Request request,
             Responder respond) const {
    if (!version.ok()) return respond(error_response(version.error()));
    // Keeps the executor's owner alive: the job, with the last reference to the owner, may end
    // before submit() returns.
    const std::shared_ptr<ModelVersion> pinned = *version;
    std::unique_ptr<Job> job =
        std::make_unique<InferJob>(pinned, std::move(part), std::move(samples),
                                   InferCall::of(std::move(request), system_clock().now()),
                                   std::move(respond), service_.limits);
    if (const auto status = pinned->executor().submit(job); !status.ok()) {
      static_cast<InferJob&>(*job).refuse(
          Error(status.error()).context("model \"" + pinned->model() + "\""));
    }
  }

  const Service service_;
};

}  // namespace

std::size_t body_bytes_max_of(std::string_view method, std::string_view path,
                              std::size_t infer_bytes_max) {
  const oip::RouteResult found = oip::parse_route(method, path);
  const bool infers = found.route && found.route->call == oip::Call::kModelInfer;
  return infers ? infer_bytes_max
                : std::min(infer_bytes_max, net::Server::Options::kSmallBodyBytes);
}

net::Handler make_handler(const Service& service) {
  return
      [server = std::make_shared<const ModelServer>(service)](Request request, Responder respond) {
        server->handle(std::move(request), std::move(respond));
      };
}

net::Handler make_admin_handler(const Service& service) {
  return [server = std::make_shared<const ModelServer>(service)](
             Request request, Responder respond) { server->admin(request, std::move(respond)); };
}

}  // namespace varda::serving
