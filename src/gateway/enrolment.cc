#include "gateway/enrolment.h"

#include <atomic>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/job_node.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "gateway/caller.h"
#include "gateway/internal/allowance.h"
#include "gateway/join_secret.h"
#include "gateway/join_token.h"
#include "gateway/node_key.h"
#include "meta/status.h"

namespace varda::gateway {
namespace {

using codec::Json;

constexpr std::string_view kEnroll = "/gateway/v1/enroll";
constexpr std::string_view kRenew = "/gateway/v1/renew";
constexpr std::size_t kBodyBytesMax = 32 << 10;
constexpr int kEnrolmentAttempts = 8;  // if other writers change the token's Secret
constexpr auto kCleaningPeriod = std::chrono::hours(1);

net::Response answer(int status, const Json& body) {
  net::Response response;
  response.status = status;
  response.headers = {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}};
  response.body = codec::write_json(body);
  return response;
}

net::Response failure(int code, std::string reason, std::string message) {
  meta::ApiStatus status;
  status.code = code;
  status.reason = std::move(reason);
  status.message = std::move(message);
  status.details = false;
  return answer(code, status.to_json());
}

net::Response bad_request(const std::string& message) {
  return failure(400, "BadRequest", message);
}

/// Result of a request: the outcome for the counter, the reason for the log, and the answer.
struct Outcome {
  std::string name;  // "ok", "expired" ...
  std::string why;   // "": nothing to add
  std::string node;  // "": not known
  net::Response response;
};

// All reasons get the same answer, so guessing tokens or certificates reveals nothing.
Outcome refuse_token(std::string name, std::string node = "", std::string why = "") {
  return {std::move(name), std::move(why), std::move(node),
          failure(403, "Forbidden",
                  "the join token is not accepted; the gateway's log has the reason")};
}

// A caller that knows the shared secret may learn what keeps its node out.
Outcome refuse_node(std::string name, const std::string& node, const std::string& why) {
  return {std::move(name), why, node, failure(403, "Forbidden", why)};
}

Outcome refuse_certificate(std::string name, std::string node, std::string why) {
  return {std::move(name), std::move(why), std::move(node),
          failure(403, "Forbidden",
                  "the certificate is not accepted for renewal; the gateway's log has the reason")};
}

Outcome upstream_failed(const Error& error, std::string node = "") {
  net::Response response =
      failure(503, "ServiceUnavailable", "the gateway cannot reach its API server; try again");
  response.headers.add("Retry-After", "5");
  return {"unavailable", error.message(), std::move(node), std::move(response)};
}

bool is_name_of_node(const std::string& name) {
  return name.size() <= kNodeNameBytesMax && name != kGatewayName &&
         meta::check_dns_subdomain(name).empty();
}

/// The token's ID and the node of an enrolment, since nodes may share a token. "": no readable
/// token.
std::string tried(const net::Request& request) {
  if (request.path() != kEnroll || request.body.size() > kBodyBytesMax) return {};
  const auto body = codec::parse_json(request.body, {.depth_max = 8});
  if (!body.ok() || !body->is_object()) return {};
  const auto token = JoinToken::parse(std::as_const(*body)["token"].as_string());
  if (!token.ok()) return {};
  const std::string& node = std::as_const(*body)["node"].as_string();
  return token->id + (is_name_of_node(node) ? " node " + node : std::string());
}

/// A member that must be a non-empty string.
Result<std::string> text_of(const Json& body, const char* name) {
  const Json& value = body[name];
  if (!value.is_string() || value.as_string().empty())
    return Error(Code::kInvalid, std::string(name) + ": must be a string");
  return value.as_string();
}

}  // namespace

struct Enrolment::Impl {
  const kube::Client& upstream;
  const Authority& authority;
  const Options options;
  const Clock& clock;
  Mutex mutex;
  internal::Allowance failures GUARDED_BY(mutex), addresses GUARDED_BY(mutex);
  SteadyTime clean_after GUARDED_BY(mutex) = SteadyTime::min();

  Impl(const kube::Client& client, const Authority& ca, Options opts)
      : upstream(client),
        authority(ca),
        options(opts),
        clock(opts.clock != nullptr ? *opts.clock : system_clock()),
        failures({opts.failures_in_a_row, opts.failure_period, opts.remembered_max}),
        addresses(
            {opts.address_failures_in_a_row, opts.address_failure_period, opts.remembered_max}) {}

