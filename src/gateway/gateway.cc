#include "gateway/gateway.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/job_node.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "gateway/caller.h"
#include "gateway/internal/allowance.h"
#include "gateway/layer.h"
#include "gateway/node_key.h"
#include "gateway/request.h"
#include "gateway/rules.h"
#include "gateway/startup_queue.h"
#include "gateway/view.h"
#include "gateway/watch_stream.h"
#include "meta/node_address.h"
#include "meta/patch.h"
#include "meta/references.h"
#include "meta/resources.h"
#include "meta/status.h"
#include "net/timers.h"
#include "runtime/informer.h"

namespace varda::gateway {
namespace {

using meta::ApiStatus;
using meta::ObjectKey;
using meta::Resource;
using net::Request;
using net::Responder;
using net::Response;

constexpr std::chrono::minutes kLayerKnown{
    5};  // lifetime of a layer read; each report of a Node reads it
constexpr std::chrono::seconds kLayerCachePeriod{10};  // the same after a failed read
constexpr std::size_t kEventBytesAdded =
    1u << 10;  // most that an API server adds: uid, version, times

Response json_response(int status, std::string body) {
  return {
      .status = status, .headers = {{"Content-Type", "application/json"}}, .body = std::move(body)};
}

Response status_response(const ApiStatus& status) {
  Response response = json_response(status.code, codec::write_json(status.to_json()) + "\n");
  if (status.retry_after_seconds)
    response.headers.add("Retry-After", std::to_string(*status.retry_after_seconds));
  return response;
}

/// An error of the gateway itself.
Response error_response(const Error& error, const RequestInfo* info = nullptr) {
  ApiStatus status = ApiStatus::from_error(error);
  if (info) {
    status.details = true;
    status.group = info->group;
    status.kind = info->resource;
    status.name = info->name;
  }
  return status_response(status);
}

/// An error of the API server, in answer to a request that the gateway made for a node.
Response upstream_error(const Error& error) {
  if (error.code() == Code::kUnauthenticated || error.code() == Code::kForbidden) {
    // The gateway lacks rights. The node did nothing wrong and should retry.
    log::warn("API server rejects a request of the gateway", {{"error", error}});
    return error_response(
        Error(Code::kUnavailable, "API server rejects the gateway: " + error.message()));
  }
  ApiStatus status = ApiStatus::from_error(error);
  if (error.code() == Code::kExhausted) {
    status.code = 413;
    status.reason = "RequestEntityTooLarge";
    status.retry_after_seconds.reset();
  }
  return status_response(status);
}

Response object_response(const Result<Json>& object, int status = 200) {
  return object.ok() ? json_response(status, codec::write_json(*object) + "\n")
                     : upstream_error(object.error());
}

void drop_managed_fields(Json& object) {
  if (Json* metadata = object.find("metadata"); metadata && metadata->is_object())
    metadata->erase("managedFields");
}

bool same_media_type(std::string_view header, std::string_view type) {
  header = header.substr(0, header.find(';'));
  while (!header.empty() && header.back() == ' ') header.remove_suffix(1);
  return header == type;
}

/// One resource in memory: its view, and its informer, which has its own thread after start().
class Mirror {
 public:
  Mirror(const kube::Client& client, runtime::Informer::Options informer, View::Options view)
      : view_(std::move(view)), informer_(client, std::move(informer)) {
    view_.follow(informer_);
  }
  /// Call it before start().
  void on_change(runtime::Informer::Handler handler) { informer_.on_change(std::move(handler)); }
  void start() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (thread_.joinable() || stopped_) return;
    started_.store(true);
    thread_ = std::jthread([this](const std::stop_token& stop) { informer_.run(Context(stop)); });
  }
  void stop() EXCLUDES(mutex_) {
    std::jthread ending;
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      ending = std::move(thread_);
    }
  }
  /// True before start(): no node has asked for the resource.
  bool ready() const { return !started_.load() || view_.complete(); }
  View& view() { return view_; }
  const View& view() const { return view_; }

 private:
  View view_;
  runtime::Informer informer_;
  std::atomic<bool> started_{false};
  Mutex mutex_;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::jthread thread_ GUARDED_BY(mutex_);
};

runtime::Informer::Options informer_of(const Resource& resource, metrics::Registry* metrics) {
  runtime::Informer::Options options;
  options.resource = resource;
  options.trim = drop_managed_fields;
  options.metrics = metrics;
  return options;
}

