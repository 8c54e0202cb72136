#include "agent/replicas/peers.h"

#include <utility>

#include "api/edgeai/edge_node.h"
#include "base/log.h"
#include "net/client.h"
#include "net/url.h"

namespace varda::agent::replicas {
namespace {

constexpr std::chrono::minutes kRefreshPeriod{1};

// Every host on the network can reach the port. Clients without a certificate share kNamelessMax
// connections, so that peers find room. Beyond that, the oldest such connection is closed.
constexpr std::size_t kConnectionsMax = 256;
constexpr std::size_t kConnectionsPerNodeMax = 8;
constexpr std::size_t kNamelessMax = 8;
// Below kConnectionsMax, so that silent clients cannot take every connection.
constexpr std::size_t kHandshakesMax = 64;
constexpr std::chrono::milliseconds kHeaderTimeout{3000};
constexpr std::chrono::seconds kIdle{15};
constexpr std::chrono::milliseconds kGrace{500};
constexpr std::chrono::milliseconds kConnectTimeout{3000};  // a reachable peer answers fast

}  // namespace

net::Server::Options peer_server_options() {
  net::Server::Options options;
  options.connections_max = kConnectionsMax;
  options.handshakes_max = kHandshakesMax;
  options.connections_per_name_max = kConnectionsPerNodeMax;
  options.nameless_connections_max = kNamelessMax;
  options.header_timeout = kHeaderTimeout;
  options.idle_timeout = kIdle;
  options.header_bytes_max = 8 << 10;
  options.body_bytes_max = 0;
  return options;
}

/// Sends requests with the current credentials.
class Peers::Client final : public net::HttpClient {
 public:
  Client(std::string node, const Peers& peers) : node_(std::move(node)), peers_(peers) {}

  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    // The URL comes from another node's report. A bad one counts as unreachable, so that the next
    // source is tried.
    const auto url = net::Url::parse(request.url);
    if (!url.ok() || url->scheme != "https" || !url->user.empty())
      return Error(Code::kUnavailable,
                   "node " + node_ + " has no URL of the form https://HOST:PORT for its peers");
    TRY(const std::shared_ptr<net::HttpClient> inner, current());
    auto response = inner->send(ctx, std::move(request));
    if (response.ok()) response->body = std::make_unique<Body>(inner, std::move(response->body));
    return response;
  }

 private:
  /// Keeps the client alive while its connection is read, because a renewal replaces the client.
  class Body final : public net::BodyReader {
   public:
    Body(std::shared_ptr<net::HttpClient> client, std::unique_ptr<net::BodyReader> inner)
        : client_(std::move(client)), inner_(std::move(inner)) {}
    Result<std::optional<std::string>> read() override { return inner_->read(); }

   private:
    const std::shared_ptr<net::HttpClient> client_;
    const std::unique_ptr<net::BodyReader> inner_;  // destroyed first
  };

  Result<std::shared_ptr<net::HttpClient>> current() {
    auto now = peers_.options_.credentials ? peers_.options_.credentials() : std::nullopt;
    if (!now) return Error(Code::kUnavailable, "this node has no identity for its peers");
    const MutexLock lock(mutex_);
    if (inner_ && in_use_ == now) return inner_;
    net::ClientOptions options;
    options.tls.ca_pem = now->ca_pem;
    options.tls.certificate_pem = now->certificate_pem;
    options.tls.key_pem = now->key_pem;
    options.tls.verified_name = api::peer_name(node_);
    options.tls.not_earlier_than = now->issued;
    options.connect_timeout = kConnectTimeout;
    options.idle_connections_max = 2;
    inner_ = net::make_client(std::move(options));
    in_use_ = std::move(now);
    return inner_;
  }

  const std::string node_;
  const Peers& peers_;
  Mutex mutex_;
  std::optional<identity::PeerCredentials> in_use_ GUARDED_BY(mutex_);
  std::shared_ptr<net::HttpClient> inner_ GUARDED_BY(mutex_);
};

Peers::Peers(Options options) : options_(std::move(options)) {}

Peers::~Peers() {
  if (server_) server_->stop(kGrace);
}

Status Peers::open(const identity::PeerCredentials& credentials) {
  const std::string& address = bound_.empty() ? options_.listen : bound_;
  const Status opened = listen(credentials, address);
  if (opened.ok() || options_.port == Port::kRequired || !bound_.empty() ||
      opened.error().code() != Code::kUnavailable)
    return opened;
  TRY_VOID(listen(credentials, address.substr(0, address.rfind(':')) + ":0"));
  log::warn("port for peers is taken, using a free one",
            {{"address", options_.listen}, {"instead", bound_}});
  return {};
}

Status Peers::listen(const identity::PeerCredentials& credentials, const std::string& address) {
  net::Server::Options options = peer_server_options();
  options.listen = address;
  options.tls = net::TlsServer{.certificate_pem = credentials.certificate_pem,
                               .key_pem = credentials.key_pem,
                               .client_ca_pem = credentials.ca_pem};
  TRY(server_, net::Server::create(std::move(options), handler_));
  bound_ = server_->address();
  in_use_ = credentials;
  return {};
}

Status Peers::serve(net::Handler handler) {
  if (options_.listen.empty()) return {};
  const auto credentials = options_.credentials ? options_.credentials() : std::nullopt;
  if (!credentials && options_.port == Port::kRequired)
    return Error(Code::kInvalid,
                 "--peer-listen needs an identity: join the node through a gateway");
  if (!options_.url.empty() && !api::is_peer_url(options_.url))
    return Error(Code::kInvalid,
                 "--peer-url " + options_.url + ": must be https://HOST:PORT, without a path");
  const MutexLock lock(mutex_);
  handler_ = std::move(handler);
  if (!credentials) return {};
  Status opened = open(*credentials);
  if (opened.ok() || options_.port == Port::kRequired)
    return std::move(opened).context("--peer-listen " + options_.listen);
  log::warn("cannot open the port for peers, retrying",
            {{"address", options_.listen}, {"error", opened.error()}});
  return {};
}

runtime::Task Peers::task(const Clock& clock, std::function<void()> url_changed) {
  const auto next = std::make_shared<SteadyTime>(clock.now() + kRefreshPeriod);
  return {.name = "peer certificate",
          .due = [next] { return std::optional(*next); },
          .step =
              [this, &clock, next, changed = std::move(url_changed)](const Context&) {
                const std::string before = url();
                refresh();
                if (url() != before) changed();
                *next = clock.now() + kRefreshPeriod;
              }};
}

void Peers::refresh() {
  const auto credentials = options_.credentials ? options_.credentials() : std::nullopt;
  const MutexLock lock(mutex_);
  if (!handler_ || !credentials || in_use_ == credentials) return;
  if (server_) server_->stop(kGrace);
  server_.reset();
  if (const Status opened = open(*credentials); !opened.ok())
    log::warn("cannot open the port for peers, retrying",
              {{"address", bound_.empty() ? options_.listen : bound_}, {"error", opened.error()}});
}

std::string Peers::url() const {
  const MutexLock lock(mutex_);
  if (bound_.empty()) return "";
  return options_.url.empty() ? "https://" + bound_ : options_.url;
}

net::HttpClient* Peers::client_of(const std::string& node) {
  if (!options_.credentials || !options_.credentials()) return nullptr;
  const MutexLock lock(mutex_);
  std::unique_ptr<Client>& client = clients_[node];
  if (!client) client = std::make_unique<Client>(node, *this);
  return client.get();
}

}  // namespace varda::agent::replicas