  /// Whether the node has an EdgeNode. kForbidden: the node is revoked. Other errors come from
  /// the read.
  Result<bool> check_admitted(const Context& ctx, const std::string& node) const {
    TRY(const std::optional<Json> edge_node,
        upstream.find(ctx, api::EdgeNode::resource(), {"", node}));
    if (edge_node && is_revoked(*edge_node)) {
      return Error(Code::kForbidden, "its EdgeNode has the annotation " +
                                         std::string(kRevokedAnnotation) + ": \"true\"");
    }
    return edge_node.has_value();
  }

  Outcome give(const std::string& node, Layer layer, const std::string& csr) const {
    auto certificate = authority.issue(node, layer, csr, clock.wall());
    if (!certificate.ok()) {
      log::error("cannot make a node's certificate",
                 {{"node", node}, {"error", certificate.error()}});
      return {"failed", certificate.error().message(), node,
              failure(500, "InternalError", "the certificate could not be created")};
    }
    Outcome outcome{"ok", "", node, {}};
    outcome.response = answer(200, Json::object({{"certificate", std::move(*certificate)},
                                                 {"ca", authority.ca_pem()},
                                                 {"node", node}}));
    return outcome;
  }

  Outcome enroll(const Context& ctx, const net::Peer& peer, const Json& body) {
    auto text = text_of(body, "token");
    auto csr = text_of(body, "csr");
    if (!text.ok())
      return {"invalid", text.error().message(), "", bad_request(text.error().message())};
    if (!csr.ok())
      return {"invalid", csr.error().message(), "", bad_request(csr.error().message())};
    // The CSR first: its errors reveal nothing about the token.
    const auto key = net::csr_key_sha256(*csr);
    if (!key.ok())
      return {"invalid", key.error().message(), "", bad_request("csr: " + key.error().message())};
    const auto token = JoinToken::parse(*text);
    if (!token.ok()) return refuse_token("malformed");
    // An agent of a Job names its node; the token is in the node's EdgeNode.
    if (const std::string& node = body["node"].as_string(); api::is_job_node(node))
      return enroll_job(ctx, *token, node, *csr);
    if (options.join_secret) {
      // A node's own token first: it works without the shared one.
      const auto own = find_join_token(ctx, upstream, token->id);
      if (own.ok() && !*own) {
        const auto shared = find_shared_join_token(ctx, upstream, *options.join_secret);
        // run_join_secret() reports a Secret without a readable token.
        if (!shared.ok() && shared.error().code() != Code::kCorrupt) {
          return upstream_failed(shared.error().context(
              "Secret " + options.join_secret->str() +
              " with the token that agents share (--join-secret needs the right to get it)"));
        }
        if (shared.ok() && *shared && (*shared)->token.id == token->id) {
          return enroll_agent(ctx, **shared, *token, body, *csr, *key);
        }
      }
    }
    return enroll_with_own_token(ctx, *token, *csr, *key, peer.address);
  }

  /// Enrols by a token for one node.
  Outcome enroll_with_own_token(const Context& ctx, const JoinToken& token, const std::string& csr,
                                const std::string& key, const std::string& address) const {
    for (int attempt = 1;; ++attempt) {
      auto stored = find_join_token(ctx, upstream, token.id);
      if (!stored.ok() && stored.error().code() == Code::kCorrupt) {
        return refuse_token("unreadable", "", stored.error().message());
      }
      if (!stored.ok()) return upstream_failed(stored.error());
      if (!*stored) return refuse_token("unknown", "", "ID " + token.id);
      const JoinTokenRecord& record = (*stored)->record;
      const std::string node = record.node;
      const Verdict verdict = judge(record, token, key, address, clock.wall());
      if (verdict == Verdict::kOtherNetwork) {
        return refuse_token(std::string(to_string(verdict)), node,
                            "ID " + token.id + " is for nodes from " + text_of(record.networks));
      }
      if (verdict != Verdict::kGood)
        return refuse_token(std::string(to_string(verdict)), node, "ID " + token.id);
      if (const auto admitted = check_admitted(ctx, node); !admitted.ok()) {
        if (admitted.error().code() != Code::kForbidden)
          return upstream_failed(admitted.error(), node);
        return refuse_token("node revoked", node, admitted.error().message());
      }
      // The token is marked used before the certificate is made: a later failure admits no second
      // key. The same key may ask again.
      if (record.used_by.empty()) {
        const Status used = use_join_token(ctx, upstream, std::move(**stored), key);
        const bool changed = !used.ok() && (used.error().code() == Code::kConflict ||
                                            used.error().code() == Code::kNotFound);
        if (changed && attempt < kEnrolmentAttempts) continue;
        if (!used.ok()) return upstream_failed(used.error(), node);
      }
      // The administrator's token overrides the remembered key: a node that lost its disk can
      // return.
      const Status set = set_node_key(ctx, upstream, node, key, record.layer);
      if (!set.ok()) return upstream_failed(set.error(), node);
      return give(node, record.layer, csr);
    }
  }