class GatewayImpl final : public Gateway, Admission {
 public:
  explicit GatewayImpl(Options options)
      : options_(std::move(options)),
        client_(*options_.client),
        clock_(options_.clock ? *options_.clock : system_clock()),
        rng_(options_.rng ? *options_.rng : system_rng()),
        watches_({.sessions = options_.sessions,
                  .linger = options_.limits.session_linger,
                  .watches_max = options_.limits.watches_max,
                  .watches_per_node_max = options_.limits.watches_per_node_max}),
        edge_nodes_(client_, informer_of(api::EdgeNode::resource(), options_.metrics),
                    {.node_of = [](const runtime::Stored& object) { return object.metadata.name; },
                     .tombstones_max = options_.limits.tombstones_max,
                     .one_each = true,
                     .on_change = [this](const std::string& node) { edge_node_changed(node); },
                     .on_listed = [this] { before_edge_nodes_.look(); }}),
        pods_(client_, pod_informer(),
              {.node_of = node_of_pod,
               .tombstones_max = options_.limits.tombstones_max,
               .on_listed = [this] { before_pods_.look(); }}),
        written_({options_.limits.written_kib_burst, options_.limits.written_kib_period,
                  options_.limits.writers_max}),
        anonymous_(options_.limits.anonymous),
        pool_(options_.limits.upstream),
        before_edge_nodes_({.ready = [this] { return edge_nodes_.view().complete(); },
                            .patience = options_.limits.first_read_patience}),
        before_pods_({.ready = [this] { return pods_.view().complete(); },
                      .patience = options_.limits.first_read_patience}) {
    if (options_.registry != nullptr)
      uploads_ = std::make_unique<Uploads>(*options_.registry, options_.uploads);
    Streams::Options streams = options_.streams;
    streams.clock = options_.clock;
    streams.metrics = options_.metrics;
    streams_ = std::make_unique<Streams>(std::move(streams));
    if (options_.edge_node_changed) edge_nodes_.on_change(options_.edge_node_changed);
    edge_nodes_.start();
    if (!options_.metrics) return;
    const auto gauge = [this](const char* name, const char* help, std::function<double()> read) {
      options_.metrics->gauge_from(name, help, {}, gauges_.guarded(std::move(read)));
    };
    gauge("varda_gateway_nodes_connected", "Nodes with a watch open.",
          [this] { return static_cast<double>(watches_.nodes()); });
    gauge("varda_gateway_watches", "Open watches of nodes.",
          [this] { return static_cast<double>(watches_.watches()); });
    gauge("varda_gateway_streams", "Streams of workers that are open or being opened.",
          [this] { return static_cast<double>(streams_->open()); });
    gauge("varda_gateway_requests_waiting", "Requests of nodes that wait to be sent upstream.",
          [this] { return static_cast<double>(pool_.waiting()); });
    gauge("varda_gateway_anonymous_waiting",
          "Requests of clients without a certificate that wait to be sent upstream.",
          [this] { return static_cast<double>(anonymous_.waiting()); });
  }
  ~GatewayImpl() override { stop(); }

  net::Handler handler() override {
    return [this](Request request, Responder respond) {
      serve(std::move(request), std::move(respond), Patience::kMayWait);
    };
  }

  net::Reception receive(const Request& head) override {
    if (!uploads_ || !Uploads::is_for(head)) return {};
    const auto caller = identify(head);
    // serve() waits for the first read, and checks again.
    if (caller.ok() && !edge_nodes_.view().complete()) return {};
    std::optional<Response> refused;
    if (caller.ok()) {
      refused = uploads_->refusal(caller->node, blob_rights(caller->node), head);
    } else {
      refused = error_response(caller.error());
    }
    if (refused) count(refused->status);
    return {.receiver = nullptr, .refusal = std::move(refused)};
  }

  bool ready() const override { return edge_nodes_.ready() && pods_.ready() && !stopping_.load(); }

  void stop() override {
    stopping_.store(true);
    timers_.all();
    stop_.request_stop();
    edge_nodes_.stop();
    pods_.stop();
    before_edge_nodes_.close();
    before_pods_.close();
    streams_->stop();
  }

 private:
  enum class Patience { kMayWait, kHasWaited };
  /// The parts of a request that the pool's thread needs.
  struct Call {
    std::string node;
    Caller caller;
    RequestInfo info;
    std::string body;
    std::string content_type;
    meta::Reporter reporter = meta::Reporter::kAnotherMachine;
    ObjectKey key() const { return {info.ns, info.name}; }
  };

  runtime::Informer::Options pod_informer() const {
    auto options = informer_of(api::Pod::resource(), options_.metrics);
    options.filter.field_selector = "spec.nodeName!=";
    return options;
  }
  static std::string node_of_pod(const runtime::Stored& pod) {
    const auto tree = codec::parse_json(pod.text);
    return tree.ok() ? std::as_const(*tree).at("spec/nodeName").as_string() : std::string();
  }

