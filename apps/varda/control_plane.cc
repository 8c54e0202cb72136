#include "control_plane.h"

#include <algorithm>
#include <thread>

#include "agent/identity/issued.h"
#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/kind.h"
#include "apiserver/audit.h"
#include "apiserver/bootstrap.h"
#include "apiserver/server.h"
#include "apiserver/standalone.h"
#include "base/log.h"
#include "base/mutex.h"
#include "blob_names.h"
#include "cluster/controllers.h"
#include "controllers/controllers.h"
#include "datadir/backup_file.h"
#include "datadir/up_state.h"
#include "descriptors.h"
#include "gateway/authority.h"
#include "gateway/enrolment.h"
#include "gateway/gateway.h"
#include "gateway/uploads.h"
#include "hosting/certificate_issuer.h"
#include "kube/client.h"
#include "meta/resources.h"
#include "net/client.h"
#include "net/server.h"
#include "net/url.h"
#include "net/validity.h"
#include "node/log_stream.h"
#include "os/file_system.h"
#include "os/memory.h"
#include "registry_server.h"
#include "runtime/manager.h"
#include "session_sources.h"
#include "store/store.h"

namespace varda::app {
namespace {

using codec::Json;

/// Creates the CRDs of our kinds, or updates them to this build's version.
Status install_kinds(const Context& ctx, const kube::Client& client) {
  for (const Json& crd : api::crds()) {
    const std::string& name = crd.at("metadata/name").as_string();
    TRY(const std::optional<Json> existing,
        client.find(ctx, meta::core::definitions(), {"", name}));
    if (!existing) {
      TRY([[maybe_unused]] const Json created,
          client.create(ctx, meta::core::definitions(), crd).context("install " + name));
      continue;
    }
    Json wanted = *existing;
    wanted["spec"] = crd["spec"];
    TRY([[maybe_unused]] const Json updated,
        client.update(ctx, meta::core::definitions(), wanted).context("update " + name));
  }
  return {};
}

/// Opens the store and adds remedies to errors, which differ from those for an agent's store.
Result<std::unique_ptr<store::Store>> open_store(const std::filesystem::path& file,
                                                 const store::Options& options) {
  auto opened = store::open_sqlite(file, options);
  if (opened.ok()) return opened;
  const Error& error = opened.error();
  if (error.code() == Code::kCorrupt) {
    return Error(error.code(), error.message() +
                                   "; the file is unchanged: restore a copy, or move the file and "
                                   "its -wal file away to start empty");
  }
  if (error.code() == Code::kUnsupported) {
    return Error(error.code(),
                 error.message() + "; use that version of varda, or another --data-dir");
  }
  return opened;
}

/// Reads logs of pods from this disk: the node may be gone.
apiserver::LogSource logs_below(std::filesystem::path data_dir) {
  return [data_dir = std::move(data_dir)](
             const apiserver::LogRequest& request) -> Result<std::unique_ptr<net::BodyStream>> {
    if (request.node.empty())
      return Error(Code::kInvalid, "pod " + request.pod + " is not on a node yet");
    node::LogOptions options;
    if (request.tail_lines) options.tail_lines = static_cast<std::uint64_t>(*request.tail_lines);
    if (request.limit_bytes) options.limit_bytes = static_cast<std::uint64_t>(*request.limit_bytes);
    options.follow =
        request.follow ? node::LogOptions::Follow::kYes : node::LogOptions::Follow::kNo;
    options.run =
        request.previous ? node::LogOptions::Run::kPrevious : node::LogOptions::Run::kCurrent;
    const auto root = datadir::node_directory(data_dir, request.node) / "data";
    return node::open_log(node::pod_directory(root, request.ns, request.pod, request.uid),
                          request.container, options);
  };
}

/// Makes the bytes of a backup while they are sent. A failure truncates the archive; the reader
/// notices the missing sums.
class BackupStream final : public net::BodyStream {
 public:
  explicit BackupStream(std::unique_ptr<datadir::BackupMaker> maker) : maker_(std::move(maker)) {}
  std::optional<std::string> read() override {
    auto piece = maker_->next();
    if (piece.ok()) return std::move(piece).value();
    log::error("backup failed, stream truncated", {{"error", piece.error()}});
    return std::nullopt;
  }
  void on_ready(std::function<void()>) override {}

