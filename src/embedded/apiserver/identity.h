// Authentication, authorization and sessions of API clients.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "net/http.h"

namespace varda::apiserver {

struct Identity {
  std::string name;  // "varda-admin", "system:node:edge0"
  std::vector<std::string> groups;
  bool in(std::string_view group) const;
  /// NAME of "system:node:NAME" in the group system:nodes; else nullopt.
  std::optional<std::string> node() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};

/// Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;
  /// nullopt: the request proves no identity (401).
  virtual std::optional<Identity> authenticate(const net::Request& request) const = 0;
};

struct Token {
  std::string token;
  Identity identity;
  std::optional<WallTime> expires = {};  // nullopt: never
  bool expired(WallTime now) const { return expires && *expires <= now; }
};

/// Bearer tokens that have not expired. The object stores SHA-256 digests only and compares every
/// digest in constant time. `clock` outlives it.
std::unique_ptr<Authenticator> token_authenticator(const std::vector<Token>& tokens,
                                                   const Clock& clock = system_clock());

/// The refusal of a request outside the API that only administrators may make; nothing: allowed.
/// `caller` is absent if the request proves no identity. An impersonated request has the rights of
/// another user, and is refused. `action` ends the message: "take a backup".
std::optional<net::Response> refuse_unless_administrator(const net::Request& request,
                                                         const std::optional<Identity>& caller,
                                                         std::string_view action);

/// A request in the terms of Kubernetes' authorization.
struct Attributes {
  std::string verb;  // get list watch create update patch delete deletecollection; for other paths
                     // the lower-case method
  std::string group, version, resource, subresource, ns, name;
  std::string field_selector, label_selector;
  std::string path;  // of non-resource requests
  bool is_resource = false;
};

/// Thread-safe.
class Authorizer {
 public:
  /// Access to stored objects, for rules that depend on them; nullopt if absent. Resources by group
  /// and plural.
  struct Objects {
    std::function<std::optional<codec::Json>(std::string_view group, std::string_view plural,
                                             std::string_view ns, std::string_view name)>
        get;
    std::function<void(std::string_view group, std::string_view plural,
                       const std::function<void(const codec::Json&)>&)>
        each;
  };
  virtual ~Authorizer() = default;
  virtual bool allows(const Identity& caller, const Attributes& what,
                      const Objects& objects) const = 0;
  /// Checks an object before creation and may remove fields the client must not set. kForbidden,
  /// kInvalid: the message gives the reason. Default: allows it unchanged.
  virtual Status narrow_creation(const Identity&, const Attributes&, codec::Json&,
                                 const Objects&) const {
    return {};
  }
  /// The same check for an update or a patch of `old`.
  virtual Status narrow_change(const Identity&, const Attributes&, const codec::Json& /*old*/,
                               codec::Json& /*object*/, const Objects&) const {
    return {};
  }
};

/// The rules of docs/design/001:
///  - system:masters: everything.
///  - system:node:NAME: its EdgeNode, Node and Pods, objects these refer to, Events about these.
///    Secrets named only by the EdgeNode need a namespace labelled edgeai.io/edge-secrets=allow.
///  - every client: discovery, and reviews of the client's own identity.
/// The gateway admits the same writes of nodes (meta/node_writes.h).
std::unique_ptr<Authorizer> node_authorizer();

/// Notified when the first watch of an identity opens and when its last watch closes. Calls come
/// from the server's threads, one at a time, in the order of events. An observer must not block or
/// call the server.
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  virtual void opened(const Identity& caller) = 0;
  virtual void closed(const Identity& caller) = 0;
};

}  // namespace varda::apiserver