  Context upstream() const { return Context(stop_.get_token()); }

  Response too_many(std::string what, std::chrono::seconds wait = std::chrono::seconds(1)) {
    ApiStatus status = ApiStatus::from_error(Error(Code::kExhausted, std::move(what)));
    // Jitter, so that clients do not all retry at once.
    status.retry_after_seconds = static_cast<int>(wait.count()) + static_cast<int>(rng_.below(4));
    return status_response(status);
  }
  static Response too_large(std::string what) {
    ApiStatus status;
    status.code = 413;
    status.reason = "RequestEntityTooLarge";
    status.message = std::move(what);
    return status_response(status);
  }
  static Response not_ready() {
    ApiStatus status = ApiStatus::from_error(
        Error(Code::kUnavailable, "the gateway has not read the API server's objects yet"));
    status.retry_after_seconds = 1;
    return status_response(status);
  }

  void count(int code) {
    if (!options_.metrics) return;
    options_.metrics
        ->counter("varda_gateway_requests_total", "Requests of nodes, by the answer.",
                  {{"code", std::to_string(code)}})
        .add();
  }
  void answer(Responder& respond, Response response) {
    count(response.status);
    respond(std::move(response));
  }

  /// The node behind a request. Before the first read of EdgeNodes no node counts as revoked, but
  /// serve() serves nothing either.
  Result<Caller> identify(const Request& request) const {
    TRY(Caller caller, node_of(request.peer, clock_.wall()));
    for (const auto& [name, value] : request.headers.all()) {
      constexpr std::string_view kImpersonate = "impersonate-";
      const bool same = starts_ignoring_case(name, kImpersonate);
      if (same) return Error(Code::kForbidden, "a node may not act in the name of another node");
    }
    if (is_revoked(caller.node))
      return Error(Code::kForbidden, "node \"" + caller.node + "\" is revoked");
    return caller;
  }

  bool is_revoked(const std::string& node) const override {
    const auto edge_node = edge_nodes_.view().get(node, {"", node});
    return edge_node && api::is_revoked(edge_node->metadata);
  }

  void edge_node_changed(const std::string& node) {
    wake_if_revoked(node);
    streams_->changed(node, [this, &node] { return admitted_edge_node(node); });
  }

  /// Nothing: the node has none, or is revoked.
  std::optional<codec::Json> admitted_edge_node(const std::string& node) const {
    const auto edge_node = edge_nodes_.view().get(node, {"", node});
    if (!edge_node || api::is_revoked(edge_node->metadata)) return std::nullopt;
    return edge_node->json();
  }

  /// The change of the EdgeNode itself wakes and ends that node's EdgeNode watches. Pod watches
  /// need this call.
  void wake_if_revoked(const std::string& node) {
    if (is_revoked(node)) pods_.view().wake(node);
  }

  /// Holds a request until its objects have been read: just after the start, or at the first
  /// request for pods.
  void wait(StartupQueue& room, Request request, Responder respond) {
    const std::size_t bytes = request.body.size() + request.target.size() + 1024;
    // std::function must be copyable, and these are not. It runs once.
    const auto held =
        std::make_shared<std::pair<Request, Responder>>(std::move(request), std::move(respond));
    const bool waits = room.enter(bytes, [this, held, pods = &room == &before_pods_] {
      // A request that waited for the EdgeNodes may still wait for the pods.
      const bool further = !pods && edge_nodes_.view().complete();
      serve(std::move(held->first), std::move(held->second),
            further ? Patience::kMayWait : Patience::kHasWaited);
    });
    if (!waits) answer(held->second, not_ready());
  }

