// Who asks the API server, how it is told, and what it may do.
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
  /// NAME of "system:node:NAME" in the group system:nodes; else nothing.
  std::optional<std::string> node() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};

/// Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;
  /// Nothing: the request proves no identity (401).
  virtual std::optional<Identity> authenticate(const net::Request& request) const = 0;
};

struct Token {
  std::string token;
  Identity identity;
  std::optional<WallTime> expires = {};  // nothing: never
  bool expired(WallTime now) const { return expires && *expires <= now; }
};

/// Bearer tokens that have not expired. Only their SHA-256 is kept, and every one is compared in constant time. `clock` outlives
/// it.
std::unique_ptr<Authenticator> token_authenticator(const std::vector<Token>& tokens, const Clock& clock = system_clock());

/// What a request wants, in the words of Kubernetes' authorization.
struct Attributes {
  std::string verb;  // get list watch create update patch delete deletecollection; for other paths the lower-case method
  std::string group, version, resource, subresource, ns, name;
  std::string field_selector, label_selector;
  std::string path;  // of requests that are for no resource
  bool is_resource = false;
};

/// Thread-safe.
class Authorizer {
 public:
  /// The object as stored, or nothing: for rules that depend on it. Resources by group and plural.
  struct Objects {
    std::function<std::optional<codec::Json>(std::string_view group, std::string_view plural, std::string_view ns,
                                             std::string_view name)>
        get;
    std::function<void(std::string_view group, std::string_view plural, const std::function<void(const codec::Json&)>&)> each;
  };
  virtual ~Authorizer() = default;
  virtual bool allows(const Identity& who, const Attributes& what, const Objects& objects) const = 0;
  /// A second look at an object that is to be created, which may lose what the client may not set. kForbidden, kInvalid: the
  /// message says why. Default: allowed as it is.
  virtual Status narrow_creation(const Identity&, const Attributes&, codec::Json&, const Objects&) const { return {}; }
  /// The same of what an update or a patch made of `old`.
  virtual Status narrow_change(const Identity&, const Attributes&, const codec::Json& /*old*/, codec::Json& /*object*/,
                               const Objects&) const {
    return {};
  }
};

/// The rules of docs/design/001: system:masters everything; system:node:NAME its own EdgeNode, Node, Pods, what these refer to
/// (Secrets that only the EdgeNode names: in namespaces labelled edgeai.io/edge-secrets=allow), and Events about these; everybody
/// discovery and questions about himself. What a node writes is what a gateway lets through too (meta/node_writes.h).
std::unique_ptr<Authorizer> node_authorizer();

/// Told when an identity's first watch opens and its last one closes. Called on the server's threads, one call at a time and in
/// the order of the openings and closings; must not block and must not call the server.
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  virtual void opened(const Identity& who) = 0;
  virtual void closed(const Identity& who) = 0;
};

}  // namespace varda::apiserver
