#include "apiserver/server.h"

#include "apiserver/internal/controllers.h"
#include "apiserver/internal/core.h"
#include "apiserver/internal/dialect.h"
#include "apiserver/internal/objects.h"
#include "net/server.h"

namespace varda::apiserver {

namespace {

class EmbeddedServer : public Server {
 public:
  explicit EmbeddedServer(Options options)
      : core_(std::move(options)),
        objects_(core_),
        dialect_(core_, objects_),
        controllers_(core_, objects_) {}

  ~EmbeddedServer() override {
    EmbeddedServer::stop();
    pool_.reset();
  }

  Status open() {
    if (metrics::Registry* metrics = core_.options.metrics; metrics != nullptr) {
      metrics->gauge_from(
          "apiserver_longrunning_requests", "Open watches.", {{"verb", "WATCH"}},
          gauges_.guarded([this] { return static_cast<double>(core_.sessions.count()); }));
    }
    TRY_VOID(core_.registry.refresh());
    const KindPtr kind = core_.registry.kinds()->find("", "namespaces");
    for (const char* name : {"default", "kube-system", "kube-public", "kube-node-lease"}) {
      if (kind == nullptr) break;
      TRY(const auto present, core_.store.get(kind->storage_key("", name)));
      if (present) continue;
      Json space = Json::object({{"kind", "Namespace"},
                                 {"apiVersion", "v1"},
                                 {"metadata", Json::object({{"name", name}})}});
      auto made = objects_.create(*kind, "", std::move(space), {});
      if (!made.ok() && made.error().code != 409)
        return made.error().to_error().context("namespace " + std::string(name));
    }
    if (core_.options.controllers) controllers_.start();
    return {};
  }

  net::Handler handler() override { return inline_for(std::nullopt); }
  net::Handler handler_as(Identity identity) override { return inline_for(std::move(identity)); }
  net::Handler pool_handler() override {
    MutexLock lock(mutex_);
    if (pool_ == nullptr) {
      pool_ = std::make_unique<net::HandlerPool>(
          net::HandlerPool::Options{.threads = core_.options.limits.handler_threads,
                                    .queue_max = core_.options.limits.handler_queue_max});
    }
    net::Handler pooled = pool_->wrap(
        [this](const net::Request& request) { return dialect_.serve(request, std::nullopt); });
    // Requests of microseconds are served at once, which is faster than waking another thread.
    return [this, pooled = std::move(pooled)](net::Request request, net::Responder respond) {
      if (auto response = dialect_.serve_at_once(request)) return respond(std::move(*response));
      pooled(std::move(request), std::move(respond));
    };
  }

  void stop() override {
    core_.stopping = true;
    controllers_.stop();
    core_.timers.all();
  }

  bool settle(const Context& ctx) override {
    return !core_.options.controllers || controllers_.settle(ctx);
  }

  std::optional<SteadyTime> step_controllers() override {
    CHECK(!core_.options.controllers);
    return controllers_.step();
  }

 private:
  net::Handler inline_for(std::optional<Identity> identity) {
    return net::inline_handler([this, identity = std::move(identity)](const net::Request& request) {
      return dialect_.serve(request, identity);
    });
  }

  Core core_;
  Objects objects_;
  Dialect dialect_;
  Controllers controllers_;
  Mutex mutex_;
  std::unique_ptr<net::HandlerPool> pool_ GUARDED_BY(mutex_);
  metrics::SourceGuard gauges_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::create(Options options) {
  if (options.store == nullptr) return Error(Code::kInvalid, "the API server needs a store");
  auto server = std::make_unique<EmbeddedServer>(std::move(options));
  TRY_VOID(server->open());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace varda::apiserver