 private:
  const std::unique_ptr<datadir::BackupMaker> maker_;
};

class ControlPlaneImpl final : public ControlPlane {
 public:
  explicit ControlPlaneImpl(Options options) : options_(std::move(options)) {}
  ~ControlPlaneImpl() override { stop(); }

  Status start() {
    auto& fs = os::real_file_system();
    apiserver::CredentialOptions credentials{
        .data_dir = options_.data_dir, .nodes = {}, .hosts = {host()}};
    for (const datadir::NodeSpec& node : options_.nodes) credentials.nodes.push_back(node.name);
    TRY(credentials_, apiserver::load_or_create_credentials(fs, credentials, system_rng()));
    store::Options store_options = options_.limits.store;
    store_options.value_bytes_max =
        std::max(store_options.value_bytes_max, options_.limits.api.object_bytes_max);
    store_options.metrics = &registry_;
    TRY(store_, open_store(options_.data_dir / "store.db", store_options));
    // The open store is locked, so this process owns the directory now.
    for (const auto& directory : {options_.data_dir, options_.data_dir / "pki"})
      TRY_VOID(os::remove_leftovers(fs, directory));
    if (options_.audit) {
      apiserver::AuditLog::Options audit = *options_.audit;
      audit.metrics = &registry_;
      TRY(audit_, apiserver::AuditLog::open(fs, std::move(audit)));
    }
    TRY(authenticator_, apiserver::token_file_authenticator(fs, options_.data_dir));
    authorizer_ = apiserver::node_authorizer();

    apiserver::Server::Options server;
    server.store = store_.get();
    server.authenticator = authenticator_.get();
    server.authorizer = authorizer_.get();
    server.sessions = &sources_;
    for (const api::NativeRule& rule : api::native_rules())
      server.rules[{rule.group, rule.kind}] = rule.check;
    server.logs = logs_below(options_.data_dir);
    server.metrics = &registry_;
    server.audit = audit_.get();
    server.limits = options_.limits.api;
    TRY(api_, apiserver::Server::create(std::move(server)));

    client_ = std::make_unique<kube::Client>(
        net::loopback(api_->handler_as({"system:varda:operator", {"system:masters"}})),
        kube::Client::Options{.field_manager = "varda", .metrics = &registry_});
    TRY_VOID(install_kinds(Context::background().with_timeout(std::chrono::seconds(30)), *client_));

    manager_ = std::make_unique<runtime::Manager>(
        *client_, runtime::Manager::Options{.component = "varda", .metrics = &registry_});
    if (!options_.registry.empty()) TRY_VOID(start_registry());
    hosting::Options hosting_options = options_.inference_models;
    hosting_options.registry_url = registry_url();
    hosting_options.node_port_host = options_.node_port_host;
    hosting_options.unsigned_streams = options_.gateway.empty();
    hosting_options.edge_authority = [pem = credentials_.ca_pem] { return pem; };
    certificates_ = hosting::CertificateIssuer::create(*client_, {});
    hosting_options.certificates = certificates_.get();
    controllers_ = controllers::add_all(*manager_, hosting_options);
    cluster_ = cluster::add_all(*manager_, *client_, sessions_,
                                {.node_port_host = options_.node_port_host});
    TRY_VOID(listen());
    TRY_VOID(write_kubeconfigs(credentials_));
    renewal_ = std::jthread([this, credentials](const std::stop_token& stop) {
      apiserver::CertificateRenewal renewal(
          os::real_file_system(), credentials, credentials_,
          [this](const apiserver::Credentials& renewed) -> Status {
            TRY_VOID(server_->use_certificate(renewed.tls.certificate_pem, renewed.tls.key_pem));
            return write_kubeconfigs(renewed);
          });
      renewal.run(Context(stop));
    });
    TRY(std::string ca_key, os::read_file(fs, options_.data_dir / "pki/ca.key"));
    TRY(authority_, gateway::Authority::of({credentials_.ca_pem, std::move(ca_key)}));
    issue_identities();
    identities_ = std::jthread([this](const std::stop_token& stop) { renew_identities(stop); });
    if (!options_.gateway.empty()) TRY_VOID(start_gateway());
    trimmer_ =
        std::jthread([](const std::stop_token& stop) { os::keep_memory_trimmed(Context(stop)); });
    thread_ = std::jthread([this](const std::stop_token& stop) {
      const Status ended = manager_->run(Context(stop));
      MutexLock lock(mutex_);
      ended_ = ended;
      done_.request_stop();
    });
    return {};
  }

