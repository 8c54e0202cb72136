// The API server as a separate process: `varda apiserver`.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "apiserver/server.h"
#include "base/context.h"
#include "base/result.h"
#include "net/server.h"
#include "os/file_system.h"
#include "store/store.h"

namespace varda::apiserver {

struct StandaloneOptions {
  os::Path data_dir;                      // store.db, pki/, tokens.json, kubeconfig
  std::string listen = "127.0.0.1:6443";  // port 0: any free port
  Limits limits;
  store::Options store;
  net::Server::Options http;  // listen and tls are set by run_standalone()
  std::optional<AuditLog::Options> audit;
  /// Called when the API answers, with the bound address and the administrator's kubeconfig.
  std::function<void(const std::string& url, const os::Path& kubeconfig)> ready;
};

/// Serves until `ctx` is done, then drains and returns. kUnavailable: the store or the address is
/// in use.
Status run_standalone(const Context& ctx, StandaloneOptions options);

/// 503 for /readyz while the store's disk is full; nullopt: the API server answers the request.
std::optional<net::Response> readiness(os::FileSystem& fs, const os::Path& store_file,
                                       const net::Request& request);

/// The URL for clients on this machine: "0.0.0.0:6443" gives "https://127.0.0.1:6443".
std::string url_of(const std::string& address);

}  // namespace varda::apiserver