  void serve(Request request, Responder respond, Patience patience) {
    const std::string_view path = request.path();
    if (path == "/healthz" || path == "/livez") return respond({.status = 200, .body = "ok"});
    if (path == "/readyz")
      return respond({.status = ready() ? 200 : 503, .body = ready() ? "ok" : "not ready"});
    if (request.body.size() > options_.limits.body_bytes_max) {
      return answer(respond, too_large("the request's body is larger than " +
                                       std::to_string(options_.limits.body_bytes_max) + " bytes"));
    }
    if (path.starts_with("/gateway/v1/")) return enrol(std::move(request), std::move(respond));
    const auto caller = identify(request);
    if (!caller.ok()) return answer(respond, error_response(caller.error()));
    const std::string* const node = &caller->node;
    if (!edge_nodes_.view().complete()) {
      if (patience == Patience::kMayWait && !stopping_.load())
        return wait(before_edge_nodes_, std::move(request), std::move(respond));
      return answer(respond, not_ready());
    }
    if (Uploads::is_for(request)) {
      if (!uploads_)
        return answer(respond,
                      error_response(Error(Code::kNotFound, "this gateway has no registry")));
      if (!is_of_known_layer(*caller))
        return read_layer_first(*caller, std::move(request), std::move(respond), patience);
      return forward_upload(*node, std::move(request), std::move(respond));
    }
    if (Streams::is_for(request)) {
      if (!is_of_known_layer(*caller))
        return read_layer_first(*caller, std::move(request), std::move(respond), patience);
      return open_stream(*node, std::move(request), std::move(respond));
    }
    auto info = parse_request(request);
    if (!info.ok()) return answer(respond, error_response(info.error()));
    const auto way = route(*node, *info);
    if (!way.ok()) return answer(respond, error_response(way.error(), &*info));
    if (!is_of_known_layer(*caller))
      return read_layer_first(*caller, std::move(request), std::move(respond), patience);
    if (*way == Route::kListOwn) {
      if (info->resource == "pods" && patience == Patience::kMayWait && !stopping_.load()) {
        pods_.start();
        if (!pods_.view().complete())
          return wait(before_pods_, std::move(request), std::move(respond));
      }
      return list_or_watch(*node, *info, std::move(respond));
    }

    Call call{
        *node, *caller, std::move(*info), std::move(request.body), {}, reporter_of(request.peer)};
    if (const auto type = request.headers.find("Content-Type")) call.content_type = *type;
    go_upstream(*node, call.body.size(), std::move(respond),
                [this, way = *way, call = std::move(call)] { return serve_upstream(way, call); });
  }

  // ---- Files for the registry.

  /// Uploads::rights_of() the node's EdgeNode. Remembers them for the version, since each piece
  /// asks.
  BlobRights blob_rights(const std::string& node) EXCLUDES(blob_rights_mutex_) {
    const auto edge_node = edge_nodes_.view().get(node, {"", node});
    if (!edge_node) return {};
    const std::string& version = edge_node->metadata.resource_version;
    {
      const MutexLock lock(blob_rights_mutex_);
      const auto known = blob_rights_.find(node);
      if (known != blob_rights_.end() && known->second.first == version)
        return known->second.second;
    }
    const BlobRights rights = Uploads::rights_of(edge_node->json());
    const MutexLock lock(blob_rights_mutex_);
    if (blob_rights_.size() >= options_.limits.writers_max) blob_rights_.clear();
    blob_rights_[node] = {version, rights};
    return rights;
  }

  void forward_upload(const std::string& node, Request request, Responder respond) {
    const auto responder = std::make_shared<Responder>(std::move(respond));
    uploads_->serve(
        node, [this, node]() -> Result<BlobRights> { return blob_rights(node); },
        std::move(request), Responder([this, responder](Response response) {
          answer(*responder, std::move(response));
        }));
  }

  // ---- Streams of workers.

  void open_stream(const std::string& node, Request request, Responder respond) {
    const auto responder = std::make_shared<Responder>(std::move(respond));
    streams_->serve(
        node, [this, &node] { return admitted_edge_node(node); }, std::move(request),
        Responder([this, responder](Response response) {
          if (options_.metrics)
            options_.metrics
                ->counter("varda_gateway_streams_total", "Requested streams, by the answer.",
                          {{"code", std::to_string(response.status)}})
                .add();
          answer(*responder, std::move(response));
        }));
  }

  // ---- The layer of a certificate and the one on record (node_key.h).

  /// True: the layer on record is known, and the certificate has the same layer.
  bool is_of_known_layer(const Caller& caller) const EXCLUDES(layers_mutex_) {
    MutexLock lock(layers_mutex_);
    const auto known = layers_.find(caller.node);
    return known != layers_.end() && clock_.now() < known->second.until &&
           check_layer(caller, known->second.layer).ok();
  }

  /// Reads the layer on record. kUnauthenticated: the certificate is for another layer.
  Result<Layer> checked_layer(const Caller& caller) EXCLUDES(layers_mutex_) {
    TRY(const Layer layer, layer_of_node(upstream(), client_, caller.node));
    {
      MutexLock lock(layers_mutex_);
      note_layer(caller.node, layer, kLayerKnown);
    }
    TRY_VOID(check_layer(caller, layer));
    return layer;
  }

