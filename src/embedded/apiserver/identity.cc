#include "apiserver/identity.h"

#include <algorithm>

#include "base/text.h"
#include "codec/digest.h"
#include "meta/node_writes.h"
#include "meta/references.h"

namespace varda::apiserver {

using codec::Json;

bool Identity::in(std::string_view group) const {
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

std::optional<std::string> Identity::node() const {
  constexpr std::string_view kPrefix = "system:node:";
  if (!in("system:nodes") || !name.starts_with(kPrefix) || name.size() == kPrefix.size())
    return std::nullopt;
  return name.substr(kPrefix.size());
}

namespace {

class TokenAuthenticator : public Authenticator {
 public:
  TokenAuthenticator(const std::vector<Token>& tokens, const Clock& clock) : clock_(clock) {
    for (const Token& token : tokens) {
      if (token.token.empty()) continue;
      known_.push_back(token);
      known_.back().token = codec::Sha256::of(token.token).hex();
    }
  }

  std::optional<Identity> authenticate(const net::Request& request) const override {
    const auto header = request.headers.find("Authorization");
    constexpr std::string_view kBearer = "Bearer ";
    if (!header || header->size() <= kBearer.size()) return std::nullopt;
    if (!starts_ignoring_case(*header, kBearer)) return std::nullopt;
    const std::string digest = codec::Sha256::of(header->substr(kBearer.size())).hex();
    const Token* found = nullptr;
    for (const Token& one : known_) {  // compares all, so that every token takes equal time
      if (codec::same_secret(one.token, digest)) found = &one;
    }
    if (found == nullptr || found->expired(clock_.wall())) return std::nullopt;
    Identity identity = found->identity;
    identity.groups.push_back("system:authenticated");
    return identity;
  }

 private:
  const Clock& clock_;
  std::vector<Token> known_;  // `token` holds the digest
};

bool reads(std::string_view verb) { return verb == "get" || verb == "list" || verb == "watch"; }

bool is_discovery(std::string_view path) {
  for (const std::string_view root :
       {"/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz"}) {
    if (path == root || (path.starts_with(root) && path[root.size()] == '/')) return true;
  }
  return false;
}

// The requests of `kubectl auth can-i` and `kubectl auth whoami`.
bool reviews_own_access(const Attributes& what) {
  return what.verb == "create" && what.subresource.empty() &&
         ((what.group == "authentication.k8s.io" && what.resource == "selfsubjectreviews") ||
          (what.group == "authorization.k8s.io" && (what.resource == "selfsubjectaccessreviews" ||
                                                    what.resource == "selfsubjectrulesreviews")));
}

class NodeAuthorizer : public Authorizer {
 public:
  bool allows(const Identity& caller, const Attributes& what,
              const Objects& objects) const override {
    if (caller.in("system:masters")) return true;
    if (!what.is_resource) {
      if (what.verb != "get" && what.verb != "head") return false;
      // Kubernetes lets this group scrape metrics.
      return is_discovery(what.path) || (what.path == "/metrics" && caller.in("system:monitoring"));
    }
    if (reviews_own_access(what)) return true;
    const auto node = caller.node();
    if (!node) return false;
    return allows_node(*node, what, objects);
  }

  Status narrow_creation(const Identity& caller, const Attributes& what, Json& object,
                         const Objects& objects) const override {
    const auto node = caller.in("system:masters") ? std::nullopt : caller.node();
    if (!node) return {};
    if (what.resource == "nodes") {
      TRY(object, meta::own_object(*node, {"", "v1", "Node", "nodes", false}, object));
    } else if (what.resource == "edgenodes") {
      TRY(object, meta::own_object(
                      *node, {what.group, what.version, "EdgeNode", "edgenodes", false}, object));
    } else if (what.resource == "events") {
      TRY_VOID(meta::own_event(what.ns, object));
      return check_about(*node, object, objects);
    }
    return {};
  }

  Status narrow_change(const Identity& caller, const Attributes& what, const Json& old,
                       Json& object, const Objects& objects) const override {
    const auto node = caller.in("system:masters") ? std::nullopt : caller.node();
    if (!node) return {};
    if (what.resource == "events") {
      TRY_VOID(check_about(*node, old, objects));
      return meta::only_event_counted(old, object);
    }
    TRY_VOID(meta::only_status_changed(old, object));
    if (what.resource != "edgenodes") return {};
    // A node must not report its own reachability.
    for (const char* member : {"conditions", "lastSeen"}) {
      Json* const status = object.find("status");
      if (const Json* const before = old["status"].find(member)) {
        object.make("status").set(member, *before);
      } else if (status != nullptr && status->is_object()) {
        status->erase(member);
      }
    }
    return {};
  }

 private:
  static bool allows_node(const std::string& node, const Attributes& what, const Objects& objects) {
    const std::string& sub = what.subresource;
    const bool own = what.name == node;
    if (what.group == "edgeai.io" && what.resource == "edgenodes") {
      if (what.verb == "create") return sub.empty();
      if (!own) return false;
      if (reads(what.verb)) return sub.empty() || sub == "status";
      return sub == "status" && (what.verb == "update" || what.verb == "patch");
    }
    if (what.group.empty() && what.resource == "nodes") {
      if (what.verb == "create") return sub.empty();
      if (!own) return false;
      if (reads(what.verb)) return sub.empty() || sub == "status";
      return sub == "status" && (what.verb == "update" || what.verb == "patch");
    }
    if (what.group.empty() && what.resource == "pods") return allows_pod(node, what, objects);
    if (what.group.empty() && (what.resource == "secrets" || what.resource == "configmaps")) {
      if (what.verb != "get" || !sub.empty() || what.name.empty()) return false;
      return refers(node, what, objects) ||
             (what.resource == "secrets" && downloads_with(node, what, objects));
    }
    if (what.group.empty() && what.resource == "events")
      return sub.empty() && (what.verb == "create" || what.verb == "patch");
    return false;
  }

  /// Checks that the event is about the node itself or a pod on the node.
  static Status check_about(const std::string& node, const Json& event, const Objects& objects) {
    const auto about = meta::Involved::of(event);
    if (about.is_node(node)) return {};
    const auto pod = about.is_pod() ? objects.get("", "pods", about.ns, about.name) : std::nullopt;
    if (pod && pod->at("spec/nodeName").as_string() == node) return {};
    return Error(Code::kForbidden, "involvedObject: must be the node or one of its pods");
  }

  static bool allows_pod(const std::string& node, const Attributes& what, const Objects& objects) {
    if (what.verb == "list" || what.verb == "watch") {
      // The selector must include the node's own pods; further terms only narrow it.
      const std::string term = "spec.nodeName=" + node;
      std::string_view remaining = what.field_selector;
      while (!remaining.empty()) {
        const std::string_view one = remaining.substr(0, remaining.find(','));
        if (one == term) return true;
        remaining.remove_prefix(std::min(one.size() + 1, remaining.size()));
      }
      return false;
    }
    const bool writes_status =
        what.subresource == "status" && (what.verb == "update" || what.verb == "patch");
    const bool plain_get =
        what.verb == "get" && (what.subresource.empty() || what.subresource == "status");
    const bool removes = what.verb == "delete" && what.subresource.empty();
    if (!writes_status && !plain_get && !removes) return false;
    const auto pod = objects.get("", "pods", what.ns, what.name);
    // A node may get or delete an absent pod: the answer is 404.
    if (!pod) return plain_get || removes;
    if (pod->at("spec/nodeName").as_string() != node) return false;
    return !removes || !pod->at("metadata/deletionTimestamp").is_null();
  }

  // True if a pod of the node uses that Secret or ConfigMap.
  static bool refers(const std::string& node, const Attributes& what, const Objects& objects) {
    bool found = false;
    objects.each("", "pods", [&](const codec::Json& pod) {
      if (found || pod.at("spec/nodeName").as_string() != node ||
          pod.at("metadata/namespace").as_string() != what.ns)
        return;
      found = meta::pod_uses(pod, what.resource, what.name);
    });
    return found;
  }

  // True if the node's EdgeNode names that Secret as archive credentials and the namespace allows
  // Secrets on edge nodes.
  static bool downloads_with(const std::string& node, const Attributes& what,
                             const Objects& objects) {
    const auto ns = objects.get("", "namespaces", "", what.ns);
    if (!ns ||
        ns->at("metadata/labels")[meta::kEdgeSecretsLabel].as_string() != meta::kEdgeSecretsAllow)
      return false;
    const auto edge_node = objects.get("edgeai.io", "edgenodes", "", node);
    return edge_node && meta::edge_node_uses(*edge_node, {what.ns, what.name});
  }
};

}  // namespace

std::unique_ptr<Authenticator> token_authenticator(const std::vector<Token>& tokens,
                                                   const Clock& clock) {
  return std::make_unique<TokenAuthenticator>(tokens, clock);
}

std::unique_ptr<Authorizer> node_authorizer() { return std::make_unique<NodeAuthorizer>(); }

std::optional<net::Response> refuse_unless_administrator(const net::Request& request,
                                                         const std::optional<Identity>& caller,
                                                         std::string_view action) {
  if (!caller) return net::Response{.status = 401, .body = "Unauthorized\n"};
  if (!caller->in("system:masters")) {
    return net::Response{.status = 403,
                         .body = "only administrators may " + std::string(action) + "\n"};
  }
  for (const auto& [name, value] : request.headers.all()) {
    if (!starts_ignoring_case(name, "Impersonate-")) continue;
    return net::Response{.status = 403,
                         .body = "impersonated requests may not " + std::string(action) + "\n"};
  }
  return std::nullopt;
}

}  // namespace varda::apiserver
