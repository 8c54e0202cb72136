// A file server in this process, as a net::HttpClient: no sockets, and every fault a download can meet, on demand.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "net/http.h"

namespace varda::artifact::testing {

/// Thread-safe.
class Origin final : public net::HttpClient {
 public:
  struct File {
    std::string bytes;
    std::string content_type = "application/gzip";
    std::string etag;  // "\"a\""; "" none
    bool ranges = true;
    int status = 200;             // anything else is answered with `bytes` as its page
    std::size_t break_after = 0;  // each connection breaks after so many bytes; 0: never
    std::size_t piece = 1000;     // bytes a read
    bool silent = false;          // the connection never says a byte, until its context ends
    bool length = true;           // Content-Length is told
    net::Headers headers = {};    // further ones
    std::size_t range_shift = 0;  // a range begins so many bytes after the one asked for
    std::size_t range_max = 0;    // no more of a range is given at once; 0: all of it
  };
  void put(std::string url, File file);
  void put(std::string url, std::string bytes) { put(std::move(url), File{.bytes = std::move(bytes)}); }
  void remove(const std::string& url);
  /// Called before each answer, without locks: where a test stops the world.
  void on_request(std::function<void()> hook);

  struct Seen {
    std::string url;
    std::string range, if_range;
    std::string authorization = {};
  };
  std::vector<Seen> seen() const;
  std::uint64_t bytes_served() const;

  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override;

 private:
  friend class OriginBody;
  mutable Mutex mutex_;
  std::map<std::string, File> files_ GUARDED_BY(mutex_);
  std::vector<Seen> seen_ GUARDED_BY(mutex_);
  std::uint64_t served_ GUARDED_BY(mutex_) = 0;
  std::function<void()> hook_ GUARDED_BY(mutex_);
};

}  // namespace varda::artifact::testing
