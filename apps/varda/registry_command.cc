// registry: stores models, datasets and results by digest.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stop_token>

#include "admin.h"
#include "base/log.h"
#include "base/text.h"
#include "command.h"
#include "duration.h"
#include "meta/quantity.h"
#include "net/browser_guard.h"
#include "net/server.h"
#include "os/file_system.h"
#include "registry/service.h"
#include "registry_storage.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

struct RegistryFlags {
  std::string data_dir, listen = "127.0.0.1:8090", admin = "127.0.0.1:8091";
  std::string tls_cert, tls_key, token_file, quota, grace = "24h";
  std::string s3, s3_endpoint, s3_credentials_dir;
};

constexpr std::chrono::seconds kRegistryDrain{20};
// Finishing an upload in a bucket waits for the network, not for a processor.
constexpr std::size_t kBucketThreads = 32;
constexpr std::chrono::milliseconds kCollectEvery = std::chrono::minutes(10);

Result<std::string> read_flag_file(const std::string& file, const char* flag) {
  return os::read_file(os::real_file_system(), followed(file)).context(flag);
}

Result<std::uint64_t> parse_quota(const std::string& text) {
  if (text.empty()) return std::uint64_t{0};
  const auto value = meta::quantity_value(text);
  if (!value || *value < 1 || *value > 1e18)
    return Error(Code::kInvalid, "--quota must be a number of bytes such as 200Gi");
  return static_cast<std::uint64_t>(*value);
}

Result<std::optional<net::TlsServer>> registry_tls(const RegistryFlags& flags) {
  if (flags.tls_cert.empty() != flags.tls_key.empty())
    return Error(Code::kInvalid, "--tls-cert and --tls-key go together");
  if (flags.tls_cert.empty()) return std::optional<net::TlsServer>();
  net::TlsServer tls;
  TRY(tls.certificate_pem, read_flag_file(flags.tls_cert, "--tls-cert"));
  TRY(tls.key_pem, read_flag_file(flags.tls_key, "--tls-key"));
  return std::optional(std::move(tls));
}

/// Applies the browser guard to streamed uploads, which pass no handler.
std::function<net::Reception(const net::Request&)> guarded(
    const net::BrowserGuard& guard, std::function<net::Reception(const net::Request&)> receive) {
  constexpr int kPassed = 299;
  auto check = net::guard_from_browsers(guard, net::inline_handler([](const net::Request&) {
                                          return net::Response{.status = kPassed};
                                        }));
  return [check = std::move(check),
          receive = std::move(receive)](const net::Request& head) -> net::Reception {
    if (head.method != "PUT") return {};
    std::optional<net::Response> answer;
    check(head,
          net::Responder([&answer](net::Response response) { answer = std::move(response); }));
    if (answer && answer->status != kPassed)
      return {.receiver = nullptr, .refusal = std::move(answer)};
    return receive(head);
  };
}

void collect(registry::Service& service) {
  const auto collected = service.collect(system_clock().wall());
  if (!collected.ok()) {
    log::error("collection failed, retrying later", {{"error", collected.error()}});
  } else if (collected->blobs > 0 || collected->uploads > 0) {
    log::info("collected", {{"blobs", collected->blobs},
                            {"bytes", collected->bytes},
                            {"uploads", collected->uploads}});
  }
}