  std::string address() const override { return server_->address(); }
  std::string url() const override { return apiserver::url_of(server_->address()); }
  std::string gateway_address() const override {
    return gateway_server_ ? gateway_server_->address() : "";
  }

  std::string registry_url() const override {
    return registry_server_ ? registry_server_->url() : "";
  }

  Status wait_for_nodes(const Context& ctx) override {
    constexpr std::chrono::milliseconds kPeriod{10};
    for (const auto& [node, layer] : options_.nodes) {
      std::string missing = what_node_lacks(ctx, node);
      while (!missing.empty()) {
        if (done_.stop_requested())
          return Error(Code::kInternal, "the controllers ended unexpectedly");
        if (const Status slept = ctx.sleep_for(kPeriod); !slept.ok()) {
          return Error(
              slept.error().code(),
              "node " + node + " is not ready: " + missing + "; its log is " +
                  (datadir::node_directory(options_.data_dir, node) / "agent.log").string());
        }
        missing = what_node_lacks(ctx, node);
      }
    }
    return {};
  }

  Status wait(const Context& ctx) override {
    // Ends with the stop of the process or the end of the controllers.
    std::stop_source either;
    const std::stop_callback on_stop(ctx.stop_token(), [&] { either.request_stop(); });
    const std::stop_callback on_end(done_.get_token(), [&] { either.request_stop(); });
    while (!either.stop_requested())
      (void)Context(either.get_token()).sleep_for(std::chrono::hours(24));
    if (ctx.stopped()) return {};
    MutexLock lock(mutex_);
    return ended_.ok() ? Status(Error(Code::kInternal, "the controllers ended unexpectedly"))
                       : ended_;
  }

  Status forget_node(const std::string& name) override {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(10));
    // The node goes first: while it exists, controllers create new pods for it.
    for (const meta::Resource& resource : {api::EdgeNode::resource(), api::Node::resource()}) {
      const auto removed = client_->remove(ctx, resource, {"", name});
      if (!removed.ok() && removed.error().code() != Code::kNotFound)
        return Status(removed.error()).context("forget node " + name);
    }
    // No agent is left to report the end of the pods, and their names stay taken until then.
    TRY(const kube::List pods,
        client_->list_all(ctx, api::Pod::resource(), {.field_selector = "spec.nodeName=" + name}));
    for (const Json& pod : pods.items) {
      const meta::ObjectKey key{pod.at("metadata/namespace").as_string(),
                                pod.at("metadata/name").as_string()};
      const auto removed = client_->remove(ctx, api::Pod::resource(), key, {.grace_seconds = 0});
      if (!removed.ok() && removed.error().code() != Code::kNotFound)
        return Status(removed.error()).context("forget node " + name);
    }
    return {};
  }

  void stop() override {
    if (renewal_.joinable()) {
      renewal_.request_stop();
      renewal_.join();
    }
    if (identities_.joinable()) {
      identities_.request_stop();
      identities_.join();
    }
    if (thread_.joinable()) {
      thread_.request_stop();
      thread_.join();
    }
    cluster_.reset();  // closes the node ports
    if (gateway_) gateway_->stop();
    if (gateway_server_) gateway_server_->stop(std::chrono::seconds(1));
    if (api_) api_->stop();
    // Watches have ended here. Requests take milliseconds; followed logs never end.
    if (server_) server_->stop(std::chrono::seconds(1));
    uploads_.reset();
    if (registry_server_) registry_server_->stop();
    MutexLock lock(mutex_);
    stopped_ = true;
  }

 private:
  std::string host() const { return options_.listen.substr(0, options_.listen.rfind(':')); }