  /// While the API server is unreachable, the layer read last stays valid. Before the first read
  /// only certificates of the edge pass: pods and Secrets of the cloud do not go there.
  Status check_layer_now(const Caller& caller) EXCLUDES(layers_mutex_) {
    const auto layer = checked_layer(caller);
    if (layer.ok() || layer.error().code() == Code::kUnauthenticated)
      return layer.ok() ? Status() : layer.error();
    MutexLock lock(layers_mutex_);
    const auto known = layers_.find(caller.node);
    if (known == layers_.end() && caller.layer.value_or(Layer::kEdge) != Layer::kEdge)
      return layer.error();
    const Layer last = known == layers_.end() ? KnownLayer().layer : known->second.layer;
    note_layer(caller.node, last, kLayerCachePeriod);
    return check_layer(caller, last);
  }

  /// At the limit, the entry that expires first makes room for another node.
  void note_layer(const std::string& node, Layer layer, Duration valid) REQUIRES(layers_mutex_) {
    if (!layers_.contains(node) && layers_.size() >= options_.limits.writers_max) {
      layers_.erase(std::min_element(
          layers_.begin(), layers_.end(),
          [](const auto& a, const auto& b) { return a.second.until < b.second.until; }));
    }
    layers_[node] = {layer, clock_.now() + valid};
  }

  static Response layer_error(const Error& error) {
    return error.code() == Code::kUnauthenticated ? error_response(error) : upstream_error(error);
  }

  void read_layer_first(const Caller& caller, Request request, Responder respond,
                        Patience patience) {
    const std::size_t bytes = request.body.size() + request.target.size();
    const auto held =
        std::make_shared<std::pair<Request, Responder>>(std::move(request), std::move(respond));
    const bool taken = pool_.submit(caller.node, bytes, [this, held, caller, patience] {
      // A node's first requests come together; the first read serves the later ones.
      const Status same = is_of_known_layer(caller) ? Status() : check_layer_now(caller);
      if (!same.ok()) return answer(held->second, layer_error(same.error()));
      serve(std::move(held->first), std::move(held->second), patience);
    });
    if (!taken) answer(held->second, too_many("the request queue of the gateway is full"));
  }

  void go_upstream(const std::string& key, std::size_t bytes, Responder respond,
                   std::function<Response()> work) {
    submit(pool_, key, bytes, std::move(respond), std::move(work));
  }
  void submit(FairPool& pool, const std::string& key, std::size_t bytes, Responder respond,
              std::function<Response()> work) {
    const auto responder = std::make_shared<Responder>(std::move(respond));
    const bool taken = pool.submit(
        key, bytes, [this, responder, work = std::move(work)] { answer(*responder, work()); });
    if (!taken) answer(*responder, too_many("the request queue of the gateway is full"));
  }

  void enrol(Request request, Responder respond) {
    // Clients without a certificate share a separate pool, with a queue for each address.
    const bool anonymous_client = request.peer.certificate_common_name.empty();
    const std::string key = anonymous_client ? internal::address_of(request.peer.address)
                                             : request.peer.certificate_common_name;
    const std::size_t bytes = request.body.size();
    submit(anonymous_client ? anonymous_ : pool_, key, bytes, std::move(respond),
           [this, request = std::move(request)] {
             std::optional<Response> response;
             if (options_.enrolment) response = options_.enrolment(upstream(), request);
             return response ? std::move(*response)
                             : error_response(Error(Code::kNotFound, "there is no such path"));
           });
  }

  void list_or_watch(const std::string& node, const RequestInfo& info, Responder respond) {
    const bool pods = info.resource == "pods";
    Mirror& mirror = pods ? pods_ : edge_nodes_;
    const Resource& resource = pods ? api::Pod::resource() : api::EdgeNode::resource();
    mirror.start();
    if (info.verb == "list") {
      const auto listing = mirror.view().list(node);
      if (!listing) return answer(respond, not_ready());
      std::string body = "{\"kind\":\"" + resource.kind + "List\",\"apiVersion\":\"" +
                         resource.api_version() + "\",\"metadata\":{\"resourceVersion\":\"" +
                         listing->resource_version + "\"},\"items\":[";
      for (std::size_t i = 0; i < listing->items.size(); ++i) {
        if (i > 0) body += ',';
        body += listing->items[i]->text;
      }
      body += "]}\n";
      return answer(respond, json_response(200, std::move(body)));
    }
    auto cursor = mirror.view().begin(node, info.resource_version);
    if (!cursor.ok()) {
      return answer(respond, cursor.error().code() == Code::kUnavailable
                                 ? not_ready()
                                 : error_response(cursor.error(), &info));
    }
    auto session = watches_.open(node);
    if (!session) return answer(respond, too_many("too many watches are open"));
    std::chrono::seconds timeout = options_.limits.watch_timeout_max;
    if (info.timeout_seconds.value_or(0) > 0)
      timeout = std::min(timeout, std::chrono::seconds(*info.timeout_seconds));
    Response response;
    response.headers.add("Content-Type", "application/json");
    response.stream = std::make_unique<WatchStream>(
        WatchStream::Options{.resource = &resource,
                             .view = &mirror.view(),
                             .timers = &timers_,
                             .admission = this,
                             .stopping = &stopping_,
                             .cursor = std::move(cursor).value(),
                             .end = std::chrono::steady_clock::now() + timeout,
                             .bookmarks = info.bookmarks,
                             .session = std::move(session)});
    answer(respond, std::move(response));
  }

