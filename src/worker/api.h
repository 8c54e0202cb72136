// Requests to the worker API of the node's agent (docs/reference/worker-api.yaml).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::worker {

/// Thread-safe. The token is read for each request, because the agent may replace it.
class WorkerApi {
 public:
  struct Options {
    os::Path token_file;
    std::chrono::milliseconds request_timeout{60'000};
    std::chrono::milliseconds first_pause{500};  // doubles after each failure
    std::chrono::milliseconds longest_pause{30'000};
    std::size_t piece_bytes = std::size_t{8} << 20;  // of an uploaded file
  };
  /// `http` sends every request to the agent's socket. All three outlive the object.
  WorkerApi(Options options, net::HttpClient& http, os::FileSystem& fs)
      : options_(std::move(options)), http_(http), fs_(fs) {}

  /// Sends one request, without a retry. kInvalid: the agent refuses the content, and would refuse
  /// it again. kUnavailable: no agent, no token, an overloaded or restarting agent.
  Status send(const Context& ctx, const std::string& method, const std::string& path,
              const codec::Json& body);
  /// The same for a request with an answer: a JSON value.
  Result<codec::Json> fetch(const Context& ctx, const std::string& method, const std::string& path,
                            const std::optional<codec::Json>& body,
                            std::chrono::milliseconds more_time = std::chrono::milliseconds(0));
  /// Sends until the agent accepts. kInvalid: the agent refuses. kCancelled, kTimeout: the context.
  Status deliver(const Context& ctx, const std::string& method, const std::string& path,
                 const codec::Json& body);
  /// Hands over a file in pieces, until the agent has it on disk. A broken connection costs one
  /// piece. `hex` is the SHA-256 of the file. kInvalid: the agent refuses the file, or has another
  /// file under this name.
  Status upload(const Context& ctx, const os::Path& file, const std::string& name,
                const std::string& hex);

 private:
  Result<net::HttpClient::Answer> ask(const Context& ctx, const std::string& method,
                                      const std::string& path, std::string body,
                                      net::Headers headers,
                                      std::chrono::milliseconds more_time = {});
  Status retry(const Context& ctx, const std::string& what, const std::function<Status()>& attempt);

  const Options options_;
  net::HttpClient& http_;
  os::FileSystem& fs_;
};

}  // namespace varda::worker
