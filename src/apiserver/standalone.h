// The API server as a process of its own: `varda apiserver`.
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
  std::string listen = "127.0.0.1:6443";  // port 0: a free one
  Limits limits;
  store::Options store;
  net::Server::Options http;  // its listen and tls are those of this server
  std::optional<AuditLog::Options> audit;
  /// Called once the API answers: with the address it is bound to and the kubeconfig of the administrator.
  std::function<void(const std::string& url, const os::Path& kubeconfig)> ready;
};

/// Serves until `ctx` is done, then drains and ends well. kUnavailable: the store or the address is in use.
Status run_standalone(const Context& ctx, StandaloneOptions options);

/// 503 for a request of /readyz while the disk of the store is full; nothing: the API server answers the request.
std::optional<net::Response> readiness(os::FileSystem& fs, const os::Path& store_file, const net::Request& request);

/// "https://127.0.0.1:6443" for clients on this machine of a server bound to `address` ("0.0.0.0:6443" is reached at 127.0.0.1).
std::string url_of(const std::string& address);

}  // namespace varda::apiserver