  // ---- On the upstream threads.

  static bool writes(Route way) {
    return way == Route::kCreateSelf || way == Route::kPatchSelf || way == Route::kPatchPod ||
           way == Route::kCreateEvent || way == Route::kPatchEvent;
  }

  /// A write is charged with the whole object that the API server must store, however small the
  /// patch was.
  Response serve_upstream(Route way, const Call& call) EXCLUDES(written_mutex_) {
    if (!writes(way)) return go(way, call);
    std::chrono::milliseconds wait{0};
    {
      MutexLock lock(written_mutex_);
      wait = written_.wait(call.node, clock_.now());
    }
    if (wait.count() > 0) {
      return too_many("node \"" + call.node + "\" has exceeded its write rate",
                      std::chrono::ceil<std::chrono::seconds>(wait));
    }
    Response response = go(way, call);
    if (response.status >= 200 && response.status < 300) {
      MutexLock lock(written_mutex_);
      written_.spend(call.node, clock_.now(), 1 + static_cast<int>(response.body.size() >> 10));
    }
    return response;
  }

  Response go(Route way, const Call& call) {
    switch (way) {
      case Route::kListOwn:
        break;
      case Route::kReadSelf:
        return object_response(client_.get(upstream(), resource_of(call.info), call.key()));
      case Route::kCreateSelf:
        return create_self(call);
      case Route::kPatchSelf:
        return patch_self(call);
      case Route::kReadPod:
      case Route::kPatchPod:
      case Route::kDeletePod:
        return serve_pod(way, call);
      case Route::kReadSecret:
      case Route::kReadConfigMap:
        return read_referred(call);
      case Route::kCreateEvent:
      case Route::kPatchEvent:
        return write_event(way, call);
    }
    return error_response(
        Error(Code::kInternal, "the request must not have a path of another server"), &call.info);
  }

  static const Resource& resource_of(const RequestInfo& info) {
    return info.resource == "nodes" ? api::Node::resource() : api::EdgeNode::resource();
  }

  static bool is_node(const Resource& resource) {
    return resource.kind == api::Node::resource().kind;
  }

  static Result<Json> body_of(const Call& call, std::string_view type) {
    if (!same_media_type(call.content_type, type)) {
      return Error(Code::kInvalid,
                   "Content-Type: the gateway takes " + std::string(type) + " here");
    }
    return codec::parse_json(call.body);
  }
  static Result<Json> object_of(const Call& call) { return body_of(call, "application/json"); }
  static Result<Json> patch_of(const Call& call) {
    return body_of(call, "application/merge-patch+json");
  }

  Response create_self(const Call& call) {
    const Resource& resource = resource_of(call.info);
    const auto make = [&]() -> Result<Json> {
      TRY(const Json body, object_of(call));
      return own_object(call.node, resource, body);
    };
    // The operator makes the EdgeNode of a Job. After the end of the run its agent makes no other.
    if (api::is_job_node(call.node))
      return error_response(
          Error(Code::kForbidden, "the agent of a Job creates no " + resource.kind), &call.info);
    auto object = make();
    if (!object.ok()) return error_response(object.error(), &call.info);
    if (is_node(resource)) {
      const auto layer = checked_layer(call.caller);
      if (!layer.ok()) return layer_error(layer.error());
      object = placed(std::move(*object), *layer);
      if (!object.ok()) return error_response(object.error(), &call.info);
    }
    return object_response(client_.create(upstream(), resource, *object), 201);
  }

  Response patch_self(const Call& call) {
    const Resource& resource = resource_of(call.info);
    if (is_node(resource)) {
      // Before the status: a Node that an earlier gateway admitted unchanged never reports without
      // its taint.
      if (const Status ensured = keep_place(call.caller); !ensured.ok())
        return layer_error(ensured.error());
    }
    return patch_status(call, resource, {});
  }