  /// Returns "" for a ready node. Objects from an earlier run count only after the agent has
  /// connected to this run.
  std::string what_node_lacks(const Context& ctx, const std::string& name) const {
    if (!sessions_.of(name).connected) return "its agent has not connected";
    const auto object = [&](const meta::Resource& resource) {
      const auto found = client_->find(ctx, resource, {"", name});
      return found.ok() && *found ? **found : Json();
    };
    const auto holds = [&](const Json& found, std::string_view type) {
      const auto& conditions = found.at("status/conditions").as_array();
      return std::any_of(conditions.begin(), conditions.end(), [&](const Json& condition) {
        return condition["type"].as_string() == type && condition["status"].as_string() == "True";
      });
    };
    if (!holds(object(api::Node::resource()), "Ready")) return "its Node is not Ready";
    const Json edge_node = object(api::EdgeNode::resource());
    if (!holds(edge_node, "Connected")) return "its EdgeNode is not Connected";
    if (edge_node.at("status/agentVersion").as_string() != VARDA_VERSION)
      return "its agent has not reported";
    return "";
  }

  Status write_kubeconfigs(const apiserver::Credentials& credentials) const {
    auto& fs = os::real_file_system();
    for (const auto& [node, layer] : options_.nodes) {
      TRY_VOID(apiserver::write_agent_kubeconfig(fs,
                                                 datadir::node_directory(options_.data_dir, node),
                                                 credentials, url(), "system:node:" + node));
    }
    return apiserver::write_kubeconfig(fs, options_.data_dir / "kubeconfig", credentials, url(),
                                       apiserver::kAdmin);
  }

  /// Gives each node a new certificate for its peers. A node without one still serves models, so
  /// errors are only logged.
  void issue_identities() {
    for (const auto& [node, layer] : options_.nodes) {
      const WallTime now = system_clock().wall();
      const auto sign = [&, name = node, of = gateway::parse_layer(layer)](const std::string& csr) {
        return authority_->issue(name, of.value_or(gateway::Layer::kEdge), csr, now);
      };
      const auto facts =
          agent::identity::issue(os::real_file_system(),
                                 datadir::node_directory(options_.data_dir, node) / "data/identity",
                                 node, {.ca_pem = authority_->ca_pem(), .sign = sign});
      if (facts.ok()) {
        identity_ = *facts;
      } else {
        log::warn("node gets no certificate for its peers",
                  {{"node", node}, {"error", facts.error()}});
      }
    }
  }

  /// Checks the clock once a minute, because clocks jump.
  void renew_identities(const std::stop_token& stop) {
    const Context ctx(stop);
    while (ctx.sleep_for(std::chrono::minutes(1)).ok()) {
      if (identity_ && net::must_be_renewed(*identity_, gateway::kNodeCertificateValid / 3,
                                            system_clock().wall()))
        issue_identities();
    }
  }

  net::Response back_up(const net::Request& request) {
    const auto identity = authenticator_->authenticate(request);
    net::Response response = back_up_for(request, identity);
    if (audit_) {
      const std::string id = system_rng().uuid();
      if (const auto event = apiserver::audit_event(
              request, identity.value_or(apiserver::Identity{}), response, audit_->level(), id))
        audit_->add(*event);
      response.headers.add("Audit-Id", id);
    }
    return response;
  }

  net::Response back_up_for(const net::Request& request,
                            const std::optional<apiserver::Identity>& identity) {
    if (auto refusal = apiserver::refuse_unless_administrator(request, identity, "take a backup"))
      return *std::move(refusal);
    if (request.method != "GET") return {.status = 405, .body = "only GET\n"};
    auto page = store_->list({});
    if (!page.ok()) return {.status = 500, .body = page.error().message() + "\n"};
    const bool credentials = net::Query::parse(request.query()).get("credentials") == "true";
    auto maker =
        datadir::BackupMaker::create({.data_dir = options_.data_dir,
                                      .credentials = credentials ? datadir::Credentials::kInclude
                                                                 : datadir::Credentials::kLeaveOut},
                                     std::move(page).value());
    if (!maker.ok()) return {.status = 500, .body = maker.error().message() + "\n"};
    log::info("backup started", {{"by", identity->name}, {"credentials", credentials}});
    net::Response response;
    response.headers.add("Content-Type", "application/zstd");
    response.stream = std::make_unique<BackupStream>(std::move(maker).value());
    return response;
  }

  /// Appends the controllers' metrics to the API server's own. The API server decides which clients
  /// may read them.
  net::Responder with_metrics_of_objects(net::Responder respond) {
    return net::Responder([this, held = std::make_shared<net::Responder>(std::move(respond))](
                              net::Response response) {
      if (response.status == 200) {
        MutexLock lock(mutex_);
        if (!stopped_) response.body += metrics::text_of(controllers_->metrics());
      }
      (*held)(std::move(response));
    });
  }

