// A file server in this process, as a net::HttpClient: no sockets, and every download fault on
// demand.
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
    std::string etag;  // "\"a\""; "": no ETag
    bool ranges = true;
    int status = 200;             // other than 200: `bytes` is the error page
    std::size_t break_after = 0;  // each connection breaks after this many bytes; 0: never
    std::size_t piece = 1000;     // bytes per read
    bool no_answer = false;       // the connection sends no byte until its context ends
    bool length = true;           // sends Content-Length
    net::Headers headers = {};    // additional headers
    std::size_t range_shift = 0;  // a range begins this many bytes late
    std::size_t range_max = 0;    // limit of bytes per range; 0: no limit
    bool range_ends = true;       // false: every range goes to the end of the file
  };
  void put(std::string url, File file);
  void put(std::string url, std::string bytes) {
    put(std::move(url), File{.bytes = std::move(bytes)});
  }
  void remove(const std::string& url);
  /// Called before each answer, without locks, so that a test can intervene.
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