  /// Corrects the Node's labels and taint if they do not match the node's layer.
  Status keep_place(const Caller& caller) {
    const ObjectKey key{"", caller.node};
    TRY(const std::optional<Json> present, client_.find(upstream(), api::Node::resource(), key));
    if (!present) return {};
    TRY(const Layer layer, checked_layer(caller));
    const auto patch = placement_patch(*present, layer);
    if (!patch) return {};
    log::warn("labels or taint of a Node do not match its layer; correcting them",
              {{"node", caller.node}, {"layer", to_string(layer)}});
    TRY_VOID(
        client_.patch(upstream(), api::Node::resource(), key, kube::PatchType::kMerge, *patch));
    return {};
  }

  /// `uid`: of the object that was checked; "": any.
  Response patch_status(const Call& call, const Resource& resource, const std::string& uid) {
    const auto make = [&]() -> Result<Json> {
      TRY(const Json body, patch_of(call));
      TRY(Json patch, own_status(call.key(), body));
      TRY_VOID(check_addresses(resource.kind, std::as_const(patch)["status"], call.reporter));
      if (uid.empty()) return patch;
      const Json* const uid_member = std::as_const(patch)["metadata"].find("uid");
      if (uid_member && uid_member->as_string() != uid)
        return Error(Code::kConflict, "metadata.uid: does not match the object");
      patch.make("metadata/uid") = uid;
      return patch;
    };
    auto patch = make();
    if (!patch.ok()) return error_response(patch.error(), &call.info);
    if (resource.kind == api::EdgeNode::resource().kind) {
      // A node does not report its own connection.
      patch->make("status").erase("conditions");
      patch->make("status").erase("lastSeen");
    }
    return object_response(
        client_.patch(upstream(), resource, call.key(), kube::PatchType::kMerge, *patch, "status"));
  }

  Response serve_pod(Route way, const Call& call) {
    const auto pod = client_.get(upstream(), api::Pod::resource(), call.key());
    if (!pod.ok()) return upstream_error(pod.error());  // a missing pod answers 404 to any node
    const Error refusal(Code::kForbidden, call.info.forbidden(call.node));
    if (pod->at("spec/nodeName").as_string() != call.node)
      return error_response(refusal, &call.info);
    if (way == Route::kReadPod) return object_response(pod);
    const std::string& uid = pod->at("metadata/uid").as_string();
    if (way == Route::kPatchPod) return patch_status(call, api::Pod::resource(), uid);

    if (!pod->at("metadata/deletionTimestamp").is_string())
      return error_response(refusal, &call.info);
    kube::DeleteOptions options{.uid = uid, .grace_seconds = 0};
    if (!call.body.empty()) {
      const auto body = object_of(call);
      if (!body.ok()) return error_response(body.error(), &call.info);
      const Json& wanted = body->at("preconditions/uid");
      if (!wanted.is_null() && wanted.as_string() != uid) {
        return error_response(Error(Code::kConflict, "preconditions.uid: does not match the pod"),
                              &call.info);
      }
    }
    return object_response(client_.remove(upstream(), api::Pod::resource(), call.key(), options));
  }

  Response read_referred(const Call& call) {
    const bool secret = call.info.resource == "secrets";
    // The first request that depends on pods starts their informer.
    pods_.start();
    const auto listing = pods_.view().list(call.node);
    bool named = false;
    for (const auto& pod : listing ? listing->items : std::vector<runtime::StoredPtr>()) {
      named = named || (pod->metadata.ns == call.info.ns &&
                        meta::pod_uses(pod->json(), call.info.resource, call.info.name));
    }
    if (!named && secret) {
      const auto edge_node = edge_nodes_.view().get(call.node, {"", call.node});
      named = edge_node && meta::edge_node_uses(edge_node->json(), call.key());
    }
    if (!named && !listing) return not_ready();
    if (!named)
      return error_response(Error(Code::kForbidden, call.info.forbidden(call.node)), &call.info);
    if (secret) {
      // The namespace decides, not the reference: a pod lured to the node brings no Secret along.
      const auto allowed = allows_secrets_at_edge(call.info.ns);
      if (!allowed.ok()) return upstream_error(allowed.error());
      if (!*allowed) {
        return error_response(
            Error(Code::kForbidden, call.info.forbidden(call.node) +
                                        ": the namespace has no label " + meta::kEdgeSecretsLabel +
                                        "=" + meta::kEdgeSecretsAllow),
            &call.info);
      }
    }
    return object_response(client_.get(
        upstream(), secret ? meta::core::secrets() : meta::core::config_maps(), call.key()));
  }

  Result<bool> allows_secrets_at_edge(const std::string& name) {
    TRY(const auto ns, client_.find(upstream(), meta::core::namespaces(), {"", name}));
    return ns && ns->at("metadata")["labels"][meta::kEdgeSecretsLabel].as_string() ==
                     meta::kEdgeSecretsAllow;
  }

