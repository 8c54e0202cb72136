// varda-serve: the model server. This file builds the parts and hands them to each other.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

#include "access.h"
#include "base/context.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "broker.h"
#include "flags.h"
#include "infer/engine.h"
#include "net/browser_guard.h"
#include "net/client.h"
#include "net/proxy.h"
#include "net/server.h"
#include "os/confinement.h"
#include "os/file_system.h"
#include "os/process.h"
#include "reach.h"
#include "served_certificate.h"
#include "serving/handler.h"
#include "serving/joint/tier_runtime.h"
#include "serving/load_probe.h"
#include "serving/repository.h"
#include "serving/sampling/keeper.h"
#include "tier_client.h"

namespace varda::serve {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

std::vector<std::filesystem::path> engine_directories(const Flags& flags) {
  std::vector<std::filesystem::path> out(flags.engine_path.begin(), flags.engine_path.end());
  out.push_back(os::self_path().parent_path().parent_path() / "lib" / "varda");
  return out;
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

// Connections to later tiers (serving/joint).
constexpr std::size_t kIdleConnectionsMax = 64;  // per tier address, kept for the next request
constexpr std::chrono::seconds kDeadAfter{5};    // without a TCP acknowledgement

// The part of the drain timeout in which requests answer without later tiers.
constexpr std::chrono::seconds kAnswersPatience{3};

// Slower senders of large bodies could hold --bodies-bytes-max for hours.
constexpr std::size_t kBodyBytesPerSecondMin = 32 << 10;

constexpr std::chrono::seconds kRunsPatience{1};  // for runs that outlast the drain timeout

net::Proxies proxies_of_environment() {
  std::string left_out;
  auto proxies =
      net::proxies_from_environment([](const char* name) { return std::getenv(name); }, &left_out);
  if (!left_out.empty())
    log::warn("user and password of a proxy in the environment are not used",
              {{"proxy", left_out}});
  if (proxies.ok()) return std::move(proxies).value();
  // Only requests to later tiers use a proxy, so the server starts without one.
  log::warn("proxies in the environment are not usable", {{"error", proxies.error()}});
  return {};
}

// The variable is set for pods that serve a single version. If the version cannot be loaded, the
// server ends; Kubernetes keeps the last line of the output as the reason.
bool ends_without_a_version() {
  const char* value = std::getenv("VARDA_SERVE_END_ON_LOAD_FAILURE");
  return value != nullptr && std::string_view(value) == "1";
}

// "LoadFailed: why" if every model is UNAVAILABLE. Nothing without models, or while one serves or
// loads.
std::optional<std::string> load_failure(const serving::Repository& repository) {
  std::optional<std::string> why;
  for (const oip::IndexEntry& entry : repository.index()) {
    if (entry.state != "UNAVAILABLE") return std::nullopt;
    if (!why) why = (entry.code.empty() ? "LoadFailed" : entry.code) + ": " + entry.reason;
  }
  if (why) std::replace(why->begin(), why->end(), '\n', ' ');
  return why;
}

// Waits for a stop, and calls `check_certificate` each second. kUnavailable: load_failure() has a
// reason.
Status wait_for_end(const Context& ctx, const serving::Repository& repository,
                    const std::function<void()>& check_certificate) {
  const bool may_end = ends_without_a_version();
  while (!ctx.stopped()) {
    if (may_end) {
      if (auto why = load_failure(repository)) return Error(Code::kUnavailable, std::move(*why));
    }
    if (check_certificate) check_certificate();
    (void)ctx.sleep_for(may_end || check_certificate ? Duration(std::chrono::seconds(1))
                                                     : Duration(std::chrono::hours(1)));
  }
  return {};
}

// Runs in the child of a ChildProbe. The child skips the exit handlers of engines: a crash there
// would count as a failure of the model.
int probe_load(const Flags& flags) {
  infer::Engines engines(engine_directories(flags));
  const std::size_t slash = flags.probe_load.rfind('/');
  const std::string model = flags.probe_load.substr(0, slash);
  const std::string version = slash == std::string::npos ? "" : flags.probe_load.substr(slash + 1);
  const serving::ModelVersion::Source source{
      model, version, std::filesystem::path(flags.model_repository) / model / version};
  std::_Exit(serving::ChildProbe::child(source, flags.defaults, os::real_file_system(), engines));
}

/// Returns null if the server will not be confined, or if the system allows no second process.
std::shared_ptr<Broker> start_broker(const Flags& flags) {
  if (!flags.confine || !flags.probe_load.empty()) return nullptr;
  auto broker = Broker::start(credential_files(flags));
  if (broker.ok()) return std::move(*broker);
  log::warn("broker not started: files replaced by a rename need a restart of the server",
            {{"error", broker.error()}});
  return nullptr;
}

/// Returns whether the kernel now confines this process and its children. Called before any thread
/// starts.
bool confine(const Flags& flags, Credentials credentials) {
  if (!flags.confine) return false;
  const Status status =
      os::confine_files(reach_of(flags, engine_directories(flags), environment(), credentials));
  if (!status.ok())
    log::warn("not confined: a model could read every file of this user",
              {{"error", status.error()}});
  return status.ok();
}

/// `broker` is null if the server is not confined. Threads of name lookups share it.
Status serve(const Context& ctx, const Flags& flags, bool confined,
             const std::shared_ptr<const Broker>& broker, std::vector<std::string> arguments) {
  metrics::Registry registry;
  infer::Engines engines(engine_directories(flags));
  // A confined child cannot raise its own score.
  std::function<void(pid_t)> started;
  if (broker) started = [broker](pid_t child) { (void)broker->sacrifice(child); };
  serving::ChildProbe probe({.program = os::self_path(),
                             .arguments = std::move(arguments),
                             .environment = environment(),
                             .timeout = milliseconds(flags.load_timeout_seconds),
                             .started = started});
  ReadFile read_file = read_from(os::real_file_system());
  net::LookUp look_up;
  if (broker) {
    read_file = [broker](const os::Path& path) { return broker->read(path); };
    look_up = [broker](const std::string& host) { return broker->look_up(host); };
  }
  const net::Proxies proxies = proxies_of_environment();
  const TierFiles tier_files{.ca = flags.tier_ca,
                             .certificate = flags.tls_cert,
                             .key = flags.tls_key,
                             .tokens = flags.tier_token_file};
  const auto tier_client = [&](std::size_t idle_connections_max) {
    return make_tier_client({.proxies = proxies,
                             .idle_connections_max = idle_connections_max,
                             .look_up = look_up,
                             .dead_after = kDeadAfter},
                            tier_files, read_file, system_clock());
  };
  const std::unique_ptr<net::HttpClient> pooled = tier_client(kIdleConnectionsMax);
  const std::unique_ptr<net::HttpClient> fresh = tier_client(0);
  serving::joint::TierRuntime runtime({}, {*pooled, *fresh}, registry, system_rng());
  std::unique_ptr<serving::sampling::Keeper> keeper;
  if (!flags.samples_directory.empty())
    keeper = std::make_unique<serving::sampling::Keeper>(
        serving::sampling::Keeper::Options{.directory = flags.samples_directory},
        os::real_file_system(), registry, system_rng());
  TRY(const std::unique_ptr<serving::Repository> repository,
      serving::Repository::open({.directory = flags.model_repository,
                                 .defaults = flags.defaults,
                                 .probe = flags.try_loads ? &probe : nullptr,
                                 .joint = &runtime,
                                 .samples = keeper.get()},
                                os::real_file_system(), engines, registry));
  std::atomic<bool> draining{false};
  const serving::Service service{.repository = *repository,
                                 .registry = registry,
                                 .draining = draining,
                                 .joint = &runtime,
                                 .confined = confined};

  const net::Handler handler = serving::make_handler(service);
  const net::Handler admin_handler = serving::make_admin_handler(service);
  const bool one_port = flags.admin.empty();
  std::unique_ptr<TokenFile> tokens;
  if (!flags.token_file.empty()) {
    TRY(tokens, TokenFile::open(flags.token_file, read_file, system_clock()));
  }
  const ServedFiles served_files{
      .certificate = flags.tls_cert, .key = flags.tls_key, .client_ca = flags.client_ca};
  std::optional<net::TlsServer> tls;
  if (!flags.tls_cert.empty()) {
    TRY(tls, read_served(served_files, read_file));
  }
  const net::Handler front = guarded(
      [&](net::Request request, net::Responder respond) {
        const net::Handler& chosen =
            one_port && request.path() == "/metrics" ? admin_handler : handler;
        chosen(std::move(request), std::move(respond));
      },
      {.tokens = tokens.get(), .needs_client_certificate = !flags.client_ca.empty()});
  const std::size_t per_address = flags.connections_per_address_max > 0
                                      ? flags.connections_per_address_max
                                      : std::max<std::size_t>(flags.connections_max / 2, 1);
  const auto without_pages = [&](const std::string& listen, net::Handler one) {
    return net::guard_from_browsers({.listen = listen, .cors_origins = flags.cors_origins},
                                    std::move(one));
  };
  TRY(const std::unique_ptr<net::Server> server,
      net::Server::create(
          {.listen = flags.http,
           .tls = tls,
           .io_threads = flags.io_threads,
           .connections_max = flags.connections_max,
           .connections_per_address_max = per_address,
           .header_bytes_max = flags.header_bytes_max,
           .body_bytes_max = flags.body_bytes_max,
           .body_bytes_max_of =
               [max = flags.body_bytes_max](std::string_view method, std::string_view path) {
                 return serving::body_bytes_max_of(method, path, max);
               },
           .bodies_bytes_max = flags.bodies_bytes_max,
           .json_refusals = true,
           .idle_timeout = milliseconds(flags.idle_timeout_seconds),
           .body_bytes_per_second_min = kBodyBytesPerSecondMin},
          without_pages(flags.http, front)));
  std::unique_ptr<net::Server> admin;
  if (!one_port) {
    TRY(admin,
        net::Server::create({.listen = flags.admin}, without_pages(flags.admin, admin_handler)));
  }
  log::info("varda-serve listens", {{"version", VARDA_VERSION},
                                    {"http", server->address()},
                                    {"admin", admin ? admin->address() : server->address()},
                                    {"model_repository", flags.model_repository}});

  std::function<void()> check_certificate;
  if (tls) {
    check_certificate = [&, served = ServedCertificate(served_files, *tls, read_file)]() mutable {
      served.check([&](const net::TlsServer& changed) { return server->use_tls(changed); });
    };
  }
  TRY_VOID(wait_for_end(ctx, *repository, check_certificate));

  // First the server reports "not ready". Clients and proxies get the delay to notice.
  log::info("varda-serve drains", {{"delay_seconds", flags.drain_delay_seconds}});
  draining = true;
  server->drain();
  (void)Context::background().sleep_for(milliseconds(flags.drain_delay_seconds));
  // Before the timeout ends, remaining requests give up later tiers and return the best answer so
  // far.
  const std::chrono::milliseconds patience = milliseconds(flags.drain_timeout_seconds);
  std::stop_source drained;
  std::thread closing([&] {
    (void)Context(drained.get_token())
        .sleep_for(patience - std::min<std::chrono::milliseconds>(patience / 4, kAnswersPatience));
    runtime.stop();
  });
  server->stop(patience);
  drained.request_stop();
  closing.join();
  if (admin) admin->stop(std::chrono::milliseconds(100));
  if (keeper) keeper->stop();
  if (!repository->release(kRunsPatience)) {
    // A run cannot be stopped, so its memory must not be freed.
    log::warn("varda-serve ends while a model still runs");
    std::_Exit(0);
  }
  log::info("varda-serve ends");
  return {};
}

int run(int argc, char** argv) {
  const Parsed parsed = parse_flags(argc, argv);
  if (!parsed.flags) return parsed.exit_code;
  const Flags& flags = *parsed.flags;
  log::configure(flags.log_format == "json" ? log::Format::kJson : log::Format::kText,
                 log::parse_level(flags.log_level).value_or(log::Level::kInfo));
  std::shared_ptr<Broker> broker = start_broker(flags);
  const bool confined = confine(flags, broker ? Credentials::kOutside : Credentials::kInside);
  if (!flags.probe_load.empty()) return probe_load(flags);
  if (!confined) broker.reset();
  const Status status = serve(Context(os::stop_on_signals()), flags, confined, broker,
                              std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "varda-serve: %s\n", status.error().message().c_str());
  return 1;
}

}  // namespace
}  // namespace varda::serve

int main(int argc, char** argv) {
  try {
    return varda::serve::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "varda-serve: %s\n", e.what());
    return 1;
  }
}