  /// Enrols the agent of a Job. The operator has put the digest of the token into the EdgeNode that
  /// lives as long as the run. Each pod of the run has another key, so none is remembered.
  Outcome enroll_job(const Context& ctx, const JoinToken& token, const std::string& node,
                     const std::string& csr) const {
    if (!is_name_of_node(node))
      return {"invalid", "node", "", bad_request("node: must be a valid node name")};
    const auto known = job_token(ctx, node);
    if (!known.ok()) {
      if (known.error().code() != Code::kForbidden) return upstream_failed(known.error(), node);
      return refuse_token("no job", node, known.error().message());
    }
    if (known->id != token.id ||
        !codec::same_secret(known->secret_sha256, codec::Sha256::of(token.secret).hex()))
      return refuse_token("wrong secret", node, "ID " + token.id);
    return give(node, Layer::kEdge, csr);
  }

  /// kForbidden: there is no such run, or its node is revoked. Other errors come from the read.
  Result<api::JobToken> job_token(const Context& ctx, const std::string& node) const {
    TRY(const std::optional<Json> object,
        upstream.find(ctx, api::EdgeNode::resource(), {"", node}));
    if (!object) return Error(Code::kForbidden, "there is no EdgeNode: the run has ended");
    if (is_revoked(*object)) return Error(Code::kForbidden, "its EdgeNode is revoked");
    TRY(const meta::ObjectMeta metadata, meta::ObjectMeta::from_json((*object)["metadata"]));
    auto token = api::job_token_of(metadata);
    if (!token)
      return Error(Code::kForbidden,
                   "its EdgeNode lacks the annotation " + std::string(api::kJobTokenAnnotation));
    return std::move(*token);
  }

  /// Enrols by the token that all agents share. The cluster must prove the identity that this token
  /// does not.
  Outcome enroll_agent(const Context& ctx, const SharedJoinToken& shared, const JoinToken& token,
                       const Json& body, const std::string& csr, const std::string& key) const {
    if (!codec::same_secret(shared.token.secret, token.secret))
      return refuse_token("wrong secret", "", "ID " + token.id);
    if (shared.revoked) return refuse_token("revoked", "", "ID " + token.id);
    const auto node_name = text_of(body, "node");
    if (!node_name.ok())
      return {"invalid", node_name.error().message(), "", bad_request(node_name.error().message())};
    const std::string& node = *node_name;
    if (!is_name_of_node(node))
      return {"invalid", "node", "", bad_request("node: must be a valid node name")};
    const auto has_edge_node = check_admitted(ctx, node);
    if (!has_edge_node.ok()) {
      const Error& admitted = has_edge_node.error();
      if (admitted.code() != Code::kForbidden) return upstream_failed(admitted, node);
      return refuse_node("node revoked", node,
                         "node \"" + node + "\" is revoked: " + admitted.message());
    }
    const auto why = why_no_agent(ctx, upstream, options.join_secret->ns, node);
    if (!why.ok()) return upstream_failed(why.error(), node);
    if (!why->empty()) return refuse_node("no agent there", node, *why);
    // The key is remembered before the certificate is made: a later failure admits no second key.
    // The same key may ask again. A node with an EdgeNode enrolled before. If no key of that node
    // is remembered, its name is not free for the first caller.
    const auto claim =
        claim_node_key(ctx, upstream, node, key, {.be_first = !*has_edge_node, .follow = true});
    if (!claim.ok()) return upstream_failed(claim.error(), node);
    const std::string name = "node \"" + node + "\"";
    switch (*claim) {
      case KeyClaim::kIsTheNodes: {
        const auto layer = layer_of_node(ctx, upstream, node);
        return layer.ok() ? give(node, *layer, csr) : upstream_failed(layer.error(), node);
      }
      case KeyClaim::kIsAnother:
        return refuse_node(
            "another key", node,
            name +
                " has enrolled with another key before. If its data directory was lost, or the "
                "machine " +
                "replaced, `varda join-token --forget " + node +
                "` admits the new one; otherwise another machine impersonates the node");
      case KeyClaim::kIsForgotten:
        return refuse_node(
            "forgotten key", node,
            "this key of " + name +
                " was forgotten, so the shared token of agents no longer admits it. " +
                "If this is the true node, create a token for it: `varda join-token --node " +
                node + "`");
      case KeyClaim::kIsUnknown:
        break;
    }
    return refuse_node("no key remembered", node,
                       name +
                           " has an EdgeNode but no recorded key: the node joined before keys were "
                           "recorded, or without enrolment. " +
                           "If its data directory was lost, `varda join-token --forget " + node +
                           "` admits the new key");
  }

