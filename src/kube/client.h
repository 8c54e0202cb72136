// The API client: REST and watches of the Kubernetes dialect, over any net::HttpClient.
//
//   kube::Client client(*http, {.base_url = "https://127.0.0.1:6443", .token = token});
//   TRY(Json pod, client.get(ctx, pods(), {"default", "web"}));
//
// Objects are trees here: kinds are the business of those who call. Nothing is retried (that is runtime's) except what the
// transport itself may repeat, a request whose token was refused (token_again), and what the server asks to be sent later (429, or
// a fault, with Retry-After). Every answer of 400 and above becomes an Error through meta::ApiStatus. Answers may come packed with
// gzip.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/metrics.h"
#include "base/result.h"
#include "codec/json.h"
#include "meta/object.h"
#include "meta/status.h"
#include "net/http.h"

namespace varda::kube {

using codec::Json;
using meta::ObjectKey;
using meta::Resource;

struct ListOptions {
  std::string ns;  // empty: all namespaces (or a cluster-scoped kind)
  std::string label_selector, field_selector;
  int limit = 0;  // items a page; 0: no pages
  std::string continue_token;
  std::string resource_version;  // "": the newest; "0": any the server has at hand
};

struct List {
  std::vector<Json> items;  // each with apiVersion and kind
  std::string resource_version;
  std::string continue_token;  // "": this was the last page
};

enum class PatchType { kJson, kMerge, kStrategic };
enum class Propagation { kDefault, kBackground, kForeground, kOrphan };

struct DeleteOptions {
  Propagation propagation = Propagation::kDefault;
  std::string uid;  // preconditions: kConflict if the object is another one by now
  std::string resource_version;
  std::optional<int> grace_seconds;
};

struct WatchOptions {
  std::string ns;
  std::string label_selector, field_selector;
  std::string resource_version;       // events after this one; "": the objects there are, then what happens
  std::chrono::seconds timeout{300};  // asked of the server; a silent connection is given up 15 s later, or sooner
};

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark };
  Type type = Type::kBookmark;
  Json object;                   // of a bookmark only metadata.resourceVersion
  std::string resource_version;  // of the object: where to resume
};

/// One open watch. Not thread-safe; stop the context given to Client::watch() to end it from elsewhere.
class Watch {
 public:
  virtual ~Watch() = default;
  /// Waits for the next event; nothing: the server ended the watch in peace (resume from the last version).
  /// kGone: the version is too old, list again. kUnavailable: the connection broke. kTimeout: silence. kCancelled: stopped.
  virtual Result<std::optional<WatchEvent>> next() = 0;
};

/// Thread-safe.
class Client {
 public:
  struct Options {
    std::string base_url;                       // "https://host:6443", without a slash at its end; "" for net::loopback()
    std::string token;                          // bearer token, optional
    std::function<std::string()> token_source;  // instead: asked before every request (tokens in files change); thread-safe
    /// After a 401: the token to try once more with, given the one that was refused; the same: there is no other. Thread-safe.
    std::function<std::string(const std::string&)> token_again;
    std::string user_agent = "varda/" VARDA_VERSION;
    std::string field_manager;                      // ?fieldManager= of writes; "" none
    std::chrono::milliseconds timeout{30000};       // of one attempt, unless the context ends earlier; watches have their own
    int waits_max = 0;                              // how often a request waits as long as Retry-After asks, and is sent again
    std::chrono::milliseconds waits_total{60'000};  // and for how long in all; some more, so that not all come back together
    std::uint64_t response_bytes_max = 256u << 20;
    metrics::Registry* metrics = nullptr;  // rest_client_*, with the names and labels of client-go
  };
  /// `http` outlives the client.
  Client(net::HttpClient& http, Options options);
  /// The same, owning its transport.
  Client(std::unique_ptr<net::HttpClient> http, Options options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  /// The same over the same transport (this one outlives it), for those who cannot wait as Retry-After asks.
  std::unique_ptr<Client> without_waits() const;

  Result<Json> get(const Context& ctx, const Resource& resource, const ObjectKey& key) const;
  /// get() where missing is no error.
  Result<std::optional<Json>> find(const Context& ctx, const Resource& resource, const ObjectKey& key) const;
  /// One page (or all, with limit 0). kGone: the continue token is too old. kCorrupt: what came is no list.
  Result<List> list(const Context& ctx, const Resource& resource, const ListOptions& options = {}) const;
  /// Every page. If the continue token ages on the way it starts over, without pages.
  Result<List> list_all(const Context& ctx, const Resource& resource, ListOptions options = {}) const;
  /// The same, each page as it comes, for those who do not keep the trees. `number` counts from 0; another 0 begins it anew, and
  /// what was given before is void, as it is after an error.
  using TakePage = std::function<void(std::size_t number, List page)>;
  Status list_pages(const Context& ctx, const Resource& resource, ListOptions options, const TakePage& take) const;

  // Writes. The namespace is the object's metadata.namespace. They return the object as the server stored it.
  /// kAlreadyExists.
  Result<Json> create(const Context& ctx, const Resource& resource, const Json& object) const;
  /// PUT. kConflict: the resourceVersion is not the newest. kNotFound.
  Result<Json> update(const Context& ctx, const Resource& resource, const Json& object) const;
  /// PUT of the subresource: the server takes `status` only.
  Result<Json> update_status(const Context& ctx, const Resource& resource, const Json& object) const;
  Result<Json> patch(const Context& ctx, const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch,
                     std::string_view subresource = "") const;
  /// The object if it is still there (finalizers, grace), else a Status. kNotFound.
  Result<Json> remove(const Context& ctx, const Resource& resource, const ObjectKey& key, const DeleteOptions& options = {}) const;

  /// kGone may come here already.
  Result<std::unique_ptr<Watch>> watch(const Context& ctx, const Resource& resource, const WatchOptions& options) const;

  /// Any path of the server ("/version", "/api/v1/namespaces/d/pods/p/log?follow=true"), body as it comes; an answer of 400 and
  /// above is an Error. No timeout but the context's.
  Result<net::ClientResponse> open(const Context& ctx, std::string method, std::string target, net::Headers headers = {},
                                   std::string body = "") const;
  /// The same, whole.
  Result<std::string> text(const Context& ctx, std::string target) const;
  Result<Json> json(const Context& ctx, std::string method, std::string target, const Json& body = nullptr,
                    std::string_view content_type = "application/json", std::string_view accept = "application/json") const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::kube
