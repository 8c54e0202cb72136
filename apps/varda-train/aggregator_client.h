// Requests of a pod to the aggregator: through the stream at the worker socket, or to an address.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "net/http.h"
#include "os/file_system.h"
#include "worker/environment.h"

namespace varda::trainapp {

/// Sends through `stream`. If the node has no such stream (kNotFound), then all requests take the
/// address. Thread-safe.
class AggregatorClient final : public net::HttpClient {
 public:
  /// One of both may be null.
  AggregatorClient(std::unique_ptr<net::HttpClient> stream,
                   std::unique_ptr<net::HttpClient> address)
      : stream_(std::move(stream)), address_(std::move(address)) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override;

 private:
  const std::unique_ptr<net::HttpClient> stream_, address_;
  std::atomic<bool> stream_works_ = false, use_address_ = false;
};

/// A client of the stream `aggregator` of the worker. `fs` outlives the client.
std::unique_ptr<net::HttpClient> stream_client(const worker::Access& access, os::FileSystem& fs);

}  // namespace varda::trainapp