Status serve_registry(const Context& ctx, const Globals& globals, const RegistryFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kInfo));
  if (flags.data_dir.empty()) return Error(Code::kInvalid, "--data-dir must not be empty");
  const os::Path root = std::filesystem::absolute(flags.data_dir).lexically_normal();
  TRY(const std::uint64_t quota, parse_quota(flags.quota));
  TRY(const std::chrono::milliseconds grace, parse_duration("--grace", flags.grace));
  registry::Service::Options options{.quota_bytes = quota, .grace = grace};
  if (!flags.token_file.empty()) {
    TRY(const std::string text, read_flag_file(flags.token_file, "--token-file"));
    options.token = trim(text);
    if (options.token.empty())
      return Error(Code::kInvalid, "--token-file " + flags.token_file + " is empty");
  }
  TRY(std::optional<net::TlsServer> tls, registry_tls(flags));

  if (flags.s3.empty() && (!flags.s3_endpoint.empty() || !flags.s3_credentials_dir.empty()))
    return Error(Code::kInvalid, "--s3-endpoint and --s3-credentials-dir need --s3");
  if (!flags.s3.empty()) options.threads = kBucketThreads;

  TRY_VOID(os::real_file_system().make_directories(root, 0755));
  metrics::Registry registry;
  std::stop_source drained;  // requests in flight still need the bucket while the server drains
  TRY(const RegistryStorage storage,
      RegistryStorage::open(Context(drained.get_token()),
                            {.root = root,
                             .quota_bytes = quota,
                             .s3 = flags.s3,
                             .s3_endpoint = flags.s3_endpoint,
                             .credentials_dir = flags.s3_credentials_dir},
                            registry));
  options.metrics = &registry;
  registry::Service service(*storage.blobs, *storage.versions, options);

  const net::BrowserGuard guard{.listen = flags.listen, .cors_origins = {}};
  net::Server::Options listen = service.server_options();
  listen.listen = flags.listen;
  listen.tls = std::move(tls);
  listen.receive = guarded(guard, std::move(listen.receive));
  const bool encrypted = listen.tls.has_value();
  TRY(const auto server,
      net::Server::create(std::move(listen), net::guard_from_browsers(guard, service.handler()))
          .context("--listen " + flags.listen));
  TRY(const auto admin, serve_admin(flags.admin, registry, [] { return true; }));
  if (options.token.empty())
    log::warn("without --token-file, every client may write", {{"address", server->address()}});
  // With port 0 the caller reads the chosen port here.
  std::printf("registry at %s://%s\n", encrypted ? "https" : "http", server->address().c_str());
  std::fflush(stdout);
  const std::chrono::milliseconds pause =
      std::clamp<std::chrono::milliseconds>(grace / 2, std::chrono::seconds(1), kCollectEvery);
  do collect(service);
  while (ctx.sleep_for(pause).ok());
  log::info("stopping");
  server->drain();
  server->stop(kRegistryDrain);
  drained.request_stop();
  return {};
}

}  // namespace

void add_registry_command(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  const auto flags = std::make_shared<RegistryFlags>();
  CLI::App* command = program.daemon(
      "registry", "store models, datasets and results by digest; uploads continue after a cut");
  command
      ->add_option("--data-dir", flags->data_dir,
                   "directory of the registry, with --s3 only for bytes on their way; created")
      ->required();
  command->add_option("--s3", flags->s3,
                      "s3://BUCKET or s3://BUCKET/PREFIX, which stores everything; one registry "
                      "may use it at a time");
  command->add_option("--s3-endpoint", flags->s3_endpoint,
                      "URL of the S3 server; default: AWS_ENDPOINT_URL of the credentials, or AWS");
  command->add_option("--s3-credentials-dir", flags->s3_credentials_dir,
                      "directory of a mounted Secret with AWS_ACCESS_KEY_ID and "
                      "AWS_SECRET_ACCESS_KEY; default: requests are not signed");
  command
      ->add_option("--listen", flags->listen,
                   "address and port; port 0: a free one, which is printed")
      ->default_str(flags->listen);
  command->add_option("--tls-cert", flags->tls_cert,
                      "PEM of the certificate, then its chain; default: plain HTTP");
  command->add_option("--tls-key", flags->tls_key, "PEM of the key of --tls-cert");
  command->add_option("--token-file", flags->token_file,
                      "file with the bearer token that every request needs; default: none");
  command->add_option(
      "--quota", flags->quota,
      "limit of all blobs and unfinished uploads, such as 200Gi; default: the disk");
  command
      ->add_option("--grace", flags->grace,
                   "age at which blobs without a version, and unfinished uploads, are removed")
      ->default_str(flags->grace);
  command->add_option("--admin", flags->admin, "address of /healthz, /readyz and /metrics")
      ->default_str(flags->admin);
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) { return serve_registry(ctx, globals, *flags); };
  });
}

}  // namespace varda::app