  Status listen() {
    net::Server::Options options = options_.limits.http;
    options.listen = options_.listen;
    options.body_bytes_max = std::max(options.body_bytes_max, options_.limits.api.body_bytes_max);
    options.tls = credentials_.tls;
    // A backup begins with a list of all objects, which must not hold up an I/O thread.
    const auto backup =
        backups_.wrap([this](const net::Request& request) { return back_up(request); });
    const auto handler = [this, api = api_->pool_handler(), backup](net::Request request,
                                                                    net::Responder respond) {
      if (request.path() == "/backup") return backup(std::move(request), std::move(respond));
      if (gateway::Uploads::is_for(request)) return upload(std::move(request), std::move(respond));
      if (auto unready =
              apiserver::readiness(os::real_file_system(), options_.data_dir / "store.db", request))
        return respond(std::move(*unready));
      if (request.path() == "/metrics")
        return api(std::move(request), with_metrics_of_objects(std::move(respond)));
      return api(std::move(request), std::move(respond));
    };
    auto server = net::Server::create(options, handler);
    if (!server.ok() && options_.listen_any_if_taken &&
        server.error().code() == Code::kUnavailable) {
      log::warn("address in use, using a free port", {{"address", options_.listen}});
      options.listen = host() + ":0";
      server = net::Server::create(options, handler);
    }
    if (!server.ok()) {
      const bool taken = server.error().code() == Code::kUnavailable;
      return Error(server.error().code(),
                   "--listen " + options_.listen + ": " + server.error().message() +
                       (taken ? "; --listen 127.0.0.1:0 takes any free port" : ""));
    }
    server_ = std::move(server).value();
    return {};
  }

  Status start_registry() {
    auto& fs = os::real_file_system();
    TRY(const std::string token, registry_token(fs, options_.data_dir));
    registry_client_ = net::make_client({});  // the collector of the server uses this client
    auto started =
        RegistryServer::start({.storage = {.root = options_.data_dir / "registry"},
                               .listen = options_.registry,
                               .listen_any_if_taken = options_.registry_any_if_taken,
                               .tls = std::nullopt,
                               .service = {.token = token,
                                           .reads = registry::Service::Options::Reads::kByDigest,
                                           .threads = 4,
                                           .metrics = &registry_},
                               .named = [this](const Context& ctx, const registry::Target& own) {
                                 return named_blobs(ctx, *client_, {}, *registry_client_, own);
                               }});
    if (!started.ok()) return std::move(started).error().context("--registry");
    registry_server_ = std::move(*started);
    uploads_ = std::make_unique<gateway::Uploads>(*registry_client_, upload_options(token));
    return {};
  }

  gateway::Uploads::Options upload_options(const std::string& token) {
    return {.registry = {.url = registry_server_->url(), .token = token}, .metrics = &registry_};
  }

  /// A file of a node that connects here. Other nodes use the gateway.
  void upload(net::Request request, net::Responder respond) {
    if (!uploads_)
      return respond(
          {.status = 404, .body = "{\"error\":\"this control plane has no registry\"}\n"});
    const auto identity = authenticator_->authenticate(request);
    const auto node = identity ? identity->node() : std::nullopt;
    if (!node)
      return respond(
          {.status = identity ? 403 : 401,
           .body = "only nodes upload files here; `varda push` sends to the registry\n"});
    const auto rights = [this, node = *node]() -> Result<gateway::BlobRights> {
      const Context ctx = Context::background().with_timeout(std::chrono::seconds(10));
      TRY(const auto edge_node, client_->find(ctx, api::EdgeNode::resource(), {"", node}));
      return edge_node ? gateway::Uploads::rights_of(*edge_node) : gateway::BlobRights();
    };
    uploads_->serve(*node, rights, std::move(request), std::move(respond));
  }