  /// True: `about` is the node itself, or a pod bound to it.
  Result<bool> own(const std::string& node, const Involved& about) {
    if (about.is_node(node)) return true;
    if (!about.is_pod()) return false;
    if (pods_.view().get(node, {about.ns, about.name})) return true;
    TRY(const auto pod, client_.find(upstream(), api::Pod::resource(), {about.ns, about.name}));
    return pod && pod->at("spec/nodeName").as_string() == node;
  }

  Response write_event(Route way, const Call& call) {
    const bool creates = way == Route::kCreateEvent;
    const std::size_t bytes_max = options_.limits.event_bytes_max;
    if (call.body.size() > bytes_max)
      return too_large("an Event has at most " + std::to_string(bytes_max) + " bytes here");
    const auto make = [&]() -> Result<Json> {
      TRY(const Json body, creates ? object_of(call) : patch_of(call));
      return creates ? own_event(call.info.ns, body) : event_patch(body);
    };
    const auto body = make();
    if (!body.ok()) return error_response(body.error(), &call.info);
    Involved about = Involved::of(*body);
    if (!creates) {
      const auto event = client_.get(upstream(), meta::core::events(), call.key());
      if (!event.ok()) return upstream_error(event.error());
      about = Involved::of(*event);
      // Many small patches must not grow an Event either. Fields that the API server adds do not
      // count.
      Json patched = meta::apply_merge_patch(*event, *body);
      drop_managed_fields(patched);
      if (codec::write_json(patched).size() > bytes_max + kEventBytesAdded) {
        return too_large("an Event has at most " + std::to_string(bytes_max) + " bytes here");
      }
    }
    const auto may = own(call.node, about);
    if (!may.ok()) return upstream_error(may.error());
    if (!*may)
      return error_response(Error(Code::kForbidden, call.info.forbidden(call.node)), &call.info);
    if (!creates)
      return object_response(client_.patch(upstream(), meta::core::events(), call.key(),
                                           kube::PatchType::kMerge, *body));
    Json event = *body;
    event.make("metadata/namespace") = call.info.ns;
    const auto created = client_.create(upstream(), meta::core::events(), event);
    // A terminating namespace refuses new Events as forbidden; the node gets that answer.
    if (!created.ok() && created.error().code() == Code::kForbidden)
      return error_response(created.error(), &call.info);
    return object_response(created, 201);
  }

  const Options options_;
  const kube::Client& client_;
  const Clock& clock_;
  Rng& rng_;
  std::atomic<bool> stopping_{false};
  std::stop_source stop_;
  net::Timers timers_;
  OpenWatches watches_;
  Mirror edge_nodes_;
  Mirror pods_;
  Mutex written_mutex_;
  internal::Allowance written_ GUARDED_BY(written_mutex_);  // KiB, by node
  Mutex blob_rights_mutex_;
  std::unordered_map<std::string, std::pair<std::string, BlobRights>> blob_rights_
      GUARDED_BY(blob_rights_mutex_);  // resourceVersion and rights, by node
  struct KnownLayer {
    Layer layer = Layer::kEdge;
    SteadyTime until;
  };
  mutable Mutex layers_mutex_;
  std::unordered_map<std::string, KnownLayer> layers_
      GUARDED_BY(layers_mutex_);  // as last read, by node
  FairPool anonymous_, pool_;     // destroyed first: their work uses the rest
  StartupQueue before_edge_nodes_, before_pods_;
  std::unique_ptr<Streams> streams_;
  std::unique_ptr<Uploads> uploads_;  // null: no registry. Its work uses the members above
  metrics::SourceGuard gauges_;
};

}  // namespace

net::Server::Options server_options(const Limits& limits) {
  net::Server::Options options;
  options.connections_max = limits.connections_max;
  options.header_bytes_max = 16u << 10;
  // Slightly more, so that a somewhat too large body gets an answer in JSON.
  options.body_bytes_max = limits.body_bytes_max + (64u << 10);
  options.idle_timeout = std::chrono::seconds(60);
  // An agent has one connection, and a few more while its link flaps. Clients without a certificate
  // only enrol.
  options.connections_per_name_max = 16;
  options.nameless_connections_max = std::max<std::size_t>(limits.connections_max / 8, 1);
  options.nameless_body_bytes_max = 64u << 10;
  // TLS handshakes are the main cost when all nodes reconnect at once.
  options.io_threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 4);
  return options;
}

Result<std::unique_ptr<Gateway>> Gateway::create(Options options) {
  if (!options.client) return Error(Code::kInvalid, "a gateway needs a client of its API server");
  return std::unique_ptr<Gateway>(std::make_unique<GatewayImpl>(std::move(options)));
}

}  // namespace varda::gateway
