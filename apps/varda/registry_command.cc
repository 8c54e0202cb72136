// registry: stores models, datasets and results by digest.
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
#include "net/server.h"
#include "os/file_system.h"
#include "registry/service.h"
#include "registry_server.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

struct RegistryFlags {
  std::string data_dir, listen = "127.0.0.1:8090", admin = "127.0.0.1:8091";
  std::string tls_cert, tls_key, token_file, quota, grace = "24h";
  std::string s3, s3_endpoint, s3_credentials_dir;
};

// Finishing an upload in a bucket waits for the network, not for a processor.
constexpr std::size_t kBucketThreads = 32;

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

  metrics::Registry metrics;
  options.metrics = &metrics;
  const bool open_to_all = options.token.empty();
  TRY(const auto registry,
      RegistryServer::start({.storage = {.root = root,
                                         .quota_bytes = quota,
                                         .s3 = flags.s3,
                                         .s3_endpoint = flags.s3_endpoint,
                                         .credentials_dir = flags.s3_credentials_dir},
                             .listen = flags.listen,
                             .tls = std::move(tls),
                             .service = std::move(options),
                             .named = nullptr}));
  TRY(const auto admin, serve_admin(flags.admin, metrics, [] { return true; }));
  if (open_to_all)
    log::warn("without --token-file, every client may write", {{"address", registry->address()}});
  // With port 0 the caller reads the chosen port here.
  std::printf("registry at %s\n", registry->url().c_str());
  std::fflush(stdout);
  while (ctx.sleep_for(std::chrono::hours(24)).ok()) continue;
  log::info("stopping");
  registry->stop();
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
