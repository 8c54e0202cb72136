#include "registry_server.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "net/browser_guard.h"

namespace varda::app {
namespace {

constexpr std::chrono::seconds kRegistryDrain{20};
constexpr std::chrono::milliseconds kCollectEvery = std::chrono::minutes(10);

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

}  // namespace

Result<std::unique_ptr<RegistryServer>> RegistryServer::start(Options options) {
  std::unique_ptr<RegistryServer> out(new RegistryServer(std::move(options)));  // NOLINT: private
  TRY_VOID(out->open());
  return out;
}

Status RegistryServer::open() {
  os::FileSystem& fs = os::real_file_system();
  TRY_VOID(fs.make_directories(options_.storage.root, 0755));
  metrics::Registry& metrics =
      options_.service.metrics == nullptr ? own_metrics_ : *options_.service.metrics;
  TRY(storage_, RegistryStorage::open(Context(drained_.get_token()), options_.storage, metrics));
  chunk_lists_ = std::make_unique<registry::ChunkLists>(
      registry::ChunkLists::Options{.root = options_.storage.root / "chunks"}, *storage_.blobs, fs);
  registry::Service::Options service = options_.service;
  service.chunk_lists = chunk_lists_.get();
  service_ = std::make_unique<registry::Service>(*storage_.blobs, *storage_.versions, service);

  const net::BrowserGuard guard{.listen = options_.listen, .cors_origins = {}};
  net::Server::Options listen = service_->server_options();
  listen.listen = options_.listen;
  listen.tls = options_.tls;
  listen.receive = guarded(guard, std::move(listen.receive));
  const auto handler = net::guard_from_browsers(guard, service_->handler());
  auto server = net::Server::create(listen, handler);
  if (!server.ok() && options_.listen_any_if_taken && server.error().code() == Code::kUnavailable) {
    log::warn("address in use, using a free port", {{"registry", listen.listen}});
    listen.listen = listen.listen.substr(0, listen.listen.rfind(':')) + ":0";
    server = net::Server::create(listen, handler);
  }
  if (!server.ok()) return Error(server.error()).context("registry at " + options_.listen);
  server_ = std::move(*server);
  const auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(options_.service.grace);
  const auto pause =
      std::clamp<std::chrono::milliseconds>(grace / 2, std::chrono::seconds(1), kCollectEvery);
  collector_ = std::jthread([this, pause](const std::stop_token& stop) {
    const Context ctx(stop);
    do collect(ctx);
    while (ctx.sleep_for(pause).ok());
  });
  return {};
}

std::string RegistryServer::url() const {
  return (options_.tls ? "https://" : "http://") + server_->address();
}

void RegistryServer::collect(const Context& ctx) {
  std::set<codec::Sha256> named;
  if (options_.named) {
    auto found = options_.named(ctx, {.url = url(), .token = options_.service.token});
    if (!found.ok()) {
      if (!ctx.stopped())
        log::warn("named blobs unknown, collecting later", {{"error", found.error()}});
      return;
    }
    named = std::move(*found);
  }
  const auto collected = service_->collect(system_clock().wall(), named);
  if (!collected.ok()) {
    log::error("collection failed, retrying later", {{"error", collected.error()}});
  } else if (collected->blobs > 0 || collected->uploads > 0) {
    log::info("collected", {{"blobs", collected->blobs},
                            {"bytes", collected->bytes},
                            {"uploads", collected->uploads}});
  }
}

void RegistryServer::stop() {
  collector_ = {};  // joins
  if (!server_) return;
  server_->drain();
  server_->stop(kRegistryDrain);
  drained_.request_stop();
}

os::Path registry_token_file(const os::Path& data_dir) { return data_dir / "registry.token"; }

Result<std::string> registry_token(os::FileSystem& fs, const os::Path& data_dir) {
  const os::Path file = registry_token_file(data_dir);
  const auto text = os::read_file(fs, file);
  if (text.ok() && !trim(*text).empty()) return std::string(trim(*text));
  if (!text.ok() && text.error().code() != Code::kNotFound)
    return Error(text.error()).context(file.string());
  // 244 random bits.
  const std::string token = codec::Sha256::of(system_rng().uuid() + system_rng().uuid()).hex();
  TRY_VOID(os::write_file_atomically(fs, file, token + "\n", 0600));
  return token;
}

}  // namespace varda::app