  /// Starts the gateway for further nodes, in front of the API server of this process.
  Status start_gateway() {
    gateway_client_ = std::make_unique<kube::Client>(
        net::loopback(api_->handler_as({"system:varda:gateway", {"system:masters"}})),
        kube::Client::Options{.field_manager = "varda-gateway", .metrics = &registry_});
    // This API server's authority replaces any other one. After a restore without credentials the
    // authority is new.
    TRY_VOID(authority_->publish(Context::background().with_timeout(std::chrono::seconds(30)),
                                 *gateway_client_, system_clock().wall(),
                                 gateway::Authority::Other::kIsReplaced));
    enrolment_ = std::make_unique<gateway::Enrolment>(
        *gateway_client_, *authority_, gateway::Enrolment::Options{.metrics = &registry_});
    gateway::Gateway::Options options;
    options.client = gateway_client_.get();
    // Pods of this machine have loopback addresses.
    TRY(options.streams.targets, net::Destinations::create({"127.0.0.0/8", "::1"}));
    options.streams.sign = [this](net::ProxyHeader& header) {
      return authority_->sign(header, system_clock().wall());
    };
    options.sessions = &sources_;
    options.enrolment = [this](const Context& ctx, const net::Request& request) {
      return enrolment_->handle(ctx, request);
    };
    options.metrics = &registry_;
    if (registry_server_) {
      TRY(const std::string token, registry_token(os::real_file_system(), options_.data_dir));
      options.registry = registry_client_.get();
      options.uploads = upload_options(token);
    }
    options.limits.connections_max = make_room_for_connections(options.limits.connections_max);
    net::Server::Options listen = gateway::server_options(options.limits);
    TRY(gateway_, gateway::Gateway::create(std::move(options)));
    listen.listen = options_.gateway;
    listen.receive = [this](const net::Request& head) { return gateway_->receive(head); };
    TRY(listen.tls, authority_->server({options_.gateway.substr(0, options_.gateway.rfind(':'))}));
    auto server = net::Server::create(listen, gateway_->handler());
    if (!server.ok() && options_.gateway_any_if_taken &&
        server.error().code() == Code::kUnavailable) {
      log::warn("gateway address in use, using a free port", {{"address", options_.gateway}});
      listen.listen = options_.gateway.substr(0, options_.gateway.rfind(':')) + ":0";
      server = net::Server::create(listen, gateway_->handler());
    }
    if (!server.ok()) return std::move(server).error().context("--gateway " + options_.gateway);
    gateway_server_ = std::move(server).value();
    log::info("gateway listens for nodes", {{"gateway", gateway_server_->address()}});
    return {};
  }

  const Options options_;
  metrics::Registry registry_;
  apiserver::Credentials credentials_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<apiserver::Authenticator> authenticator_;
  std::unique_ptr<apiserver::Authorizer> authorizer_;
  cluster::NodeSessions sessions_;
  SessionSources sources_{sessions_};
  std::unique_ptr<apiserver::AuditLog> audit_;
  net::HandlerPool backups_{{.threads = 1, .queue_max = 4}};
  Mutex mutex_;  // guards members that threads of api_ read until they end
  Status ended_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;  // true: the controllers may be destroyed
  std::unique_ptr<apiserver::Server> api_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<runtime::Manager> manager_;
  std::unique_ptr<hosting::CertificateIssuer> certificates_;
  std::unique_ptr<controllers::Controllers> controllers_;
  std::unique_ptr<cluster::Controllers> cluster_;
  std::unique_ptr<net::HttpClient> registry_client_;
  std::unique_ptr<RegistryServer> registry_server_;  // null: none
  std::unique_ptr<gateway::Uploads>
      uploads_;  // of nodes that connect to server_; null: no registry
  std::unique_ptr<net::Server> server_;
  std::optional<gateway::Authority> authority_;
  std::unique_ptr<kube::Client> gateway_client_;
  std::unique_ptr<gateway::Enrolment> enrolment_;
  std::unique_ptr<gateway::Gateway> gateway_;
  std::unique_ptr<net::Server> gateway_server_;
  std::stop_source done_;
  std::jthread renewal_;
  // Facts of the newest identity; all are issued together. Used by start(), then by identities_.
  std::optional<net::CertificateFacts> identity_;
  std::jthread identities_;
  std::jthread trimmer_;
  std::jthread thread_;
};

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::start(Options options) {
  auto running = std::make_unique<ControlPlaneImpl>(std::move(options));
  TRY_VOID(running->start());
  return std::unique_ptr<ControlPlane>(std::move(running));
}

}  // namespace varda::app