  Outcome renew(const Context& ctx, const net::Peer& peer, const Json& body) const {
    const WallTime now = clock.wall();
    const auto caller = caller_of(peer, now);
    if (!caller.ok() && caller.error().code() == Code::kUnauthenticated) {
      return {"no certificate", "", "", failure(401, "Unauthorized", caller.error().message())};
    }
    if (!caller.ok()) return refuse_certificate("not a node's", peer.certificate_common_name, "");
    const std::string& node = caller->node;
    if (peer.certificate_not_after + kRenewalGrace <= now) {
      return refuse_certificate("too late", node,
                                "it ended at " + meta::format_time(peer.certificate_not_after) +
                                    "; a new join token admits the node again");
    }
    auto csr = text_of(body, "csr");
    if (!csr.ok())
      return {"invalid", csr.error().message(), node, bad_request(csr.error().message())};
    const auto key = net::csr_key_sha256(*csr);
    if (!key.ok())
      return {"invalid", key.error().message(), node, bad_request("csr: " + key.error().message())};
    if (const auto admitted = check_admitted(ctx, node); !admitted.ok()) {
      if (admitted.error().code() != Code::kForbidden)
        return upstream_failed(admitted.error(), node);
      return refuse_certificate("node revoked", node, admitted.error().message());
    }
    if (api::is_job_node(node)) {
      const auto known = job_token(ctx, node);
      if (known.ok()) return give(node, Layer::kEdge, *csr);
      if (known.error().code() != Code::kForbidden) return upstream_failed(known.error(), node);
      return refuse_certificate("no job", node, known.error().message());
    }
    // A node that enrolled before keys were remembered has its key remembered at the first renewal.
    // After a forgotten key no renewal sets one: the forgotten node itself could ask.
    const auto claim =
        claim_node_key(ctx, upstream, node, *key, {.be_first = true, .follow = false});
    if (!claim.ok()) return upstream_failed(claim.error(), node);
    if (*claim == KeyClaim::kIsTheNodes) {
      const auto layer = layer_of_node(ctx, upstream, node);
      if (!layer.ok()) return upstream_failed(layer.error(), node);
      // A certificate without a layer gets the layer on record. A certificate with another layer is
      // not renewed: an administrator moved the node.
      if (caller->layer) {
        if (const Status same = check_layer(*caller, *layer); !same.ok()) {
          return refuse_node("another layer", node, same.error().message());
        }
      }
      return give(node, *layer, *csr);
    }
    // The caller has shown the node's certificate, so it may learn the reason.
    const bool another = *claim == KeyClaim::kIsAnother;
    return refuse_node(
        another ? "another key" : "forgotten key", node,
        "the certificate is not renewed: " +
            (another ? "node \"" + node + "\" has another key now"
                     : "this key of node \"" + node + "\" was forgotten") +
            ". If this is the true node, a join token for this node admits it again");
  }

