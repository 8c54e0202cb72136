// The API client: REST and watches of the Kubernetes dialect, over any net::HttpClient.
//
//   kube::Client client(*http, {.base_url = "https://127.0.0.1:6443", .token = token});
//   TRY(Json pod, client.get(ctx, pods(), {"default", "web"}));
//
// Objects are JSON trees; callers know their kinds. The client itself retries in three cases only:
// the transport repeats a safe request, a request with a refused token (token_again), and a wait
// that the server asks for (429 or a 5xx, with Retry-After). All other retries are in src/runtime.
// Every answer of 400 or above becomes an Error through meta::ApiStatus. Answers may be compressed
// with gzip.
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
  int limit = 0;  // items per page; 0: no pages
  std::string continue_token;
  std::string resource_version;  // "": the newest; "0": any version in the server's cache
};

struct List {
  std::vector<Json> items;  // each with apiVersion and kind
  std::string resource_version;
  std::string continue_token;  // "": the last page
};

enum class PatchType { kJson, kMerge, kStrategic };
enum class Propagation { kDefault, kBackground, kForeground, kOrphan };

struct DeleteOptions {
  Propagation propagation = Propagation::kDefault;
  std::string uid;  // precondition; kConflict: the object now has another uid
  std::string resource_version;
  std::optional<int> grace_seconds;
};

struct WatchOptions {
  std::string ns;
  std::string label_selector, field_selector;
  std::string resource_version;       // events after this one; "": the present objects, then events
  std::chrono::seconds timeout{300};  // sent to the server; the client gives up at most 15 s later
};

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark };
  Type type = Type::kBookmark;
  Json object;                   // in a bookmark only metadata.resourceVersion
  std::string resource_version;  // of the object; the watch resumes from it
};

/// One open watch. Not thread-safe. To end it from another thread, stop the context of
/// Client::watch().
class Watch {
 public:
  virtual ~Watch() = default;
  /// Waits for the next event. Nothing: the server ended the watch normally; resume from the last
  /// version. kGone: the version is too old, relist. kUnavailable: the connection broke. kTimeout:
  /// the connection was silent. kCancelled: stopped.
  virtual Result<std::optional<WatchEvent>> next() = 0;
};

/// Thread-safe.
class Client {
 public:
  struct Options {
    std::string base_url;  // "https://host:6443" without a final slash; "": net::loopback()
    std::string token;     // bearer token, optional
    // Alternative to `token`: called before every request, because token files change. Thread-safe.
    std::function<std::string()> token_source;
    /// After a 401: takes the refused token and returns the token for one retry. The same token
    /// means that there is no other. Thread-safe.
    std::function<std::string(const std::string&)> token_again;
    std::string user_agent = "varda/" VARDA_VERSION;
    std::string field_manager;  // ?fieldManager= of writes; "": none
    // Limit of one attempt, unless the context ends earlier. Watches have their own limit.
    std::chrono::milliseconds timeout{30000};
    int waits_max = 0;  // maximum number of waits for Retry-After per request
    // Limit of all waits of a request. A random part on top spreads the clients.
    std::chrono::milliseconds waits_total{60'000};
    std::uint64_t response_bytes_max = 256u << 20;
    metrics::Registry* metrics = nullptr;  // rest_client_*, with names and labels of client-go
  };
  /// `http` outlives the client.
  Client(net::HttpClient& http, Options options);
  /// As above, but the client owns the transport.
  Client(std::unique_ptr<net::HttpClient> http, Options options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  /// A client over the same transport, without waits for Retry-After. This client outlives it.
  std::unique_ptr<Client> without_waits() const;

  Result<Json> get(const Context& ctx, const Resource& resource, const ObjectKey& key) const;
  /// Like get(), but a missing object is no error.
  Result<std::optional<Json>> find(const Context& ctx, const Resource& resource,
                                   const ObjectKey& key) const;
  /// One page, or all items with limit 0. kGone: the continue token expired. kCorrupt: the answer
  /// is no list.
  Result<List> list(const Context& ctx, const Resource& resource,
                    const ListOptions& options = {}) const;
  /// All pages. If the continue token expires, the list starts again, without pages.
  Result<List> list_all(const Context& ctx, const Resource& resource,
                        ListOptions options = {}) const;
  /// Like list_all(), but passes each page to `take`, for callers that do not store the trees.
  /// `number` counts from 0. A second 0 restarts the list: all earlier pages are void, as after an
  /// error.
  using TakePage = std::function<void(std::size_t number, List page)>;
  Status list_pages(const Context& ctx, const Resource& resource, ListOptions options,
                    const TakePage& take) const;

  // Writes. The namespace is the object's metadata.namespace. They return the object as the server
  // stored it.
  /// kAlreadyExists.
  Result<Json> create(const Context& ctx, const Resource& resource, const Json& object) const;
  /// PUT. kConflict: the resourceVersion is not the newest. kNotFound.
  Result<Json> update(const Context& ctx, const Resource& resource, const Json& object) const;
  /// PUT of the subresource: the server takes only `status`.
  Result<Json> update_status(const Context& ctx, const Resource& resource,
                             const Json& object) const;
  Result<Json> patch(const Context& ctx, const Resource& resource, const ObjectKey& key,
                     PatchType type, const Json& patch, std::string_view subresource = "") const;
  /// Returns the object if it still exists (finalizers, grace period), else a Status. kNotFound.
  Result<Json> remove(const Context& ctx, const Resource& resource, const ObjectKey& key,
                      const DeleteOptions& options = {}) const;

  /// May return kGone at once.
  Result<std::unique_ptr<Watch>> watch(const Context& ctx, const Resource& resource,
                                       const WatchOptions& options) const;

  /// Any path of the server ("/version", "/api/v1/namespaces/d/pods/p/log?follow=true"), with the
  /// body as a stream. An answer of 400 or above is an Error. Only the context limits the time.
  Result<net::ClientResponse> open(const Context& ctx, std::string method, std::string target,
                                   net::Headers headers = {}, std::string body = "") const;
  /// Sends a request of another protocol to the server, with this client's credentials. The answer
  /// has at most 1 MiB and may have any status. Only the context limits the time.
  Result<net::HttpClient::Answer> exchange(const Context& ctx, std::string method,
                                           std::string target, net::Headers headers,
                                           std::string body) const;
  /// Like open(), but reads the whole body.
  Result<std::string> text(const Context& ctx, std::string target) const;
  Result<Json> json(const Context& ctx, std::string method, std::string target,
                    const Json& body = nullptr, std::string_view content_type = "application/json",
                    std::string_view accept = "application/json") const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::kube
