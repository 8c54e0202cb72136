// A registry in this process: directory, HTTP server and collection of unnamed blobs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

#include "base/metrics.h"
#include "base/result.h"
#include "codec/digest.h"
#include "net/server.h"
#include "net/tls.h"
#include "os/file_system.h"
#include "registry/chunk_lists.h"
#include "registry/client.h"
#include "registry/service.h"
#include "registry_storage.h"

namespace varda::app {

/// Answers from start() until stop(). Thread-safe.
class RegistryServer {
 public:
  struct Options {
    RegistryStorage::Options storage;  // the root is created
    std::string listen;                // "127.0.0.1:8090"
    bool listen_any_if_taken = false;
    std::optional<net::TlsServer> tls;
    registry::Service::Options service;
    /// Digests of blobs to keep, besides those that versions and lists of clusters name. After an
    /// error, nothing is collected. Null: no others. Runs on the collector's thread; `own` is this
    /// registry.
    std::function<Result<std::set<codec::Sha256>>(const Context&, const registry::Target& own)>
        named;
  };
  /// kUnavailable: the address or the directory is in use.
  static Result<std::unique_ptr<RegistryServer>> start(Options options);
  ~RegistryServer() { stop(); }

  std::string address() const { return server_->address(); }  // "127.0.0.1:8090"
  std::string url() const;
  /// Requests in flight have some seconds to end. Idempotent.
  void stop();

 private:
  explicit RegistryServer(Options options) : options_(std::move(options)) {}
  Status open();
  void collect(const Context& ctx);

  const Options options_;
  metrics::Registry own_metrics_;  // if the service's options have none
  std::stop_source drained_;       // requests in flight need the bucket while the server drains
  RegistryStorage storage_;
  std::unique_ptr<registry::ChunkLists> chunk_lists_;
  std::unique_ptr<registry::Service> service_;
  std::unique_ptr<net::Server> server_;
  std::jthread collector_;
};

/// The token in DATA/registry.token, created with mode 0600 if missing.
Result<std::string> registry_token(os::FileSystem& fs, const os::Path& data_dir);
os::Path registry_token_file(const os::Path& data_dir);

}  // namespace varda::app