  Outcome serve(const Context& ctx, const net::Request& request) {
    if (request.method != "POST") {
      net::Response response = failure(405, "MethodNotAllowed", "this path accepts POST only");
      response.headers.add("Allow", "POST");
      return {"invalid", "method", "", std::move(response)};
    }
    if (request.body.size() > kBodyBytesMax) {
      return {"invalid", "body of " + std::to_string(request.body.size()) + " bytes", "",
              failure(413, "RequestEntityTooLarge",
                      "the body has more than " + std::to_string(kBodyBytesMax) + " bytes")};
    }
    auto body = codec::parse_json(request.body, {.depth_max = 8});
    if (!body.ok() || !body->is_object())
      return {"invalid", "body", "", bad_request("the body is not a JSON object")};
    const Context limited = ctx.with_timeout(options.upstream_timeout);
    return request.path() == kEnroll ? enroll(limited, request.peer, *body)
                                     : renew(limited, request.peer, *body);
  }

  /// Removes old tokens, at most once an hour. A token without users causes no requests, so
  /// successful enrolments do this.
  void clean(const Context& ctx) EXCLUDES(mutex) {
    {
      const MutexLock lock(mutex);
      if (clock.now() < clean_after) return;
      clean_after = clock.now() + kCleaningPeriod;
    }
    auto removed =
        remove_old_join_tokens(ctx.with_timeout(options.upstream_timeout), upstream, clock.wall());
    if (!removed.ok()) {
      log::warn("cannot remove old join tokens", {{"error", removed.error()}});
    } else if (*removed > 0) {
      log::info("removed old join tokens", {{"count", *removed}});
    }
  }
};

Enrolment::Enrolment(const kube::Client& upstream, const Authority& authority, Options options)
    : impl_(std::make_unique<Impl>(upstream, authority, options)) {}
Enrolment::~Enrolment() = default;

bool Enrolment::is_for(const net::Request& request) {
  return request.path() == kEnroll || request.path() == kRenew;
}

std::optional<net::Response> Enrolment::handle(const Context& ctx, const net::Request& request) {
  if (!is_for(request)) return std::nullopt;
  const std::string what = request.path() == kEnroll ? "enroll" : "renew";
  const std::string& address = request.peer.address;
  // Failures count per certificate and address, or else per token and address. So one machine that
  // retries an old token does not lock out its site. Clients can invent IDs, so an address without
  // a certificate has a limit too. A certificate of a former key still has the node's name. The
  // address in the limit keeps such a certificate from blocking the node.
  const std::string& name = request.peer.certificate_common_name;
  const std::string host = internal::address_of(address);
  std::string caller = "node " + name + " at " + host;
  std::chrono::milliseconds wait{0};
  if (name.empty()) {
    const MutexLock lock(impl_->mutex);
    wait = impl_->addresses.wait(host, impl_->clock.now());
  }
  if (wait.count() == 0) {
    if (name.empty()) caller = host + " token " + tried(request);
    const MutexLock lock(impl_->mutex);
    wait = impl_->failures.wait(caller, impl_->clock.now());
  }
  Outcome outcome;
  if (wait.count() > 0) {
    outcome = {"too many failures", "", "",
               failure(429, "TooManyRequests", "too many failures; wait")};
    outcome.response.headers.add(
        "Retry-After", std::to_string(std::chrono::ceil<std::chrono::seconds>(wait).count()));
  } else {
    outcome = impl_->serve(ctx, request);
    const bool refused = outcome.response.status >= 400 && outcome.response.status < 500;
    if (refused) {
      const MutexLock lock(impl_->mutex);
      impl_->failures.spend(caller, impl_->clock.now());
      if (name.empty()) impl_->addresses.spend(host, impl_->clock.now());
    }
    // Requests that get 429 are not logged. Each examined failure has one line.
    if (refused) {
      log::warn("enrolment refused", {{"request", what},
                                      {"reason", outcome.name},
                                      {"node", outcome.node},
                                      {"peer", address},
                                      {"detail", outcome.why}});
    } else if (outcome.response.status >= 500) {
      log::error(
          "enrolment failed",
          {{"request", what}, {"node", outcome.node}, {"peer", address}, {"detail", outcome.why}});
    } else {
      log::info(what == "enroll" ? "enrolled a node" : "renewed a node's certificate",
                {{"node", outcome.node}, {"peer", address}});
      if (what == "enroll") impl_->clean(ctx);
    }
  }
  if (impl_->options.metrics) {
    impl_->options.metrics
        ->counter("varda_gateway_enrolments_total", "Certificate requests by request and outcome.",
                  {{"request", what}, {"outcome", outcome.name}})
        .add();
  }
  return std::move(outcome.response);
}

}  // namespace varda::gateway
