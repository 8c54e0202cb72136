#include "apiserver/standalone.h"

#include <algorithm>

#include "apiserver/bootstrap.h"
#include "base/log.h"
#include "base/metrics.h"
#include "net/server.h"
#include "store/room.h"

namespace varda::apiserver {

std::string url_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host == "0.0.0.0" || host.empty()) host = "127.0.0.1";
  if (host == "[::]" || host == "::") host = "[::1]";
  return "https://" + host + (colon == std::string::npos ? "" : address.substr(colon));
}

std::optional<net::Response> readiness(os::FileSystem& fs, const os::Path& store_file,
                                       const net::Request& request) {
  if (request.path() != "/readyz") return std::nullopt;
  const Status room = store::room_for_objects(fs, store_file);
  if (room.ok()) return std::nullopt;
  return net::Response{.status = 503, .body = "store: " + room.error().message() + "\n"};
}

Status run_standalone(const Context& ctx, StandaloneOptions options) {
  os::FileSystem& fs = os::real_file_system();
  TRY_VOID(fs.make_directories(options.data_dir, 0755));
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  const CredentialOptions wanted{
      .data_dir = options.data_dir, .nodes = {}, .hosts = {host == "0.0.0.0" ? "" : host}};
  TRY(const Credentials credentials, load_or_create_credentials(fs, wanted, system_rng()));

  metrics::Registry metrics;
  store::Options store_options = options.store;
  store_options.value_bytes_max =
      std::max(store_options.value_bytes_max, options.limits.object_bytes_max);
  store_options.metrics = &metrics;
  TRY(const auto store, store::open_sqlite(options.data_dir / "store.db", store_options));
  std::unique_ptr<AuditLog> audit;
  if (options.audit) {
    options.audit->metrics = &metrics;
    TRY(audit, AuditLog::open(fs, *options.audit));
  }
  TRY(const auto tokens, token_file_authenticator(fs, options.data_dir));
  const auto rules = node_authorizer();
  Server::Options server_options;
  server_options.store = store.get();
  server_options.authenticator = tokens.get();
  server_options.authorizer = rules.get();
  server_options.limits = options.limits;
  server_options.metrics = &metrics;
  server_options.audit = audit.get();
  TRY(const auto server, Server::create(std::move(server_options)));

  net::Server::Options net_options = options.http;
  net_options.listen = options.listen;
  net_options.tls = credentials.tls;
  net_options.body_bytes_max = std::max(net_options.body_bytes_max, options.limits.body_bytes_max);
  const auto handler = [&fs, api = server->pool_handler(), file = options.data_dir / "store.db"](
                           net::Request request, net::Responder respond) {
    if (auto unready = readiness(fs, file, request)) return respond(std::move(*unready));
    api(std::move(request), std::move(respond));
  };
  TRY(const auto front, net::Server::create(std::move(net_options), handler));

  const std::string url = url_of(front->address());
  const os::Path kubeconfig = options.data_dir / "kubeconfig";
  TRY_VOID(write_kubeconfig(fs, kubeconfig, credentials, url, kAdmin));
  log::info("API server is ready", {{"url", url}, {"kubeconfig", kubeconfig.string()}});
  if (options.ready) options.ready(url, kubeconfig);

  CertificateRenewal renewal(fs, wanted, credentials, [&](const Credentials& renewed) -> Status {
    TRY_VOID(front->use_certificate(renewed.tls.certificate_pem, renewed.tls.key_pem));
    return write_kubeconfig(fs, kubeconfig, renewed, url, kAdmin);
  });
  renewal.run(ctx);
  log::info("API server stopping");
  front->drain();
  server->stop();
  front->stop(std::chrono::seconds(5));
  return {};
}

}  // namespace varda::apiserver
